"""Change the Bloom filters of one file: the code that all operations share.

Pages and page indexes keep their offsets, byte for byte. New offset indexes precede new filters.
Removed filters are truncated if they are
at the end of the file, and overwritten with zeros elsewhere. New filters follow everything else,
just before the new footer. Filters at the end of the file are moved, if they belong behind a new
one: filters are ordered by row group and column. The new file replaces the old one atomically.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter

from secure_bloom.crypto.aad import ModuleType
from secure_bloom.display import Result, count, shown
from secure_bloom.errors import (
    KMS_FAULTS,
    NO_KEY,
    FileError,
    FormatError,
    KeyRetrievalError,
    UnsupportedError,
)
from secure_bloom.keys.retrieval import Keys
from secure_bloom.maintain.build import build_filter
from secure_bloom.parquet.bloom_filter import (
    PLAIN,
    UNKNOWN,
    Disjoint,
    StoredFilter,
    detect_filter,
    encode_filter,
)
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.invocations import count_invocations
from secure_bloom.parquet.placing import set_offset_index
from secure_bloom.parquet.redaction import redact
from secure_bloom.parquet.tail import MAGIC
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.sbbf.options import BloomFilterOptions
from secure_bloom.sbbf.sizing import MAX_BYTES
from secure_bloom.storage.rewrite import Kept, Rewrite, Zeros
from secure_bloom.verify.measure import ColumnHashes

_Range = tuple[int, int]  # offset of the first byte, and of the first byte after the range
_Place = tuple[int, int]  # row group and column


@dataclass
class Plan:
    """The planned changes to the filters of a file.

    ``build`` lists, by row group and column, the chunks that get a new filter, replacing any
    existing one, and how to size it, or its number of blocks. ``remove`` lists the chunks whose
    existing filter is removed, ``redact`` those whose metadata reveals something of their values.
    ``index`` lists those that get an offset index, which is encrypted if the column is.
    """

    build: list[tuple[ColumnChunk, BloomFilterOptions | int]] = field(default_factory=list)
    remove: list[ColumnChunk] = field(default_factory=list)
    redact: list[ColumnChunk] = field(default_factory=list)
    index: list[tuple[ColumnChunk, bytes]] = field(default_factory=list)
    notes: tuple[str, ...] = ()  # for the result

    def __bool__(self) -> bool:
        return bool(self.build or self.remove or self.redact or self.index)

    def removed(self) -> list[ColumnChunk]:
        """The chunks whose existing filter is removed."""
        return [*self.remove, *(chunk for chunk, _ in self.build if chunk.bloom_filter)]


@dataclass(frozen=True, slots=True, repr=False)
class FileChange(Result):
    """The changes made to a file, or that a dry run would make.

    Attributes
    ----------
    file : str
    columns : tuple of str
        Dotted paths of the affected columns.
    built, removed : int
        Number of new filters, and of old ones that were removed or replaced.
    bytes : int or None
        Size of the new filters with their headers; None if nothing was done.
    notes : tuple of str
        Further remarks for the user.
    indexed : int
        Number of new offset indexes.
    """

    file: str
    columns: tuple[str, ...]
    built: int
    removed: int
    bytes: int | None = None
    notes: tuple[str, ...] = ()
    indexed: int = 0

    def _headline(self) -> str:
        indexed = f", {self.indexed:,} offset indexes added" if self.indexed else ""
        return (f"{shown(self.file, 60)}: {count(self.built, 'filter')} built, {self.removed} "
                f"removed{indexed}")

    @classmethod
    def planned(cls, plan: Plan, file: OpenFile) -> FileChange:
        """The changes that a plan would make."""
        chunks = [*(chunk for chunk, _ in plan.build), *plan.remove, *plan.redact,
                  *(chunk for chunk, _ in plan.index)]
        columns = dict.fromkeys(chunk.column.path for chunk in chunks)
        return cls(file.name, tuple(columns), len(plan.build), len(plan.removed()),
                   notes=plan.notes, indexed=len(plan.index))


def stored_filter(file: OpenFile, chunk: ColumnChunk) -> StoredFilter | None:
    """What is stored at the offset of a chunk's filter; None if it has no filter."""
    where = chunk.bloom_filter
    if where is None:
        return None
    if not len(MAGIC) <= where[0] < file.footer.start:
        return StoredFilter(UNKNOWN)
    return detect_filter(file, where[0], file.footer.start)


def leaks(file: OpenFile, chunk: ColumnChunk) -> bool:
    """Whether a column is encrypted, but its filter is not."""
    return chunk.encryption is not None and (stored := stored_filter(file, chunk)) is not None \
        and stored.kind == PLAIN


def check_pages(plan: Plan, file: OpenFile) -> None:
    """Check that the pages to be read do not overlap, before anything is read.

    Raises FormatError if they add up to more bytes than the file has.
    """
    disjoint = Disjoint(file.footer.start, "pages")
    for chunk, _ in plan.build:
        _, length = chunk.pages or (0, 0)
        disjoint.add(chunk, max(length, 0))


def check_keys(plan: Plan, file: OpenFile) -> None:
    """Check that all keys are available, before anything is written.

    Raises KeyRetrievalError if the key of the footer, or of an affected column, is not available.
    """
    for chunk in (*plan.remove, *(chunk for chunk, _ in plan.build)):
        _ = chunk.cipher
    if file.footer.is_encrypted:
        _ = file.footer.crypto.footer_cipher


def apply(plan: Plan, rewrite: Rewrite, file: OpenFile, keys: Keys,
          advance: Callable[[float], None] = lambda fraction: None) -> int:
    """Replace a file by one with other filters; return the size of the new filters in bytes.

    The plan is for chunks of ``file.footer``, which is modified; ``rewrite`` is for the same file,
    opened before it; ``keys`` are the keys of ``file``. ``advance`` is called with the completed
    fraction.

    Raises FormatError if a filter to be removed shares bytes with retained data; KeyRetrievalError
    if the key of the footer, or of an affected column, is not available; ChangedMeanwhileError if
    the file has been changed concurrently.
    """
    removed = plan.removed()
    ranges = _merged(range_ for chunk in removed if (range_ := _extent(file, chunk)) is not None)
    if ranges:
        _check_nothing_else_goes(ranges, set(map(_place, removed)), file)
    moved = _moved(plan, file)
    ranges = _merged([*ranges, *moved.values()])
    writing = _Writing(plan, moved, file, keys, advance)
    rewrite.replace_by(writing.parts(_segments(ranges, file.footer.start)))
    return writing.num_bytes


class _Writing:
    """The parts of the new file, each produced on demand."""

    def __init__(self, plan: Plan, moved: dict[_Place, _Range], file: OpenFile, keys: Keys,
                 advance: Callable[[float], None]):
        self._plan, self._moved = plan, moved
        self._file, self._footer, self._advance = file, file.footer, advance
        self._hashes = ColumnHashes(file, keys)
        self._rows = max(1, sum(self._num_rows(chunk) for chunk, _ in plan.build))
        self._rows_done = 0
        self.num_bytes = 0

    def parts(self, segments: list[Kept | Zeros]) -> Iterator[Kept | Zeros | bytes | memoryview]:
        yield from segments
        position = sum(part.size if isinstance(part, Zeros) else part.end - part.start
                       for part in segments)
        for chunk, index in self._plan.index:
            modules = chunk.modules
            data = index if modules is None else modules.encrypt(index, ModuleType.OFFSET_INDEX)
            set_offset_index(chunk, position, len(data))
            chunk.finish()
            position += len(data)
            yield data
        sizes = {_place(chunk): size for chunk, size in self._plan.build}
        for place in sorted(sizes.keys() | self._moved.keys()):
            chunk = self._footer.row_groups[place[0]][place[1]]
            parts = self._built(chunk, sizes[place]) if place in sizes else [self._old(place)]
            yield from parts
            length = sum(map(len, parts))
            chunk.set_bloom_filter(position, length)
            chunk.finish()
            position += length
        for chunk in self._plan.remove:
            chunk.remove_bloom_filter()
            chunk.finish()
        for chunk in self._plan.redact:
            redact(chunk)
        count_invocations(self._footer)
        yield self._footer.to_bytes()

    def _built(self, chunk: ColumnChunk, size: BloomFilterOptions | int) \
            -> list[bytes | memoryview]:
        filter_ = build_filter(self._hashes, chunk, self._num_rows(chunk), size, self._count)
        parts = encode_filter(filter_, chunk)
        self.num_bytes += sum(map(len, parts))
        return parts

    def _old(self, place: _Place) -> bytes:
        start, end = self._moved[place]
        return self._file.read_at(end - start, start)

    def _num_rows(self, chunk: ColumnChunk) -> int:
        return self._footer.row_group_num_rows(chunk.row_group)

    def _count(self, rows: int) -> None:
        self._rows_done += rows
        self._advance(self._rows_done / self._rows)


def _place(chunk: ColumnChunk) -> _Place:
    return chunk.row_group, chunk.column.ordinal


# --- removed and retained bytes ------------------------------------------------------------------

def _extent(file: OpenFile, chunk: ColumnChunk) -> _Range | None:
    """The byte range of a chunk's filter; None if no filter is stored at its offset."""
    where, stored = chunk.bloom_filter, stored_filter(file, chunk)
    if where is None or stored is None or stored.kind == UNKNOWN:
        return None
    offset, recorded = where
    length = max(stored.length or 0, recorded or 0)  # so that no byte is left if the two disagree
    if not length or not 0 < length <= file.footer.start - offset:
        raise FormatError("the end of the filter is unknown, so it cannot be removed safely; "
                          "rewrite the file", **chunk.place)
    return offset, offset + length


def _moved(plan: Plan, file: OpenFile) -> dict[_Place, _Range]:
    """The filters to be moved behind a new one, and where they are.

    They are at the end of the file, so that moving leaves no gap, and their keys are available.
    """
    if not plan.build:
        return {}
    first, removed = min(_place(chunk) for chunk, _ in plan.build), set(map(_place, plan.removed()))
    end, moved = file.footer.start, {}
    for start, stop, chunk in sorted(_later(first, file), key=itemgetter(1, 0), reverse=True):
        stored = stored_filter(file, chunk)
        length = 0 if stored is None else stored.length
        if stop != end or stop - start > MAX_BYTES or length != stop - start:
            break
        end = start
        if _place(chunk) not in removed:
            moved[_place(chunk)] = start, stop
    try:
        _check_nothing_else_goes(_merged(moved.values()), removed | moved.keys(), file)
    except FormatError:
        return {}
    return moved


def _later(first: _Place, file: OpenFile) -> Iterator[tuple[int, int, ColumnChunk]]:
    """The filters from this place on whose offset can be changed: start, end and column chunk."""
    for chunk in file.footer.column_chunks():
        if _place(chunk) >= first:
            try:
                chunk.metadata()
                if (where := chunk.bloom_filter) is not None and where[1] is not None:
                    yield where[0], where[0] + where[1], chunk
            except KMS_FAULTS:
                raise
            except (KeyRetrievalError, FileError, UnsupportedError):
                continue


def _check_nothing_else_goes(ranges: list[_Range], removed: set[_Place], file: OpenFile) -> None:
    starts = [start for start, _ in ranges]
    for start, end, what, chunk in _retained_ranges(removed, file):
        before = bisect_left(starts, end)  # the number of ranges that begin before this one ends
        if before and ranges[before - 1][1] > start:
            raise FormatError(f"a filter to be removed shares bytes with the {what} of this "
                              "column; rewrite the file", **chunk.place)


def _retained_ranges(removed: set[_Place], file: OpenFile) \
        -> Iterator[tuple[int, int, str, ColumnChunk]]:
    """The byte ranges in use, as far as the available keys reveal them."""
    for chunk in file.footer.column_chunks():
        ranges = {"column index": chunk.column_index, "offset index": chunk.offset_index}
        try:
            ranges["pages"] = chunk.pages
            where = None if _place(chunk) in removed else chunk.bloom_filter
            if where is not None:
                stored = None if where[1] else stored_filter(file, chunk)
                ranges["filter"] = where[0], where[1] or (stored and stored.length) or 1
        except NO_KEY:
            pass  # it is encrypted, so only a holder of the key can have made it point there
        for what, range_ in ranges.items():
            if range_ is not None:
                yield range_[0], sum(range_), what, chunk


def _merged(ranges: Iterable[_Range]) -> list[_Range]:
    """Sort the ranges by offset, and merge those that touch or overlap."""
    merged: list[_Range] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _segments(removed: list[_Range], end: int) -> list[Kept | Zeros]:
    """What precedes the new filters; ``end`` is the end of pages, indexes and filters."""
    if removed and removed[-1][1] == end:
        end = removed[-1][0]
        removed = removed[:-1]
    segments: list[Kept | Zeros] = []
    position = 0
    for start, stop in removed:
        segments += [Kept(position, start), Zeros(stop - start)]
        position = stop
    return [*segments, Kept(position, end)]
