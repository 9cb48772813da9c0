"""XXH64 of Arrow values in their Parquet plain encoding (BloomFilter.md, "Hash function").

What is hashed (seed 0):

    INT32, FLOAT             4 bytes, little-endian; every 8-, 16- and 32-bit integer is an INT32
    INT64, DOUBLE            8 bytes, little-endian
    INT96                    12 bytes: nanoseconds of the day (8), Julian day (4), little-endian
    BYTE_ARRAY               the bytes alone, without their length
    FIXED_LEN_BYTE_ARRAY     the bytes; decimals big-endian two's complement

Two ways lead into :func:`hash_values`. :func:`as_written` mirrors what Arrow's Parquet writer makes
of a value while it is written; :func:`convert_exactly` converts values given by a caller and turns
whatever has no certain counterpart in the column into a null, so that nobody concludes anything
from it.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pyarrow as pa

from secure_bloom.errors import ColumnError
from secure_bloom.sbbf.column_type import ColumnType

BULK = 200_000  #: after this many values, importing numba pays
_worked = 0

_WORD_TYPES = "INT32", "FLOAT", "INT64", "DOUBLE"
_NANOS_PER_DAY = 86_400_000_000_000
_JULIAN_EPOCH = 2_440_588
UNIT_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_MILLIS_PER_DAY = 86_400_000

_TEXT_KINDS = pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view
_BYTES_KINDS = pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view
_BYTE_KINDS = (*_TEXT_KINDS, *_BYTES_KINDS)


def is_text_or_bytes(t: pa.DataType) -> bool:
    """Whether this is any of Arrow's string and binary types of variable length."""
    return any(kind(t) for kind in _BYTE_KINDS)


def kernels_for(count: int) -> ModuleType:
    """The module to work ``count`` values with: numba kernels for bulk, their plain twin for less.

    Importing numba takes as long as the twin takes for some 500,000 values. So the twin serves
    until :data:`BULK` values have come, at once or in small portions; single values it serves
    always.
    """
    global _worked
    _worked += count
    if _worked >= BULK and count > 16:
        from secure_bloom.kernels import bulk as kernels
        return kernels
    from secure_bloom.kernels import scalar as plain
    return plain


# --- from Arrow types to column types ------------------------------------------------------------

def column_type_of(arrow_type: pa.DataType) -> ColumnType:
    """How Parquet stores a leaf of this Arrow type by default (format version 2.6).

    Raises
    ------
    ColumnError
        If such a column cannot have a Bloom filter.
    """
    arrow_type = plain_type(arrow_type)
    column_type = _default_type(arrow_type)
    if column_type is None:
        raise ColumnError(f"values of type {arrow_type} cannot be put into a Bloom filter")
    return column_type


def plain_type(arrow_type: pa.DataType) -> pa.DataType:
    """The type below dictionaries and extensions."""
    while True:
        if isinstance(arrow_type, pa.BaseExtensionType):
            arrow_type = arrow_type.storage_type
        elif pa.types.is_dictionary(arrow_type):
            arrow_type = arrow_type.value_type
        else:
            return arrow_type


def _default_type(t: pa.DataType) -> ColumnType | None:
    if pa.types.is_decimal(t):
        length = (int(10**t.precision - 1).bit_length() + 8) // 8
        wide = pa.decimal128 if t.precision <= 38 else pa.decimal256
        return ColumnType("FIXED_LEN_BYTE_ARRAY", length, wide(t.precision, t.scale))
    if any(kind(t) for kind in _TEXT_KINDS):
        return ColumnType("BYTE_ARRAY", 0, pa.string())
    if any(kind(t) for kind in _BYTES_KINDS):
        return ColumnType("BYTE_ARRAY", 0, pa.binary())
    if pa.types.is_fixed_size_binary(t):
        return ColumnType("FIXED_LEN_BYTE_ARRAY", t.byte_width, t)
    if pa.types.is_float16(t):
        return ColumnType("FIXED_LEN_BYTE_ARRAY", 2, t)
    if pa.types.is_floating(t):
        return ColumnType("FLOAT" if t.bit_width == 32 else "DOUBLE", 0, t)
    if pa.types.is_integer(t):
        return ColumnType("INT32" if t.bit_width <= 32 else "INT64", 0, t)
    if pa.types.is_date(t):
        return ColumnType("INT32", 0, pa.date32())
    if pa.types.is_time32(t):
        return ColumnType("INT32", 0, pa.time32("ms"))
    if pa.types.is_timestamp(t):
        return ColumnType("INT64", 0, pa.timestamp("ms" if t.unit == "s" else t.unit, t.tz))
    if pa.types.is_time64(t) or pa.types.is_duration(t):
        return ColumnType("INT64", 0, t)
    return None


def storage_array(array: pa.Array) -> pa.Array:
    """The array without extension type, and views as large binaries: Arrow cannot filter views."""
    if isinstance(array.type, pa.BaseExtensionType):
        return storage_array(array.storage)
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        return array.cast(pa.large_binary())
    return array


# --- hashing -------------------------------------------------------------------------------------

def hash_values(array: pa.Array, column_type: ColumnType) -> np.ndarray:
    """The hash of each value of an array without nulls, in order; dtype uint64.

    The array has the type ``column_type.arrow_type`` (strings and binaries: any of their forms;
    INT96: any unit).
    """
    out = np.empty(len(array), dtype=np.uint64)
    work = kernels_for(len(array))
    if column_type.physical_type == "BYTE_ARRAY":
        work.hash_binary(*_binary_buffers(array), out)
    elif column_type.physical_type in _WORD_TYPES:
        work.hash_words(_words(array, column_type), out)
    else:
        data = np.ascontiguousarray(_fixed_bytes(array, column_type))
        work.hash_fixed(data.reshape(-1), data.shape[1], out)
    return out


def insert_values(words: np.ndarray, array: pa.Array, column_type: ColumnType) -> None:
    """Insert the values of such an array into the words of a filter."""
    work = kernels_for(len(array))
    if column_type.physical_type in _WORD_TYPES:
        work.insert_words(words, _words(array, column_type))
    else:
        work.insert_hashes(words, hash_values(array, column_type))


def hash_stored(array: pa.Array, column_type: ColumnType) -> np.ndarray:
    """Hashes of the values that Arrow's Parquet writer stores for this leaf array; dtype uint64.

    Nulls are left out. The order of a dictionary array is not kept: each of its values that
    occurs is hashed once.

    Raises
    ------
    ColumnError
        If a value cannot be converted, so that no filter would be complete.
    """
    array = used_dictionary_values(array)
    array = array.drop_null() if array.null_count else array
    converted = convert_exactly(as_written(array, column_type), column_type)
    if converted.null_count:
        raise ColumnError(f"values of type {array.type} cannot be hashed as {column_type}")
    return hash_values(converted, column_type)


def used_dictionary_values(array: pa.Array) -> pa.Array:
    """The array; of a dictionary array each value that occurs, once."""
    array = storage_array(array)
    while pa.types.is_dictionary(array.type):
        used = np.zeros(len(array.dictionary), dtype=bool)
        used[array.indices.drop_null().to_numpy()] = True
        array = storage_array(array.dictionary).filter(pa.array(used))
    return array


def _words(array: pa.Array, column_type: ColumnType) -> np.ndarray:
    """Values of a 4- or 8-byte physical type as uint32 or uint64."""
    narrow = column_type.physical_type in ("INT32", "FLOAT")
    if pa.types.is_decimal(array.type):
        low = _decimal_bytes(array)[:, :4 if narrow else 8]
        return np.ascontiguousarray(low).view(np.uint32 if narrow else np.uint64).ravel()
    values = _numpy(array)
    if narrow and values.itemsize < 4:
        values = values.astype(np.int32)
    return values.view(np.uint32 if narrow else np.uint64)


def _numpy(array: pa.Array) -> np.ndarray:
    """The values of a fixed-width array without nulls, times and dates as integers."""
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    return array.to_numpy(zero_copy_only=True)


def _fixed_bytes(array: pa.Array, column_type: ColumnType) -> np.ndarray:
    """Values of INT96 or FIXED_LEN_BYTE_ARRAY; shape (n, bytes of a value), uint8."""
    if column_type.physical_type == "INT96":
        return int96_bytes(_numpy(array), array.type.unit)
    if pa.types.is_decimal(array.type):
        return _decimal_bytes(array)[:, :column_type.length][:, ::-1]
    return _raw_values(array, column_type.length)


def int96_bytes(ints: np.ndarray, unit: str) -> np.ndarray:
    """INT96 timestamps of time units since the epoch (int64); shape (n, 12), uint8."""
    out = np.empty((ints.size, 12), dtype=np.uint8)
    nanos = UNIT_NANOS[unit]
    days, rest = np.divmod(ints, _NANOS_PER_DAY // nanos)
    out[:, :8] = (rest * nanos).astype("<i8").view(np.uint8).reshape(-1, 8)
    out[:, 8:] = (days + _JULIAN_EPOCH).astype("<i4").view(np.uint8).reshape(-1, 4)
    return out


def _decimal_bytes(array: pa.Array) -> np.ndarray:
    """Unscaled values, little-endian; shape (n, bytes of the Arrow type), uint8."""
    return _raw_values(array, array.type.byte_width)


def _raw_values(array: pa.Array, width: int) -> np.ndarray:
    """The value buffer of a fixed-width array; shape (n, width), uint8."""
    if len(array) == 0:
        return np.empty((0, width), dtype=np.uint8)
    data = np.frombuffer(array.buffers()[1], dtype=np.uint8)
    return data[array.offset * width:(array.offset + len(array)) * width].reshape(-1, width)


def _binary_buffers(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Offsets (int32 or int64, one more than values) and data (uint8) of a string or binary."""
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    if offsets is None or len(array) == 0:
        return np.zeros(1, dtype=np.int32), np.empty(0, dtype=np.uint8)
    offsets = np.frombuffer(offsets, dtype=np.int64 if large else np.int32)
    offsets = offsets[array.offset:array.offset + len(array) + 1]
    data = np.empty(0, np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
    return offsets, data


# --- what Arrow's Parquet writer stores ----------------------------------------------------------

def as_written(array: pa.Array, column_type: ColumnType) -> pa.Array:
    """Mirror the lossy or unchecked conversions of Arrow's Parquet writer.

    Timestamps and date64 are cut off towards zero; durations are stored as bare integers; a
    timestamp keeps its instant whatever zone the column has.
    """
    source, target = array.type, column_type.arrow_type
    if source == target:
        return array
    if pa.types.is_duration(source):
        return array.view(pa.int64())
    if pa.types.is_date64(source):
        return _from_ints(_divide(_numpy(array), _MILLIS_PER_DAY).astype(np.int32), target)
    if column_type.physical_type == "INT96":
        return array.view(pa.timestamp(source.unit))
    if target is not None and pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        ints, _ = _rescale(_numpy(array), UNIT_NANOS[source.unit], UNIT_NANOS[target.unit])
        return _from_ints(ints, target)
    return array


def _from_ints(ints: np.ndarray, t: pa.DataType) -> pa.Array:
    return pa.array(ints).view(t)


def _divide(ints: np.ndarray, divisor: int) -> np.ndarray:
    """Integer division towards zero, as C++ does it."""
    quotient = ints // divisor
    return quotient + ((ints < 0) & (quotient * divisor != ints))


def _rescale(ints: np.ndarray, source: int, target: int) -> tuple[np.ndarray, np.ndarray]:
    """Integers of one time unit in another, and whether each is exact (no rest, no overflow).

    ``source`` and ``target`` are the lengths of the two units, in any common unit.
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
    """Values as the column has them; null where a value has no certain counterpart there.

    A null thus means "nothing is known": the value may compare equal to one in the column in some
    engine. Conversions that are certain: integers of any width; integers to floating point and to
    decimals where exact; floating point to another width (the nearest, since a narrower value
    compares equal to nothing else); decimals of another scale where exact; strings and binaries of
    any form; times, timestamps and durations of another unit where exact, timestamps only when
    both or neither are in UTC.
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
        return _cast_each(array.cast(pa.decimal128(20, 0)), target)
    if pa.types.is_decimal(target) and pa.types.is_decimal(source):
        return _cast_each(array, target)
    if is_text_or_bytes(source) and pa.types.is_fixed_size_binary(target):
        return _cast_each(array.cast(pa.large_binary()), target)
    if pa.types.is_date64(source) and pa.types.is_date32(target):
        return _convert_time(array, target, 1, _MILLIS_PER_DAY)
    if pa.types.is_date32(source) and pa.types.is_date64(target):
        return _convert_time(array, target, _MILLIS_PER_DAY, 1)
    if target is not None and _same_clock(source, target):
        if column_type.physical_type == "INT96":
            return array  # days and time of the day: every unit fits
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
    if pa.types.is_integer(target):  # a sign that wraps around comes back as it was
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


def _cast_each(array: pa.Array, target: pa.DataType) -> pa.Array:
    """A checked cast; values that it refuses become null."""
    try:
        return array.cast(target)
    except pa.ArrowInvalid:
        if len(array) == 1:
            return pa.nulls(1, target)
        return pa.concat_arrays([_cast_each(array.slice(i, 1), target)
                                 for i in range(len(array))])


def _same_clock(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        return (source.tz is None) == (target.tz is None)
    return ((pa.types.is_time(source) and pa.types.is_time(target))
            or (pa.types.is_duration(source) and pa.types.is_duration(target)))


def _convert_time(array: pa.Array, target: pa.DataType, source_unit: int,
                  target_unit: int) -> pa.Array:
    import pyarrow.compute as pc
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    ints = _numpy(array.fill_null(0) if array.null_count else array).astype(np.int64)
    ints, fits = _rescale(ints, source_unit, target_unit)
    ints = ints.astype(np.int32 if target.bit_width == 32 else np.int64)
    return pc.if_else(pa.array(valid & fits), _from_ints(ints, target), pa.scalar(None, target))
