"""Ranges of bytes that the footer of a file names: each part of it has its own."""

from __future__ import annotations

from array import array

import numpy as np

from secure_bloom.errors import FormatError
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.storage.rewrite import Kept


class Ranges:
    """Detects parts of column chunks that share bytes: pages, filters and page indexes.

    What is copied for an open column could otherwise be the pages of one that is encrypted.
    """

    def __init__(self) -> None:
        self._starts, self._ends = array("q"), array("q")
        self._last: list[tuple[int, ColumnChunk]] = []  # of each column chunk, its last part

    def add(self, chunk: ColumnChunk, *parts: Kept | None) -> None:
        """Add the parts of a column chunk, which the file has."""
        for part in parts:
            if part is not None and part.end > part.start:
                self._starts.append(part.start)
                self._ends.append(part.end)
        self._last.append((len(self._starts), chunk))

    def check(self) -> None:
        """Raise FormatError if two parts overlap."""
        starts, ends = (np.frombuffer(one, np.int64) for one in (self._starts, self._ends))
        order = np.argsort(starts, kind="stable")
        [overlaps] = np.nonzero(starts[order[1:]] < np.maximum.accumulate(ends[order])[:-1])
        if len(overlaps):
            number = order[overlaps[0] + 1]
            chunk = next(chunk for last, chunk in self._last if number < last)
            raise FormatError("parts of this column overlap with others of the file: pages, "
                              "filters or page indexes", **chunk.place)
