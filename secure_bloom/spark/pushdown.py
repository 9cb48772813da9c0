"""The data source whose reader gets the predicates of a query. Needs PySpark 4.1.

Spark still applies every predicate to the rows itself: here they only serve to skip what cannot
match.

Spark up to 4.3 remembers one reader for each ``load()``, the one that got predicates last, and
gives it to everything that uses the DataFrame: a query without conditions, or the other side of a
union. These would lose rows. Nothing tells a reader who asks, so predicates are used only where the
user says that there is one use: option ``single_use``.
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
    StringStartsWith,
)
from pyspark.sql.types import StructType

from secure_bloom.spark.options.row_filters import ColumnPredicate
from secure_bloom.spark.plain_errors import plain_errors
from secure_bloom.spark.read.reader import SecureParquetReader
from secure_bloom.spark.source import SecureParquet

_COMPARISONS = {EqualTo: "==", EqualNullSafe: "<=>", LessThan: "<", LessThanOrEqual: "<=",
                GreaterThan: ">", GreaterThanOrEqual: ">="}

# PySpark hands decimals over through arithmetic of 28 digits; a longer one arrives rounded.
_DECIMAL_DIGITS = 28


class SecureParquetPushdown(SecureParquet):
    """``secure_parquet`` with predicates."""

    @plain_errors()
    def reader(self, schema: StructType) -> PruningReader:
        """See :class:`PruningReader`."""
        return PruningReader(self.folder(), schema, self.is_inferred)


class PruningReader(SecureParquetReader):
    """Skips files and row groups in which no row can match."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Remember the predicates, and leave all of them to Spark as well."""
        if self._folder.options.single_use:
            self._predicates += [predicate for one in filters
                                 for predicate in column_predicates(one)]
        return filters


def column_predicates(pushed: Filter) -> list[ColumnPredicate]:
    """What must hold where this filter does; empty if nothing useful is known."""
    path = getattr(pushed, "attribute", None)
    if isinstance(pushed, IsNull | IsNotNull):
        return [ColumnPredicate(path, "is null" if isinstance(pushed, IsNull) else "is not null")]
    if isinstance(pushed, In):
        values = [value for value in pushed.value if value is not None]  # equal to no row
        return [ColumnPredicate(path, "in", values)] if all(map(_is_exact, values)) else []
    if isinstance(pushed, StringStartsWith):
        return _starts_with(path, pushed.value)
    op = _COMPARISONS.get(type(pushed))
    if op is None or not _is_exact(pushed.value) or (pushed.value is None and op != "<=>"):
        return []
    return [ColumnPredicate(path, op, pushed.value)]


def _is_exact(value) -> bool:
    return not isinstance(value, Decimal) or len(value.as_tuple().digits) < _DECIMAL_DIGITS


def _starts_with(path: tuple[str, ...], prefix: str) -> list[ColumnPredicate]:
    """Between the prefix and the first string that is greater than all that begin with it."""
    bounds = [ColumnPredicate(path, ">=", prefix)]
    if prefix and prefix[-1] < "\U0010ffff":
        last = ord(prefix[-1]) + 1
        last = 0xE000 if 0xD800 <= last <= 0xDFFF else last  # surrogates are no characters
        bounds.append(ColumnPredicate(path, "<", prefix[:-1] + chr(last)))
    return bounds
