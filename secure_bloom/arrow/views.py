"""Rows of batches, without the values of other rows.

Arrow 26 cannot filter string and binary views, nor slice them below structs. It filters list views,
but keeps the values of all lists; and slices keep the memory of all rows. What is handed over must
not have values of other rows, since files and messages store the memory of arrays whole.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pyarrow as pa

from secure_bloom.arrow.leaves import contains, is_list_view, with_leaf_types, with_leaves
from secure_bloom.sbbf.light_arrow import call, filter_rows, positions


def filtered(batch: pa.RecordBatch, rows: pa.BooleanArray) -> pa.RecordBatch:
    """Return the rows of a batch for which a mask without nulls is true; the schema is kept.

    Its memory has no values of other rows, except in dictionaries.
    """
    if not batch.num_columns:
        return batch.slice(0, rows.true_count)
    plain = filter_rows(pa.RecordBatch.from_arrays(list(map(_plain, batch.columns)),
                                                   batch.schema.names), rows)
    return pa.RecordBatch.from_arrays(
        [_own(column, field.type) for column, field in zip(plain.columns, batch.schema,
                                                           strict=True)], schema=batch.schema)


def rows_at(array: pa.Array, numbers: np.ndarray) -> pa.Array:
    """Return the rows of an array with these int64 numbers, as :func:`filtered` does."""
    return _own(call("take", _plain(array), positions(numbers)), array.type)


def taken(table: pa.Table, indices: Any) -> pa.Table:
    """Return the rows of a table with these positions, as :func:`filtered` does."""
    if not len(indices):
        indices = pa.array([], pa.int64())  # Arrow accepts no list without a type
    if not len(table):  # whose columns may have no chunks
        found = pa.array([], pa.int8()).take(indices)  # views cannot say that there is no such row
        return table.take(indices) if len(found) else table
    columns = [pa.chunked_array(list(map(_plain, column.chunks))) for column in table.columns]
    rows = pa.table(columns, [str(number) for number in range(len(columns))]).take(indices)
    return pa.table([pa.chunked_array([_own(chunk, field.type) for chunk in column.chunks],
                                      field.type)
                     for column, field in zip(rows.columns, table.schema, strict=True)],
                    schema=table.schema)


def _plain(array: pa.Array) -> pa.Array:
    """Return an array with large strings and binaries instead of views."""
    return with_leaves(array, lambda leaf: leaf.cast(_without_view(leaf.type)), _has_view)


def _own(array: pa.Array, t: pa.DataType) -> pa.Array:
    """Return a filtered array as a type, with views again, and without what no row has."""
    if not (_has_view(t) or contains(t, is_list_view)):
        return array
    if isinstance(t, pa.BaseExtensionType):
        storage = array.storage if isinstance(array.type, pa.BaseExtensionType) else array
        return pa.ExtensionArray.from_storage(t, _own(storage, t.storage_type))
    if not pa.types.is_nested(t):
        return array.cast(t)
    if pa.types.is_struct(t):
        children = list(map(array.field, range(t.num_fields)))
    else:
        array, children = _gathered(array) if is_list_view(t) else (array, [array.values])
    children = [_own(child, t.field(number).type) for number, child in enumerate(children)]
    return pa.Array.from_buffers(t, len(array), array.buffers()[:t.num_buffers],
                                 offset=array.offset, children=children)


def _gathered(array: pa.Array) -> tuple[pa.Array, list[pa.Array]]:
    """Return a list view whose values are those of its lists, in their order; and these values."""
    t, valid = array.type, np.asarray(array.is_valid())
    dtype = np.dtype(np.int32 if pa.types.is_list_view(t) else np.int64)
    starts, sizes = (np.frombuffer(buffer or b"", dtype)[array.offset:array.offset + len(array)]
                     for buffer in array.buffers()[1:3])
    sizes = np.where(valid, sizes, 0).astype(dtype)
    ends = np.cumsum(sizes, dtype=np.int64)
    begins = ends - sizes
    numbers = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - begins, sizes)
    values = call("take", array.values, pa.Array.from_buffers(
        pa.int64(), len(numbers), [None, pa.py_buffer(numbers.astype(np.int64))]))
    buffers = [pa.py_buffer(np.packbits(valid, bitorder="little")) if array.null_count else None,
               pa.py_buffer(begins.astype(dtype)), pa.py_buffer(sizes)]
    return pa.Array.from_buffers(t, len(array), buffers, children=[values]), [values]


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
    if isinstance(t, pa.BaseExtensionType):
        return _has_view(t.storage_type)
    return not without_views(t).equals(t)


def without_views(t: pa.DataType) -> pa.DataType:
    """Return the type with large strings and binaries instead of views, at every depth."""
    return with_leaf_types(t, _without_view)


def _without_view(t: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(t):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(t) else t
