"""Many pairs are sorted in slices that fit the cache of a core, by several threads.

Each array of pairs is divided by its first bits, which leaves the pairs of a slice next to each
other in each of them. So no array is needed that has all pairs. They are divided while they are
collected: then the cache still has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import local
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from secure_bloom.index.geometry import CACHED_PAIRS, sorted_pairs
from secure_bloom.sbbf.kernel_choice import kernels_for

DIVIDED_BITS = 8  #: by which arrays are divided: see Bulk.distribute
_SLICE = CACHED_PAIRS  # for so many, the kernel needs one pass less than for more
PART = 1 << 14  #: pairs of an array that is divided; smaller ones are joined
_OF_A_THREAD = 1 << 17  # pairs: a few milliseconds of work


class DividedPairs(NamedTuple):
    """Pairs in the order of their first 8 bits, and the bounds of each group of them."""

    pairs: np.ndarray
    bounds: list[int]

    @classmethod
    def of(cls, parts: Sequence[np.ndarray]) -> DividedPairs:
        """Divide the pairs of some arrays."""
        pairs = parts[0] if len(parts) == 1 else np.concatenate(parts)
        divided = np.empty_like(pairs)
        divided.fill(0)  # distributing them to memory that is not in the cache takes longer
        bounds = kernels_for(pairs.size).distribute(pairs, divided)
        return cls(divided, bounds.tolist())


class SortedPairs(NamedTuple):
    """Pairs in order, in ``2**bits`` arrays by their first bits."""

    arrays: list[np.ndarray]
    bits: int

    @classmethod
    def of(cls, parts: list[DividedPairs], range_bits: int) -> SortedPairs:
        """Sort pairs; those that differ in their ranges alone become one.

        ``parts`` is empty afterwards.
        """
        total = sum(part.pairs.size for part in parts)
        if total <= 2 * _SLICE:
            found = sorted_pairs([part.pairs for part in parts], are_sorted=False,
                                 range_bits=range_bits)
            parts.clear()
            return cls([found], 0)
        bits = min(DIVIDED_BITS, ((total - 1) // _SLICE).bit_length())
        threads = max(1, min(pa.cpu_count(), total // _OF_A_THREAD))
        arrays = _Sorting(parts, bits, range_bits).run(threads)
        parts.clear()
        return cls(arrays, bits)

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

    def __init__(self, parts: Sequence[DividedPairs], bits: int, range_bits: int):
        self._parts, self._bits, self._range_bits = parts, bits, range_bits
        self._of_thread = local()

    def run(self, threads: int) -> list[np.ndarray]:
        # Threads are not kept: a fork would not have them.
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(self._sort, range(1 << self._bits)))

    def _sort(self, number: int) -> np.ndarray:
        """Return a slice of all arrays, sorted."""
        step = 1 << DIVIDED_BITS - self._bits
        first, last = number * step, (number + 1) * step
        some = [part.pairs[part.bounds[first]:part.bounds[last]] for part in self._parts]
        return sorted_pairs(some, self._bits, are_sorted=False, range_bits=self._range_bits,
                            spare=self._spare(sum(one.size for one in some)))

    def _spare(self, size: int) -> np.ndarray:
        """Return memory of this thread: fresh memory would take longer than sorting."""
        found: np.ndarray | None = getattr(self._of_thread, "spare", None)
        if found is None or found.size < size:
            found = self._of_thread.spare = np.empty(size + size // 8, np.uint64)
        return found[:size]
