"""Filters attached to files of parquet-java, pyarrow, DuckDB, arrow-rs and Polars: peers see them.

parquet-java's own filters are the measure: taken off and attached again, they have the same bits.
"""

import datetime
import hashlib
from decimal import Decimal
from pathlib import Path

import arro3.io
import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secure_bloom import BloomFilterOptions, ParquetFile, attach, strip, verify_file
from secure_bloom.reading.open_file import OpenFile
from tests.modes import MODES as OUR_MODES
from tests.modes import Mode
from tests.peers.arrow_cpp import ArrowCpp
from tests.peers.examples import COLUMNS, MODES, explicit, leaves, write
from tests.peers.parquet_java import ParquetJava
from tests.peers.test_ours_read_by_peers import (
    COLUMN_KEYS,
    GROUP_ROWS,
    LEAVES,
    TABLE,
    our_filters,
)
from tests.peers.test_peers_read_by_ours import our_keys

ALL = dict.fromkeys(COLUMNS, BloomFilterOptions(ndv=8, fpp=0.001))


def pages(path: Path, keys) -> str:
    """A checksum of everything that is not footer, filter or zero."""
    file = OpenFile(path, keys)
    digest = hashlib.sha256()
    for chunk in file.footer.column_chunks():
        for offset, length in filter(None, (chunk.pages, chunk.column_index, chunk.offset_index)):
            digest.update(b"%d %d" % (offset, length) + file.read_at(length, offset))
    return digest.hexdigest()


@pytest.mark.parametrize("mode", MODES)
def test_filters_of_parquet_java_taken_off_and_attached_again(
        parquet_java: ParquetJava, arrow_cpp: ArrowCpp, tmp_path: Path, mode: str):
    keys = MODES[mode]
    path = write(parquet_java, tmp_path / "a.parquet", keys)
    ours = our_keys(keys)
    rows, groups = parquet_java.read(path, keys)
    before, bits = pages(path, ours), parquet_java.filters(path, keys)

    assert strip(path, ours).changed[0].removed == len(bits)
    assert parquet_java.filters(path, keys) == []
    assert arrow_cpp.filters(path, explicit(parquet_java, path, keys)) == []
    assert parquet_java.read(path, keys) == (rows, groups)

    result = attach(path, ALL, ours)
    assert result.changed[0].built == len(bits) and not result.failed
    again = parquet_java.filters(path, keys)
    assert [(f.row_group, f.column, f.bitset) for f in again] \
        == [(f.row_group, f.column, f.bitset) for f in bits]
    assert arrow_cpp.filters(path, explicit(parquet_java, path, keys)) == again
    assert parquet_java.read(path, keys) == (rows, groups)
    assert pages(path, ours) == before
    for column in COLUMNS:
        answers = parquet_java.probe(path, keys, column, leaves(column))
        assert all(any(group[i] for group in answers) for i in range(len(leaves(column))))


@pytest.mark.parametrize("mode", OUR_MODES, ids=str)
def test_filters_of_ours_taken_off_and_attached_again(
        parquet_java: ParquetJava, arrow_cpp: ArrowCpp, tmp_path: Path, mode: Mode):
    path, columns = tmp_path / "a.parquet", dict.fromkeys(LEAVES.values(), True)
    mode.write(TABLE, path, COLUMN_KEYS, row_group_size=GROUP_ROWS, bloom_filters=columns,
               store_decimal_as_integer=True, write_page_index=True)
    rows, bits = parquet_java.read(path, mode.java_keys), our_filters(path, mode)
    before = pages(path, mode.keys)
    strip(path, mode.keys)
    attach(path, {"name": True, "id": True}, mode.keys)  # others come later
    attach(path, columns, mode.keys)
    again = our_filters(path, mode)
    assert [(f.row_group, f.column, f.bitset) for f in again] \
        == [(f.row_group, f.column, f.bitset) for f in bits]
    assert parquet_java.filters(path, mode.java_keys) == again
    assert arrow_cpp.filters(path, mode.explicit_keys(path)) == again
    assert parquet_java.read(path, mode.java_keys) == rows
    assert ParquetFile(path, mode.keys).read().equals(TABLE)
    assert pages(path, mode.keys) == before
    assert verify_file(path, mode.keys).ok


# --- files of other writers ----------------------------------------------------------------------

ROWS = pa.table({
    "number": pa.array([None, 0, -1, 2**31 - 1, -2**31] * 20, pa.int32()),
    "big": pa.array([2**63 - 1, -2**63, 0, 1, None] * 20, pa.int64()),
    "unsigned": pa.array([2**32 - 1, 0, 1, 7, None] * 20, pa.uint32()),
    "real": pa.array([0.0, -0.0, float("nan"), float("inf"), 1.5] * 20),
    "single": pa.array([0.0, -0.0, float("nan"), 1e-40, None] * 20, pa.float32()),
    "text": pa.array(["", "näme", "x" * 300, None, "b"] * 20),
    "data": pa.array([b"", b"\0", b"\xff" * 20, None, b"b"] * 20),
    "day": pa.array([datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None,
                     datetime.date(1970, 1, 1), datetime.date(1969, 12, 31)] * 20),
    "moment": pa.array([-1, 0, 1, None, 2**52] * 20, pa.timestamp("us")),
    "price": pa.array([Decimal("-1.23"), Decimal("0.00"), None, Decimal("9999999.99"),
                       Decimal("1.00")] * 20, pa.decimal128(9, 2)),
    "total": pa.array([Decimal(-10**24), Decimal(0), None, Decimal(10**24),
                       Decimal(1)] * 20, pa.decimal128(25, 0)),
})


def by_pyarrow(path: Path) -> None:
    pq.write_table(ROWS, path, row_group_size=30)


def by_pyarrow_with_int96(path: Path) -> None:
    far = pa.array([-62_135_596_800_000_000, 253_402_300_799_999_999, 0, None, 1] * 20,
                   pa.timestamp("us"))
    pq.write_table(ROWS.set_column(8, "moment", far), path, row_group_size=30,
                   use_deprecated_int96_timestamps=True)


def by_pyarrow_with_old_types(path: Path) -> None:
    table = ROWS.append_column("half", pa.array([0.0, -0.0, 1.5, None, 2.0] * 20, pa.float16()))
    table = table.append_column("lasted", pa.array([1, -1, None, 0, 5] * 20, pa.duration("ns")))
    table = table.append_column("coarse", pa.array([1, -1, None, 0, 5] * 20, pa.timestamp("s")))
    table = table.append_column("coded", pa.array(["a", "b", None, "a", ""] * 20)
                                .dictionary_encode())
    table = table.append_column("tiny", pa.array([-128, 127, None, 0, 1] * 20, pa.int8()))
    table = table.append_column("wide", pa.array([2**64 - 1, 0, None, 1, 2] * 20, pa.uint64()))
    pq.write_table(table, path, row_group_size=30, version="1.0", store_schema=True,
                   store_decimal_as_integer=True, data_page_version="2.0", compression="zstd")


def by_duckdb(path: Path) -> None:
    rows = ROWS
    assert rows.num_rows
    duckdb.sql(f"copy (from rows) to '{path}' (format parquet, row_group_size 2048)")


def by_arrow_rs(path: Path) -> None:
    arro3.io.write_parquet(ROWS, str(path), max_row_group_size=30)


def by_polars(path: Path) -> None:
    polars.from_arrow(ROWS).write_parquet(path, row_group_size=30)


WRITERS = [by_pyarrow, by_pyarrow_with_int96, by_pyarrow_with_old_types, by_duckdb, by_arrow_rs,
           by_polars]


@pytest.mark.parametrize("writer", WRITERS)
def test_files_of_other_writers(parquet_java: ParquetJava, arrow_cpp: ArrowCpp, tmp_path: Path,
                                writer):
    path = tmp_path / "a.parquet"
    writer(path)
    table, before = pq.read_table(path), pages(path, None)
    columns = [c.path for c in ParquetFile(path).columns if c.type.can_have_filter]
    assert len(columns) >= 10
    result = attach(path, dict.fromkeys(columns, True), replace=True)  # DuckDB writes some itself
    assert not result.failed
    theirs = parquet_java.filters(path)
    assert {f.column for f in theirs} == set(columns)
    assert arrow_cpp.filters(path) == theirs
    result = verify_file(path)
    assert not result.findings and all(check.values is not None for check in result.filters)
    assert len(result.filters) == len(theirs)
    again = pq.read_table(path)
    # Not equal(): NaN differs from itself.
    assert [str(column) for column in again.columns] == [str(column) for column in table.columns]
    assert again.schema.equals(table.schema) and pages(path, None) == before
