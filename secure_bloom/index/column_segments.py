"""Make segments of some files for the index of one column, in any process that has its key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from threading import Lock
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.errors import ColumnError, UnsupportedError
from secure_bloom.index.building import BUDGET, AddedFile, SegmentBuilder
from secure_bloom.index.column_keys import UNENCRYPTED, master_keys
from secure_bloom.index.file_entry import FileEntry
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.manifest import Manifest, Restamp
from secure_bloom.index.sealing import IndexKey
from secure_bloom.index.segment_info import SegmentInfo
from secure_bloom.index.stamps import Stamp
from secure_bloom.index.written_file import WrittenFile
from secure_bloom.index.written_hashes import WrittenHashes
from secure_bloom.parquet.schema import LeafColumn, filter_columns
from secure_bloom.reading.described_file import DescribedFile
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.verify.measure import ColumnHashes

_PART = 1 << 18  # hashes that are added together

INDEXED, RESTAMPED = "indexed", "restamped"

_OF_ABSENT_COLUMN = ColumnType("BYTE_ARRAY", 0, pa.binary())  # no pair will have it


class Segments(NamedTuple):
    """What was made for some files, to be published. Without that, it has no effect."""

    segments: Sequence[SegmentInfo] = ()
    restamped: Mapping[str, Restamp] = {}


class SentKey:
    """The key of an index for another process. Its pickle contains the key.

    Send it only over channels that may carry keys.

    Parameters
    ----------
    manifest : Manifest
        Of the index.
    """

    def __init__(self, manifest: Manifest):
        self._secret, self.index_id = manifest.key.secret, manifest.key.index_id
        #: master key of the index; None: the index has no encryption
        self.master_key = None if manifest.material is None else manifest.material.master_key_id

    @property
    def key(self) -> IndexKey:
        """The key."""
        return IndexKey(self._secret, self.index_id)

    def __repr__(self) -> str:
        return f"<SentKey of index {self.index_id.hex()}>"


class SegmentMaker:
    """Makes segments of files. Several threads may add files.

    Parameters
    ----------
    filesystem : pyarrow.fs.FileSystem
    table : str
    column : str
        Dotted path.
    key : SentKey
    earlier : mapping of str to list of bytes
        Content of files that the index covers with another stamp, by path.
    budget : int
        Bytes of memory for pairs.
    """

    def __init__(self, filesystem: pa_fs.FileSystem, table: str, column: str, key: SentKey,
                 earlier: Mapping[str, Sequence[bytes]], budget: int = BUDGET):
        self._folder = IndexFolder(filesystem, table, column)
        self._earlier, self._budget = earlier, budget
        self._key, self._master_key = key.key, key.master_key
        self._builders: dict[ColumnType, SegmentBuilder] = {}
        self._restamped: dict[str, Restamp] = {}
        self._lock = Lock()

    def add(self, file: OpenFile | WrittenFile, path: str, stamp: Stamp,
            written: WrittenHashes | None = None) -> str:
        """Cover a file, which has this stamp; return INDEXED, RESTAMPED, or why not.

        ``written`` was collected while the file was written. Otherwise, its values are read.
        """
        entry = FileEntry.of(file, path, stamp)
        if not SegmentBuilder.can_have(entry.row_groups):
            return f"{entry.row_groups:,} row groups are too many for an index"
        try:
            column = leaf_column(file, self._folder.column)
        except ColumnError as error:
            return error.message
        if column is not None and \
                (reason := refusal(file, column, self._master_key)) is not None:
            return reason
        if entry.content in self._earlier.get(path, ()):
            with self._lock:
                self._restamped[path] = Restamp(*stamp, entry.content, entry.footer)
            return RESTAMPED
        added = self._add_entry(entry, _OF_ABSENT_COLUMN if column is None else column.type)
        try:
            pairs = None if written is None or column is None else written.pairs(column)
            if pairs is not None:
                added.add_pairs(pairs)
            elif column is not None:
                with file.opened() as opened, opened.one_version():
                    for portion in column_hashes(opened, column):
                        added.add(*portion)
        except BaseException:
            added.set_void()
            raise
        return INDEXED

    def write(self) -> Segments:
        """Write the segments of all added files."""
        self._folder.check_inside()
        written = []
        for builder in self._builders.values():
            if builder.num_files:
                written.append(builder.write(self._folder.filesystem, self._folder.path))
            builder.close()
        return Segments(written, self._restamped)

    def close(self) -> None:
        """Discard what was collected."""
        for builder in self._builders.values():
            builder.close()

    def _add_entry(self, entry: FileEntry, column_type: ColumnType) -> AddedFile:
        with self._lock:
            builder = self._builders.get(column_type)
            if builder is not None and not builder.has_room(entry.row_groups):
                raise UnsupportedError("one update cannot cover more values; update the index "
                                       "again for this file")
            if builder is None:
                builder = SegmentBuilder(self._key, column_type, self._budget)
                self._builders[column_type] = builder
            return builder.add_file(entry)


def refusal(file: DescribedFile, column: LeafColumn, master_key: str | None) -> str | None:
    """Return why an index under a master key must not cover a file; None if it may.

    Raises UnsupportedError if the index has no encryption, but the file has.
    """
    found = master_keys(file, column)
    if master_key is None and found - {UNENCRYPTED}:
        raise UnsupportedError("this file encrypts the column, but its index has no "
                               "encryption; delete the index, and build it again",
                               column=column.path)
    others = found - {UNENCRYPTED, master_key}
    if others:
        return f"the column is under another master key, {min(filter(None, others))!r}"
    return None


def leaf_column(file: DescribedFile, path: str) -> LeafColumn | None:
    """Return a column of a file; None if it has no such column.

    Raises ColumnError if the column cannot have a filter.
    """
    if not any(leaf.path == path for leaf in file.columns):
        return None
    [column] = filter_columns(file.columns, [path])
    return column


class Portion(NamedTuple):
    """Hashes of values of a row group, and the range of its rows that has them."""

    row_group: int
    hashes: np.ndarray
    range: int


def column_hashes(file: OpenFile, column: LeafColumn) -> Iterator[Portion]:
    """Yield hashes of the values of a column, many at a time."""
    stored = ColumnHashes(file, file.keys)
    for row_group in range(file.num_row_groups):
        for range_, found in groupby(stored.read_by_range(row_group, column), itemgetter(0)):
            waiting: list[np.ndarray] = []
            for _, hashes in found:
                waiting.append(hashes)
                if sum(map(len, waiting)) >= _PART:
                    yield Portion(row_group, np.concatenate(waiting), range_)
                    waiting = []
            if waiting:
                yield Portion(row_group, np.concatenate(waiting), range_)
