"""Conversion of values from the types of a file to the types of the DataFrame's schema."""

from __future__ import annotations

import pyarrow as pa

from secure_bloom.arrow.leaves import is_list
from secure_bloom.errors import UnsupportedError
from secure_bloom.sbbf.arrow_types import plain_type
from secure_bloom.spark.options.names import find_name
from secure_bloom.spark.schema.nested import unsliced
from secure_bloom.spark.schema.values import can_be_read_as


def cast_to_schema(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast values to another type without loss; fields that a struct lacks become null.

    Raises UnsupportedError if the values would have a different meaning in that type, or one of
    them does not fit.
    """
    if array.type == type_:
        return array
    array = _plain(array)
    source = array.type
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(source) and pa.types.is_struct(type_):
        names = [field.name for field in source]
        _check_not_shredded(names, type_)
        fields = []
        for field in type_:
            name = find_name(field.name, names)
            fields.append(pa.nulls(len(array), field.type) if name is None
                          else cast_to_schema(array.field(names.index(name)), field.type))
        return pa.StructArray.from_arrays(fields, fields=list(type_), mask=mask)
    if pa.types.is_map(source) and pa.types.is_map(type_):
        array = unsliced(array)
        return pa.MapArray.from_arrays(array.offsets, cast_to_schema(array.keys, type_.key_type),
                                       cast_to_schema(array.items, type_.item_type), type=type_,
                                       mask=mask)
    if pa.types.is_list(source) and pa.types.is_list(type_):
        array = unsliced(array)
        values = cast_to_schema(array.values, type_.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=type_, mask=mask)
    return _cast(array, type_)


def _check_not_shredded(names: list[str], type_: pa.DataType) -> None:
    """Raise UnsupportedError if a struct in a file holds a variant that is split into columns."""
    if "typed_value" in names and {field.name for field in type_} == {"value", "metadata"}:
        raise UnsupportedError(
            "it is a variant whose values are split into columns (shredded), which only Spark's "
            "own reader puts together: read it with spark.read.parquet and the options of "
            "secure_bloom.spark.native.read_options, or write it with "
            "spark.sql.variant.inferShreddingSchema and "
            "spark.sql.variant.writeShredding.enabled set to false")


def dropped_field(source: pa.DataType, type_: pa.DataType) -> tuple[str, ...] | None:
    """Return the path of a field of structs that :func:`cast_to_schema` would leave out.

    Parameters
    ----------
    source, type_ : pyarrow.DataType
        The type of a column in a file, and in the DataFrame.

    Returns
    -------
    tuple of str or None
        The path below the column, as in a Parquet schema; None if nothing would be left out.
    """
    source = plain_type(source)
    below: list[tuple[tuple[str, ...], pa.DataType, pa.DataType]] = []
    if pa.types.is_struct(source) and pa.types.is_struct(type_):
        names = [field.name for field in source]
        pairs = [(field, find_name(field.name, names)) for field in type_]
        for name in names:
            if name not in [found for _, found in pairs]:
                return (name,)
        below = [((name,), source.field(name).type, field.type) for field, name in pairs if name]
    elif pa.types.is_map(source) and pa.types.is_map(type_):
        below = [(("key_value", "key"), source.key_type, type_.key_type),
                 (("key_value", "value"), source.item_type, type_.item_type)]
    elif is_list(source) and pa.types.is_list(type_):
        below = [(("list", "element"), source.value_type, type_.value_type)]
    for path, one, other in below:
        dropped = dropped_field(one, other)
        if dropped is not None:
            return (*path, *dropped)
    return None


def _plain(array: pa.Array) -> pa.Array:
    """Return the values without dictionaries and extension types, and lists as plain lists."""
    type_ = plain_type(array.type)
    if is_list(type_):
        type_ = pa.list_(type_.value_field)
    return array if array.type == type_ else array.cast(type_)


def _cast(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if not can_be_read_as(array.type, type_):
        raise UnsupportedError(f"the type {array.type} cannot be read as {type_}; specify another "
                               "type in .schema(...)")
    try:
        return array.cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise UnsupportedError(f"a value of type {array.type} cannot be read as {type_} without "
                               "changing it; specify another type in .schema(...)") from None
