"""DuckDB over data sets of encrypted files."""

import sys
import warnings
from types import SimpleNamespace

import duckdb
import pyarrow.compute as pc
import pytest

from secure_bloom.datasets import scanner
from tests.engines.conftest import ROW_GROUPS, ssn


def in_memory(people, query: str, *parameters) -> list:
    memory = people.rows  # noqa: F841 - DuckDB finds it by its name
    return duckdb.execute(query.format("memory"), parameters).fetchall()


def test_a_query_finds_a_data_set_by_the_name_of_its_variable(people):
    source = people.open()
    found = duckdb.sql(f"SELECT * FROM source WHERE ssn = '{ssn(123)}'").fetchall()
    assert found == [(123, ssn(123), "Lima", 123 / 4)]
    assert source.report.row_groups.total == ROW_GROUPS and source.report.row_groups.read == 1
    assert source.report.condition == "ssn == ?"


@pytest.mark.parametrize("query, parameters, read", [
    ("SELECT id, city FROM {} WHERE ssn = ?", [ssn(599)], 1),
    ("SELECT count(*) FROM {} WHERE ssn IN (?, ?)", [ssn(5), ssn(6)], 1),
    ("SELECT count(*) FROM {} WHERE ssn = ? OR ssn = ?", [ssn(5), ssn(599)], 2),
    ("SELECT id FROM {} WHERE id BETWEEN ? AND ?", [40, 60], 2),
    ("SELECT id FROM {} WHERE ssn = ? AND city LIKE '%a%'", [ssn(123)], 1),
    ("SELECT city, sum(score) FROM {} GROUP BY city ORDER BY city", [], ROW_GROUPS),
    ("SELECT count(*) FROM {} WHERE ssn = 'none'", [], 0),
    ("SELECT count(*) FROM {} WHERE ssn IS NULL", [], 0),
])
def test_queries_return_what_they_return_in_memory(people, query, parameters, read):
    source = people.open()
    found = duckdb.execute(query.format("source"), parameters).fetchall()
    assert found == in_memory(people, query, *parameters)
    assert source.report.row_groups.read == read


def test_values_of_a_join_are_not_pushed_down_but_a_filtered_data_set_is(people):
    wanted = [ssn(5), ssn(6)]
    source = people.open()
    query = "SELECT count(*) FROM source WHERE ssn IN (SELECT unnest(?))"
    assert duckdb.execute(query, [wanted]).fetchall() == [(2,)]
    assert source.report.row_groups.read == ROW_GROUPS
    two = source.filter(pc.field("ssn").isin(wanted))
    assert duckdb.execute(query.replace("source", "two"), [wanted]).fetchall() == [(2,)]
    assert two.report.row_groups.read == 1


def test_the_source_of_rows_can_be_queried(people):
    source = people.open(with_source=True)  # noqa: F841 - DuckDB finds it by its name
    query = f"SELECT file, row_group FROM source WHERE ssn = '{ssn(123)}'"
    assert duckdb.sql(query).fetchall() == [(f"{people.folder}/0.parquet", 2)]


@pytest.fixture
def imported(monkeypatch):
    """Set the version of DuckDB that seems to be imported; None: none is."""
    monkeypatch.setattr(scanner, "_has_warned", False)

    def set_version(version: str | None):
        module = None if version is None else SimpleNamespace(__version__=version)
        monkeypatch.setitem(sys.modules, "duckdb", module)
    return set_version


@pytest.mark.parametrize("version", ["1.4.1", "0.10.2", "1.5.0.dev12"])
def test_an_old_duckdb_is_warned_about_once(people, imported, version):
    imported(version)
    source = people.open()
    with pytest.warns(UserWarning, match=rf"DuckDB {version} .*wrong.*2\.0") as caught:
        source.scanner().to_reader().read_all()
        source.scanner().to_reader().read_all()
    assert len(caught) == 1


@pytest.mark.parametrize("version", ["2.0.0", "2.1.0.dev3", "10.0", "unknown", None])
def test_other_versions_are_not_warned_about(people, imported, version):
    imported(version)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        people.open().scanner().to_reader().read_all()


def test_only_readers_are_warned_about(people, imported):
    """DuckDB takes no other form of the rows."""
    imported("1.4.1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        people.open().to_table()
