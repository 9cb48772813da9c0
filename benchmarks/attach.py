"""Attach a filter for one of ten columns, compared with rewriting the whole file.

pyarrow and Spark cannot add a filter to an existing file: they read the file completely and write
it with the filter. The file is not encrypted, because pyarrow cannot write filters to encrypted
files. ``attach`` includes the fsync of file and folder that makes it safe against a power cut,
which the others omit; it rebuilds the filter each time (``replace``).
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from benchmarks.compare import Comparison, compare, table
from benchmarks.local_spark import session
from benchmarks.people import ten_columns
from benchmarks.section import Plan, Section
from secure_bloom import BloomFilterOptions, attach
from secure_bloom.maintain.build import build_filter
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.verify.measure import ColumnHashes
from tests.counting import CountingHandler

ROWS, ROW_GROUP_ROWS, COLUMN = 8_000_000, 1_000_000, "ssn"
OURS = "secure_bloom, attach"
FULL_SPEED = {"pyarrow": 5, "Spark": 10}  #: targets: how many times faster attach must be


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    path = plan.folder / "file.parquet"
    rows = _write(path, plan.size(ROWS, 1000))
    work = f"one filter for a file of 10 columns, {rows:,} rows, {path.stat().st_size:,} bytes"
    attach(path, {COLUMN: True})
    comparisons = [compare(work, {"pyarrow, whole file": lambda: _by_pyarrow(path), OURS:
                                  lambda: _attached(path)}, plan.rounds)]
    spark = session()
    try:
        comparisons.append(compare(work, {"Spark, whole file": _by_spark(spark, path), OURS:
                                          lambda: _attached(path)}, plan.rounds))
    finally:
        spark.stop()
    counted = _bytes_read(path)
    text = "\n".join([table(comparisons), "", *map(_target, comparisons), _counted(counted)])
    return Section(text, {"comparisons": [one.to_json() for one in comparisons], "bytes": counted})


def _write(path: Path, rows: int) -> int:
    random = np.random.default_rng(0)
    with pq.ParquetWriter(path, ten_columns(1, random).schema) as writer:
        for start in range(0, rows, ROW_GROUP_ROWS):
            writer.write_table(ten_columns(min(ROW_GROUP_ROWS, rows - start), random))
    return rows


def _attached(path: Path) -> None:
    result = attach(path, {COLUMN: True}, replace=True)
    if len(result.changed) != 1:
        raise RuntimeError(f"nothing was attached: {result}")


def _by_pyarrow(path: Path) -> None:
    """Rewrite the file row group by row group, and replace the old file."""
    target = path.with_suffix(".new")
    source = pq.ParquetFile(path)
    with pq.ParquetWriter(target, source.schema_arrow,
                          bloom_filter_options={COLUMN: True}) as writer:
        for number in range(source.num_row_groups):
            group = source.read_row_group(number)
            writer.write_table(group, row_group_size=group.num_rows)
    target.unlink()


def _by_spark(spark, path: Path) -> Callable[[], None]:
    target = path.with_suffix(".spark")

    def write() -> None:
        shutil.rmtree(target, ignore_errors=True)
        writer = spark.read.parquet(str(path)).write
        writer.option(f"parquet.bloom.filter.enabled#{COLUMN}", "true").parquet(str(target))

    return write


def _target(comparison: Comparison) -> str:
    ratio = statistics.median(comparison.ratios(OURS))
    peer = comparison.peer.split(",")[0]
    return f"- {ratio:.1f} times as fast as {peer} (target {FULL_SPEED[peer]})."


def _bytes_read(path: Path) -> dict[str, int]:
    """The bytes of the column and the footer, and the bytes read to build the filters."""
    handler = CountingHandler()
    with OpenFile(str(path), filesystem=pa_fs.PyFileSystem(handler)) as file:
        footer, hashes = file.footer, ColumnHashes(file)
        [ordinal] = [column.ordinal for column in file.columns if column.path == COLUMN]
        chunks = [chunks[ordinal] for chunks in footer.row_groups]
        for number, chunk in enumerate(chunks):
            build_filter(hashes, chunk, footer.row_group_num_rows(number), BloomFilterOptions())
        size = path.stat().st_size
        return {"column": sum(chunk.pages[1] for chunk in chunks), "footer": size - footer.start,
                "read": handler.bytes_read[str(path)], "file": size}


def _counted(counted: dict[str, int]) -> str:
    return (f"- Bytes read to build the filters: {counted['read']:,}; the column has "
            f"{counted['column']:,}, the footer {counted['footer']:,}, the file "
            f"{counted['file']:,}. (pyarrow reads 64 KiB to find the footer.) The kernel copies "
            "the rest.")
