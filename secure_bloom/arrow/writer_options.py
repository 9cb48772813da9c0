"""The options passed on to :class:`pyarrow.parquet.ParquetWriter`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from secure_bloom.arguments import unknown_argument
from secure_bloom.display import choices
from secure_bloom.errors import ArgumentError, UnsupportedError
from secure_bloom.parquet.schema import LeafColumn

_Codecs = str | Mapping[str, str]
_Columns = bool | Sequence[str]

_REFUSED = {
    "bloom_filter_options": "use bloom_filters",
    "encryption_properties": "use encryption and keys",
    "metadata_collector": "it would collect footers without the filters",
}
_CODECS = ("none", "snappy", "gzip", "brotli", "lz4", "lz4_raw", "zstd")

MIN_PAGE_SIZE = 128  #: bytes, for some encodings of columns below lists


class WriterOptions(TypedDict, total=False):
    """Valid ``**writer_options``; see :class:`pyarrow.parquet.ParquetWriter`."""

    flavor: str | None
    version: Literal["1.0", "2.4", "2.6"]
    use_dictionary: _Columns
    compression: _Codecs | None
    write_statistics: _Columns
    use_deprecated_int96_timestamps: bool | None
    compression_level: int | Mapping[str, int] | None
    use_byte_stream_split: _Columns
    column_encoding: _Codecs | None
    writer_engine_version: str | None
    data_page_version: Literal["1.0", "2.0"]
    use_compliant_nested_type: bool
    write_batch_size: int | None
    dictionary_pagesize_limit: int | None
    store_schema: bool
    write_page_index: bool
    write_page_checksum: bool
    sorting_columns: Sequence[Any] | None
    store_decimal_as_integer: bool
    write_time_adjusted_to_utc: bool
    max_rows_per_page: int | None
    use_content_defined_chunking: bool | Mapping[str, int]
    data_page_size: int | None
    coerce_timestamps: str | None
    allow_truncated_timestamps: bool


def check_options(function: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raise ArgumentError if the options of a call are not those of pyarrow's writer.

    Those that this package sets itself are refused, too.
    """
    for name in options.keys() - WriterOptions.__annotations__.keys():
        if name not in _REFUSED:
            known = {*inspect.signature(function).parameters, *WriterOptions.__annotations__}
            raise unknown_argument(function, name, sorted(known - {"writer_options"}))
        if options[name] is not None:
            raise ArgumentError(f"{name} cannot be used here: {_REFUSED[name]}")
    given = options.get("compression")
    for codec in given.values() if isinstance(given, Mapping) else [given]:
        if isinstance(codec, str) and codec.lower() not in _CODECS:
            raise ArgumentError(f"there is no codec {codec!r}" + choices(codec, _CODECS, "codecs"))


def check_page_size(options: Mapping[str, Any], leaves: Iterable[LeafColumn]) -> None:
    """Raise UnsupportedError if pyarrow would lose rows with pages of this size.

    It ends a page before a row of a list if the page has the size already. An encoder without
    values may claim up to 69 bytes: those of dictionaries, deltas and RLE. The page without rows
    then ends the column chunk for readers.
    """
    size = options.get("data_page_size")
    if size is None or size >= MIN_PAGE_SIZE:
        return
    for leaf in leaves:
        if leaf.is_repeated and not _is_plain(leaf, options):
            raise UnsupportedError(f"data_page_size={size}: with pages of less than "
                                   f"{MIN_PAGE_SIZE} bytes, pyarrow may lose rows of lists and "
                                   "maps; choose a larger size", column=leaf.path)


def _is_plain(leaf: LeafColumn, options: Mapping[str, Any]) -> bool:
    dictionary = options.get("use_dictionary", True)
    if dictionary is True or options.get("column_encoding") is not None:
        return False
    return leaf.type.physical_type != "BOOLEAN" and leaf.path not in (dictionary or ())
