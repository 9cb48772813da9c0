"""Attaching filters with Spark to a folder of Spark's own files."""

import pyarrow as pa
import pytest

import secure_bloom.spark
from secure_bloom import (
    BloomFilterOptions,
    ParquetFile,
    attach,
    read_table,
    verify_file,
    write_table,
)
from secure_bloom.errors import ColumnError, UnsupportedError
from secure_bloom.keys import Keyring
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.spark.maintain import _attach_to_one
from secure_bloom.spark.options.kms import uri_for_tasks
from tests.page_indexes import check_offset_indexes

pytestmark = pytest.mark.spark


def frame(spark):
    return spark.range(10_000).selectExpr("id", "concat('s', id) as ssn", "id % 3 as part",
                                          "timestamp_micros(id - 5000) as moment")


def checksum(frame) -> int:
    return frame.selectExpr("bit_xor(xxhash64(id, ssn, part, moment))").first()[0]


def test_files_of_spark(spark, tmp_path):
    """Spark reads them after that: their checksum files are gone with the old bytes."""
    folder = tmp_path / "rows"
    frame(spark).coalesce(1).write.partitionBy("part").parquet(str(folder))
    assert list(folder.rglob(".*.crc"))
    before = checksum(spark.read.parquet(str(folder)))
    would = secure_bloom.spark.attach(spark, folder, {"ssn": True}, dry_run=True)
    assert len(would.changed) == 3
    with pytest.raises(ColumnError, match="none of the 3 files has such a column"):
        secure_bloom.spark.attach(spark, folder, {"snn": True})
    result = secure_bloom.spark.attach(
        spark, folder, {"ssn": True, "id": BloomFilterOptions(fpp=0.1)})
    assert [change.file for change in result.changed] == [change.file for change in would.changed]
    assert not result.failed and all(change.built == 2 for change in result.changed)
    spark.catalog.clearCache()
    assert checksum(spark.read.parquet(str(folder))) == before
    assert spark.read.parquet(str(folder)).where("ssn = 's77'").count() == 1
    for change in result.changed:
        assert verify_file(change.file).ok and len(ParquetFile(change.file).bloom_filters) == 2
    again = secure_bloom.spark.attach(spark, folder, ["ssn"])
    assert again.unchanged == 3 and not again.changed
    others = secure_bloom.spark.attach(spark, folder, True).changed
    assert {change.columns for change in others} == {("moment",)}
    with pytest.raises(TypeError, match="a list of column paths"):
        secure_bloom.spark.attach(spark, folder, "ssn")


def test_files_behind_links_out_of_the_folder_are_not_changed(spark, tmp_path):
    (tmp_path / "rows").mkdir()
    for name in ("rows/a.parquet", "victim.parquet"):
        write_table(pa.table({"ssn": ["s1"]}), tmp_path / name, bloom_filters=None)
    (tmp_path / "rows" / "b.parquet").symlink_to(tmp_path / "victim.parquet")
    before = (tmp_path / "victim.parquet").read_bytes()
    result = secure_bloom.spark.attach(spark, tmp_path / "rows", {"ssn": True})
    assert len(result.changed) == 1 and (tmp_path / "victim.parquet").read_bytes() == before
    assert "out of the table" in result.failed[str(tmp_path / "rows" / "b.parquet")]


def test_encrypted_files(spark, tmp_path, encrypted):
    folder, keyring = tmp_path / "rows", encrypted["keys"]
    frame(spark).repartition(3).write.format("secure_parquet").options(**encrypted) \
        .option("write_page_index", "false").mode("append").save(str(folder))
    before = checksum(spark.read.format("secure_parquet").option("keys", keyring)
                      .load(str(folder)))
    indexed = secure_bloom.spark.attach(spark, folder, keys=keyring, page_index=True)
    assert [(change.built, change.indexed) for change in indexed.changed] == [(0, 4)] * 3
    result = secure_bloom.spark.attach(spark, folder, {"ssn": True, "id": True}, keys=keyring)
    assert len(result.changed) == 3 and not result.failed
    ring = Keyring(keyring)
    for change in result.changed:
        assert verify_file(change.file, ring).ok
        assert check_offset_indexes(OpenFile(change.file, ring)) == 4
        infos = ParquetFile(change.file, ring).bloom_filters
        assert {(info.column, info.encrypted) for info in infos} == {("ssn", True), ("id", False)}
    assert checksum(spark.read.format("secure_parquet").option("keys", keyring)
                    .load(str(folder))) == before
    failed = secure_bloom.spark.attach(spark, folder, {"ssn": True}, replace=True).failed
    assert len(failed) == 3 and all("key" in message for message in failed.values())


@pytest.mark.sweep
def test_tables_of_streaming_queries_are_refused(spark, tmp_path):
    """Spark takes the sizes of their files from its log."""
    source, folder = tmp_path / "in", tmp_path / "out"
    frame(spark).coalesce(1).write.parquet(str(source))
    stream = spark.readStream.schema(frame(spark).schema).parquet(str(source))
    stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "check")) \
        .trigger(availableNow=True).start(str(folder)).awaitTermination()
    assert spark.read.parquet(str(folder)).count() == 10_000
    with pytest.raises(UnsupportedError, match="Streaming"):
        secure_bloom.spark.attach(spark, folder, {"ssn": True})
    with pytest.raises(UnsupportedError, match="Streaming"):
        read_table(folder)
    # Otherwise this would happen:
    log = (folder / "_spark_metadata").rename(tmp_path / "log")
    attach(folder, {"ssn": BloomFilterOptions(ndv=100_000)})
    log.rename(folder / "_spark_metadata")
    with pytest.raises(Exception, match=r"(?s)FAILED_READ_FILE|magic|parquet"):
        checksum(spark.read.parquet(str(folder)))


def test_a_link_that_comes_before_the_task_of_its_file_is_not_followed(tmp_path):
    keyring = Keyring.create(tmp_path / "keyring.json")
    (tmp_path / "victim").mkdir()
    (tmp_path / "rows").mkdir()
    write_table(pa.table({"n": [1]}), victim := tmp_path / "victim" / "a.parquet")
    before = victim.read_bytes()
    (path := tmp_path / "rows" / "a.parquet").symlink_to(victim)
    result = _attach_to_one(str(tmp_path / "rows"), uri_for_tasks(keyring), True, False, False,
                            False, str(path))
    assert "out of the table" in result.failed[str(path)]
    assert victim.read_bytes() == before
