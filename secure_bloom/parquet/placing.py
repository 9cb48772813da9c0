"""What the footer says of column chunks whose pages or page indexes are moved or replaced."""

from __future__ import annotations

from collections.abc import Container

from secure_bloom.parquet import thrift
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.pages import StoredPages
from secure_bloom.parquet.thrift import Struct

# Field ids of parquet.thrift that this module uses.
_FILE_OFFSET, _OFFSET_INDEX, _COLUMN_INDEX = 2, (4, 5), (6, 7)  # ColumnChunk
_ENCODINGS, _CODEC, _NUM_VALUES, _TOTAL_SIZE, _COMPRESSED_SIZE = 2, 4, 5, 6, 7  # ColumnMetaData
_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE, _STATISTICS, _ENCODING_STATS = 9, 10, 11, 12, 13
_SIZE_STATISTICS = 16

#: describe the column, not its pages: type, path_in_schema
_OF_COLUMN = 1, 3
#: describe the pages, in every column chunk
_OF_PAGES = (_ENCODINGS, _CODEC, _NUM_VALUES, _TOTAL_SIZE, _COMPRESSED_SIZE, _DATA_PAGE,
             _DICTIONARY_PAGE)
#: also describe the pages; replaced if the column chunk had them before
_OPTIONAL = _STATISTICS, _ENCODING_STATS, _SIZE_STATISTICS


def move_pages(chunk: ColumnChunk, distance: int) -> None:
    """Record that the pages were moved by some bytes.

    Errors as for :meth:`.ColumnChunk.metadata`.
    """
    for meta in chunk.metadata_to_change():
        for field in (_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE):
            _move(meta, field, distance)
    _move(chunk.to_change(), _FILE_OFFSET, distance)


def replace_pages(chunk: ColumnChunk, new: ColumnChunk, start: int, pages: StoredPages) -> None:
    """Record other pages of the same column.

    Parameters
    ----------
    chunk : ColumnChunk
        Receives the description of the pages; what describes the column stays. Key-value metadata
        may describe the old pages.
    new : ColumnChunk
        Describes the pages as they were before they were encrypted.
    start : int
        Offset of the first page in the file.
    pages : StoredPages
        The pages as they are stored.

    Raises
    ------
    FormatError, AuthenticationError, KeyRetrievalError
        If the metadata of one of the column chunks cannot be read.
    """
    found = {field[0]: field for field in new.metadata().fields}
    for meta in chunk.metadata_to_change():
        wanted = [*_OF_PAGES, *(field for field in _OPTIONAL if meta.get(field) is not None)]
        fields = [field for field in meta.fields if field[0] in _OF_COLUMN]
        fields += [list(found[field]) for field in wanted if field in found]
        statistics = _of_kind(meta.get(_STATISTICS), new.metadata().get(_STATISTICS))
        meta.fields = sorted(fields)
        if statistics is not None:
            meta.set(_STATISTICS, thrift.STRUCT, statistics)
    resize_pages(chunk, start, pages)


def _of_kind(old: object, new: object) -> bytes | None:
    """Return those statistics that the column chunk had before; None without any."""
    if not isinstance(old, bytes) or not isinstance(new, bytes):
        return None
    known = {field[0] for field in thrift.decode(old, {})[0].fields}
    return thrift.encode(Struct([field for field in thrift.decode(new, {})[0].fields
                                 if field[0] in known]))


def resize_pages(chunk: ColumnChunk, start: int, pages: StoredPages) -> None:
    """Record where the same pages are now, and their sizes.

    Parameters and errors as for :func:`replace_pages`.
    """
    for meta in chunk.metadata_to_change():
        added = pages.size - (meta.get_int(_COMPRESSED_SIZE) or 0)
        meta.set_int(_TOTAL_SIZE, thrift.I64, (meta.get_int(_TOTAL_SIZE) or 0) + added)
        meta.set_int(_COMPRESSED_SIZE, thrift.I64, pages.size)
        meta.set_int(_DATA_PAGE, thrift.I64, start + pages.dictionary_size)
        if pages.dictionary_size:
            meta.set_int(_DICTIONARY_PAGE, thrift.I64, start)
        else:  # readers would expect one, under its own AAD
            meta.remove(_DICTIONARY_PAGE)
    struct = chunk.to_change()
    if struct.get_int(_FILE_OFFSET):
        struct.set_int(_FILE_OFFSET, thrift.I64, start)


def total_size(chunk: ColumnChunk) -> int:
    """Return the uncompressed size of the pages in bytes, according to the footer."""
    return chunk.metadata().get_int(_TOTAL_SIZE) or 0


def num_values(chunk: ColumnChunk) -> int:
    """Return the number of values, with nulls, according to the footer."""
    return chunk.metadata().get_int(_NUM_VALUES) or 0


def set_column_index(chunk: ColumnChunk, offset: int, length: int) -> None:
    """Record where the column index is; without a length, that there is none."""
    _set_range(chunk, _COLUMN_INDEX, offset, length)


def set_offset_index(chunk: ColumnChunk, offset: int, length: int) -> None:
    """Record where the offset index is; without a length, that there is none."""
    _set_range(chunk, _OFFSET_INDEX, offset, length)


def without_column_indexes(footer: Footer, indexes: bytes, start: int,
                           places: Container[tuple[int, int]]) -> bytes:
    """Remove column indexes from the page indexes of a file.

    Parameters
    ----------
    footer : Footer
        Receives the new places of the others.
    indexes : bytes
        All page indexes.
    start : int
        Their offset in the file.
    places : container of (row group, ordinal of the column)
        The column chunks that get none.
    """
    left = bytearray()
    for chunk in footer.column_chunks():
        if (where := chunk.column_index) is not None:
            is_kept = (chunk.row_group, chunk.column.ordinal) not in places
            set_column_index(chunk, start + len(left), where[1] if is_kept else 0)
            left += _part(indexes, where, start) if is_kept else b""
    for chunk in footer.column_chunks():
        if (where := chunk.offset_index) is not None:
            set_offset_index(chunk, start + len(left), where[1])
            left += _part(indexes, where, start)
    return bytes(left)


def _part(indexes: bytes, where: tuple[int, int], start: int) -> bytes:
    return indexes[where[0] - start:sum(where) - start]


def _set_range(chunk: ColumnChunk, fields: tuple[int, int], offset: int, length: int) -> None:
    struct = chunk.to_change()
    if length:
        struct.set_int(fields[0], thrift.I64, offset)
        struct.set_int(fields[1], thrift.I32, length)
    else:
        for field in fields:
            struct.remove(field)


def _move(struct: Struct, field: int, distance: int) -> None:
    if offset := struct.get_int(field):  # some writers store 0 if there is no such page
        struct.set_int(field, thrift.I64, offset + distance)
