"""Values as a file has them -> values as the schema of the DataFrame has them."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as T

from secure_bloom.errors import ColumnError, UnsupportedError


def find_name(name: str, names: list[str]) -> str | None:
    """The name in a file that a column of the schema means: the same, or the same without case.

    Raises
    ------
    ColumnError
        If several names differ from it in case only.
    """
    if name in names:
        return name
    found = [other for other in names if other.lower() == name.lower()]
    if len(found) > 1:
        raise ColumnError(f"it may mean {' or '.join(found)}, which differ in case only; name one "
                          "of them in .schema(...)", column=name)
    return found[0] if found else None


def conform(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """The values with another type, exactly; fields that a struct lacks are null.

    Raises
    ------
    UnsupportedError
        If a value has no counterpart in that type.
    """
    source = array.type
    if source == type_:
        return array
    if pa.types.is_struct(source) and pa.types.is_struct(type_):
        names = [field.name for field in source]
        fields = []
        for field in type_:
            name = find_name(field.name, names)
            fields.append(pa.nulls(len(array), field.type) if name is None
                          else conform(array.field(names.index(name)), field.type))
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(fields, fields=list(type_), mask=mask)
    if pa.types.is_map(source) and pa.types.is_map(type_):
        array, mask = _from_start(array)
        return pa.MapArray.from_arrays(array.offsets, conform(array.keys, type_.key_type),
                                       conform(array.items, type_.item_type), type=type_,
                                       mask=mask)
    if pa.types.is_list(source) and pa.types.is_list(type_):
        array, mask = _from_start(array)
        return pa.ListArray.from_arrays(array.offsets, conform(array.values, type_.value_type),
                                        type=type_, mask=mask)
    return _cast(array, type_)


def _from_start(array: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """The array without an offset, and which values are null: Arrow cannot rebuild slices."""
    if array.offset:
        array = pa.concat_arrays([array, array.slice(0, 0)])
    return array, array.is_null() if array.null_count else None


def _cast(array: pa.Array, type_: pa.DataType) -> pa.Array:
    try:
        if pa.types.is_float64(array.type) and pa.types.is_floating(type_):
            raise pa.ArrowInvalid  # Arrow would round
        return array.cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise UnsupportedError(f"the values of type {array.type} cannot be read as {type_}; say "
                               "another type in .schema(...)") from None


_INTEGERS = (T.ByteType(), T.ShortType(), T.IntegerType(), T.LongType())
_DIGITS = dict(zip(_INTEGERS, (3, 5, 10, 19), strict=True))


def wider(one: T.DataType, other: T.DataType) -> T.DataType | None:
    """The type that holds the values of both exactly; None where there is none."""
    if one == other or isinstance(other, T.NullType):
        return one
    if isinstance(one, T.NullType):
        return other
    if one in _INTEGERS and other in _INTEGERS:
        return max(one, other, key=_INTEGERS.index)
    if {one, other} == {T.FloatType(), T.DoubleType()}:
        return T.DoubleType()
    if isinstance(one, T.StructType) and isinstance(other, T.StructType):
        return wider_struct(one, other)
    if isinstance(one, T.ArrayType) and isinstance(other, T.ArrayType):
        element = wider(one.elementType, other.elementType)
        return element and T.ArrayType(element, one.containsNull or other.containsNull)
    if isinstance(one, T.MapType) and isinstance(other, T.MapType):
        key, value = wider(one.keyType, other.keyType), wider(one.valueType, other.valueType)
        return T.MapType(key, value, one.valueContainsNull or other.valueContainsNull) \
            if key and value else None
    return _wider_decimal(one, other)


def _wider_decimal(one: T.DataType, other: T.DataType) -> T.DataType | None:
    if T.DecimalType not in (type(one), type(other)):
        return None
    one, other = (T.DecimalType(_DIGITS[t], 0) if t in _DIGITS else t for t in (one, other))
    if not (isinstance(one, T.DecimalType) and isinstance(other, T.DecimalType)):
        return None
    scale = max(one.scale, other.scale)
    precision = max(one.precision - one.scale, other.precision - other.scale) + scale
    return T.DecimalType(precision, scale) if precision <= 38 else None


def wider_struct(one: T.StructType, other: T.StructType) -> T.StructType | None:
    """All fields of both, matched by name; None where two have types that contradict."""
    fields = {field.name: field for field in one}
    for field in other:
        name = find_name(field.name, list(fields))
        if name is None:
            fields[field.name] = field
            continue
        known = fields[name]
        type_ = wider(known.dataType, field.dataType)
        if type_ is None:
            return None
        fields[name] = T.StructField(name, type_, True, known.metadata)
    return T.StructType(list(fields.values()))
