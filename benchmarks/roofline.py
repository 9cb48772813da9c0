"""What the memory of this machine gives one core."""

from __future__ import annotations

import statistics
import time

import numpy as np
from numba import njit


@njit(nogil=True)
def _sum(words):
    total = np.uint64(0)
    for word in words:
        total += word
    return total


def bandwidth(words: int, rounds: int) -> dict[str, float]:
    """GB/s of one thread over so many words of 8 bytes: read, and copied (read plus written)."""
    source = np.arange(words, dtype=np.uint64)
    target = np.empty_like(source)
    return {"read": source.nbytes / _median(lambda: _sum(source), rounds) / 1e9,
            "copy": 2 * source.nbytes / _median(lambda: np.copyto(target, source), rounds) / 1e9}


def _median(work, rounds: int) -> float:
    work()
    times = []
    for _ in range(rounds):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return statistics.median(times)
