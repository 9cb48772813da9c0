"""Reference evaluation of row filters, row by row in plain Python, without Arrow.

Values are Python's numbers, text, bytes, booleans, dates, times, datetimes and timedeltas, and
:class:`Nanos` for values with nanoseconds.
"""

import datetime
import math
import operator
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple


class Nanos(NamedTuple):
    """Nanoseconds since the epoch, since midnight, or of a duration."""

    count: int


_EPOCH = datetime.datetime(1970, 1, 1)
_COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def filter_holds(row: dict, alternatives: list[list[tuple]]) -> bool:
    """Whether a row satisfies a filter in disjunctive normal form."""
    return any(all(holds(row[column], op, asked) for column, op, asked in alternative)
               for alternative in alternatives)


def holds(value, op: str, asked) -> bool:
    """Whether a predicate holds for a value, by the table in secure_bloom.pruning.predicates."""
    if op in ("is null", "is not null"):
        return (value is None) == (op == "is null")
    if op == "<=>":
        return value is asked is None or holds(value, "==", asked)
    if op == "not in":
        return not asked or (value is not None and None not in asked
                             and not any(holds(value, "==", one) for one in asked))
    if op == "in":
        return any(holds(value, "==", one) for one in asked)
    if value is None or asked is None:
        return False
    order = _order(_plain(value), _plain(asked))
    if op in ("=", "==", "!="):
        return (order == 0) == (op != "!=")
    return _COMPARE[op](order, 0)


def _order(value, asked) -> int:
    """Compare two values: -1, 0 or 1; NaN is greater than every other number."""
    nan = [isinstance(one, float) and math.isnan(one) for one in (value, asked)]
    return nan[0] - nan[1] if any(nan) else (value > asked) - (value < asked)


def _plain(value):
    """Convert a value to a form in which Python compares values of related types exactly."""
    match value:
        case str():
            return value.encode()
        case Decimal():
            return Fraction(value) if value.is_finite() else float(value)
        case Nanos():
            return value.count
        case datetime.datetime():
            if value.tzinfo is not None:
                value = value.astimezone(datetime.UTC).replace(tzinfo=None)
            return 1000 * ((value - _EPOCH) // datetime.timedelta(microseconds=1))
        case datetime.date():
            return _plain(datetime.datetime.combine(value, datetime.time()))
        case datetime.time():
            return _plain(datetime.datetime.combine(_EPOCH, value))
        case datetime.timedelta():
            return 1000 * (value // datetime.timedelta(microseconds=1))
    return value
