"""Open, change and write a wide footer, compared with pyarrow: 100 columns x 100 row groups.

Closing pyarrow's writer writes the footer and frees its memory; writing the file includes that,
and 10 rows in each row group. The kernels are loaded already.
"""

from __future__ import annotations

import gc
import io
import statistics
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.compare import compare, table
from benchmarks.section import Plan, Section
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.tail import split_tail
from secure_bloom.sbbf.kernel_choice import chosen

COLUMNS, ROW_GROUPS, ROWS = 100, 100, 10
OFFSET, LENGTH = 4, 1024


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    chosen()
    groups = plan.size(ROW_GROUPS, 2)
    rows = pa.table({f"column_{i:03}": np.arange(groups * ROWS) + i for i in range(COLUMNS)})
    data = _write(rows).getvalue()
    _, content, magic = split_tail(data)

    def patch(every: int) -> None:
        footer = Footer(content, magic)
        for number in range(groups):
            footer.set_bloom_filters(number, dict.fromkeys(range(0, COLUMNS, every),
                                                           (OFFSET, LENGTH)))
        footer.to_bytes()

    comparison = compare(f"{COLUMNS * groups:,} column chunks, {len(content):,} bytes", {
        "pyarrow writes the file": lambda: _write(rows),
        "secure_bloom, open": lambda: Footer(content, magic),
        "secure_bloom, 2 filters per row group": lambda: patch(COLUMNS // 2),
        "secure_bloom, 100 filters per row group": lambda: patch(1),
        "pyarrow opens it": lambda: pq.ParquetFile(io.BytesIO(data)),
    }, plan.rounds)
    pairs = [(_closing_time(rows), _seconds(lambda: patch(1))) for _ in range(plan.rounds)]
    ratio = statistics.median(ours / closing for closing, ours in pairs)
    closing = statistics.median(closing for closing, _ in pairs)
    return Section(f"{table([comparison])}\n\n- Closing pyarrow's writer, which writes this footer,"
                   f" takes {closing:.3f} s; opening it, changing every column chunk and writing"
                   f" it again takes {ratio:.1f} times as long (target 2).",
                   {"comparison": comparison.to_json(), "closing_and_ours_seconds": pairs})


def _write(rows: pa.Table) -> io.BytesIO:
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=ROWS)
    return sink


def _closing_time(rows: pa.Table) -> float:
    writer = pq.ParquetWriter(io.BytesIO(), rows.schema)
    writer.write_table(rows, ROWS)
    return _seconds(writer.close)


def _seconds(work: Callable[[], object]) -> float:
    gc.collect()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
