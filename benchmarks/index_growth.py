"""How the index of a table grows with the files of the table, up to a million.

The table is simulated, see :mod:`benchmarks.simulated_table`: its index is real, its data files are
not there. Only jobs of secure_bloom write to it, so lookups need not list it. Requests to a store
take no time, but are counted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pa_fs

from benchmarks.compare import median_time
from benchmarks.memory import memory
from benchmarks.people import keyring
from benchmarks.section import Plan, Section
from benchmarks.simulated_table import COLUMN, SimulatedStore, SimulatedTable, known_values
from secure_bloom.arrow.row_filter import RowFilter
from secure_bloom.datasets.partitions import PossiblePartitions
from secure_bloom.index import Index
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.inspection import inspect_index
from secure_bloom.keys import Keyring
from secure_bloom.keys.cache import cached
from secure_bloom.pruning.predicates import condition_of

MOST, STEPS, PAIRS = 1_000_000, 5, 100  # files, sizes, pairs for each file
DAYS = 100
LOOKUPS, THREADS = 20_000, (1, 8)
_ROOT = Path(__file__).parent.parent
_OPENING = """
import json, sys, time
import secure_bloom.index.index, pyarrow.fs
from benchmarks.memory import memory
before, start = memory("VmRSS"), time.perf_counter()
index = secure_bloom.index.Index.open(sys.argv[1], sys.argv[2])
index.lookup("ssn", sys.argv[3])
print(json.dumps([time.perf_counter() - start, memory("VmHWM") - before]))
"""
_WORKING = """
import sys
from benchmarks.index_growth import work
work(sys.argv[1], sys.argv[2], int(sys.argv[3]))
"""


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    most = plan.size(MOST, 1000)
    sizes = sorted({max(100, most // 10**step) for step in range(STEPS)})
    ring = keyring(plan.folder / "keyring.json")
    found = {size: _measured(plan, size, ring) for size in sizes}
    found[sizes[-1]] |= _listings(plan, sizes[-1], ring)
    return Section(f"{_table(found)}\n\n{_text(found)}", found,
                   {"index-growth.svg": partial(_draw, found)})


# --- measurements --------------------------------------------------------------------------------

def _measured(plan: Plan, files: int, ring: Keyring) -> dict[str, float]:
    folder, asked = plan.folder / f"{files} files", cycle(values := known_values())
    table = SimulatedTable.make(folder, files, max(len(values), PAIRS * files), ring)
    index = Index.open(folder, ring)
    rounds = plan.size(500, 20)
    found = {"lookup": median_time(lambda: index.lookup(COLUMN, next(asked)), rounds),
             "10,000 values": median_time(lambda: index.lookup(COLUMN, values), 3)}
    before, number = memory("VmRSS"), plan.size(LOOKUPS, 16)
    for threads in THREADS:
        found[f"{threads} threads"] = _in_threads(index, threads, number, values)
    found["growth"] = memory("VmRSS") - before
    found |= _requests(table, ring, values)
    found |= _processes(plan, folder, files)
    return found


def _in_threads(index: Index, threads: int, number: int, values: list[str]) -> float:
    """Return the lookups a second of an open index."""
    asked = cycle(values)
    start = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(-(-number // 1000)):  # so that few of them wait
            list(pool.map(lambda _: index.lookup(COLUMN, next(asked)), range(min(number, 1000))))
    return -(-number // 1000) * min(number, 1000) / (time.perf_counter() - start)


def _requests(table: SimulatedTable, ring: Keyring, values: list[str]) -> dict[str, float]:
    """Count what lookups in a store read, after the first one."""
    store = SimulatedStore(table)
    index = Index.open(str(table.folder), ring, filesystem=pa_fs.PyFileSystem(store))
    index.lookup(COLUMN, values[0])
    store.bytes_read = store.requests = 0
    some = values[1:101]
    for value in some:
        index.lookup(COLUMN, value)
    return {"bytes": store.bytes_read / len(some), "requests": store.requests / len(some)}


def _processes(plan: Plan, folder: Path, files: int) -> dict[str, float]:
    """Measure a first lookup, and other work, in processes of their own."""
    keys = str(plan.folder / "keyring.json")
    opened = [_output(_OPENING, str(folder), keys, value) for value in known_values()[:4]]
    seconds, peak = map(min, zip(*opened[1:], strict=True))  # the first one makes bytecode
    others = _output(_WORKING, str(folder), keys, str(files))
    return {"open": seconds, "open memory": peak, **others}


def _output(code: str, *arguments: str) -> Any:
    done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=_ROOT, check=True,
                          stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def work(folder: str, keys: str, files: int) -> None:
    """Print as JSON what work on all files takes that lists them, beyond the listing."""
    table, ring = SimulatedTable(Path(folder), files), Keyring(keys)
    store = SimulatedStore(table)
    filesystem = pa_fs.PyFileSystem(store)
    index, found = Index.open(folder, ring, filesystem=filesystem), {}
    found["listing"], found["listing memory"] = _taken(lambda: index._table.listing())
    column = IndexFolder(filesystem, folder, COLUMN)
    for name, task in {
            "vacuum": index.vacuum, "verify": lambda: index.verify(0),
            "inspect": lambda: inspect_index(column, cached(ring), index._table.listing()),
            "update": lambda: _updated(store, index)}.items():
        found[name], found[f"{name} memory"] = _taken(task)
    print(json.dumps(found))


def _updated(store: SimulatedStore, index: Index) -> None:
    store.num_files += 1
    result = index.update()
    assert result.indexed == 1 and result.ok, result


def _taken(task: Any) -> tuple[float, int]:
    """Return the seconds that a task takes, and by how much memory grows meanwhile."""
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is that of what follows, proc(5)
    start = time.perf_counter()
    task()
    return time.perf_counter() - start, memory("VmHWM") - before


def _listings(plan: Plan, files: int, ring: Keyring) -> dict[str, float]:
    """List a store whose requests take as long as those of other benchmarks.

    All its partitions, and those that a filter leaves.
    """
    from benchmarks.slow_store import REQUEST
    from secure_bloom.storage.visibility import visible_files
    folder = plan.folder / "partitions"
    table = SimulatedTable.make(folder, files, len(known_values()), ring,
                                days=min(DAYS, files // 10))
    store = SimulatedStore(table, REQUEST if plan.scale >= 1 else 0.0)
    filesystem, found = pa_fs.PyFileSystem(store), {}
    schema = pa.schema([("day", pa.string()), (COLUMN, pa.string())])
    one = RowFilter(condition_of([("day", "==", "0007"), (COLUMN, "==", "0")]), schema)
    for name, choice, expected in (("partitions", None, files),
                                   ("one partition", PossiblePartitions(one, schema),
                                    len(range(7, files, table.days)))):
        store.requests, start = 0, time.perf_counter()
        assert len(visible_files(filesystem, str(folder), partitions=choice)) == expected
        found |= {name: time.perf_counter() - start, f"requests of {name}": store.requests}
    return found


# --- text and chart ------------------------------------------------------------------------------

_WORKS = {  # key: name, target at the largest size, unit
    "lookup": ("one lookup", "5 ms", 1e3, "ms"),
    "bytes": ("bytes that a lookup reads from a store", "40 KB", 1e-3, "KB"),
    "requests": ("its requests to a store", "", 1, ""),
    "10,000 values": ("10,000 values in one call, each", "2 us", 1e2, "us"),
    "1 threads": ("lookups a second", "", 1, ""),
    "8 threads": ("the same, 8 threads", "5,000", 1, ""),
    "open": ("the first lookup of a process, beyond imports", "150 ms", 1e3, "ms"),
    "open memory": ("its memory", "100 MB", 1e-6, "MB"),
    "listing": ("listing of a store whose requests take no time", "", 1e3, "ms"),
    "update": ("update after one new file, with its listings", "0.3 s and the listing", 1e3, "ms"),
    "vacuum": ("vacuum", "", 1e3, "ms"),
    "inspect": ("inspect, with the listing", "", 1e3, "ms"),
    "verify": ("verify, with the listing", "", 1e3, "ms"),
    **{f"{name} memory": (f"memory of {name}", "", 1e-6, "MB") for name in
       ("listing", "update", "vacuum", "inspect", "verify")}}


def _table(found: dict[int, dict[str, float]]) -> str:
    lines = [f"| work, files: | {' | '.join(f'{size:,}' for size in found)} | target |",
             "|---" * (len(found) + 2) + "|"]
    for key, (name, target, factor, unit) in _WORKS.items():
        values = " | ".join(f"{one[key] * factor:,.4g} {unit}".strip() for one in found.values())
        lines.append(f"| {name} | {values} | {target} |")
    return "\n".join(lines)


def _text(found: dict[int, dict[str, float]]) -> str:
    size, largest = list(found.items())[-1]
    lines = [f"memory grows by {max(one['growth'] for one in found.values()) / 1e6:.1f} MB at most "
             f"in {len(THREADS)} times {LOOKUPS:,} lookups",
             f"listing {size:,} files in partitions of a store: {largest['partitions']:.1f} s, "
             f"{largest['requests of partitions']:,} requests",
             f"listing only one of these {DAYS} partitions, for a filter and a schema: "
             f"{largest['one partition']:.2f} s, "
             f"{largest['requests of one partition']:,} requests"]
    return "\n".join(f"- {line}." for line in lines)


def _draw(found: dict[int, dict[str, float]], figure: Any) -> None:
    figure.set_size_inches(6, 4)
    axes = figure.add_subplot()
    for key, label in {"lookup": "a lookup", "open": "the first lookup of a process",
                       "listing": "listing", "update": "update after one new file"}.items():
        axes.loglog(list(found), [one[key] for one in found.values()], "o-", label=label)
    axes.set_xlabel("files")
    axes.set_ylabel("seconds")
    axes.legend()
    figure.tight_layout()
