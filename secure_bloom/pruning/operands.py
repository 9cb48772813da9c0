"""Values that rows are compared with, and their position in the order of a column's type.

Numbers compare by their exact mathematical value, regardless of their types: an integer column
cannot hold 5.5, but 5 is less than 5.5. A value is therefore positioned between the values of the
column's type, by the largest of them that does not exceed it. Text and bytes compare bytewise,
timestamps by their instant. A value without such a position, such as a number for a text column,
is a caller error.
"""

from __future__ import annotations

import datetime
import math
import uuid
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import pyarrow as pa

from secure_bloom.errors import PredicateError
from secure_bloom.sbbf import light_arrow
from secure_bloom.sbbf.arrow_types import UNIT_NANOS, is_text_or_bytes, plain_type

_DAY = 86_400 * 10**9
_EPOCH = datetime.datetime(1970, 1, 1)
_MAX_EXPONENT = 400  # larger than the exponents of all decimals and floats, of either sign
_EPOCH_UTC = _EPOCH.replace(tzinfo=datetime.UTC)


class Operand(NamedTuple):
    """The position of a value in the order of a column's type.

    ``floor`` is the largest value of the type that does not exceed the value, in the form of
    :func:`comparable`; None if all values of the type are larger. Decimals are unscaled integers,
    times and timestamps integers in the unit of the type. ``is_exact``: whether ``floor`` is the
    value itself.
    """

    floor: int | float | bytes | bool | None
    is_exact: bool

    def __repr__(self) -> str:
        return f"<Operand is_exact={self.is_exact}>"  # never the value


def operand(value: Any, arrow_type: pa.DataType) -> Operand:
    """Return the position of a value in the order of a type.

    The value is not None, and as :func:`secure_bloom.sbbf.scalars.plain_value` returns it; the type
    is that of a column without children. Raises PredicateError if they cannot be compared. The
    message does not repeat the value.
    """
    t = plain_type(arrow_type)
    if pa.types.is_null(t):
        return Operand(None, False)
    kind, content = _meaning(value)
    if kind not in _COMPARABLE_KINDS.get(_kind_of(t), ()) or (
            isinstance(value, str) and _is_uuid(arrow_type)):
        raise PredicateError(
            f"a value of type {_name_of(value, kind)} cannot be compared with a column of type "
            f"{arrow_type}{_advice(arrow_type)}")
    if kind in ("bytes", "boolean"):
        return Operand(content, True)
    if pa.types.is_floating(t):
        return _float_operand(content)
    if kind != "number":
        content = Fraction(content, _nanos_of(t))
    elif pa.types.is_decimal(t):
        content *= 10**t.scale
    return _integer_operand(content, *_range_of(t))


def positions_of(values: list[Any], arrow_type: pa.DataType) -> frozenset[Any]:
    """Return the values of a type that equal one of some values, as :attr:`Operand.floor`.

    None is skipped. Raises PredicateError as :func:`operand` does.
    """
    t, types = plain_type(arrow_type), set(map(type, values)) - {type(None)}
    if types == {int} and pa.types.is_integer(t):
        low, high = _range_of(t)
        return frozenset(value for value in values if value is not None and low <= value <= high)
    if types == {str} and _kind_of(t) == "bytes" and not _is_uuid(arrow_type):
        with suppress(UnicodeEncodeError):  # which operand explains
            return frozenset(value.encode() for value in values if value is not None)
    places = (operand(value, arrow_type) for value in values if value is not None)
    return frozenset(floor for floor, is_exact in places if is_exact)


def _float_operand(number: int | float | Fraction) -> Operand:
    if isinstance(number, float):  # NaN or infinite
        return Operand(number, True)
    try:
        nearest = float(number)
    except OverflowError:
        nearest = math.inf if number > 0 else -math.inf
    if nearest > number:
        nearest = math.nextafter(nearest, -math.inf)
    return Operand(nearest, nearest == number)


def _integer_operand(number: int | float | Fraction, low: int, high: int) -> Operand:
    if number != number or number > high:  # NaN is greater than every number
        return Operand(high, False)
    if number < low:
        return Operand(None, False)
    floor = math.floor(number)
    return Operand(floor, floor == number)


# --- kinds of values -----------------------------------------------------------------------------

#: the kinds of values that each kind of column can be compared with
_COMPARABLE_KINDS: dict[str | None, tuple[str, ...]] = {
    "number": ("number",), "boolean": ("boolean",), "bytes": ("bytes",),
    "date": ("date", "timestamp"), "timestamp": ("date", "timestamp"),
    "timestamp with time zone": ("timestamp with time zone",),
    "time": ("time",), "duration": ("duration",),
}

_EXPECTED: dict[str | None, str] = {
    "number": "a number", "boolean": "True or False", "bytes": "a str or bytes",
    "date": "a datetime.date", "timestamp": "a datetime.datetime without a time zone",
    "timestamp with time zone": "a datetime.datetime with a time zone",
    "time": "a datetime.time without a time zone", "duration": "a datetime.timedelta",
}


def _kind_of(t: pa.DataType) -> str | None:
    """Return the kind of a plain type's values; None if they cannot be compared."""
    if pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t):
        return "number"
    if is_text_or_bytes(t) or pa.types.is_fixed_size_binary(t):
        return "bytes"
    if pa.types.is_timestamp(t):
        return "timestamp" if t.tz is None else "timestamp with time zone"
    for kind, is_kind in (("boolean", pa.types.is_boolean), ("date", pa.types.is_date),
                          ("time", pa.types.is_time), ("duration", pa.types.is_duration)):
        if is_kind(t):
            return kind
    return None


def _meaning(value: Any) -> tuple[str | None, Any]:
    """Return a value's kind (None if unknown) and content: number, bytes, bool, nanoseconds."""
    match value:
        case bool():
            return "boolean", value
        case int() | float() | Decimal() | Fraction():
            return "number", _number(value)
        case str():
            try:
                return "bytes", value.encode()
            except UnicodeEncodeError:
                return None, None
        case bytes() | bytearray() | memoryview():
            return "bytes", bytes(value)
        case uuid.UUID():
            return "bytes", value.bytes
        case datetime.datetime():
            if value.utcoffset() is None:
                return "timestamp", _nanos(value.replace(tzinfo=None) - _EPOCH)
            return "timestamp with time zone", _nanos(value - _EPOCH_UTC)
        case datetime.date():
            return "date", (value - _EPOCH.date()).days * _DAY
        case datetime.time() if value.tzinfo is None:
            return "time", _nanos(datetime.datetime.combine(_EPOCH, value) - _EPOCH)
        case datetime.timedelta():
            return "duration", _nanos(value)
        case pa.Scalar() if _kind_of(value.type) is not None:
            return _kind_of(value.type), value.value * _nanos_of(value.type)
    return None, None


def _name_of(value: object, kind: str | None) -> str:
    """Name the type of a value that cannot be compared, and the property that prevents it."""
    if isinstance(value, pa.Scalar):
        return str(value.type)
    name = type(value).__name__
    if isinstance(value, str) and kind is None:
        return f"{name} that UTF-8 cannot encode"
    if isinstance(value, datetime.datetime):
        return f"{name} {'without' if kind == 'timestamp' else 'with'} a time zone"
    return f"{name} with a time zone" if isinstance(value, datetime.time) and kind is None else name


def _advice(arrow_type: pa.DataType) -> str:
    if _is_uuid(arrow_type):
        return "; pass a uuid.UUID or its 16 bytes"
    expected = _EXPECTED.get(_kind_of(plain_type(arrow_type)))
    return "" if expected is None else f"; pass {expected}"


def _is_uuid(arrow_type: pa.DataType) -> bool:
    return getattr(arrow_type, "extension_name", None) == "arrow.uuid"


def _number(value: int | float | Decimal | Fraction) -> int | float | Fraction:
    """Return the same number, exactly; a float only if it is NaN or infinite.

    A decimal with an exponent beyond every type is replaced by another one with the same position
    in every type.
    """
    if isinstance(value, Decimal):
        if value.is_nan():
            return math.nan
        if value.is_finite() and value and abs(value.adjusted()) > _MAX_EXPONENT:
            # Converting all its digits would take unbounded memory and time.
            exponent = math.copysign(_MAX_EXPONENT, value.adjusted())
            value = Decimal((value.is_signed(), (1,), int(exponent)))
    if isinstance(value, float | Decimal):
        return Fraction(value) if math.isfinite(value) else float(value)
    return value


def _nanos(delta: datetime.timedelta) -> int:
    nanos = (delta.days * 86_400 + delta.seconds) * 10**9 + delta.microseconds * 1000
    return nanos + getattr(delta, "nanoseconds", 0)  # in pandas


def _nanos_of(t: pa.DataType) -> int:
    """Return the unit of a temporal type in nanoseconds."""
    if pa.types.is_date32(t):
        return _DAY
    return 10**6 if pa.types.is_date64(t) else UNIT_NANOS[t.unit]


def _range_of(t: pa.DataType) -> tuple[int, int]:
    """Return the minimum and maximum integer of a type, in the form of :func:`comparable`."""
    if pa.types.is_decimal(t):
        return 1 - 10**t.precision, 10**t.precision - 1
    bits, signed = t.bit_width, not pa.types.is_unsigned_integer(t)
    return -2**(bits - 1) if signed else 0, 2**(bits - signed) - 1


# --- arrays in the same form ---------------------------------------------------------------------

def comparable(array: pa.Array) -> pa.Array:
    """Convert values of a plain type to a form that Arrow compares in :class:`Operand` order."""
    t = array.type
    if pa.types.is_float64(t):
        return array
    if pa.types.is_floating(t):
        return array.cast(pa.float64())
    if pa.types.is_temporal(t):
        return array.view(pa.int32() if t.bit_width == 32 else pa.int64())
    if pa.types.is_decimal(t) and t.bit_width < 128:
        return array.cast(pa.decimal128(t.precision, t.scale))
    if pa.types.is_string(t):
        return array.view(pa.binary())
    if pa.types.is_large_string(t):
        return array.view(pa.large_binary())
    if not pa.types.is_binary(t) and _kind_of(t) == "bytes":
        return array.cast(pa.large_binary())
    return array


def literals(floors: list[Any], t: pa.DataType) -> pa.Array:
    """Return positions in a type as an array comparable with values from :func:`comparable`."""
    if pa.types.is_decimal(t):
        floors = [Decimal((int(floor < 0), tuple(map(int, str(abs(floor)))), -t.scale))
                  for floor in floors]
    return light_arrow.array(floors, t)
