"""The kernels that the package has: numpy, built ones for each level of CPU, and numba."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from unittest import mock

import numpy as np
import pyarrow as pa

from secure_bloom.kernels.native import NotUsableError, usable_levels
from secure_bloom.sbbf import kernel_choice

SMALL, LARGE = 1 << 16, 1 << 24  #: bytes of filters
BATCH = 1000  #: values of a small batch


def compare_kinds(count: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Return seconds by work and kernels; they take turns, on one thread."""
    kinds = {name: _kernels(name) for name in ("numba", *_levels(), "numpy")}
    before = pa.cpu_count()
    pa.set_cpu_count(1)
    try:
        return {work: _rounds(run, kinds, rounds) for work, run in _works(count).items()}
    finally:
        pa.set_cpu_count(before)


def kinds_table(seconds: dict[str, dict[str, list[float]]]) -> str:
    """Return a Markdown table: how many times faster than numpy."""
    kinds = [name for name in next(iter(seconds.values())) if name != "numpy"]
    lines = [f"| work, relative to numpy (min to max) | {' | '.join(kinds)} |",
             "|---|" + "---|" * len(kinds)]
    for work, times in seconds.items():
        cells = []
        for kind in kinds:
            ratios = [theirs / ours for theirs, ours in
                      zip(times["numpy"], times[kind], strict=True)]
            cells.append(f"{statistics.median(ratios):.1f} ({min(ratios):.1f} to "
                         f"{max(ratios):.1f})")
        lines.append(f"| {work} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _levels() -> list[str]:
    try:
        return usable_levels()
    except NotUsableError:
        return []


def _kernels(name: str):
    with mock.patch.dict(os.environ, {kernel_choice.VARIABLE: name}):
        return kernel_choice.chosen.__wrapped__().bulk


def _rounds(run: Callable, kinds: dict, rounds: int) -> dict[str, list[float]]:
    for kernels in kinds.values():  # compiles, and fills the caches
        run(kernels)
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, kernels in kinds.items():
            start = time.perf_counter()
            run(kernels)
            times[name].append(time.perf_counter() - start)
    return times


def _works(count: int) -> dict[str, Callable]:
    random = np.random.default_rng(1)
    values = random.integers(0, 2**64, count, dtype=np.uint64)
    out, found = np.zeros_like(values), np.zeros(count, bool)
    equal = np.arange(count + 1, dtype=np.int32) * 9
    mixed = np.concatenate([[0], np.cumsum(random.integers(1, 41, count))]).astype(np.int32)
    data = random.integers(97, 123, max(equal[-1], mixed[-1]), dtype=np.uint8)
    small, large = (np.zeros((size // 32, 8), np.uint32) for size in (SMALL, LARGE))
    batches = values[:10 * BATCH].reshape(-1, min(BATCH, count))

    def insert_batches(kernels):
        for batch in batches:
            kernels.insert_words(small, batch)

    return {"hash int64": lambda kernels: kernels.hash_words(values, out),
            "hash strings of 9 bytes": lambda kernels: kernels.hash_binary(equal, data, out),
            "hash strings of 1 to 40 bytes": lambda kernels: kernels.hash_binary(mixed, data, out),
            "hash + insert, 64 KiB": lambda kernels: kernels.insert_words(small, values),
            "hash + insert, 16 MiB": lambda kernels: kernels.insert_words(large, values),
            f"hash + insert {BATCH} values, 64 KiB": insert_batches,
            "check, 64 KiB": lambda kernels: kernels.check_hashes(small, values, found)}
