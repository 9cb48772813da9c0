"""``write_table`` with encrypted filters, compared with pyarrow, which cannot write them.

The first contestant is pyarrow writing an encrypted file without filters. pyarrow can write
plaintext filters to plaintext files; their cost is shown for comparison. ``to disk`` includes the
fsync of file and folder that makes secure_bloom's file safe against a power cut, which pyarrow
omits; ``to memory`` uses no disk.
"""

from __future__ import annotations

import statistics
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.compare import Comparison, compare, table
from benchmarks.people import FILTERS, arrow_properties, encryption, keyring, people
from benchmarks.section import Plan, Section
from secure_bloom import write_table

ROWS = 4_000_000
OURS, PEER = "secure_bloom, 2 filters", "pyarrow, no filters"


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    rows = people(plan.size(ROWS, 1000))
    ring = keyring(plan.folder / "keyring.json")
    comparisons = [
        compare(f"{name}, {rows.num_rows:,} rows",
                _contestants(rows, ring, target), plan.rounds)
        for name, target in (("to disk", lambda: plan.folder / "file.parquet"),
                             ("to memory", pa.BufferOutputStream))]
    cost = "\n".join(f"- {c.work}: encrypted with 2 filters takes {_cost(c):.2f} times as long as "
                     f"pyarrow's encrypted file without filters (target 1.10)."
                     for c in comparisons)
    return Section(f"{table(comparisons)}\n\n{cost}", [c.to_json() for c in comparisons])


def _contestants(rows: pa.Table, ring, target) -> dict:
    ours = partial(write_table, rows, encryption=encryption(), keys=ring)

    def theirs(**options) -> None:
        with pq.ParquetWriter(target(), rows.schema, **options) as writer:
            writer.write_table(rows)

    return {PEER: lambda: theirs(encryption_properties=arrow_properties(ring)),
            OURS: lambda: ours(target(), bloom_filters=FILTERS),
            "secure_bloom, no filters": lambda: ours(target(), bloom_filters={}),
            "pyarrow, plain, no filters": theirs,
            "pyarrow, plain, 2 plain filters": lambda: theirs(bloom_filter_options=FILTERS)}


def _cost(comparison: Comparison) -> float:
    return 1 / statistics.median(comparison.ratios(OURS))
