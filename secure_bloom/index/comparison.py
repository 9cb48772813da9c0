"""What an index knows of listed files, from one pass over its entries, which are not kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import NamedTuple

from secure_bloom.index.column_index import ColumnIndex
from secure_bloom.index.stamps import Stamp


class OtherVersion(NamedTuple):
    """An entry of a listed file that has changed since, or is in the index twice."""

    stamp: Stamp
    content: bytes
    row_groups: int


class Comparison:
    """An index, compared with the files that are listed now.

    It takes less memory than :meth:`.ColumnIndex.coverage`, which lookups use again.

    Parameters
    ----------
    index : ColumnIndex
    listing : mapping of str to Stamp

    Attributes
    ----------
    uncovered : list of str
        Listed files that the index does not cover.
    row_groups : int
        Number of row groups of the covered files.
    removed : set of str
        Files that the index covers, and that are not listed.
    others : dict of str to list of OtherVersion
        Entries of listed files that have another stamp, by path.
    """

    def __init__(self, index: ColumnIndex, listing: Mapping[str, Stamp]):
        self.row_groups, self.removed = 0, set[str]()
        self.others: dict[str, list[OtherVersion]] = {}
        self._listing, self._left = listing, dict(listing)
        restamped = index.manifest.body.restamped.keys()
        for page in index.pages():
            paths = list(page.paths)
            if restamped.isdisjoint(paths) \
                    and list(map(self._left.get, paths)) == page.stamps():  # nearly always
                self.row_groups += page.num_row_groups
                deque(map(self._left.pop, paths, repeat(None)), maxlen=0)
            else:
                self._add(index.entries(page))
        self.uncovered = list(self._left)

    def _add(self, entries: Iterable[tuple[str, Stamp, bytes, int]]) -> None:
        for path, stamp, content, row_groups in entries:
            if self._left.get(path) == stamp:
                del self._left[path]
                self.row_groups += row_groups
            elif path not in self._listing:
                self.removed.add(path)
            elif self._listing[path] != stamp:
                self.others.setdefault(path, []).append(OtherVersion(stamp, content, row_groups))

    def covered(self) -> list[str]:
        """Return the paths of the listed files that the index covers."""
        return [path for path in self._listing if path not in self._left]

    @property
    def earlier(self) -> dict[str, list[bytes]]:
        """Content of the uncovered files that the index knows with another stamp, by path."""
        return {path: [one.content for one in entries] for path, entries in self.others.items()
                if path in self._left}

    @property
    def has_several_versions(self) -> bool:
        """Whether the index covers two versions of a listed file."""
        return any(path not in self._left or len({one.stamp for one in entries}) > 1
                   for path, entries in self.others.items())
