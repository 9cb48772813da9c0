"""The dictionary page of a column chunk: the values that it stores, used by rows or not.

pyarrow shows the entries of a dictionary only with the rows that use them, and not for every type.
A dictionary page holds its values in plain encoding. So does the data page of a column without a
dictionary, nulls and lists: as such a page, in a file in memory, pyarrow reads them.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from secure_bloom.arrow.leaves import leaf_types
from secure_bloom.arrow.pages import pyarrow_errors
from secure_bloom.arrow.views import without_views
from secure_bloom.errors import FormatError, UnsupportedError, error_location
from secure_bloom.parquet import thrift
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.page_format import PageFormat
from secure_bloom.parquet.pages import DictionaryPage, read_dictionary_page
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.parquet.tail import MAGIC
from secure_bloom.parquet.thrift import I32, I64, LIST, STRUCT, Struct
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.sbbf.arrow_types import plain_type, storage_array

# Field ids of parquet.thrift that this module uses.
_TYPE, _UNCOMPRESSED_SIZE, _COMPRESSED_SIZE, _DATA_HEADER = 1, 2, 3, 5  # PageHeader
_CODEC = 4  # ColumnMetaData
_DATA_PAGE = 0  # PageType
_PLAIN, _RLE = 0, 3  # Encoding

_FIRST_READ = 64 * 1024  # bytes: of most dictionaries, the whole page
_ONLY_HEADER = 4 * 1024  # where the footer says that there is no dictionary
_ALWAYS_ALLOWED = 64 * 1024 * 1024  # uncompressed bytes
_MAX_RATIO = 1024  # beyond that: values of a dictionary differ
_WIDTHS = {"INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}


def dictionary_values(file: OpenFile, chunk: ColumnChunk) -> list[pa.Array] | None:
    """Return the values in the dictionary page of a column chunk; None if it has none.

    Several arrays, each of all values, if Arrow has no single type for them: times as INT96. The
    caller makes sure that what is read is of one version of the file.

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
        if not page.num_values:
            return []
        content = _as_file(page, chunk, file.footer.schema_file())
        units = ("ns", "us") if chunk.column.type.physical_type == "INT96" else ("ns",)
        with pyarrow_errors(file.name, file.keys):
            try:
                files = [pq.ParquetFile(pa.BufferReader(content), coerce_int96_timestamp_unit=unit)
                         for unit in units]
                arrays = [one.read().column(0).combine_chunks() for one in files]
            except pa.ArrowNotImplementedError as error:
                raise UnsupportedError("pyarrow cannot read this type of column") from error
            except (pa.ArrowInvalid, UnicodeDecodeError) as error:
                raise FormatError("pyarrow cannot read the dictionary page") from error
        if any(len(array) != page.num_values for array in arrays):
            raise FormatError("the dictionary page does not have as many values as it claims")
        return [with_arrow_type(array, arrow_type(file, chunk.column)) for array in arrays]


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


def _as_file(page: DictionaryPage, chunk: ColumnChunk, schema_file: bytes) -> bytes:
    """Return a plaintext file with one column of the same type, whose only page has the values."""
    header = thrift.encode(_struct(
        (_TYPE, I32, _DATA_PAGE), (_UNCOMPRESSED_SIZE, I32, page.uncompressed_size),
        (_COMPRESSED_SIZE, I32, len(page.body)),
        (_DATA_HEADER, STRUCT, _struct((1, I32, page.num_values), (2, I32, _PLAIN),
                                       (3, I32, _RLE), (4, I32, _RLE)))))
    size = len(header) + len(page.body)
    physical_type = chunk.column.type.number
    metadata = _struct((1, I32, physical_type), (5, I64, page.num_values),
                       (6, I64, len(header) + page.uncompressed_size), (7, I64, size),
                       (9, I64, len(MAGIC)))
    metadata.set(2, LIST, b"\x15" + thrift.encode_int(_PLAIN))  # one i32
    metadata.set(3, LIST, b"\x18\x01v")  # one string
    metadata.set_int(_CODEC, I32, chunk.metadata().get_int(_CODEC) or 0)
    group = _struct((2, I64, size), (3, I64, page.num_values))
    group.set(1, LIST, [_struct((2, I64, len(MAGIC)), (3, STRUCT, metadata))])
    root = _struct((5, I32, 1))
    root.set_binary(4, b"root")
    footer = _struct((1, I32, 2), (3, I64, page.num_values))
    footer.set(2, LIST, [root, _element(chunk, schema_file)])
    footer.set(4, LIST, [group])
    content = thrift.encode(footer)
    return MAGIC + header + page.body + content + len(content).to_bytes(4, "little") + MAGIC


def _element(chunk: ColumnChunk, schema_file: bytes) -> Struct:
    """Return the SchemaElement of the column: required, and with another name."""
    schema, _ = thrift.decode(schema_file[len(MAGIC):-8], {})
    leaves = (one for one in list(thrift.each(schema, 2, {}))[1:] if not one.get_int(5))
    element = next(one for number, one in enumerate(leaves) if number == chunk.column.ordinal)
    element.set_int(3, I32, 0)
    element.set_binary(4, b"v")
    return element


def _struct(*fields: tuple[int, int, object]) -> Struct:
    struct = Struct()
    for field_id, type_, value in fields:
        if isinstance(value, int):
            struct.set_int(field_id, type_, value)
        else:
            struct.set(field_id, type_, value)
    return struct
