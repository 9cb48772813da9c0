import os
import sys

import pytest

from secure_bloom.keys import Keyring
from tests.spark.helpers import QUICK_JVM


def python_with_imports(folder) -> str:
    """Return a command that runs this Python, but our daemon for PySpark's.

    Spark has a setting for the daemon of tasks, but none for the daemons of its planner.
    """
    command = folder / "python"
    command.write_text(f'''#!/bin/sh
if [ "$1 $2" = "-m pyspark.daemon" ]; then
    shift 2
    set -- -m tests.spark.daemon "$@"
fi
exec "{sys.executable}" "$@"
''')
    command.chmod(0o755)
    return str(command)


@pytest.fixture(scope="session")
def spark(s3, tmp_path_factory):
    """One local Spark session for all tests, in a time zone other than UTC."""
    os.environ["PYSPARK_PYTHON"] = python_with_imports(tmp_path_factory.mktemp("python"))
    from pyspark.sql import SparkSession

    import secure_bloom.spark
    session = (SparkSession.builder.master("local[2]").appName("secure_bloom tests")
               .config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
               .config("spark.sql.shuffle.partitions", "2")
               .config("spark.driver.host", "127.0.0.1")
               .config("spark.driver.extraJavaOptions", QUICK_JVM)
               .config("spark.sql.session.timeZone", "America/New_York").getOrCreate())
    secure_bloom.spark.register(session)
    os.environ["PYSPARK_PYTHON"] = sys.executable  # for tests that start their own Spark
    yield session
    session.stop()


@pytest.fixture(scope="module")
def native_spark(spark):
    """A session in which ``native.enable`` was called; other modules are not affected."""
    from secure_bloom.spark import native
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    native.enable(session)
    yield session
    spark.sparkContext._jsc.hadoopConfiguration().unset("parquet.crypto.factory.class")


@pytest.fixture
def keyring(tmp_path):
    keyring = Keyring.create(tmp_path / "keyring.json")
    for name in ("footer", "pii", "money"):
        keyring.add(name)
    return keyring


@pytest.fixture
def encrypted(keyring):
    """Options that encrypt column ssn with key pii."""
    return {"keyring": str(keyring.path), "parquet.encryption.footer.key": "footer",
            "parquet.encryption.column.keys": "pii: ssn"}
