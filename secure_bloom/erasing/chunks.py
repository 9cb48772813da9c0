"""Column chunks of a new file that are written again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from secure_bloom.crypto.aad import ModuleType
from secure_bloom.errors import UnsupportedError, error_location
from secure_bloom.maintain.build import build_filter
from secure_bloom.maintain.copied_chunk import Part, filter_range
from secure_bloom.parquet.bloom_filter import encode_filter, read_header
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.page_index import placed_index
from secure_bloom.parquet.pages import StoredPages, copied_pages
from secure_bloom.parquet.placing import replace_pages
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.sbbf.sizing import BYTES_PER_BLOCK
from secure_bloom.verify.measure import ColumnHashes


class WrittenChunk:
    """A column chunk whose pages are written again.

    Parameters
    ----------
    chunk : ColumnChunk
        At its old place: what is bound to it is read now.
    file : OpenFile
        The old file.
    new : ColumnChunk
        The only one of its column in ``new_file``, which is in memory and not encrypted.
    hashes : ColumnHashes
        Of ``new_file``.
    num_rows : int
        Of ``new_file``.
    """

    is_as_it_was = False

    def __init__(self, chunk: ColumnChunk, file: OpenFile, new: ColumnChunk,
                 new_file: OpenFile, hashes: ColumnHashes, num_rows: int):
        self.chunk, self._new, self._new_file = chunk, new, new_file
        self._hashes, self._num_rows = hashes, num_rows
        self._column_index = self._read(new.column_index) if chunk.column_index else None
        self._offset_index = self._read(new.offset_index) if chunk.offset_index else None
        self._num_blocks = 0
        if filter_range(chunk, file) is not None and chunk.column.type.can_be_hashed:
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
