"""Merge segments of an index into one, without reading any data file."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow.fs as pa_fs

from secure_bloom.errors import error_location
from secure_bloom.index.building import BUDGET
from secure_bloom.index.file_table import FileEntry, FileTable
from secure_bloom.index.geometry import FINGERPRINT_BITS, Geometry, pack, sorted_pairs
from secure_bloom.index.pair_store import slice_bits_for
from secure_bloom.index.sealing import IndexKey
from secure_bloom.index.segment import Segment, SegmentInfo
from secure_bloom.index.segment_writer import write_segment

_TOGETHER = 1 << 20  # pairs of a slice: sources are read in requests of some hundred KB

#: returns the entry of a file of a segment, perhaps with another stamp; None: it is dropped
Keep = Callable[[Segment, int], FileEntry | None]


def merge(filesystem: pa_fs.FileSystem, folder: str, key: IndexKey, segments: Sequence[Segment],
          keep: Keep, budget: int = BUDGET) -> SegmentInfo:
    """Write one segment with the files of several that are kept; they have one column type.

    Each page is read once, slice by slice.
    """
    files: list[FileEntry] = []
    numbers = []  # the new number of each row group of a segment; -1: dropped
    next_group = 0
    for segment in segments:
        renumbered = np.full(segment.files.num_row_groups, -1, np.int64)
        for number, first in enumerate(segment.files.first_group[:-1].tolist()):
            entry = keep(segment, number)
            if entry is None:
                continue
            files.append(entry)
            renumbered[first:first + entry.row_groups] = \
                np.arange(next_group, next_group + entry.row_groups)
            next_group += entry.row_groups
        numbers.append(renumbered)
    pairs = sum(segment.pairs for segment in segments)  # at most
    geometry = Geometry.of(pairs, next_group)
    slice_bits = slice_bits_for(pairs, budget, geometry.page_bits, _TOGETHER)
    sources = [_Source(segment, renumbered, posixpath.join(folder, segment.info.name))
               for segment, renumbered in zip(segments, numbers, strict=True)]
    slices = (sorted_pairs([part for source in sources for part in source.read(number, slice_bits)])
              for number in range(1 << slice_bits))
    return write_segment(filesystem, folder, key, segments[0].column_type, geometry, slices,
                         slice_bits, FileTable.of(files))


class _Source:
    """The pairs of a segment with new row-group numbers."""

    def __init__(self, segment: Segment, renumbered: np.ndarray, path: str):
        self._segment, self._renumbered, self._path = segment, renumbered, path
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

    def _renumber(self, decoded: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        fingerprints, groups = decoded
        self._segment.files.check_groups(groups)
        new = self._renumbered[groups.astype(np.int64)]
        fingerprints <<= np.uint64(64 - FINGERPRINT_BITS)
        kept = new >= 0
        return pack(fingerprints, new) if kept.all() else pack(fingerprints[kept], new[kept])
