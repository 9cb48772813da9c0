"""Writing and reading through Spark Connect, which needs its own Spark."""

import os
import subprocess
import sys

import pytest

from secure_bloom import ParquetFile, read_table, verify_file
from secure_bloom.keys import Keyring
from tests.spark.helpers import QUICK_JVM, uses_spark

pytest.importorskip("grpc")

pytestmark = [*uses_spark, pytest.mark.usefixtures("connect_port")]

PROGRAM = """
import sys
from pyspark.sql import SparkSession
import secure_bloom.spark
from secure_bloom import EncryptionConfiguration, Policy

folder, keyring, jvm = sys.argv[1:]
spark = (SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
         .config("spark.driver.host", "127.0.0.1")
         .config("spark.driver.extraJavaOptions", jvm).getOrCreate())
assert "connect" in type(spark).__module__
secure_bloom.spark.register(spark)
frame = spark.range(0, 10, 1, 2).selectExpr("id", "concat('ssn-', id) ssn", "id % 2 as k")
frame = frame.withMetadata("ssn", {"secure_bloom.key": "pii", "secure_bloom.bloom_filter": True})
(frame.write.format("secure_parquet").option("keyring", keyring)
    .option("parquet.encryption.footer.key", "footer").option("compression", "zstd")
    .mode("append").save(folder))
back = spark.read.format("secure_parquet").option("keyring", keyring).load(folder)
assert sorted(back.collect()) == sorted(frame.collect())
try:
    frame.write.format("secure_parquet").option("plaintext", "true").mode("append").save(folder)
except Exception as error:
    assert "it contradicts metadata secure_bloom.key of column ssn" in str(error), error
else:
    raise AssertionError("sensitive rows were written in plaintext")

policy = Policy(footer_key="footer", columns={"ssn": "pii"})
lost = frame.dropDuplicates(["id"])  # the optimizer drops the mark
secure_bloom.spark.write(lost, folder + "-lost", keys=keyring, encryption=EncryptionConfiguration(
    "footer", {"footer": ["k"]}))
secure_bloom.spark.write(frame.withMetadata("ssn", {}), folder + "-policy", keys=keyring,
                         policy=policy)
for name in ("-lost", "-policy"):
    assert secure_bloom.spark.read(spark, folder + name, keys=keyring, policy=policy,
                                   filters=[("ssn", "=", "ssn-7")]).count() == 1
spark.conf.set("spark.datasource.secure_parquet.policy", policy.to_toml())
secure_bloom.spark.register(spark)  # which reads the setting
try:
    secure_bloom.spark.write(frame.withMetadata("ssn", {}), folder + "-plain", plaintext=True)
except Exception as error:
    assert "column ssn: it would be written in plaintext" in str(error), error
else:
    raise AssertionError("the policy of the session was not enforced")

def days(**options):
    spark.range(4).selectExpr("id", "id % 2 day").write.format("secure_parquet").options(
        plaintext="true", partition_by="day", **options).mode("overwrite").save(folder + "-days")

def refused(write, message):
    try:
        write()
    except Exception as error:
        assert message in str(error), error
    else:
        raise AssertionError("the folder was replaced")

spark.conf.unset("spark.datasource.secure_parquet.policy")
secure_bloom.spark.register(spark)
refused(days, "the data source does not see")  # perhaps the session is in dynamic mode
days(partitionOverwriteMode="static")
spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
refused(lambda: secure_bloom.spark.write(
    spark.range(2).selectExpr("id", "id day"), folder + "-days", mode="overwrite", plaintext=True,
    partition_by="day"), "dynamic overwrite is not supported")
assert secure_bloom.spark.read(spark, folder + "-days").count() == 4
result = secure_bloom.spark.attach(spark, folder, {"id": True}, keyring=keyring)
assert len(result.changed) == 2 and not result.failed, result
spark.stop()
"""


def test_write_and_read(tmp_path):
    keyring = Keyring.create(tmp_path / "keyring.json")
    for name in ("footer", "pii"):
        keyring.add(name)
    folder = tmp_path / "people"
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), str(keyring.path), QUICK_JVM],
        capture_output=True, text=True, timeout=300,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable})
    assert result.returncode == 0, result.stderr
    found = read_table(folder, keys=keyring, filters=[("ssn", "==", "ssn-7")])
    assert all(verify_file(file, keyring).ok and len(ParquetFile(file, keyring).bloom_filters) == 2
               for file in folder.glob("*.parquet"))
    assert found.to_pylist() == [{"id": 7, "ssn": "ssn-7", "k": 1}]


# The commit waits; the client cancels its operation, hears so, and only then lets the commit go on.
CANCELLING = """
import os, sys, threading, time
from pyspark.sql import SparkSession
from secure_bloom.spark import source
from secure_bloom.spark.writing import writer

folder, waits, goes_on, jvm = sys.argv[1:]
spark = (SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false")
         .config("spark.driver.host", "127.0.0.1")
         .config("spark.driver.extraJavaOptions", jvm).getOrCreate())

class Job(writer.Job):
    def _write_record(self, record):
        open(waits, "w").close()
        while not os.path.exists(goes_on): time.sleep(0.1)
        super()._write_record(record)

class Writer(writer.SecureParquetWriter):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.job.__class__ = Job

class Source(source.SecureParquet):
    def writer(self, schema, overwrite):
        return Writer(self._given, schema, overwrite)

def cancel():
    while not os.path.exists(waits): time.sleep(0.1)
    assert spark.interruptAll()
    open(goes_on, "w").close()

spark.dataSource.register(Source)
threading.Thread(target=cancel, daemon=True).start()
try:
    (spark.range(10).write.format("secure_parquet").option("plaintext", "true").mode("append")
        .save(folder))
except Exception as error:
    assert "OPERATION_CANCELED" in str(error), error
else:
    raise AssertionError("the operation was not cancelled")
end = time.time() + 60
while not os.path.exists(folder + "/_SUCCESS") and time.time() < end: time.sleep(0.1)
spark.stop()
"""


@pytest.mark.sweep
def test_an_operation_that_is_cancelled_during_its_commit_may_commit_nevertheless(tmp_path):
    folder = tmp_path / "people"
    result = subprocess.run(
        [sys.executable, "-c", CANCELLING, str(folder), str(tmp_path / "waits"),
         str(tmp_path / "goes_on"), QUICK_JVM], capture_output=True, text=True, timeout=300,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable})
    assert result.returncode == 0, result.stderr
    assert sorted(read_table(folder)["id"].to_pylist()) == list(range(10))
