"""Row filters in pyarrow's disjunctive normal form, and what a Bloom filter can tell about them.

A filter is a list of predicates ``(column, op, value)`` that must all hold, or a list of such lists
of which one must hold. The operators have the semantics of Spark, DuckDB, Polars and PostgreSQL:

==================  ===============================================================================
operator            rows for which it holds
==================  ===============================================================================
``=``, ``==``       the value equals ``v``
``<=>``             the same; with None as ``v``, the rows that are null
``!=``              the value is not null and does not equal ``v``
``<  <=  >  >=``    the value is less, less or equal, greater, greater or equal
``in``              the value equals one of the list; no row for an empty list
``not in``          the value is not null and equals none of the list; no row if the list holds
                    None, every row (null too) if it is empty
``is null``         the value is null; ``v`` must be None
``is not null``     the value is not null; ``v`` must be None
==================  ===============================================================================

- Null equals nothing: with None as ``v`` no row matches, except with ``<=>``; None in a list
  matches nothing.
- -0.0 equals 0.0.
- NaN equals NaN, whatever its bits, and is greater than every other number.
- Numbers compare by their exact value, regardless of their types: an int8 is always less than 300,
  and no integer equals 5.5. A float32 never equals 0.1, which it cannot represent.
- Text compares by its UTF-8 bytes. A date is the midnight at which it begins.
- Values of other kinds cannot be compared: a number with text, or a timestamp with a time zone
  with one without. They raise :class:`secure_bloom.errors.PredicateError`.

A Bloom filter can evaluate ``=``, ``==``, ``<=>`` and ``in``; for every other predicate it cannot
rule out any row group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from secure_bloom.errors import ColumnError, error_location, unknown_column
from secure_bloom.pruning.operands import operand, positions_of
from secure_bloom.pruning.value_list import ValueList, as_value_list, without_nulls
from secure_bloom.sbbf.arrow_types import plain_type
from secure_bloom.sbbf.scalars import plain_value, plain_values

if TYPE_CHECKING:
    import pyarrow.compute as pc

OPERATORS = ("=", "==", "!=", "<", ">", "<=", ">=", "in", "not in", "<=>", "is null", "is not null")


class Expression(Protocol):
    """What distinguishes :class:`pyarrow.compute.Expression`, which has no types, from others."""

    def is_valid(self) -> Any:
        """Return an Expression that holds where this one is not null."""

    def isin(self, values: Any) -> Any:
        """Return an Expression that holds where this one equals one of the values."""


#: row filters in the user's form: predicates (column, operator, value) that must all hold, or
#: several lists of such predicates, of which one must hold; or an Expression of pyarrow
Filters: TypeAlias = Sequence[tuple[str, str, Any] | Sequence[tuple[str, str, Any]]] | Expression


class Predicate(NamedTuple):
    """A comparison of a column, given by dotted path, with a value or (``in``) a collection."""

    column: str
    op: str
    value: Any

    def __repr__(self) -> str:
        return f"<Predicate {self.column} {self.op} ?>"  # tools that report errors show it

    @property
    def candidates(self) -> list[Any] | None:
        """Return values of which one must be present for the predicate to hold; None if unknown."""
        if self.op in ("=", "==", "in") or (self.op == "<=>" and self.value is not None):
            return as_value_list(self.value).derived(without_nulls, None) if self.op == "in" \
                else [self.value] * (self.value is not None)
        return None


#: a filter that has been checked to be in one of the two forms
Condition: TypeAlias = "list[list[Predicate]] | pc.Expression"


def condition_of(filters: Filters) -> Condition:
    """Return the alternatives of a list, or an Expression as it is.

    The values of ``in`` may be an iterator, which has them only once. What uses a filter several
    times must therefore use the result of one call. Raises TypeError or ValueError if the filter is
    neither.
    """
    if not isinstance(filters, list | tuple):
        import pyarrow.compute as pc  # takes 50 ms
        if isinstance(filters, pc.Expression):
            return filters
        if isinstance(filters, pa.BooleanScalar):  # which DataFusion passes as a constant condition
            return pc.scalar(filters)
        raise TypeError("filters must be a pyarrow Expression, a list of (column, op, value), or a "
                        "list of such lists")
    return normalize(filters)


def normalize(filters: Any) -> list[list[Predicate]]:
    """Return the alternatives of a filter, each a list of predicates.

    Raises TypeError or ValueError if this is not a valid filter in disjunctive normal form.
    """
    if not isinstance(filters, list | tuple) or not filters:
        raise TypeError("filters must be a list of (column, op, value), or a list of such lists")
    if isinstance(filters[0], tuple | list) and filters[0] and isinstance(filters[0][0], str):
        filters = [filters]
    if not all(filters):
        raise TypeError("filters must not contain an empty list")
    return [[_predicate(part) for part in conjunction] for conjunction in filters]


def _predicate(part: Any) -> Predicate:
    if not isinstance(part, tuple | list) or len(part) != 3 or not isinstance(part[0], str):
        raise TypeError("filters must be a list of tuples (column, op, value), such as "
                        '[("city", "==", "Oslo")]')
    column, op, value = part
    if op not in OPERATORS:
        # Not what it is: the value, if the two were mixed up.
        raise ValueError(f"operator must be one of {', '.join(OPERATORS)}")
    if op in ("is null", "is not null") and value is not None:
        raise ValueError(f"the operator {op!r} requires None as its value")
    if op in ("in", "not in"):
        if isinstance(value, str | bytes | bytearray) or not isinstance(value, Iterable):
            raise TypeError(f"the operator {op!r} requires a list, tuple or set of values")
        # Those of a checked filter stay as they are: it may be checked again.
        return Predicate(column, op, value if isinstance(value, ValueList)
                         else ValueList(plain_values(value)))
    return Predicate(column, op, plain_value(value))


class Field(NamedTuple):
    """A column without children: its unjoined path, and its type."""

    parts: tuple[str, ...]
    type: pa.DataType


def find_field(schema: pa.Schema, path: str) -> Field:
    """Return the column with a dotted path.

    Raises ColumnError if there is none or more than one, or a row can hold several values of it.
    """
    found = list(fields_at(schema, path))
    if not found:
        raise unknown_column(path, schema.names)
    if len(found) > 1:
        raise ColumnError(f"{len(found)} columns have this path", column=path)
    if pa.types.is_nested(found[0].type):
        raise ColumnError("rows cannot be filtered by a column of lists or structs; use prune and "
                          "might_contain to find where values in lists may be", column=path)
    return found[0]


def fields_at(fields: Iterable[pa.Field], path: str, parents: tuple[str, ...] = ()) \
        -> Iterator[Field]:
    """Yield the columns with a dotted path; lists and maps on the way instead of their items."""
    for field in fields:
        name, rest = field.name, path[len(field.name) + 1:]
        if path not in (name, f"{name}.{rest}"):
            continue
        t = plain_type(field.type)
        if rest and pa.types.is_struct(t):
            yield from fields_at(t, rest, (*parents, name))
        elif not rest or pa.types.is_nested(t):
            yield Field((*parents, name), t if pa.types.is_nested(t) else field.type)


def check(alternatives: list[list[Predicate]], type_of: Callable[[str], pa.DataType]) -> None:
    """Check that each value can be compared with its column; ``type_of`` maps paths to types.

    Raises PredicateError if one cannot.
    """
    for predicate in (p for alternative in alternatives for p in alternative):
        is_list = predicate.op in ("in", "not in")
        arrow_type = type_of(predicate.column)
        with error_location(column=predicate.column):
            if is_list:
                as_value_list(predicate.value).derived(positions_of, arrow_type)
            elif predicate.value is not None:
                operand(predicate.value, arrow_type)
