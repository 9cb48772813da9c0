"""Column chunks of a new file: copied from the old one, or written again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Protocol, TypeAlias

from secure_bloom.crypto.aad import ModuleType
from secure_bloom.errors import FormatError, UnsupportedError, error_location
from secure_bloom.maintain.build import build_filter
from secure_bloom.maintain.change import stored_filter
from secure_bloom.parquet import thrift
from secure_bloom.parquet.bloom_filter import copied_filter, encode_filter, read_header
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.pages import StoredPages, copied_pages, moved_index, placed_index
from secure_bloom.parquet.placing import move_pages, replace_pages, resize_pages
from secure_bloom.reader import ParquetFile
from secure_bloom.sbbf.sizing import BYTES_PER_BLOCK
from secure_bloom.storage.rewrite import Kept
from secure_bloom.verify.measure import ColumnHashes

Part: TypeAlias = Kept | bytes | memoryview


class NewChunk(Protocol):
    """A column chunk of the new file.

    Each part is made when it is asked for. By then the row group is at its new place, to which
    modules are bound.
    """

    chunk: ColumnChunk

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

    As one range of bytes if possible: if it is not encrypted, and no structure of the footer has
    an extension. Then the headers of pages are taken to have none, either.
    """

    def __init__(self, chunk: ColumnChunk, file: ParquetFile, *, may_have_extensions: bool):
        self.chunk, self._file = chunk, file
        self._is_as_it_was = chunk.modules is None and not may_have_extensions
        self._place, self._modules = chunk.place, chunk.modules  # those of the old file
        self._pages = _kept(chunk, chunk.pages, file)
        self._column_index = _kept(chunk, chunk.column_index, file)
        self._offset_index = _kept(chunk, chunk.offset_index, file)
        self._filter = _kept(chunk, _filter_range(chunk, file), file)
        self._start, self._stored = 0, StoredPages()

    def pages(self, start: int) -> Iterator[Part]:
        self._start = start
        if self._pages is None:
            return
        if self._is_as_it_was:
            move_pages(self.chunk, start - self._pages.start)
            yield self._pages
            return
        with error_location(**self._place):
            yield from copied_pages(self._file, _range(self._pages), self._modules,
                                    self.chunk.modules, self._stored)
        resize_pages(self.chunk, start, self._stored)

    def filter(self) -> Sequence[Part]:
        if self._filter is None:
            return []
        if self._is_as_it_was:
            return [self._filter]
        with error_location(**self._place), suppress(UnsupportedError):
            return copied_filter(self._file, *_range(self._filter), self._modules,
                                 self.chunk.modules)
        return []  # a filter that cannot be used is left out

    def release(self) -> None:
        pass  # it has no rows

    def column_index(self) -> Part | None:
        if self._column_index is None or self._is_as_it_was:
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
        if not self._is_as_it_was and self._pages is not None:
            return placed_index(offset_index, self._start + self._stored.dictionary_size,
                                self._stored.data_sizes)
        return moved_index(offset_index, self._start - self._pages.start if self._pages else 0)


class WrittenChunk:
    """A column chunk whose pages are written again.

    Parameters
    ----------
    chunk : ColumnChunk
        At its old place: what is bound to it is read now.
    file : ParquetFile
        The old file.
    new : ColumnChunk
        The only one of its column in ``new_file``, which is in memory and not encrypted.
    hashes : ColumnHashes
        Of ``new_file``.
    num_rows : int
        Of ``new_file``.
    """

    def __init__(self, chunk: ColumnChunk, file: ParquetFile, new: ColumnChunk,
                 new_file: ParquetFile, hashes: ColumnHashes, num_rows: int):
        self.chunk, self._new, self._new_file = chunk, new, new_file
        self._hashes, self._num_rows = hashes, num_rows
        self._column_index = self._read(new.column_index) if chunk.column_index else None
        self._offset_index = self._read(new.offset_index) if chunk.offset_index else None
        self._num_blocks = 0
        if _filter_range(chunk, file) is not None and chunk.column.type.can_be_hashed:
            with suppress(UnsupportedError):  # a filter that cannot be used is left out
                size = read_header(file, chunk, file.footer.start) or 0
                self._num_blocks = size // BYTES_PER_BLOCK
        self._start, self._stored = 0, StoredPages()

    def pages(self, start: int) -> Iterator[Part]:
        with error_location(**self.chunk.place):
            yield from copied_pages(self._new_file, self._new.pages or (0, 0), None,
                                    self.chunk.modules, self._stored)
        replace_pages(self.chunk, self._new, start, self._stored)
        self._start = start + self._stored.dictionary_size

    def filter(self) -> Sequence[Part]:
        if not self._num_blocks:
            return []
        filter_ = build_filter(self._hashes, self._new, self._num_rows, self._num_blocks)
        return encode_filter(filter_, self.chunk)

    def release(self) -> None:
        del self._new, self._new_file, self._hashes

    def column_index(self) -> Part | None:
        return self._sealed(self._column_index, ModuleType.COLUMN_INDEX)

    def offset_index(self) -> Part | None:
        data = self._offset_index
        return self._sealed(data and placed_index(data, self._start, self._stored.data_sizes),
                            ModuleType.OFFSET_INDEX)

    def _read(self, where: tuple[int, int] | None) -> bytes | None:
        return None if where is None else self._new_file.read_at(where[1], where[0])

    def _sealed(self, data: bytes | None, module_type: ModuleType) -> bytes | None:
        modules = self.chunk.modules
        return data if data is None or modules is None else modules.encrypt(data, module_type)


def _filter_range(chunk: ColumnChunk, file: ParquetFile) -> tuple[int, int] | None:
    """Return offset and length of a chunk's filter; None if it has none that can be recognized."""
    where, stored = chunk.bloom_filter, stored_filter(file, chunk)
    if where is None or stored is None:
        return None
    length = stored.length or where[1]
    return (where[0], length) if length else None


def _kept(chunk: ColumnChunk, where: tuple[int, int] | None, file: ParquetFile) -> Kept | None:
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
