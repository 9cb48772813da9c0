"""Conversion of single NumPy, pandas and Arrow values to plain Python values.

pyarrow 26 crashes on some lists that mix them (``[numpy.datetime64(1, "s"), numpy.int64(1)]``).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

_DAYS = {"D": 1, "W": 7}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "D": 86_400, "W": 7 * 86_400}


def plain_value(value: Any) -> Any:
    """Convert a value to its plain Python form; null, NaT and NA become None, buffers bytes.

    Arrow and NumPy dates, times and durations become Arrow scalars, and so do pandas values with
    nanoseconds, because Python would truncate them. Other types are returned unchanged.
    """
    if isinstance(value, pa.Scalar):
        return _from_arrow(value)
    if isinstance(value, np.datetime64 | np.timedelta64):
        return _from_numpy_time(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bytearray | memoryview):  # which cannot be looked up in a dict
        return bytes(value)
    if type(value).__name__ in ("NaTType", "NAType") and _is_of_pandas(value):
        return None
    pandas: Any = value  # a subclass of Python's type, with more attributes
    if isinstance(value, datetime.datetime) and getattr(pandas, "nanosecond", False):
        return pa.scalar(pandas.value, pa.timestamp("ns", "UTC" if value.tzinfo else None))
    if isinstance(value, datetime.timedelta) and getattr(pandas, "nanoseconds", False):
        return pa.scalar(pandas.value, pa.duration("ns"))
    return value


def plain_values(values: Iterable[Any]) -> list[Any]:
    """Convert many values as :func:`plain_value` does."""
    if isinstance(values, pa.Array | pa.ChunkedArray) and _is_simple(values.type):
        return values.to_pylist()
    values = list(values)
    return values if _SIMPLE.issuperset(map(type, values)) else list(map(plain_value, values))


_SIMPLE = frozenset((type(None), bool, int, float, str, bytes))


def _is_simple(t: pa.DataType) -> bool:
    """Whether the Python form of Arrow values of a type is their plain form."""
    return pa.types.is_integer(t) or pa.types.is_string(t) or pa.types.is_large_string(t) \
        or pa.types.is_binary(t) or pa.types.is_large_binary(t) or pa.types.is_float64(t)


def _is_of_pandas(value: object) -> bool:
    return type(value).__module__.partition(".")[0] == "pandas"


def _from_arrow(value: pa.Scalar) -> Any:
    if not value.is_valid:
        return None
    if isinstance(value.type, pa.BaseExtensionType) or pa.types.is_dictionary(value.type):
        return _from_arrow(value.value)
    return value if pa.types.is_temporal(value.type) else plain_value(value.as_py())


def _from_numpy_time(value: np.datetime64 | np.timedelta64) -> Any:
    if np.isnat(value):
        return None
    with suppress(pa.ArrowException, OverflowError):  # too large for Arrow
        is_moment = isinstance(value, np.datetime64)
        if is_moment and np.datetime_data(value.dtype)[0] in ("Y", "M"):
            value = value.astype("datetime64[D]")
        unit, step = np.datetime_data(value.dtype)
        count = int(value.astype(np.int64)) * step
        if is_moment and unit in _DAYS:
            return pa.scalar(count * _DAYS[unit], pa.date32())
        arrow_type: Callable[[str], pa.DataType] = pa.timestamp if is_moment else pa.duration
        if unit in _SECONDS:
            return pa.scalar(count * _SECONDS[unit], arrow_type("s"))
        if unit in ("ms", "us", "ns"):
            return pa.scalar(count, arrow_type(unit))
    return value
