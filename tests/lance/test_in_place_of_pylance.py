"""pylance answers queries with an index of ours as with its own."""

import re

import numpy as np
import pyarrow as pa
import pytest

from secure_bloom.lance import BloomFilterIndex, build_index
from tests.lance.helpers import index_by_pylance, lance, write_dataset

ROWS = 20_000
QUERIES = 1000


@pytest.fixture(scope="module")
def replaced(tmp_path_factory):
    """A data set whose indexes were built by pylance and overwritten by ours."""
    rng = np.random.default_rng(11)
    nulls = rng.random(ROWS) < 0.02
    columns = {
        "number": pa.array(rng.integers(0, 50_000, ROWS), mask=nulls),
        "word": pa.array([f"w{i}" for i in rng.integers(0, 30_000, ROWS)], mask=nulls),
        "small": pa.array(rng.integers(-30_000, 30_000, ROWS).astype(np.int16), mask=nulls),
    }
    folder = tmp_path_factory.mktemp("lance") / "d"
    dataset = write_dataset(folder, columns, rows_per_fragment=7000)
    paths = {}
    for name in columns:
        paths[name] = index_by_pylance(dataset, name, number_of_items=500)
        before = paths[name].stat()
        build_index(dataset, name, paths[name], items=500)
        assert paths[name].stat().st_ino != before.st_ino
    return lance.dataset(str(folder)), pa.table(columns), paths


@pytest.mark.slow
def test_random_queries_are_answered_right(replaced):
    dataset, table, _ = replaced
    rng = np.random.default_rng(12)
    rows = {name: {} for name in table.column_names}
    for name, values in rows.items():
        for row, value in enumerate(table[name].to_pylist()):
            values.setdefault(value, []).append(row)
    for _ in range(QUERIES):
        name = rng.choice(table.column_names)
        query, asked = _query(rng, name, table)
        expected = sorted(row for value in asked for row in rows[name].get(value, []))
        found = dataset.to_table(columns=["_rowaddr"], filter=query)["_rowaddr"].to_numpy()
        assert sorted((found >> 32) * 7000 + found % 2**32) == expected, query


def _query(rng, name, table):
    """A query and the values it asks for, a third of which are not there."""
    asked = [table[name][int(row)].as_py() for row in rng.integers(0, ROWS, rng.integers(1, 4))]
    if rng.random() < 0.33:
        asked = {"number": [60_001], "word": ["w x"], "small": [32_000]}[str(name)]
    if rng.random() < 0.03:
        return f"{name} IS NULL", [None]
    asked = sorted({value for value in asked if value is not None})
    texts = [f"'{value}'" if isinstance(value, str) else str(value) for value in asked]
    if len(texts) == 1:
        return f"{name} = {texts[0]}", asked
    return (f"{name} IN ({', '.join(texts)})" if texts else "false"), asked


@pytest.mark.parametrize("query", ["number = 5", "word IN ('w1', 'w2')", "small = -7",
                                   "number IS NULL"])
def test_the_index_is_used(replaced, query):
    dataset, _, _ = replaced
    assert "ScalarIndexQuery" in dataset.scanner(filter=query).explain_plan(True)
    assert "ScalarIndexQuery" not in dataset.scanner(
        filter=query, use_scalar_index=False).explain_plan(True)


def test_pylance_reads_the_rows_that_our_answer_names(replaced):
    dataset, table, paths = replaced
    index = BloomFilterIndex(paths["number"])
    for value in [*table["number"].unique().drop_null().to_pylist()[:40], 60_001]:
        plan = dataset.scanner(filter=f"number = {value}").analyze_plan()
        scanned = re.search(r"rows_scanned=([\d.]+)( K)?\b", plan)
        if scanned is None:
            pytest.skip("this pylance does not count the rows that it reads")
        expected = sum(zone.zone_length for zone in index.equals(value))
        thousands = 1000 if scanned[2] else 1
        assert float(scanned[1]) * thousands == pytest.approx(expected, rel=0.01)
