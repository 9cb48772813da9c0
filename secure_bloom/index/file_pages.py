"""Pages of the file table of a segment: some rows of it, column by column.

    files        4 bytes: number of rows, n
    size         n times 8 bytes; -1: the entry covers no file, because its file changed while it
                 was read
    mtime_ns     n times 8 bytes: as listed when the file was indexed
    rows         n times 8 bytes: number of rows
    row_groups   n times 4 bytes: their number; the segment numbers them through its files
    schema       n times 4 bytes: number of the file's schema
    content      n times 16 bytes that stay the same while an encrypted file's keys are rotated, and
                 its filters added or removed
    footer       n times 16 bytes: start of the SHA-256 of the stored footer
    ranges       n times 1 byte: 1 if the ranges of its row groups are true of its rows, else 0
    paths        relative to the table: n times 4 bytes for the lengths, then the texts
    tags         what the filesystem tells of the version, see :mod:`secure_bloom.index.stamps`

Numbers are little-endian and signed. A stored page, and the directory of the pages, is compressed
with Zstandard, behind its length (8 bytes). An index without encryption may come from anyone, so
the decompressed bytes are bounded, and nothing else is allocated by what it claims.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from secure_bloom.errors import UnsupportedError
from secure_bloom.index.file_entry import DIGEST_SIZE, FileEntry

MAX_FILE_PAGE = 4 * 1024 * 1024  #: bytes of a page, not compressed
_LENGTH = struct.Struct("<q")
_COUNT = struct.Struct("<i")
_SBX2 = tuple((name, np.dtype(kind)) for name, kind in (
    ("size", "<i8"), ("mtime_ns", "<i8"), ("rows", "<i8"), ("row_groups", "<i4"), ("schema", "<i4"),
    ("content", f"V{DIGEST_SIZE}"), ("footer", f"V{DIGEST_SIZE}")))
_COLUMNS = (*_SBX2, ("has_ranges", np.dtype("i1")))
[_SLASH] = b"/"


class StoredNames:
    """Names in ASCII. Each is decoded when it is needed: a lookup needs few of a page.

    Parameters
    ----------
    texts : bytes
        The names, one after the other.
    ends : int64 array
        Where each of them begins, and the end of the last one.
    """

    def __init__(self, texts: bytes, ends: np.ndarray):
        self._texts, self._ends = texts, ends

    def __len__(self) -> int:
        return self._ends.size - 1

    def __getitem__(self, number: int) -> str:
        first, last = self._ends[number:number + 2].tolist()
        return self._texts[first:last].decode()

    def __iter__(self) -> Iterator[str]:
        text = self._texts.decode()
        return (text[first:last] for first, last in pairwise(self._ends.tolist()))

    @property
    def are_surely_normal(self) -> bool:
        """Whether the names are as :func:`are_normal` wants them; False: they must be decoded."""
        texts, ends = self._texts, self._ends
        letters = np.frombuffer(texts, np.uint8)
        if b"\0" in texts or ends[-1] == 0 or (ends[1:] == ends[:-1]).any() \
                or letters[ends[:-1]].min() <= _SLASH:
            return False  # one may be empty, or begin with a slash or a dot, which is less
        return b"/" not in texts or not (
            b"//" in texts or b"/." in texts or (letters[ends[1:] - 1] == _SLASH).any())


Names: TypeAlias = list[str] | StoredNames


class FilePage:
    """Some rows of a file table.

    Attributes
    ----------
    columns : dict of str to array
        By name of the field of :class:`.FileEntry`; ``schema`` has numbers of schemas.
    paths, tags : list of str, or StoredNames
    first_group : int64 array
        First row group of each file, counted from the first file of the page, and the end of the
        last one.
    nbytes : int
        Bytes of a page that was parsed, not compressed.
    """

    nbytes = 0

    def __init__(self, columns: Mapping[str, np.ndarray], paths: Names, tags: Names,
                 schemas: Sequence[bytes] | Mapping[int, bytes]):
        self.columns, self.paths, self.tags, self._schemas = columns, paths, tags, schemas
        self.first_group = _sums(columns["row_groups"])

    @classmethod
    def of(cls, entries: Sequence[FileEntry], numbers: Mapping[bytes, int]) -> FilePage:
        """Make a page; ``numbers`` are those of the schemas."""
        values = {name: [getattr(entry, name) for entry in entries] for name, _ in _COLUMNS}
        values["schema"] = [numbers[entry.schema] for entry in entries]
        return cls({name: np.array(values[name], kind) for name, kind in _COLUMNS},
                   [entry.path for entry in entries], [entry.tag for entry in entries],
                   {number: schema for schema, number in numbers.items()})

    @classmethod
    def parse(cls, stored: pa.Buffer | bytes, schemas: Sequence[bytes]) -> FilePage:
        """Parse :meth:`to_bytes`.

        Raises ValueError, OSError or struct.error if it is invalid.
        """
        data = decompressed(stored, MAX_FILE_PAGE)
        [count] = _COUNT.unpack_from(data)
        page, at = cls.read(data, _COUNT.size, count, schemas)
        page.check()
        if at != len(data):
            raise ValueError
        page.nbytes = len(data)
        return page

    @classmethod
    def read(cls, data: bytes, at: int, count: int, schemas: Sequence[bytes], *,
             is_sbx2: bool = False) -> tuple[FilePage, int]:
        """Return the rows that are stored at a position, to be checked, and where they end."""
        if count < 1:
            raise ValueError
        columns = {}
        for name, kind in _SBX2 if is_sbx2 else _COLUMNS:
            columns[name] = np.frombuffer(data, kind, count, at)
            at += count * kind.itemsize
        if is_sbx2:
            columns["has_ranges"] = np.ones(count, "i1")
        paths, at = _unpacked_names(data, at, count)
        tags, at = _unpacked_names(data, at, count)
        return cls(columns, paths, tags, schemas), at

    def check(self) -> None:
        """Raise ValueError if a row is invalid."""
        columns = self.columns
        if columns["row_groups"].min() < 0 or columns["rows"].min() < 0 \
                or _unsigned(columns["schema"]).max() >= len(self._schemas) \
                or _unsigned(columns["has_ranges"]).max() > 1 \
                or not are_normal(self.paths):
            raise ValueError

    def to_bytes(self) -> bytes:
        """Return the page as it is stored, before it is sealed.

        Raises UnsupportedError if it is larger than readers accept.
        """
        data = b"".join([_COUNT.pack(len(self.paths)),
                         *(self.columns[name].astype(kind).tobytes() for name, kind in _COLUMNS),
                         packed(path.encode() for path in self.paths),
                         packed(tag.encode() for tag in self.tags)])
        if len(data) > MAX_FILE_PAGE:
            raise UnsupportedError("the names of files are too long for an index")
        return compressed(data)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def num_row_groups(self) -> int:
        """Number of row groups of all files."""
        return int(self.first_group[-1])

    @cached_property
    def first_groups(self) -> list[int]:
        """``first_group`` as a list, in which one number is found in less time."""
        return self.first_group.tolist()

    @cached_property
    def entries(self) -> list[FileEntry]:
        """The rows."""
        values: dict[str, list[Any]] = {name: column.tolist()
                                        for name, column in self.columns.items()}
        values |= {"path": list(self.paths), "tag": list(self.tags),
                   "schema": [self._schemas[number] for number in values["schema"]],
                   "has_ranges": list(map(bool, values["has_ranges"]))}
        return list(map(FileEntry._make, zip(*(values[name] for name in FileEntry._fields),
                                             strict=True)))

    def stamps(self) -> list[tuple[int, int, str]]:
        """Return size, time and tag of each entry, as :class:`.Stamp` has them."""
        return list(zip(self.columns["size"].tolist(), self.columns["mtime_ns"].tolist(),
                        self.tags, strict=True))

    def covered_path(self, number: int) -> str | None:
        """Return one of :attr:`covered_paths`."""
        return None if self.columns["size"][number] < 0 else self.paths[number]

    @property
    def covered_paths(self) -> list[str | None]:
        """The paths; None for entries that cover no file."""
        sizes = self.columns["size"]
        return [*self.paths] if sizes.min() >= 0 else [
            None if size < 0 else path
            for path, size in zip(self.paths, sizes.tolist(), strict=True)]


def are_normal(paths: Iterable[str]) -> bool:
    """Whether paths have no empty, ``.`` or ``..`` components, so that each file has one path."""
    if isinstance(paths, StoredNames) and paths.are_surely_normal:
        return True
    joined = f"/{'/'.join(paths)}/"
    return not any(part in joined for part in ("//", "/./", "/../", "\0"))


def compressed(data: bytes) -> bytes:
    """Return bytes as pages and their directory are stored."""
    return _LENGTH.pack(len(data)) + pa.Codec("zstd").compress(data, asbytes=True)


def decompressed(stored: pa.Buffer | bytes, limit: int) -> bytes:
    """Undo :func:`compressed`; raises ValueError, OSError or struct.error if it is invalid."""
    data = memoryview(stored).cast("B")
    [size] = _LENGTH.unpack_from(data)
    if not 0 <= size <= limit:
        raise ValueError
    return pa.Codec("zstd").decompress(pa.py_buffer(data[_LENGTH.size:]), decompressed_size=size,
                                       asbytes=True)


def packed(texts: Iterable[bytes]) -> bytes:
    """Return the lengths of texts, then the texts."""
    texts = list(texts)
    return np.array([len(text) for text in texts], "<i4").tobytes() + b"".join(texts)


def unpacked(data: bytes, at: int, count: int) -> tuple[list[bytes], int]:
    """Return some texts that are stored at a position, and where they end."""
    whole, ends = _joined(data, at, count)
    return [whole[first:last] for first, last in pairwise(ends.tolist())], \
        at + 4 * count + len(whole)


def _unpacked_names(data: bytes, at: int, count: int) -> tuple[Names, int]:
    """Do the same with UTF-8."""
    whole, ends = _joined(data, at, count)
    names = StoredNames(whole, ends) if whole.isascii() else \
        [whole[first:last].decode() for first, last in pairwise(ends.tolist())]
    return names, at + 4 * count + len(whole)


def _sums(counts: np.ndarray) -> np.ndarray:
    """Return the sum of all counts before each one, and of all of them; int64."""
    found = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=found[1:])
    return found


def _unsigned(numbers: np.ndarray) -> np.ndarray:
    """Return numbers of which negative ones are larger than all others."""
    return numbers.view(f"u{numbers.itemsize}")


def _joined(data: bytes, at: int, count: int) -> tuple[bytes, np.ndarray]:
    """Return texts that are stored at a position, one after the other, and where each begins."""
    if count < 0:
        raise ValueError
    lengths, start = np.frombuffer(data, "<i4", count, at), at + 4 * count
    if count and lengths.min() < 0:
        raise ValueError
    ends = _sums(lengths)
    if start + (size := int(ends[-1])) > len(data):
        raise ValueError
    return data[start:start + size], ends
