"""The limits of one core of this machine: memory bandwidth, and XXH64 of integers in registers."""

from __future__ import annotations

import statistics
import time

import numpy as np
from numba import njit

from secure_bloom.kernels.hashing import WIDE, load_wide
from secure_bloom.kernels.simd import store
from secure_bloom.kernels.xxh64 import hash_word


@njit(nogil=True)
def _sum(words):
    total = np.uint64(0)
    for word in words:
        total += word
    return total


def bandwidth(words: int, rounds: int) -> dict[str, float]:
    """GB/s of one thread over this many 8-byte words: read, and copied (read plus written)."""
    source = np.arange(words, dtype=np.uint64)
    target = np.empty_like(source)
    return {"read": source.nbytes / _median(lambda: _sum(source), rounds) / 1e9,
            "copy": 2 * source.nbytes / _median(lambda: np.copyto(target, source), rounds) / 1e9}


@njit(nogil=True)
def _hash_again(words, times):
    values = load_wide(words, np.uint64(0))
    for _ in range(times):
        values = hash_word(words, values)
    store(words, np.uint64(0), values)


def hashing_in_registers(values: int, rounds: int) -> float:
    """Values per second of the kernel's XXH64 of int64, applied repeatedly to its own hashes."""
    words = np.arange(WIDE, dtype=np.uint64)
    times = max(values // words.size, 1)
    return times * words.size / _median(lambda: _hash_again(words, times), rounds)


def _median(work, rounds: int) -> float:
    work()
    times = []
    for _ in range(rounds):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return statistics.median(times)
