"""A plaintext Parquet file in memory with a few pages of one column, for Arrow to decode."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from secure_bloom.parquet import thrift
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.pages import Page
from secure_bloom.parquet.tail import MAGIC
from secure_bloom.parquet.thrift import Struct

# Field ids of parquet.thrift that this module uses.
_VERSION, _SCHEMA, _NUM_ROWS, _ROW_GROUPS, _KEY_VALUES = 1, 2, 3, 4, 5  # FileMetaData
_KEY, _VALUE = 1, 2  # KeyValue
_COLUMNS, _TOTAL_SIZE, _GROUP_ROWS = 1, 2, 3  # RowGroup
_FILE_OFFSET, _META_DATA = 2, 3  # ColumnChunk
_TYPE, _ENCODINGS, _PATH, _CODEC = 1, 2, 3, 4  # ColumnMetaData
_NUM_VALUES, _UNCOMPRESSED, _COMPRESSED, _DATA_PAGE, _DICTIONARY_PAGE = 5, 6, 7, 9, 11  # likewise
_PAGE_VALUES = 1  # DataPageHeader, DataPageHeaderV2


def page_file(schema: Sequence[bytes], chunk: ColumnChunk, dictionary: Page | None,
              pages: Iterable[Page], num_rows: int, arrow_schema: bytes | None = None) -> bytes:
    """Return the bytes of the file.

    Parameters
    ----------
    schema : sequence of bytes
        The SchemaElements from the root to the column: see :meth:`.Footer.elements_to`.
    chunk : ColumnChunk
        That has the pages.
    dictionary : Page, optional
    pages : iterable of Page
        Data pages, one behind the other.
    num_rows : int
        In these pages.
    arrow_schema : bytes, optional
        The Arrow schema of the one column, as it stands in the key-value metadata of files.
    """
    parts, num_values = [MAGIC], 0
    if dictionary is not None:
        parts += [thrift.encode(dictionary.header), dictionary.body]
    start = sum(map(len, parts))
    for page in pages:
        parts += [thrift.encode(page.header), page.body]
        num_values += page.details.get_int(_PAGE_VALUES) or 0
    size = sum(map(len, parts)) - len(MAGIC)
    meta = Struct([list(field) for field in chunk.metadata().fields
                   if field[0] in (_TYPE, _ENCODINGS, _PATH, _CODEC)])
    for field_id, value in ((_NUM_VALUES, num_values), (_UNCOMPRESSED, size), (_COMPRESSED, size),
                            (_DATA_PAGE, start)):
        meta.set_int(field_id, thrift.I64, value)
    if dictionary is not None:
        meta.set_int(_DICTIONARY_PAGE, thrift.I64, len(MAGIC))
    footer = thrift.encode(_file_meta(schema, meta, size, num_rows, arrow_schema))
    return b"".join([*parts, footer, len(footer).to_bytes(4, "little"), MAGIC])


def _file_meta(schema: Sequence[bytes], meta: Struct, size: int, num_rows: int,
               arrow_schema: bytes | None) -> Struct:
    chunk, group, file, note = Struct(), Struct(), Struct(), Struct()
    chunk.set_int(_FILE_OFFSET, thrift.I64, len(MAGIC))
    chunk.set(_META_DATA, thrift.STRUCT, meta)
    group.set(_COLUMNS, thrift.LIST, [chunk])
    group.set_int(_TOTAL_SIZE, thrift.I64, size)
    group.set_int(_GROUP_ROWS, thrift.I64, num_rows)
    file.set_int(_VERSION, thrift.I32, 2)
    file.set(_SCHEMA, thrift.LIST, list(schema))
    file.set_int(_NUM_ROWS, thrift.I64, num_rows)
    file.set(_ROW_GROUPS, thrift.LIST, [group])
    if arrow_schema is not None:
        note.set_binary(_KEY, b"ARROW:schema")
        note.set_binary(_VALUE, arrow_schema)
        file.set(_KEY_VALUES, thrift.LIST, [note])
    return file
