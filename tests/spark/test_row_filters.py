"""Random filters for ``load``: the same rows as a reference evaluation in Python."""

import datetime
import math
import os
import random
from decimal import Decimal
from functools import reduce

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T

import secure_bloom
import secure_bloom.spark
from secure_bloom.spark.options.row_filters import checked, condition, to_json
from secure_bloom.spark.schema.values import keeps_value
from secure_bloom.spark.source import SecureParquet
from tests.pruning.random_rows import Rows
from tests.pruning.row_domains import domains
from tests.spark.helpers import read, settings, uses_spark

pytestmark = uses_spark

SEED = int(os.environ.get("SECURE_BLOOM_SEED", random.randrange(2**32)))
OPS = ["=", "==", "<=>", "<", "<=", ">", ">=", "in", "in", "is null", "is not null"]
TYPES = ("int8", "int16", "int32", "int64", "float", "double", "double", "decimal128(9, 2)",
         "decimal128(38, 2)", "string", "large_string", "string_view", "binary", "dictionary",
         "moment us UTC", "date", "flag")
DOMAINS = {f"c{number}": domains()[name] for number, name in enumerate(TYPES)}
ROWS, GROUP = 120, 20


def random_filter(draw: random.Random) -> list[tuple]:
    predicates = []
    for _ in range(draw.choice([1, 1, 2])):
        column, op = draw.choice([*DOMAINS, "s.x", "s.y"]), draw.choice(OPS)
        values = DOMAINS[{"s.x": "c5", "s.y": "c9"}.get(column, column)].values
        asked = draw.choice([*values, None])
        if op == "in":
            asked = draw.choices([*values, None], k=draw.choice([0, 1, 2, 12]))
        predicates.append((column, op, None if "null" in op else asked))
    return predicates


OTHER_KINDS = {  # values that Spark turns into null, if ANSI mode is off, to compare them
    "c2": ["abc", "", "1e0", "NaN"], "c5": ["abc", ""], "c15": ["abc", "1"], "c16": ["abc", "5.5"],
    "c14": ["abc", "1"], "c7": ["abc"], "s.x": ["abc"],
    "p": ["abc", "5.5x"]}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Rows, and a folder of them: one file with statistics, one without."""
    structs = {"s": {"x": DOMAINS["c5"], "y": DOMAINS["c9"]}}
    found = Rows(random.Random(SEED), DOMAINS, structs, ROWS, GROUP)
    folder = tmp_path_factory.mktemp("row_filters")
    filtered = dict.fromkeys([name for name in [*DOMAINS, "s.x"] if name != "c16"], True)
    for number in range(2):
        half = found.table.slice(number * ROWS // 2, ROWS // 2)
        secure_bloom.write_table(half, folder / f"{number}.parquet", bloom_filters=filtered,
                                 row_group_size=GROUP, write_statistics=number == 0,
                                 use_dictionary=number == 1)
    return found, folder


def test_tasks_read_every_row_that_matches(data):
    """The reader alone, without Spark, which would drop the other rows."""
    rows, folder = data
    draw, skipped = random.Random(SEED), 0
    schema = SecureParquet({"path": str(folder)}).schema()
    for number in range(200):
        filters = random_filter(draw)
        reader = SecureParquet({"path": str(folder), "filters": to_json(checked(filters))}) \
            .reader(schema)
        found = {row for task in reader.partitions() for batch in reader.read(task)
                 for row in batch["row"].to_pylist()}
        right = set(rows.found([filters]))
        assert right <= found, f"seed {SEED}, filter {number}: {filters}"
        skipped += ROWS - len(found)
    assert skipped > 20 * ROWS


@pytest.mark.sweep
def test_random_filters_of_load(spark, data):
    rows, folder = data
    draw, nan = random.Random(SEED), math.nan
    filters = [[("c5", op, value)] for op, value in [
        ("=", 0.0), ("in", [-0.0]), ("in", [nan, None]), ("<=>", nan), (">", 5.0), ("<", nan),
        (">=", nan), ("in", [0.0, *map(float, range(100, 120))]), ("in", [])]]
    filters += [random_filter(draw) for _ in range(11)]
    parts = [secure_bloom.spark.read(spark, folder, filters=one)
             .agg(F.sort_array(F.collect_list("row")).alias("rows"))
             .select(F.lit(number).alias("n"), "rows") for number, one in enumerate(filters)]
    for number, found in reduce(lambda a, b: a.union(b), parts).collect():
        right = rows.found([filters[number]])
        assert found == right, f"seed {SEED}, filter {number}: {filters[number]}"
        same = secure_bloom.read_table(folder, columns=["row"], filters=filters[number])
        assert same["row"].to_pylist() == right, f"seed {SEED}, filter {number}"


def test_views_at_every_depth_are_read(spark, tmp_path):
    view, rows = pa.string_view(), [None, "a", "a text of more than twelve bytes"]
    table = pa.table({
        "text": pa.array(rows, view), "raw": pa.array([None, b"a", b"\xff"], pa.binary_view()),
        "list": pa.array([[None, text] for text in rows], pa.list_(view)),
        "struct": pa.array([{"x": text} for text in rows], pa.struct([("x", view)])),
        "map": pa.array([[(str(text), text)] for text in rows], pa.map_(view, view))})
    secure_bloom.write_table(table, tmp_path / "x.parquet", bloom_filters={"text": True})
    whole = read(spark, tmp_path)
    assert whole.schema.simpleString() == ("struct<text:string,raw:binary,list:array<string>,"
                                           "struct:struct<x:string>,map:map<string,string>>")
    found = whole.toArrow().select(["text", "raw", "list", "struct"]).to_pylist()
    assert found == table.select(["text", "raw", "list", "struct"]).to_pylist()
    assert [dict(row["map"]) for row in whole.collect()] == [{str(text): text} for text in rows]
    one = secure_bloom.spark.read(spark, tmp_path,
                                  filters=[("text", "=", "a"), ("struct.x", ">=", "a")])
    assert [row["text"] for row in one.collect()] == ["a"]


@pytest.mark.sweep
def test_values_of_numpy_and_arrow_can_be_asked_for(spark, data):
    rows, folder = data
    wanted = [row["row"] for row in rows.rows if row["c0"] == 5]
    for value in (np.int8(5), np.int64(5), pa.scalar(5, pa.int16())):
        for filters in ([("c0", "=", value)], [("c0", "in", [value, np.int32(77)])]):
            found = secure_bloom.spark.read(spark, folder, filters=filters).select("row").collect()
            assert sorted(row["row"] for row in found) == wanted
    assert Decimal("5.00") in DOMAINS["c7"].values


@pytest.fixture(scope="module")
def nulls(tmp_path_factory):
    """Files with null rows only, of which one lacks the columns, and a file with values."""
    folder = tmp_path_factory.mktemp("nulls")
    stored = {name: domain.stored.slice(0, 1) for name, domain in DOMAINS.items()}
    stored["s"] = pa.StructArray.from_arrays([stored["c5"]], ["x"])
    for name, row in (("a", 0), ("b", 1), ("c", 2)):
        table = {"row": [row]} | {column: [None] * (name == "b") or value
                                  for column, value in stored.items()}
        schema = pa.schema({"row": pa.int64(), **{column: value.type
                                                  for column, value in stored.items()}})
        place = folder / ("p=__HIVE_DEFAULT_PARTITION__" if name == "b" else "p=5")
        place.mkdir(exist_ok=True)
        pa_table = pa.table({column: pa.array(values, schema.field(column).type)
                             if isinstance(values, list) else values
                             for column, values in table.items()})
        secure_bloom.write_table(pa_table.select(["row"]) if name == "c" else pa_table,
                                 place / f"{name}.parquet",
                                 bloom_filters={} if name == "c" else {"c2": True, "c5": True})
    return folder


@pytest.mark.sweep
def test_a_value_that_spark_turns_into_null_finds_the_null_rows(spark, nulls):
    """Spark's own answer to each condition, from the rows that it reads without filters."""
    filters = [[(column, op, value)] for column, values in OTHER_KINDS.items()
               for value in values for op in ("<=>", "=", "<", ">=")]
    with settings(spark, {"spark.sql.ansi.enabled": "false"}):
        whole = read(spark, nulls, mergeSchema="true").cache()
        [right] = whole.agg(*[F.sort_array(F.collect_list(F.when(condition(checked(one)),
                                                                 F.col("row"))))
                              for one in filters]).collect()
        whole.unpersist()
        parts = [secure_bloom.spark.read(spark, nulls, filters=one, mergeSchema="true")
                 .agg(F.sort_array(F.collect_list("row")).alias("rows"))
                 .select(F.lit(number).alias("n"), "rows") for number, one in enumerate(filters)]
        for number, found in reduce(lambda a, b: a.union(b), parts).collect():
            assert found == right[number], filters[number]
    with_nulls = {one[0][0] for one, rows in zip(filters, right, strict=True)
                  if one[0][1] == "<=>" and 1 in rows}
    assert with_nulls == OTHER_KINDS.keys()


@pytest.mark.parametrize(("type_", "value", "expected"), [
    ("integer", 2**31, True), ("integer", "5", False), ("integer", True, False),
    ("double", 5.5, True),
    ("float", 5, False), ("string", "5", True), ("string", 5, False), ("boolean", True, True),
    ("binary", b"5", True), ("date", datetime.date(2024, 1, 1), True), ("date", "2024", False),
    ("timestamp", datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), True),
    ("timestamp", datetime.date(2024, 1, 1), False),
    ("date", datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), False),
    ("decimal(9,2)", Decimal("9999999.99"), True), ("decimal(9,2)", Decimal("10000000"), False),
    ("decimal(9,2)", Decimal("1E+6"), True), ("decimal(9,2)", Decimal("1E+7"), False),
    ("decimal(9,2)", Decimal("0.001"), False), ("decimal(2,2)", Decimal("0"), True),
    ("decimal(2,2)", Decimal("0.99"), True), ("decimal(9,2)", Decimal("NaN"), False),
    ("decimal(9,2)", 5, False)])
def test_values_that_spark_compares_as_they_are(type_, value, expected):
    field = {"name": "c", "type": type_, "nullable": True, "metadata": {}}
    assert keeps_value(T.StructField.fromJson(field).dataType, value) is expected


def test_a_safe_comparison_still_skips_null_rows(nulls):
    schema = SecureParquet({"path": str(nulls), "mergeschema": "true"}).schema()
    for column, value, expected in (("c2", 10**9, []), ("c2", None, [1, 2]), ("p", 5, [0, 2]),
                                    ("p", 6, [])):
        reader = SecureParquet({"path": str(nulls), "mergeschema": "true", "filters": to_json(
            checked([(column, "<=>", value)]))}).reader(schema)
        found = [row for task in reader.partitions() for batch in reader.read(task)
                 for row in batch["row"].to_pylist()]
        assert sorted(found) == expected, column
