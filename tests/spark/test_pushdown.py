"""Filter pushdown: the same rows as without it, and as with Spark's own reader."""

import datetime
import math
import random
from decimal import Decimal
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet.encryption import EncryptionConfiguration
from pyspark.sql import functions as F

import secure_bloom.spark
from secure_bloom.keys import Keyring
from tests.spark.helpers import read, uses_spark

pytest.importorskip("pyspark", "4.1", reason="PySpark 4.1 passes filters on")
from pyspark.sql.datasource import EqualTo, In, IsNotNull, Not, StringStartsWith

from secure_bloom.spark.pushdown import (
    SecureParquetPushdown,
    column_predicates,
)

pytestmark = uses_spark

UTC = datetime.UTC
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
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
            encryption=EncryptionConfiguration("footer", column_keys={"pii": pii}), kms=keyring)
    return root


@pytest.fixture
def pushing(spark):
    """The session, in which conditions are handed over."""
    secure_bloom.spark.enable_pushdown(spark)
    yield spark
    spark.conf.unset(PUSHDOWN)
    secure_bloom.spark.register(spark)


def options(folders) -> dict:
    return {"keyring": str(folders / "keyring.json")}


def frame(session, folders, **more):
    return session.read.format("secure_parquet").schema(SCHEMA) \
        .options(**options(folders), **more).load(str(folders / "encrypted"))


# --- random queries ------------------------------------------------------------------------------

LITERALS = {
    "i": lambda r: str(r.randrange(-3, 170)), "none": lambda r: str(r.randrange(0, 32)),
    "l": lambda r: f"{2**40 * r.randrange(-12, 22) + r.randrange(3)}L",
    "s": lambda r: "'" + r.choice(WORDS) + r.choice(["", "1", "3", "6", "9"]) + "'",
    "d9": lambda r: f"{r.randrange(0, 3200) / 100}BD",
    "d38": lambda r: f"cast('{r.choice([*DEC38, Decimal('0.3')]):f}' as decimal(38,10))",
    "day": lambda r: f"date'2024-{r.randrange(1, 3):02d}-{r.randrange(1, 29):02d}'",
    "ts": lambda r: (f"timestamp'2024-01-{r.randrange(1, 29):02d} {r.randrange(24):02d}:30:00"
                     f"{r.choice(['', '.000001'])}{r.choice(['', 'Z', ' Europe/Berlin'])}'"),
    "ntz": lambda r: (f"timestamp_ntz'2024-01-{r.randrange(1, 29):02d} {r.randrange(24):02d}:30:00"
                      f"{r.choice(['', '.000001'])}'"),
    "f": lambda r: f"float('{_real(r)}')", "g": lambda r: f"double('{_real(r)}')",
    "bin": lambda r: f"X'{r.randrange(0, 31):02X}FF'", "st.q": lambda r: str(r.randrange(0, 32)),
    "id": lambda r: str(r.randrange(0, ROWS + 100)), "p": lambda r: r.choice("123"),
    "pd": lambda r: r.choice(["date'2024-01-01'", "date'2024-01-15'", "date'2024-02-01'"]),
    "ps": lambda r: r.choice(["'a'", "'A/b'", "'A'"]),
}


def _real(r):
    return r.choice([*REALS, 2.0, "0.30000001"])


def condition(r) -> str:
    column = r.choice(list(LITERALS))
    literal = LITERALS[column]
    if r.random() < 0.1 and column == "s":
        return f"s like '{r.choice(['a', 'ä', 'Z', chr(0x1f600)])}%'"
    match r.choice(["compare"] * 6 + ["in", "in", "null", "between", "not"]):
        case "compare":
            op = r.choice(["=", "=", "<=>", "<", "<=", ">", ">="])
            return f"{column} {op} {literal(r)}"
        case "in":
            values = [literal(r) for _ in range(r.randrange(1, 5))]
            return f"{column} in ({', '.join(values + r.choice([[], ['NULL']]))})"
        case "null":
            return f"{column} {r.choice(['is null', 'is not null', '<=> NULL'])}"
        case "between":
            return f"{column} between {literal(r)} and {literal(r)}"
        case _:
            return r.choice([f"{column} <> {literal(r)}", f"{column} not in ({literal(r)})"])


def conditions(count: int) -> list[str]:
    r = random.Random(2)
    found = []
    for _ in range(count):
        parts = [condition(r) for _ in range(r.choice([1, 1, 2, 3]))]
        found.append(r.choice([" and "] * 4 + [" or "]).join(f"({part})" for part in parts))
    return found


def ids_by_query(data, queries) -> list[list[int]]:
    """All queries over one scan, in which nothing can be skipped."""
    columns = [F.sort_array(F.collect_list(F.when(F.expr(query), F.col("id"))))
               for query in queries]
    [row] = data.agg(*[column.alias(str(n)) for n, column in enumerate(columns)]).collect()
    return list(row)


@pytest.mark.parametrize("part", range(4))
@pytest.mark.sweep
def test_random_queries_give_the_same_rows(spark, folders, request, part):
    queries = conditions(200)[part::4]
    own = spark.read.schema(SCHEMA).parquet(str(folders / "plain"))
    expected = ids_by_query(own, queries)
    for query, ids, right in zip(queries, ids_by_query(frame(spark, folders), queries), expected,
                                 strict=True):
        assert ids == right, query
    assert sum(map(bool, expected)) > 25 and sum(map(len, expected)) < 25 * ROWS
    pushing = request.getfixturevalue("pushing")
    for start in range(0, len(queries), 30):
        parts = [frame(pushing, folders, single_use="true").where(query)
                 .agg(F.sort_array(F.collect_list("id")).alias("ids"))
                 .select(F.lit(number).alias("n"), "ids")
                 for number, query in enumerate(queries[start:start + 30], start)]
        for number, ids in reduce(lambda a, b: a.union(b), parts).collect():
            assert ids == expected[number], queries[number]


# --- what is skipped -----------------------------------------------------------------------------

def rows_read(folders, *filters) -> int:
    """Rows that reach Spark for these pushed filters."""
    from pyspark.sql.types import StructType
    source = SecureParquetPushdown({"path": str(folders / "encrypted"), "single_use": "true",
                                    **options(folders)})
    reader = source.reader(StructType.fromDDL(SCHEMA))
    assert list(reader.pushFilters(list(filters))) == list(filters)
    return sum(batch.num_rows for task in reader.partitions() for batch in reader.read(task))


@pytest.mark.parametrize(("filters", "expected"), [
    ([EqualTo(("id",), 500)], GROUP), ([EqualTo(("id",), 5000)], 0),
    ([In(("id",), [3, 1100, None])], 2 * GROUP), ([In(("id",), [None])], 0),
    ([EqualTo(("p",), 1)], 2 * ROWS // FILES), ([EqualTo(("ps",), "nowhere")], 0),
    ([IsNotNull(("none",))], ROWS // 2 - 3 * GROUP), ([EqualTo(("st", "q"), 3)], GROUP),
    ([EqualTo(("ts",), datetime.datetime(2024, 1, 5, 7, 30, 0, 2, tzinfo=UTC))], 0),
    ([EqualTo(("bin",), b"\x07\xff"), IsNotNull(("bin",))], GROUP),
    ([StringStartsWith(("s",), "\U0001f601")], 0),
    ([EqualTo(("day",), datetime.date(2023, 1, 1))], 0),
], ids=range(12))
def test_row_groups_are_skipped(folders, filters, expected):
    assert rows_read(folders, *filters) == expected


def test_what_cannot_be_used_skips_nothing(folders):
    assert rows_read(folders, Not(EqualTo(("id",), 500))) == ROWS
    assert rows_read(folders) == ROWS


def test_decimals_that_pyspark_may_have_rounded_are_not_used():
    exact, rounded = Decimal("1" * 27), Decimal("1" * 28)
    assert column_predicates(EqualTo(("d",), exact)) != []
    assert column_predicates(EqualTo(("d",), rounded)) == []
    assert column_predicates(In(("d",), [exact, rounded])) == []


def test_the_end_of_a_prefix_is_a_character():
    bounds = {prefix: [p.value for p in column_predicates(StringStartsWith(("s",), prefix))]
              for prefix in ("a", "\ud7ff", "b\U0010ffff", "")}
    assert bounds == {"a": ["a", "b"], "\ud7ff": ["\ud7ff", "\ue000"],
                      "b\U0010ffff": ["b\U0010ffff"], "": [""]}


# --- sessions ------------------------------------------------------------------------------------

def test_the_log_says_what_was_skipped(pushing, folders):
    pushing.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    try:
        data = frame(pushing, folders, single_use="true")
        assert data.where("id = 500 and p is null").count() == 1
        lines = pushing.sql("select msg, context from python_worker_logs() "
                            "where logger = 'secure_bloom.spark' and level = 'INFO'").collect()
    finally:
        pushing.conf.unset("spark.sql.pyspark.worker.logging.enabled")
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


def test_the_setting_and_what_is_registered_belong_together(pushing, folders):
    secure_bloom.spark.register(pushing)  # while the setting is on, this changes nothing
    assert frame(pushing, folders).where("id = 500").count() == 1
    pushing.conf.set(PUSHDOWN, "false")
    with pytest.raises(Exception, match=PUSHDOWN):
        frame(pushing, folders).count()
    secure_bloom.spark.register(pushing)
    assert frame(pushing, folders).count() == ROWS


def test_names_with_dots_and_other_case(pushing, tmp_path):
    secure_bloom.write_table(pa.table({"a.b": [1, 2], "C": ["x", "y"]}), tmp_path / "a.parquet",
                             row_group_size=1, bloom_filters={"C": True})
    def matching(condition):
        return read(pushing, tmp_path, single_use="true").where(condition).collect()

    assert matching("`a.b` = 2 and c = 'y'") == [(2, "y")]
    assert matching("`A.B` = 2 and C = 'x'") == []


def test_a_name_with_a_dot_and_a_field_of_a_struct(spark, tmp_path):
    pq.write_table(pa.table({"a.b": [1], "a": [{"b": 5}], "c`d": ["x"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": [{"b": 7}]}), tmp_path / "b.parquet")

    def found(*filters):
        return secure_bloom.spark.load(spark, tmp_path, list(filters), mergeSchema="true").collect()

    assert [row.a.b for row in found(("a.b", "=", 7))] == [7]
    assert [row.a.b for row in found(("a.b", "=", 5), ("`c``d`", "=", "x"))] == [5]
    assert found(("a.b", "=", 1)) == []
    assert [row.a.b for row in found(("`a.b`", "=", 1))] == [5]
    assert [row.a.b for row in found(("`a.b`", "is null", None))] == [7]


def test_spark_mixes_up_conditions_so_they_are_used_only_where_one_use_is_promised(pushing,
                                                                                   folders):
    """Spark gives all uses of a DataFrame the reader that was given conditions last."""
    data = frame(pushing, folders)
    assert data.where("id = 500").count() == 1
    assert data.count() == ROWS
    assert data.where("id = 5").union(data.where("id = 500")).count() == 2
    first, second = data.where("id = 5"), data.where("id = 500")
    assert [len(one.collect()) for one in (first, second, first)] == [1, 1, 1]
    # If one of these fails, Spark keeps filters separate, and the option is no longer needed.
    data = frame(pushing, folders, single_use="true")
    assert data.where("id = 500").count() == 1
    assert data.count() == GROUP
    data = frame(pushing, folders, single_use="true")
    assert data.where("id = 5").union(data.where("id = 500")).count() == 1


def test_filters_of_a_load_hold_for_every_use(spark, folders):
    path = str(folders / "encrypted")
    data = secure_bloom.spark.load(spark, path, [("id", ">=", 400), ("id", "<", 600)],
                                   **options(folders))
    assert data.where("id = 500").count() == 1
    assert data.count() == 200
    assert data.where("id = 405").union(data.where("id = 500")).count() == 2


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
    data = secure_bloom.spark.load(spark, str(folders / "encrypted"), filters,
                                   mergeSchema="true", **options(folders))
    expected = sorted(row.id for row in own.select("id").collect())
    assert sorted(row.id for row in data.select("id").collect()) == expected != []


@pytest.mark.parametrize("filters", [
    [("id", "!=", 5)], [[("id", "=", 5)], [("id", "=", 6)]], [("id", "=", object())],
    [("ts", "=", datetime.datetime(2024, 1, 1))], [("ts", "=", np.datetime64(0, "ns"))],
    [("", "=", 5)], [("a..b", "=", 5)], [("`a", "=", 5)], [("a`b`", "=", 5)]])
def test_filters_that_cannot_be_passed(spark, folders, filters):
    with pytest.raises((TypeError, ValueError)):
        secure_bloom.spark.load(spark, str(folders / "encrypted"), filters)
