"""Which conditions the engines pass to a data set: the table of docs/engines.md."""

import datetime as dt
import random
from decimal import Decimal

import duckdb
import polars as pl
import pytest

import secure_bloom
from secure_bloom.datasets.report import describe
from tests.engines.random_queries import DataFusion
from tests.engines.random_rows import write_files
from tests.support import kms

_NOON = dt.datetime(2020, 1, 1, 12)
_ZONED = _NOON.replace(tzinfo=dt.UTC)
#: what is meant: condition for DuckDB, for Polars, for DataFusion if it differs; and the first
#: letters of those that push it down, f for DataFusion
CONDITIONS = {
    "=": ("s = 'a'", pl.col("s") == "a", None, "dpf"),
    "<>": ("s <> 'a'", pl.col("s") != "a", None, "dpf"),
    "<": ("i64 < 1", pl.col("i64") < 1, None, "dpf"),
    "BETWEEN": ("i64 BETWEEN 0 AND 1", pl.col("i64").is_between(0, 1), None, "dpf"),
    "AND": ("s = 'a' AND i64 = 1", (pl.col("s") == "a") & (pl.col("i64") == 1), None, "dpf"),
    "OR": ("s = 'a' OR i64 = 1", (pl.col("s") == "a") | (pl.col("i64") == 1), None, "dpf"),
    "IS NULL": ("s IS NULL", pl.col("s").is_null(), None, "dpf"),
    "IN": ("s IN ('a', 'b')", pl.col("s").is_in(["a", "b"]), None, "dpf"),
    "time with a zone": (f"tz = TIMESTAMPTZ '{_NOON}+00'", pl.col("tz") == _ZONED,
                         f"tz = arrow_cast('{_NOON}Z', 'Timestamp(Microsecond, Some(\"UTC\"))')",
                         "dpf"),
    "time with a zone, IN": (f"tz IN (TIMESTAMPTZ '{_NOON}+00')", pl.col("tz").is_in([_ZONED]),
                             None, "df"),
    "timestamp[ns]": (f"tns = TIMESTAMP_NS '{_NOON}'", pl.col("tns") == _NOON,
                      f"tns = TIMESTAMP '{_NOON}'", "f"),
    "struct": ("st.x = 1", pl.col("st").struct.field("x") == 1, "st['x'] = 1", "d"),
    "decimal": ("dec = 1.10", pl.col("dec") == Decimal("1.10"),
                "dec = CAST('1.10' AS DECIMAL(10,2))", "df"),
    "float =": ("f64 = 1.5::DOUBLE", pl.col("f64") == 1.5, "f64 = 1.5", "dpf"),
    "float <": ("f64 < 1.5::DOUBLE", pl.col("f64") < 1.5, "f64 < 1.5", "dpf"),
    "float >": ("f64 > 1.5::DOUBLE", pl.col("f64") > 1.5, "f64 > 1.5", "pf"),
    "binary": ("b = 'a'::BLOB", pl.col("b") == b"a", "b = X'61'", "df"),
    "date": ("d = DATE '2020-02-29'", pl.col("d") == dt.date(2020, 2, 29), None, "dpf"),
    "time": ("t64 = TIME '00:00:00'", pl.col("t64") == dt.time(0),
             "t64 = arrow_cast(0, 'Time64(Microsecond)')", "df"),
    "boolean": ("bo", pl.col("bo"), None, "pf"),
    "LIKE": ("s LIKE '%a%'", pl.col("s").str.contains("a"), None, ""),
    "function": ("lower(s) = 'a'", pl.col("s").str.to_lowercase() == "a", None, ""),
    "cast": ("i64::DECIMAL(38,2) = 1.5", pl.col("i64").cast(pl.Float64) == 1.5,
             "CAST(i64 AS DOUBLE) = 1.5", ""),
}


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    folder = tmp_path_factory.mktemp("random") / "people"
    write_files(folder, random.Random(1), kms(), files=1)
    return secure_bloom.dataset(folder, kms())


@pytest.mark.parametrize("name", CONDITIONS)
def test_what_is_pushed_down(people, name):
    sql, expression, for_datafusion, wanted = CONDITIONS[name]
    found = ""
    connection = duckdb.connect()
    connection.register("people", people)
    connection.execute(f"SELECT count(i8) FROM people WHERE {sql}").fetchall()
    found += "d" if people.report.condition != describe(None) else ""
    secure_bloom.scan(people).filter(expression).collect()
    found += "p" if people.report.condition != describe(None) else ""
    over = DataFusion(people, people.to_table())
    over.of_files(("i8", for_datafusion or sql.replace("::DOUBLE", "")))
    found += "f" if people.report.condition != describe(None) else ""
    assert found == wanted
