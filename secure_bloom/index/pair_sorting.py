"""Many pairs are sorted in slices that fit the cache of a core, by several threads.

Each array of pairs is divided by its first bits, which leaves the pairs of a slice next to each
other in each of them. So no array is needed that has all pairs. They are divided while they are
collected: then the cache still has them. A sorted slice is stored where its pairs were, in pieces:
fresh memory would take more time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
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
    bounds: np.ndarray

    @classmethod
    def of(cls, parts: Sequence[np.ndarray]) -> DividedPairs:
        """Divide the pairs of some arrays."""
        pairs = parts[0] if len(parts) == 1 else np.concatenate(parts)
        divided = np.empty_like(pairs)
        divided.fill(0)  # distributing them to memory that is not in the cache takes longer
        bounds = kernels_for(pairs.size).distribute(pairs, divided)
        return cls(divided, bounds)


class SortedPairs(NamedTuple):
    """Pairs in order, in ``2**bits`` slices by their first bits: their sizes, and what reads one.

    A slice that was read may be changed.
    """

    sizes: list[int]
    bits: int
    read: Callable[[int], np.ndarray]

    @classmethod
    def of(cls, parts: list[DividedPairs], range_bits: int) -> SortedPairs:
        """Sort pairs, many in place; those that differ in their ranges alone become one.

        ``parts`` is empty afterwards.
        """
        total = sum(part.pairs.size for part in parts)
        if total <= 2 * _SLICE:
            found = sorted_pairs([part.pairs for part in parts], are_sorted=False,
                                 range_bits=range_bits)
            parts.clear()
            return cls([found.size], 0, [found].__getitem__)
        bits = min(DIVIDED_BITS, ((total - 1) // _SLICE).bit_length())
        threads = max(1, min(pa.cpu_count(), total // _OF_A_THREAD))
        slices = _Slices(parts, bits)
        parts.clear()
        return cls(slices.sort(threads, range_bits), bits, slices.read)

    @property
    def size(self) -> int:
        """Number of pairs."""
        return sum(self.sizes)

    def arrays(self) -> Iterator[np.ndarray]:
        """Yield each slice."""
        return map(self.read, range(len(self.sizes)))

    def slices(self, slice_bits: int) -> Iterator[np.ndarray]:
        """Yield the pairs in ``2**slice_bits`` arrays by their first bits."""
        if slice_bits <= self.bits:
            step = 1 << self.bits - slice_bits
            for first in range(0, len(self.sizes), step):
                some = [self.read(number) for number in range(first, first + step)]
                yield some[0] if step == 1 else np.concatenate(some)
            return
        more = slice_bits - self.bits
        for number, one in enumerate(self.arrays()):
            firsts = np.arange((number << more) + 1, number + 1 << more, dtype=np.uint64)
            starts = np.searchsorted(one, firsts << np.uint64(64 - slice_bits))
            yield from (one[start:end] for start, end in pairwise([0, *starts.tolist(), one.size]))


class _Slices:
    """Pairs in several arrays, and their ``2**bits`` slices, which have a piece of each array."""

    def __init__(self, parts: Sequence[DividedPairs], bits: int):
        self._bits = bits
        self._sizes: list[int] = []
        self._arrays = [part.pairs for part in parts]  # kept: the bounds are addresses in them
        step = 1 << DIVIDED_BITS - bits
        self._bounds = np.array([part.pairs.ctypes.data + 8 * part.bounds[::step]
                                 for part in parts], np.uint64).T.copy()
        self._room = (np.diff(self._bounds, axis=0).sum(axis=1) >> np.uint64(3)).tolist()
        self._of_thread = local()

    def sort(self, threads: int, range_bits: int) -> list[int]:
        """Sort each slice; return how many pairs it has then."""
        # Threads are not kept: a fork would not have them.
        with ThreadPoolExecutor(threads) as pool:
            self._sizes = list(pool.map(partial(self._sort, range_bits), range(1 << self._bits)))
        return self._sizes

    def read(self, number: int) -> np.ndarray:
        """Return a sorted slice."""
        pairs = np.empty(self._room[number], np.uint64)
        kernels_for(pairs.size).gather(*self._bounds[number:number + 2], pairs)
        return pairs[:self._sizes[number]]

    def _sort(self, range_bits: int, number: int) -> int:
        pairs, spare = self._memory(self._room[number])
        kernels, pieces = kernels_for(pairs.size), self._bounds[number:number + 2]
        kernels.gather(*pieces, pairs)
        kernels.sort(pairs, self._bits, spare=spare)
        size: int = kernels.unite(pairs, range_bits)
        kernels.scatter(pairs[:size], *pieces)
        return size

    def _memory(self, size: int) -> np.ndarray:
        """Return two arrays of this thread: fresh memory would take longer than sorting."""
        found: np.ndarray | None = getattr(self._of_thread, "memory", None)
        if found is None or found.shape[1] < size:
            found = self._of_thread.memory = np.empty((2, size + size // 8), np.uint64)
        return found[:, :size]
