"""Which rows of a row group may match a filter, by what is known about pages.

Pages of two columns end at different rows. A row group is therefore divided into spans: between two
borders, each column has one page. What is known is a truth value for each span and predicate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from secure_bloom.parquet.row_ranges import NUM_PARTS, borders
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.pruning.predicates import Predicate
from secure_bloom.sbbf.probes import stored_bytes

_FEW_TEXTS, _FEW_NUMBERS = 16, 4  # that a page is searched for: decoding is faster for more


class Spans(NamedTuple):
    """Rows of a row group, in their order, without overlaps.

    Attributes
    ----------
    starts, ends : numpy.ndarray, int64
        The first row of each span, and the one behind its last.
    """

    starts: np.ndarray
    ends: np.ndarray

    @property
    def num_rows(self) -> int:
        """The number of rows in all spans."""
        return int((self.ends - self.starts).sum())

    def as_truth(self, num_rows: int) -> PageTruth:
        """Return them as if each were a page, in a row group of so many rows."""
        borders = np.unique(np.concatenate([[0, num_rows], self.starts, self.ends]))
        return borders, np.isin(borders[:-1], self.starts)

    def rows(self) -> np.ndarray:
        """Return the number of each row."""
        return np.concatenate([np.zeros(0, np.int64), *map(np.arange, self.starts, self.ends)])

    def parts(self, most: int) -> Iterator[Spans]:
        """Yield the same spans, in parts of at most so many rows."""
        starts, ends, room = [], [], most
        for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True):
            while start < end:
                stop = min(end, start + room)
                starts.append(start)
                ends.append(stop)
                room -= stop - start
                start = stop
                if not room:
                    yield Spans(np.array(starts), np.array(ends))
                    starts, ends, room = [], [], most
        if starts:
            yield Spans(np.array(starts), np.array(ends))


#: for one predicate: the first row of each page with the number of rows behind them, and whether
#: the predicate may hold in each page
PageTruth: TypeAlias = tuple[np.ndarray, np.ndarray]


def spans_where(alternatives: Sequence[Sequence[PageTruth | None]], num_rows: int) -> Spans:
    """Return the rows for which one of the alternatives may hold.

    An alternative has a truth for each predicate, None if nothing is known about it.
    """
    known = [truth for some in alternatives for truth in some if truth is not None]
    borders = np.unique(np.concatenate([np.array([0, num_rows]), *(rows for rows, _ in known)]))
    may_hold = np.zeros(len(borders) - 1, bool)
    for some in alternatives:
        may_all = np.ones(len(borders) - 1, bool)
        for rows, pages in (truth for truth in some if truth is not None):
            may_all &= pages[np.searchsorted(rows, borders[:-1], "right") - 1]
        may_hold |= may_all
    changes = np.flatnonzero(np.diff(np.concatenate([[False], may_hold, [False]]).astype(np.int8)))
    return Spans(borders[changes[::2]], borders[changes[1::2]])


def rows_in_parts(parts: int, num_rows: int) -> Spans:
    """Return the rows of some parts of a row group, see :mod:`.row_ranges`."""
    are_in = np.array([parts >> number & 1 for number in range(NUM_PARTS)], bool)
    return spans_where([[(borders(num_rows), are_in)]], num_rows)


def pages_with(first_rows: np.ndarray, spans: Spans) -> np.ndarray:
    """Return the numbers of the pages that have rows of some spans.

    ``first_rows`` are those of the pages, and the number of rows behind them.
    """
    first = np.searchsorted(first_rows, spans.starts, "right") - 1
    last = np.searchsorted(first_rows, spans.ends, "left") - 1
    return np.unique(np.concatenate([np.zeros(0, np.int64), *map(np.arange, first, last + 1)]))


def searched_bytes(predicate: Predicate, leaf: LeafColumn) -> Callable[[bytes], bool] | None:
    """Return a function that tells whether plain values may have one that the predicate wants.

    It takes the uncompressed body of a page, or of a dictionary page, with plain encoding: the
    bytes of an equal value stand in it as they are. None if the predicate or the type has several
    bytes for one value, or none that are certain.
    """
    values, physical = predicate.candidates, leaf.type.physical_type
    few = _FEW_TEXTS if physical == "BYTE_ARRAY" else _FEW_NUMBERS
    if leaf.is_repeated or values is None or not 0 < len(values) <= few \
            or physical not in _SEARCHED:
        return None
    wanted = []
    for value in values:
        found = stored_bytes(value, leaf.type)
        if found is None:
            return None
        wanted.append(len(found).to_bytes(4, "little") + found if physical == "BYTE_ARRAY"
                      else found)
    if len(wanted) == 1:  # faster than a regular expression
        return lambda body: wanted[0] in body
    pattern = re.compile(b"|".join(map(re.escape, wanted)))
    return lambda body: pattern.search(body) is not None


_SEARCHED = ("BYTE_ARRAY", "INT32", "INT64", "DOUBLE", "FIXED_LEN_BYTE_ARRAY")
