"""The dictionary page of a column chunk: the values that it stores, used by rows or not.

pyarrow shows the entries of a dictionary only with the rows that use them, and not for every type.
A dictionary page holds its values in plain encoding. So does the data page of a column without a
dictionary, nulls and lists: as such a page, in a file in memory, pyarrow reads them.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from secure_bloom.arrow.leaves import leaf_types
from secure_bloom.arrow.pages import column_errors, pyarrow_errors
from secure_bloom.arrow.views import without_views
from secure_bloom.errors import FormatError, error_location
from secure_bloom.parquet import thrift
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.decompression import decompressor
from secure_bloom.parquet.page_file import page_file
from secure_bloom.parquet.page_format import PageFormat
from secure_bloom.parquet.pages import DictionaryPage, Page, read_dictionary_page
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.parquet.thrift import I32, STRUCT, Struct
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.sbbf.arrow_types import is_text_or_bytes, plain_type, storage_array

# Field ids of parquet.thrift that this module uses.
_TYPE, _UNCOMPRESSED_SIZE, _COMPRESSED_SIZE, _DATA_HEADER = 1, 2, 3, 5  # PageHeader
_REPETITION, _NAME = 3, 4  # SchemaElement
_REQUIRED = 0  # FieldRepetitionType
_DATA_PAGE = 0  # PageType
_PLAIN, _RLE = 0, 3  # Encoding

_FIRST_READ = 64 * 1024  # bytes: of most dictionaries, the whole page
_ONLY_HEADER = 4 * 1024  # where the footer says that there is no dictionary
_ALWAYS_ALLOWED = 64 * 1024 * 1024  # uncompressed bytes
_MAX_RATIO = 1024  # beyond that: values of a dictionary differ
_FEW = 32  # values
_WIDTHS = {"INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}


def dictionary_values(file: OpenFile, chunk: ColumnChunk,
                      wanted: Sequence[bytes] | None = None) -> list[pa.Array] | None:
    """Return the values in the dictionary page of a column chunk; None if it has no such page.

    Several arrays, each of all values, if Arrow has no single type for them: times as INT96. No
    array if the caller wants to know only of certain text, or bytes, and the page has none of it.
    The caller makes sure that what is read is of one version of the file.

    Raises
    ------
    FormatError, AuthenticationError, KeyRetrievalError
        If the page cannot be read.
    UnsupportedError
        If Arrow has no type for its values, or pyarrow does not know its compression.
    """
    with error_location(**chunk.place):
        page = _dictionary_page(file, chunk)
        if page is None:
            return None
        _check_sizes(page, chunk)
        if not page.num_values or (wanted is not None and _surely_lacks(file, chunk, page, wanted)):
            return []
        content = _as_file(page, chunk, file.footer.elements_to(chunk.column))
        units = ("ns", "us") if chunk.column.type.physical_type == "INT96" else ("ns",)
        with pyarrow_errors(file.name, file.keys), column_errors("dictionary page"):
            files = [pq.ParquetFile(pa.BufferReader(content), coerce_int96_timestamp_unit=unit)
                     for unit in units]
            # The caller has threads: more of them, for a few values, would only wait.
            arrays = [one.read(use_threads=False).column(0).combine_chunks() for one in files]
        if any(len(array) != page.num_values for array in arrays):
            raise FormatError("the dictionary page does not have as many values as it claims")
        return [with_arrow_type(array, arrow_type(file, chunk.column)) for array in arrays]


def _surely_lacks(file: OpenFile, chunk: ColumnChunk, page: DictionaryPage,
                  wanted: Sequence[bytes]) -> bool:
    """Whether a dictionary of text, or bytes, has none of some values.

    To look for a few of them in the page takes much less time than to decode it.
    """
    if len(wanted) > _FEW or chunk.column.type.physical_type != "BYTE_ARRAY" \
            or not is_text_or_bytes(arrow_type(file, chunk.column)):
        return False
    decompress = decompressor(PageFormat.of(chunk).codec)
    if decompress is None:
        return False
    stored = decompress(page.body, page.uncompressed_size)
    return not any(len(value).to_bytes(4, "little") + value in stored for value in wanted)


def arrow_type(file: OpenFile, column: LeafColumn) -> pa.DataType:
    """Return the type of a leaf column's values, without dictionary and views."""
    t = leaf_types(pa.struct(file.schema))[column.ordinal]
    return without_views(t.value_type if pa.types.is_dictionary(t) else plain_type(t))


def with_arrow_type(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return values of a type that the schema of pyarrow does not have, where they fit."""
    array = storage_array(array)
    try:
        return array if array.type.equals(wanted) else array.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return array


def _dictionary_page(file: OpenFile, chunk: ColumnChunk) -> DictionaryPage | None:
    """Return the dictionary page, also if the footer does not say that there is one."""
    if chunk.pages is None:
        return None
    start, length = chunk.pages
    if not 0 < length <= file.footer.start - start:
        raise FormatError("the pages of the column lie outside the file")
    first_read = _FIRST_READ if PageFormat.of(chunk).has_dictionary else _ONLY_HEADER
    return read_dictionary_page(file, (start, length), chunk.modules, first_read)


def _check_sizes(page: DictionaryPage, chunk: ColumnChunk) -> None:
    """Raise FormatError if the header claims more than the stored bytes can hold."""
    column = chunk.column.type
    width = _WIDTHS.get(column.physical_type, max(1, column.length))
    most = max(_ALWAYS_ALLOWED, _MAX_RATIO * len(page.body))
    if not 0 <= page.uncompressed_size <= most \
            or not 0 <= page.num_values * width <= page.uncompressed_size:
        raise FormatError(f"the dictionary page claims {page.num_values:,} values in "
                          f"{page.uncompressed_size:,} bytes, but {len(page.body):,} are stored")


def _as_file(page: DictionaryPage, chunk: ColumnChunk, elements: Sequence[bytes]) -> bytes:
    """Return a plaintext file with one column of the same type, whose only page has the values."""
    details = _struct((1, page.num_values), (2, _PLAIN), (3, _RLE), (4, _RLE))
    header = _struct((_TYPE, _DATA_PAGE), (_UNCOMPRESSED_SIZE, page.uncompressed_size),
                     (_COMPRESSED_SIZE, len(page.body)))
    header.set(_DATA_HEADER, STRUCT, details)
    root, *_, leaf = elements
    element, _ = thrift.decode(leaf, {})
    element.set_int(_REPETITION, I32, _REQUIRED)
    element.set_binary(_NAME, b"v")  # which is valid UTF-8
    return page_file([root, thrift.encode(element)], chunk, None,
                     [Page(header, details, page.body)], page.num_values)


def _struct(*fields: tuple[int, int]) -> Struct:
    struct = Struct()
    for field_id, value in fields:
        struct.set_int(field_id, I32, value)
    return struct
