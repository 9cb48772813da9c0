"""The cost of a first lookup in a new process, beyond importing ``pyarrow.parquet``.

Processes find the bytecode of an earlier one, as in an installed package.
"""

from __future__ import annotations

import os
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
""",
    "read_table, for a value that is not there": """
import secure_bloom
assert not len(secure_bloom.read_table("file.parquet", "keyring.json",
                                       filters=[("ssn", "=", "no number")]))
""",
    "read_table, for a value that is there": """
import secure_bloom
assert len(secure_bloom.read_table("file.parquet", "keyring.json",
                                   filters=[("ssn", "=", "{ssn}")]))
"""}
TIMED = """
import time
start = time.perf_counter()
import pyarrow.parquet
imported = time.perf_counter()
{work}
print(imported - start, time.perf_counter() - imported)
"""
TARGETS = (50, 60)  # ms, of the first works


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    rows = people(10_000)
    write_table(rows, plan.folder / "file.parquet", bloom_filters={"ssn": True},
                encryption=encryption(), kms=keyring(plan.folder / "keyring.json"))
    lines = ["| work | import pyarrow.parquet | added (min to max) | target |", "|---|---|---|---|"]
    data = {}
    for number, (name, work) in enumerate(WORKS.items()):
        work = work.replace("{ssn}", rows["ssn"][5000].as_py())
        _process(work, plan.folder)
        times = [_process(work, plan.folder) for _ in range(max(plan.rounds, 3))]
        imports, added = zip(*times, strict=True)
        target = f"{TARGETS[number]} ms" if number < len(TARGETS) else "none"
        lines.append(f"| {name} | {_milliseconds(imports)} | {_milliseconds(added)} "
                     f"({min(added) * 1000:.0f} to {max(added) * 1000:.0f}) | {target} |")
        data[name] = {"import": imports, "added": added}
    return Section("\n".join(lines), data)


def _process(work: str, folder: Path) -> tuple[float, float]:
    root = str(Path(__file__).parent.parent)
    code = f"import sys; sys.path.insert(0, {root!r})\n{TIMED.format(work=work)}"
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True,
                          cwd=folder, env=environment)
    imported, added = map(float, done.stdout.split())
    return imported, added


def _milliseconds(times) -> str:
    return f"{statistics.median(times) * 1000:.0f} ms"
