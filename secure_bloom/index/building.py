"""Build a segment of an index from the hashes of the values of row groups, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock

import numpy as np
import pyarrow.fs as pa_fs

from secure_bloom.index.file_entry import FileEntry
from secure_bloom.index.file_table import FileTable
from secure_bloom.index.geometry import (
    MAX_NEW_ROW_GROUPS,
    MAX_PAIRS,
    Geometry,
    pack,
    place_of,
)
from secure_bloom.index.pair_sorting import DividedPairs
from secure_bloom.index.pair_store import PairStore, slice_bits_for
from secure_bloom.index.sealing import IndexKey
from secure_bloom.index.segment_info import SegmentInfo
from secure_bloom.index.segment_writer import write_segment
from secure_bloom.parquet.row_ranges import ALL_ROWS
from secure_bloom.sbbf.column_type import ColumnType

BUDGET = 128 * 1024 * 1024  #: bytes


class SegmentBuilder:
    """Collects the pairs of one segment. Several threads may add to it.

    Parameters
    ----------
    key : IndexKey
    column_type : ColumnType
        Of the column in all files of the segment.
    budget : int
        Bytes of memory for pairs that are collected. Many are sorted in place.
    """

    def __init__(self, key: IndexKey, column_type: ColumnType, budget: int = BUDGET):
        self.column_type = column_type
        self._key, self._budget = key, budget
        self._files: list[FileEntry] = []
        self._num_row_groups = 0
        self._pairs = PairStore(budget)
        self._lock = Lock()

    @staticmethod
    def can_have(row_groups: int) -> bool:
        """Whether an empty segment can have a file with so many row groups."""
        return row_groups <= MAX_NEW_ROW_GROUPS

    def has_room(self, row_groups: int) -> bool:
        """Whether the segment can have a further file with so many row groups."""
        return self._num_row_groups + row_groups <= MAX_NEW_ROW_GROUPS \
            and len(self._pairs) < MAX_PAIRS // 2

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

    def add(self, group: int, hashes: np.ndarray, range_: int = ALL_ROWS) -> None:
        """Add the hashes of values (XXH64, uint64) of a range of a row group of the segment."""
        self._pairs.add(pack(self._key.fingerprints(hashes), place_of(group, range_)))

    def add_pairs(self, first_group: int, pairs: Iterable[DividedPairs]) -> None:
        """Add pairs whose row groups are counted from ``first_group``."""
        self._pairs.add_parts(pairs, first_group)

    def write(self, filesystem: pa_fs.FileSystem, folder: str) -> SegmentInfo:
        """Write the segment."""
        total = self._pairs.finish()
        files = FileTable.of(self._files)
        geometry = Geometry.of(total, self._num_row_groups, has_ranges=files.has_large_row_groups)
        slice_bits = slice_bits_for(total, self._budget, geometry.page_bits)
        return write_segment(filesystem, folder, self._key, self.column_type, geometry,
                             map(geometry.repacked, self._pairs.slices(slice_bits)), slice_bits,
                             files)

    def close(self) -> None:
        """Discard what was collected."""
        self._pairs.close()


class AddedFile:
    """A file of a segment that is being built."""

    def __init__(self, builder: SegmentBuilder, number: int, first_group: int):
        self._builder, self._number, self._first_group = builder, number, first_group

    def add(self, row_group: int, hashes: np.ndarray, range_: int = ALL_ROWS) -> None:
        """Add the hashes of values of one of its row groups, or of a range of its rows."""
        self._builder.add(self._first_group + row_group, hashes, range_)

    def add_pairs(self, pairs: Iterable[DividedPairs]) -> None:
        """Add pairs whose row groups are counted from 0 in the file."""
        self._builder.add_pairs(self._first_group, pairs)

    def set_void(self) -> None:
        """Do not cover this file: not all its values are known."""
        self._builder.set_void(self._number)
