"""Values that are given as text, such as on the command line, as values of a column."""

from __future__ import annotations

import re
import uuid
from contextlib import suppress

import pyarrow as pa

from secure_bloom.sbbf.arrow_types import UNIT_NANOS, plain_type
from secure_bloom.sbbf.column_type import ColumnType


def parse_value(text: str, column_type: ColumnType) -> pa.Scalar:
    """Parse a probe value from text as a value of the column.

    Numbers in decimal; dates, times and timestamps in ISO 8601, with a zone offset (or Z) for
    columns in UTC; UUIDs in their usual form; strings and other bytes as UTF-8.

    Raises ValueError if the text is not a valid value of that type. The message does not repeat the
    text.
    """
    arrow_type = column_type.arrow_type
    if arrow_type is None:
        raise ValueError(f"values of a {column_type.physical_type} column cannot be looked up")
    try:
        return _parse(text, arrow_type)
    except (ValueError, pa.ArrowException):
        raise ValueError(f"the value is not a valid {arrow_type}") from None


def parse_values(texts: list[str], arrow_type: pa.DataType) -> pa.Array:
    """Parse many values as :func:`parse_value` does, as values of a column of an Arrow type.

    The message of the ValueError has the number of the value, from 1.
    """
    t = plain_type(arrow_type)
    if not pa.types.is_time(t) and not pa.types.is_fixed_size_binary(t):
        with suppress(ValueError, pa.ArrowException):
            return pa.array(texts, pa.string()).cast(t)
    found = []
    for number, text in enumerate(texts, 1):
        try:
            found.append(_parse(text, t))
        except (ValueError, pa.ArrowException):
            where = f" number {number:,}" if len(texts) > 1 else ""
            raise ValueError(f"the value{where} is not a valid {arrow_type}") from None
    return pa.array(found, t)


def _parse(text: str, t: pa.DataType) -> pa.Scalar:
    if pa.types.is_time(t):
        return _parse_time(text, t)
    if pa.types.is_fixed_size_binary(t) and len(text.encode()) != t.byte_width:
        return pa.scalar(uuid.UUID(text).bytes, t)
    return pa.array([text]).cast(t)[0]


def _parse_time(text: str, arrow_type: pa.DataType) -> pa.Scalar:
    # Not with Python's datetime.time, which truncates nanoseconds.
    match = re.fullmatch(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?", text)
    if match is None:
        raise ValueError
    hour, minute, second = (int(part or 0) for part in match.groups()[:3])
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError
    nanos = (hour * 3600 + minute * 60 + second) * 10**9 + int((match[4] or "").ljust(9, "0"))
    value, rest = divmod(nanos, UNIT_NANOS[arrow_type.unit])
    if rest:
        raise ValueError
    return pa.array([value], pa.int32() if arrow_type.bit_width == 32 else pa.int64()) \
        .view(arrow_type)[0]
