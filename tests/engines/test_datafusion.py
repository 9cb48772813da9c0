"""DataFusion over data sets of encrypted files."""

import datafusion
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import secure_bloom
from tests.engines.conftest import ROW_GROUPS, ssn


def rows(table: pa.Table | object, query: str) -> list[dict]:
    context = datafusion.SessionContext()
    if isinstance(table, pa.Table):
        context.from_arrow(table, name="people")
    else:
        context.register_dataset("people", table)
    return [row for batch in context.sql(query).collect() for row in batch.to_pylist()]


@pytest.mark.parametrize("query, read", [
    (f"SELECT * FROM people WHERE ssn = '{ssn(123)}'", 1),
    (f"SELECT id FROM people WHERE ssn IN ('{ssn(5)}', '{ssn(6)}') ORDER BY id", 1),
    ("SELECT count(*) AS n FROM people WHERE id = 5 OR id = 599", 2),
    ("SELECT id FROM people WHERE id BETWEEN 40 AND 60 ORDER BY id", 2),
    (f"SELECT id FROM people WHERE ssn = '{ssn(123)}' AND city LIKE '%a%'", 1),
    ("SELECT city, sum(score) AS total FROM people GROUP BY city ORDER BY city", ROW_GROUPS),
    ("SELECT count(*) AS n FROM people WHERE ssn = 'none'", 0),
])
def test_queries_return_what_they_return_in_memory(people, query, read):
    source = people.open()
    assert rows(source, query) == rows(people.rows, query)
    assert source.report.row_groups.total == ROW_GROUPS
    assert source.report.row_groups.read == read


def test_values_of_a_join_are_not_pushed_down_but_a_filtered_data_set_is(people):
    query = ("SELECT count(*) AS n FROM people WHERE ssn IN "
             f"(SELECT column1 FROM (VALUES ('{ssn(5)}'), ('{ssn(6)}')))")
    source = people.open()
    assert rows(source, query) == [{"n": 2}]
    assert source.report.row_groups.read == ROW_GROUPS
    some = source.filter(pc.field("ssn").isin([ssn(5), ssn(6)]))
    assert rows(some, query) == [{"n": 2}]
    assert some.report.row_groups.read == 1


def test_a_condition_that_is_constant(tmp_path):
    """DataFusion passes it as a scalar, which pyarrow's own data sets refuse."""
    rows = pa.table({"u8": pa.array([1, 2], pa.uint8()), "st": [{"y": "z"}, {"y": "a"}]})
    secure_bloom.write_table(rows, tmp_path / "a.parquet")
    context = datafusion.SessionContext()
    context.register_dataset("people", secure_bloom.dataset(tmp_path))
    condition = "u8 = 128 AND (st['y'] <> 'z' AND u8 = 127)"
    assert context.sql(f"SELECT u8 FROM people WHERE {condition}").to_pydict() == {"u8": []}
