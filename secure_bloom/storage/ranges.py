"""Parts of a file that are read together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from secure_bloom.errors import FormatError
from secure_bloom.storage.source import Source

_NEAR = 8 * 1024  # bytes between two parts that are read with them
_NEAR_FAR_AWAY = 1024 * 1024  # likewise, where each read is a request to a server
_NEAR_ONE_BY_ONE = 3 * 1024 * 1024  # likewise, where one request waits for the other
_THREADS = 16  # requests at the same time


class Ranges:
    """Some ranges of bytes of a file, in memory.

    Those that lie close are read together. Requests to a server go out at the same time.

    Parameters
    ----------
    source : Source
    ranges : iterable of tuple of int
        Offset and length of each.

    Attributes
    ----------
    num_bytes : int
        That were read, with those between the ranges.

    Raises
    ------
    FormatError
        If a range is not within the file. Nothing has been read then.
    """

    def __init__(self, source: Source, ranges: Iterable[tuple[int, int]]):
        self._source, ranges = source, set(ranges)
        for start, length in ranges:
            self._check(start, length)
        near = _NEAR if not source.is_far else _NEAR_ONE_BY_ONE if source.is_one_by_one \
            else _NEAR_FAR_AWAY
        places = _merged(sorted(ranges), near)
        if source.is_far and len(places) > 1:
            with ThreadPoolExecutor(min(_THREADS, len(places))) as pool:
                self._parts = list(pool.map(lambda one: source.read_at(one[1], one[0]), places))
        else:
            self._parts = [source.read_at(length, start) for start, length in places]
        self._starts = [start for start, _ in places]
        self.num_bytes = sum(map(len, self._parts))

    def read_at(self, nbytes: int, offset: int, /) -> memoryview:
        """Return bytes of the file; what is not in the ranges is read now. Errors as above."""
        number = bisect_right(self._starts, offset) - 1
        if number >= 0:
            start = offset - self._starts[number]
            if start + nbytes <= len(self._parts[number]):
                return memoryview(self._parts[number])[start:start + nbytes]
        self._check(offset, nbytes)
        found = self._source.read_at(nbytes, offset)
        self.num_bytes += len(found)
        return found

    def _check(self, start: int, length: int) -> None:
        if min(start, length) < 0 or start + length > self._source.size:
            raise FormatError("a page or a page index extends beyond the file")


def _merged(ranges: list[tuple[int, int]], near: int) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, length in ranges:
        if merged and start <= sum(merged[-1]) + near:
            before = merged[-1][0]
            merged[-1] = before, max(sum(merged[-1]), start + length) - before
        else:
            merged.append((start, length))
    return merged
