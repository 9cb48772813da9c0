"""XXH64 of Arrow values in Parquet's plain encoding (BloomFilter.md, "Hash function").

What is hashed (seed 0):

    INT32, FLOAT             4 bytes, little-endian; every 8-, 16- and 32-bit integer is an INT32
    INT64, DOUBLE            8 bytes, little-endian
    INT96                    12 bytes: nanoseconds of the day (8), Julian day (4), little-endian
    BYTE_ARRAY               only the bytes, without their length
    FIXED_LEN_BYTE_ARRAY     the bytes; decimals big-endian two's complement

:func:`hash_values` is called in two ways, see :mod:`secure_bloom.sbbf.conversion`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from secure_bloom.errors import ColumnError
from secure_bloom.sbbf.arrow_types import UNIT_NANOS, numpy_values, used_dictionary_values
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.sbbf.conversion import as_written, convert_exactly
from secure_bloom.sbbf.kernel_choice import kernels_for

_WORD_TYPES = "INT32", "FLOAT", "INT64", "DOUBLE"
_NANOS_PER_DAY = 86_400_000_000_000
_JULIAN_EPOCH = 2_440_588


def hash_values(array: pa.Array, column_type: ColumnType) -> np.ndarray:
    """Return the hash of each value of an array without nulls, in order; dtype uint64.

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
    """Hash the values that Arrow's Parquet writer stores for this leaf array; dtype uint64.

    Nulls are skipped. The order of a dictionary array is not kept: each value that occurs is
    hashed once.

    Raises ColumnError if a value cannot be converted, because a filter without it would be
    incomplete.
    """
    array = used_dictionary_values(array)
    array = array.drop_null() if array.null_count else array
    converted = convert_exactly(as_written(array, column_type), column_type)
    if converted.null_count:
        raise ColumnError(f"values of type {array.type} cannot be hashed as {column_type}")
    return hash_values(converted, column_type)


def _words(array: pa.Array, column_type: ColumnType) -> np.ndarray:
    """Return values of a 4- or 8-byte physical type as uint32 or uint64."""
    narrow = column_type.width == 4
    if pa.types.is_decimal(array.type):
        low = _decimal_bytes(array)[:, :4 if narrow else 8]
        return np.ascontiguousarray(low).view(np.uint32 if narrow else np.uint64).ravel()
    values = numpy_values(array)
    if narrow and values.itemsize < 4:
        values = values.astype(np.int32)
    return values.view(np.uint32 if narrow else np.uint64)


def _fixed_bytes(array: pa.Array, column_type: ColumnType) -> np.ndarray:
    """Return INT96 or FIXED_LEN_BYTE_ARRAY values; shape (n, bytes per value), uint8."""
    if column_type.physical_type == "INT96":
        return int96_bytes(numpy_values(array), array.type.unit)
    if pa.types.is_decimal(array.type):
        return _decimal_bytes(array)[:, :column_type.length][:, ::-1]
    return _raw_values(array, column_type.length)


def int96_bytes(ints: np.ndarray, unit: str) -> np.ndarray:
    """Encode time units since the epoch (int64) as INT96 timestamps; shape (n, 12), uint8."""
    out = np.empty((ints.size, 12), dtype=np.uint8)
    nanos = UNIT_NANOS[unit]
    days, rest = np.divmod(ints, _NANOS_PER_DAY // nanos)
    out[:, :8] = (rest * nanos).astype("<i8").view(np.uint8).reshape(-1, 8)
    out[:, 8:] = (days + _JULIAN_EPOCH).astype("<i4").view(np.uint8).reshape(-1, 4)
    return out


def _decimal_bytes(array: pa.Array) -> np.ndarray:
    """Return the unscaled values, little-endian; shape (n, bytes of the Arrow type), uint8."""
    return _raw_values(array, array.type.byte_width)


def _raw_values(array: pa.Array, width: int) -> np.ndarray:
    """Return the value buffer of a fixed-width array; shape (n, width), uint8."""
    if len(array) == 0:
        return np.empty((0, width), dtype=np.uint8)
    data = np.frombuffer(array.buffers()[1], dtype=np.uint8)
    return data[array.offset * width:(array.offset + len(array)) * width].reshape(-1, width)


def _binary_buffers(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the offsets (int32 or int64, one more than values) and data (uint8) of a string or
    binary array.
    """
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    if offsets is None or len(array) == 0:
        return np.zeros(1, dtype=np.int32), np.empty(0, dtype=np.uint8)
    offsets = np.frombuffer(offsets, dtype=np.int64 if large else np.int32)
    offsets = offsets[array.offset:array.offset + len(array) + 1]
    data = np.empty(0, np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
    return offsets, data
