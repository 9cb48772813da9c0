"""Reading back with a real Spark, with Spark's own Parquet source, and with secure_bloom."""

import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T

from secure_bloom import read_table
from secure_bloom.spark.schema.sensitivity import mark
from tests.spark.helpers import PLAINTEXT, failure, people, read, uses_spark, write

pytestmark = uses_spark

ENABLED = "parquet.bloom.filter.enabled"

TYPES = {
    "bool": "true", "i8": "-1Y", "i16": "2S", "i32": "3", "i64": "-4L", "f32": "float(1.5)",
    "f64": "double('NaN')", "dec9": "1.25BD", "dec20": "cast('-12345678901234567.89' as "
    "decimal(20,2))", "dec38": "cast(7 as decimal(38,10))", "text": "'Größe'", "empty": "''",
    "varchar": "cast('ab' as varchar(3))", "bytes": "X'00FF'", "day": "date'2024-02-29'",
    "old_day": "date'0005-01-01'", "ts": "timestamp'2024-07-01 12:00:00.000001'",
    "old_ts": "timestamp'1500-01-01 00:00:00'", "ntz": "timestamp_ntz'2024-07-01 12:00:00'",
    "span": "interval '1 02:03:04.000005' day to second", "variant": "parse_json('{\"a\": 1}')",
    "list": "array(1, null, 3)", "no_list": "cast(array() as array<string>)",
    "map": "map('k', timestamp'2024-07-01 12:00:00')",
    "struct": "named_struct('a', 1, 'b', named_struct('c', array('x', null)))",
    "structs": "array(named_struct('q', date'2024-01-01', 'r', null))",
    "nothing": "null",
}


@pytest.fixture
def everything(spark):
    """A row with values, a row of nulls, a row with values; all nullable but id."""
    columns = [f"if(id = 1, null, {sql}) as {name}" for name, sql in TYPES.items()]
    return spark.range(0, 3, 1, 2).selectExpr("id", *columns)


def rows(frame):
    # NaN equals nothing and VariantVal has no equality, but both have a text form.
    return sorted(map(str, frame.collect()))


def test_spark_itself_prunes_with_our_plaintext_filters(spark, tmp_path):
    write(people(spark), tmp_path / "t", **PLAINTEXT, **{ENABLED: "true"})
    own = spark.read.parquet(str(tmp_path / "t"))
    for number in range(0, 100, 9):
        assert own.where(f"ssn = 'ssn-{number}'").count() == 1
        assert own.where(f"id = {number}").count() == 1
    assert own.where("ssn = 'nobody'").count() == 0


def test_all_types_encrypted_with_large_variants(spark, tmp_path, everything, keyring):
    pytest.importorskip("pyspark", "4.1", reason="Spark 4.1 has TIME")
    frame = everything.selectExpr("*", "time'10:11:12.000013' as time")
    options = {"keys": str(keyring.path), "parquet.encryption.footer.key": "footer",
               "parquet.encryption.column.keys": "pii: text, list, struct; money: dec20, map, time",
               ENABLED: "true"}
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        write(frame, tmp_path / "t", **options)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    back = read(spark, tmp_path / "t", keys=options["keys"])
    element, entry = ("list", "element"), "key_value"
    keys = {path: {"pii"} for path in [("text",), ("list", *element), ("struct", "a"),
                                       ("struct", "b", "c", *element)]}
    keys |= {path: {"money"} for path in [("dec20",), ("map", entry, "key"),
                                          ("map", entry, "value"), ("time",)]}
    assert back.schema == mark(frame.schema.toNullable(), keys)
    assert rows(back) == rows(frame)
    table = read_table(tmp_path / "t", keys=keyring, filters=[("id", "==", 2)])
    [row] = table.select(["dec20", "text", "list", "ts"]).to_pylist()
    assert (str(row["dec20"]), row["text"], row["list"]) == ("-12345678901234567.89", "Größe",
                                                            [1, None, 3])
    assert row["ts"] == datetime.datetime(2024, 7, 1, 16, 0, 0, 1, datetime.UTC)  # New York: 12:00


def test_columns_that_cannot_be_null(spark, tmp_path):
    frame = spark.range(3).selectExpr("id", "array(id) as ids", "named_struct('a', id) as s",
                                      "map('k', timestamp'2024-01-01 00:00:00') as m")
    write(frame, tmp_path / "t", **PLAINTEXT)
    assert not pq.read_schema(next((tmp_path / "t").glob("*.parquet"))).field("id").nullable
    assert rows(read(spark, tmp_path / "t")) == rows(frame)
    assert rows(spark.read.parquet(str(tmp_path / "t"))) == rows(frame)


def test_files_of_others(spark, tmp_path):
    pq.write_table(pa.table({"a": pa.array([1, None], pa.int16()), "b": ["x", None]}),
                   tmp_path / "one.parquet", row_group_size=1)
    frame = read(spark, tmp_path)
    assert frame.schema == T.StructType([T.StructField("a", T.ShortType()),
                                         T.StructField("b", T.StringType())])
    assert rows(frame) == ["Row(a=1, b='x')", "Row(a=None, b=None)"]
    assert rows(read(spark, tmp_path / "one.parquet")) == rows(frame)


def test_a_schema_of_the_users_own(spark, tmp_path):
    write(people(spark, 1), tmp_path / "t", **PLAINTEXT)
    source = spark.read.format("secure_parquet").schema("ID int, other string")
    assert rows(source.load(str(tmp_path / "t"))) == ["Row(ID=0, other=None)"]


def test_types_that_spark_does_not_have(spark, tmp_path):
    pq.write_table(pa.table({"a": pa.array([1], pa.uint64())}), tmp_path / "a.parquet")
    assert "column a: Spark has no type for uint64" in failure(lambda: read(spark, tmp_path))
    frame = spark.read.format("secure_parquet").schema("a bigint").load(str(tmp_path))
    assert rows(frame) == ["Row(a=1)"]


def test_without_the_right_keys(spark, tmp_path, keyring, encrypted):
    write(people(spark, 1), tmp_path / "t", **encrypted)
    assert "specify the KMS in option keys" in failure(
        lambda: read(spark, tmp_path / "t").collect())
    other = type(keyring).create(tmp_path / "other.json")
    other.add("footer")
    assert "KeyUnwrapError" in failure(
        lambda: read(spark, tmp_path / "t", keys=str(other.path)).collect())


def test_only_some_columns_need_only_their_keys(spark, tmp_path, keyring, encrypted):
    footer = "parquet.encryption.plaintext.footer"
    write(people(spark, 2), tmp_path / "t", **encrypted, **{footer: "true"})
    frame = spark.read.format("secure_parquet").schema("city string").load(str(tmp_path / "t"))
    assert rows(frame) == ["Row(city='city-0')", "Row(city='city-1')"]
    message = failure(lambda: read(spark, tmp_path / "t").collect())
    assert "KeyNotFoundError: file " in message and ": a column is encrypted; pass keys" in message


@pytest.mark.sweep
def test_nothing_to_read(spark, tmp_path):
    assert f"there is no folder {tmp_path}/none" in failure(lambda: read(spark, tmp_path / "none"))
    (tmp_path / "empty").mkdir()
    assert "there are no Parquet files" in failure(lambda: read(spark, tmp_path / "empty"))
    source = spark.read.format("secure_parquet").schema("id int")
    assert source.load(str(tmp_path / "empty")).collect() == []
