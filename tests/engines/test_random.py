"""Random conditions on encrypted files find the rows that the same engine finds in memory."""

import math
import random
from typing import NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import secure_bloom
from tests.engines.random_queries import ENGINES, Outcome
from tests.engines.random_rows import build_indexes, leaves, random_condition, write_files
from tests.support import kms
from tests.tiers import sweep_where

_CASES_OF_FILES = 100  # that are asked of the same files
_FLOATS = ("f32", "f64", "st.in.z")
#: engine -> columns of conditions for which its own results over pyarrow's data sets differ
DEVIATIONS = {
    # In its own tables, DataFusion treats NaN as equal to NaN, and as the greatest number. It
    # passes conditions on data sets to pyarrow, which follows IEEE 754.
    "datafusion": _FLOATS,
    # In its own tables, DuckDB 2.0 takes `st.x IN (...)` as true where st.x is null but st is not,
    # if the list has all values of the column.
    "duckdb": ("st.x", "st.y", "st.in.z"),
}


class Comparison(NamedTuple):
    """Conditions with different results, and how many row groups were skipped."""

    different: list[str]
    skipped: int
    deviations: int


def compare(engine: str, folder, seed: int, cases: int, indexed: bool = False) -> Comparison:
    """Compare the results of random conditions; seed and condition are in what is returned."""
    rnd = random.Random(f"{engine} {seed}")
    different, skipped, deviations = [], 0, 0
    for start in range(0, cases, _CASES_OF_FILES):
        path = folder / f"{engine}-{seed}-{start}"
        write_files(path, rnd, kms())
        if indexed:
            build_indexes(path, kms())
        people = secure_bloom.dataset(path, kms(), index="require" if indexed else "auto")
        over = ENGINES[engine](people, people.to_table())
        for _ in range(min(_CASES_OF_FILES, cases - start)):
            condition = random_condition(rnd)
            query = over.query(rnd, condition)
            of_files, of_memory = Outcome(over.of_files, query), Outcome(over.of_memory, query)
            if people.report is not None:
                skipped += people.report.row_groups.skipped
            if of_files.may_replace(of_memory):
                continue
            if any(leaf.column in DEVIATIONS.get(engine, ()) for leaf in leaves(condition)) \
                    and of_files.may_replace(Outcome(over.of_arrow, query)):
                deviations += 1
                continue
            different.append(f"{engine}, seed {seed}: {query}\n  of the files: {of_files}\n"
                             f"  of memory: {of_memory}")
    return Comparison(different, skipped, deviations)


def check(engine: str, folder, seed: int, cases: int, indexed: bool = False) -> None:
    print(f"{engine}: seed {seed}, {cases} cases{', indexed' * indexed}")
    comparison = compare(engine, folder, seed, cases, indexed)
    assert comparison.different == [], "\n".join(comparison.different)
    assert comparison.skipped > 2 * cases  # of 20 row groups in each case
    assert comparison.deviations < cases / 10


@pytest.mark.slow
@sweep_where(lambda engine, indexed: list(ENGINES).index(engine) % 2 == indexed)
@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("engine", ENGINES)
def test_random_conditions_find_the_rows_that_the_engine_finds_in_memory(
        tmp_path, settled, engine, indexed):
    check(engine, tmp_path, 10, 60, indexed)


@sweep_where(lambda engine, part: part < 3)
@sweep_where(lambda engine, part: part >= 3, "soak")  # CI has no time for all
@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("engine", ENGINES)
def test_many_random_conditions_find_the_rows_that_the_engine_finds_in_memory(
        tmp_path, settled, engine, part):
    check(engine, tmp_path, part, 500, indexed=part % 2 == 1)


@pytest.mark.soak
@pytest.mark.parametrize("engine", ENGINES)
def test_new_random_conditions_find_the_rows_that_the_engine_finds_in_memory(
        tmp_path, settled, engine):
    """New ones each time, so a fault of an engine that is not known yet may be found."""
    check(engine, tmp_path, random.randrange(2**32), 2000, indexed=random.random() < 0.5)


@pytest.mark.slow
def test_a_difference_is_noticed(tmp_path, monkeypatch):
    """The comparison itself can fail."""
    over = ENGINES["pyarrow"]
    monkeypatch.setattr(over, "of_files", lambda self, query: over.of_memory(self, query)[1:])
    assert len(compare("pyarrow", tmp_path, 1, 30).different) > 5


def test_datafusion_passes_conditions_on_floats_to_pyarrow():
    """The deviation still exists, and with pyarrow's own data set of rows in memory."""
    datafusion = pytest.importorskip("datafusion")
    rows = pa.table({"x": [math.nan, 0.0, -0.0]})
    context = datafusion.SessionContext()
    context.from_arrow(rows, name="own")
    context.register_dataset("passed_on", ds.dataset(rows))
    for condition, own, passed_on in (("x = CAST('NaN' AS DOUBLE)", 1, 0),
                                      ("x >= CAST('0.0' AS DOUBLE)", 3, 2)):
        for table, wanted in (("own", own), ("passed_on", passed_on)):
            found = context.sql(f"SELECT count(*) FROM {table} WHERE {condition}").collect()
            assert found[0].column(0).to_pylist() == [wanted], (table, condition)


def test_duckdb_finds_null_fields_in_a_list_of_all_values_of_its_own_table():
    """DuckDB 2.0.0 does, depending on the columns of the result; 2.0.1 no longer does."""
    duckdb = pytest.importorskip("duckdb")
    rows = pa.table({"n": range(3), "st": [{"x": 1}, {"x": None}, {"x": 2}]})
    connection = duckdb.connect()
    connection.register("rows", rows)
    connection.execute("CREATE TABLE own AS SELECT * FROM rows")
    found = connection.execute("SELECT n, st FROM own WHERE st.x IN (1, 2)").fetchall()
    assert [n for n, _ in found] == ([0, 1, 2] if duckdb.__version__ == "2.0.0" else [0, 2])
    found = connection.execute("SELECT n, st FROM rows WHERE st.x IN (1, 2)").fetchall()
    assert [n for n, _ in found] == [0, 2]
