"""Which files an index covers: of those that were listed, or of those that it listed itself."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from random import SystemRandom
from typing import NamedTuple, TypeAlias

from secure_bloom.index.segment import Segment
from secure_bloom.index.stamps import Stamp

_DRAWS = 3  # entries that are looked at for each file wanted, before all are read


class Place(NamedTuple):
    """Where a file is in an index: numbers of the segment, and of the file in it."""

    segment: int
    file: int


class ListedCoverage:
    """Which listed files an index covers.

    Attributes
    ----------
    places : mapping of str to Place
        The covered files by path.
    uncovered : list of str
        The other ones, which must be searched themselves.
    covers_all_entries : bool
        Whether :meth:`covers` is surely true.
    """

    covers_all_entries = False

    def __init__(self, places: Mapping[str, Place], uncovered: list[str]):
        self.places, self.uncovered = places, uncovered

    @property
    def num_covered(self) -> int:
        """Number of covered files."""
        return len(self.places)

    def covers(self, path: str, place: tuple[int, int]) -> bool:
        """Whether an entry of a segment is that of a covered file."""
        return self.places.get(path) == place

    def some_paths(self, most: int) -> Iterator[str]:
        """Yield the paths of some covered files, chosen at random."""
        yield from SystemRandom().sample(list(self.places), min(most, len(self.places)))


class TrustedCoverage:
    """The files that an index covers if only jobs of ours write, and none has since its update.

    They are all files of the table. Nothing here grows with their number, except ``places``.

    Parameters
    ----------
    segments : sequence of Segment
    num_covered : int
        Number of files.
    removed : collection of str
        Paths in segments that no longer existed.
    all_places : callable
        Returns the places of all files in segments, by path and stamp.
    """

    def __init__(self, segments: Sequence[Segment], num_covered: int, removed: Collection[str],
                 all_places: Callable[[], Mapping[tuple[str, Stamp], Place]]):
        self._segments, self.num_covered, self._removed = segments, num_covered, removed
        self._all_places, self.uncovered = all_places, list[str]()
        self.covers_all_entries = not removed

    def covers(self, path: str, place: tuple[int, int]) -> bool:
        """Whether an entry of a segment, which is not void, is that of a covered file."""
        return path not in self._removed

    @cached_property
    def places(self) -> Mapping[str, Place]:
        """The covered files by path."""
        return {path: place for (path, _), place in self._all_places().items()
                if path not in self._removed}

    def some_paths(self, most: int) -> Iterator[str]:
        """Yield the paths of some covered files, chosen at random."""
        ends = list(accumulate(len(segment.files) for segment in self._segments))
        total, found = ends[-1] if ends else 0, 0
        for number in SystemRandom().sample(range(total), min(_DRAWS * most, total)):
            segment = bisect_right(ends, number)
            file = number - (ends[segment - 1] if segment else 0)
            entry = self._segments[segment].files.entry(file)
            if not entry.is_void and self.covers(entry.path, (segment, file)):
                found += 1
                yield entry.path
            if found == most:
                return
        if total > _DRAWS * most:  # nearly all entries are of files that are gone
            yield from SystemRandom().sample(list(self.places), min(most - found, len(self.places)))


Coverage: TypeAlias = ListedCoverage | TrustedCoverage
