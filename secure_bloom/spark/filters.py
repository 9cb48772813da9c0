"""Conditions that belong to a DataFrame from the start: option ``filters``, and ``load``."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from secure_bloom.predicates import Predicate, normalize
from secure_bloom.spark.options import OptionError

_OPS = ("=", "==", "<=>", "<", "<=", ">", ">=", "in", "is null", "is not null")


@dataclass(frozen=True)
class ColumnPredicate:
    """A predicate on a column of the DataFrame, or on a field of a struct.

    Only rows for which it holds are wanted, so a row group may be skipped if it has none.
    """

    path: tuple[str, ...]
    op: str
    value: object = None

    @property
    def allows_null(self) -> bool:
        """Whether it holds for null."""
        return self.op == "is null" or (self.op == "<=>" and self.value is None)

    def on(self, path: str) -> Predicate:
        """The same on the column of a file."""
        return Predicate(path, self.op, self.value)


def load(spark, path: str, filters: list[tuple], **options: str) -> DataFrame:
    """A folder as DataFrame of the rows for which all predicates hold.

    Row groups without such rows are skipped, whatever is done with the DataFrame later; nothing
    has to be enabled. The rows themselves are compared by Spark.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        Classic or Connect, with the format registered.
    path : str
        The folder.
    filters : list of tuple
        ``(column, op, value)``; the operators are ``=``, ``<=>``, ``<``, ``<=``, ``>``, ``>=``,
        ``in``, ``is null`` and ``is not null`` (with None). Timestamps need a zone.
    **options
        As for ``spark.read.options``.

    Raises
    ------
    TypeError, ValueError
        If a predicate is malformed, or its value of a type that cannot be passed.
    """
    predicates = _checked(filters)
    frame = (spark.read.format("secure_parquet").options(**options)
             .option("filters", _to_json(predicates)).load(str(path)))
    return frame.where(reduce(Column.__and__, map(_condition, predicates)))


def parse_filters(text: str | None) -> tuple[ColumnPredicate, ...]:
    """The predicates of option ``filters``; the path is split by whoever knows the schema."""
    if text is None:
        return ()
    try:
        return tuple(ColumnPredicate((p.column,), p.op, p.value) for p in _checked(
            [(column, op, _decode(value)) for column, op, value in json.loads(text)]))
    except (ValueError, TypeError, KeyError, ArithmeticError):
        raise OptionError("it is set by secure_bloom.spark.load: use that function",
                          option="filters") from None


def _checked(filters) -> list[Predicate]:
    alternatives = normalize(filters)
    if len(alternatives) != 1:
        raise ValueError("filters must be one list of predicates that are all to hold")
    for predicate in alternatives[0]:
        if predicate.op not in _OPS:
            raise ValueError(f"operator must be one of {', '.join(_OPS)}, not {predicate.op!r}")
    return [Predicate(p.column, p.op, [v for v in p.value if v is not None]) if p.op == "in" else p
            for p in alternatives[0]]


def _condition(predicate: Predicate) -> Column:
    column, value = F.col(predicate.column), predicate.value
    match predicate.op:
        case "=" | "==":
            return column == F.lit(value)
        case "<=>":
            return column.eqNullSafe(F.lit(value))
        case "<":
            return column < F.lit(value)
        case "<=":
            return column <= F.lit(value)
        case ">":
            return column > F.lit(value)
        case ">=":
            return column >= F.lit(value)
        case "in":
            return column.isin(value)
        case "is null":
            return column.isNull()
    return column.isNotNull()


def _to_json(predicates: Iterable[Predicate]) -> str:
    return json.dumps([[p.column, p.op, _encode(p.value)] for p in predicates])


_DECODERS = {
    "date": datetime.date.fromisoformat, "timestamp": datetime.datetime.fromisoformat,
    "decimal": Decimal, "bytes": base64.b64decode, "float": float,
    "list": lambda values: [_decode(value) for value in values],
}


def _encode(value):
    """What JSON lacks becomes ``{type: text}``."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return {"float": repr(value)}
        case bytes():
            return {"bytes": base64.b64encode(value).decode("ascii")}
        case Decimal():
            return {"decimal": str(value)}
        case datetime.datetime() if value.tzinfo is not None:
            return {"timestamp": value.isoformat()}
        case datetime.date() if not isinstance(value, datetime.datetime):
            return {"date": value.isoformat()}
        case list():
            return {"list": [_encode(element) for element in value]}
    raise TypeError(f"a value of type {type(value).__name__} cannot be passed (a timestamp needs "
                    "a zone); use .where(...) for this predicate")


def _decode(value):
    if isinstance(value, dict):
        [(kind, content)] = value.items()
        return _DECODERS[kind](content)
    return value
