"""The variant of the data source whose reader receives the filters of a query. Needs PySpark 4.1.

Spark still evaluates every filter on the rows itself: here they only serve to skip what cannot
match.

Spark up to 4.3 caches one reader per ``load()``, the one that received filters last, and uses it
for every use of the DataFrame: also for a query without filters, or for the other side of a union.
These would lose rows. A reader cannot tell which query it serves, so the filters are used only if
the user declares that the DataFrame is used once: option ``single_use``.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.types import StructType

from secure_bloom.spark.options.row_filters import ColumnPredicate
from secure_bloom.spark.plain_errors import plain_errors
from secure_bloom.spark.reading.reader import SecureParquetReader
from secure_bloom.spark.source import SecureParquet

_COMPARISONS = {EqualTo: "==", EqualNullSafe: "<=>", LessThan: "<", LessThanOrEqual: "<=",
                GreaterThan: ">", GreaterThanOrEqual: ">="}

# PySpark passes decimals through 28-digit arithmetic; a longer one arrives rounded.
_DECIMAL_DIGITS = 28


class PruningReader(SecureParquetReader):
    """A reader that skips files and row groups in which no row can match."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the predicates for pruning, and return all of them for Spark to evaluate as well."""
        filters = list(filters)
        self._compared |= {path[0] for path in map(_path, filters) if path}
        if self._folder.options.single_use:
            self._predicates += [predicate for one in filters
                                 for predicate in column_predicates(one)]
        return filters


class SecureParquetPushdown(SecureParquet):
    """``secure_parquet`` with filter pushdown."""

    @plain_errors()
    def reader(self, schema: StructType) -> SecureParquetReader:
        """Return a :class:`PruningReader`."""
        return self._reader(PruningReader, schema)


def _path(pushed: Filter) -> tuple[str, ...]:
    """Return the path of the column that a pushed filter uses; empty if it is not known."""
    return _path(pushed.child) if isinstance(pushed, Not) else getattr(pushed, "attribute", ())


def column_predicates(pushed: Filter) -> list[ColumnPredicate]:
    """Return the predicates that a pushed filter implies; empty if there are none of use."""
    match pushed:
        case IsNull(attribute=path):
            return [ColumnPredicate(path, "is null")]
        case IsNotNull(attribute=path):
            return [ColumnPredicate(path, "is not null")]
        case In(attribute=path, value=given):
            values = [value for value in given if value is not None]  # equal to no row
            return [ColumnPredicate(path, "in", values)] if all(map(_is_exact, values)) else []
        case StringStartsWith(attribute=path, value=prefix):
            return _starts_with(path, prefix)
        case (EqualTo() | EqualNullSafe() | LessThan() | LessThanOrEqual() | GreaterThan()
              | GreaterThanOrEqual()):
            op, value = _COMPARISONS[type(pushed)], pushed.value
            if _is_exact(value) and (value is not None or op == "<=>"):
                return [ColumnPredicate(pushed.attribute, op, value)]
    return []


def _is_exact(value: object) -> bool:
    return not isinstance(value, Decimal) or len(value.as_tuple().digits) < _DECIMAL_DIGITS


def _starts_with(path: tuple[str, ...], prefix: str) -> list[ColumnPredicate]:
    """Return bounds: the prefix, and the smallest string greater than all that start with it."""
    bounds = [ColumnPredicate(path, ">=", prefix)]
    if prefix and prefix[-1] < "\U0010ffff":
        last = ord(prefix[-1]) + 1
        last = 0xE000 if 0xD800 <= last <= 0xDFFF else last  # surrogates are not characters
        bounds.append(ColumnPredicate(path, "<", prefix[:-1] + chr(last)))
    return bounds
