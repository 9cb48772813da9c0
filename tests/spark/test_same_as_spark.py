"""Plaintext files compared with those that Spark's own writer produces from the same rows."""

import decimal
import os
from contextlib import contextmanager

import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T

from secure_bloom import ParquetFile, read_table
from tests.spark.helpers import PLAINTEXT, refusal, uses_spark, write
from tests.tiers import sweep_where

pytestmark = uses_spark

# Spark's defaults are INT96 for timestamps, and variants split into columns and annotated.
AS_HERE = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
           "spark.sql.timeType.enabled": "true", "spark.sql.session.timeZone": "Asia/Kolkata",
           "spark.sql.variant.inferShreddingSchema": "false",
           "spark.sql.parquet.variant.annotateLogicalType.enabled": "false"}


@contextmanager
def settings(spark, **values):
    values = AS_HERE | values
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


TYPES = {
    "bool": "true", "i8": "-1Y", "i16": "2S", "i32": "3", "i64": "-4L", "f32": "float(1.5)",
    "f64": "double('NaN')", "text": "'Größe'", "bytes": "X'00FF'", "char": "cast('a' as char(3))",
    "varchar": "cast('ab' as varchar(3))", "collated": "'Ab' collate UNICODE_CI",
    **{f"dec{p}": f"cast(-1.5 as decimal({p},{1}))" for p in (2, 9, 10, 18, 19, 38)},
    "day": "date'2024-02-29'", "old_day": "date'0005-01-01'",
    "ts": "timestamp'2024-07-01 12:00:00.000001'", "old_ts": "timestamp'1500-01-01 00:00:00'",
    "ntz": "timestamp_ntz'2024-07-01 12:00:00'", "time": "time'10:11:12.000013'",
    "seconds": "cast(time'10:11:12' as time(0))",
    "span": "interval '1 02:03:04.000005' day to second", "hours": "interval '5' hour",
    "variant": "parse_json('{\"a\": [1, \"x\"]}')", "variants": "array(parse_json('1'))",
    "list": "array(1, null, 3)", "lists": "array(array(1.5BD))",
    "no_list": "cast(array() as array<string>)",
    "map": "map('k', timestamp'2024-07-01 12:00:00')",
    "maps": "map(1, map(date'2024-01-01', time'10:00:00'))",
    "struct": "named_struct('a', 1, 'b', named_struct('c', array('x', null)), 'd', 12.5BD)",
    "structs": "array(named_struct('q', date'2024-01-01', 'r', time'01:02:03'))",
}


def one_file(folder):
    [path] = folder.glob("*.parquet")
    return path


def stored(folder):
    """The Parquet schema below its root, whose name differs."""
    return str(pq.ParquetFile(one_file(folder)).schema).split("{", 1)[1]


def shown(frame):
    return sorted(map(str, frame.collect()))


def everything(spark):
    return spark.range(0, 3, 1, 1).selectExpr(
        "id", *(f"if(id = 1, null, {sql}) as {name}" for name, sql in TYPES.items()),
        "array(id) as ids", "named_struct('n', id) as pair")


@sweep_where(lambda large: large == "true")
@pytest.mark.parametrize("large", ["false", "true"])
def test_every_type(spark, tmp_path, large):
    with settings(spark, **{"spark.sql.execution.arrow.useLargeVarTypes": large}):
        frame = everything(spark)
        frame.write.parquet(str(tmp_path / "own"))
        write(frame, tmp_path / "ours", **PLAINTEXT)
        own, ours = (spark.read.parquet(str(tmp_path / name)) for name in ("own", "ours"))
        assert ours.schema == own.schema
        assert shown(ours) == shown(own) == shown(frame)
    assert stored(tmp_path / "ours") == stored(tmp_path / "own")


@pytest.mark.sweep
def test_types_of_a_schema(spark, tmp_path):
    schema = T.StructType([
        T.StructField("c", T.StringType(), False, {"comment": "kept"}),
        T.StructField("d", T.DecimalType(5, 5)),
        T.StructField("s", T.StructType([T.StructField("x", T.IntegerType(), False)]))])
    frame = spark.createDataFrame([("a", None, (1,)), ("b", None, None)], schema).coalesce(1)
    frame.write.parquet(str(tmp_path / "own"))
    write(frame, tmp_path / "ours", **PLAINTEXT)
    assert stored(tmp_path / "ours") == stored(tmp_path / "own")
    own, ours = (spark.read.parquet(str(tmp_path / name)) for name in ("own", "ours"))
    assert ours.schema == own.schema
    assert ours.schema["c"].metadata == {"comment": "kept"}
    assert shown(ours) == shown(own)


def test_types_that_cannot_be_written(spark, tmp_path):
    for sql, message in (
            ("st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')", "st_asbinary"),
            ("array(st_geogfromwkb(X'0101000000000000000000F03F0000000000000040'))", "st_asbinary"),
            ("array()", "Spark cannot pass the type array<void>"),
            ("interval '1' year", "Spark cannot pass the type interval year"),
            ("make_interval(1, 2)", "Spark cannot pass the type interval")):
        frame = spark.range(1).selectExpr("id", f"{sql} as value")
        assert message in refusal(frame.schema, tmp_path / "t", **PLAINTEXT), sql


# --- partitions ----------------------------------------------------------------------------------

def folders(root):
    return sorted(os.path.relpath(folder, root) for folder, _, files in os.walk(root)
                  if "_staging" not in folder
                  and any(name.endswith(".parquet") for name in files))


NASTY = ["plain", "", None, " spaced ", "a/b", "a=b", "%2F", "..", ".", "_hidden", ".dot", "ü😀",
         "{x}", "[y]^", "q?*", "\"'", "back\\slash", "tab\tline\n", "\x7f\x01", "a:b#c", "1,2", "+"]


def test_partitions_of_texts(spark, tmp_path):
    frame = spark.createDataFrame(list(enumerate(NASTY)), "id int, `k=/` string").coalesce(1)
    frame.write.partitionBy("k=/").parquet(str(tmp_path / "own"))
    write(frame, tmp_path / "ours", **PLAINTEXT, partition_by="K=/")
    assert folders(tmp_path / "ours") == folders(tmp_path / "own")
    own, ours = (spark.read.parquet(str(tmp_path / name)) for name in ("own", "ours"))
    assert ours.schema == own.schema
    assert shown(ours) == shown(own)
    assert ours.count() == len(NASTY)


PARTITIONS = {
    "bool": ["true", "false", "null"], "i8": ["-128Y", "127Y"], "i16": ["-1S", "0S"],
    "i32": ["-2147483648", "5"], "i64": ["9223372036854775807L", "-1L"],
    "dec": ["cast(0 as decimal(38,10))", "cast('-0.0000000001' as decimal(38,10))",
            "cast('12345678901234567890.5' as decimal(38,10))"],
    "dec0": ["cast(1200 as decimal(10,0))", "null"],
    "day": ["date'2024-02-29'", "date'0001-01-01'", "date'9999-12-31'", "date'-0044-03-15'",
            "date_add(date'9999-12-31', 1)", "null"],
}


@sweep_where(lambda name: name != "day")
@pytest.mark.parametrize("name", PARTITIONS)
def test_partitions_of_other_types(spark, tmp_path, name):
    frame = spark.sql(f"select 1 id, explode(array({', '.join(PARTITIONS[name])})) k")
    frame.write.partitionBy("k").parquet(str(tmp_path / "own"))
    write(frame, tmp_path / "ours", **PLAINTEXT, partition_by="k")
    assert folders(tmp_path / "ours") == folders(tmp_path / "own")
    own, ours = (spark.read.parquet(str(tmp_path / name)) for name in ("own", "ours"))
    assert ours.schema == own.schema
    if name != "day":  # Python has no dates before 1 and after 9999
        assert shown(ours) == shown(own)


@pytest.mark.sweep
def test_several_partition_columns_with_every_type_beside_them(spark, tmp_path):
    with settings(spark):
        frame = everything(spark).selectExpr("id % 2 as k", "concat('x', id) as Lower", "*")
        frame.write.partitionBy("Lower", "k").parquet(str(tmp_path / "own"))
        write(frame, tmp_path / "ours", **PLAINTEXT, partition_by="lower, k")
        assert folders(tmp_path / "ours") == folders(tmp_path / "own")
        own, ours = (spark.read.parquet(str(tmp_path / name)) for name in ("own", "ours"))
        assert ours.schema == own.schema
        assert shown(ours) == shown(own)
        write(frame, tmp_path / "ours", "overwrite", **PLAINTEXT, partition_by="lower")
        assert folders(tmp_path / "ours") == ["Lower=x0", "Lower=x1", "Lower=x2"]
        assert spark.read.parquet(str(tmp_path / "ours")).count() == 3


def test_types_that_are_no_partition(spark, tmp_path):
    for sql in ("double(1)", "timestamp'2024-01-01 00:00:00'", "X'00'", "array(1)",
                "'a' collate UNICODE_CI"):
        frame = spark.range(1).selectExpr("id", f"{sql} as k")
        assert "column k: partition_by cannot use the type" in refusal(
            frame.schema, tmp_path / "t", **PLAINTEXT, partition_by="k")


@pytest.mark.sweep
def test_an_empty_frame_with_partitions_shows_their_columns(spark, tmp_path):
    frame = spark.range(4).selectExpr("id", "id % 2 as k")
    write(frame.where("id < 0"), tmp_path / "t", **PLAINTEXT, partition_by="k")
    assert spark.read.parquet(str(tmp_path / "t")).columns == ["id", "k"]
    write(frame, tmp_path / "t", **PLAINTEXT, partition_by="k")
    assert shown(spark.read.parquet(str(tmp_path / "t")).select("id", "k")) == [
        "Row(id=0, k=0)", "Row(id=1, k=1)", "Row(id=2, k=0)", "Row(id=3, k=1)"]


@pytest.mark.sweep
def test_filters_of_decimals_that_are_stored_as_integers(spark, tmp_path):
    frame = spark.range(0, 1000, 1, 1).selectExpr(
        "cast(id / 100 as decimal(9,2)) small", "cast(-id / 10 as decimal(18,1)) middle",
        "cast(id / 1000 as decimal(38,3)) large")
    write(frame, tmp_path / "t", **PLAINTEXT, row_group_size="10",
          **{"parquet.bloom.filter.enabled": "true"})
    own = spark.read.parquet(str(tmp_path / "t"))
    for name, unit in (("small", 100), ("middle", -10), ("large", 1000)):
        for number in (0, 1, 999):
            value = decimal.Decimal(number) / unit
            assert own.where(f"{name} = {value}BD").count() == 1
            table = read_table(tmp_path / "t", filters=[(name, "==", value)])
            assert table.num_rows == 1
        assert read_table(tmp_path / "t", filters=[(name, "==", decimal.Decimal(5000))]) \
            .num_rows == 0
    file = ParquetFile(one_file(tmp_path / "t"))
    assert len(file.prune([("small", "==", decimal.Decimal("5.55"))])) < 20  # of 100
