"""pyarrow's writer, and the rows as it can write them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from secure_bloom.arrow.dictionaries import compact_dictionaries
from secure_bloom.arrow.leaves import decode_half_dictionaries, without_half_dictionaries
from secure_bloom.arrow.schema import without_categories
from secure_bloom.arrow.views import convert_nested_views, views_metadata, without_nested_views
from secure_bloom.arrow.writer_options import WriterOptions


def open_page_writer(stream: pa.NativeFile, schema: pa.Schema, sensitive: Collection[str],
                     options: WriterOptions, encryption: Any) -> pq.ParquetWriter:
    """Open pyarrow's writer for tables that :func:`as_written` returns.

    The stored schema has no categories of the ``sensitive`` columns, which have their own keys.
    Page indexes are written unless an option switches them off.
    ``encryption`` are pyarrow's properties.
    """
    options = {"write_page_index": True, **options}  # without it, readers decode whole row groups
    stored = without_categories(without_half_dictionaries(schema), sensitive)
    metadata = views_metadata(stored) if options.get("store_schema", True) else None
    if metadata is not None:
        options = {**options, "store_schema": False}
    writer = pq.ParquetWriter(stream, without_nested_views(stored), **options,
                              encryption_properties=encryption)
    if metadata is not None:
        writer.add_key_value_metadata(metadata)
    return writer


def as_written(table: pa.Table) -> pa.Table:
    """Return a table in a form that pyarrow writes right, and with no value that no row has."""
    return compact_dictionaries(convert_nested_views(decode_half_dictionaries(table)))
