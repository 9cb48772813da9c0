"""Cover further files by the index of one column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from threading import Lock

import numpy as np
import pyarrow as pa

from secure_bloom.errors import UnsupportedError
from secure_bloom.index.building import AddedFile, SegmentBuilder
from secure_bloom.index.column_index import ColumnIndex, Coverage
from secure_bloom.index.column_keys import UNENCRYPTED, master_keys
from secure_bloom.index.file_table import FileEntry, Stamp
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.manifest import Body, Manifest, Restamp
from secure_bloom.index.publishing import publish
from secure_bloom.index.segment import SegmentInfo
from secure_bloom.keys.cache import CachedKms
from secure_bloom.parquet.schema import LeafColumn, filter_columns
from secure_bloom.reader import ParquetFile
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.verify.measure import ColumnHashes

_PART = 1 << 18  # hashes that are added together

INDEXED, RESTAMPED = "indexed", "restamped"

_OF_ABSENT_COLUMN = ColumnType("BYTE_ARRAY", 0, pa.binary())  # no pair will have it


class ColumnUpdate:
    """An update of one index. Several threads may add files.

    Parameters
    ----------
    folder : IndexFolder
    index : ColumnIndex
        The version to start from.
    kms : CachedKms or None
    listing : mapping of str to Stamp
    budget : int
        Bytes of memory for pairs.
    """

    def __init__(self, folder: IndexFolder, index: ColumnIndex, kms: CachedKms | None,
                 listing: Mapping[str, Stamp], budget: int):
        self._folder, self._index, self._kms = folder, index, kms
        self._listing, self._budget = listing, budget
        self.coverage: Coverage = index.coverage(listing)
        self._builders: dict[ColumnType, SegmentBuilder] = {}
        self._segments: list[SegmentInfo] = []
        self._restamped: dict[str, Restamp] = {}
        self._lock = Lock()
        self.outcomes: Counter[str] = Counter()

    @property
    def column(self) -> str:
        """Dotted path of the column."""
        return self._folder.column

    @cached_property
    def _earlier(self) -> dict[str, list[bytes]]:
        """Content of the files that are covered with another stamp, by path."""
        uncovered: set[str] = set(self.coverage.uncovered)
        found: dict[str, list[bytes]] = {}
        for segment in self._index.segments:
            for number, path in enumerate(segment.files.paths):
                if path in uncovered and segment.files.stamps[number].size >= 0:
                    found.setdefault(path, []).append(segment.files.contents[number])
        return found

    def add(self, file: ParquetFile, path: str, stamp: Stamp) -> str:
        """Cover an open file, which has this stamp; return INDEXED, RESTAMPED, or why not."""
        entry = FileEntry.of(file, path, stamp)
        column = leaf_column(file, self.column)
        if column is not None and (reason := self._refused(file, column)) is not None:
            return reason
        if entry.content in self._earlier.get(path, ()):
            with self._lock:
                self._restamped[path] = Restamp(*stamp, entry.content, entry.footer)
            return RESTAMPED
        added = self._add_entry(entry, _OF_ABSENT_COLUMN if column is None else column.type)
        try:
            if column is not None:
                with file.one_version():
                    for row_group, hashes in column_hashes(file, column):
                        added.add(row_group, hashes)
        except BaseException:
            added.set_void()
            raise
        return INDEXED

    def finish(self, generation: str | None, advance: Callable[[float], None]) -> None:
        """Write the segments, and publish them.

        ``generation`` is that of the table if all its files are covered then, else None.
        """
        for builder in self._builders.values():
            self._write(builder, advance)
        removed = {path for path, *_ in self._index.places if path not in self._listing}

        def change(body: Body) -> Body | None:
            is_whole = body.is_exclusive and generation is not None
            listed = {info.id for info in body.segments}  # perhaps by a try that seemed to fail
            added = (info for info in self._segments if info.id not in listed)
            new = replace(body, segments=(*body.segments, *added),
                          restamped={**body.restamped, **self._restamped},
                          generation=generation if is_whole else None,
                          removed=tuple(sorted(removed)) if is_whole else ())
            return None if new == body else new

        publish(self._folder, self._kms, change)

    def close(self) -> None:
        """Discard what was collected."""
        for builder in self._builders.values():
            builder.close()

    def _refused(self, file: ParquetFile, column: LeafColumn) -> str | None:
        material = self._index.manifest.material
        found = master_keys(file, column)
        if material is None and found - {UNENCRYPTED}:
            raise UnsupportedError("this file encrypts the column, but its index has no "
                                   "encryption; delete the index, and build it again",
                                   column=self.column)
        others = found - {UNENCRYPTED, None if material is None else material.master_key_id}
        if others:
            return f"the column is under another master key, {min(filter(None, others))!r}"
        return None

    def _add_entry(self, entry: FileEntry, column_type: ColumnType) -> AddedFile:
        with self._lock:
            builder = self._builders.get(column_type)
            if builder is not None and not builder.has_room(entry.row_groups):
                raise UnsupportedError("one update cannot cover more values; update the index "
                                       "again for this file")
            if builder is None:
                builder = SegmentBuilder(self._index.manifest.key, column_type, self._budget)
                self._builders[column_type] = builder
            return builder.add_file(entry)

    def _write(self, builder: SegmentBuilder, advance: Callable[[float], None]) -> None:
        if builder.num_files:
            self._segments.append(builder.write(self._folder.filesystem, self._folder.path,
                                                advance))
        builder.close()


def new_manifest(column: str, master_key: str | None, kms: CachedKms | None,
                 is_exclusive: bool) -> Manifest:
    """Return the first manifest of a new index."""
    first = Manifest.new(column, master_key, kms)
    return first.next(replace(first.body, is_exclusive=is_exclusive), 0)


def leaf_column(file: ParquetFile, path: str) -> LeafColumn | None:
    """Return a column of a file; None if it has no such column.

    Raises ColumnError if the column cannot have a filter.
    """
    if not any(leaf.path == path for leaf in file.columns):
        return None
    [column] = filter_columns(file.columns, [path])
    return column


def column_hashes(file: ParquetFile, column: LeafColumn) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the row groups of a column with hashes of their values, many at a time."""
    stored = ColumnHashes(file, file.keys)
    for row_group in range(file.num_row_groups):
        waiting: list[np.ndarray] = []
        for _, hashes in stored.read(row_group, column):
            waiting.append(hashes)
            if sum(map(len, waiting)) >= _PART:
                yield row_group, np.concatenate(waiting)
                waiting = []
        if waiting:
            yield row_group, np.concatenate(waiting)
