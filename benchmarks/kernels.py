"""The hash and filter kernels, compared with Arrow C++, parquet-java and memory bandwidth.

The Arrow C++ peer is a program compiled against the pyarrow wheel, the parquet-java peer one
compiled against Spark's jars; this requires g++ and javac. All contestants read the same values,
take turns, and must produce the same result before their times count. Times are CPU seconds of the
working thread, to reduce the influence of other programs; only the comparison of several threads
with one uses wall-clock time. The kernels are those that the package uses on this machine; another
table compares them with the others that it has.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.compare import spread
from benchmarks.kernel_kinds import compare_kinds, kinds_table
from benchmarks.kernel_peers import Timing, arrow_cpp, parquet_java
from benchmarks.roofline import bandwidth, hashing_in_registers
from benchmarks.section import Plan, Section
from secure_bloom.sbbf.arrow_types import column_type_of
from secure_bloom.sbbf.filter import SplitBlockBloomFilter
from secure_bloom.sbbf.kernel_choice import chosen

OURS, THREADS = "secure_bloom", "secure_bloom, all cores"
ROW_GROUP = 1 << 20  #: values that pyarrow writes to a row group
CHUNK = 1 << 15  #: values that fit in the cache of a core, with their hashes
SIZES = {"32 KiB": 1 << 15, "1 MiB": 1 << 20, "16 MiB": 1 << 24, "64 MiB": 1 << 26}
IN_CACHE = 1 << 21  #: bytes of a filter that fits in the cache of a core
LENGTHS = {"9 bytes": (9, 9), "20 bytes": (20, 20), "40 bytes": (40, 40),
           "100 bytes": (100, 100), "1 to 40 bytes": (1, 40)}
INSERT_TARGETS = dict(zip(SIZES, (5, 3.5, 8, 4), strict=True))
CHECK_TARGETS = dict(zip(SIZES, (3.5, 2, 4, 3), strict=True))


@dataclass(frozen=True)
class Work:
    """One line of the benchmark.

    Attributes
    ----------
    name : str
    count : int
        Number of values processed per round.
    request : str
        The request that is sent to the peers.
    prepare : callable
        Returns our work: a function without arguments that returns the array to be digested.
    targets : dict of str to float
        How many times faster than each peer it must be.
    traffic : float
        Bytes transferred between core and memory per value; 0 if everything is in the cache.
    """

    name: str
    count: int
    request: str
    prepare: Callable[[], Callable[[], np.ndarray]]
    targets: dict[str, float]
    traffic: float


@dataclass
class Result:
    """The timings of one work: contestant -> rounds."""

    work: Work
    timings: dict[str, list[Timing]] = field(default_factory=dict)

    def ratios(self, peer: str, own: str = OURS, clock: str = "cpu") -> list[float]:
        """How many times faster than the peer, in each round."""
        return [getattr(theirs, clock) / getattr(ours, clock) for theirs, ours in
                zip(self.timings[peer], self.timings[own], strict=True)]

    def speed(self, contestant: str) -> float:
        """Values per second, by the median CPU time."""
        return self.work.count / statistics.median(t.cpu for t in self.timings[contestant])

    def to_json(self) -> dict:
        """The result as a dictionary for JSON."""
        return {"work": self.work.name, "values": self.work.count, "targets": self.work.targets,
                "seconds": {name: {"wall": [t.wall for t in rounds], "cpu": [t.cpu for t in rounds]}
                            for name, rounds in self.timings.items()},
                "ratios": {peer: spread(self.ratios(peer)) for peer in self.work.targets},
                "threads": spread(self.ratios(OURS, THREADS, "wall"))}


ROWS = 10_000_000


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    rows = plan.size(ROWS, 2000)
    with ExitStack() as stack:
        peers = {"Arrow C++": stack.enter_context(arrow_cpp()),
                 "parquet-java": stack.enter_context(parquet_java())}
        results = [_measure(work, peers, plan.rounds) for work in _works(plan.folder, rows)]
        memory = bandwidth(rows, plan.rounds)
        registers = hashing_in_registers(rows, plan.rounds)
        kinds = compare_kinds(plan.size(1 << 20, 2000), plan.rounds)
    return Section(f"{table(results)}\n\n{roofline(results, memory)}\n\nXXH64 of int64 in "
                   f"registers, without memory access: {registers / 1e6:.0f} M values/s.\n\n"
                   f"{kinds_table(kinds)}",
                   {"kinds": kinds, "bandwidth": memory, "hashing_in_registers": registers,
                    "results": [result.to_json() for result in results]},
                   {"kernels.svg": partial(_draw, results),
                    "roofline.svg": partial(_draw_roofline, results, memory)})


# --- the work ------------------------------------------------------------------------------------

def _works(folder: Path, rows: int) -> list[Work]:
    random = np.random.default_rng(1)
    values = random.integers(0, 2**64, rows, dtype=np.uint64)
    hashes = np.empty_like(values)
    chosen().bulk.hash_words(values, hashes)
    paths = _save(folder, values=values, row_group=values[:ROW_GROUP], chunk=values[:CHUNK],
                  hashes=hashes)
    return [
        _hash_work("hash int64, in the cache", paths["chunk"], values[:CHUNK], rows, 0),
        _hash_work("hash int64", paths["row_group"], values[:ROW_GROUP], rows, 16),
        *(_binary_work(folder, name, rows // 5, *bounds, random)
          for name, bounds in LENGTHS.items()),
        *(_insert_work(name, paths["values"], values.view(np.int64)) for name in SIZES),
        *(_check_work(name, paths["hashes"], hashes) for name in SIZES)]


def _save(folder: Path, **arrays: np.ndarray) -> dict[str, Path]:
    paths = {name: folder / name for name in arrays}
    for name, array in arrays.items():
        array.tofile(paths[name])
    return paths


def _targets(arrow: float, java: float = 8) -> dict[str, float]:
    return {"Arrow C++": arrow, "parquet-java": java}


def _hash_work(name: str, path: Path, values: np.ndarray, rows: int, traffic: float) -> Work:
    out, repeats = np.zeros_like(values), max(1, rows // values.size)

    def run():
        for _ in range(repeats):
            chosen().bulk.hash_words(values, out)
        return out
    return Work(name, values.size * repeats, f"hash {path} {repeats}", lambda: run, _targets(3),
                traffic)


def _binary_work(folder: Path, name: str, count: int, shortest: int, longest: int, random) -> Work:
    lengths = random.integers(shortest, longest + 1, count)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    data = random.integers(97, 123, offsets[-1], dtype=np.uint8)
    paths = _save(folder, **{f"{shortest}-{longest}.offsets": offsets,
                             f"{shortest}-{longest}.data": data})

    out = np.zeros(count, np.uint64)

    def run():
        chosen().bulk.hash_binary(offsets, data, out)
        return out
    request = " ".join(map(str, ["hash_binary", *paths.values()]))
    return Work(f"hash strings of {name}", count, request, lambda: run, _targets(1.2, 3),
                16 + data.size / count)


def _insert_work(name: str, path: Path, values: np.ndarray) -> Work:
    array, size = pa.array(values), SIZES[name]
    filter_ = SplitBlockBloomFilter(size // 32, column_type=column_type_of(array.type))

    def prepare():
        filter_._words.fill(0)

        def run():
            filter_.insert(array)
            return filter_._words
        return run
    traffic = 8 + (0 if size <= IN_CACHE else 2 * 64)
    return Work(f"hash + insert, {name}", values.size, f"insert {path} {size}", prepare,
                _targets(INSERT_TARGETS[name]), traffic)


def _check_work(name: str, path: Path, hashes: np.ndarray) -> Work:
    size = SIZES[name]
    filter_ = SplitBlockBloomFilter(size // 32)
    filter_.insert_hashes(hashes)
    out = np.zeros(hashes.size, bool)

    def run():
        chosen().bulk.check_hashes(filter_._words, hashes, out)
        return out
    traffic = 8 + 1 + (0 if size <= IN_CACHE else 64)
    return Work(f"check, {name}", hashes.size, f"check {path} {size} {path}", lambda: run,
                _targets(CHECK_TARGETS[name]), traffic)


# --- measuring -----------------------------------------------------------------------------------

def _measure(work: Work, peers: dict, rounds: int) -> Result:
    contestants = {**{name: lambda peer=peer: peer.run(work.request)
                      for name, peer in peers.items()},
                   OURS: lambda: _run(work, 1), THREADS: lambda: _run(work, os.cpu_count())}
    result = Result(work, {name: [] for name in contestants})
    for _ in range(2):  # the first rounds warm up caches and the JVM, and compare the results
        digests = {name: contestant().digest for name, contestant in contestants.items()}
        if len(set(digests.values())) > 1:
            raise AssertionError(f"{work.name}: results differ: {digests}")
    for _ in range(rounds):
        for name, contestant in contestants.items():
            result.timings[name].append(contestant())
    speeds = ", ".join(f"{name} {result.speed(name) / 1e6:.0f}" for name in contestants)
    print(f"{work.name}: million values a second: {speeds}", flush=True)
    return result


def _run(work: Work, threads: int) -> Timing:
    pa.set_cpu_count(threads)
    run = work.prepare()
    wall, cpu = time.perf_counter(), time.thread_time()
    out = run()
    cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
    return Timing(wall, cpu, _digest(out))


def _digest(out: np.ndarray) -> int:
    words = out.astype(np.uint64) if out.dtype == bool else out.reshape(-1).view(np.uint64)
    return int(((2 * np.arange(words.size, dtype=np.uint64) + np.uint64(1)) * words).sum())


# --- output --------------------------------------------------------------------------------------

def table(results: list[Result]) -> str:
    """Return a Markdown table: how many times faster than each peer, and the target."""
    lines = ["| work | M values/s | " + " | ".join(
        f"speed relative to {peer} (min to max) | target" for peer in _targets(0))
        + f" | {os.cpu_count()} threads relative to one (min to max) |",
        "|---|---|---|---|---|---|---|"]
    for result in results:
        cells = [result.work.name, f"{result.speed('secure_bloom') / 1e6:.0f}"]
        for peer, target in result.work.targets.items():
            cells += [_shown(result.ratios(peer)), f"{target:g}"]
        cells.append(_shown(result.ratios(OURS, THREADS, "wall")))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def roofline(results: list[Result], memory: dict[str, float]) -> str:
    """Return a Markdown table: bytes moved per value, and the share of memory bandwidth."""
    lines = [f"Memory: {memory['read']:.1f} GB/s read, {memory['copy']:.1f} GB/s copied "
             "(read and written).", "",
             "| work | bytes per value | GB/s | share of the bandwidth |", "|---|---|---|---|"]
    for result in filter(_uses_memory, results):
        moved = result.work.traffic * result.speed(OURS) / 1e9
        lines.append(f"| {result.work.name} | {result.work.traffic:.0f} | {moved:.1f} "
                     f"| {moved / memory['copy']:.0%} |")
    return "\n".join(lines)


def _uses_memory(result: Result) -> bool:
    return result.work.traffic > 0


def _shown(ratios: list[float]) -> str:
    return "{median:.1f} ({min:.1f} to {max:.1f})".format(**spread(ratios))


def _draw(results: list[Result], figure) -> None:
    figure.set_size_inches(9, 5)
    axes = figure.add_subplot()
    for shift, peer in ((-0.2, "Arrow C++"), (0.2, "parquet-java")):
        ratios = [statistics.median(result.ratios(peer)) for result in results]
        axes.barh([place + shift for place in range(len(results))], ratios, 0.4,
                  label=f"times as fast as {peer}")
        axes.plot([result.work.targets[peer] for result in results],
                  [place + shift for place in range(len(results))], "k|", markersize=9)
    axes.set_yticks(range(len(results)), [result.work.name for result in results], fontsize=8)
    axes.invert_yaxis()
    axes.axvline(1, color="grey", linewidth=0.8)
    axes.set_xlabel("times as fast, one thread (the mark is the target)")
    axes.legend()
    figure.tight_layout()


def _draw_roofline(results: list[Result], memory: dict[str, float], figure) -> None:
    figure.set_size_inches(9, 5)
    axes = figure.add_subplot()
    for result in filter(_uses_memory, results):
        axes.loglog(result.work.traffic, result.speed(OURS) / 1e6, "o", label=result.work.name)
    traffic = np.geomspace(5, 200, 50)
    axes.loglog(traffic, memory["copy"] * 1e3 / traffic, "k-", label="memory, copying")
    axes.set_xlabel("bytes between core and memory for a value")
    axes.set_ylabel("million values a second")
    axes.legend(fontsize=7, ncols=2)
    figure.tight_layout()
