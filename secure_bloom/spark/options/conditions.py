"""Conditions of a query, as ``classic/Conditions.java`` passes them, and what follows from them.

Spark evaluates every condition on the rows itself. Here they only serve to skip what cannot match.
So a condition that is not understood is left out, and so are parts of an AND. Of an OR, each side
must be understood.
"""

from __future__ import annotations

import base64
import datetime
import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from pyspark.sql.datasource import DataSource

from secure_bloom.spark.options.row_filters import ColumnPredicate

_MOST_ALTERNATIVES = 64  # of one condition
_COMPARISONS = ("=", "<=>", "<", "<=", ">", ">=")
_SWAPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NULL_TESTS = {"IsNull": "is null", "IsNotNull": "is not null"}
_NOT_UTF8 = "\ufffd"  # what Java makes of bytes that are not UTF-8


class Comparison(NamedTuple):
    """A predicate, and the type of its value in Spark; None if it has none.

    Spark compares only values of the same type. If the column has another type, it is not the one
    that is meant.
    """

    predicate: ColumnPredicate
    type: str | None = None


#: lists of comparisons that must all hold, of which lists one must hold
Alternatives: TypeAlias = "Sequence[Sequence[Comparison]]"


@dataclass(frozen=True)
class Conditions:
    """What must hold for a row.

    Attributes
    ----------
    all_of : tuple of Alternatives
    columns : frozenset of str
        Top-level columns that the conditions use, also those that are not understood.
    """

    all_of: tuple[Alternatives, ...] = ()
    columns: frozenset[str] = frozenset()


NO_CONDITIONS = Conditions()


def with_conditions(source: bytes, conditions: str, checkpoint: str) -> DataSource:
    """Return the pickled data source, for a scan with these conditions. Called in a pickle.

    ``checkpoint`` is where a stream may keep what belongs to its checkpoint, or empty.
    """
    found: Any = pickle.loads(source)
    found.conditions, found.checkpoint = parse(conditions), checkpoint
    assert isinstance(found, DataSource)
    return found


def parse(text: str) -> Conditions:
    """Parse conditions, which must all hold."""
    try:
        nodes = json.loads(text)
        understood = tuple(one for node in nodes if (one := _alternatives(node)) is not None)
        return Conditions(understood, frozenset(column for node in nodes
                                                for column in _columns(node)))
    except RecursionError:  # Spark has a limit of its own, and it may be set higher
        return Conditions()


def named_values(text: str) -> dict[str, Any] | None:
    """Return the values of columns, by name, if each condition only says that one has a value.

    None if one says anything else, or if its value cannot be represented in Python.
    """
    found: dict[str, Any] = {}
    for node in json.loads(text):
        comparisons = list(_comparisons(node.get("name"), node.get("operands", [])))
        if len(comparisons) != 1:
            return None
        predicate = comparisons[0].predicate
        name, *fields = predicate.path
        if fields or name in found or predicate.op not in ("=", "<=>", "is null"):
            return None
        found[name] = predicate.value
    return found


def _columns(node: dict[str, Any]) -> Iterator[str]:
    if "column" in node:
        yield node["column"][0]
    for operand in node.get("operands", ()):
        yield from _columns(operand)


def _alternatives(node: dict[str, Any]) -> list[list[Comparison]] | None:
    """Return what a condition implies; None: nothing."""
    name, operands = node.get("name"), node.get("operands", [])
    if name == "And":
        return _all_of(map(_alternatives, operands))
    if name == "Or":
        return _one_of(map(_alternatives, operands))
    found = list(_comparisons(name, operands))
    return [found] if found else None


def _all_of(parts: Iterable[list[list[Comparison]] | None]) -> list[list[Comparison]] | None:
    known: list[list[Comparison]] = []
    for part in parts:
        if part is not None and len(known or [[]]) * len(part) <= _MOST_ALTERNATIVES:
            known = [[*one, *other] for one in known or [[]] for other in part]
    return known or None


def _one_of(parts: Iterable[list[list[Comparison]] | None]) -> list[list[Comparison]] | None:
    found: list[list[Comparison]] = []
    by_column: dict[tuple[tuple[str, ...], str | None], list[Any]] = {}  # a = 1 or a = 2
    for part in parts:
        if part is None:
            return None
        for alternative in part:
            [(predicate, type_), *more] = alternative
            if not more and predicate.op in ("=", "in"):
                by_column.setdefault((predicate.path, type_), []).extend(
                    predicate.value if predicate.op == "in" else [predicate.value])
            else:
                found.append(alternative)
    found += [[Comparison(ColumnPredicate(path, "in", values), type_)]
              for (path, type_), values in by_column.items()]
    return found if len(found) <= _MOST_ALTERNATIVES else None


# --- comparisons ---------------------------------------------------------------------------------

def _comparisons(name: str | None, operands: list[dict[str, Any]]) -> Iterator[Comparison]:
    """Yield what one condition without AND and OR implies."""
    if len(operands) == 2 and "column" not in operands[0]:
        operands, name = operands[::-1], _SWAPPED.get(name or "", name)
        if name not in _COMPARISONS:
            return
    if name is None or not operands or "column" not in operands[0]:
        return
    path, values = tuple(operands[0]["column"]), operands[1:]
    if name in _NULL_TESTS and not values:
        yield Comparison(ColumnPredicate(path, _NULL_TESTS[name]))
    elif name == "In":
        yield from _is_in(path, values)
    elif len(values) == 1 and (value := _value(values[0])) is not None:
        type_ = values[0]["type"]
        if name in _COMPARISONS:
            yield Comparison(ColumnPredicate(path, name, value), type_)
        elif name == "StartsWith" and type_ == "string":
            yield from (Comparison(one, type_) for one in starts_with(path, value))


def _is_in(path: tuple[str, ...], literals: list[dict[str, Any]]) -> Iterator[Comparison]:
    """Yield nothing if a value is not known. Null is equal to no row."""
    given = [one for one in literals if one.get("value", 0) is not None]
    values, types = list(map(_value, given)), {one.get("type") for one in given}
    if None not in values and len(types) == 1:
        yield Comparison(ColumnPredicate(path, "in", values), types.pop())


def starts_with(path: tuple[str, ...], prefix: str) -> list[ColumnPredicate]:
    """Return bounds: the prefix, and the smallest string greater than all that start with it."""
    bounds = [ColumnPredicate(path, ">=", prefix)]
    if prefix and prefix[-1] < "\U0010ffff":
        last = ord(prefix[-1]) + 1
        last = 0xE000 if 0xD800 <= last <= 0xDFFF else last  # surrogates are not characters
        bounds.append(ColumnPredicate(path, "<", prefix[:-1] + chr(last)))
    return bounds


# --- values --------------------------------------------------------------------------------------

_EPOCH = datetime.datetime(1970, 1, 1)


def _text(value: str) -> str | None:
    return None if _NOT_UTF8 in value else value


def _timestamp(value: int) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(microseconds=value)


_READ: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint", "boolean"), lambda value: value),
    **dict.fromkeys(("float", "double"), float), "string": _text, "binary": base64.b64decode,
    "decimal": Decimal, "date": lambda value: (_timestamp(0) + datetime.timedelta(value)).date(),
    "timestamp": lambda value: _timestamp(value).replace(tzinfo=datetime.UTC),
    "timestamp_ntz": _timestamp,
}


def _value(literal: dict[str, Any]) -> Any:
    """Return the value of a literal; None if it is null, or Python does not have it."""
    value, read = literal.get("value"), _READ.get(literal.get("type", "").partition("(")[0])
    if value is None or read is None:
        return None
    try:
        return read(value)
    except OverflowError:  # outside the years 1 to 9999
        return None


def without_known(comparisons: Iterable[Comparison],
                  known: Sequence[ColumnPredicate]) -> list[Comparison]:
    """Return the comparisons whose predicates are not among others."""
    same = [replace(one, op="=") if one.op == "==" else one for one in known]
    return [one for one in comparisons if one.predicate not in same]
