"""Pairs of fingerprint and row group in bounded memory, in any order, to be read in order.

Sorted runs that exceed the budget are spilled to an anonymous temporary file. A spilled pair is 38
bits of a keyed fingerprint and a row-group number: without the key it reveals only which row groups
of the segment share a value.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import BinaryIO

import numpy as np

from secure_bloom.index.geometry import CACHED_PAIRS, sorted_pairs

_MAX_SLICE_BITS = 12


class PairStore:
    """Collects pairs. Several threads may add to it.

    An error while pairs are added, such as a full disk, may lose pairs of every file so far. So
    nothing can be read after it: an index without them would rule out files that hold a value.

    Parameters
    ----------
    budget : int
        Bytes of memory for pairs; the process needs about four times as much. A third of them is
        used for pairs that are collected.
    """

    def __init__(self, budget: int):
        self._budget, self._limit = budget, budget // 24  # pairs that are in memory
        self._new: list[np.ndarray] = []
        self._sorted: list[np.ndarray] = []
        self._num_new = self._num_sorted = self._num_spilled = 0
        self._runs: list[_Run] = []
        self._spill: BinaryIO | None = None
        self._lost: BaseException | None = None
        self._lock = Lock()

    def __len__(self) -> int:
        """Number of pairs; some may be counted several times."""
        return self.num_in_memory + self._num_spilled

    def add(self, pairs: np.ndarray) -> None:
        """Add pairs, in any order."""
        with self._noting_loss():
            with self._lock:
                self._new.append(pairs)
                self._num_new += pairs.size
                if self._num_new < min(CACHED_PAIRS, self._limit):
                    return
                new = self._taken()
            self._sort(new)

    def add_sorted(self, pairs: np.ndarray) -> None:
        """Add pairs that are in order."""
        with self._noting_loss(), self._lock:
            self._keep([pairs])

    @property
    def num_in_memory(self) -> int:
        """Number of pairs that are not spilled."""
        return self._num_new + self._num_sorted

    def spill(self) -> None:
        """Spill what is in memory."""
        with self._noting_loss(), self._lock:
            self._spill_run()

    def parts(self) -> Iterator[np.ndarray]:
        """Yield all pairs, in several arrays, each in order. Raises OSError if some were lost."""
        self._check_complete()
        if self._new:
            self._sort(self._taken())
        yield from self._sorted
        for run in self._runs:
            yield run.read(0, 1 << _MAX_SLICE_BITS)

    def finish(self) -> int:
        """Return the number of pairs at most, each counted once if none were spilled.

        Then :meth:`slices` can be called, and nothing added. Raises OSError if some were lost.
        """
        self._check_complete()
        self._sorted = [self._run()]
        self._num_sorted = self._sorted[0].size
        return len(self)

    def slices(self, slice_bits: int) -> Iterator[np.ndarray]:
        """Yield the pairs in order, each once, in ``2**slice_bits`` arrays by their first bits."""
        [last] = self._sorted
        bounds = slice_bounds(last, slice_bits)
        step = 1 << _MAX_SLICE_BITS - slice_bits
        for number in range(1 << slice_bits):
            part = last[bounds[number]:bounds[number + 1]]
            yield part if not self._runs else sorted_pairs(
                [part, *(run.read(number * step, (number + 1) * step) for run in self._runs)],
                slice_bits)

    def close(self) -> None:
        """Discard what was collected."""
        self._new, self._sorted, self._runs = [], [], []
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

    def _taken(self) -> list[np.ndarray]:
        new, self._new, self._num_new = self._new, [], 0
        return new

    def _sort(self, new: list[np.ndarray]) -> None:
        together = np.concatenate(new)
        parts = [sorted_pairs([together[start:start + 2 * CACHED_PAIRS]])
                 for start in range(0, together.size, 2 * CACHED_PAIRS)]
        with self._lock:
            self._keep(parts)

    def _keep(self, parts: list[np.ndarray]) -> None:
        self._sorted += parts
        self._num_sorted += sum(part.size for part in parts)
        if self._num_sorted >= self._limit:
            self._spill_run()

    def _run(self) -> np.ndarray:
        """Return what is in memory in order, and forget it."""
        if self._new:
            self._sorted.append(sorted_pairs([np.concatenate(self._taken())]))
        parts, self._sorted, self._num_sorted = self._sorted, [], 0
        if len(parts) == 1:
            return parts[0]
        slice_bits = slice_bits_for(sum(part.size for part in parts), self._budget)
        bounds = [slice_bounds(part, slice_bits) for part in parts]
        return np.concatenate([np.empty(0, np.uint64), *(
            sorted_pairs([part[of_part[number]:of_part[number + 1]]
                          for part, of_part in zip(parts, bounds, strict=True)], slice_bits)
            for number in range(1 << slice_bits if parts else 0))])

    def _spill_run(self) -> None:
        if self._spill is None:
            self._spill = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by close()
        run = self._run()
        offset = self._spill.seek(0, os.SEEK_END)
        data = run.view(np.uint8).data
        while data:
            data = data[self._spill.write(data):]
        self._runs.append(_Run(self._spill.fileno(), offset, slice_bounds(run, _MAX_SLICE_BITS)))
        self._num_spilled += run.size


class _Run:
    """A sorted run in the temporary file, and where its slices begin."""

    def __init__(self, descriptor: int, offset: int, bounds: np.ndarray):
        self._descriptor, self._offset, self._bounds = descriptor, offset, bounds

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


def slice_bounds(pairs: np.ndarray, slice_bits: int) -> np.ndarray:
    """Return where the slices of sorted pairs begin, and the end of the last one."""
    if slice_bits == 0:
        return np.array([0, pairs.size])
    firsts = np.arange(1 << slice_bits, dtype=np.uint64) << np.uint64(64 - slice_bits)
    return np.append(np.searchsorted(pairs, firsts), pairs.size)
