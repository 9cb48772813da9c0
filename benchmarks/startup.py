"""The cost of first use in a new process: of a lookup, and of ``write_table``.

A lookup is measured beyond importing ``pyarrow.parquet``. Processes find the bytecode of an earlier
one, as in an installed package. The first ``write_table`` of a process is compared with the second
one, with empty caches: what numba compiles is not there yet.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.people import encryption, keyring, people
from benchmarks.section import Plan, Section
from secure_bloom import write_table
from secure_bloom.sbbf.kernel_choice import VARIABLE

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
""",
    "read_table, for a value that is not there": """
import secure_bloom
assert not len(secure_bloom.read_table("file.parquet", "keyring.json",
                                       filters=[("ssn", "=", "no number")]))
""",
    "read_table, for a value that is there": """
import secure_bloom
assert len(secure_bloom.read_table("file.parquet", "keyring.json",
                                   filters=[("ssn", "=", "SSN")]))
""",
    "read_table of a folder of 10 files, for a value that is there": """
import secure_bloom
assert len(secure_bloom.read_table("folder", "keyring.json",
                                   filters=[("ssn", "=", "SSN")]))
"""}
TIMED = """
import time
start = time.perf_counter()
import pyarrow.parquet
imported = time.perf_counter()
{work}
print(imported - start, time.perf_counter() - imported)
"""
TARGETS = (50, 60, 60, 60)  # ms, of the first works

WRITES = """
import time
import pyarrow.parquet as pq
from secure_bloom import write_table
from secure_bloom.keys import Keyring
from benchmarks.people import encryption
table = pq.read_table("people.parquet")
for _ in range(3):
    start = time.perf_counter()
    write_table(table, "written.parquet", bloom_filters={{"ssn": True, "id": True}},
                encryption=encryption(), keys=Keyring("keyring.json"))
    print(time.perf_counter() - start)
"""
KERNELS = {"built": "", "numpy": "numpy", "numba": "numba"}
ROWS = 1_000_000
WRITE_TARGET = 1.3


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    ring = keyring(plan.folder / "keyring.json")
    rows = people(10_000)
    write_table(rows, plan.folder / "file.parquet", bloom_filters={"ssn": True},
                encryption=encryption(), keys=ring)
    (plan.folder / "folder").mkdir()
    for number in range(10):
        write_table(rows.slice(number * 1000, 1000), plan.folder / "folder" / f"{number}.parquet",
                    bloom_filters={"ssn": True}, encryption=encryption(), keys=ring)
    lookups, lookup_times = _lookups(plan, rows["ssn"][5000].as_py())
    writes, write_times = _writes(plan)
    return Section(f"{lookups}\n\n{writes}", {"lookups": lookup_times, "writes": write_times})


def _lookups(plan: Plan, ssn: str) -> tuple[str, dict]:
    lines = ["| work | import pyarrow.parquet | added (min to max) | target |", "|---|---|---|---|"]
    data = {}
    for number, (name, work) in enumerate(WORKS.items()):
        work = work.replace("SSN", ssn)
        _process(TIMED.format(work=work), plan.folder)
        times = [_process(TIMED.format(work=work), plan.folder)
                 for _ in range(max(plan.rounds, 3))]
        imports, added = zip(*times, strict=True)
        target = f"{TARGETS[number]} ms" if number < len(TARGETS) else "none"
        lines.append(f"| {name} | {_milliseconds(imports)} | {_milliseconds(added)} "
                     f"({min(added) * 1000:.0f} to {max(added) * 1000:.0f}) | {target} |")
        data[name] = {"import": imports, "added": added}
    return "\n".join(lines), data


def _writes(plan: Plan) -> tuple[str, dict]:
    """Kernels take turns; each process starts with an empty cache of numba."""
    import pyarrow.parquet as pq
    rows = plan.size(ROWS, 5000)
    pq.write_table(people(rows), plan.folder / "people.parquet")
    times: dict[str, list] = {name: [] for name in KERNELS}
    for _ in range(plan.rounds):
        for name, value in KERNELS.items():
            with tempfile.TemporaryDirectory() as cache:
                times[name].append(_process(WRITES.format(), plan.folder, {
                    VARIABLE: value, "NUMBA_CACHE_DIR": cache}))
    lines = [f"| first `write_table` of a process, {rows:,} rows, 2 filters | first | third "
             "| first relative to third (min to max) | target |", "|---|---|---|---|---|"]
    for name, rounds in times.items():
        first, _, third = zip(*rounds, strict=True)
        ratios = [a / b for a, b in zip(first, third, strict=True)]
        lines.append(f"| {name} | {_milliseconds(first)} | {_milliseconds(third)} "
                     f"| {statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f}) "
                     f"| {WRITE_TARGET if name == 'built' else 'none'} |")
    return "\n".join(lines), times


def _process(code: str, folder: Path, environment: dict[str, str] | None = None) \
        -> tuple[float, ...]:
    """Run a program in a new process; returns the numbers that it prints."""
    root = str(Path(__file__).parent.parent)
    inherited = {name: value for name, value in os.environ.items()
                 if name != "PYTHONDONTWRITEBYTECODE"}
    bytecode = {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {root!r})\n{code}"], check=True,
        capture_output=True, text=True, cwd=folder,
        env=inherited | bytecode | (environment or {}))
    return tuple(map(float, done.stdout.split()))


def _milliseconds(times) -> str:
    return f"{statistics.median(times) * 1000:.0f} ms"
