"""Hive partitions: columns whose values are in folder names, such as ``day=2024-01-31``."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from operator import eq, ge, gt, le, lt
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
)

from secure_bloom.errors import UnsupportedError
from secure_bloom.pruning.predicates import Predicate

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def infer_type(values: Iterable[str | None]) -> DataType:
    """Return the type that Spark infers for a partition column; string instead of timestamp.

    A timestamp without a time zone depends on the session's time zone, which a data source does
    not receive.
    """
    texts = {value for value in values if value is not None}
    if not texts:
        return StringType()
    if all(map(_INTEGER.fullmatch, texts)):
        widest = max(abs(int(text) + (int(text) < 0)) for text in texts)
        if widest < 2**63:
            return IntegerType() if widest < 2**31 else LongType()
        return DecimalType(len(str(widest)), 0) if widest < 10**38 else DoubleType()
    if all(map(_NUMBER.fullmatch, texts)):
        return DoubleType()
    return DateType() if all(map(_is_date, texts)) else StringType()


def _is_date(text: str) -> bool:
    try:
        return bool(_DATE.fullmatch(text) and datetime.date.fromisoformat(text))
    except ValueError:
        return False


def partition_scalar(text: str | None, type_: pa.DataType) -> pa.Scalar:
    """Convert the text of a partition value to the type of its column.

    Raises UnsupportedError if the text is not a valid value of this type.
    """
    try:
        if text is not None and pa.types.is_integer(type_) and _INTEGER.fullmatch(text):
            return pa.scalar(int(text), type_)
        return pa.array([text], pa.string()).cast(type_)[0]
    except (pa.ArrowException, OverflowError):
        raise UnsupportedError(f"a value in the path is not a valid {type_}; specify another type "
                               "in .schema(...)") from None


_COMPARE = {"=": eq, "==": eq, "<=>": eq, "<": lt, "<=": le, ">": gt, ">=": ge}


def may_hold(predicate: Predicate, value: pa.Scalar) -> bool:
    """Whether a predicate may hold for the rows of a partition."""
    op, asked = predicate.op, predicate.value
    if op in ("is null", "is not null") or (op == "<=>" and asked is None):
        return value.is_valid == (op == "is not null")
    if op not in (*_COMPARE, "in"):
        return True
    if not value.is_valid:
        return False
    own = value.as_py()
    if op == "in":
        return any(_holds(eq, own, one) for one in asked)
    return _holds(_COMPARE[op], own, asked)


def _holds(compare: Callable[[Any, Any], bool], own: object, asked: object) -> bool:
    # For other types nothing can be ruled out: floats have NaN, timestamps have time zones.
    if type(own) is not type(asked) or type(own) not in (int, str, datetime.date, Decimal, bool):
        return True
    return compare(own, asked)
