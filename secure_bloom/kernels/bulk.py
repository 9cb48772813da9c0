"""Bulk work with compiled kernels: XXH64 (seed 0), filters, and the pairs of an index.

Arrays are checked here, since compiled kernels check nothing, and large input is split among
threads, since they release the GIL. The number of threads is ``pyarrow.cpu_count()``, which
``pyarrow.set_cpu_count(1)`` and the environment variable ``OMP_NUM_THREADS`` change.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from secure_bloom.kernels.checks import filter_words, readable, writable

#: Values worth a thread: a millisecond or two of work; starting a thread takes a tenth of that.
WORDS, STRINGS = 1 << 19, 1 << 18

_FEW = 1 << 10  #: numbers that numpy sorts as fast
_COMMON_BITS = 24  #: leading bits in common, at most; the kernel sorts by up to 28 others


class Bulk:
    """The functions of :mod:`secure_bloom.kernels.vectorized`, with compiled kernels.

    Parameters
    ----------
    raw : object
        :class:`~secure_bloom.kernels.native.Native` or
        :mod:`~secure_bloom.kernels.numba_kernels`.
    """

    def __init__(self, raw: Any):
        self.raw = raw

    def hash_words(self, values: np.ndarray, out: np.ndarray) -> None:
        """Write the XXH64 of each uint32 or uint64 value, little-endian, to ``out`` (uint64)."""
        values = readable(values, np.uint64, np.uint32)
        writable(out, np.uint64, values.size)
        _in_parts(out.size, WORDS, lambda start, stop: self.raw.hash_words(
            values[start:stop], out[start:stop]))

    def hash_fixed(self, data: np.ndarray, width: int, out: np.ndarray) -> None:
        """Write the XXH64 of each value of ``width`` bytes to ``out``.

        ``data`` (uint8) holds ``out.size`` values back to back.
        """
        data = readable(data, np.uint8)
        writable(out, np.uint64)
        if not 0 <= width * out.size <= data.size:
            raise ValueError(f"{data.size} bytes, not {out.size} values of {width}")
        _in_parts(out.size, STRINGS, lambda start, stop: self.raw.hash_fixed(
            data[start * width:stop * width], width, out[start:stop]))

    def hash_binary(self, offsets: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
        """Write the XXH64 of ``data[offsets[i]:offsets[i + 1]]`` for each i to ``out`` (uint64).

        Raises ValueError if offsets decrease or lie outside of ``data``.
        """
        writable(out, np.uint64)
        offsets = readable(offsets, np.int32, np.int64, rows=out.size + 1)
        data = readable(data, np.uint8)

        def work(start: int, stop: int) -> None:
            if self.raw.hash_binary(offsets[start:stop + 1], data, out[start:stop]):
                raise ValueError("the offsets of strings are invalid")

        _in_parts(out.size, STRINGS, work)

    def insert_words(self, words: np.ndarray, values: np.ndarray) -> None:
        """Hash each value of a uint32 or uint64 array as :meth:`hash_words` does, and set its
        bits.
        """
        self._insert(words, readable(values, np.uint64, np.uint32), False)

    def insert_hashes(self, words: np.ndarray, hashes: np.ndarray) -> None:
        """Set the bits of each hash (uint64)."""
        self._insert(words, readable(hashes, np.uint64), True)

    def check_hashes(self, words: np.ndarray, hashes: np.ndarray, out: np.ndarray) -> None:
        """Set ``out[i]`` (bool) to whether all bits of ``hashes[i]`` are set."""
        words, hashes = readable(words, np.uint32, columns=8), readable(hashes, np.uint64)
        filter_words(words)
        writable(out, np.bool_, hashes.size)
        _in_parts(out.size, WORDS, lambda start, stop: self.raw.check(
            words, hashes[start:stop], out[start:stop]))

    def sort(self, values: np.ndarray, first_bit: int = 0, *, runs: int = 1,
             spare: np.ndarray | None = None) -> None:
        """Sort an array (uint64) in place, fast if its numbers are random.

        The first ``first_bit`` bits must be the same in all of them: many numbers in which they
        differ would be out of order. The array may consist of ``runs`` sorted arrays, which makes
        no difference here. ``spare`` is an array of this length that may be overwritten.
        """
        writable(values, np.uint64)
        spare = np.empty_like(values) if spare is None else spare
        writable(spare, np.uint64, values.size)
        if first_bit < 0:
            raise ValueError(f"{first_bit} bits in common")
        if values.size < _FEW or self.raw.sort(values, spare, min(first_bit, _COMMON_BITS)):
            values.sort(kind="stable")  # many bits of the numbers were the same

    def distribute(self, values: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Copy numbers (uint64) in the order of their first 8 bits; return the bounds of groups.

        The bounds are 257 numbers: where each group begins, and the end of the last one.
        """
        values, ends = readable(values, np.uint64), np.empty(256, np.uint64)
        writable(target, np.uint64, values.size)
        self.raw.distribute(values, target, ends)
        return np.append(0, ends.astype(np.int64))

    def gather(self, starts: np.ndarray, stops: np.ndarray, target: np.ndarray) -> None:
        """Copy numbers (uint64) from pieces of memory to an array, one after another.

        Parameters
        ----------
        starts, stops : uint64 arrays
            Addresses: where each piece begins, and where it ends. Nothing can check them, so the
            caller must keep the arrays that they belong to.
        target : uint64 array
            As long as all pieces.
        """
        writable(target, np.uint64, _size(starts, stops))
        self.raw.gather(starts, stops, target)

    def scatter(self, source: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> None:
        """Copy an array (uint64) back to the pieces that :meth:`gather` takes.

        If it has fewer numbers, the rest of the pieces stays as it is.
        """
        source = readable(source, np.uint64)
        if source.size > _size(starts, stops):
            raise ValueError(f"{source.size} numbers are more than the pieces have")
        self.raw.scatter(source, starts, stops)

    def unite(self, pairs: np.ndarray, range_bits: int) -> int:
        """Unite pairs (uint64, in order) that differ only in their ranges; return how many remain.

        A range is the last ``range_bits`` of a pair; the new one is the smallest that contains the
        others: see :mod:`secure_bloom.kernels.pairs`. The remaining pairs are at the start of the
        array.
        """
        writable(pairs, np.uint64)
        return int(self.raw.unite(pairs, range_bits))

    def narrow(self, pairs: np.ndarray, spare_bits: int, range_bits: int, new_bits: int) -> None:
        """Replace the ranges of pairs (uint64) by the smallest ranges around them with fewer bits.

        The last ``spare_bits`` of a pair are a number, and below it ``range_bits`` of a range,
        which become ``new_bits``.
        """
        writable(pairs, np.uint64)
        self.raw.narrow(pairs, spare_bits, range_bits, new_bits)

    def encode_pages(self, pairs: np.ndarray, starts: np.ndarray, width: int, *bits: int) \
            -> tuple[np.ndarray, np.ndarray]:
        """Return pages of an index (uint8), and where each ends in it (int64).

        Parameters
        ----------
        pairs : uint64 array
            Page k has ``pairs[starts[k]:starts[k + 1]]``, in order.
        starts : int64 array
        width : int
            Bytes of an entry, 1 to 8.
        *bits : int
            How many bits of a pair belong to the bucket, to the remainder, to the place, and to
            everything below the remainder.
        """
        pairs, starts = readable(pairs, np.uint64), readable(starts, np.int64)
        counts = np.diff(starts)
        if not 1 <= width <= 8 or starts[0] != 0 or starts[-1] != pairs.size \
                or counts.min(initial=0) < 0:
            raise ValueError("the bounds of pages, or the width of their entries, are invalid")
        size = int((4 + (counts + (1 << bits[0]) + 7 >> 3) + width * counts).sum())
        out, ends = np.empty(size + 8, np.uint8), np.empty(counts.size, np.int64)
        self.raw.encode_pages(pairs, starts, out, ends, width, *bits)
        return out[:size], ends

    def _insert(self, words: np.ndarray, values: np.ndarray, hashed: bool) -> None:
        """Insert with several threads.

        Each additional thread fills its own filter, unless that would be larger than its values.
        """
        writable(words, np.uint32, columns=8)
        filter_words(words)
        part = max(WORDS, words.nbytes // values.itemsize)
        filters = [words]

        def work(start: int, stop: int) -> None:
            target = words
            if start:
                target = np.zeros_like(words)
                filters.append(target)
            self.raw.insert(target, values[start:stop], hashed)

        _in_parts(values.size, part, work)
        for other in filters[1:]:
            np.bitwise_or(words, other, out=words)


def _size(starts: np.ndarray, stops: np.ndarray) -> int:
    """Return how many numbers are in pieces of memory, after a check of the arrays."""
    writable(starts, np.uint64)
    writable(stops, np.uint64, starts.size)
    return int((stops - starts).sum()) >> 3


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
