"""What encryption and a filter cost in time, size and KMS calls, counted up to a table of 1 TB.

The peer is pyarrow, which writes and reads the same rows in plaintext, without filters. The table
has ten columns; two of them are encrypted with their own key, and one has a filter. Times are CPU
times of the process, which are what a machine costs, and depend less on other work there.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.compare import Comparison, compare
from benchmarks.people import MASTER_KEYS, SENSITIVE, encryption, keyring, ten_columns
from benchmarks.section import Plan, Section
from secure_bloom import (
    EncryptionConfiguration,
    ParquetFile,
    read_table,
    write_dataset,
    write_table,
)
from secure_bloom.keys import InMemoryKms, KmsClient

ROWS, COLUMN = 4_000_000, "ssn"
TERABYTE = 10**12
PEER, OURS = "pyarrow, plaintext", "secure_bloom, encrypted"
FILES = 5  #: of the data set whose KMS calls are counted


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    rows = ten_columns(plan.size(ROWS, 1000), np.random.default_rng(0))
    plain, ours = plan.folder / "plain.parquet", plan.folder / "encrypted.parquet"
    ring = keyring(plan.folder / "keyring.json")

    def write() -> None:
        write_table(rows, ours, encryption=encryption(), keys=ring, bloom_filters=[COLUMN])

    written = compare("write", {PEER: lambda: pq.write_table(rows, plain), OURS: write},
                      plan.rounds, clock=time.process_time)
    read = compare("read", {PEER: lambda: pq.read_table(plain),
                            OURS: lambda: read_table(ours, ring)},
                   plan.rounds, clock=time.process_time)
    sizes = {PEER: plain.stat().st_size, OURS: ours.stat().st_size}
    filters = _filter_bytes(ours, ring)
    pairs = _index_bytes(plan.folder, rows.slice(0, rows.num_rows // FILES))
    calls = {double: _calls(plan.folder / f"calls{double}", rows.slice(0, 1000), double)
             for double in (True, False)}
    data = {"comparisons": [written.to_json(), read.to_json()], "sizes": sizes,
            "filters": filters, "index": pairs, "calls": calls}
    return Section(_text(rows.num_rows, written, read, sizes, filters, pairs, calls), data)


def _text(rows: int, written: Comparison, read: Comparison, sizes: dict[str, int], filters: int,
          index_bytes: float, calls: dict[bool, tuple[int, int]]) -> str:
    terabytes = TERABYTE / sizes[PEER]  # how often the measured file is in 1 TB

    def hours(comparison: Comparison, name: str) -> str:
        return f"{statistics.median(comparison.seconds[name]) * terabytes / 3600:.1f} CPU hours"

    def more(comparison: Comparison) -> str:
        return f"{100 / statistics.median(comparison.ratios(OURS)) - 100:+.0f} %"

    without = sizes[OURS] - filters
    lines = [
        ("write 1 TB", hours(written, PEER), hours(written, OURS), more(written)),
        ("read 1 TB", hours(read, PEER), hours(read, OURS), more(read)),
        ("size, encryption alone", "1,000 GB", f"{without * terabytes / 1e9:,.1f} GB",
         f"{100 * without / sizes[PEER] - 100:+.2f} %"),
        ("size, with a filter on one column", "1,000 GB",
         f"{sizes[OURS] * terabytes / 1e9:,.0f} GB",
         f"{100 * sizes[OURS] / sizes[PEER] - 100:+.1f} %"),
        ("size, with an index of that column", "1,000 GB",
         f"{(sizes[OURS] + index_bytes * rows) * terabytes / 1e9:,.0f} GB",
         f"{100 * (sizes[OURS] + index_bytes * rows) / sizes[PEER] - 100:+.1f} %")]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    (wraps, unwraps), (singly, reading) = calls[True], calls[False]
    return (f"| | {PEER} | {OURS} | difference |\n|---|---|---|---|\n{table}\n\n"
            f"KMS calls, counted with {FILES} files and 2 master keys: {wraps} to write all files "
            f"in one job, and {unwraps} to read them in one process. With single wrapping, "
            f"{singly} and {reading}.")


def _filter_bytes(path: Path, keys: KmsClient) -> int:
    with ParquetFile(path, keys) as file:
        return sum(one.length or 0 for one in file.bloom_filters)


def _index_bytes(folder: Path, rows: pa.Table) -> float:
    """Return the bytes of the index for each row, all of which have different values."""
    ring = keyring(folder / "index.json")
    table = folder / "indexed"
    summary = write_dataset(rows, table, encryption=encryption(), keys=ring, index_columns=COLUMN)
    stored = sum(path.stat().st_size for path in table.rglob("*.seg"))
    return stored / summary.rows


class _Counting(InMemoryKms):
    """Counts the calls of a KMS."""

    calls = 0

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """Wrap and count."""
        self.calls += 1
        return super().wrap_key(key_bytes, master_key_identifier)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """Unwrap and count."""
        self.calls += 1
        return super().unwrap_key(wrapped_key, master_key_identifier)


def _calls(folder: Path, rows: pa.Table, double_wrapping: bool) -> tuple[int, int]:
    """Return how many calls it takes to write and to read some files."""
    kms = _Counting(MASTER_KEYS)
    configuration = EncryptionConfiguration("footer", {"pii": SENSITIVE},
                                            double_wrapping=double_wrapping)
    write_dataset(rows, folder, keys=kms, encryption=configuration,
                  max_rows_per_file=rows.num_rows // FILES)
    written, kms.calls = kms.calls, 0
    read_table(folder, kms)
    return written, kms.calls
