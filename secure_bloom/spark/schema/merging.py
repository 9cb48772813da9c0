"""Merging of the schemas of several files and their partition columns into one schema."""

from __future__ import annotations

from pyspark.sql import types as T

from secure_bloom.errors import UnsupportedError
from secure_bloom.spark.options.names import find_name
from secure_bloom.spark.schema.sensitivity import unite

_INTEGERS: tuple[T.DataType, ...] = (T.ByteType(), T.ShortType(), T.IntegerType(), T.LongType())
_DIGITS = dict(zip(_INTEGERS, (3, 5, 10, 19), strict=True))


def merge(one: T.StructType, other: T.StructType) -> T.StructType:
    """Merge two schemas by column name, with types that can hold the values of both.

    Raises
    ------
    UnsupportedError
        If a column has conflicting types; ``other`` is the schema of the current file.
    """
    merged = _wider_struct(one, other)
    if merged is None:
        raise _contradiction(one, other)
    return merged


def _contradiction(one: T.StructType, other: T.StructType) -> UnsupportedError:
    for field in other:
        name = find_name(field.name, one.names)
        known = one[name].dataType if name else field.dataType
        if wider(known, field.dataType) is None:
            return UnsupportedError(
                f"here the type is {field.dataType.simpleString()}, but in other files "
                f"{known.simpleString()}; specify which to use: .schema(...) before .load",
                column=field.name)
    raise AssertionError("two compatible schemas")


def with_partitions(schema: T.StructType, partitions: list[T.StructField]) -> T.StructType:
    """Add the partition columns: at the end, or in place of the file column of that name."""
    fields = {field.name: field for field in schema}
    for field in partitions:
        name = find_name(field.name, list(fields)) or field.name
        metadata = fields[name].metadata if name in fields else None
        fields[name] = T.StructField(name, field.dataType, metadata=metadata)
    return T.StructType(list(fields.values()))


def wider(one: T.DataType, other: T.DataType) -> T.DataType | None:
    """Return the type that holds the values of both without loss; None if there is none."""
    if one == other or isinstance(other, T.NullType):
        return one
    if isinstance(one, T.NullType):
        return other
    if one in _INTEGERS and other in _INTEGERS:
        return max(one, other, key=_INTEGERS.index)
    if {one, other} == {T.FloatType(), T.DoubleType()}:
        return T.DoubleType()
    if isinstance(one, T.StructType) and isinstance(other, T.StructType):
        return _wider_struct(one, other)
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


def _wider_struct(one: T.StructType, other: T.StructType) -> T.StructType | None:
    """Merge the fields of both, matched by name; None if two fields have conflicting types."""
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
        fields[name] = T.StructField(name, type_, True, unite(known.metadata, field.metadata))
    return T.StructType(list(fields.values()))
