"""Conversion of values to a column's type, for writing and for lookup.

:func:`as_written` mirrors the conversions of Arrow's Parquet writer;
:func:`convert_exactly` converts values passed by a caller. A value without a certain counterpart
in the column becomes null, so that nothing is concluded from it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from secure_bloom.sbbf.arrow_types import UNIT_NANOS, is_text_or_bytes, numpy_values, storage_array
from secure_bloom.sbbf.column_type import ColumnType

_MILLIS_PER_DAY = 86_400_000
_MOST_DIGITS = 76  # of any decimal type


def as_written(array: pa.Array, column_type: ColumnType) -> pa.Array:
    """Mirror the lossy or unchecked conversions of Arrow's Parquet writer.

    Timestamps and date64 are truncated towards zero; durations are stored as plain integers; a
    timestamp keeps its instant regardless of the column's time zone. Seconds of a time become
    milliseconds of 32 bits, of which pyarrow does not check that they fit.
    """
    source, target = array.type, column_type.arrow_type
    if source == target:
        return array
    if pa.types.is_duration(source):
        return array.view(pa.int64())
    if pa.types.is_date64(source):
        return _from_ints(_divide(numpy_values(array), _MILLIS_PER_DAY).astype(np.int32), target)
    if source == pa.time32("s"):
        return _from_ints(numpy_values(array) * np.int32(1000), target)
    if column_type.physical_type == "INT96":
        return array.view(pa.timestamp(source.unit))
    if target is not None and pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        ints, _ = _rescale(numpy_values(array), UNIT_NANOS[source.unit], UNIT_NANOS[target.unit])
        return _from_ints(ints, target)
    return array


def _from_ints(ints: np.ndarray, t: pa.DataType) -> pa.Array:
    return pa.array(ints).view(t)


def _divide(ints: np.ndarray, divisor: int) -> np.ndarray:
    """Divide integers, rounding towards zero as C++ does."""
    quotient = ints // divisor
    return quotient + ((ints < 0) & (quotient * divisor != ints))


def _rescale(ints: np.ndarray, source: int, target: int) -> tuple[np.ndarray, np.ndarray]:
    """Convert integers between time units; also return whether each result is exact.

    Exact means no remainder and no overflow. ``source`` and ``target`` are the lengths of the two
    units, in any common unit.
    """
    if source >= target:
        factor = source // target
        limit = np.iinfo(np.int64).max // factor
        return ints * factor, (ints <= limit) & (ints >= -limit)
    divisor = target // source
    quotient = _divide(ints, divisor)
    return quotient, quotient * divisor == ints


# --- exact conversion of probe values ------------------------------------------------------------

def convert_exactly(array: pa.Array, column_type: ColumnType) -> pa.Array:
    """Convert values to the column's type; null if a value has no certain counterpart there.

    A null therefore means "unknown": the value may compare equal to one in the column in some
    engine. These conversions are certain: integers of any width; integers to floating point and to
    decimals if exact; floating point to another width (the nearest value, since a narrower value
    compares equal to nothing else); decimals of another scale if exact; strings and binaries of
    any form; times, timestamps and durations of another unit if exact, timestamps only if both or
    neither are in UTC.
    """
    target = column_type.arrow_type
    array = storage_array(array)
    if pa.types.is_dictionary(array.type):
        return convert_exactly(array.dictionary, column_type).take(array.indices)
    source = array.type
    if source == target or _same_bytes(source, target):
        return array
    if _is_number(source) and _is_number(target):
        return _convert_number(array, target)
    if pa.types.is_decimal(target) and pa.types.is_integer(source):
        return _cast_decimals(array.cast(pa.decimal128(20, 0)), target)
    if pa.types.is_decimal(target) and pa.types.is_decimal(source):
        return _cast_decimals(array, target)
    if is_text_or_bytes(source) and pa.types.is_fixed_size_binary(target):
        return _cast_each(array.cast(pa.large_binary()), target)
    if pa.types.is_date64(source) and pa.types.is_date32(target):
        return _convert_time(array, target, 1, _MILLIS_PER_DAY)
    if pa.types.is_date32(source) and pa.types.is_date64(target):
        return _convert_time(array, target, _MILLIS_PER_DAY, 1)
    if target is not None and _same_clock(source, target):
        if column_type.physical_type == "INT96":
            return array  # days and time of day: every unit fits
        return _convert_time(array, target, UNIT_NANOS[source.unit], UNIT_NANOS[target.unit])
    return pa.nulls(len(array), target)


def _same_bytes(source: pa.DataType, target: pa.DataType) -> bool:
    byte_target = pa.types.is_string(target) or pa.types.is_binary(target)
    return byte_target and is_text_or_bytes(source)


def _is_number(t: pa.DataType) -> bool:
    return pa.types.is_integer(t) or pa.types.is_floating(t)


def _convert_number(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_floating(array.type) and pa.types.is_integer(target):
        return pa.nulls(len(array), target)  # a large float equals several integers
    import pyarrow.compute as pc  # takes 50 ms, and most values need no conversion
    converted = array.cast(target, safe=False)
    if pa.types.is_floating(array.type):
        return converted
    back = converted.cast(array.type, safe=False)
    same = pc.equal(back, array)
    if pa.types.is_integer(target):  # a sign that wraps around is restored by the round trip
        same = pc.and_(same, pc.equal(_is_negative(converted), _is_negative(array)))
    else:
        # Beyond the mantissa neighbours round to the same float, and back to one of themselves.
        limit = 2.0 ** {16: 11, 32: 24, 64: 53}[target.bit_width]
        wide = converted.cast(pa.float64())
        same = pc.and_(same, pc.less(pc.abs(wide), limit))
    return pc.if_else(same, converted, pa.scalar(None, target))


def _is_negative(array: pa.Array) -> pa.Array:
    import pyarrow.compute as pc
    return pc.less(array, pa.scalar(0, array.type))


def _cast_decimals(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast with checks; values that cannot be cast become null."""
    # Arrow does not notice an overflow of the whole integer when it appends zeros to it.
    digits = array.type.precision + target.scale - array.type.scale
    if digits > _MOST_DIGITS:
        return pa.nulls(len(array), target)
    if target.scale > array.type.scale:
        array = array.cast(pa.decimal256(_MOST_DIGITS, target.scale))
    return _cast_each(array, target)


def _cast_each(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast with checks; values that cannot be cast become null."""
    try:
        return array.cast(target)
    except pa.ArrowInvalid:
        if len(array) == 1:
            return pa.nulls(1, target)
        return pa.concat_arrays([_cast_each(array.slice(i, 1), target) for i in range(len(array))])


def _same_clock(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        return (source.tz is None) == (target.tz is None)
    return ((pa.types.is_time(source) and pa.types.is_time(target))
            or (pa.types.is_duration(source) and pa.types.is_duration(target)))


def _convert_time(array: pa.Array, target: pa.DataType, source_unit: int,
                  target_unit: int) -> pa.Array:
    import pyarrow.compute as pc
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    ints = numpy_values(array.fill_null(0) if array.null_count else array).astype(np.int64)
    ints, fits = _rescale(ints, source_unit, target_unit)
    stored = ints.astype(np.int32 if target.bit_width == 32 else np.int64)
    fits &= stored == ints  # days since 1970 may have more than 32 bits
    return pc.if_else(pa.array(valid & fits), _from_ints(stored, target), pa.scalar(None, target))
