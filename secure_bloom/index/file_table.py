"""The files that a segment of an index covers, in pages of which a lookup reads few.

The directory of the pages:

    files        4 bytes: number of files
    page_files   4 bytes: number of files of each page; the last one may have fewer
    schemas      4 bytes: number of schemas, m
    row_groups   4 bytes for each page: how many its files have together
    sizes        4 bytes for each page: of its sealed module
    schemas      the different Arrow schemas (IPC): m times 4 bytes for the lengths, then the bytes

It is compressed as pages are, see :mod:`secure_bloom.index.file_pages`. A segment of the format
SBX2 has no pages: its file table has all rows, and then the schemas.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from secure_bloom.errors import FormatError, UnsupportedError
from secure_bloom.index.file_entry import FileEntry
from secure_bloom.index.file_pages import FilePage, compressed, decompressed, packed, unpacked
from secure_bloom.index.geometry import MAX_ROW_GROUPS
from secure_bloom.index.pages import by_page
from secure_bloom.index.stamps import Stamp
from secure_bloom.parquet import row_ranges
from secure_bloom.storage.cache import Cache

PAGE_FILES = 128  #: of new segments
MAX_BYTES = 128 * 1024 * 1024  #: of the directory, or of a table without pages, not compressed
MAX_PAGES = 1 << 20  #: of a table: more than a segment with the most row groups has
_KEPT = 16 * 1024 * 1024  # bytes of pages that were read; most have some 15 KB
_FEW_NAMES = PAGE_FILES // 8  # of a page: more are decoded together
_TOGETHER = 8 * 1024 * 1024  # stored bytes that are read together
# Those of different files can hardly be compressed to a tenth, because of the digests; but what
# anyone can write in a few KB may take many GB.
_MOST_DENSE = 64  # bytes of all pages for each stored one, if there are more than MAX_BYTES
_HEADER = struct.Struct("<iii")
_SBX2_HEADER = struct.Struct("<ii")
_FAULTS = (ValueError, OSError, OverflowError, IndexError, struct.error)

#: reads the content of some successive pages: from the first number to before the last one
ReadContents = Callable[[int, int], Iterable[pa.Buffer]]
#: makes a context manager that adds to errors where they are
Location = Callable[[], AbstractContextManager[None]]


class FileDirectory(NamedTuple):
    """How many files a table has, and each page; ``groups`` and ``sizes`` are int64 arrays."""

    num_files: int
    page_files: int
    groups: np.ndarray
    sizes: np.ndarray
    schemas: list[bytes]

    @classmethod
    def parse(cls, stored: pa.Buffer | bytes) -> FileDirectory:
        """Parse :meth:`to_bytes`; raises FormatError if it is damaged."""
        try:
            data = decompressed(stored, MAX_BYTES)
            num_files, page_files, num_schemas = _HEADER.unpack_from(data)
            if min(num_files, page_files) < 1:
                raise ValueError
            num_pages, at = -(-num_files // page_files), _HEADER.size
            if num_pages > MAX_PAGES:
                raise ValueError
            groups = np.frombuffer(data, "<i4", num_pages, at).astype(np.int64)
            sizes = np.frombuffer(data, "<i4", num_pages, at + 4 * num_pages).astype(np.int64)
            schemas, at = unpacked(data, at + 8 * num_pages, num_schemas)
            if at != len(data) or min(groups.min(), sizes.min()) < 0 \
                    or groups.sum() > MAX_ROW_GROUPS:
                raise ValueError
        except _FAULTS:
            raise _invalid() from None
        return cls(num_files, page_files, groups, sizes, schemas)

    def to_bytes(self) -> bytes:
        """Return the directory as it is stored, before it is sealed.

        Raises UnsupportedError if it is larger than readers accept.
        """
        data = b"".join((
            _HEADER.pack(self.num_files, self.page_files, len(self.schemas)),
            self.groups.astype("<i4").tobytes(), self.sizes.astype("<i4").tobytes(),
            packed(self.schemas)))
        if len(data) > MAX_BYTES:
            raise UnsupportedError(f"{self.num_files:,} files are too many for one segment of an "
                                   "index")
        return compressed(data)


class Located(NamedTuple):
    """Row groups of a segment: numbers of their files, and of row groups in these; int64.

    ``has_ranges`` says for which of them the ranges of the segment are true. ``paths`` are those of
    the files; None of entries that cover no file.
    """

    files: np.ndarray
    row_groups: np.ndarray
    has_ranges: np.ndarray
    paths: list[str | None]


class _Rows(NamedTuple):
    """All rows, column by column."""

    paths: list[str]
    stamps: list[Stamp]
    row_group_counts: list[int]
    row_counts: list[int]
    contents: list[bytes]
    schema_ids: list[int]
    has_ranges: list[bool]

    @property
    def has_void(self) -> bool:
        """Whether an entry covers no file."""
        return min(map(itemgetter(0), self.stamps)) < 0


class FileTable:
    """The rows of the table, and the numbers of the row groups of each file.

    Parameters
    ----------
    directory : FileDirectory
    pages : callable
        Returns the pages from the first number to before the last one.

    Attributes
    ----------
    directory : FileDirectory
    first_group : int64 array
        First row group of each page, and the end of the last one.
    """

    def __init__(self, directory: FileDirectory, pages: Callable[[int, int], Iterable[FilePage]]):
        self.directory, self.pages = directory, pages
        self.first_group = np.concatenate(([0], np.cumsum(directory.groups)))
        self._kept: Cache[FilePage] = Cache(_KEPT)

    @classmethod
    def of(cls, entries: Iterable[FileEntry]) -> FileTable:
        """Make a table, whose pages have no sizes yet."""
        rows = list(entries)
        numbers: dict[bytes, int] = {}
        for row in rows:
            numbers.setdefault(row.schema, len(numbers))
        pages = [FilePage.of(rows[start:start + PAGE_FILES], numbers)
                 for start in range(0, len(rows), PAGE_FILES)]
        groups = np.array([page.num_row_groups for page in pages], np.int64)
        return cls(FileDirectory(len(rows), PAGE_FILES, groups, np.zeros_like(groups),
                                 list(numbers)), lambda first, last: pages[first:last])

    @classmethod
    def stored(cls, directory: FileDirectory, read: ReadContents,
               location: Location) -> FileTable:
        """Return a table whose pages are read when they are needed.

        Its methods raise FormatError if a page is damaged, or does not fit the directory.
        """
        def pages(first: int, last: int) -> Iterator[FilePage]:
            with location():
                for number, content in enumerate(read(first, last), first):
                    yield _parsed(directory, number, content)

        return cls(directory, pages)

    @classmethod
    def from_sbx2(cls, stored: pa.Buffer | bytes) -> FileTable:
        """Parse a table without pages; raises FormatError if it is damaged."""
        try:
            data = decompressed(stored, MAX_BYTES)
            num_files, num_schemas = _SBX2_HEADER.unpack_from(data)
            schemas: list[bytes] = []  # they follow
            page, at = FilePage.read(data, _SBX2_HEADER.size, num_files, schemas, is_sbx2=True)
            found, at = unpacked(data, at, num_schemas)
            schemas += found
            page.check()
            if at != len(data) or page.num_row_groups > MAX_ROW_GROUPS:
                raise ValueError
        except _FAULTS:
            raise _invalid() from None
        groups = np.array([page.num_row_groups], np.int64)
        table = cls(FileDirectory(num_files, num_files, groups, np.zeros_like(groups), schemas),
                    lambda first, last: [page])
        table.check()
        return table

    def __len__(self) -> int:
        return self.directory.num_files

    @property
    def schemas(self) -> list[bytes]:
        """The different schemas, serialized."""
        return self.directory.schemas

    @property
    def num_row_groups(self) -> int:
        """Number of row groups of all files."""
        return int(self.first_group[-1])

    # --- some rows -------------------------------------------------------------------------------

    def page(self, number: int) -> FilePage:
        """Return one page, which is kept for some time."""
        found = self._kept.get(number)
        if found is None:
            [found] = self.pages(number, number + 1)
            self._kept.put(number, found, found.nbytes)
        return found

    def entry(self, number: int) -> FileEntry:
        """Return one row."""
        page, at = divmod(number, self.directory.page_files)
        return self.page(page).entries[at]

    def first_group_of(self, number: int) -> int:
        """Return the number of the first row group of a file in the segment."""
        page, at = divmod(number, self.directory.page_files)
        return int(self.first_group[page] + self.page(page).first_group[at])

    def schema(self, number: int) -> pa.Schema:
        """Return the schema of a file; equal ones are one object."""
        page, at = divmod(number, self.directory.page_files)
        return parsed_schema(self.schemas[int(self.page(page).columns["schema"][at])])

    def place_of(self, group: int) -> tuple[int, int, str | None]:
        """Return file and row group of a row group of the segment, and the path of the file.

        The path is None, and FormatError is raised, as for :meth:`locate`.
        """
        if group >= self.num_row_groups:
            raise _no_such_group()
        number = bisect_right(self._first_groups, group) - 1
        page, within = self.page(number), group - self._first_groups[number]
        file = bisect_right(page.first_groups, within) - 1
        return (number * self.directory.page_files + file, within - page.first_groups[file],
                page.covered_path(file))

    @cached_property
    def _first_groups(self) -> list[int]:
        return self.first_group.tolist()

    def check_groups(self, groups: np.ndarray) -> None:
        """Raise FormatError if the segment does not have one of these row groups (uint64)."""
        if groups.size and groups.max() >= self.num_row_groups:
            raise _no_such_group()

    def pages_of(self, groups: np.ndarray) -> np.ndarray:
        """Return the number of the page of each row group (uint64); int64.

        Raises FormatError if there is no such row group.
        """
        self.check_groups(groups)
        return np.searchsorted(self.first_group, groups.astype(np.int64), "right") - 1

    def locate(self, groups: np.ndarray) -> Located:
        """Find row groups of the segment (uint64).

        Raises FormatError if there is no such row group, or a page is damaged.
        """
        pages = self.pages_of(groups)
        files, within = np.zeros_like(pages), groups.astype(np.int64) - self.first_group[pages]
        has_ranges = np.zeros(pages.size, bool)
        paths: list[str | None] = [None] * pages.size
        for number, here in by_page(pages):
            page = self.page(number)
            found = np.searchsorted(page.first_group, within[here], "right") - 1
            within[here] -= page.first_group[found]
            has_ranges[here] = page.columns["has_ranges"][found] != 0
            files[here] = number * self.directory.page_files + found
            path_of = page.covered_path if here.size < _FEW_NAMES \
                else page.covered_paths.__getitem__
            for hit, file in zip(here.tolist(), found.tolist(), strict=True):
                paths[hit] = path_of(file)
        return Located(files, within, has_ranges, paths)

    # --- all rows --------------------------------------------------------------------------------

    def all_pages(self) -> Iterator[FilePage]:
        """Yield all pages, of which some are read together.

        Raises FormatError if they are much larger than what is stored of them.
        """
        ends, first, size = np.cumsum(self.directory.sizes), 0, 0
        while first < ends.size:
            start = ends[first] - self.directory.sizes[first]
            last = max(int(np.searchsorted(ends, start + _TOGETHER, "right")), first + 1)
            for number, page in enumerate(self.pages(first, last), first):
                size += page.nbytes
                if size > max(MAX_BYTES, _MOST_DENSE * int(ends[number])):
                    raise _invalid()
                yield page
            first = last

    @cached_property
    def rows(self) -> _Rows:
        """All rows; they stay in memory.

        Raises FormatError if two entries that cover a file have the same path.
        """
        found = _Rows([], [], [], [], [], [], [])
        for page in self.all_pages():
            columns = {name: column.tolist() for name, column in page.columns.items()}
            found.paths.extend(page.paths)
            found.stamps.extend(map(Stamp, columns["size"], columns["mtime_ns"], page.tags))
            found.row_group_counts.extend(columns["row_groups"])
            found.row_counts.extend(columns["rows"])
            found.contents.extend(columns["content"])
            found.schema_ids.extend(columns["schema"])
            found.has_ranges.extend(map(bool, columns["has_ranges"]))
        covered = [path for path, stamp in zip(found.paths, found.stamps, strict=True)
                   if stamp.size >= 0]
        if len(set(covered)) != len(covered):
            raise _invalid()
        return found

    def check(self) -> None:
        """Read all pages; raise FormatError if something is wrong with them.

        Hashes of the paths are compared, so that not all paths need to be in memory.
        """
        hashes = np.sort(np.fromiter(
            (hash(path) for page in self.all_pages() for path in page.covered_paths
             if path is not None), np.int64))
        if (hashes[1:] == hashes[:-1]).any():
            self.rows  # noqa: B018 - it compares the paths

    @property
    def has_large_row_groups(self) -> bool:
        """Whether it is worth while to know where in a row group values are."""
        return row_ranges.are_worth_it(self.rows.row_counts, self.rows.row_group_counts)

    @cached_property
    def parsed_schemas(self) -> list[pa.Schema]:
        """Schema of each file; equal ones are one object."""
        different = list(map(parsed_schema, self.schemas))
        return [different[number] for number in self.rows.schema_ids]


def _parsed(directory: FileDirectory, number: int, content: pa.Buffer) -> FilePage:
    first = number * directory.page_files
    try:
        page = FilePage.parse(content, directory.schemas)
        if len(page) != min(directory.page_files, directory.num_files - first) \
                or page.num_row_groups != directory.groups[number]:
            raise ValueError
    except _FAULTS:
        raise _invalid() from None
    return page


def _no_such_group() -> FormatError:
    return FormatError("a segment of the index names a row group that it does not have")


def _invalid() -> FormatError:
    return FormatError("the file table of a segment is invalid")


@lru_cache(maxsize=1000)
def parsed_schema(serialized: bytes) -> pa.Schema:
    """Parse a schema; those of several segments are one object, by which files are grouped.

    Raises FormatError if it is invalid.
    """
    try:
        found = pa.ipc.read_schema(pa.py_buffer(serialized))
        found.names  # noqa: B018 - which may not be UTF-8
    except (ValueError, OSError, pa.ArrowException):
        raise FormatError("the schema of a file in a segment of the index is invalid") from None
    return found
