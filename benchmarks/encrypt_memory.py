"""Peak memory of encrypting large and unusual files, beside what the process had before.

Each file is encrypted in a process of its own, which has encrypted a small one before. Row groups
of the large files are 128 MB of random bytes in two columns: what matters is their size.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import secure_bloom
from benchmarks.encrypt import ENCRYPTION, KMS
from benchmarks.section import Plan, Section
from tests.memory import Peak

COLUMNS = 10_000
PAGES, PAGES_OF_CHUNK = 1_000_000, 25_000  # at most 32,767 fit into an encrypted column chunk
SIZES = (1, 4, 10)  # GB; the last two need --large
_GROUP, _VALUE = 128 * 10**6, 1000  # bytes


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    columns = plan.size(COLUMNS, 10)
    pages = plan.size(PAGES_OF_CHUNK, 10)
    files: dict[str, Callable[[Path], None]] = {
        f"{columns:,} columns, 100 rows": partial(_columns, columns),
        f"{pages * (PAGES // PAGES_OF_CHUNK):,} pages of one row": partial(_pages, pages)}
    for size in SIZES if plan.large else SIZES[:1]:
        files[f"{size} GB, in row groups of {_GROUP // 10**6} MB"] = \
            partial(_large, plan.size(size * 10**9))
    found = {name: _measured(write, plan.folder) for name, write in files.items()}
    lines = ["| file | bytes | peak memory | CPU time |", "|---|---|---|---|"]
    lines += [f"| {name} | {one['bytes']:,} | {one['peak'] / 1e6:.0f} MB | {one['seconds']:.1f} s |"
              for name, one in found.items()]
    return Section("\n".join(lines), found)


def _measured(write: Callable[[Path], None], folder: Path) -> dict:
    path = folder / "a.parquet"
    write(path)
    code = f"from benchmarks.encrypt_memory import measure; measure({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          cwd=Path(__file__).parent.parent)
    found = json.loads(done.stdout) | {"bytes": path.stat().st_size}
    path.unlink()
    return found


def measure(path: str) -> None:
    """Encrypt a file in its place, and print the peak memory and the CPU time as JSON."""
    small = Path(path).with_name("small.parquet")
    pq.write_table(pa.table({"a": [1, 2]}), small, write_page_index=True)
    _encrypt(small)  # imports all that is needed
    peak, start = Peak(), time.process_time()
    _encrypt(Path(path))
    print(json.dumps({"peak": peak.bytes(), "seconds": time.process_time() - start}))


def _encrypt(path: Path) -> None:
    if not secure_bloom.encrypt(path, KMS, encryption=ENCRYPTION).changed:
        raise RuntimeError(f"nothing was encrypted: {path}")


def _columns(number: int, path: Path) -> None:
    rows = {f"c{column}": np.arange(100) + column for column in range(number)}
    pq.write_table(pa.table(rows), path, write_page_index=True)


def _pages(number: int, path: Path) -> None:
    rows = {f"c{column}": np.arange(number) for column in range(PAGES // PAGES_OF_CHUNK)}
    pq.write_table(pa.table(rows), path, write_page_index=True, use_dictionary=False,
                   data_page_size=1, write_batch_size=1, max_rows_per_page=1)


def _large(size: int, path: Path) -> None:
    of_column = max(1, min(size, _GROUP) // 2 // _VALUE) * _VALUE
    column = np.frombuffer(np.random.default_rng(1).bytes(of_column), f"S{_VALUE}")
    rows = pa.table(dict.fromkeys("ab", pa.array(column, pa.binary(_VALUE))))
    with pq.ParquetWriter(path, rows.schema, write_page_index=True, use_dictionary=False,
                          compression="none") as writer:
        for _ in range(-(-size // _GROUP)):
            writer.write_table(rows)
