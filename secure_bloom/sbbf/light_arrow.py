"""Arrow's arrays and functions, without what pyarrow imports for them.

``pyarrow.compute`` builds a Python function for each function of Arrow, which takes 50 ms.
``pyarrow.array`` and ``pyarrow.scalar`` import pandas if it is installed, which takes 300 ms.
A process that looks up one value needs neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

_DTYPES = {pa.int8(): "<i1", pa.int16(): "<i2", pa.int32(): "<i4", pa.int64(): "<i8",
           pa.uint8(): "<u1", pa.uint16(): "<u2", pa.uint32(): "<u4", pa.uint64(): "<u8",
           pa.float32(): "<f4", pa.float64(): "<f8"}
_OFFSETS = {pa.binary(): "<i4", pa.string(): "<i4",
            pa.large_binary(): "<i8", pa.large_string(): "<i8"}
_MAX_BYTES = 2**31 - 1  # of values with offsets of 4 bytes


def call(name: str, *arguments: Any, options: Any = None) -> Any:
    """Call a function of Arrow by name, as ``pyarrow.compute.call_function`` does.

    Python values among the arguments would import pandas; pass scalars.
    """
    return _functions().call_function(name, list(arguments), options)


def is_in(values: pa.Array, members: pa.Array) -> pa.BooleanArray:
    """Return for each value whether it is one of the members."""
    return call("is_in", values, options=_functions().SetLookupOptions(members))


def filter_rows(batch: pa.RecordBatch, rows: pa.BooleanArray) -> pa.RecordBatch:
    """Return the rows of a batch for which a mask without nulls is true."""
    return call("filter", batch, rows, options=_functions().FilterOptions())


def truth(mask: pa.BooleanArray) -> np.ndarray:
    """Return a mask without nulls as a numpy array."""
    bits = np.frombuffer(mask.buffers()[1] or b"", np.uint8)
    return np.unpackbits(bits, count=mask.offset + len(mask), bitorder="little")[mask.offset:] \
        .astype(bool)


def positions(numbers: np.ndarray) -> pa.Array:
    """Return int64 numbers as an array, without a copy."""
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def array(values: Sequence[Any] | np.ndarray, arrow_type: pa.DataType) -> pa.Array:
    """Return values that are not null as an array of a type.

    Types other than numbers, booleans, text and bytes still import pandas.
    """
    count = len(values)
    if arrow_type in _DTYPES:
        data = np.array(values, _DTYPES[arrow_type])
    elif arrow_type.equals(pa.bool_()):
        data = np.packbits(np.array(values, bool), bitorder="little")
    elif arrow_type in _OFFSETS:
        encoded = [value.encode() if isinstance(value, str) else value for value in values]
        offsets = [0, *accumulate(map(len, encoded))]
        if offsets[-1] > _MAX_BYTES:
            return pa.array(values, arrow_type)
        return pa.Array.from_buffers(arrow_type, count, [
            None, pa.py_buffer(np.array(offsets, _OFFSETS[arrow_type])),
            pa.py_buffer(b"".join(encoded))])
    else:
        return pa.array(values, arrow_type)
    return pa.Array.from_buffers(arrow_type, count, [None, pa.py_buffer(data)])


def scalar(value: Any, arrow_type: pa.DataType) -> pa.Scalar:
    """Return a value that is not null as a scalar of a type; see :func:`array`."""
    return array([value], arrow_type)[0]


def repeated(value: Any, arrow_type: pa.DataType, count: int) -> pa.Array:
    """Return an array of one value; see :func:`array`."""
    return pa.repeat(scalar(value, arrow_type), count)


def to_numpy(numbers: pa.ChunkedArray) -> np.ndarray:
    """Return numbers that are not null as a numpy array."""
    return np.from_dlpack(numbers.combine_chunks())


def _functions() -> Any:
    from pyarrow import _compute  # what pyarrow.compute takes its classes and functions from
    return _compute
