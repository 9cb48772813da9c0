"""Where in a row group some rows are, roughly: in which half, quarter, eighth, 16th or 32nd of it.

A *range* is a number: 1 is all rows, 2 and 3 are the halves, 4 to 7 the quarters, and so on: the
halves of range r are 2 r and 2 r + 1. Of n rows, row i is in the half 2 + (2 i // n), the quarter
4 + (4 i // n), and so on. So a range means the same rows, whatever pages they are stored in.

Any rows of a row group are also written as *parts*: a number with one bit for each 32nd, the lowest
bit for the first one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

RANGE_BITS = 6  #: of a range
NUM_PARTS = 1 << RANGE_BITS - 1  #: smallest ranges of a row group
ALL_ROWS = 1  #: the range that has all rows
ALL_PARTS = (1 << NUM_PARTS) - 1
LEAST_ROWS = 1 << 16  #: of a row group; in a smaller one, a column has few pages


class Piece(NamedTuple):
    """Successive rows of a row group, from ``start`` to before ``stop``, and a range with them."""

    range: int
    start: int
    stop: int


def borders(num_rows: int) -> np.ndarray:
    """Return the first row of each part, and the number of rows behind the last one; int64."""
    return -(-np.arange(NUM_PARTS + 1, dtype=np.int64) * num_rows // NUM_PARTS)


def pieces(start: int, stop: int, num_rows: int, most: int) -> Iterator[Piece]:
    """Divide rows of a row group so that each piece is in the smallest ranges, if it is large.

    Parameters
    ----------
    num_rows : int
        Of the row group; 0 if it is not known in which rows values are.
    most : int
        Rows of a piece at most.
    """
    has_ranges = num_rows >= LEAST_ROWS and stop <= num_rows
    while start < stop:
        part = start * NUM_PARTS // num_rows if has_ranges else 0
        end = -(-(part + 1) * num_rows // NUM_PARTS) if has_ranges else stop
        end = min(stop, end, start + most)
        yield Piece(NUM_PARTS + part if has_ranges else ALL_ROWS, start, end)
        start = end


def are_worth_it(rows: Sequence[int], row_groups: Sequence[int]) -> bool:
    """Whether most rows are in large row groups; the numbers are those of files."""
    large = sum(count for count, groups in zip(rows, row_groups, strict=True)
                if count >= LEAST_ROWS * max(groups, 1))
    return 0 < sum(rows) <= 2 * large


def narrowed(ranges: np.ndarray, bits: int) -> np.ndarray:
    """Return the smallest ranges around others (uint64) whose numbers have so many bits."""
    return ranges >> _LENGTHS[ranges >> np.uint64(bits)]


def parts_of(ranges: np.ndarray) -> np.ndarray:
    """Return the parts that ranges (uint64) have; uint64."""
    return _PARTS[ranges]


_ALL = np.maximum(np.arange(1 << RANGE_BITS), ALL_ROWS)  # 0 is no range, and says nothing
_DEPTH = np.array([int(one).bit_length() - 1 for one in _ALL])
_FIRST = ((_ALL << RANGE_BITS - 1 - _DEPTH) - NUM_PARTS).astype(np.uint64)
_LAST = (((_ALL + 1) << RANGE_BITS - 1 - _DEPTH) - NUM_PARTS - 1).astype(np.uint64)
_LENGTHS = np.array([int(one).bit_length() for one in range(1 << RANGE_BITS)], np.uint64)
_PARTS = np.array([(1 << int(last) + 1) - (1 << int(first))
                   for first, last in zip(_FIRST, _LAST, strict=True)], np.uint64)
