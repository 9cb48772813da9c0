"""A local Spark whose own Parquet reader and writer can encrypt, using a KMS class in Java.

The class is compiled here, which requires javac.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark
from pyspark.sql import SparkSession

from benchmarks.people import MASTER_KEYS

JARS = Path(pyspark.__file__).parent / "jars"

#: The key options for Spark's own reader and writer.
NATIVE = {
    "parquet.crypto.factory.class":
        "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory",
    "parquet.encryption.kms.client.class": "BenchmarkKms",
    "benchmark.keys": ",".join(f"{name}:{key.hex()}" for name, key in MASTER_KEYS.items())}


def session() -> SparkSession:
    """Start a session on all cores, or return the one that an earlier benchmark has started."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (SparkSession.builder.master("local[*]").appName("benchmark")
            .config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.memory", "4g").config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.extraClassPath", _classes().name).getOrCreate())


@cache
def _classes() -> TemporaryDirectory[str]:
    """Compile the KMS class, for as long as this process lives: so long does its JVM."""
    folder = TemporaryDirectory()
    subprocess.run(["javac", "--release", "17", "-proc:none", "-cp", f"{JARS}/*", "-d",
                    folder.name, Path(__file__).with_name("BenchmarkKms.java")], check=True)
    return folder
