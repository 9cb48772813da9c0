"""The hashes of values that test vectors give as plain bytes or as text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from secure_bloom.errors import UnsupportedError
from secure_bloom.sbbf.column_type import WIDTHS, ColumnType
from secure_bloom.sbbf.conversion import convert_exactly
from secure_bloom.sbbf.hashing import hash_values
from secure_bloom.sbbf.parsing import parse_value

_ARROW_TYPES = {"INT32": pa.int32(), "INT64": pa.int64(), "INT96": pa.timestamp("ns"),
                "FLOAT": pa.float32(), "DOUBLE": pa.float64(), "BYTE_ARRAY": pa.binary()}


class WrongLengthError(ValueError):
    """Bytes that are not a valid value of a physical type."""


def hash_plain(physical_type: str, type_length: int, plain: bytes) -> int:
    """Return the hash of a value in PLAIN encoding."""
    arrow_type = _ARROW_TYPES.get(physical_type)
    width = WIDTHS.get(physical_type, type_length if arrow_type is None else 0)
    if (width and len(plain) != width) or (physical_type == "FIXED_LEN_BYTE_ARRAY" and not width):
        raise WrongLengthError
    if physical_type in ("INT96", "FIXED_LEN_BYTE_ARRAY"):
        # Not as a timestamp: Arrow cannot represent most INT96 values as one.
        column_type = ColumnType("FIXED_LEN_BYTE_ARRAY", width, pa.binary(width))
        array = pa.array([plain], pa.binary(width))
    else:
        column_type = ColumnType(physical_type, 0, arrow_type)
        array = pa.array([plain], pa.binary()) if physical_type == "BYTE_ARRAY" \
            else pa.Array.from_buffers(arrow_type, 1, [None, pa.py_buffer(plain)])
    return int(hash_values(array, column_type)[0])


def hash_text(value: str, column_type: ColumnType) -> int:
    """Return the hash of a value that is written as text."""
    array = pa.array([parse_value(value, column_type).as_py()], column_type.arrow_type) \
        if column_type.arrow_type == pa.float16() \
        else pa.array([parse_value(value, column_type)], column_type.arrow_type)
    return int(hash_values(convert_exactly(array, column_type), column_type)[0])


_UNITS = {"MILLIS": "ms", "MICROS": "us", "NANOS": "ns"}


def arrow_type(physical_type: str, type_length: int, logical_type: str | None) -> pa.DataType:
    """The Arrow type of a logical type written as text, such as ``DECIMAL(9,2)``."""
    name, _, arguments = (logical_type or "").rstrip(")").partition("(")
    first, _, second = arguments.partition(",")
    if name in ("STRING", "ENUM", "JSON"):
        return pa.string()
    if name == "DATE":
        return pa.date32()
    if name == "FLOAT16":
        return pa.float16()
    if name == "DECIMAL":
        wide = pa.decimal256 if int(first) > 38 else pa.decimal128
        return wide(int(first), int(second))
    if name == "INTEGER":
        return getattr(pa, f"{'' if second == 'signed' else 'u'}int{first}")()
    if name == "TIME":
        return pa.time32("ms") if first == "MILLIS" else pa.time64(_UNITS[first])
    if name == "TIMESTAMP":
        return pa.timestamp(_UNITS[first], "UTC" if second == "UTC" else None)
    if name in ("", "BSON", "UUID"):
        return _ARROW_TYPES.get(physical_type) or pa.binary(type_length)
    raise UnsupportedError(f"unknown logical type {logical_type!r}")


def hashes_of(values: Any, physical_type: str, type_length: int) -> np.ndarray:
    """Return the hashes of PLAIN values in hexadecimal digits, without nulls."""
    return np.array([hash_plain(physical_type, type_length, bytes.fromhex(value))
                     for value in values if value is not None], dtype=np.uint64)
