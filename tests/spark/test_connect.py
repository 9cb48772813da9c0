"""Writing and reading through Spark Connect, which needs its own Spark."""


import pytest

import secure_bloom.spark
from secure_bloom import ParquetFile, read_table, verify_file
from secure_bloom.errors import UnsupportedError
from secure_bloom.keys import Keyring
from secure_bloom.spark import native
from tests.spark.helpers import own_spark, people, uses_spark

pytestmark = uses_spark

PROGRAM = """
import secure_bloom.spark
from secure_bloom import EncryptionConfiguration, Policy

folder, keyring = sys.argv[1:]
assert "connect" in type(spark).__module__
secure_bloom.spark.register(spark)
frame = spark.range(0, 10, 1, 2).selectExpr("id", "concat('ssn-', id) ssn", "id % 2 as k")
frame = frame.withMetadata("ssn", {"secure_bloom.key": "pii", "secure_bloom.bloom_filter": True})
(frame.write.format("secure_parquet").option("keys", keyring)
    .option("parquet.encryption.footer.key", "footer").option("compression", "zstd")
    .mode("append").save(folder))
back = spark.read.format("secure_parquet").option("keys", keyring).load(folder)
assert sorted(back.collect()) == sorted(frame.collect())
try:
    frame.write.format("secure_parquet").option("plaintext", "true").mode("append").save(folder)
except Exception as error:
    assert "it contradicts metadata secure_bloom.key of column ssn" in str(error), error
else:
    raise AssertionError("sensitive rows were written in plaintext")

policy = Policy(footer_key="footer", columns={"ssn": "pii"})
lost = frame.dropDuplicates(["id"])  # the optimizer drops the mark
summary = secure_bloom.spark.write(lost, folder + "-lost", keys=keyring,
                                   encryption=EncryptionConfiguration("footer", {"footer": ["k"]}))
assert summary.rows == 10 and summary.encrypted_columns == {"ssn": "pii", "k": "footer"}, summary
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
table = f"path '{folder}-table', plaintext 'true', partition_by 'day'"
spark.sql(f"create table t (id bigint, day bigint) using secure_parquet partitioned by (day) "
          f"location '{folder}-table'")
for rows in ("(1, 1), (2, 2)", "(3, 2)"):
    spark.sql(f"insert overwrite t with ({table}, partitionOverwriteMode 'dynamic') "
              f"values {rows}").collect()
found = spark.sql(f"select * from t with (path '{folder}-table')").collect()
assert sorted(found) == [(1, 1), (3, 2)], found
refused(lambda: spark.sql(f"insert into t with ({table}) partition (day = 3) select 3"),
        "PARTITION clause cannot contain")
spark.sql("drop table t")
spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
secure_bloom.spark.write(spark.range(10, 13).selectExpr("id", "1L day"), folder + "-days",
                         mode="overwrite", plaintext=True, partition_by="day")
assert secure_bloom.spark.read(spark, folder + "-days").count() == 5

def stream(number, **options):
    people = secure_bloom.spark.read_stream(spark, folder, keys=keyring, **options)
    (people.drop("ssn").writeStream.format("secure_parquet").option("plaintext", "true")
        .option("checkpointLocation", f"{folder}-check").trigger(availableNow=True)
        .start(f"{folder}-copy").awaitTermination())
    assert secure_bloom.spark.read(spark, f"{folder}-copy").count() == number

refused(lambda: stream(0), "checkpointLocation: Spark does not say")
stream(10, checkpointLocation=f"{folder}-check", maxFilesPerTrigger=1)
frame.limit(1).write.format("secure_parquet").options(
    **{"keys": keyring, "parquet.encryption.footer.key": "footer"}).mode("append").save(folder)
stream(11, checkpointLocation=f"{folder}-check")
result = secure_bloom.spark.attach(spark, folder, {"id": True}, keys=keyring)
stream(11, checkpointLocation=f"{folder}-check")
assert len(result.changed) == 3 and not result.failed, result
spark.stop()
"""


class WithoutJvm:
    """A session that, like those of Spark Connect, has no way to the JVM."""

    def __init__(self, session):
        self._session = session

    def __getattr__(self, name):
        if name.startswith("_j") or name == "sparkContext":
            raise AttributeError(name)
        return getattr(self._session, name)


def test_nothing_needs_the_jvm(spark, tmp_path, keyring):
    frame = people(spark, 4).withMetadata("ssn", {"secure_bloom.key": "pii"})
    secure_bloom.spark.write(frame, tmp_path / "t", keys=keyring, **{
        "parquet.encryption.footer.key": "footer"})
    found = secure_bloom.spark.read(WithoutJvm(spark), tmp_path / "t", keys=keyring,
                                    filters=[("ssn", "=", "ssn-3")])
    assert found.select("id").collect() == [(3,)]
    result = secure_bloom.spark.attach(WithoutJvm(spark), tmp_path / "t", {"id": True},
                                       keys=keyring)
    assert len(result.changed) == 2 and not result.failed
    with pytest.raises(UnsupportedError, match="a Spark Connect session, which does not"):
        native.enable(WithoutJvm(spark))


@pytest.mark.usefixtures("connect_port")
@pytest.mark.sweep
def test_write_and_read(tmp_path):
    pytest.importorskip("grpc")
    keyring = Keyring.create(tmp_path / "keyring.json")
    for name in ("footer", "pii"):
        keyring.add(name)
    folder = tmp_path / "people"
    result = own_spark(PROGRAM, folder, keyring.path, remote=True)
    assert result.returncode == 0, result.stderr
    found = read_table(folder, keys=keyring, filters=[("ssn", "==", "ssn-7")])
    assert all(verify_file(file, keyring).ok and len(ParquetFile(file, keyring).bloom_filters) == 2
               for file in folder.glob("*.parquet"))
    assert found.to_pylist() == [{"id": 7, "ssn": "ssn-7", "k": 1}]


# The commit waits; the client cancels its operation, hears so, and only then lets the commit go on.
CANCELLING = """
import threading, time
from secure_bloom.spark import source
from secure_bloom.spark.writing import writer

folder, waits, goes_on = sys.argv[1:]

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


@pytest.mark.usefixtures("connect_port")
@pytest.mark.sweep
def test_an_operation_that_is_cancelled_during_its_commit_may_commit_nevertheless(tmp_path):
    pytest.importorskip("grpc")
    folder = tmp_path / "people"
    result = own_spark(CANCELLING, folder, tmp_path / "waits", tmp_path / "goes_on", remote=True)
    assert result.returncode == 0, result.stderr
    assert sorted(read_table(folder)["id"].to_pylist()) == list(range(10))
