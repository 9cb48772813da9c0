"""Merge segments of an index into one, without reading any data file."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow.fs as pa_fs

from secure_bloom.errors import error_location
from secure_bloom.index.building import BUDGET
from secure_bloom.index.file_entry import FileEntry
from secure_bloom.index.file_table import FileTable
from secure_bloom.index.geometry import (
    FINGERPRINT_BITS,
    Geometry,
    pack,
    place_of,
    sorted_pairs,
)
from secure_bloom.index.pair_store import slice_bits_for
from secure_bloom.index.sealing import IndexKey
from secure_bloom.index.segment import Segment
from secure_bloom.index.segment_info import SegmentInfo
from secure_bloom.index.segment_writer import write_segment
from secure_bloom.parquet.row_ranges import ALL_ROWS

_TOGETHER = 1 << 20  # pairs of a slice: sources are read in requests of some hundred KB

#: returns the entry of a file of a segment, perhaps with another stamp; None: it is dropped
Keep = Callable[[Segment, int], FileEntry | None]


def merge(filesystem: pa_fs.FileSystem, folder: str, key: IndexKey, segments: Sequence[Segment],
          keep: Keep, budget: int = BUDGET) -> SegmentInfo:
    """Write one segment with the files of several that are kept; they have one column type.

    Each page is read once, slice by slice.
    """
    plan, files = MergePlan.of(segments, keep, budget)
    slices = plan.slices(folder, segments, range(1 << plan.slice_bits))
    return write_segment(filesystem, folder, key, segments[0].column_type, plan.geometry, slices,
                         plan.slice_bits, files)


class MergePlan(NamedTuple):
    """What several processes need to merge the same segments, each some slices of them.

    ``kept`` says for each segment which of its files the new one has, as booleans. The new one has
    2**slice_bits slices, each with the pairs of successive pages.
    """

    kept: list[np.ndarray]
    geometry: Geometry
    slice_bits: int

    @classmethod
    def of(cls, segments: Sequence[Segment], keep: Keep, budget: int) \
            -> tuple[MergePlan, FileTable]:
        """Return the plan, and the files of the new segment."""
        files: list[FileEntry] = []
        kept = []
        for segment in segments:
            entries = [keep(segment, number) for number in range(len(segment.files))]
            kept.append(np.array([entry is not None for entry in entries]))
            files += filter(None, entries)
        table = FileTable.of(files)
        pairs = sum(segment.pairs for segment in segments)  # at most
        are_known = any(segment.geometry.range_bits for segment in segments)
        geometry = Geometry.of(pairs, table.num_row_groups,
                               has_ranges=are_known and table.has_large_row_groups)
        return cls(kept, geometry,
                   slice_bits_for(pairs, budget, geometry.page_bits, _TOGETHER)), table

    def slices(self, folder: str, segments: Sequence[Segment], numbers: Iterable[int]) \
            -> Iterator[np.ndarray]:
        """Yield the pairs of some slices of the new segment, in order, each once."""
        range_bits = self.geometry.range_bits
        sources = [_Source(segment, renumbered, range_bits,
                           posixpath.join(folder, segment.info.name))
                   for segment, renumbered in zip(segments, self._renumbered(segments),
                                                  strict=True)]
        for number in numbers:
            yield sorted_pairs([part for source in sources
                                for part in source.read(number, self.slice_bits)],
                               range_bits=range_bits)

    def _renumbered(self, segments: Sequence[Segment]) -> Iterator[np.ndarray]:
        """Yield, for each segment, the new numbers of its row groups; -1: the file is dropped."""
        first = 0
        for segment, kept in zip(segments, self.kept, strict=True):
            is_kept = np.repeat(kept, segment.files.rows.row_group_counts)
            yield np.where(is_kept, first + np.cumsum(is_kept) - 1, -1)
            first += int(np.count_nonzero(is_kept))


class _Source:
    """The pairs of a segment with new row-group numbers."""

    def __init__(self, segment: Segment, renumbered: np.ndarray, range_bits: int, path: str):
        self._segment, self._renumbered, self._path = segment, renumbered, path
        self._range_bits = range_bits  # of the new segment
        rows = segment.files.rows
        self._has_ranges = None if all(rows.has_ranges) else \
            np.repeat(rows.has_ranges, rows.row_group_counts)
        self._page: int | None = None
        self._pairs = np.empty(0, np.uint64)

    def read(self, number: int, slice_bits: int) -> Iterator[np.ndarray]:
        """Yield the pairs of a slice, in several arrays."""
        spare = self._segment.geometry.page_bits - slice_bits
        if spare >= 0:
            first = number << spare
            yield from self._decode(first, first + (1 << spare))
            return
        page = number >> -spare  # it has the pairs of several slices
        if page != self._page:
            [self._pairs] = self._decode(page, page + 1)
            self._page = page
        yield self._pairs[self._pairs >> np.uint64(64 - slice_bits) == number]

    def _decode(self, first: int, last: int) -> Iterator[np.ndarray]:
        with error_location(file=self._path):
            yield from map(self._renumber, self._segment.decode(first, last))

    def _renumber(self, decoded: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
        fingerprints, groups, ranges = decoded
        self._segment.files.check_groups(groups)
        if self._has_ranges is not None:
            ranges = np.where(self._has_ranges[groups.astype(np.int64)], ranges,
                              np.uint64(ALL_ROWS))
        new = self._renumbered[groups.astype(np.int64)]
        fingerprints <<= np.uint64(64 - FINGERPRINT_BITS)
        kept = new >= 0
        if not kept.all():
            fingerprints, new, ranges = fingerprints[kept], new[kept], ranges[kept]
        return pack(fingerprints, place_of(new, ranges, self._range_bits))
