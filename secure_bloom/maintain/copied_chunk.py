"""Column chunks of a new version of a file: what each of them has, and those that are copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Protocol, TypeAlias

from secure_bloom.crypto.aad import ModuleType
from secure_bloom.errors import FormatError, UnsupportedError, error_location
from secure_bloom.maintain.change import stored_filter
from secure_bloom.parquet import thrift
from secure_bloom.parquet.bloom_filter import copied_filter
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.page_index import moved_index, placed_index
from secure_bloom.parquet.pages import StoredPages, copied_pages
from secure_bloom.parquet.placing import move_pages, num_values, resize_pages
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage.rewrite import Kept

Part: TypeAlias = Kept | bytes | memoryview


class NewChunk(Protocol):
    """A column chunk of the new file.

    ``is_as_it_was``: whether it has the same bytes there. Each part is made when it is asked for.
    By then the row group is at its new place, to which modules are bound.
    """

    chunk: ColumnChunk
    is_as_it_was: bool

    def pages(self, start: int) -> Iterator[Part]:
        """Yield the pages, which begin at this offset, and record where they are."""

    def filter(self) -> Sequence[Part]:
        """Return the Bloom filter; empty without one."""

    def release(self) -> None:
        """Forget the rows; pages and filter have been taken."""

    def column_index(self) -> Part | None:
        """Return the column index."""

    def offset_index(self) -> Part | None:
        """Return the offset index."""


class CopiedChunk:
    """A column chunk whose pages are copied; if it is encrypted, then under its new identity.

    Parameters
    ----------
    chunk : ColumnChunk
        At its old place: what is bound to it is read now.
    file : OpenFile
        The old file.
    is_as_it_was : bool
        Whether its bytes are the same in the new file, so that they are copied as one range: it is
        encrypted in neither, and no structure of the footer has an extension. Then the headers of
        pages are taken to have none, either.
    build : callable, optional
        Returns the Bloom filter of the new file, when the column chunk is at its place there. By
        default, it is copied.
    """

    def __init__(self, chunk: ColumnChunk, file: OpenFile, *, is_as_it_was: bool,
                 build: Callable[[], Sequence[Part]] | None = None):
        self.chunk, self._file = chunk, file
        self.is_as_it_was, self._build = is_as_it_was, build
        self._place, self._modules = chunk.place, chunk.modules  # those of the old file
        self._pages, self._column_index, self._offset_index, self._filter = \
            kept_parts(chunk, file)
        self._num_values = num_values(chunk)
        if self._pages is None and self._num_values:
            raise FormatError("the footer does not say where its pages are", **self._place)
        self._start, self._stored = 0, StoredPages()

    def pages(self, start: int) -> Iterator[Part]:
        self._start = start
        if self._pages is None:
            return
        if self.is_as_it_was:
            move_pages(self.chunk, start - self._pages.start)
            yield self._pages
            return
        with error_location(**self._place):
            yield from copied_pages(self._file, _range(self._pages), self._modules,
                                    self.chunk.modules, self._stored)
            if self._stored.num_values != self._num_values:
                raise FormatError(f"its pages have {self._stored.num_values} values, but the "
                                  f"footer says {self._num_values}")
        resize_pages(self.chunk, start, self._stored)

    def filter(self) -> Sequence[Part]:
        if self._build is not None:
            return self._build()
        if self._filter is None:
            return []
        if self.is_as_it_was:
            return [self._filter]
        with error_location(**self._place), suppress(UnsupportedError):
            return copied_filter(self._file, *_range(self._filter), self._modules,
                                 self.chunk.modules)
        return []  # a filter that cannot be used is left out

    def release(self) -> None:
        pass  # it has no rows

    def column_index(self) -> Part | None:
        if self._column_index is None or self.is_as_it_was:
            return self._column_index
        return self._copied(self._column_index, ModuleType.COLUMN_INDEX)

    def offset_index(self) -> Part | None:
        where = self._offset_index
        return None if where is None else self._copied(where, ModuleType.OFFSET_INDEX)

    def _copied(self, where: Kept, module_type: ModuleType) -> Part:
        with error_location(**self._place):
            start, size = _range(where)
            data: bytes = self._file.read_at(size, start)
            if self._modules is not None:
                data = self._modules.decrypt(data, module_type)
            data = thrift.without_extensions(data)
            if module_type == ModuleType.OFFSET_INDEX:
                data = self._moved(data)
            new = self.chunk.modules
            return data if new is None else new.encrypt(data, module_type)

    def _moved(self, offset_index: bytes) -> bytes:
        if not self.is_as_it_was and self._pages is not None:
            return placed_index(offset_index, self._start + self._stored.dictionary_size,
                                self._stored.data_sizes)
        return moved_index(offset_index, self._start - self._pages.start if self._pages else 0)


def filter_range(chunk: ColumnChunk, file: OpenFile) -> tuple[int, int] | None:
    """Return offset and length of a chunk's filter; None if it has none that can be recognized."""
    where, stored = chunk.bloom_filter, stored_filter(file, chunk)
    if where is None or stored is None:
        return None
    length = stored.length or where[1]
    return (where[0], length) if length else None


def kept_parts(chunk: ColumnChunk, file: OpenFile) -> list[Kept | None]:
    """Return where a chunk's pages, column index, offset index and filter are.

    Raises FormatError if the file does not have these bytes.
    """
    return [_kept(chunk, where, file) for where in (
        chunk.pages, chunk.column_index, chunk.offset_index, filter_range(chunk, file))]


def _kept(chunk: ColumnChunk, where: tuple[int, int] | None, file: OpenFile) -> Kept | None:
    """Return a range of bytes to copy; raises FormatError if the file does not have them."""
    if where is None:
        return None
    start, length = where
    if start < 0 or not 0 <= length <= file.footer.start - start:
        raise FormatError("a part of the column lies outside the file", **chunk.place)
    return Kept(start, start + length)


def _range(kept: Kept) -> tuple[int, int]:
    """Return offset and length."""
    return kept.start, kept.end - kept.start
