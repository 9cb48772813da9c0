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
_NONE = np.empty(0, np.uint64)
_OF_A_THREAD = 1 << 17  # pairs: a few milliseconds of work


class SortedPairs(NamedTuple):
    """Pairs in order, in ``2**bits`` arrays by their first bits."""

    arrays: list[np.ndarray]
    bits: int

    @classmethod
    def of(cls, parts: list[np.ndarray], range_bits: int) -> SortedPairs:
        """Sort pairs; those that differ in their ranges alone become one.

        ``parts`` has the pairs in arrays in any order. It is empty afterwards, and the arrays may
        have been changed: fresh memory would take longer than sorting.
        """
        total = sum(part.size for part in parts)
        if total <= 2 * _SLICE:
            found = sorted_pairs(parts, are_sorted=False, range_bits=range_bits)
            parts.clear()
            return cls([found], 0)
        bits = min(_DIVIDED_BITS, ((total - 1) // _SLICE).bit_length())
        joined = list(_joined(parts))
        own, step = local(), 1 << _DIVIDED_BITS - bits

        def spare(size: int) -> np.ndarray:
            """Return memory of this thread."""
            if getattr(own, "spare", _NONE).size < size:
                own.spare = np.empty(size + size // 8, np.uint64)
            found: np.ndarray = own.spare
            return found[:size]

        def divide(part: np.ndarray) -> list[int]:
            copied = spare(part.size)
            copied[:] = part
            bounds: list[int] = kernels_for(part.size).distribute(copied, part)[::step].tolist()
            return bounds

        def sort(number: int) -> np.ndarray:
            some = [part[bounds[number]:bounds[number + 1]] for part, bounds in divided]
            return sorted_pairs(some, bits, are_sorted=False, range_bits=range_bits,
                                spare=spare(sum(one.size for one in some)))

        # Threads are not kept: a fork would not have them.
        with ThreadPoolExecutor(min(pa.cpu_count(), total // _OF_A_THREAD)) as pool:
            divided = list(zip(joined, pool.map(divide, joined), strict=True))
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
        yield some[0] if len(some) == 1 and some[0].flags.writeable else np.concatenate(some)
