"""Rows that match a filter, read by pages: against whole row groups, and against plaintext files.

The file has one row group of a million rows and 20 columns, encrypted, with a page index. Whole row
groups are what pyarrow reads for the same filter. DuckDB, Polars, Spark's own reader and arrow-rs,
which is a small program that Cargo compiles, read a plaintext copy with Bloom filters and page
indexes. All files are in the page cache. Times are CPU time where that is said.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pa_fs

import secure_bloom
from benchmarks.compare import Comparison, compare, table
from benchmarks.local_spark import session
from benchmarks.section import Plan, Section
from benchmarks.slow_store import SlowStore
from secure_bloom.keys import InMemoryKms
from secure_bloom.reading import matching_rows
from tests.peers import arrow_rs
from tests.peers.process import LineProcess

ROWS, FILES, MANY_FILES = 1_000_000, 20, 100
KMS = InMemoryKms({"footer": b"f" * 16, "pii": b"p" * 16})
ENCRYPTION = secure_bloom.EncryptionConfiguration("footer", {"pii": ["ssn"]})
PAGES, ROW_GROUPS = "pages", "row groups"
WITH_INDEX = "one row, with the position from the index"
TARGETS = {"one row": 10, WITH_INDEX: 25, "one day of a year": 20, "half of the rows": 1 / 1.05}


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    rows = plan.size(ROWS, 1000)
    data = _rows(rows)
    one = plan.folder / "one.parquet"
    _write(data, one)
    numbers = data["ssn"].take(pa.array(range(0, rows, max(1, rows // 50)))).to_pylist()
    random.Random(1).shuffle(numbers)
    values = cycle(numbers)
    filters: dict[str, Callable[[], Any]] = {
        "one row": lambda: [("ssn", "=", next(values))],
        "one day of a year": lambda: [("day", "=", 180)],
        "half of the rows": lambda: [("n0", ">", 0.0)]}
    read = {name: _in_turns(f"{name}, CPU, {rows:,} rows", one, filters_, plan.rounds)
            for name, filters_ in filters.items()}
    others = [_many_columns(plan, data), _many_files(plan, data, values)]
    indexed, share, size = _with_index(plan, data, values)
    read[WITH_INDEX] = indexed
    others += _against_plaintext(plan, data, one, values)
    far, bytes_read = _far_away(plan, one, numbers[0])
    lines = [f"- {name}: {_median(found.ratios(PAGES)):.2f} times as fast "
             f"(target {TARGETS[name]:.2f})." for name, found in read.items()]
    lines += [f"- {FILES} files in a store: {bytes_read[ROW_GROUPS] / bytes_read[PAGES]:.1f} times "
              "fewer bytes (target 3).",
              f"- {WITH_INDEX}: {share:.1%} of the bytes of the pages are read (target 3%); the "
              f"index takes {size:.2f} bytes for each value."]
    found = [*read.values(), *others, far]
    return Section(f"{table(found)}\n\n" + "\n".join(lines),
                   {"times": [one.to_json() for one in found], "bytes": bytes_read})


@contextmanager
def row_groups() -> Iterator[None]:
    """A block in which whole row groups are read."""
    before = matching_rows._SMALL
    matching_rows._SMALL = 1 << 60
    try:
        yield
    finally:
        matching_rows._SMALL = before


def _rows(rows: int) -> pa.Table:
    """Return 20 columns: a number in random order, a day in ascending order, text and numbers."""
    numpy = np.random.default_rng(1)
    columns: dict[str, Any] = {"ssn": [f"{number:09}" for number in numpy.permutation(rows)],
                               "day": np.arange(rows) * 365 // rows}
    columns |= {f"s{number}": [f"text {one}" for one in numpy.integers(0, 10**9, rows)]
                for number in range(9)}
    columns |= {f"n{number}": numpy.normal(size=rows) for number in range(9)}
    return pa.table(columns)


def _write(data: pa.Table, path: Any, **options: Any) -> None:
    options = {"encryption": ENCRYPTION, "keys": KMS} | options
    secure_bloom.write_table(data, path, write_page_index=True, bloom_filters={"ssn": True},
                             row_group_size=len(data), durable=False, **options)


def _in_turns(work: str, path: Any, filters: Callable[[], Any], rounds: int) -> Comparison:
    file = secure_bloom.ParquetFile(path, KMS)
    return _compare(work, lambda: file.read(filters=filters()), rounds)


def _compare(work: str, read: Callable[[], pa.Table], rounds: int) -> Comparison:
    """Compare the CPU times of a read by row groups and by pages."""
    def whole() -> pa.Table:
        with row_groups():
            return read()

    return compare(work, {ROW_GROUPS: whole, PAGES: read}, rounds, clock=time.process_time)


def _many_columns(plan: Plan, data: pa.Table) -> Comparison:
    """Look for one row in a file of 100 columns."""
    rows, path = len(data) // 5, plan.folder / "columns.parquet"
    numpy = np.random.default_rng(2)
    columns = {f"n{number}": numpy.normal(size=rows) for number in range(99)}
    _write(pa.table({"ssn": data["ssn"].slice(0, rows), **columns}), path)
    wanted = cycle(data["ssn"].slice(rows // 2, 50).to_pylist())
    return _in_turns(f"one row of 100 columns, CPU, {rows:,} rows", path,
                     lambda: [("ssn", "=", next(wanted))], plan.rounds)


def _many_files(plan: Plan, data: pa.Table, values: Iterator[str]) -> Comparison:
    """Look for one row in many files that have one part each of all rows."""
    folder, rows = plan.folder / "parts", len(data) // MANY_FILES
    folder.mkdir()
    for number in range(MANY_FILES):
        _write(data.slice(number * rows, rows), folder / f"{number}.parquet")
    return _compare(f"one row in {MANY_FILES} files of {rows:,} rows, CPU",
                    lambda: secure_bloom.read_table(folder, KMS, filters=[
                        ("ssn", "=", next(values))]), plan.rounds)


def _with_index(plan: Plan, data: pa.Table, values: Iterator[str]) \
        -> tuple[Comparison, float, float]:
    """Compare lookups in a folder that has an index of the column.

    Also return the share of the bytes that is read, and the bytes of the index for each value.
    """
    folder = plan.folder / "indexed"
    folder.mkdir()
    _write(data, folder / "one.parquet")
    os.utime(folder / "one.parquet", ns=(10**18, 10**18))  # younger files are not indexed yet
    secure_bloom.index.build(folder, "ssn", KMS)
    table_ = secure_bloom.dataset(folder, KMS, index="require")
    found = _compare(f"{WITH_INDEX}, CPU, {len(data):,} rows", lambda: table_.to_table(
        filter=pc.field("ssn") == next(values)), plan.rounds)
    reads = table_.report.by_pages
    size = sum(path.stat().st_size for path in folder.rglob("*.seg"))
    return found, reads.read_bytes / max(reads.stored_bytes, 1), size / len(data)


def _against_plaintext(plan: Plan, data: pa.Table, one: Any, values: Iterator[str]) \
        -> list[Comparison]:
    """Compare with peers that look for a value, and with arrow-rs, which is told the row."""
    copy = str(plan.folder / "plaintext.parquet")
    _write(data, copy, encryption=None, keys=None)
    indexed = secure_bloom.dataset(plan.folder / "indexed", KMS, index="require")
    spark, rows = session(), cycle(random.Random(2).choices(range(len(data)), k=50))
    with ExitStack() as stack:
        connection = stack.enter_context(duckdb.connect())
        rust = LineProcess(arrow_rs.command(Path(__file__).parent / "row_selection",
                                            "row_selection"))
        stack.callback(rust.close)
        found = compare(f"one row, {len(data):,} rows", {
            "DuckDB, plaintext": lambda: connection.execute(
                "select * from read_parquet($1) where ssn = $2", [copy, next(values)]).fetchall(),
            "Polars, plaintext": lambda: pl.scan_parquet(copy).filter(
                pl.col("ssn") == next(values)).collect(),
            "Spark, plaintext": lambda: spark.read.parquet(copy).where(
                f"ssn = '{next(values)}'").collect(),
            "arrow-rs, plaintext": lambda: rust.ask(f"{copy}\tssn\t{next(values)}"),
            "secure_bloom, encrypted": lambda: secure_bloom.read_table(
                one, KMS, filters=[("ssn", "=", next(values))])}, plan.rounds)
        known = compare(f"one row whose position is known, {len(data):,} rows", {
            "arrow-rs, plaintext": lambda: rust.ask(f"{copy}\tssn\t#{next(rows)}"),
            "secure_bloom, encrypted, index": lambda: indexed.to_table(
                filter=pc.field("ssn") == next(values))}, plan.rounds)
    return [found, known]


def _far_away(plan: Plan, one: Path, wanted: str) -> tuple[Comparison, dict[str, int]]:
    """Look for a number that each of many files has, in a store where a request takes 30 ms."""
    folder = plan.folder / "files"
    folder.mkdir()
    for number in range(FILES):
        os.link(one, folder / f"{number}.parquet")
    bytes_read: dict[str, int] = {}

    def look_up(name: str) -> int:
        store = SlowStore()
        found = secure_bloom.read_table(str(folder), KMS, filters=[("ssn", "=", wanted)],
                                        filesystem=pa_fs.PyFileSystem(store))
        bytes_read[name] = store.bytes_read
        return found.num_rows

    def whole() -> int:
        with row_groups():
            return look_up(ROW_GROUPS)

    return compare(f"one row in each of {FILES} files in a store",
                   {ROW_GROUPS: whole, PAGES: lambda: look_up(PAGES)}, plan.rounds), bytes_read


def _median(ratios: list[float]) -> float:
    return sorted(ratios)[len(ratios) // 2]
