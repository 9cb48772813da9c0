"""An encrypted table of many columns with a filter on each, compared with pyarrow without filters.

Half of the columns have their own keys. secure_bloom's time includes an fsync of the file.
"""

from __future__ import annotations

import statistics

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

from benchmarks.compare import compare, table
from benchmarks.people import ArrowKms, keyring
from benchmarks.section import Plan, Section
from secure_bloom import EncryptionConfiguration, write_table

COLUMNS, ROWS, MOST_ROUNDS = 1_000, 100_000, 3
OURS, PEER = "secure_bloom, a filter on each column", "pyarrow, no filters"


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    ring = keyring(plan.folder / "keyring.json")
    rows = _table(plan.size(COLUMNS, 10), plan.size(ROWS, 1000))
    keys = {"pii": rows.column_names[::2]}
    factory = pe.CryptoFactory(lambda _: ArrowKms(ring))

    def theirs() -> None:
        properties = factory.file_encryption_properties(
            pe.KmsConnectionConfig(), pe.EncryptionConfiguration("footer", column_keys=keys))
        with pq.ParquetWriter(plan.folder / "file.parquet", rows.schema,
                              encryption_properties=properties) as writer:
            writer.write_table(rows)

    def ours(filters: bool) -> None:
        write_table(rows, plan.folder / "file.parquet", bloom_filters=filters,
                    encryption=EncryptionConfiguration("footer", keys), keys=ring)

    comparison = compare(
        f"{rows.num_columns:,} columns, {rows.num_rows:,} rows",
        {PEER: theirs, OURS: lambda: ours(True), "secure_bloom, no filters": lambda: ours(False)},
        min(plan.rounds, MOST_ROUNDS))
    cost = 1 / statistics.median(comparison.ratios(OURS))
    return Section(f"{table([comparison])}\n\n- {comparison.work}: filters on all columns take "
                   f"{cost:.2f} times as long as pyarrow's encrypted file without filters "
                   "(target 1.5).", comparison.to_json())


def _table(columns: int, rows: int) -> pa.Table:
    """Random integers and floating-point numbers, in turn."""
    random = np.random.default_rng(1)
    return pa.table({f"c{number:04}": random.random(rows) if number % 2
                     else random.integers(0, 2**40, rows) for number in range(columns)})
