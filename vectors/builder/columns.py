"""What stands in the whole files: a column of every type that can have a filter.

Plain encodings are made here a second time, by the specification, not with secure_bloom.
"""

from __future__ import annotations

import datetime
import struct
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from secure_bloom.arrow.leaves import leaf_arrays
from secure_bloom.sbbf.column_type import ColumnType

LIMIT = 100  #: values are defined for the numbers below
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LOCAL = EPOCH.replace(tzinfo=None)
_JULIAN_EPOCH, _NANOS_PER_DAY = 2_440_588, 86_400 * 10**9
_SIZES = {"INT32": 4, "INT64": 8}


@dataclass(frozen=True)
class Column:
    """A column, its physical type, and its value number i, another one for each i."""

    name: str
    type: pa.DataType
    physical: str
    value: Callable[[int], Any]
    length: int = 0
    null_every: int = 0
    is_list: bool = False

    @property
    def path(self) -> str:
        """The leaf's dotted path."""
        return f"{self.name}.list.element" if self.is_list else self.name

    @property
    def column_type(self) -> ColumnType:
        """How the leaf is stored."""
        type_ = pa.binary(16) if self.type == pa.uuid() else self.type
        if self.physical == "INT96":
            type_ = pa.timestamp("ns")
        return ColumnType(self.physical, self.length, type_)

    def rows(self, numbers: Iterable[int]) -> pa.Array:
        """The column of rows that have these values; lists have others beside them."""
        values = [None if self.null_every and i % self.null_every == self.null_every - 1
                  else self.value(i) for i in numbers]
        if self.is_list:
            lists = [[] if i % 5 == 3 else [value, "all"] if i % 2 else [value]
                     for i, value in enumerate(values)]
            return pa.array(lists, pa.list_(pa.field("element", self.type)))
        storage = pa.binary(16) if self.type == pa.uuid() else self.type
        values = [value.bytes if isinstance(value, uuid.UUID) else value for value in values]
        return pa.array(values, storage).cast(self.type)

    def leaves(self, array: pa.ChunkedArray) -> list:
        """The distinct values of the leaf in an array of this column, without nulls."""
        found = [value for chunk in array.chunks for leaf in leaf_arrays(chunk)
                 for value in leaf.to_pylist() if value is not None]
        found = [uuid.UUID(bytes=value) if self.type == pa.uuid() else value for value in found]
        return list(dict.fromkeys(found))

    def plain(self, value) -> bytes:
        """The plain encoding of a value, for BYTE_ARRAY without its length."""
        if self.physical == "BYTE_ARRAY":
            return value.encode() if isinstance(value, str) else value
        if self.physical == "FIXED_LEN_BYTE_ARRAY":
            return self._fixed(value)
        if self.physical in ("FLOAT", "DOUBLE"):
            return struct.pack("<f" if self.physical == "FLOAT" else "<d", value)
        number = self._number(value)
        if self.physical == "INT96":
            day, of_day = divmod(number, _NANOS_PER_DAY)
            return struct.pack("<qi", of_day, day + _JULIAN_EPOCH)
        return number.to_bytes(_SIZES[self.physical], "little", signed=number < 0)

    def words(self, value) -> str:
        """The value as text, as :func:`secure_bloom.sbbf.parsing.parse_value` takes it."""
        if isinstance(value, bytes):
            return value.decode("ascii")
        if isinstance(value, float):
            return str(np.float32(value)) if self.physical == "FLOAT" else repr(value)
        return value.isoformat() if hasattr(value, "isoformat") else str(value)

    def _fixed(self, value) -> bytes:
        if isinstance(value, Decimal):
            return self._number(value).to_bytes(self.length, "big", signed=True)
        return value.bytes if isinstance(value, uuid.UUID) else value

    def _number(self, value) -> int:
        if isinstance(value, int):
            return value
        if isinstance(value, Decimal):
            return int(value.scaleb(self.type.scale))
        return pa.scalar(value, self.column_type.arrow_type).value


def _f32(value: float) -> float:
    return float(np.float32(value))


def _time(i: int, millis: int) -> datetime.time:
    return (_LOCAL + datetime.timedelta(minutes=14 * i, milliseconds=millis)).time()


_NUMBERS = [
    Column("tiny", pa.int8(), "INT32", lambda i: i - 20, null_every=5),
    Column("short", pa.int16(), "INT32", lambda i: -300 * i - 1),
    Column("whole", pa.int32(), "INT32", lambda i: 7 - 10**7 * i),
    Column("id", pa.int64(), "INT64", lambda i: 2**62 + i),
    Column("count", pa.uint32(), "INT32", lambda i: 2**32 - 1 - i),
    Column("large", pa.uint64(), "INT64", lambda i: 2**64 - 1 - i),
    Column("single", pa.float32(), "FLOAT", lambda i: _f32(i / 3 + 0.1)),
    Column("real", pa.float64(), "DOUBLE", lambda i: i / 7 - 5.5, null_every=4),
    Column("price", pa.decimal128(9, 2), "INT32", lambda i: Decimal(i * 101 + 101) / 100),
    Column("total", pa.decimal128(25, 3), "FIXED_LEN_BYTE_ARRAY",
           lambda i: Decimal(10**20 - 7 * i) / 1000, length=11),
    Column("stamp", pa.timestamp("us"), "INT96",
           lambda i: _LOCAL + datetime.timedelta(365 * i - 9, 0, i)),
]
_OTHERS = [
    Column("name", pa.string(), "BYTE_ARRAY", lambda i: f"näme {i}", null_every=4),
    Column("payload", pa.binary(), "BYTE_ARRAY", lambda i: b"%d " % i + b"." * (7 * i % 20)),
    Column("code", pa.binary(4), "FIXED_LEN_BYTE_ARRAY", lambda i: b"%04d" % i, length=4),
    Column("uuid", pa.uuid(), "FIXED_LEN_BYTE_ARRAY",
           lambda i: uuid.uuid5(uuid.NAMESPACE_URL, str(i)), length=16),
    Column("day", pa.date32(), "INT32",
           lambda i: datetime.date(1969, 12, 20) + datetime.timedelta(3 * i)),
    Column("minute", pa.time32("ms"), "INT32", lambda i: _time(i, 250), null_every=6),
    Column("time", pa.time64("us"), "INT64", lambda i: _time(i, 125)),
    Column("moment", pa.timestamp("us", "UTC"), "INT64",
           lambda i: EPOCH + datetime.timedelta(i - 9, 0, i), null_every=3),
    Column("local", pa.timestamp("us"), "INT64",
           lambda i: _LOCAL + datetime.timedelta(i - 9, 0, i)),
    Column("tags", pa.string(), "BYTE_ARRAY", lambda i: f"tag {i}", null_every=5, is_list=True),
]
GROUPS = {"numbers": _NUMBERS, "others": _OTHERS}
COLUMNS = {column.name: column for column in _NUMBERS + _OTHERS}


def pick(*names: str) -> list[Column]:
    """Columns by name."""
    return [COLUMNS[name] for name in names]


def table(columns: Iterable[Column], numbers: Iterable[int]) -> pa.Table:
    """A table whose rows have the values with these numbers."""
    numbers = list(numbers)
    return pa.table({column.name: column.rows(numbers) for column in columns})
