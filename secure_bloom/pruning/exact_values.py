"""Comparisons in which Arrow's casts change no value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from secure_bloom.sbbf.arrow_types import UNIT_NANOS, is_text_or_bytes
from secure_bloom.sbbf.scalars import plain_value


def exact_values(array: pa.Array, column_type: pa.DataType) -> list[Any] | None:
    """Return literals without nulls in the form of a Predicate, in the order of the array.

    None if Arrow might not compare them exactly with a column of this type.
    """
    source = array.type
    t = column_type.value_type if pa.types.is_dictionary(column_type) else column_type
    kinds = kind_of(source), "bytes" if is_text_or_bytes(t) else kind_of(t)
    if kinds[0] != kinds[1] and kinds not in _OTHER_KINDS and not pa.types.is_null(t):
        return None
    if kinds[1] == "decimal" and not _have_common_decimal(source, t):
        return None
    values = _plain_values(array)
    if values is None or (kinds == ("integer", "float") and any(
            abs(value) > _LARGEST_INTEGER[t.bit_width] for value in values)):
        return None
    if kinds[1] in _CLOCKS and source != t and not all(map(_fits_in_nanoseconds, values)):
        return None
    return values


def rounds_set(source: pa.DataType, t: pa.DataType) -> bool:
    """Whether Arrow may round the values of a set to the type of the column."""
    kinds = kind_of(source), kind_of(t)
    return kinds == ("timestamp", "date") or (
        kinds == ("float", "float") and source.bit_width > t.bit_width)


#: of literal and column; half floats, literals that are views, and extension types are omitted
_OTHER_KINDS = {("integer", "float"), ("integer", "decimal"), ("bytes", "fixed"),
                ("date", "timestamp"), ("timestamp", "date")}
_CLOCKS = ("date", "timestamp", "zoned timestamp", "duration")
_LARGEST_INTEGER = {32: 2**24, 64: 2**53}  # by width of the floating-point type


def kind_of(t: pa.DataType) -> str | None:
    """Return the kind of values of a type that comparisons are exact for; None for others."""
    for kind, is_kind in _KINDS.items():
        if is_kind(t):
            return kind
    return None


_KINDS: dict[str, Callable[[pa.DataType], bool]] = {
    "integer": pa.types.is_integer, "boolean": pa.types.is_boolean,
    "float": lambda t: pa.types.is_float32(t) or pa.types.is_float64(t),
    "decimal": pa.types.is_decimal,
    "bytes": lambda t: any(is_kind(t) for is_kind in (
        pa.types.is_string, pa.types.is_large_string, pa.types.is_binary,
        pa.types.is_large_binary)),
    "fixed": pa.types.is_fixed_size_binary,
    "date": pa.types.is_date32,  # of date64, Arrow may drop the time of day
    "timestamp": lambda t: pa.types.is_timestamp(t) and t.tz is None,
    "zoned timestamp": lambda t: pa.types.is_timestamp(t) and t.tz is not None,
    "time": pa.types.is_time, "duration": pa.types.is_duration,
}


def _have_common_decimal(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether a decimal type can hold all values of two types, so that no cast can overflow."""
    if one == other:
        return True
    types = [(t.precision, t.scale) if pa.types.is_decimal(t) else (20, 0) for t in (one, other)]
    scale = max(scale for _, scale in types)
    return min(s for _, s in types) >= 0 and max(p - s for p, s in types) + scale <= 38


def _fits_in_nanoseconds(value: pa.Scalar) -> bool:
    """Whether every unit can represent the value; other casts may overflow."""
    nanos = 86_400 * 10**9 if pa.types.is_date32(value.type) else UNIT_NANOS[value.type.unit]
    return abs(value.value * nanos) < 2**63


def _plain_values(array: pa.Array) -> list[Any] | None:
    if pa.types.is_temporal(array.type):
        return list(map(plain_value, array))
    try:
        return array.to_pylist()
    except UnicodeDecodeError:  # Arrow does not check text
        return None


def keeps_values(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether Arrow's cast between plain types returns the same values, or raises an error."""
    if source == target or pa.types.is_null(source):
        return True
    kinds = [kind_of(t) for t in (source, target)]
    if kinds == ["float", "float"]:
        return source.bit_width <= target.bit_width
    if None in kinds:
        return is_text_or_bytes(source) and is_text_or_bytes(target)
    return kinds[0] == kinds[1] or kinds in (["integer", "float"], ["integer", "decimal"],
                                             ["fixed", "bytes"], ["date", "timestamp"])
