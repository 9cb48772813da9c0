"""Pairs of fingerprint and place in bounded memory, in any order, to be read in order.

A place is a row group, and the range of its rows that has the value.

Sorted runs that exceed the budget are spilled to an anonymous temporary file. A spilled pair is 38
bits of a keyed fingerprint and a place: without the key it reveals only which row groups of the
segment share a value, and about where.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import BinaryIO

import numpy as np

from secure_bloom.index.geometry import CACHED_PAIRS, place_of, sorted_pairs
from secure_bloom.index.pair_sorting import DIVIDED_BITS, PART, DividedPairs, SortedPairs
from secure_bloom.parquet.row_ranges import RANGE_BITS

_MAX_SLICE_BITS = 12
_MANY_PARTS = 1 << 14  # small arrays take more memory than their pairs


class PairStore:
    """Collects pairs. Several threads may add to it.

    An error while pairs are added, such as a full disk, may lose pairs of every file so far. So
    nothing can be read after it: an index without them would rule out files that hold a value.

    Parameters
    ----------
    budget : int
        Bytes of memory for pairs that are collected. Many are sorted in place.
    """

    def __init__(self, budget: int):
        self._limit = pairs_in_memory(budget)
        self._waiting: list[np.ndarray] = []  # until they are worth dividing
        self._num_waiting = 0
        self._parts: list[DividedPairs] = []
        self._num_in_memory = self._num_spilled = 0
        self._runs: list[_Run] = []
        self._sorted: SortedPairs | None = None
        self._spill: BinaryIO | None = None
        self._lost: BaseException | None = None
        self._lock = Lock()

    def __len__(self) -> int:
        """Number of pairs; some may be counted several times."""
        return self._num_in_memory + self._num_spilled

    def add(self, pairs: np.ndarray) -> None:
        """Add pairs, in any order; the array is kept."""
        with self._noting_loss(), self._lock:
            self._waiting.append(pairs)
            self._num_waiting += pairs.size
            if self._num_waiting >= PART:
                self._divide()
            elif len(self._waiting) >= _MANY_PARTS:
                self._waiting = [np.concatenate(self._waiting)]
            self._added(pairs.size)

    def add_parts(self, parts: Iterable[DividedPairs], first_group: int) -> None:
        """Add :meth:`parts` of another store, which may be changed.

        Their row groups are counted from ``first_group``.
        """
        for pairs, bounds in parts:
            if first_group:
                pairs += place_of(first_group, 0)
            if pairs.size < PART:
                self.add(pairs)
                continue
            with self._noting_loss(), self._lock:
                self._parts.append(DividedPairs(pairs, bounds))
                self._added(pairs.size)

    def _added(self, pairs: int) -> None:
        self._num_in_memory += pairs
        if self._num_in_memory >= self._limit:
            run = self._sort()
            if run.size > self._limit // 2:
                self._spill_run(run)
            else:  # many pairs are repeated
                self._waiting, self._num_waiting = [one.copy() for one in run.arrays()], run.size

    def _divide(self) -> None:
        if self._waiting:
            self._parts.append(DividedPairs.of(self._waiting))
            self._waiting, self._num_waiting = [], 0

    @property
    def num_in_memory(self) -> int:
        """Number of pairs that are not spilled."""
        return self._num_in_memory

    def spill(self) -> None:
        """Spill what is in memory."""
        with self._noting_loss(), self._lock:
            self._spill_run(self._sort())

    def parts(self) -> Iterator[DividedPairs]:
        """Yield all pairs. Raises OSError if some were lost."""
        self._check_complete()
        self._divide()
        yield from self._parts
        for run in self._runs:
            yield run.all()

    def finish(self) -> int:
        """Return the number of pairs at most, each counted once if none were spilled.

        Then :meth:`slices` can be called, and nothing added. Raises OSError if some were lost.
        """
        self._check_complete()
        with self._noting_loss():
            self._sorted = self._sort()
        return len(self)

    def slices(self, slice_bits: int) -> Iterator[np.ndarray]:
        """Yield the pairs in order, each once, in ``2**slice_bits`` arrays by their first bits."""
        assert self._sorted is not None
        step = 1 << _MAX_SLICE_BITS - slice_bits
        for number, part in enumerate(self._sorted.slices(slice_bits)):
            yield part if not self._runs else sorted_pairs(
                [part, *(run.read(number * step, (number + 1) * step) for run in self._runs)],
                slice_bits, range_bits=RANGE_BITS)

    def close(self) -> None:
        """Discard what was collected."""
        self._waiting, self._parts, self._runs = [], [], []
        self._sorted = None
        if self._spill is not None:
            self._spill.close()

    @contextmanager
    def _noting_loss(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._lost = error
            raise

    def _check_complete(self) -> None:
        if self._lost is not None:
            raise OSError(f"values could not be collected for the index: {self._lost}") \
                from self._lost

    def _sort(self) -> SortedPairs:
        """Return what is in memory in order, and keep only its number."""
        self._divide()
        found = SortedPairs.of(self._parts, RANGE_BITS)
        self._num_in_memory = found.size
        return found

    def _spill_run(self, run: SortedPairs) -> None:
        if self._spill is None:
            self._spill = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by close()
        self._num_in_memory = 0
        offset = self._spill.seek(0, os.SEEK_END)
        for array in run.arrays():
            data = array.view(np.uint8).data
            while data:
                data = data[self._spill.write(data):]
        sizes = [part.size for part in run.slices(_MAX_SLICE_BITS)]
        self._runs.append(_Run(self._spill.fileno(), offset, np.append(0, np.cumsum(sizes))))
        self._num_spilled += run.size


def pairs_in_memory(budget: int) -> int:
    """Return how many pairs are collected in memory: each has 8 bytes."""
    return budget // 8


class _Run:
    """A sorted run in the temporary file, and where its slices begin."""

    def __init__(self, descriptor: int, offset: int, bounds: np.ndarray):
        self._descriptor, self._offset, self._bounds = descriptor, offset, bounds

    def all(self) -> DividedPairs:
        bounds = self._bounds[::(self._bounds.size - 1) >> DIVIDED_BITS]
        return DividedPairs(self.read(0, self._bounds.size - 1).copy(), bounds)

    def read(self, first: int, last: int) -> np.ndarray:
        start, end = int(self._bounds[first]), int(self._bounds[last])
        parts, at = [], 8 * start
        while at < 8 * end:  # one call reads 2 GiB at most
            part = os.pread(self._descriptor, 8 * end - at, self._offset + at)
            if not part:
                raise OSError("the temporary file is shorter than what was written to it")
            parts.append(part)
            at += len(part)
        return np.frombuffer(b"".join(parts), np.uint64)


def slice_bits_for(pairs: int, budget: int, limit: int = _MAX_SLICE_BITS,
                   together: int = CACHED_PAIRS) -> int:
    """Return into how many slices, as a power of two, to divide pairs.

    About ``together`` pairs are sorted together, or fewer if the budget is small.
    """
    # A pair has 8 bytes, and is copied a few times.
    wanted = max(1, 32 * pairs // budget, pairs // together)
    return min(_MAX_SLICE_BITS, limit, (wanted - 1).bit_length())
