"""Many pairs are sorted in slices that fit the cache of a core, by several threads.

Each array of pairs is divided by its first bits, which leaves the pairs of a slice next to each
other in each of them. So no array is needed that has all pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import local
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from secure_bloom.index.geometry import CACHED_PAIRS, sorted_pairs
from secure_bloom.sbbf.kernel_choice import kernels_for

_DIVIDED_BITS = 8  # by which arrays are divided: see Bulk.distribute
_SLICE = CACHED_PAIRS  # for so many, the kernel needs one pass less than for more
_PART = 1 << 15  # pairs of an array that is divided; smaller ones are joined
_OF_A_THREAD = 1 << 17  # pairs: a few milliseconds of work


class SortedPairs(NamedTuple):
    """Pairs in order, in ``2**bits`` arrays by their first bits."""

    arrays: list[np.ndarray]
    bits: int

    @classmethod
    def of(cls, parts: list[np.ndarray], range_bits: int) -> SortedPairs:
        """Sort pairs; those that differ in their ranges alone become one.

        ``parts`` has the pairs in arrays in any order. It is empty afterwards, and the arrays may
        have been changed.
        """
        total = sum(part.size for part in parts)
        if total <= 2 * _SLICE:
            found = sorted_pairs(parts, are_sorted=False, range_bits=range_bits)
            parts.clear()
            return cls([found], 0)
        bits = min(_DIVIDED_BITS, ((total - 1) // _SLICE).bit_length())
        threads = min(pa.cpu_count(), total // _OF_A_THREAD)
        return cls(_Sorting(list(_joined(parts)), bits, range_bits).run(threads), bits)

    @property
    def size(self) -> int:
        """Number of pairs."""
        return sum(one.size for one in self.arrays)

    def slices(self, slice_bits: int) -> Iterator[np.ndarray]:
        """Yield the pairs in ``2**slice_bits`` arrays by their first bits."""
        if slice_bits <= self.bits:
            step = 1 << self.bits - slice_bits
            for first in range(0, len(self.arrays), step):
                some = self.arrays[first:first + step]
                yield some[0] if step == 1 else np.concatenate(some)
            return
        more = slice_bits - self.bits
        for number, one in enumerate(self.arrays):
            firsts = np.arange((number << more) + 1, number + 1 << more, dtype=np.uint64)
            starts = np.searchsorted(one, firsts << np.uint64(64 - slice_bits))
            yield from (one[start:end] for start, end in pairwise([0, *starts.tolist(), one.size]))


class _Sorting:
    """Pairs in several arrays, which are sorted by threads into ``2**bits`` slices."""

    def __init__(self, arrays: list[np.ndarray], bits: int, range_bits: int):
        self._arrays, self._bits, self._range_bits = arrays, bits, range_bits
        self._bounds: list[list[int]] = []  # of the slices in each array
        self._of_thread = local()

    def run(self, threads: int) -> list[np.ndarray]:
        # Threads are not kept: a fork would not have them.
        with ThreadPoolExecutor(threads) as pool:
            self._bounds = list(pool.map(self._divide, self._arrays))
            return list(pool.map(self._sort, range(1 << self._bits)))

    def _divide(self, array: np.ndarray) -> list[int]:
        """Put the pairs of an array in the order of their slices; return the bounds of these."""
        copied = self._spare(array.size)
        copied[:] = array
        bounds = kernels_for(array.size).distribute(copied, array)
        found: list[int] = bounds[::1 << _DIVIDED_BITS - self._bits].tolist()
        return found

    def _sort(self, number: int) -> np.ndarray:
        """Return a slice of all arrays, sorted."""
        some = [array[bounds[number]:bounds[number + 1]]
                for array, bounds in zip(self._arrays, self._bounds, strict=True)]
        return sorted_pairs(some, self._bits, are_sorted=False, range_bits=self._range_bits,
                            spare=self._spare(sum(one.size for one in some)))

    def _spare(self, size: int) -> np.ndarray:
        """Return memory of this thread: fresh memory would take longer than sorting."""
        found: np.ndarray | None = getattr(self._of_thread, "spare", None)
        if found is None or found.size < size:
            found = self._of_thread.spare = np.empty(size + size // 8, np.uint64)
        return found[:size]


def _joined(parts: list[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the pairs in larger arrays, while ``parts`` is emptied."""
    while parts:
        some = [parts.pop()]
        size = some[0].size
        while parts and size < _PART:
            some.append(parts.pop())
            size += some[-1].size
        yield some[0] if len(some) == 1 and some[0].flags.writeable else np.concatenate(some)
