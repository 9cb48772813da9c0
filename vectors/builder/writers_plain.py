"""Good files by writers whose Bloom filters are plain: Arrow C++, DuckDB, parquet-rs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import arro3.io
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from vectors.builder.columns import GROUPS, Column, pick, table
from vectors.builder.vector import FileKeys, FileVector
from vectors.builder.vectorize import good

ROWS, GROUP_ROWS = 11, 6

Write = Callable[[pa.Table, list[Column], Path], None]


def plain() -> Iterator[FileVector]:
    """All files of these writers."""
    arrow, parquet_rs = (f"Arrow C++ {version('pyarrow')}",
                         f"parquet-rs in arro3-io {version('arro3-io')}")
    for group, columns in GROUPS.items():
        yield _vector(f"arrow-{group}", arrow, columns, _arrow())
        yield _vector(f"arrow-dictionary-{group}", arrow, columns,
                      _arrow(use_dictionary=True, compression="snappy"),
                      "pages are compressed and have dictionaries")
        yield _vector(f"parquet-rs-{group}", parquet_rs,
                      [column for column in columns if column.physical != "INT96"], _parquet_rs)
    yield _vector("duckdb", f"DuckDB {version('duckdb')}", _DUCKDB, _duckdb,
                  "filters of columns with a dictionary", numbers=_REPEATED)


def _arrow(**options) -> Write:
    def write(rows: pa.Table, columns: list[Column], path: Path) -> None:
        filters = {column.path: {"ndv": GROUP_ROWS, "fpp": 0.01} for column in columns}
        stored = {"use_deprecated_int96_timestamps": any(c.physical == "INT96" for c in columns),
                  "store_decimal_as_integer": True, "store_schema": False,
                  "use_dictionary": False, "compression": "none"}
        pq.write_table(rows, path, row_group_size=GROUP_ROWS, bloom_filter_options=filters,
                       **stored | options)
    return write


def _parquet_rs(rows: pa.Table, columns: list[Column], path: Path) -> None:
    arro3.io.write_parquet(rows, path, max_row_group_size=GROUP_ROWS, dictionary_enabled=False,
                           bloom_filter_enabled=True, bloom_filter_ndv=GROUP_ROWS,
                           bloom_filter_fpp=0.01)


_DUCKDB = pick("short", "whole", "id", "single", "real", "name", "day")
_REPEATED = [i // 2048 * 8 + i % 8 for i in range(2100)]  # row groups have 2048 rows at least


def _duckdb(rows: pa.Table, columns: list[Column], path: Path) -> None:
    with duckdb.connect() as connection:
        connection.register("t", rows)
        connection.execute(f"COPY t TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048)")


def _vector(name: str, origin: str, columns: list[Column], write: Write,
            comment: str | None = None, numbers: Iterable[int] = range(ROWS)) -> FileVector:
    rows = table(columns, numbers)
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.parquet"
        write(rows, columns, path)
        return good(name, path.read_bytes(), origin, FileKeys(), rows, columns, comment)
