"""The data-set index: lookups in many files with it and without it, and what it costs.

``read_table`` looks one social security number up, a different one in each round, in a folder of
encrypted files; pyarrow decrypts and filters all rows that statistics leave. The store is
simulated: each request to the local files takes 30 ms, and bytes arrive at 100 MB/s. Probes are
lookups in the index alone, of segments with random values.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs

import secure_bloom
from benchmarks.compare import Comparison, compare, median_time, table
from benchmarks.lookup import scan, write_files
from benchmarks.memory import memory
from benchmarks.people import FILTERS, encryption, keyring, people
from benchmarks.section import Plan, Section
from benchmarks.slow_store import SlowStore
from secure_bloom.index import Index, geometry
from secure_bloom.index.building import SegmentBuilder
from secure_bloom.index.column_index import ColumnIndex
from secure_bloom.index.file_entry import FileEntry
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.manifest import Body, Manifest
from secure_bloom.index.merging import merge
from secure_bloom.index.publishing import publish
from secure_bloom.keys import Keyring
from secure_bloom.keys.cache import cached
from secure_bloom.sbbf.column_type import ColumnType

FILES, ROWS, STORED = 10_000, 1_000, 1_000
SEGMENT_PAIRS = 10_000_000
WRITTEN = 4_000_000  # rows
PARTS = 8
GROUP = 40_000  # pairs of a synthetic row group
THREADS = (1, 2, 4)
BUDGET = 128 * 1024 * 1024
_HASHED = ColumnType("INT64", 0, pa.int64())


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    files, rows = plan.size(FILES, 4), plan.size(ROWS, 500)
    segments = _segments(plan)  # first, as later parts need more memory
    local = plan.folder / "local"
    local.mkdir()
    values = write_files(local / "files", files, rows, keyring(local / "keyring.json"))
    ring = Keyring(local / "keyring.json")
    time.sleep(2)  # files that are younger are not indexed yet
    of_small = _building(local / "files", ring) / (files * rows)
    random.Random(1).shuffle(values)
    comparisons = [_local(local, ring, values, plan.rounds), _stored(plan, ring)]
    of_large = _building(_written(plan, ring), ring) / plan.size(WRITTEN, 1000)
    figures = {"build": {"small files": of_small, "large files": of_large},
               "local": _figures(local, ring, values), "segments": segments,
               "growth": _growth(plan, local, ring, values, comparisons[0])}
    return Section(f"{table(comparisons)}\n\n{_text(comparisons, figures)}",
                   {"times": [one.to_json() for one in comparisons], "figures": figures},
                   {"index.svg": partial(_draw, figures["growth"])})


# --- lookups -------------------------------------------------------------------------------------

WITHOUT, WITH, PEER = "without the index", "with the index", "pyarrow, scan"


def _local(folder: Path, ring: Keyring, values: list[str], rounds: int) -> Comparison:
    asked = cycle(values)
    return compare(f"{len(values):,} local files", {
        PEER: lambda: scan(folder, next(asked)),
        WITHOUT: lambda: _found(folder / "files", ring, next(asked), "off"),
        WITH: lambda: _found(folder / "files", ring, next(asked), "require")}, rounds)


def _stored(plan: Plan, ring: Keyring) -> Comparison:
    """Look up in a simulated store."""
    files, folder = plan.size(STORED, 3), plan.folder / "stored"
    shutil.copy(plan.folder / "local" / "keyring.json", _made(folder) / "keyring.json")
    values = write_files(folder / "files", files, plan.size(ROWS, 500), ring)
    time.sleep(2)
    store, asked = pa_fs.PyFileSystem(SlowStore()), cycle(values)
    built = secure_bloom.index.build(str(folder / "files"), "ssn", ring, filesystem=store)
    assert not built.uncovered and not built.failed, built
    return compare(f"{files:,} files in a simulated store", {
        name: lambda index=index: _found(folder / "files", ring, next(asked), index, store)
        for name, index in ((WITHOUT, "off"), (WITH, "require"))}, max(1, min(3, plan.rounds)))


def _written(plan: Plan, ring: Keyring) -> Path:
    """Write large files, of which an index is built."""
    rows, folder = people(plan.size(WRITTEN, 1000)), plan.folder / "written"
    secure_bloom.write_dataset(rows, folder, bloom_filters=FILTERS, encryption=encryption(),
                               keys=ring)
    return folder


def _building(folder: Path, ring: Keyring) -> float:
    """Build an index; return its seconds of CPU time."""
    start = time.process_time()
    result = secure_bloom.index.build(folder, "ssn", ring)
    seconds = time.process_time() - start
    assert not result.uncovered and not result.failed, result  # nothing was left out
    return seconds


def _look_up(folder: Path, ring: Keyring, values: list[str], index: Any) -> None:
    filters = [("ssn", "=", random.choice(values))]
    secure_bloom.read_table(folder, ring, filters=filters, index=index)


def _found(folder: Path, ring: Keyring, value: str, index: Any, store: Any = None) -> None:
    rows = secure_bloom.read_table(str(folder), ring, filters=[("ssn", "=", value)], index=index,
                                   filesystem=store)
    if not rows.num_rows:
        raise AssertionError("the number was not found")


def _figures(folder: Path, ring: Keyring, values: list[str]) -> dict[str, float]:
    """Measure parts of a lookup, an update by one file, and a new process; in seconds."""
    index = Index.open(folder / "files", ring)
    opened, asked = index.column("ssn"), cycle(values)
    found = {"probe": median_time(lambda: opened.find(next(asked)), 200),
             "lookup": median_time(lambda: index.lookup("ssn", next(asked)), 20),
             "1,000 values": median_time(lambda: index.lookup("ssn", [
                 next(asked) for _ in range(1000)]), 5)}
    found |= {f"{number} threads": _in_threads(number, partial(
        _look_up, folder / "files", ring, values, "require")) for number in THREADS}
    found |= _exclusive(folder, ring, asked)
    one = folder / "files" / "00000.parquet"
    shutil.copy(one, one.with_name("new.parquet"))
    os.utime(one.with_name("new.parquet"), (0, 0))
    listing = median_time(index._table.listing, 5)
    start = time.perf_counter()
    index.update()
    found |= {"listing": listing, "update": time.perf_counter() - start}
    code = ("import sys, secure_bloom; print(secure_bloom.read_table(sys.argv[1], sys.argv[2], "
            "filters=[('ssn', '=', sys.argv[3])], index='require').num_rows)")
    command = [sys.executable, "-c", code, str(folder / "files"), str(folder / "keyring.json")]
    found["cold"] = median_time(lambda: subprocess.run(
        [*command, next(asked)], check=True, capture_output=True), 3)
    return found


def _in_threads(number: int, look_up: Callable[[], None]) -> float:
    """Return the seconds that a lookup takes if so many threads look up."""
    with ThreadPoolExecutor(number) as pool:
        return median_time(lambda: list(pool.map(lambda _: look_up(), range(12))), 5) / 12


def _exclusive(folder: Path, ring: Keyring, asked: Any) -> dict[str, float]:
    """Measure lookups that need not list the files, because only our jobs write to the table."""
    table = folder / "files"
    staging = _made(table / "_staging")
    (staging / "generation").write_text("1")  # as a job leaves it
    column = IndexFolder(pa_fs.LocalFileSystem(), str(table), "ssn")

    def set_exclusive(is_exclusive: bool) -> None:
        publish(column, cached(ring), lambda body: replace(body, is_exclusive=is_exclusive))

    set_exclusive(True)
    index = Index.open(table, ring)
    index.update()
    found = {"lookup without listing": median_time(lambda: index.lookup("ssn", next(asked)), 20),
             "rows without listing": median_time(
                 lambda: _found(table, ring, next(asked), "require"), 20)}
    set_exclusive(False)
    shutil.rmtree(staging)
    return found


def _growth(plan: Plan, folder: Path, ring: Keyring, values: list[str], local: Comparison) \
        -> dict[str, list[tuple[int, float]]]:
    """Measure lookups in parts of the files, and take those in all of them."""
    paths = sorted((folder / "files").glob("*.parquet"))
    found: dict[str, list[tuple[int, float]]] = {WITHOUT: [], WITH: []}
    for size in [size for size in (10, 100, 1000) if size < len(values)]:
        some = _made(plan.folder / f"{size} files")
        for path in paths[:size]:
            shutil.copy2(path, some / path.name)
        secure_bloom.index.build(some, "ssn", ring)
        for name, index in ((WITHOUT, "off"), (WITH, "require")):
            look_up = partial(_look_up, some, ring, values, index)
            found[name].append((size, median_time(look_up, 5)))
        shutil.rmtree(some)
    for name, points in found.items():
        points.append((len(values), statistics.median(local.seconds[name])))
    return found


# --- segments of random values -------------------------------------------------------------------

def _segments(plan: Plan) -> dict[str, float]:
    """Build segments of random values, probe them, merge them and probe the result."""
    folder = IndexFolder(pa_fs.LocalFileSystem(), str(plan.folder / "random"), "x")
    os.makedirs(folder.path)
    manifest, pairs = Manifest.new("x", None, None), plan.size(SEGMENT_PAIRS, 50_000)
    random_values = np.random.default_rng(1)
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is that of what follows, proc(5)
    start, infos = time.process_time(), []
    for part in range(PARTS):
        builder = SegmentBuilder(manifest.key, _HASHED, BUDGET)
        groups = max(1, pairs // GROUP)
        added = builder.add_file(FileEntry(f"{part}.parquet", 1, 1, "", groups, pairs, bytes(16),
                                           bytes(16), pa.schema([]).serialize().to_pybytes()))
        for group in range(groups):
            added.add(group, random_values.integers(0, 2**64, pairs // groups, np.uint64))
        infos.append(builder.write(folder.filesystem, folder.path))
    building = time.process_time() - start
    parts = ColumnIndex(folder, manifest.next(Body("x", tuple(infos)), 1))
    found = {"probe of 8": median_time(lambda: parts.find(random.randrange(2**62)), 200)}
    start = time.process_time()
    merged = merge(folder.filesystem, folder.path, manifest.key, parts.segments,
                   lambda segment, number: segment.files.entry(number), BUDGET)
    merging = time.process_time() - start
    one = ColumnIndex(folder, manifest.next(Body("x", (merged,)), 2))
    [read] = one.segments[0].reads(manifest.key.fingerprints(np.array([1], np.uint64)))
    total = sum(info.pairs for info in infos)
    return found | {
        "probe of 1": median_time(lambda: one.find(random.randrange(2**62)), 200),
        "page": read.size, "pairs": total, "bytes per pair": merged.size / merged.pairs,
        "built a CPU second": total / building, "merged a CPU second": total / merging,
        "false row groups": sum(hits.files.size for hits in one.find(
            random_values.integers(0, 2**62, 100_000))) / 100_000,
        "expected false row groups": merged.pairs / 2**geometry.FINGERPRINT_BITS,
        "memory": memory("VmHWM") - before}


# --- text and chart ------------------------------------------------------------------------------

def _text(comparisons: list[Comparison], figures: dict[str, Any]) -> str:
    local, stored = comparisons
    at, segments, built = figures["local"], figures["segments"], figures["build"]
    lines = [
        f"one lookup, {local.work}: {_middle(local.seconds[WITH])} (target 60 ms), "
        f"{_times(local, WITHOUT):.0f} times as fast as without the index (target 60), "
        f"{_times(local, PEER):.0f} times as fast as pyarrow's scan (target 200); "
        f"listing the folder takes {_ms(at['listing'])} of it",
        f"one lookup, {stored.work}: {_middle(stored.seconds[WITH])} (target 300 ms), "
        f"{_times(stored, WITHOUT):.0f} times as fast as without the index (target 40)",
        f"the same where only jobs of secure_bloom write, without listing: "
        f"{_ms(at['rows without listing'])} (target 10 ms), of which `Index.lookup` takes "
        f"{_ms(at['lookup without listing'])}",
        f"`Index.lookup` with its listing: {_ms(at['lookup'])}; of 1,000 values: "
        f"{_ms(at['1,000 values'])} (target 50 ms and the listing)",
        f"lookups a second in {', '.join(map(str, THREADS))} threads: " + ", ".join(
            f"{1 / at[f'{number} threads']:.0f}" for number in THREADS) + " (target: no fewer)",
        f"a new process with one lookup: {at['cold']:.2f} s (target 0.7 s)",
        f"one probe: {_ms(segments['probe of 1'])} in one segment of {segments['pairs']:,} pairs, "
        f"{_ms(segments['probe of 8'])} in 8 segments (targets 0.1 and 0.5 ms); one page of "
        f"{segments['page'] / 1000:.0f} KB is read (target 40 KB)",
        f"false row groups in a lookup: {segments['false row groups']:.5f}, expected "
        f"{segments['expected false row groups']:.5f}",
        f"size: {segments['bytes per pair']:.2f} bytes per pair, {GROUP:,} values a row group "
        "(target 3.4)",
        f"build from files of a job that wrote {WRITTEN:,} rows: "
        f"{1e-6 / built['large files']:.1f} M values a CPU second (target 10); from the small "
        f"files: {1e-6 / built['small files']:.1f} M; from hashes: "
        f"{segments['built a CPU second'] / 1e6:.0f} M pairs; merge: "
        f"{segments['merged a CPU second'] / 1e6:.0f} M pairs a CPU second (target 20)",
        f"memory of building and merging, with a budget of {BUDGET >> 20} MiB: "
        f"{segments['memory'] / 2**20:.0f} MiB (target {150 + 4 * (BUDGET >> 20)})",
        f"update after one new file: {at['update']:.2f} s, of which listing takes "
        f"{at['listing']:.2f} s (target 0.2 s and the listing)"]
    return "\n".join(f"- {line}." for line in lines)


def _times(comparison: Comparison, peer: str) -> float:
    return statistics.median(other / own for other, own in zip(
        comparison.seconds[peer], comparison.seconds[WITH], strict=True))


def _middle(seconds: list[float]) -> str:
    return _ms(statistics.median(seconds))


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _draw(found: dict[str, list[tuple[int, float]]], figure: Any) -> None:
    figure.set_size_inches(6, 4)
    axes = figure.add_subplot()
    for name, points in found.items():
        axes.loglog(*zip(*points, strict=True), "o-", label=name)
    axes.set_xlabel("encrypted files")
    axes.set_ylabel("seconds of one lookup")
    axes.legend()
    figure.tight_layout()
