"""Other readers use the page indexes that secure_bloom writes, and those that it adds."""

from pathlib import Path

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secure_bloom import attach
from secure_bloom.reading.open_file import OpenFile
from tests.maintain.test_peers import WRITERS
from tests.modes import MODES, Mode
from tests.page_indexes import Page, indexed_pages, page_bounds
from tests.peers.parquet_java import ParquetJava
from tests.test_page_indexes import (
    COLUMN_KEYS,
    GROUP_ROWS,
    PAGE_ROWS,
    PAGES,
    ROWS,
    START,
    TABLE,
    VALUES,
    write,
)


def of_java(parquet_java: ParquetJava, path: Path, keys) -> dict[tuple[int, str], tuple]:
    """The pages and bounds of each column chunk, as parquet-java reads them."""
    return {(one["row_group"], one["column"]):
            (one["pages"] and [Page(*page) for page in one["pages"]],
             one["bounds"] and [tuple(bounds) for bounds in one["bounds"]])
            for one in parquet_java.page_indexes(path, keys)}


def of_ours(path: Path, keys) -> dict[tuple[int, str], tuple]:
    """The same as secure_bloom reads them."""
    with OpenFile(path, keys) as file:
        return {(chunk.row_group, chunk.column.path):
                (indexed_pages(file, chunk), page_bounds(file, chunk))
                for chunk in file.footer.column_chunks()}


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_parquet_java_skips_pages_by_our_page_indexes(
        parquet_java: ParquetJava, tmp_path: Path, mode: Mode):
    path = tmp_path / "a.parquet"
    write(mode, path, store_decimal_as_integer=True)
    ours = of_ours(path, mode.keys)
    assert len(ours) == ROWS // GROUP_ROWS * len(VALUES)
    assert all(pages and bounds for pages, bounds in ours.values())
    assert of_java(parquet_java, path, mode.java_keys) == ours
    for column, value in (("number", START + 130), ("name", "näme of person 0130")):
        rows, rows_read = parquet_java.filtered(path, mode.java_keys, column, value)
        assert [(row["number"], row["home"]["city"], row["open"]) for row in rows] \
            == [(START + 130, b"city no. 0130", b"anyone reads 0130")]
        assert rows_read == PAGE_ROWS


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_parquet_java_reads_the_offset_indexes_that_were_added(
        parquet_java: ParquetJava, tmp_path: Path, mode: Mode):
    path = tmp_path / "a.parquet"
    mode.write(TABLE, path, COLUMN_KEYS, **PAGES, write_page_index=False,
               store_decimal_as_integer=True)
    rows = parquet_java.read(path, mode.java_keys)
    assert attach(path, ["name"], mode.keys, page_index=True).changed[0].indexed == 12
    ours = of_ours(path, mode.keys)
    assert of_java(parquet_java, path, mode.java_keys) == ours
    assert {place[1] for place, (pages, _) in ours.items() if not pages} == {"tags.list.element"}
    assert parquet_java.read(path, mode.java_keys) == rows
    [row], _ = parquet_java.filtered(path, mode.java_keys, "number", START + 130)
    assert row["open"] == b"anyone reads 0130"


@pytest.mark.parametrize("writer", WRITERS)
def test_files_of_other_writers_with_added_indexes(
        parquet_java: ParquetJava, tmp_path: Path, writer):
    path = tmp_path / "a.parquet"
    writer(path)
    before = pq.read_table(path)
    has_none = {place for place, (pages, _) in of_java(parquet_java, path, None).items()
                if pages is None}
    result = attach(path, page_index=True)
    assert sum(change.indexed for change in result.changed) == len(has_none)
    after = of_java(parquet_java, path, None)
    assert all(pages for pages, _ in after.values()) and after == of_ours(path, None)
    assert str(pq.read_table(path).to_pylist()) == str(before.to_pylist())  # NaN is not NaN


def test_engines_read_files_with_added_indexes(tmp_path: Path):
    """DataFusion skips pages by page indexes. Where only some columns have one, it must cope."""
    path = tmp_path / "a.parquet"
    pq.write_table(TABLE, path, **PAGES)
    assert attach(path, page_index=True).changed[0].indexed == 12
    context = datafusion.SessionContext()
    context.register_parquet("t", str(path))
    number = START + 130
    expected = TABLE.filter(pa.compute.equal(TABLE["number"], number)).drop_columns("code")
    names = ", ".join(expected.column_names)
    query = f"SELECT {names} FROM %s WHERE number = {number}"
    found = [context.sql(query % "t").to_arrow_table(),
             duckdb.sql(query % f"'{path}'").to_arrow_table(),
             pl.scan_parquet(path).filter(pl.col("number") == number)
             .select(expected.column_names).collect().to_arrow()]
    for one in found:
        assert one.to_pylist() == expected.to_pylist()
    assert context.sql("SELECT * FROM t").to_arrow_table().num_rows == ROWS
