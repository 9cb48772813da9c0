"""Bulk work with numba: XXH64 (seed 0) and split-block Bloom filter insert and check.

Importing this module imports numba, so only bulk work imports it, see
:func:`secure_bloom.sbbf.hashing.kernels_for`.
Every function has a twin of the same name in :mod:`secure_bloom.kernels.scalar`. The kernels
themselves are in :mod:`secure_bloom.kernels.hashing` and :mod:`secure_bloom.kernels.blocks`; this
module splits large input among threads, since kernels release the GIL. The number of threads is
``pyarrow.cpu_count()``, which ``pyarrow.set_cpu_count(1)`` and the environment variable
``OMP_NUM_THREADS`` change.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from secure_bloom.kernels import blocks as filter_kernels
from secure_bloom.kernels import hashing as hash_kernels

#: Values worth a thread: a millisecond or two of work; starting a thread takes a tenth of that.
WORDS, STRINGS = 1 << 19, 1 << 18


def hash_words(values: np.ndarray, out: np.ndarray) -> None:
    """Write the XXH64 of each uint32 or uint64 value, little-endian, to ``out`` (uint64)."""
    values = _readonly(values)
    _in_parts(out.size, WORDS, lambda start, stop: hash_kernels.hash_words(
        values[start:stop], out[start:stop]))


def hash_fixed(data: np.ndarray, width: int, out: np.ndarray) -> None:
    """Write the XXH64 of each value of ``width`` bytes to ``out``.

    ``data`` (uint8) holds ``out.size`` values back to back.
    """
    data = _readonly(data)
    _in_parts(out.size, STRINGS, lambda start, stop: hash_kernels.hash_fixed(
        data[start * width:], width, out[start:stop]))


def hash_binary(offsets: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    """Write the XXH64 of ``data[offsets[i]:offsets[i + 1]]`` for each i to ``out`` (uint64)."""
    offsets, data = _readonly(offsets), _readonly(data)
    _in_parts(out.size, STRINGS, lambda start, stop: hash_kernels.hash_binary(
        offsets[start:stop + 1], data, out[start:stop]))


def insert_words(words: np.ndarray, values: np.ndarray) -> None:
    """Hash each value of a uint32 or uint64 array as :func:`hash_words` does, and set its bits."""
    _insert(words, values, False)


def insert_hashes(words: np.ndarray, hashes: np.ndarray) -> None:
    """Set the bits of each hash (uint64)."""
    _insert(words, hashes, True)


def check_hashes(words: np.ndarray, hashes: np.ndarray, out: np.ndarray) -> None:
    """Set ``out[i]`` (bool) to whether all bits of ``hashes[i]`` are set."""
    words, hashes = _readonly(words), _readonly(hashes)
    _in_parts(out.size, WORDS, lambda start, stop: filter_kernels.check(
        words, hashes[start:stop], out[start:stop]))


def _insert(words: np.ndarray, values: np.ndarray, hashed: bool) -> None:
    """Insert with several threads.

    Each additional thread fills its own filter, unless that would be larger than its values.
    """
    values = _readonly(values)
    part = max(WORDS, words.nbytes // values.itemsize)
    filters = [words]

    def work(start: int, stop: int) -> None:
        target = words
        if start:
            target = np.zeros_like(words)
            filters.append(target)
        filter_kernels.insert(target, values[start:stop], hashed)

    _in_parts(values.size, part, work)
    for other in filters[1:]:
        np.bitwise_or(words, other, out=words)


def _in_parts(count: int, part: int, work: Callable[[int, int], None]) -> None:
    """Call ``work(start, stop)`` for parts of ``range(count)``, each at least ``part`` long.

    Threads are not kept: after a fork, a process would wait for threads that it does not have.
    """
    threads = min(pa.cpu_count(), count // part)
    if threads < 2:
        work(0, count)
        return
    bounds = [count * i // threads for i in range(threads + 1)]
    with ThreadPoolExecutor(threads - 1) as pool:
        others = [pool.submit(work, *bounds[i:i + 2]) for i in range(1, threads)]
        work(*bounds[:2])
        for other in others:
            other.result()


def _readonly(array: np.ndarray) -> np.ndarray:
    """Return the array as read-only: otherwise numba would compile for both kinds."""
    array = array.view()
    array.flags.writeable = False
    return array


def warm_up() -> None:
    """Compile the kernels for bulk work, or load them from the cache."""
    out, words = np.empty(0, np.uint64), np.zeros((1, 8), np.uint32)
    data = np.empty(0, np.uint8)
    for kind in (np.uint32, np.uint64):
        hash_words(np.empty(0, kind), out)
        insert_words(words, np.empty(0, kind))
    for offsets in (np.zeros(1, np.int32), np.zeros(1, np.int64)):
        hash_binary(offsets, data, out)
    hash_fixed(data, 1, out)
    insert_hashes(words, out)
    check_hashes(words, out, np.empty(0, bool))
