"""The Python of Spark's workers. In local mode, one that has this secure_bloom is chosen.

Spark's workers use ``python3`` from the PATH, or ``PYSPARK_PYTHON``, which need not be the driver's
Python. Each function that is passed to Spark names its Python, so ours can name a different one
than the other functions of the application.

Spark lets workers import PySpark from an archive without bytecode, so that each worker process
compiles PySpark again, which takes about a second. If the same PySpark is installed, ours import
that instead.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import secure_bloom
from secure_bloom.display import warn
from secure_bloom.spark.java import jvm_of

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_LOCAL = re.compile(r"local(\[.*\])?")
_SECONDS = 60  # an interpreter answers in less than one
# If secure_bloom is in the current folder, it is importable even without its dependencies.
_PROBE = """
import importlib.util, json, sys
import secure_bloom
for name in ("pyarrow", "cryptography", "thrift", "xxhash"):
    if importlib.util.find_spec(name) is None:
        sys.exit(1)
print(json.dumps([sys.version_info[:2], secure_bloom.__version__]))
"""

_LAUNCHER = """#!/bin/sh
# Start Python without the archives of Spark's folder in its path.
set -f
IFS=:
path=
for entry in $PYTHONPATH; do
  case $entry in {home}/*) ;; *) path=$path${{path:+:}}$entry ;; esac
done
export PYTHONPATH="$path"
exec {python} "$@"
"""
_INSTALLED = """
import importlib.util
print(importlib.util.find_spec("py4j") and importlib.util.find_spec("pyspark").origin)
"""

_fitting: dict[str, str] = {}  # configured Python -> the Python to use, once probed
_log = logging.getLogger("secure_bloom.spark")


@contextlib.contextmanager
def fitting_python(spark: SparkSession) -> Iterator[None]:
    """Run functions that are passed to Spark in this context in a Python with this secure_bloom.

    Only in local mode: elsewhere the workers' Python is not on this machine, and nothing is done. A
    Python that has been found suitable is not probed again. In a Spark Connect session, the Python
    can no longer be changed: if it is not suitable, a warning is issued.
    """
    if not hasattr(spark, "_jsparkSession"):
        if os.environ.get("SPARK_LOCAL_REMOTE"):  # its server is a child of this process
            _choose(os.environ.get("PYSPARK_PYTHON")
                    or os.environ.get("PYSPARK_DRIVER_PYTHON") or "python3", is_fixed=True)
        yield
        return
    context = spark.sparkContext
    if not _LOCAL.fullmatch(context.master or ""):
        yield
        return
    own = context.pythonExec
    context.pythonExec = _without_archives(context, _choose(own))
    try:
        yield
    finally:
        context.pythonExec = own


def _without_archives(context: SparkContext, python: str) -> str:
    """Return a program that runs this Python with the PySpark that is installed in it.

    If that is not the one that Spark's archive contains, or anything else prevents it, the Python
    itself is returned.
    """
    try:
        launcher = Path(context._temp_dir, f"python-{uuid.uuid5(uuid.NAMESPACE_URL, python)}")
        if launcher.exists():
            return str(launcher)
        home = jvm_of(context).System.getenv("SPARK_HOME")
        draft = launcher.with_suffix(f".{uuid.uuid4().hex}")  # a thread may do the same now
        draft.write_text(_LAUNCHER.format(home=shlex.quote(home), python=shlex.quote(python)))
        draft.chmod(0o700)
        installed = _output([str(draft), "-c", _INSTALLED])
        if not os.path.samefile(os.path.dirname(installed.strip()), home):
            return python
        draft.rename(launcher)
        return str(launcher)
    except Exception as error:  # of py4j, of the platform, or of another pyspark
        _log.info("Spark's workers import pyspark from its archive: %s", error)
        return python


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True,
                          stdin=subprocess.DEVNULL, timeout=_SECONDS).stdout


def _choose(python: str, *, is_fixed: bool = False) -> str:
    """Return the Python to use: the configured one or, if it is not suitable, this one."""
    if python in _fitting:
        return _fitting[python]
    why = fault(python)
    if why is None:
        _fitting[python] = python
    elif not is_fixed and sys.executable and fault(sys.executable) is None:
        _log.info("%s %s; secure_parquet uses %s instead", python, why, sys.executable)
        _fitting[python] = sys.executable
    else:
        warn(UserWarning(f"the Python of Spark's workers, {python}, {why}: install secure_bloom "
                         f"{secure_bloom.__version__} there, or set PYSPARK_PYTHON to a Python "
                         f"{_version(sys.version_info)} that has it, before the session is "
                         "created"))
        return python
    return _fitting[python]


def fault(python: str) -> str | None:
    """Return why a Python cannot be used, as the end of a sentence; None if it can."""
    try:
        result = subprocess.run([python, "-c", _PROBE], capture_output=True, text=True,
                                errors="replace", stdin=subprocess.DEVNULL, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return "cannot be run"
    if result.returncode:
        return "does not have secure_bloom, or its dependencies"
    try:
        version, release = json.loads(result.stdout.splitlines()[-1])
        version = tuple(version)
    except (IndexError, TypeError, ValueError):  # another program
        return "cannot be run as Python"
    if version != sys.version_info[:2]:
        return f"is Python {_version(version)}, but the driver uses {_version(sys.version_info)}"
    if release != secure_bloom.__version__:
        return f"has secure_bloom {release}, but the driver has {secure_bloom.__version__}"
    return None


def _version(info: Sequence[object]) -> str:
    return f"{info[0]}.{info[1]}"
