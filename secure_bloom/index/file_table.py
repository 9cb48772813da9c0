"""The files that a segment of an index covers.

    length       8 bytes: of the rest, before it is compressed with Zstandard
    files        4 bytes: number of files, n
    schemas      4 bytes: number of schemas, m
    size         n times 8 bytes; -1: the entry covers no file, because its file changed while it
                 was read
    mtime_ns     n times 8 bytes: as listed when the file was indexed
    rows         n times 8 bytes: number of rows
    row_groups   n times 4 bytes: their number; the segment numbers them through its files
    schema       n times 4 bytes: number of the file's schema
    content      n times 16 bytes that stay the same while an encrypted file's keys are rotated, and
                 its filters added or removed
    footer       n times 16 bytes: start of the SHA-256 of the stored footer
    paths        relative to the table: n times 4 bytes for the lengths, then the texts
    tags         what the filesystem tells of the version, see :mod:`secure_bloom.index.stamps`
    schemas      the different Arrow schemas (IPC), stored like texts

Numbers are little-endian and signed. The table of an index without encryption may come from
anyone, so the decompressed bytes are bounded, and nothing else is allocated by what it claims.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from secure_bloom.errors import FormatError, UnsupportedError
from secure_bloom.index.geometry import MAX_ROW_GROUPS
from secure_bloom.index.stamps import Stamp
from secure_bloom.parquet import row_ranges
from secure_bloom.reading.open_file import OpenFile

DIGEST_SIZE = 16
MAX_BYTES = 128 * 1024 * 1024  #: of a file table, not compressed
_COUNTS = struct.Struct("<ii")
_LENGTH = struct.Struct("<q")
_COLUMNS = (("size", "<i8"), ("mtime_ns", "<i8"), ("rows", "<i8"), ("row_groups", "<i4"),
            ("schema", "<i4"), ("content", f"V{DIGEST_SIZE}"), ("footer", f"V{DIGEST_SIZE}"))

_Text = TypeVar("_Text", str, bytes)


class FileEntry(NamedTuple):
    """A row of the table."""

    path: str
    size: int
    mtime_ns: int
    tag: str
    row_groups: int
    rows: int
    content: bytes
    footer: bytes
    schema: bytes

    @classmethod
    def of(cls, file: OpenFile, path: str, stamp: Stamp) -> FileEntry:
        """Return the entry of an open file."""
        return cls(path, *stamp, file.num_row_groups, file.num_rows, content_id(file, stamp),
                   footer_digest(file), file.schema.serialize().to_pybytes())

    @property
    def stamp(self) -> Stamp:
        """Stamp of the file."""
        return Stamp(self.size, self.mtime_ns, self.tag)

    def void(self) -> FileEntry:
        """Return the entry as one that covers no file; its row groups keep their numbers."""
        return self._replace(size=-1)


class FileTable:
    """The rows of the table, and the numbers of the row groups of each file.

    Attributes
    ----------
    paths, stamps, contents, footers : list
        Of each file; ``footers`` are digests, as the files were indexed.
    row_group_counts, row_counts : list of int
        Of each file.
    schemas : list of bytes
        The different schemas, serialized.
    schema_ids : list of int
        Position of each file's schema in them.
    first_group : int64 array
        First row group of each file, and the end of the last one.
    """

    def __init__(self, paths: list[str], stamps: list[Stamp], row_group_counts: list[int],
                 row_counts: list[int], contents: list[bytes], footers: list[bytes],
                 schemas: list[bytes], schema_ids: list[int]):
        self.paths, self.stamps, self.contents, self.footers = paths, stamps, contents, footers
        self.row_group_counts, self.row_counts = row_group_counts, row_counts
        self.schemas, self.schema_ids = schemas, schema_ids
        self.first_group = np.array([0, *accumulate(row_group_counts)], np.int64)

    @classmethod
    def of(cls, entries: Iterable[FileEntry]) -> FileTable:
        """Make a table."""
        rows = list(entries)
        numbers: dict[bytes, int] = {}
        ids = [numbers.setdefault(row.schema, len(numbers)) for row in rows]
        return cls([row.path for row in rows], [row.stamp for row in rows],
                   [row.row_groups for row in rows], [row.rows for row in rows],
                   [row.content for row in rows], [row.footer for row in rows],
                   list(numbers), ids)

    @classmethod
    def from_buffer(cls, data: pa.Buffer | bytes) -> FileTable:
        """Parse :meth:`to_bytes`.

        Raises
        ------
        FormatError
            If it is damaged, or a path is not as a listing shows it.
        """
        try:
            table = _parsed_table(_decompressed(memoryview(data).cast("B")))
            table.check()
        except (ValueError, OSError, OverflowError, IndexError, struct.error):
            raise FormatError("the file table of a segment is invalid") from None
        return table

    def check(self) -> None:
        """Raise ValueError if the table contradicts itself."""
        covered = [path for path, stamp in zip(self.paths, self.stamps, strict=True)
                   if stamp.size >= 0]
        if not self.paths or min(self.row_group_counts) < 0 or min(self.row_counts) < 0 \
                or self.num_row_groups > MAX_ROW_GROUPS \
                or not 0 <= min(self.schema_ids) <= max(self.schema_ids) < len(self.schemas) \
                or not are_normal(self.paths) or len(set(covered)) != len(covered):
            raise ValueError

    def to_bytes(self) -> bytes:
        """Return the table as it is stored.

        Raises UnsupportedError if it is larger than readers accept.
        """
        columns = {"size": [one.size for one in self.stamps],
                   "mtime_ns": [one.mtime_ns for one in self.stamps], "rows": self.row_counts,
                   "row_groups": self.row_group_counts, "schema": self.schema_ids,
                   "content": self.contents, "footer": self.footers}
        data = b"".join([
            _COUNTS.pack(len(self), len(self.schemas)),
            *(np.array(columns[name], kind).tobytes() for name, kind in _COLUMNS),
            _packed([path.encode() for path in self.paths]),
            _packed([stamp.tag.encode() for stamp in self.stamps]), _packed(self.schemas)])
        if len(data) > MAX_BYTES:
            raise UnsupportedError(f"{len(self):,} files are too many for one segment of an index")
        return _LENGTH.pack(len(data)) + pa.Codec("zstd").compress(data, asbytes=True)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def num_row_groups(self) -> int:
        """Number of row groups of all files."""
        return int(self.first_group[-1])

    @property
    def has_large_row_groups(self) -> bool:
        """Whether it is worth while to know where in a row group values are."""
        return row_ranges.are_worth_it(self.row_counts, self.row_group_counts)

    @cached_property
    def parsed_schemas(self) -> list[pa.Schema]:
        """Schema of each file; equal ones are one object."""
        different = list(map(_parsed, self.schemas))
        return [different[number] for number in self.schema_ids]

    def entry(self, number: int) -> FileEntry:
        """Return one row."""
        return FileEntry(self.paths[number], *self.stamps[number], self.row_group_counts[number],
                         self.row_counts[number], self.contents[number], self.footers[number],
                         self.schemas[self.schema_ids[number]])

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


def are_normal(paths: Iterable[str]) -> bool:
    """Whether paths have no empty, ``.`` or ``..`` components, so that each file has one path."""
    joined = f"/{'/'.join(paths)}/"
    return not any(part in joined for part in ("//", "/./", "/../", "\0"))


def _decompressed(data: memoryview) -> bytes:
    [size] = _LENGTH.unpack_from(data)
    if not 0 <= size <= MAX_BYTES:
        raise ValueError
    return pa.Codec("zstd").decompress(pa.py_buffer(data[_LENGTH.size:]), decompressed_size=size,
                                       asbytes=True)


def _parsed_table(data: bytes) -> FileTable:
    num_files, num_schemas = _COUNTS.unpack_from(data)
    if num_files < 0 or num_schemas < 0:
        raise ValueError
    at = _COUNTS.size
    columns = {}
    for name, kind in _COLUMNS:
        columns[name] = np.frombuffer(data, kind, num_files, at).tolist()
        at += num_files * np.dtype(kind).itemsize
    paths, at = _unpacked(data, at, num_files, _text)
    tags, at = _unpacked(data, at, num_files, _text)
    schemas, at = _unpacked(data, at, num_schemas, bytes)
    if at != len(data):
        raise ValueError
    stamps = list(map(Stamp, columns["size"], columns["mtime_ns"], tags))
    return FileTable(paths, stamps, columns["row_groups"], columns["rows"], columns["content"],
                     columns["footer"], schemas, columns["schema"])


def _packed(texts: Sequence[bytes]) -> bytes:
    return np.array([len(text) for text in texts], "<i4").tobytes() + b"".join(texts)


def _unpacked(data: bytes, at: int, count: int, read: Callable[[bytes], _Text]) \
        -> tuple[list[_Text], int]:
    """Return some texts that are stored at a position, and where they end."""
    lengths = np.frombuffer(data, "<i4", count, at).tolist()
    start = at + 4 * count
    if lengths and min(lengths) < 0:
        raise ValueError
    ends = list(accumulate(lengths, initial=start))
    if ends[-1] > len(data):
        raise ValueError
    return [read(data[first:last]) for first, last in pairwise(ends)], ends[-1]


def _text(data: bytes) -> str:
    return data.decode()


@lru_cache(maxsize=1000)
def _parsed(serialized: bytes) -> pa.Schema:
    """Parse a schema; those of several segments are one object, by which files are grouped."""
    return pa.ipc.read_schema(pa.py_buffer(serialized))


def content_id(file: OpenFile, stamp: Stamp) -> bytes:
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


def footer_digest(file: OpenFile) -> bytes:
    """Return the start of the SHA-256 of the stored footer."""
    return _digest(file.stored_footer)


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:DIGEST_SIZE]
