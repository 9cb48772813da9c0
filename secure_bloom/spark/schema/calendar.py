"""Old dates and times in files that Spark may have written in another calendar.

In legacy mode, and before 3.1, Spark stored days before 1582-10-15 as in the Julian calendar, and
times before 1900 with other offsets of time zones. Only its own reader converts them. Here such a
file is read as long as it has no value that could mean something else.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from secure_bloom.arrow.leaves import is_list
from secure_bloom.errors import UnsupportedError

_MODES = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_VERSION = b"org.apache.spark.version"
_FIRST_DAY, _FIRST_TIME = datetime.date(1582, 10, 15), datetime.datetime(1900, 1, 1)
_EPOCH = datetime.datetime(1970, 1, 1)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def is_legacy(schema: pa.Schema) -> bool:
    """Whether a file may have old dates or times in another calendar."""
    metadata = schema.metadata or {}
    version = metadata.get(_VERSION, b"9").split(b".")[:2]
    return any(name in metadata for name in _MODES) or (
        all(part.isdigit() for part in version) and [int(part) for part in version] < [3, 1])


def is_old(values: Iterable[object]) -> bool:
    """Whether one of the values of a predicate is so old that a file may store it differently."""
    return any(value.replace(tzinfo=None) < _FIRST_TIME if isinstance(value, datetime.datetime)
               else isinstance(value, datetime.date) and value < _FIRST_DAY for value in values)


def is_dated(type_: pa.DataType) -> bool:
    """Whether values of a type without fields are dates or times."""
    return pa.types.is_date(type_) or pa.types.is_timestamp(type_)


def check_calendar(array: pa.Array) -> None:
    """Raise UnsupportedError if values of such a file may mean another date or time."""
    type_ = array.type
    if pa.types.is_dictionary(type_):
        check_calendar(array.dictionary)
    elif pa.types.is_struct(type_):
        for child in array.flatten():
            check_calendar(child)
    elif pa.types.is_map(type_):
        check_calendar(array.keys)
        check_calendar(array.items)
    elif is_list(type_):
        check_calendar(array.flatten())
    elif is_dated(type_) and (oldest := pc.min(array.view(_stored(type_))).as_py()) is not None \
            and oldest < _first(type_):
        raise UnsupportedError(
            "the file may use Spark's legacy calendar, and has a value so old that only Spark's "
            "own reader converts it: read it with spark.read.parquet and the options of "
            "secure_bloom.spark.native.read_options")


def _stored(type_: pa.DataType) -> pa.DataType:
    return pa.int32() if pa.types.is_date32(type_) else pa.int64()


def _first(type_: pa.DataType) -> int:
    """Return the first value of a type that every calendar stores in the same way."""
    if pa.types.is_timestamp(type_):
        return int((_FIRST_TIME - _EPOCH).total_seconds()) * _PER_SECOND[type_.unit]
    days = (_FIRST_DAY - _EPOCH.date()).days
    return days if pa.types.is_date32(type_) else days * 86_400_000
