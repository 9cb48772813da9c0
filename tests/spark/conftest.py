import fcntl
import os
import sys
import tempfile
from pathlib import Path

import pytest

from secure_bloom.keys import Keyring
from tests.spark.helpers import QUICK_JVM


@pytest.fixture(scope="session")
def spark(s3, tmp_path_factory):
    """One local Spark session for all tests, in a time zone other than UTC.

    Its tables are in a folder of this run: one that was killed leaves none behind.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    import secure_bloom.spark
    session = (SparkSession.builder.master("local[2]").appName("secure_bloom tests")
               .config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
               .config("spark.sql.shuffle.partitions", "2")
               .config("spark.driver.host", "127.0.0.1")
               .config("spark.driver.extraJavaOptions", QUICK_JVM)
               .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
               .config("spark.sql.session.timeZone", "America/New_York").getOrCreate())
    secure_bloom.spark.register(session)
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
    return {"keys": str(keyring.path), "parquet.encryption.footer.key": "footer",
            "parquet.encryption.column.keys": "pii: ssn"}


@pytest.fixture
def connect_port():
    """Keep the port of Spark Connect's local server from the tests of other processes."""
    with open(Path(tempfile.gettempdir()) / "secure_bloom-tests-connect.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
