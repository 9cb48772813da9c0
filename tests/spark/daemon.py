"""PySpark's daemon, with the modules that its workers import.

Spark forks a worker for each step of planning and for many tasks. PySpark's own daemon imports
next to nothing before the fork, so that each worker takes half a second or more for its imports.
Tests that start their own Spark use PySpark's own daemon.
"""

import importlib
import runpy
import sys

import pyarrow.dataset  # noqa: F401

import secure_bloom.spark.reading.reader
import secure_bloom.spark.source
import secure_bloom.spark.writing.writer  # noqa: F401

if __name__ == "__main__":
    importlib.import_module(sys.argv[1])
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
