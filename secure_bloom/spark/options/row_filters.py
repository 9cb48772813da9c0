"""Predicates that are fixed when a DataFrame is created: option ``filters``."""

from __future__ import annotations

import base64
import datetime
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from secure_bloom.arrow.char_columns import equal_values
from secure_bloom.errors import OptionError
from secure_bloom.pruning.predicates import Predicate, normalize

_PART = r"(?:`((?:[^`]|``)+)`|([^`.]+))"
_OPS = ("=", "==", "<=>", "<", "<=", ">", ">=", "in", "is null", "is not null")


@dataclass(frozen=True)
class ColumnPredicate:
    """A predicate on a column of the DataFrame, or on a field of a struct.

    Only rows for which it holds are requested, so a row group without such rows may be skipped.
    """

    path: tuple[str, ...]
    op: str
    value: Any = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The path in a form that Spark can parse in only one way."""
        return ".".join("`" + part.replace("`", "``") + "`" for part in self.path)

    @property
    def allows_null(self) -> bool:
        """Whether the predicate holds for null."""
        return self.op == "is null" or (self.op == "<=>" and self.value is None)

    def on(self, path: str) -> Predicate:
        """Return the same predicate on the column of a file."""
        return Predicate(path, self.op, self.value)

    def of_char(self, length: int) -> ColumnPredicate | None:
        """Return what the predicate on a column CHAR(length) says about stored values, if known."""
        candidates = self.on("").candidates
        if candidates is None:
            return self if "null" in self.op or self.allows_null else None
        stored = equal_values(candidates, length)
        return None if stored is None else ColumnPredicate(self.path, "in", stored)


def parse_filters(text: str | None) -> tuple[ColumnPredicate, ...]:
    """Parse the predicates of option ``filters``."""
    if text is None:
        return ()
    try:
        return tuple(checked(
            [(column, op, _decode(value)) for column, op, value in json.loads(text)]))
    except (ValueError, TypeError, KeyError, ArithmeticError):
        raise OptionError("it is set by secure_bloom.spark.read: use its argument filters",
                          option="filters") from None


def checked(filters: Sequence[tuple[str, str, Any]]) -> list[ColumnPredicate]:
    """Check predicates, which must all hold."""
    alternatives = normalize(filters)
    if len(alternatives) != 1:
        raise ValueError("filters must be one list of predicates, which must all be true")
    for predicate in alternatives[0]:
        if predicate.op not in _OPS:
            raise ValueError(f"operator must be one of {', '.join(_OPS)}, not {predicate.op!r}")
    return [ColumnPredicate(_path(p.column), p.op,
                            p.value if p.op != "in" else [v for v in p.value if v is not None])
            for p in alternatives[0]]


def _path(name: str) -> tuple[str, ...]:
    """Split a column name by Spark's rule: a dot inside backticks does not separate."""
    if not re.fullmatch(rf"{_PART}(?:\.{_PART})*", name):
        raise ValueError(f"{name!r} is not a valid column name: use a name, or names joined by "
                         "dots, with backticks around a name that contains dots")
    return tuple(quoted.replace("``", "`") or plain for quoted, plain in re.findall(_PART, name))


def condition(predicates: Iterable[ColumnPredicate]) -> Column:
    """Return Spark's condition that all predicates hold."""
    return reduce(Column.__and__, map(_condition, predicates))


def _condition(predicate: ColumnPredicate) -> Column:
    column, op = F.col(predicate.name), predicate.op
    if op in ("is null", "is not null"):
        return column.isNull() if op == "is null" else column.isNotNull()
    if op == "in":
        return column.isin([_literal(value) for value in predicate.value])
    value = _literal(predicate.value)
    match op:
        case "<=>":
            return column.eqNullSafe(value)
        case "<":
            return column < value
        case "<=":
            return column <= value
        case ">":
            return column > value
        case ">=":
            return column >= value
    return column == value


def _literal(value: object) -> Column:
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return F.lit(value.isoformat()).cast("date")  # PySpark cannot pass years before 1000
    return F.lit(value)


def to_json(predicates: Iterable[ColumnPredicate]) -> str:
    """Return the predicates as a value of option ``filters``."""
    return json.dumps([[p.name, p.op, _encode(p.value)] for p in predicates])


_DECODERS: dict[str, Callable[[Any], object]] = {
    "date": datetime.date.fromisoformat, "timestamp": datetime.datetime.fromisoformat,
    "decimal": Decimal, "bytes": base64.b64decode, "float": float,
    "list": lambda values: [_decode(value) for value in values],
}


def _encode(value: object) -> Any:
    """Encode a value for JSON; types that JSON lacks become ``{type: text}``."""
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
                    "a time zone); use .where(...) for this predicate")


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        [(kind, content)] = value.items()
        return _DECODERS[kind](content)
    return value
