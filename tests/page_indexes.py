"""The page indexes of a file: what they say, and what its page headers say."""

from __future__ import annotations

from typing import NamedTuple

from secure_bloom.crypto.aad import ModuleType
from secure_bloom.parquet import thrift
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.pages import data_pages
from secure_bloom.reading.open_file import OpenFile


class Page(NamedTuple):
    """One entry of an offset index."""

    offset: int
    size: int
    first_row: int


def index_bytes(file: OpenFile, chunk: ColumnChunk, module_type: ModuleType) -> bytes | None:
    """Return a page index, decrypted if the column is encrypted; None without one."""
    where = chunk.column_index if module_type == ModuleType.COLUMN_INDEX else chunk.offset_index
    if where is None:
        return None
    data = file.read_at(where[1], where[0])
    return data if chunk.modules is None else chunk.modules.decrypt(data, module_type)


def decode_pages(index: bytes) -> list[Page]:
    """Return the entries of an offset index."""
    struct, _ = thrift.decode(index, {})
    return [Page(*(one.get_int(field) for field in (1, 2, 3)))
            for one in thrift.each(struct, 1, {})]


def indexed_pages(file: OpenFile, chunk: ColumnChunk) -> list[Page] | None:
    """Return the entries of a column chunk's offset index; None without one."""
    index = index_bytes(file, chunk, ModuleType.OFFSET_INDEX)
    return None if index is None else decode_pages(index)


def page_bounds(file: OpenFile, chunk: ColumnChunk) -> list[tuple[bytes, bytes]] | None:
    """Return minimum and maximum of each page by the column index; None without one."""
    index = index_bytes(file, chunk, ModuleType.COLUMN_INDEX)
    if index is None:
        return None
    struct, _ = thrift.decode(index, {})
    return list(zip(*(thrift.decode_binaries(struct.get(field)) for field in (2, 3)),
                    strict=True))


def check_offset_indexes(file: OpenFile) -> int:
    """Check the offset indexes of a file against the headers of its pages; return their number."""
    count = 0
    for chunk in file.footer.column_chunks():
        found = indexed_pages(file, chunk)
        if found is None:
            continue
        pages = list(data_pages(file, chunk.pages, chunk.modules))
        assert [(one.offset, one.size) for one in found] \
            == [(one.offset, one.size) for one in pages], chunk.place
        first = 0
        for location, page in zip(found, pages, strict=True):
            if not chunk.column.is_repeated or page.num_rows is not None:
                assert location.first_row == first, chunk.place
                first += page.num_values if page.num_rows is None else page.num_rows
        count += 1
    return count
