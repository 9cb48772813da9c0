"""Many pairs are sorted in slices that fit the cache of a core, by several threads.

Each array of pairs is divided by its first bits, which leaves the pairs of a slice next to each
other in each of them. So no array is needed that has all pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from secure_bloom.index.geometry import sorted_pairs
from secure_bloom.sbbf.kernel_choice import kernels_for

_DIVIDED_BITS = 8  # by which arrays are divided: see Bulk.distribute
_SLICE = 1 << 16  # pairs of a slice, for which the kernel needs one pass less
_PART = 1 << 15  # pairs of an array that is divided; smaller ones are joined
_OF_A_THREAD = 1 << 17  # pairs: a few milliseconds of work


class SortedPairs(NamedTuple):
    """Pairs in order, in ``2**bits`` arrays by their first bits."""

    arrays: list[np.ndarray]
    bits: int

    @classmethod
    def of(cls, parts: list[np.ndarray], range_bits: int) -> SortedPairs:
        """Sort pairs; those that differ in their ranges alone become one.

        ``parts`` has the pairs in arrays in any order, and is empty afterwards.
        """
        total = sum(part.size for part in parts)
        bits = min(_DIVIDED_BITS, (max(total - 1, 0) // _SLICE).bit_length())
        if total <= 2 * _SLICE:
            found = sorted_pairs(parts, are_sorted=False, range_bits=range_bits)
            parts.clear()
            return cls([found], 0)
        joined = list(_joined(parts))
        step = 1 << _DIVIDED_BITS - bits

        def divide(_: int) -> tuple[np.ndarray, list[int]]:
            values = joined.pop()  # so its memory can be used again
            divided, bounds = kernels_for(values.size).distribute(values)
            return divided, bounds[::step].tolist()

        def sort(number: int) -> np.ndarray:
            return sorted_pairs([part[bounds[number]:bounds[number + 1]]
                                 for part, bounds in divided], bits, are_sorted=False,
                                range_bits=range_bits)

        # Threads are not kept: a fork would not have them.
        with ThreadPoolExecutor(max(1, min(pa.cpu_count(), total // _OF_A_THREAD))) as pool:
            divided = list(pool.map(divide, range(len(joined))))
            return cls(list(pool.map(sort, range(1 << bits))), bits)

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


def _joined(parts: list[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the pairs in larger arrays, while ``parts`` is emptied."""
    while parts:
        some = [parts.pop()]
        size = some[0].size
        while parts and size < _PART:
            some.append(parts.pop())
            size += some[-1].size
        yield some[0] if len(some) == 1 else np.concatenate(some)
