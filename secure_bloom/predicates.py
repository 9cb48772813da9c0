"""Row filters in pyarrow's disjunctive normal form, and what a Bloom filter can say about them.

A filter is a list of predicates ``(column, op, value)`` that are all to hold, or a list of such
lists of which one is to hold. To pyarrow's operators come ``<=>``, equality for which null equals
null, and ``is null`` and ``is not null``, whose value is None. A Bloom filter answers ``=``,
``==``, ``<=>`` and ``in``; every other predicate may hold anywhere, as far as it can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from secure_bloom.probes import with_nanoseconds

if TYPE_CHECKING:
    import pyarrow.compute as pc

OPERATORS = ("=", "==", "!=", "<", ">", "<=", ">=", "in", "not in", "<=>", "is null",
             "is not null")


class Predicate(NamedTuple):
    """One comparison of a column, by dotted path, with a value or (``in``) a collection."""

    column: str
    op: str
    value: object

    @property
    def probes(self) -> list | None:
        """The values of which one must be present for the predicate to hold; None if unknown."""
        if self.op in ("=", "==") or (self.op == "<=>" and self.value is not None):
            return [self.value]
        return list(self.value) if self.op == "in" else None


def normalize(filters) -> list[list[Predicate]]:
    """The alternatives of a filter, each a list of predicates.

    Raises
    ------
    TypeError, ValueError
        If this is no filter in disjunctive normal form.
    """
    if not isinstance(filters, list | tuple) or not filters:
        raise TypeError("filters must be a list of (column, op, value), or a list of such lists")
    if isinstance(filters[0], tuple | list) and filters[0] and isinstance(filters[0][0], str):
        filters = [filters]
    if not all(filters):
        raise TypeError("filters hold an empty list, which says nothing")
    return [[_predicate(part) for part in conjunction] for conjunction in filters]


def _predicate(part) -> Predicate:
    if not isinstance(part, tuple | list) or len(part) != 3 or not isinstance(part[0], str):
        raise TypeError("a predicate is a tuple (column, op, value)")
    column, op, value = part
    if op not in OPERATORS:
        raise ValueError(f"operator must be one of {', '.join(OPERATORS)}, not {op!r}")
    if op in ("is null", "is not null") and value is not None:
        raise ValueError(f"the operator {op!r} takes None as its value")
    if op in ("in", "not in"):
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise TypeError(f"the operator {op!r} takes a list, tuple or set of values")
        return Predicate(column, op, [_comparable(element) for element in value])
    return Predicate(column, op, _comparable(value))


def _comparable(value):
    """The value as pyarrow can compare it: some typed nulls crash pyarrow 26."""
    if isinstance(value, pa.Scalar) and not value.is_valid:
        return None
    return with_nanoseconds(value)


def surviving(alternatives: list[list[Predicate]], num_row_groups: int,
              might_contain: Callable[[str, list], np.ndarray]) -> list[int]:
    """The row groups in which a filter may hold.

    ``might_contain(column, values)`` gives a bool array [row groups, values]; it is asked once for
    each column, so that each Bloom filter is read once.
    """
    probes: dict[str, list] = {}
    for predicate in (p for alternative in alternatives for p in alternative):
        if predicate.probes:
            probes.setdefault(predicate.column, []).extend(predicate.probes)
    answers = {column: might_contain(column, values) for column, values in probes.items()}
    asked = dict.fromkeys(probes, 0)
    keep = np.zeros(num_row_groups, dtype=bool)
    for alternative in alternatives:
        holds = np.ones(num_row_groups, dtype=bool)
        for predicate in alternative:
            if predicate.probes is not None:
                column, count = predicate.column, len(predicate.probes)
                begin = asked.get(column, 0)
                if count:
                    asked[column] = begin + count
                    holds &= answers[column][:, begin:begin + count].any(axis=1)
                else:
                    holds[:] = False  # "in" nothing
        keep |= holds
    return [int(row_group) for row_group in np.flatnonzero(keep)]


def expression(alternatives: list[list[Predicate]], schema: pa.Schema) -> pc.Expression:
    """The same filter for pyarrow, which applies it to rows."""
    return reduce(or_, (reduce(and_, (_comparison(p, schema) for p in alternative))
                        for alternative in alternatives))


def _comparison(predicate: Predicate, schema: pa.Schema) -> pc.Expression:
    import pyarrow.compute as pc
    column, op, value = predicate
    field = pc.field(column) if column in schema.names or "." not in column \
        else pc.field(*column.split("."))
    match op:
        case "=" | "==":
            return field == value
        case "!=":
            return field != value
        case "<":
            return field < value
        case ">":
            return field > value
        case "<=":
            return field <= value
        case ">=":
            return field >= value
        case "in":
            return field.isin(value)
        case "is null":
            return field.is_null()
        case "is not null":
            return field.is_valid()
        case "<=>":
            return field.is_null() if value is None else (field == value) & field.is_valid()
        case _:
            return ~field.isin(value)
