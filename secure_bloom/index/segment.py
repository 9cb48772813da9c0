"""A segment of an index: an immutable file of sealed pages, and the files that it covers.

    "SBX3"              4 bytes
    pages               sealed (PAGE, ordinal: page)
    pages of files      sealed (FILE_PAGE, ordinal: page), see secure_bloom.index.file_pages
    directory           sealed in parts of 65,536 pages (DIRECTORY, ordinal: part): offset of the
                        first page (8 bytes), then the sizes of the sealed pages (4 bytes each)
    file table          sealed (FILES), see secure_bloom.index.file_table
    footer              sealed (FOOTER), JSON: pairs, column type, geometry, offsets of directory
                        and file table
    length of footer    4 bytes, little-endian, then "SBX3"

Numbers are little-endian. The manifest records where the tail begins, so that one read opens a
segment. What a segment covers is determined by its own file table alone.

The first bytes of a segment may be in files of their own, its parts. The bytes of the segment are
those of the parts in the order of the manifest, then those of the segment's own file.

Segments of the format SBX2 have no pages of files, and another file table.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from secure_bloom.crypto.modules import OVERHEAD, Bytes
from secure_bloom.errors import AuthenticationError, FormatError, UnsupportedError
from secure_bloom.index.file_pages import MAX_FILE_PAGE
from secure_bloom.index.file_table import FileDirectory, FileTable, Location
from secure_bloom.index.geometry import MAX_GROUP_BITS, Geometry, pack
from secure_bloom.index.pages import SPARE, Page, Pages
from secure_bloom.index.sealing import MAGIC, SBX2, ModuleType, Sealer
from secure_bloom.index.segment_info import SegmentInfo
from secure_bloom.kernels.vectorized import encode_page
from secure_bloom.keys.cache import LIFETIME
from secure_bloom.sbbf.column_type import PHYSICAL_TYPES, ColumnType
from secure_bloom.storage.cache import Cache
from secure_bloom.storage.small_files import parse_json

DIRECTORY_PART = 1 << 16  #: pages of a part of the directory
MAX_PAGE = 64 * 1024 * 1024  #: bytes of a sealed page
MAX_STORED_FILE_PAGE = 2 * MAX_FILE_PAGE  #: of a sealed page of files
READ_TOGETHER = 1024 * 1024  #: bytes of successive pages
_MAX_TAIL = 160 * 1024 * 1024  # bytes; its largest part is the file table

# Pages of all segments in which single fingerprints were looked up; they have some 45 KB each.
# Without use, they are dropped after as long as open indexes are.
_kept: Cache[Page] = Cache(32 * 1024 * 1024, LIFETIME)

_FOOTER_FIELDS = {"pairs", "directory", "files", "column_type", "geometry"}

#: reads so many bytes at an offset; raises FormatError if the file is shorter
ReadAt = Callable[[int, int], bytes]


class Match(NamedTuple):
    """Fingerprints that a segment has: positions in the argument, row groups of the segment.

    ``ranges`` are those of the rows that may have the value; see :mod:`.row_ranges`. Groups and
    ranges are uint64; they say nothing of files whose ranges are not true any more.
    """

    probes: np.ndarray
    groups: np.ndarray
    ranges: np.ndarray


class PageRead(NamedTuple):
    """Successive pages to read together, and which fingerprints to look up in them.

    ``page`` is the number of the first one. ``bounds`` are the offsets of the pages, and the end of
    the last one; int64.
    """

    page: int
    bounds: np.ndarray
    probes: np.ndarray

    @property
    def offset(self) -> int:
        """Where the first page begins."""
        return int(self.bounds[0])

    @property
    def size(self) -> int:
        """Bytes of all pages."""
        return int(self.bounds[-1] - self.bounds[0])


class Segment:
    """An open segment. Its pages are read when they are needed.

    Parameters
    ----------
    info : SegmentInfo
    sealer : Sealer
        Of this segment.
    read_at : callable
        Reads from the file.
    location : callable, optional
        Makes a context manager that adds to errors where they are.

    Attributes
    ----------
    location : callable
        As passed.
    is_sound : bool
        Whether all that was read so far authenticates, and is complete. If not, the file may have
        been repaired since it was opened.
    """

    is_sound = True

    def __init__(self, info: SegmentInfo, sealer: Sealer, read_at: ReadAt,
                 location: Location = nullcontext):
        self.info, self._stored, self.location = info, read_at, location
        self._identity = object()  # that of another one is never the same, also after its end
        if info.size - info.tail > _MAX_TAIL:
            raise FormatError("the manifest describes a segment whose tail is too large to read")
        tail = read_at(info.tail, info.size - info.tail)
        if len(tail) < 8 or tail[-4:] not in (MAGIC, SBX2):
            raise FormatError("this is not a complete segment of an index")
        self.magic, end = tail[-4:], len(tail) - 8
        self._sealer = sealer.of_format(self.magic)
        length = int.from_bytes(tail[end:end + 4], "little")
        if length > end:
            raise FormatError("the footer of the segment is longer than the segment")
        footer = _Footer.parse(self._open(tail[end - length:end], ModuleType.FOOTER))
        self.column_type, self.geometry, self.pairs = \
            footer.column_type, footer.geometry, footer.pairs
        self.directory = footer.directory
        num_parts = -(-self.geometry.num_pages // DIRECTORY_PART)
        directory_size = num_parts * (OVERHEAD + 8) + 4 * self.geometry.num_pages
        if not info.tail <= footer.files <= info.size - 8 - length \
                or footer.files - footer.directory != directory_size:
            raise FormatError("the footer of the segment has invalid offsets")
        table = self._open(tail[footer.files - info.tail:end - length], ModuleType.FILES)
        self._end_of_pages = footer.directory
        self.file_bounds = np.empty(0, np.int64)  # of the pages of files
        self.files = FileTable.from_sbx2(table) if self.magic == SBX2 \
            else self._paged_files(FileDirectory.parse(table), tail)
        self._parts: dict[int, np.ndarray] = {}  # offsets of the pages, and the end of the last
        if footer.directory >= info.tail:
            for part in range(num_parts):
                at, size = self._place_of(part)
                self._add_part(part, tail[at - info.tail:at - info.tail + size])

    def _paged_files(self, directory: FileDirectory, tail: bytes) -> FileTable:
        """Return the file table; ``tail`` may have all its pages, or none."""
        ends = self.directory - np.cumsum(directory.sizes[::-1])[::-1]
        self.file_bounds = bounds = np.append(ends, self.directory)
        self._end_of_pages = int(bounds[0])
        if directory.sizes.max() > MAX_STORED_FILE_PAGE or bounds[0] < len(MAGIC):
            raise FormatError("the file table of a segment has invalid sizes")
        before = self.info.tail
        kept = tail[bounds[0] - before:self.directory - before] if bounds[0] >= before else b""

        def read(first: int, last: int) -> Iterator[pa.Buffer]:
            start, size = int(bounds[first]), int(bounds[last] - bounds[first])
            at = start - int(bounds[0])
            data = memoryview(kept[at:at + size] if kept else self._read_at(start, size))
            for page in range(first, last):
                yield self._open(data[bounds[page] - start:bounds[page + 1] - start],
                                 ModuleType.FILE_PAGE, page)

        return FileTable.stored(directory, read, self.location)

    def reads(self, fingerprints: np.ndarray) -> list[PageRead]:
        """Return which pages to read to look up fingerprints, in order."""
        if not fingerprints.size:
            return []
        pages = self.geometry.place(fingerprints)[0].astype(np.int64)
        if pages.size == 1:
            start, size = self.place_of_page(int(pages[0]))
            return [PageRead(int(pages[0]), np.array([start, start + size]), np.zeros(1, np.int64))]
        order = np.argsort(pages, kind="stable")
        numbers, firsts = np.unique(pages[order], return_index=True)
        starts, ends = self._places_of_pages(numbers)
        before = np.cumsum(ends - starts) - (ends - starts)
        is_first = np.append(True, (np.diff(numbers) != 1) | (starts[1:] != ends[:-1])
                             | (np.diff(before // READ_TOGETHER) != 0))
        runs = np.append(np.flatnonzero(is_first), numbers.size)
        firsts = np.append(firsts, order.size)
        return [PageRead(int(numbers[run]), np.append(starts[run:end], ends[end - 1]),
                         order[firsts[run]:firsts[end]])
                for run, end in pairwise(runs.tolist())]

    def read_pages(self, read: PageRead) -> bytes:
        """Read sealed pages."""
        return self._read_at(read.offset, read.size)

    def find(self, fingerprints: np.ndarray, reads: Sequence[PageRead],
             modules: Sequence[bytes]) -> Match:
        """Look up fingerprints in pages that were read; the arguments are in the order of pages."""
        if len(reads) == 1 and reads[0].probes.size == 1:
            return self._find_one(fingerprints, reads[0], modules[0])
        probes = np.concatenate([read.probes for read in reads])
        numbers = np.concatenate([np.arange(read.page, read.page + read.bounds.size - 1)
                                  for read in reads])
        pages, buckets, remainders = self.geometry.place(fingerprints[probes])
        found, places = self._opened_pages(reads, modules).find(
            np.searchsorted(numbers, pages.astype(np.int64)), buckets, remainders,
            self.geometry.place_bits)
        return Match(probes[found], *self.geometry.groups_and_ranges(places))

    def _find_one(self, fingerprints: np.ndarray, read: PageRead, module: bytes) -> Match:
        [fingerprint] = fingerprints[read.probes].tolist()
        number, bucket, remainder = self.geometry.place(fingerprint)
        places = np.array(self._parsed(number, module).find(
            bucket, remainder, self.geometry.place_bits), np.uint64)
        return Match(np.repeat(read.probes, places.size),
                     *self.geometry.groups_and_ranges(places))

    def groups_of(self, fingerprint: int) -> list[int]:
        """Look up one fingerprint; return the row groups that have it."""
        number, bucket, remainder = self.geometry.place(fingerprint)
        page = _kept.get((self._identity, number))
        if page is None:
            start, size = self.place_of_page(number)
            page = self._parsed(number, self._read_at(start, size))
            _kept.put((self._identity, number), page, size)
        places = page.find(bucket, remainder, self.geometry.place_bits)
        return [place >> self.geometry.range_bits for place in places]

    def _parsed(self, number: int, module: Bytes) -> Page:
        return Page(self._open(module, ModuleType.PAGE, number), self.geometry.layout)

    def _opened_pages(self, reads: Sequence[PageRead], modules: Sequence[bytes]) -> Pages:
        sizes = np.concatenate([np.diff(read.bounds) for read in reads]) - OVERHEAD
        bounds = np.append(0, np.cumsum(np.maximum(sizes, 0)))  # a smaller one is refused below
        content = pa.allocate_buffer(int(bounds[-1]) + SPARE)  # memory that Arrow uses again
        target, places = memoryview(content).cast("B"), pairwise(bounds.tolist())
        for read, module in zip(reads, modules, strict=True):
            sealed = memoryview(module)
            within = pairwise((read.bounds - read.offset).tolist())
            for page, (start, end) in enumerate(within, read.page):
                first, last = next(places)
                self._sealer.open_into(sealed[start:end], target[first:last], ModuleType.PAGE, page)
        return Pages(np.frombuffer(content, np.uint8), bounds, self.geometry.layout)

    def decode(self, first: int, last: int) \
            -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield fingerprints (their bits lowest), row groups and ranges of pages; uint64."""
        start, end = self.place_of_page(first)[0], sum(self.place_of_page(last - 1))
        data = memoryview(self._read_at(start, end - start))
        for page in range(first, last):
            offset, size = self.place_of_page(page)
            module = data[offset - start:offset - start + size]
            decoded = self._parsed(page, module).decode()
            top, places = self.geometry.join(page, *decoded)
            yield top, *self.geometry.groups_and_ranges(places)

    def without(self, page: int, pairs: np.ndarray) -> tuple[bytes, int]:
        """Return a page without some pairs, sealed again, and how many of these it had.

        They are as :func:`.pack` returns them, with row groups as places.
        """
        offset, size = self.place_of_page(page)
        buckets, entries = self._parsed(page, self._read_at(offset, size)).decode()
        top, places = self.geometry.join(page, buckets, entries)
        groups, _ = self.geometry.groups_and_ranges(places)
        stays = ~np.isin(pack(top << np.uint64(MAX_GROUP_BITS), groups), pairs)
        layout = self.geometry.layout
        module = self._sealer.seal(
            encode_page(buckets[stays], entries[stays], layout.width, layout.bucket_bits),
            ModuleType.PAGE, page)
        return module, int(np.count_nonzero(~stays))

    def page_sizes(self) -> np.ndarray:
        """Return the stored size of each page."""
        for part in range(0, self.geometry.num_pages, DIRECTORY_PART):
            self.place_of_page(part)  # which keeps the part
        return np.concatenate([np.diff(self._parts[part]) for part in sorted(self._parts)])

    def size_of(self, first: int, last: int) -> int:
        """Return the stored bytes of pages."""
        return sum(self.place_of_page(last - 1)) - self.place_of_page(first)[0]

    def place_of_page(self, page: int) -> tuple[int, int]:
        """Return offset and size of a page."""
        part, number = divmod(page, DIRECTORY_PART)
        start, end = self._part(part)[number:number + 2].tolist()
        return start, end - start

    def _places_of_pages(self, pages: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return where pages begin and end, whose numbers are in order."""
        parts, within = np.divmod(pages, DIRECTORY_PART)
        starts, ends = np.empty_like(pages), np.empty_like(pages)
        for part in np.unique(parts).tolist():
            here = slice(*np.searchsorted(parts, [part, part + 1]).tolist())
            offsets = self._part(part)
            starts[here], ends[here] = offsets[within[here]], offsets[within[here] + 1]
        return starts, ends

    def _part(self, part: int) -> np.ndarray:
        if part not in self._parts:
            at, size = self._place_of(part)
            self._add_part(part, self._read_at(at, size))
        return self._parts[part]

    def _place_of(self, part: int) -> tuple[int, int]:
        """Return offset and size of a part of the directory."""
        whole = OVERHEAD + 8 + 4 * DIRECTORY_PART
        pages = min(DIRECTORY_PART, self.geometry.num_pages - part * DIRECTORY_PART)
        return self.directory + part * whole, OVERHEAD + 8 + 4 * pages

    def _add_part(self, part: int, module: bytes) -> None:
        data = memoryview(self._open(module, ModuleType.DIRECTORY, part)).cast("B")
        first, sizes = int.from_bytes(data[:8], "little"), np.frombuffer(data, "<u4", offset=8)
        if sizes.max(initial=0) > MAX_PAGE:
            raise FormatError("the directory of a segment names a page that is too large to read")
        ends = np.cumsum(sizes, dtype=np.int64)
        if not len(MAGIC) <= first <= self._end_of_pages - int(ends[-1]):
            raise FormatError("the directory of a segment has invalid offsets")
        self._parts[part] = first + np.append(0, ends)

    def _read_at(self, offset: int, size: int) -> bytes:
        try:
            return self._stored(offset, size)
        except FormatError:
            self.is_sound = False
            raise

    def _open(self, module: Bytes, kind: ModuleType, ordinal: int = 0) -> pa.Buffer:
        try:
            return self._sealer.open(module, kind, ordinal)
        except AuthenticationError:
            self.is_sound = False
            raise

    def __repr__(self) -> str:
        return f"<Segment {self.info.id}: {len(self.files)} files, {self.pairs:,} pairs>"


class _Footer(NamedTuple):
    pairs: int
    directory: int
    files: int
    column_type: ColumnType
    geometry: Geometry

    @classmethod
    def parse(cls, data: pa.Buffer) -> _Footer:
        try:
            fields = parse_json(data.to_pybytes())
            if not _FOOTER_FIELDS.issuperset(fields):
                raise UnsupportedError("the footer of a segment has unknown fields; a newer "
                                       "secure_bloom may have written it")
            numbers = [fields[name] for name in ("pairs", "directory", "files")]
            if any(type(one) is not int or one < 0 for one in numbers):
                raise ValueError
            pairs, directory, files = numbers
            return cls(pairs, directory, files, parse_column_type(fields["column_type"]),
                       Geometry.from_json(fields["geometry"]))
        except (ValueError, TypeError, KeyError, OSError, pa.ArrowException):
            raise FormatError("the footer of a segment cannot be understood") from None


def column_type_json(column_type: ColumnType) -> dict[str, Any]:
    """Return a column type for the footer of a segment."""
    schema = pa.schema([("value", column_type.arrow_type)]).serialize().to_pybytes()
    return {"physical_type": column_type.physical_type, "length": column_type.length,
            "arrow_schema": base64.b64encode(schema).decode()}


def parse_column_type(fields: Any) -> ColumnType:
    """Parse :func:`column_type_json`."""
    if fields["physical_type"] not in PHYSICAL_TYPES or type(fields["length"]) is not int \
            or len(fields) != 3:
        raise ValueError
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(fields["arrow_schema"])))
    return ColumnType(fields["physical_type"], fields["length"], schema.field(0).type)
