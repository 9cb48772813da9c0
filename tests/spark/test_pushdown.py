"""Conditions of queries: the same rows as without them, and as with Spark's own reader."""

import datetime
import json
import math
import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet.encryption import EncryptionConfiguration

import secure_bloom.spark
from secure_bloom.errors import OptionError, RenamedError
from secure_bloom.keys import Keyring
from secure_bloom.spark.options.conditions import Conditions, parse, starts_with
from secure_bloom.spark.options.options import Options
from secure_bloom.spark.reading.folder import Folder
from tests.soak.check import Case
from tests.soak.checks import spark_conditions
from tests.spark.helpers import read, rows_here, uses_spark
from tests.tiers import sweep_where

pytestmark = uses_spark

UTC = datetime.UTC
ROWS, FILES, GROUP = 1200, 6, 40
DEC38 = [Decimal(text) for text in ("1234567890123456789012345678.1234567891", "-0.0000000001",
                                    "9999999999999999999999999999.9999999999", "7", "0.5")]
REALS = [0.0, -0.0, 1.5, -2.25, math.nan, math.inf, -math.inf, 0.1]
WORDS = ["", "a", "ab", "B", "ä", "\U0001f600", "\ue000", "zz", "Zz "]


def mixed_table() -> pa.Table:
    """Rows in which neighbours resemble each other, so that statistics say something."""
    draw = random.Random(1)

    def perhaps(value):
        return None if draw.random() < 0.15 else value

    rows = []
    for number in range(ROWS):
        group = number // GROUP
        day = datetime.date(2024, 1, 1) + datetime.timedelta(group)
        moment = datetime.datetime.combine(day, datetime.time(draw.randrange(24), 30, 0, 1))
        rows.append({
            "id": number, "i": perhaps(group * 5 + draw.randrange(8)),
            "l": perhaps(2**40 * (group - 10) + draw.randrange(3)),
            "s": perhaps(f"{draw.choice(WORDS)}{group % 7 if group % 3 else ''}"),
            "d9": perhaps(Decimal(group * 100 + draw.randrange(200)).scaleb(-2)),
            "d38": perhaps(draw.choice(DEC38)), "day": perhaps(day),
            "ts": perhaps(moment.replace(tzinfo=UTC)), "ntz": perhaps(moment),
            "f": perhaps(draw.choice(REALS)), "g": perhaps(draw.choice(REALS[group % 4:])),
            "bin": perhaps(bytes([group, 255])),
            "st": perhaps({"q": perhaps(group), "w": "x"}),
            "none": None if group % 2 else group})
    return pa.Table.from_pylist(rows, pa.schema({
        "id": pa.int64(), "i": pa.int32(), "l": pa.int64(), "s": pa.string(),
        "d9": pa.decimal128(9, 2), "d38": pa.decimal128(38, 10), "day": pa.date32(),
        "ts": pa.timestamp("us", "UTC"), "ntz": pa.timestamp("us"), "f": pa.float32(),
        "g": pa.float64(), "bin": pa.binary(), "st": pa.struct({"q": pa.int32(),
                                                                "w": pa.string()}),
        "none": pa.int32()}))


PARTITIONS = ["p=1/pd=2024-01-01/ps=a", "p=2/pd=2024-02-01/ps=A%2Fb",
              "p=__HIVE_DEFAULT_PARTITION__/pd=2024-01-01/ps=a"]
SCHEMA = ("id bigint, i int, l bigint, s string, d9 decimal(9,2), d38 decimal(38,10), day date, "
          "ts timestamp, ntz timestamp_ntz, f float, g double, bin binary, st struct<q:int, "
          "w:string>, none int, p int, pd date, ps string")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The table encrypted and in plaintext, in partitions, with files that differ in schema."""
    root = tmp_path_factory.mktemp("pushdown")
    keyring = Keyring.create(root / "keyring.json")
    for name in ("footer", "pii"):
        keyring.add(name)
    table = mixed_table()
    for number in range(FILES):
        part = table.slice(number * ROWS // FILES, ROWS // FILES)
        place = PARTITIONS[number % 3]
        for name in ("plain", "encrypted"):
            (root / name / place).mkdir(parents=True, exist_ok=True)
        pq.write_table(part, root / "plain" / place / f"{number}.parquet")
        if number == 1:  # in another order and case
            part = part.select(part.column_names[::-1]).rename_columns(
                [name.upper() for name in part.column_names[::-1]])
        if number == 2:  # narrower
            part = part.set_column(0, "id", part["id"].cast(pa.int16())) \
                .set_column(3, "s", part["s"].dictionary_encode())
        if number == 3:  # narrower, and wider
            part = part.set_column(10, "g", part["g"].cast(pa.float32())) \
                .set_column(4, "d9", part["d9"].cast(pa.decimal128(12, 2)))
            pq.write_table(part.set_column(10, "g", part["g"].cast(pa.float64())).set_column(
                4, "d9", part["d9"].cast(pa.decimal128(9, 2))),
                root / "plain" / place / f"{number}.parquet")
        if number == 4:
            part = part.drop_columns(["none"])
            pq.write_table(part, root / "plain" / place / f"{number}.parquet")
        pii = [name for name in part.column_names if name.lower() in ("s", "d38", "i", "ts")]
        secure_bloom.write_table(
            part, root / "encrypted" / place / f"{number}.parquet", row_group_size=GROUP,
            bloom_filters={leaf: True for leaf in part.column_names if leaf.lower() != "st"},
            encryption=EncryptionConfiguration("footer", column_keys={"pii": pii}), keys=keyring)
    return root


def options(folders) -> dict:
    return {"keys": str(folders / "keyring.json")}


def frame(session, folders, **more):
    return session.read.format("secure_parquet").schema(SCHEMA) \
        .options(**options(folders), **more).load(str(folders / "encrypted"))


# --- random conditions ---------------------------------------------------------------------------

@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(4))
def test_conditions_as_random_as_they_get_lose_no_row(spark, tmp_path, seed):
    pytest.importorskip("pyspark", "4.1", reason="PySpark 4.1 passes conditions on")
    case = Case.of("spark_conditions", seed, tmp_path, 1.0)
    spark_conditions.compare(case, spark, 200)
    assert case.counts["conditions that skip"] > 40


# --- what is skipped -----------------------------------------------------------------------------

def literal(type_, value) -> dict:
    return {"type": type_, "value": value}


def node(name, *operands) -> dict:
    return {"name": name, "operands": [{"column": list(one)} if isinstance(one, tuple) else one
                                       for one in operands]}


ID = ("id",)


def number(value) -> dict:
    return literal("bigint", value)


def rows_read(folders, *nodes) -> int:
    """Rows that reach Spark with these conditions."""
    from pyspark.sql.types import StructType
    return rows_here(folders / "encrypted", StructType.fromDDL(SCHEMA), parse(json.dumps(nodes)),
                     **options(folders))


@pytest.mark.parametrize(("nodes", "expected"), [
    ([node("=", ID, number(500))], GROUP), ([node("=", number(5000), ID)], 0),
    ([node("In", ID, number(3), number(1100), number(None))], 2 * GROUP),
    ([node("Or", node("=", ID, number(3)), node("=", ID, number(1100)))], 2 * GROUP),
    ([node("Or", node("=", ID, number(3)), node("=", ("i",), literal("int", 99)))], 2 * GROUP),
    ([node("Or", *(node("=", ID, number(group * GROUP)) for group in range(29)))], 29 * GROUP),
    ([node("Or", node("And", node("=", ID, number(3)), node("Rand")),
           node("And", node("=", ("p",), literal("int", 9)), node("Rand")))], GROUP),
    ([node("=", ("p",), literal("int", 1))], 2 * ROWS // FILES),
    ([node("=", ("ps",), literal("string", "nowhere"))], 0),
    ([node("IsNotNull", ("none",))], ROWS // 2 - 3 * GROUP),
    ([node("=", ("st", "q"), literal("int", 3))], GROUP),
    ([node("=", ("ts",), literal("timestamp", 1704439800000002))], 0),
    ([node("=", ("bin",), literal("binary", "B/8=")), node("IsNotNull", ("bin",))], GROUP),
    ([node("StartsWith", ("s",), literal("string", "\U0001f601"))], 0),
    ([node("<", ("day",), literal("date", 19000))], 0),
    ([node(">", literal("date", 19000), ("day",))], 0),
    ([node("<=>", ("d9",), literal("decimal(9,2)", "-1.00"))], 0),
], ids=range(17))
def test_row_groups_are_skipped(folders, nodes, expected):
    assert rows_read(folders, *nodes) == expected


def test_what_cannot_be_used_skips_nothing(folders):
    is_500 = node("=", ID, number(500))
    for what in (node("Not", is_500), node("Or", is_500, node("Rand")), node("=", ID, ("l",)),
                 node("=", ID, literal("int", 5000)),  # another type: not this column
                 node("=", ("s",), literal("string collate UTF8_LCASE", "absent")),
                 node("=", ("s",), literal("string", "\ufffd")),  # bytes that are not UTF-8
                 node("In", ID, number(5000), node("Rand")), node("=", node("Cast", ID), number(0)),
                 node("=", ("day",), literal("date", 5_000_000)),  # Python has no such year
                 node("<", ("ts",), literal("timestamp", -2**62)), node("Rand"), {"column": ["id"]},
                 node("Or", *(node("<", ID, number(-one)) for one in range(1000)))):
        assert rows_read(folders, what) == ROWS, what
    assert rows_read(folders) == ROWS
    assert parse("[" * 10**6) == Conditions()


def test_the_end_of_a_prefix_is_a_character():
    bounds = {prefix: [p.value for p in starts_with(("s",), prefix)]
              for prefix in ("a", "\ud7ff", "b\U0010ffff", "")}
    assert bounds == {"a": ["a", "b"], "\ud7ff": ["\ud7ff", "\ue000"],
                      "b\U0010ffff": ["b\U0010ffff"], "": [""]}


# --- sessions ------------------------------------------------------------------------------------

@pytest.mark.sweep
def test_the_log_says_what_was_skipped(spark, folders):
    spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    try:
        assert frame(spark, folders).where("id = 500 and p is null").count() == 1
        lines = spark.sql("select msg, context from python_worker_logs() "
                          "where logger = 'secure_bloom.spark' and level = 'INFO'").collect()
    finally:
        spark.conf.unset("spark.sql.pyspark.worker.logging.enabled")
    [planning] = [line for line in lines if "tasks" in line.context]
    assert planning.context["total_files"] == str(FILES)
    assert planning.context["skipped_by_partition_files"] == "4"
    assert planning.context["skipped_by_statistics_files"] == "1"
    tasks = [line for line in lines if "rows_read" in line.context]
    assert len(tasks) == int(planning.context["tasks"])
    assert tasks[0].msg.startswith("read ")
    total = {name: sum(int(task.context[name]) for task in tasks) for name in (
        "total_rows", "rows_read", "total_row_groups", "skipped_by_statistics_row_groups",
        "skipped_by_statistics_rows", "skipped_by_filters_rows", "total_bytes",
        "skipped_by_statistics_bytes")}
    assert total["total_rows"] == ROWS // FILES and total["total_row_groups"] == 5
    assert total["skipped_by_statistics_row_groups"] >= 4
    assert total["rows_read"] == total["total_rows"] - total["skipped_by_statistics_rows"] \
        - total["skipped_by_filters_rows"]
    assert 0 < total["skipped_by_statistics_bytes"] <= total["total_bytes"]


def test_what_was_needed_once_says_that_it_is_not(spark, folders):
    with pytest.raises(RenamedError, match="after register"):
        secure_bloom.spark.enable_pushdown(spark)
    with pytest.raises(OptionError, match="single_use: it was removed"):
        Folder(Options({"path": str(folders), "single_use": "true"}))


def test_names_with_dots_and_other_case(spark, tmp_path):
    secure_bloom.write_table(pa.table({"a.b": [1, 2], "C": ["x", "y"]}), tmp_path / "a.parquet",
                             row_group_size=1, bloom_filters={"C": True})
    def matching(condition):
        return read(spark, tmp_path).where(condition).collect()

    assert matching("`a.b` = 2 and c = 'y'") == [(2, "y")]
    assert matching("`A.B` = 2 and C = 'x'") == []


def test_a_name_with_a_dot_and_a_field_of_a_struct(spark, tmp_path):
    pq.write_table(pa.table({"a.b": [1], "a": [{"b": 5}], "c`d": ["x"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": [{"b": 7}]}), tmp_path / "b.parquet")

    def found(*filters):
        return secure_bloom.spark.read(spark, tmp_path, filters=filters,
                                       mergeSchema="true").collect()

    assert [row.a.b for row in found(("a.b", "=", 7))] == [7]
    assert [row.a.b for row in found(("a.b", "=", 5), ("`c``d`", "=", "x"))] == [5]
    assert found(("a.b", "=", 1)) == []
    assert [row.a.b for row in found(("`a.b`", "=", 1))] == [5]
    assert [row.a.b for row in found(("`a.b`", "is null", None))] == [7]


def test_each_use_of_a_dataframe_has_its_own_conditions(spark, folders):
    data = frame(spark, folders)
    first, second = data.where("id = 5"), data.where("id = 500")
    assert first.count() == 1 and data.count() == ROWS
    assert sorted(row.id for row in first.union(second).collect()) == [5, 500]
    assert first.union(data).union(second).count() == ROWS + 2
    assert [len(one.collect()) for one in (first, second, first)] == [1, 1, 1]
    pairs = data.where("id < 10").alias("a").join(data.where("id > 5").alias("b"), "id")
    assert pairs.count() == 4
    kept = first.cache()
    assert (kept.count(), data.count(), kept.where("id = 500").count()) == (1, ROWS, 0)
    kept.unpersist()
    data.createOrReplaceTempView("everyone")
    assert spark.sql("select (select count(*) from everyone where id = 5), "
                     "(select max(id) from everyone where id in (500, 600)), count(*) "
                     "from everyone where id > 1100").collect() == [(1, 600, ROWS - 1101)]


@pytest.mark.sweep
def test_a_dataframe_that_is_used_again_sees_new_files(spark, tmp_path):
    spark.range(5).write.format("secure_parquet").options(plaintext="true").mode("append") \
        .save(str(tmp_path))
    data = read(spark, tmp_path)
    assert data.where("id = 7").count() == 0 and data.count() == 5
    spark.range(5, 9).write.format("secure_parquet").options(plaintext="true").mode("append") \
        .save(str(tmp_path))
    assert data.where("id = 7").count() == 1 and data.count() == 9


def test_plans_say_which_conditions_are_used_without_their_values(spark, folders):
    data = frame(spark, folders).where(
        "(s = 'looked up' or id in (1, 2)) and st.q < 5 and bin is null")
    scan = data._jdf.queryExecution().optimizedPlan().collectLeaves().apply(0).scan()
    assert "PushedFilters: [" in scan.description() and "looked up" not in scan.description()
    for part in ("((s = ?) Or id In (2 values))", "(st.q < ?)", "IsNull(bin)"):
        assert part in scan.description()


def test_filters_of_a_load_hold_for_every_use(spark, folders):
    path = str(folders / "encrypted")
    data = secure_bloom.spark.read(spark, path, filters=[("id", ">=", 400), ("id", "<", 600)],
                                   **options(folders))
    assert data.where("id = 500").count() == 1
    assert data.count() == 200
    assert data.where("id = 405").union(data.where("id = 500")).count() == 2


@sweep_where(lambda query, **_: not query.startswith(("p = 1", "st.q")))
@pytest.mark.parametrize(("filters", "query"), [
    ([("p", "=", 1), ("i", "in", [7, 8, None])], "p = 1 and i in (7, 8)"),
    ([("p", "is null", None)], "p is null"), ([("i", "<=>", None)], "i is null"),
    ([("st.q", "==", 7), ("s", "is not null", None)], "st.q = 7 and s is not null"),
    ([("DAY", "<=", datetime.date(2024, 1, 3))], "day <= date'2024-01-03'"),
    ([("ts", ">", datetime.datetime(2024, 1, 20, 12, tzinfo=UTC))],
     "ts > timestamp'2024-01-20 12:00:00Z'"),
    ([("d38", "=", DEC38[0])], f"d38 = {DEC38[0]}BD"), ([("g", "=", math.nan)], "isnan(g)"),
    ([("f", "=", -0.0), ("bin", "<", b"\x05\xff")], "f = 0 and bin < X'05FF'"),
    ([("g", ">", np.float64(0.05)), ("i", "in", {np.int32(7), np.int64(8)}),
      ("`st`.`q`", ">=", np.uint8(0))], "g > 0.05 and i in (7, 8) and st.q >= 0"),
], ids=range(10))
def test_filters_of_a_load(spark, folders, filters, query):
    own = spark.read.schema(SCHEMA).parquet(str(folders / "plain")).where(query)
    data = secure_bloom.spark.read(spark, str(folders / "encrypted"), filters=filters,
                                   mergeSchema="true", **options(folders))
    expected = sorted(row.id for row in own.select("id").collect())
    assert sorted(row.id for row in data.select("id").collect()) == expected != []


@pytest.mark.parametrize("filters", [
    [("id", "!=", 5)], [[("id", "=", 5)], [("id", "=", 6)]], [("id", "=", object())],
    [("ts", "=", datetime.datetime(2024, 1, 1))], [("ts", "=", np.datetime64(0, "ns"))],
    [("", "=", 5)], [("a..b", "=", 5)], [("`a", "=", 5)], [("a`b`", "=", 5)]])
def test_filters_that_cannot_be_passed(spark, folders, filters):
    with pytest.raises((TypeError, ValueError)):
        secure_bloom.spark.read(spark, str(folders / "encrypted"), filters=filters)
