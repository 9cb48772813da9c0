"""pyarrow's writer, the rows as it can write them, and what it writes to."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from secure_bloom.arrow.dictionaries import compact_dictionaries
from secure_bloom.arrow.leaves import (
    contains,
    decode_half_dictionaries,
    leaf_arrays,
    leaf_types,
    without_half_dictionaries,
)
from secure_bloom.arrow.schema import without_categories
from secure_bloom.arrow.views import convert_nested_views, views_metadata, without_nested_views
from secure_bloom.arrow.writer_options import WriterOptions
from secure_bloom.storage.files import Output


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


def leaves_with_nan(table: pa.Table) -> set[int]:
    """Return the ordinals of the leaf columns that have a NaN, and so get no column index.

    Arrow C++ leaves NaN out of the bounds of a page. Spark's own reader and DataFusion take NaN for
    the greatest number but skip pages by these bounds, so ``x > 5`` would lose rows. parquet-java
    writes no column index for a column chunk with NaN either.
    """
    found: set[int] = set()
    first = 0
    for column in table.columns:
        if contains(column.type, _is_floating):
            for chunk in column.chunks:
                found.update(first + number for number, leaf in enumerate(leaf_arrays(chunk))
                             if _is_floating(leaf.type) and _has_nan(leaf))
        first += len(leaf_types(column.type))
    return found


def _is_floating(t: pa.DataType) -> bool:
    return pa.types.is_floating(t) or (pa.types.is_dictionary(t)
                                       and pa.types.is_floating(t.value_type))


def _has_nan(leaf: pa.Array) -> bool:
    values = leaf.dictionary if pa.types.is_dictionary(leaf.type) else leaf
    return bool(pc.any(pc.is_nan(values)).as_py())


class Sink:
    """The sink for pyarrow's output: passes bytes on, holds them back, or drops them."""

    closed = False

    def __init__(self, output: Output):
        self._output: Output | None = output
        self.position = 0
        self._held: bytearray | None = None

    def write(self, data: Any) -> int:
        """Write bytes, or keep them; returns how many."""
        if self._held is not None:
            self._held += data
        elif self._output is not None and self._output.is_own:  # pyarrow's closes itself in a fork
            self._output.write(data)
            self.position += len(data)
        return len(data)

    def close(self) -> None:
        """Do nothing: pyarrow calls this when the stream before the sink ends."""

    def hold(self) -> None:
        """Keep what is written from now on."""
        self._held = bytearray()

    def release(self) -> tuple[bytes, int]:
        """Return what was held back, and the position where it belongs."""
        held, self._held, self._output = bytes(self._held or b""), None, None
        return held, self.position

    def discard(self) -> None:
        """Drop what was held back, and what is written from now on."""
        self._held = self._output = None
