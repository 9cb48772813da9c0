"""The cost of a first lookup in a new process, beyond importing ``pyarrow.parquet``."""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.people import encryption, keyring, people
from benchmarks.section import Plan, Section
from secure_bloom import write_table

WORKS = {
    "check a value in a filter": """
import secure_bloom
secure_bloom.SplitBlockBloomFilter(1024).check(5)
""",
    "open an encrypted file, read a filter, check a value": """
import secure_bloom
from secure_bloom.keys import Keyring
with secure_bloom.ParquetFile("file.parquet", Keyring("keyring.json")) as file:
    file.read_bloom_filter(0, "ssn").check("123456789")
"""}
TIMED = """
import time
start = time.perf_counter()
import pyarrow.parquet
imported = time.perf_counter()
{work}
print(imported - start, time.perf_counter() - imported)
"""
TARGET = 0.05


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    write_table(people(10_000), plan.folder / "file.parquet", bloom_filters={"ssn": True},
                encryption=encryption(), kms=keyring(plan.folder / "keyring.json"))
    lines = ["| work | import pyarrow.parquet | added (min to max) | target |", "|---|---|---|---|"]
    data = {}
    for name, work in WORKS.items():
        _process(work, plan.folder)
        times = [_process(work, plan.folder) for _ in range(max(plan.rounds, 3))]
        imports, added = zip(*times, strict=True)
        target = f"{TARGET * 1000:.0f} ms" if name == next(iter(WORKS)) else "none"
        lines.append(f"| {name} | {_milliseconds(imports)} | {_milliseconds(added)} "
                     f"({min(added) * 1000:.0f} to {max(added) * 1000:.0f}) | {target} |")
        data[name] = {"import": imports, "added": added}
    return Section("\n".join(lines), data)


def _process(work: str, folder: Path) -> tuple[float, float]:
    root = str(Path(__file__).parent.parent)
    code = f"import sys; sys.path.insert(0, {root!r})\n{TIMED.format(work=work)}"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True,
                          cwd=folder)
    imported, added = map(float, done.stdout.split())
    return imported, added


def _milliseconds(times) -> str:
    return f"{statistics.median(times) * 1000:.0f} ms"
