"""Writing with a real Spark: what is in the files, and what is refused before any task runs."""

import os
import shutil
import uuid

import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql import types as T

from secure_bloom import ParquetFile, read_table
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.spark.schema.sensitivity import mark
from tests.page_indexes import check_offset_indexes
from tests.spark.helpers import PLAINTEXT, people, read, refusal, uses_spark, visible, write
from tests.tiers import sweep_where

pytestmark = uses_spark

ENABLED = "parquet.bloom.filter.enabled"


def files(folder, keyring):
    return [ParquetFile(folder / name, keyring) for name in visible(folder)]


def test_filters_of_encrypted_columns_are_encrypted_and_others_plain(spark, tmp_path, keyring,
                                                                     encrypted):
    folder = tmp_path / "people"
    write(people(spark), folder, **encrypted, compression="none",
          **{f"{ENABLED}#SSN": "true", f"{ENABLED}#city": "true"})
    assert len(visible(folder)) == 2
    for file in files(folder, keyring):
        assert {info.column: info.encrypted for info in file.bloom_filters} == {
            "ssn": True, "city": False}
        raw = (folder / file.name).read_bytes()
        assert bytes(file.read_bloom_filter(0, "city").bitset) in raw
        assert bytes(file.read_bloom_filter(0, "ssn").bitset) not in raw
        assert b"city-1" in raw
        assert b"ssn-" not in raw
        assert not any(key in raw for key in keyring._master_keys().values())


def test_prune(spark, tmp_path, keyring, encrypted):
    folder = tmp_path / "people"
    write(people(spark), folder, **encrypted, row_group_size="10", **{ENABLED: "true"})
    kept = [file.prune([("ssn", "==", "ssn-77")]) for file in files(folder, keyring)]
    assert sum(map(len, kept)) < 4  # of 10 row groups; filters have false positives
    found = read_table(folder, keys=keyring, filters=[("ssn", "==", "ssn-77")])
    assert found.to_pylist() == [{"ssn": "ssn-77", "city": "city-7", "id": 77}]
    assert read_table(folder, keys=keyring).num_rows == 100


def test_row_groups_and_filter_sizes(spark, tmp_path):
    folder = tmp_path / "people"
    write(people(spark, 25_000).coalesce(1), folder, **PLAINTEXT, row_group_size="12000",
          compression="zstd", **{"parquet.bloom.filter.max.bytes": "1024",
                                 f"{ENABLED}#id": "true",
                                 "parquet.bloom.filter.expected.ndv#ssn": "10"})
    [file] = files(folder, None)
    assert [file.footer.row_group_num_rows(group) for group in range(file.num_row_groups)] == [
        12_000, 12_000, 1_000]
    assert {info.num_bytes for info in file.bloom_filters if info.column == "id"} == {1024}
    assert {info.num_bytes for info in file.bloom_filters if info.column == "ssn"} == {32}
    metadata = pq.read_metadata(folder / visible(folder)[0])
    assert metadata.row_group(0).column(0).compression == "ZSTD"


def numbers(spark):
    """Three rows. This makes the session the active one, whose settings Spark's analysis uses."""
    return spark.createDataFrame([(0,), (1,), (2,)], "id long")


def marked(spark, rows=100):
    """Rows whose schema says what is sensitive: one column, and a field in a map of structs."""
    secret = {"secure_bloom.key": "pii", "secure_bloom.bloom_filter": True}
    frame = people(spark, rows).select(
        "id", "city", F.col("ssn").alias("ssn", metadata=secret),
        F.expr("map('home', named_struct('zip', city, 'phone', concat('phone-', id)))").alias("at"))
    phone = T.StructType([T.StructField("zip", T.StringType()),
                          T.StructField("phone", T.StringType(), True,
                                        {"secure_bloom.key": "money"})])
    schema = T.StructType([*list(frame.schema)[:3],
                           T.StructField("at", T.MapType(T.StringType(), phone))])
    return spark.createDataFrame(frame.collect(), schema)


def test_what_is_sensitive_stands_in_the_schema(spark, tmp_path, keyring):
    footer = {"keys": str(keyring.path), "parquet.encryption.footer.key": "footer"}
    write(marked(spark), tmp_path / "one", **footer, compression="none", use_dictionary="false")
    for folder in ("one", "two"):
        for file in files(tmp_path / folder, keyring):
            raw = (tmp_path / folder / file.name).read_bytes()
            assert b"city-" in raw and b"ssn-" not in raw and b"phone-" not in raw
            assert [(info.column, info.encrypted) for info in file.bloom_filters] == [
                ("ssn", True)]
            assert {chunk.column.path for chunk in file.footer.row_groups[0]
                    if chunk.encryption == "column key"} == {"ssn", "at.key_value.value.phone"}
        if folder == "one":  # columns that are read back are still sensitive
            back = read(spark, tmp_path / "one", keys=footer["keys"])
            write(back, tmp_path / "two", **footer, compression="none", use_dictionary="false")
    refused(back, tmp_path / "three", "plaintext: it contradicts metadata secure_bloom.key of "
            "column ssn", **PLAINTEXT)
    refused(back, tmp_path / "three", "option parquet.encryption.footer.key: missing",
            keys=footer["keys"])


@pytest.mark.sweep
def test_columns_that_differ_in_case_only_are_told_apart_where_case_is_kept(spark, tmp_path,
                                                                            keyring):
    folder = tmp_path / "t"
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        frame = numbers(spark).selectExpr("concat('low-', id) as a", "concat('up-', id) as A")
        write(frame.withMetadata("A", {"secure_bloom.key": "pii"}), folder,
              keys=str(keyring.path), compression="none", bloom_filters='{"a": true}',
              **{"parquet.encryption.footer.key": "footer"})
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    for file in files(folder, keyring):
        raw = (folder / file.name).read_bytes()
        assert b"low-" in raw and b"up-" not in raw
        assert [info.column for info in file.bloom_filters] == ["a"]


def test_encrypted_files_in_hive_folders(spark, tmp_path, keyring, encrypted):
    folder = tmp_path / "t"
    write(people(spark).repartition(2, "city"), folder, **encrypted, partition_by="city",
          max_rows_per_file="4", **{f"{ENABLED}#ssn": "true"})
    assert visible(folder) == [f"city=city-{n}" for n in range(10)]
    for part in visible(folder):
        assert len(visible(folder / part)) == 3  # 10 rows
        for file in files(folder / part, keyring):
            assert [info.encrypted for info in file.bloom_filters] == [True]
            assert file.schema.names == ["ssn", "id"]
            assert check_offset_indexes(OpenFile(file.name, keyring)) == 2
    found = read_table(folder, keys=keyring, filters=[("ssn", "==", "ssn-77")])
    assert found.to_pylist() == [{"ssn": "ssn-77", "id": 77, "city": "city-7"}]
    assert read_table(folder, keys=keyring).num_rows == 100


@pytest.mark.sweep
def test_options_of_pyarrow_reach_the_files(spark, tmp_path):
    write(people(spark).coalesce(1), tmp_path, **PLAINTEXT, compression="zstd",
          compression_level="9", use_dictionary="city", write_statistics="ssn",
          column_encoding='{"ID": "DELTA_BINARY_PACKED"}', data_page_version="2.0",
          write_page_index="false", row_group_size="30", maxRecordsPerFile="60")
    metadata = [pq.read_metadata(tmp_path / name) for name in visible(tmp_path)]
    assert sorted(one.num_rows for one in metadata) == [40, 60]
    ssn, city, number = (metadata[0].row_group(0).column(i) for i in range(3))
    assert "RLE_DICTIONARY" in city.encodings and "RLE_DICTIONARY" not in ssn.encodings
    assert "DELTA_BINARY_PACKED" in number.encodings
    assert ssn.is_stats_set and not city.is_stats_set
    assert not ssn.has_offset_index
    assert spark.read.parquet(str(tmp_path)).count() == 100


@pytest.mark.sweep
def test_a_folder_by_file_uri(spark, tmp_path):
    write(people(spark), f"file:{tmp_path}/with space", **PLAINTEXT)
    assert read_table(tmp_path / "with space").num_rows == 100
    assert read(spark, f"file://{tmp_path}/with space").count() == 100


# --- modes ---------------------------------------------------------------------------------------

@pytest.mark.sweep
def test_unknown_schemes_are_refused(spark, tmp_path):
    home = spark._jvm.System.getProperty("user.dir")
    before = set(os.listdir(home))
    for action in (lambda: write(people(spark), "dbfs:/people", **PLAINTEXT),
                   lambda: read(spark, "dbfs:/people")):
        with pytest.raises(AnalysisException, match="write /dbfs/people"):
            action()
    assert not [name for name in {*os.listdir(home)} - before if "dbfs" in name or "people" in name]


@pytest.mark.sweep
def test_a_relative_path_is_that_of_spark(spark, tmp_path, monkeypatch):
    """Relative to where Spark was started, whatever the folder of this process is now."""
    folder = f"{uuid.uuid4().hex}/people"
    monkeypatch.chdir(tmp_path)
    try:
        write(people(spark, 3), folder, **PLAINTEXT)
        assert spark.read.parquet(folder).count() == read(spark, folder).count() == 3
    finally:
        home = spark._jvm.System.getProperty("user.dir")
        shutil.rmtree(f"{home}/{os.path.dirname(folder)}", ignore_errors=True)
    assert os.listdir(tmp_path) == []


def test_append_and_overwrite(spark, tmp_path):
    folder = tmp_path / "people"
    for mode, start, expected in [("append", 0, 10), ("append", 10, 20), ("overwrite", 50, 10)]:
        write(people(spark, 10, start), folder, mode, **PLAINTEXT)
        assert read_table(folder).num_rows == expected
    assert sorted(read_table(folder)["id"].to_pylist()) == list(range(50, 60))
    assert (folder / "_SUCCESS").exists()


@pytest.mark.sweep
def test_overwrite_of_what_spark_itself_wrote(spark, tmp_path):
    folder = tmp_path / "people"
    people(spark).write.parquet(str(folder))
    write(people(spark, 7), folder, "overwrite", **PLAINTEXT)
    assert read_table(folder).num_rows == 7
    assert spark.read.parquet(str(folder)).count() == 7


@sweep_where(lambda mode: mode == "append")
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_an_empty_frame_leaves_one_file_with_the_schema(spark, tmp_path, mode, keyring, encrypted):
    frame, folder = people(spark), tmp_path / "people"
    if mode == "overwrite":
        write(frame, folder, **PLAINTEXT)
    write(frame.where("id < 0"), folder, mode, **encrypted, **{f"{ENABLED}#ssn": "true"})
    assert len(visible(folder)) == 1
    back = read(spark, folder, keys=encrypted["keys"])
    assert back.schema == mark(frame.schema.toNullable(), {("ssn",): {"pii"}})
    assert back.count() == 0
    assert read_table(folder, keys=keyring).num_rows == 0


@pytest.mark.sweep
def test_an_empty_append_adds_no_file(spark, tmp_path):
    write(people(spark), tmp_path, **PLAINTEXT)
    before = visible(tmp_path)
    write(people(spark).where("id < 0"), tmp_path, **PLAINTEXT)
    assert visible(tmp_path) == before


@sweep_where(lambda there, added: (there, added) != ("city", None))
@pytest.mark.parametrize("there, added", [("city", None), (None, "city"), ("city", "id"),
                                          ("city", "city, id"), ("id, city", "city, id")])
def test_an_append_with_other_partition_columns(spark, tmp_path, there, added):
    def options(names):
        return PLAINTEXT | ({"partition_by": names} if names else {})

    write(people(spark, 4), tmp_path, **options(there))
    with pytest.raises(AnalysisException) as caught:
        write(people(spark, 4), tmp_path, **options(added))
    assert (f"the folder has files with the partition columns ({there or ''}), so it could "
            f"not be read with ({added or ''}) as well") in str(caught.value)
    assert "option partition_by" in str(caught.value)
    write(people(spark, 4), tmp_path, **options(there))
    assert read_table(tmp_path).num_rows == 8
    write(people(spark, 4), tmp_path, "overwrite", **options(added))
    assert read_table(tmp_path).num_rows == 4


@pytest.mark.sweep
def test_an_append_matches_escaped_names_of_partition_columns(spark, tmp_path):
    frame = people(spark, 4).withColumnRenamed("city", "c=/ty")
    for count in (4, 8):
        write(frame, tmp_path, **PLAINTEXT, partition_by="C=/TY")
        assert read(spark, tmp_path).count() == count


# --- refused before any task runs ----------------------------------------------------------------

def refused(frame, folder, message, mode="append", **options):
    @F.udf("boolean")
    def task_runs(_):
        raise AssertionError("a task ran")

    with pytest.raises(AnalysisException) as caught:
        write(frame.where(task_runs(frame[frame.columns[0]])), folder, mode, **options)
    assert message in str(caught.value)
    assert visible(folder) == []


def test_without_encryption_options(spark, tmp_path):
    refused(people(spark), tmp_path / "out", "to write without encryption, set plaintext to true")


def test_options_that_pyarrow_rejects(tmp_path):
    """The others are in test_options.py."""
    schema = T.StructType.fromDDL("ssn string, id long")
    for options, message in (
            ({"column_encoding": '{"ssn": "PLAIN"}'}, ": To use 'column_encoding'"),
            ({"use_dictionary": "false", "column_encoding": '{"ssn": "DELTA_BINARY_PACKED"}'}, ""),
            ({"compression": "gzip", "compression_level": "99"}, "")):
        assert f"pyarrow rejects these options for these columns{message}" in refusal(
            schema, tmp_path / "out", **PLAINTEXT, **options)


def test_bad_keys(tmp_path, keyring, encrypted):
    columns, schema = "parquet.encryption.column.keys", T.StructType.fromDDL("ssn string, id long")
    for options, message in (
            ({columns: "nobody: ssn"}, "no master key named 'nobody'"),
            ({columns: "pii: salary"}, "there is no column 'salary'"),
            ({"keys": "/nowhere/k.json"}, "no such keyring file")):
        assert message in refusal(schema, tmp_path / "out", **encrypted | options)
    keyring.path.chmod(0o644)
    assert "other users can access it" in refusal(schema, tmp_path / "out", **encrypted)


@pytest.mark.sweep
def test_overwrite_of_foreign_files(spark, tmp_path):
    (tmp_path / "notes.txt").write_text("keep me")
    with pytest.raises(AnalysisException, match="overwrite would delete this file"):
        write(people(spark), tmp_path, "overwrite", **PLAINTEXT)
    assert visible(tmp_path) == ["notes.txt"]
