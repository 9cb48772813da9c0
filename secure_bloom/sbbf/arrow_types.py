"""Arrow types: their default Parquet storage, and arrays reduced to what a filter needs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from secure_bloom.errors import ColumnError
from secure_bloom.sbbf.column_type import ColumnType

UNIT_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def is_text(t: pa.DataType) -> bool:
    """Whether this is one of Arrow's string types."""
    return pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t)


def is_bytes(t: pa.DataType) -> bool:
    """Whether this is one of Arrow's variable-length binary types."""
    return pa.types.is_binary(t) or pa.types.is_large_binary(t) or pa.types.is_binary_view(t)


def is_text_or_bytes(t: pa.DataType) -> bool:
    """Whether this is one of Arrow's string or variable-length binary types."""
    return is_text(t) or is_bytes(t)


def column_type_of(arrow_type: pa.DataType) -> ColumnType:
    """Return how Parquet stores a leaf of this Arrow type by default (format version 2.6).

    Raises
    ------
    ColumnError
        If such a column cannot have a Bloom filter.
    """
    arrow_type = plain_type(arrow_type)
    column_type = _default_type(arrow_type)
    if column_type is None:
        raise ColumnError(f"values of type {arrow_type} cannot be inserted into a Bloom filter")
    return column_type


def plain_type(arrow_type: pa.DataType) -> pa.DataType:
    """Return the storage type, without dictionaries and extension types."""
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
    if is_text(t):
        return ColumnType("BYTE_ARRAY", 0, pa.string())
    if is_bytes(t):
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
    """Return the array without its extension type; views become large binaries.

    Arrow cannot filter views.
    """
    if isinstance(array.type, pa.BaseExtensionType):
        return storage_array(array.storage)
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        return array.cast(pa.large_binary())
    return array


def used_dictionary_values(array: pa.Array) -> pa.Array:
    """Return the array; for a dictionary array, each value that occurs, once."""
    array = storage_array(array)
    while pa.types.is_dictionary(array.type):
        used = np.zeros(len(array.dictionary), dtype=bool)
        used[array.indices.drop_null().to_numpy()] = True
        array = storage_array(array.dictionary).filter(pa.array(used))
    return array


def numpy_values(array: pa.Array) -> np.ndarray:
    """Return the values of a fixed-width array without nulls; times and dates as integers."""
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    return array.to_numpy(zero_copy_only=True)
