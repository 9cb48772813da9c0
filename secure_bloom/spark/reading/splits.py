"""Splitting of files among tasks: large files are split into ranges, small files are combined.

As in Spark and parquet-java, ranges are computed without opening the file, and a row group belongs
to the range that contains its middle. So every row group is read by exactly one task, wherever the
file is split.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from secure_bloom.index.identity import Identity
from secure_bloom.parquet.footer import Footer
from secure_bloom.pruning.found_rows import FoundRows
from secure_bloom.pruning.row_groups import PruningResult
from secure_bloom.reading.open_file import OpenFile


@dataclass(frozen=True)
class Looked:
    """What the driver found in a file: the row groups that remain after each step."""

    after_index: tuple[int, ...]
    after_statistics: tuple[int, ...]
    after_filters: tuple[int, ...]

    def within(self, row_groups: list[int]) -> tuple[list[int], PruningResult]:
        """Return what was found about some row groups."""
        index, statistics, filters = (
            [group for group in row_groups if group in remaining]
            for remaining in (self.after_index, self.after_statistics, self.after_filters))
        return index, PruningResult(statistics, filters)


@dataclass(frozen=True)
class DataFile:
    """A file of a folder, as listed.

    ``partition`` has the file's values of the partition columns, as text. ``row_groups`` are those
    to read at most, and ``read_bytes`` is about their size; None: all. ``parts`` are those of each
    row group that an index has found, see :mod:`.row_ranges`. ``looked`` is what the driver found
    in the file, if it has looked. ``identity`` is that of the file of which an index knows the row
    groups, ``tag`` that of its stamp.
    """

    path: str
    size: int
    partition: tuple[str | None, ...] = ()
    mtime_ns: int | None = None
    row_groups: tuple[int, ...] | None = None
    read_bytes: int | None = None
    looked: Looked | None = None
    identity: Identity | None = None
    tag: str = ""
    parts: tuple[int, ...] = ()

    @property
    def num_bytes(self) -> int:
        """About the bytes to read."""
        return self.size if self.read_bytes is None else self.read_bytes


@dataclass(frozen=True)
class FileRange:
    """The row groups of a file whose middle is at ``start`` or later, and before ``end``."""

    file: DataFile
    start: int
    end: int

    @property
    def num_bytes(self) -> int:
        """About the bytes to read."""
        if self.start == 0 and self.end >= self.file.size:
            return self.file.num_bytes
        return self.end - self.start

    def row_groups(self, footer: Footer) -> list[int]:
        """Return the row groups of this range.

        Their sizes come from the footer, and row groups beyond the end of the file belong to the
        last range: a file with wrong sizes in its footer is split unevenly, but completely.
        """
        found, position = [], 0
        for number in range(len(footer.row_groups)):
            size = footer.row_group_num_bytes(number)
            middle = position + size // 2
            position += size
            if self.start <= middle and (middle < self.end or self.end >= self.file.size):
                found.append(number)
        return found

    def selected(self, row_groups: list[int], opened: OpenFile) -> list[int]:
        """Return those of some row groups of the open file that are to be read."""
        own = self.found_rows(opened)
        return row_groups if own is None else [group for group in row_groups if group in own]

    def found_rows(self, opened: OpenFile) -> FoundRows | None:
        """Return the rows that an index has found in the open file; None: it does not tell."""
        own, identity = self.file.row_groups, self.file.identity
        if own is None or identity is None or not identity.allows_file(opened):
            return None
        return dict(zip(own, self.file.parts, strict=True))


def divide(files: Iterable[DataFile], split_bytes: int, open_cost_bytes: int,
           min_partitions: int) -> list[list[FileRange]]:
    """Return the file ranges of each task, by Spark's rule.

    A task reads at most ``split_bytes``, as far as the size of row groups allows.
    ``open_cost_bytes`` is the cost of opening a file, expressed as bytes that could be read in the
    same time. Tasks are made smaller, down to that cost, to reach ``min_partitions``. A file of
    which few row groups are to be read is not split.
    """
    files = list(files)
    total = sum(file.num_bytes + open_cost_bytes for file in files)
    limit = max(1, min(split_bytes, max(open_cost_bytes, total // max(min_partitions, 1))))
    ranges = [part for file in files for part in _ranges(file, limit)]
    ranges.sort(key=lambda part: -part.num_bytes)
    tasks: list[list[FileRange]] = []
    room = 0
    for part in ranges:
        if not tasks or part.num_bytes > room:
            tasks.append([])
            room = limit
        tasks[-1].append(part)
        room -= part.num_bytes + open_cost_bytes
    return tasks


def _ranges(file: DataFile, limit: int) -> list[FileRange]:
    if file.num_bytes < file.size and file.num_bytes <= limit:
        return [FileRange(file, 0, file.size)]
    return [FileRange(file, start, min(start + limit, file.size))
            for start in range(0, max(file.size, 1), limit)]
