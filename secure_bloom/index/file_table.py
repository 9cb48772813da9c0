"""The files that a segment of an index covers: Arrow IPC, compressed with Zstandard.

    path         relative to the table
    size         bytes; -1: the entry covers no file, because its file changed while it was read
    mtime_ns     as listed when the file was indexed
    row_groups   number of row groups, which the segment numbers through its files
    rows         number of rows
    content      16 bytes that stay the same while an encrypted file's keys are rotated, and its
                 filters added or removed
    footer       16 bytes: start of the SHA-256 of the stored footer
    schema       the Arrow schema (IPC), each different one stored once
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.errors import FormatError
from secure_bloom.index.geometry import MAX_ROW_GROUPS
from secure_bloom.reader import ParquetFile
from secure_bloom.sbbf.light_arrow import to_numpy
from secure_bloom.storage.versions import FileVersion

DIGEST_SIZE = 16

SCHEMA = pa.schema([
    ("path", pa.string()), ("size", pa.int64()), ("mtime_ns", pa.int64()),
    ("row_groups", pa.int32()), ("rows", pa.int64()), ("content", pa.binary(DIGEST_SIZE)),
    ("footer", pa.binary(DIGEST_SIZE)), ("schema", pa.dictionary(pa.int32(), pa.binary()))])


class Listed(Protocol):
    """A file as it is listed: a ``pyarrow.fs.FileInfo``, or another record of it."""

    @property
    def size(self) -> int: ...

    @property
    def mtime_ns(self) -> int | None: ...


class Stamp(NamedTuple):
    """What distinguishes a listed file from another one of the same name."""

    size: int
    mtime_ns: int

    @classmethod
    def of(cls, listed: Listed) -> Stamp:
        """Return the stamp of a listed file; a time of -1 if the filesystem has none."""
        return cls(listed.size, -1 if (time := listed.mtime_ns) is None else time)

    def is_of(self, version: FileVersion | None, filesystem: pa_fs.FileSystem) -> bool:
        """Whether the listing refers to this version of the file, which is open."""
        return version is not None and version.is_as_listed(
            *self, exactly=filesystem.type_name == "local")


class FileEntry(NamedTuple):
    """A row of the table."""

    path: str
    size: int
    mtime_ns: int
    row_groups: int
    rows: int
    content: bytes
    footer: bytes
    schema: bytes

    @classmethod
    def of(cls, file: ParquetFile, path: str, stamp: Stamp) -> FileEntry:
        """Return the entry of an open file."""
        return cls(path, *stamp, file.num_row_groups, file.num_rows, content_id(file, stamp),
                   footer_digest(file), file.schema.serialize().to_pybytes())

    def void(self) -> FileEntry:
        """Return the entry as one that covers no file; its row groups keep their numbers."""
        return self._replace(size=-1)


class FileTable:
    """The rows of the table, and the numbers of the row groups of each file."""

    def __init__(self, table: pa.Table):
        self._table = table
        counts = to_numpy(table["row_groups"])
        #: first row group of each file, and the end of the last one
        self.first_group = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])

    @classmethod
    def of(cls, entries: Iterable[FileEntry]) -> FileTable:
        """Make a table."""
        rows = list(entries)
        columns: dict[str, Any] = {name: [getattr(row, name) for row in rows]
                                   for name in FileEntry._fields}
        columns["schema"] = pa.array(columns["schema"], pa.binary()).dictionary_encode()
        return cls(pa.table(columns, SCHEMA))

    @classmethod
    def from_buffer(cls, data: pa.Buffer) -> FileTable:
        """Parse :meth:`to_buffer`; the data has been authenticated."""
        try:
            table = pa.ipc.open_file(data).read_all()
            table.validate(full=True)  # an index without encryption is not authenticated
            table = table.unify_dictionaries()
        except (pa.ArrowException, OSError, ValueError):
            raise FormatError("the file table of a segment cannot be read") from None
        if table.schema != SCHEMA:
            raise FormatError("the file table of a segment has other columns; a newer "
                              "secure_bloom may have written it")
        counts = table["row_groups"]
        if table.num_rows == 0 or any(column.null_count for column in table.columns) \
                or min(to_numpy(counts)) < 0 or sum(to_numpy(counts).tolist()) > MAX_ROW_GROUPS:
            raise FormatError("the file table of a segment is invalid")
        return cls(table)

    def to_buffer(self) -> pa.Buffer:
        """Return the table in Arrow IPC."""
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_file(sink, SCHEMA, options=options) as writer:
            writer.write_table(self._table.combine_chunks().unify_dictionaries())
        return sink.getvalue()

    def __len__(self) -> int:
        return self._table.num_rows

    @property
    def num_row_groups(self) -> int:
        """Number of row groups of all files."""
        return int(self.first_group[-1])

    @cached_property
    def paths(self) -> list[str]:
        """Path of each file."""
        return self._table["path"].to_pylist()

    @cached_property
    def stamps(self) -> list[Stamp]:
        """Stamp of each file."""
        sizes, times = (self._table[name].to_pylist() for name in ("size", "mtime_ns"))
        return list(map(Stamp, sizes, times))

    @cached_property
    def contents(self) -> list[bytes]:
        """Content id of each file."""
        return self._table["content"].to_pylist()

    @cached_property
    def footers(self) -> list[bytes]:
        """Digest of the footer of each file, as it was indexed."""
        return self._table["footer"].to_pylist()

    @cached_property
    def schema_ids(self) -> list[int]:
        """Position of each file's schema in :attr:`schemas`."""
        return self._schemas.indices.to_pylist()

    @cached_property
    def schemas(self) -> list[bytes]:
        """The different schemas, serialized."""
        return self._schemas.dictionary.to_pylist()

    @cached_property
    def row_group_counts(self) -> list[int]:
        """Number of row groups of each file."""
        return np.diff(self.first_group).tolist()

    @cached_property
    def row_counts(self) -> list[int]:
        """Number of rows of each file."""
        return self._table["rows"].to_pylist()

    @cached_property
    def parsed_schemas(self) -> list[pa.Schema]:
        """Schema of each file; equal ones are one object."""
        different = list(map(_parsed, self.schemas))
        return [different[number] for number in self.schema_ids]

    @property
    def _schemas(self) -> pa.DictionaryArray:
        column = self._table["schema"].combine_chunks()
        return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column

    def entry(self, number: int) -> FileEntry:
        """Return one row."""
        return FileEntry(**self._table.slice(number, 1).to_pylist()[0])

    def check_groups(self, groups: np.ndarray) -> None:
        """Raise FormatError if the segment does not have one of these row groups (uint64)."""
        if groups.size and groups.max() >= self.num_row_groups:
            raise FormatError("a segment of the index names a row group that it does not have")

    def locate(self, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return, for row groups of the segment, number of the file and row group in it; int64.

        Raises FormatError if there is no such row group.
        """
        self.check_groups(groups)
        groups = groups.astype(np.int64)
        files = np.searchsorted(self.first_group, groups, "right") - 1
        return files, groups - self.first_group[files]


@lru_cache(maxsize=1000)
def _parsed(serialized: bytes) -> pa.Schema:
    """Parse a schema; those of several segments are one object, by which files are grouped."""
    return pa.ipc.read_schema(pa.py_buffer(serialized))


def content_id(file: ParquetFile, stamp: Stamp) -> bytes:
    """Return what stays the same while keys are rotated, and filters added or removed.

    It differs between any two files that were written separately. Of an encrypted file it depends
    on aad_file_unique. Files without encryption can have different values and equal footers, so
    theirs depends on the stamp, too: such a file is read again whenever it was rewritten.
    """
    footer = file.footer
    rows = [footer.row_group_num_rows(group) for group in range(file.num_row_groups)]
    unique = footer.algorithm.aad_file_unique if footer.algorithm else b""
    return _digest((unique or footer_digest(file) + repr(tuple(stamp)).encode())
                   + repr(rows).encode())


def footer_digest(file: ParquetFile) -> bytes:
    """Return the start of the SHA-256 of the stored footer."""
    return _digest(file.stored_footer)


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:DIGEST_SIZE]
