"""Collect the fingerprints of row groups in bounded memory, then write them as a segment.

Sorted runs that exceed the budget are spilled to an anonymous temporary file. A spilled pair is 38
bits of a keyed fingerprint and a row-group number: without the key it reveals only which row groups
of the segment share a value.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from threading import Lock
from typing import BinaryIO

import numpy as np
import pyarrow.fs as pa_fs

from secure_bloom.index.file_table import FileEntry, FileTable
from secure_bloom.index.geometry import (
    MAX_PAIRS,
    MAX_ROW_GROUPS,
    Geometry,
    pack,
    sorted_pairs,
)
from secure_bloom.index.sealing import IndexKey
from secure_bloom.index.segment import SegmentInfo
from secure_bloom.index.segment_writer import write_segment
from secure_bloom.sbbf.column_type import ColumnType

BUDGET = 128 * 1024 * 1024  #: bytes
_MAX_SLICE_BITS = 12


class SegmentBuilder:
    """Collects the pairs of one segment. Several threads may add to it.

    Parameters
    ----------
    key : IndexKey
    column_type : ColumnType
        Of the column in all files of the segment.
    budget : int
        Bytes of memory for pairs; the process needs about four times as much.
    """

    def __init__(self, key: IndexKey, column_type: ColumnType, budget: int = BUDGET):
        self.column_type = column_type
        self._key, self._budget = key, budget
        self._files: list[FileEntry] = []
        self._waiting: list[np.ndarray] = []
        self._waiting_bytes = self._spilled_pairs = self._num_row_groups = 0
        self._runs: list[_Run] = []
        self._spill: BinaryIO | None = None
        self._lock = Lock()

    def has_room(self, row_groups: int) -> bool:
        """Whether the segment can have a further file with so many row groups."""
        pairs = self._spilled_pairs + self._waiting_bytes // 8
        return self._num_row_groups + row_groups <= MAX_ROW_GROUPS and pairs < MAX_PAIRS // 2

    def add_file(self, entry: FileEntry) -> AddedFile:
        """Add a file, whose values are then added by the result."""
        with self._lock:
            added = AddedFile(self, len(self._files), self._num_row_groups)
            self._files.append(entry)
            self._num_row_groups += entry.row_groups
        return added

    @property
    def num_files(self) -> int:
        """Number of files that the segment will cover."""
        return sum(entry.size >= 0 for entry in self._files)

    def set_void(self, number: int) -> None:
        """Make the entry of a file cover no file."""
        self._files[number] = self._files[number].void()

    def add(self, group: int, hashes: np.ndarray) -> None:
        """Add the hashes of values (XXH64, uint64) of a row group of the segment."""
        pairs = sorted_pairs([pack(self._key.fingerprints(hashes), group)])
        with self._lock:
            self._waiting.append(pairs)
            self._waiting_bytes += pairs.nbytes
            if self._waiting_bytes >= self._budget // 3:
                self._spill_run()

    def write(self, filesystem: pa_fs.FileSystem, folder: str) -> SegmentInfo:
        """Write the segment."""
        run = sorted_pairs(self._waiting)
        self._waiting = []
        total = self._spilled_pairs + run.size
        geometry = Geometry.of(total, self._num_row_groups)
        slice_bits = slice_bits_for(total, self._budget, geometry.page_bits)
        slices = self._slices(run, slice_bits)
        return write_segment(filesystem, folder, self._key, self.column_type, geometry, slices,
                             slice_bits, FileTable.of(self._files))

    def close(self) -> None:
        """Discard what was collected."""
        self._waiting, self._runs = [], []
        if self._spill is not None:
            self._spill.close()

    def _spill_run(self) -> None:
        if self._spill is None:
            self._spill = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by close()
        run = sorted_pairs(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        offset = self._spill.seek(0, os.SEEK_END)
        data = run.view(np.uint8).data
        while data:
            data = data[self._spill.write(data):]
        self._runs.append(_Run(self._spill.fileno(), offset, slice_bounds(run, _MAX_SLICE_BITS)))
        self._spilled_pairs += run.size

    def _slices(self, last: np.ndarray, slice_bits: int) -> Iterator[np.ndarray]:
        bounds = slice_bounds(last, slice_bits)
        step = 1 << _MAX_SLICE_BITS - slice_bits
        for number in range(1 << slice_bits):
            parts = [last[bounds[number]:bounds[number + 1]]]
            parts += [run.read(number * step, (number + 1) * step) for run in self._runs]
            yield sorted_pairs(parts)


class AddedFile:
    """A file of a segment that is being built."""

    def __init__(self, builder: SegmentBuilder, number: int, first_group: int):
        self._builder, self._number, self._first_group = builder, number, first_group

    def add(self, row_group: int, hashes: np.ndarray) -> None:
        """Add the hashes of values of one of its row groups."""
        self._builder.add(self._first_group + row_group, hashes)

    def set_void(self) -> None:
        """Do not cover this file: not all its values are known."""
        self._builder.set_void(self._number)


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


def slice_bits_for(pairs: int, budget: int, limit: int) -> int:
    """Return into how many slices, as a power of two, to divide pairs that are sorted together."""
    # A pair has 8 bytes, and is copied a few times. A million pairs stay in the cache.
    wanted = max(1, 32 * pairs // budget, pairs >> 20)
    return min(_MAX_SLICE_BITS, limit, (wanted - 1).bit_length())


def slice_bounds(pairs: np.ndarray, slice_bits: int) -> np.ndarray:
    """Return where the slices of sorted pairs begin, and the end of the last one."""
    if slice_bits == 0:
        return np.array([0, pairs.size])
    firsts = np.arange(1 << slice_bits, dtype=np.uint64) << np.uint64(64 - slice_bits)
    return np.append(np.searchsorted(pairs, firsts), pairs.size)
