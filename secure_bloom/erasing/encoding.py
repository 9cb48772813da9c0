"""Rows as a plaintext row group in memory, written as an existing one was."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from secure_bloom.errors import UnsupportedError
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.page_format import PageFormat
from secure_bloom.parquet.row_group import RowGroup
from secure_bloom.reading.open_file import OpenFile

#: what pyarrow may store in several ways, and no file tells it: options that choose the way
_STORED_TYPES: tuple[dict[str, Any], ...] = tuple(
    {"store_decimal_as_integer": as_integer, "use_deprecated_int96_timestamps": int96}
    for as_integer in (False, True) for int96 in (False, True))
_CODECS = ("NONE", "SNAPPY", "GZIP", None, "BROTLI", "LZ4", "ZSTD", "LZ4")  # by CompressionCodec
_ENCODINGS = {5: "DELTA_BINARY_PACKED", 6: "DELTA_LENGTH_BYTE_ARRAY", 7: "DELTA_BYTE_ARRAY",
              9: "BYTE_STREAM_SPLIT"}  # by Encoding, of those that a writer must be told to use


class _Leaf(NamedTuple):
    """How a column stores values: what pages say depends on all of this."""

    physical_type: str
    length: int
    max_definition_level: int
    max_repetition_level: int


def encode_rows(rows: pa.Table, group: RowGroup, schema_file: bytes) -> OpenFile:
    """Write rows as one row group to memory, unencrypted, and open it.

    Parameters
    ----------
    rows : pyarrow.Table
        At least one row.
    group : RowGroup
        Its columns say how to write: codec, dictionary or another encoding, version of the data
        pages, statistics, page indexes.
    schema_file : bytes
        A file without rows that has the schema of ``group``.

    Raises
    ------
    UnsupportedError
        If pyarrow cannot store a column in the way that its schema says.
    """
    paths, options = _how_stored(rows.schema, schema_file)
    chunks = dict(zip(paths, group, strict=True))
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, rows.schema, **options, **_options(chunks)) as writer:
        writer.write_table(rows, row_group_size=rows.num_rows)
    return OpenFile(sink.getvalue())


def _options(chunks: dict[str, ColumnChunk]) -> dict[str, Any]:
    formats = {path: PageFormat.of(chunk) for path, chunk in chunks.items()}
    with_dictionary = [path for path, one in formats.items() if one.has_dictionary]
    encodings = {path: _ENCODINGS[number] for path, one in formats.items()
                 for number in one.encodings if number in _ENCODINGS and not one.has_dictionary}
    return {
        "compression": {path: _codec(one, chunks[path]) for path, one in formats.items()},
        "use_dictionary": with_dictionary or False,
        "column_encoding": encodings or None,
        "data_page_version": "2.0" if any(one.has_pages_v2 for one in formats.values()) else "1.0",
        "write_statistics": [
            path for path, one in formats.items()
            if one.has_statistics and chunks[path].has_type_order] or False,
        "write_page_index": any(chunk.offset_index for chunk in chunks.values()),
    }


def _codec(format_: PageFormat, chunk: ColumnChunk) -> str:
    name = _CODECS[format_.codec] if 0 <= format_.codec < len(_CODECS) else None
    if name is None:
        raise UnsupportedError(f"pyarrow cannot write its compression codec ({format_.codec})",
                               **chunk.place)
    return name


@lru_cache(maxsize=8)
def _how_stored(schema: pa.Schema, schema_file: bytes) -> tuple[list[str], dict[str, Any]]:
    """Return pyarrow's paths of the leaf columns, and options with which it stores them alike."""
    stored = pq.ParquetFile(pa.BufferReader(schema_file)).schema
    wanted, differing = _leaves(stored), ""
    for options in _STORED_TYPES:
        sink = pa.BufferOutputStream()
        pq.ParquetWriter(sink, schema, **options).close()
        ours = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
        leaves = _leaves(ours)
        if leaves == wanted:
            return [ours.column(number).path for number in range(len(leaves))], options
        if not differing:
            differing = next((stored.column(number).path for number, (leaf, other)
                              in enumerate(zip(wanted, leaves, strict=False)) if leaf != other), "")
    raise UnsupportedError("pyarrow cannot write its values in the form in which this file stores "
                           "them; write the file again without these rows",
                           column=differing or None)


def _leaves(schema: pq.ParquetSchema) -> list[_Leaf]:
    columns = map(schema.column, range(len(schema)))
    return [_Leaf(one.physical_type, one.length, one.max_definition_level,
                  one.max_repetition_level) for one in columns]
