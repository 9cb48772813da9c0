"""String and binary views: Arrow 26 cannot filter them, nor slice them below structs."""

from __future__ import annotations

import base64

import numpy as np
import pyarrow as pa

from secure_bloom.arrow.leaves import with_leaf_types, with_leaves
from secure_bloom.sbbf.light_arrow import filter_rows


def filtered(batch: pa.RecordBatch, rows: pa.BooleanArray) -> pa.RecordBatch:
    """Return the rows of a batch for which a mask without nulls is true; the schema is kept."""
    if rows.true_count == len(rows):
        return batch
    schema = batch.schema
    plain = pa.schema([field.with_type(without_views(field.type)) for field in schema])
    try:
        if plain.equals(schema):
            return filter_rows(batch, rows)
        return batch.cast(plain).filter(rows).cast(schema)
    except pa.ArrowNotImplementedError:
        # Views in list views cannot be cast either. Slices keep the memory of all rows.
        return pa.concat_batches([batch.slice(0, 0), *_runs(batch, rows)])


def _runs(batch: pa.RecordBatch, rows: pa.BooleanArray) -> list[pa.RecordBatch]:
    """Return slices of adjacent rows for which a mask is true."""
    mask = rows.to_numpy(zero_copy_only=False)
    edges = np.flatnonzero(np.diff(mask, prepend=False, append=False)).tolist()
    return [batch.slice(start, end - start)
            for start, end in zip(edges[::2], edges[1::2], strict=True)]


def without_nested_views(schema: pa.Schema) -> pa.Schema:
    """Return the schema with large strings and binaries instead of views in nested types.

    pyarrow cannot write slices of structs of views, which row groups are.
    """
    types = [without_views(t) if pa.types.is_nested(t) else t for t in schema.types]
    return schema if types == schema.types else pa.schema(
        [field.with_type(t) for field, t in zip(schema, types, strict=True)], schema.metadata)


def views_metadata(schema: pa.Schema) -> dict[bytes, bytes] | None:
    """Return the metadata of a file that is written without nested views; None if there are none.

    With it, readers get the views again. pyarrow's writer must not store the schema then.
    """
    if without_nested_views(schema) is schema:
        return None
    return {**(schema.metadata or {}), b"ARROW:schema": base64.b64encode(schema.serialize())}


def convert_nested_views(table: pa.Table) -> pa.Table:
    """Convert a table to the schema that :func:`without_nested_views` returns for its own."""
    schema = without_nested_views(table.schema)
    if schema is table.schema:
        return table
    return pa.table([column if column.type == field.type else pa.chunked_array(
        [convert_views(chunk, field.type) for chunk in column.chunks], field.type)
        for column, field in zip(table.columns, schema, strict=True)], schema=schema)


def convert_views(array: pa.Array, t: pa.DataType) -> pa.Array:
    """Convert an array to a type that has large strings and binaries instead of views."""
    try:
        return array.cast(t)
    except pa.ArrowNotImplementedError:  # in list views; then all that a slice is of is converted
        return with_leaves(array, lambda leaf: leaf.cast(_without_view(leaf.type)), _has_view)


def _has_view(t: pa.DataType) -> bool:
    return not without_views(t).equals(t)


def without_views(t: pa.DataType) -> pa.DataType:
    """Return the type with large strings and binaries instead of views, at every depth."""
    return with_leaf_types(t, _without_view)


def _without_view(t: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(t):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(t) else t
