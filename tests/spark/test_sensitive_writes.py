"""Sensitive columns written by Spark's own writers: what is refused, and what is not."""

import uuid

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from secure_bloom import EncryptionConfiguration, read_table, write_table
from secure_bloom.spark import classic, native
from tests.spark.helpers import read, uses_spark, visible, write
from tests.tiers import sweep_where

pytestmark = uses_spark

MARK = {"secure_bloom.key": "pii"}
REFUSED = r"nothing was written: column (\w+\.)*(ssn|x) is sensitive"
FACTORY = "parquet.crypto.factory.class"


@pytest.fixture
def frame(spark, tmp_path, keyring, encrypted):
    """Rows read from an encrypted file, whose column ssn is sensitive."""
    (tmp_path / "t").mkdir()
    write_table(pa.table({"id": range(6), "ssn": [f"ssn-{i}" for i in range(6)]}),
                tmp_path / "t" / "a.parquet", keys=keyring, bloom_filters={},
                encryption=EncryptionConfiguration("footer", {"pii": ["ssn"]}))
    return read(spark, tmp_path / "t", keys=encrypted["keys"])


def assert_refused(action, folder, match=REFUSED):
    with pytest.raises(Exception, match=match) as caught:
        action()
    assert "secure_bloom.spark.native" in str(caught.value)
    assert visible(folder) == []


@sweep_where(lambda format: format not in ("parquet", "csv"))
@pytest.mark.parametrize("format", ["parquet", "csv", "json", "orc", "text"])
def test_files_of_spark(frame, tmp_path, format):
    frame = frame.select("ssn") if format == "text" else frame
    assert_refused(lambda: frame.write.format(format).save(f"{tmp_path}/out"), tmp_path / "out")
    # Columns that are not, or no longer, sensitive are written.
    frame.withMetadata("ssn", {}).write.format(format).save(f"{tmp_path}/public")
    assert visible(tmp_path / "public")
    if format != "text":
        frame.select("id").write.format(format).save(f"{tmp_path}/ids")
        assert visible(tmp_path / "ids")


@pytest.mark.parametrize("derive", [
    lambda frame: frame.where("id > 2").orderBy("ssn").limit(2),
    lambda frame: frame.withColumnRenamed("ssn", "x"),
    lambda frame: frame.groupBy("ssn").count(),
    lambda frame: frame.join(frame.selectExpr("id"), "id"),
    lambda frame: frame.union(frame),
    lambda frame: frame.select(F.array(F.struct("ssn")).alias("s")),
    lambda frame: frame.cache()])
def test_what_a_query_hands_on_stays_sensitive(frame, tmp_path, derive):
    assert_refused(lambda: derive(frame).write.json(f"{tmp_path}/out"), tmp_path / "out")


@pytest.mark.sweep
@pytest.mark.parametrize("derive", [
    lambda frame: frame.selectExpr("upper(ssn) as x"),
    lambda frame: frame.withMetadata("ssn", {}).union(frame)])
def test_expressions_and_the_second_side_of_a_union_are_not_noticed(frame, tmp_path, derive):
    derive(frame).write.json(f"{tmp_path}/out")
    assert visible(tmp_path / "out")


@pytest.mark.sweep
def test_partitions_tables_and_sql(spark, frame, tmp_path):
    database = f"db_{uuid.uuid4().hex}"
    spark.sql(f"create database {database} location '{tmp_path}/database'")
    frame.createOrReplaceTempView("sensitive")
    try:
        for action in (
                lambda: frame.write.partitionBy("ssn").parquet(f"{tmp_path}/out"),
                lambda: frame.write.partitionBy("id").csv(f"{tmp_path}/out"),
                lambda: frame.write.saveAsTable(f"{database}.t"),
                lambda: frame.write.bucketBy(2, "id").saveAsTable(f"{database}.t"),
                lambda: frame.writeTo(f"{database}.t").using("orc").create(),
                lambda: spark.sql(
                    f"create table {database}.t using parquet as select * from sensitive"),
                lambda: spark.sql(f"insert overwrite directory '{tmp_path}/out' using csv "
                                  "select * from sensitive"),
                lambda: frame.write.jdbc("jdbc:none:", "t")):
            assert_refused(action, tmp_path / "out")
        assert not visible(tmp_path / "database" / "t")
        # Spark gives the rows the metadata of the table's own columns.
        spark.sql(f"create table {database}.old (id bigint, ssn string) using parquet")
        spark.sql(f"insert into {database}.old select * from sensitive")
        frame.write.insertInto(f"{database}.old")
        assert spark.table(f"{database}.old").count() == 12
    finally:
        spark.sql("drop view sensitive")
        spark.sql(f"drop database {database} cascade")


@pytest.mark.sweep
def test_a_stream_is_refused_where_a_batch_is(spark, tmp_path):
    source = tmp_path / "in"
    spark.range(3).selectExpr("concat('ssn-', id) as ssn", "id").write.parquet(str(source))
    stream = spark.readStream.schema("ssn string, id long").parquet(str(source))
    marked = stream.withMetadata("ssn", MARK)

    def run(writer, start):
        writer = writer.option("checkpointLocation", str(tmp_path / uuid.uuid4().hex))
        start(writer.trigger(availableNow=True)).awaitTermination()

    def to_out(writer):
        return writer.start(f"{tmp_path}/out")

    name = f"t_{uuid.uuid4().hex}"
    spark.sql(f"create table {name} (ssn string, id long) using orc location '{tmp_path}/table'")
    each = marked.writeStream.foreachBatch(
        lambda batch, number: batch.write.json(str(tmp_path / "out")))
    try:
        for writer, start in (
                *((marked.writeStream.format(one), to_out)
                  for one in ("parquet", "csv", "json", "orc")),
                (marked.writeStream.format("json").partitionBy("ssn"), to_out),
                (marked.where("id in (1, 2)").writeStream.format("json"), to_out),
                (marked.writeStream.format("orc"), lambda writer: writer.toTable(name)),
                (marked.writeStream.format("console"), lambda writer: writer.start()),
                (each, lambda writer: writer.start())):
            assert_refused(lambda writer=writer, start=start: run(writer, start), tmp_path / "out",
                           r"(?s).*" + REFUSED)
        assert visible(tmp_path / "table") == []
    finally:
        spark.sql(f"drop table {name}")
    for format in ("noop", "memory"):
        run(marked.writeStream.format(format).queryName("sensitive"),
            lambda writer: writer.start())
    run(marked.select("id").writeStream.format("json"), to_out)
    assert visible(tmp_path / "out")


@pytest.mark.sweep
def test_what_does_not_leave_or_is_encrypted_is_let_through(spark, frame, tmp_path, encrypted):
    frame.write.format("noop").mode("overwrite").save()
    write(frame, tmp_path / "copy", **encrypted)
    assert frame.toPandas().shape == (6, 2)
    # A third-party class cannot be checked; parquet-java's own needs the names of keys.
    by_properties = "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory"
    assert_refused(lambda: frame.write.option(FACTORY, by_properties).parquet(f"{tmp_path}/out"),
                   tmp_path / "out")
    with pytest.raises(Exception, match=r"kms\.client\.class"):  # so it reached parquet-java
        frame.write.options(**{FACTORY: by_properties, "parquet.encryption.footer.key": "k",
                               "parquet.encryption.column.keys": "k: ssn"}) \
            .parquet(f"{tmp_path}/out")


def test_sparks_own_writer_with_our_keys(spark, frame, keyring, tmp_path):
    session = frame.sparkSession
    native.enable(session)
    try:
        options, others = (
            native.write_options(encryption=EncryptionConfiguration("footer", {"pii": [column]}),
                                 bloom_filters={}, keys=keyring) for column in ("ssn", "id"))
        frame.write.options(**options).parquet(f"{tmp_path}/native")
        assert read_table(tmp_path / "native", keys=keyring).num_rows == 6
        with pytest.raises(Exception, match="nothing was written: metadata"):
            frame.write.option("plaintext", "true").parquet(f"{tmp_path}/plain")
        assert_refused(lambda: frame.select("ssn").write.csv(f"{tmp_path}/out"), tmp_path / "out")
        assert_refused(lambda: frame.write.options(**others).partitionBy("ssn")
                       .parquet(f"{tmp_path}/out"), tmp_path / "out")
    finally:
        spark.sparkContext._jsc.hadoopConfiguration().unset(FACTORY)
        session.conf.unset("secure_bloom.native.plaintext")


def test_registering_again_adds_no_second_net_and_compiles_nothing(spark, monkeypatch):
    import secure_bloom.spark

    def rules():
        found = spark._jsparkSession.experimental().extraOptimizations()
        return [found.apply(number).ruleName() for number in range(found.size())]

    before = rules()  # native.enable adds one, too
    monkeypatch.setattr(classic, "build_jar", None)
    secure_bloom.spark.register(spark)
    assert rules() == before
    assert before.count("secure_bloom.spark.SensitiveWrites") == 1


def test_where_the_jvm_is_out_of_reach_a_warning_says_what_is_missing(caplog):
    class Session:
        _jsparkSession = None

    classic.extend(Session())
    [record] = caplog.records
    assert record.levelname == "WARNING" and "sensitive columns are not checked" in record.message
