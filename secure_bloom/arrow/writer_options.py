"""The options passed on to :class:`pyarrow.parquet.ParquetWriter`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from secure_bloom.errors import UnsupportedError
from secure_bloom.parquet.schema import LeafColumn

_Codecs = str | Mapping[str, str]
_Columns = bool | Sequence[str]

_REFUSED = {
    "bloom_filter_options": "use bloom_filters",
    "encryption_properties": "use encryption and keys",
    "metadata_collector": "it would collect footers without the filters",
}


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


def check_options(options: Mapping[str, Any]) -> None:
    """Raise TypeError if options of pyarrow's writer are set that this package sets itself."""
    for name, advice in _REFUSED.items():
        if options.get(name) is not None:
            raise TypeError(f"{name} cannot be used here: {advice}")


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
