"""Conversion of nested values from the form in which Spark passes them to one valid in Parquet."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from secure_bloom.errors import UnsupportedError


def without_hidden_nulls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows without nulls in non-nullable fields of structs.

    Where a struct is null, Spark sets its fields to null too, even if they are not nullable, and
    pyarrow refuses to write that. These nulls are not visible, so they are marked as values.

    Raises UnsupportedError if such a field is null where its struct is not.
    """
    if not any(pa.types.is_nested(field.type) for field in batch.schema):
        return batch
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        try:
            columns.append(_rebuild(column))
        except UnsupportedError as error:
            error.column = field.name
            raise
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def unsliced(array: pa.Array) -> pa.Array:
    """Return the array without an offset: Arrow cannot rebuild a slice of lists or maps."""
    return pa.concat_arrays([array, array.slice(0, 0)]) if array.offset else array


def _rebuild(array: pa.Array, parent_is_null: pa.Array | None = None) -> pa.Array:
    """Rebuild an array; ``parent_is_null`` is given for a non-nullable field."""
    if parent_is_null is not None and array.null_count:
        if pc.any(pc.and_not(array.is_null(), parent_is_null)).as_py():
            raise UnsupportedError("a field that cannot be null is null; make it nullable")
        mask = None
    else:
        mask = array.is_null() if array.null_count else None
    type_ = array.type
    if pa.types.is_struct(type_):
        is_null = array.is_null()
        fields = list(type_)
        children = [_rebuild(array.field(i), None if field.nullable else is_null)
                    for i, field in enumerate(fields)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    if pa.types.is_map(type_):
        array = unsliced(array)
        return pa.MapArray.from_arrays(array.offsets, _rebuild(array.keys), _rebuild(array.items),
                                       type=type_, mask=mask)
    if pa.types.is_list(type_):
        array = unsliced(array)
        return pa.ListArray.from_arrays(array.offsets, _rebuild(array.values), type=type_,
                                        mask=mask)
    if mask is None and array.null_count:
        return pa.Array.from_buffers(type_, len(array), [None, *array.buffers()[1:]],
                                     offset=array.offset)
    return array
