"""Which row groups of an open file a filter for rows leaves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from secure_bloom.arrow.leaves import leaf_types
from secure_bloom.errors import error_location
from secure_bloom.pruning import predicates, row_groups
from secure_bloom.pruning.expressions import Alternatives
from secure_bloom.pruning.predicates import Filters
from secure_bloom.pruning.row_groups import PruningResult
from secure_bloom.reading.open_file import OpenFile

if TYPE_CHECKING:
    from secure_bloom.arrow.row_filter import RowFilter


def prune(file: OpenFile, filters: Filters) -> list[int]:
    """See :meth:`.ParquetFile.prune`."""
    condition = predicates.condition_of(filters)
    alternatives: Alternatives
    if isinstance(condition, list):
        _check(file, condition, of_rows=False)
        alternatives = condition
        file.check_filtered(p.column for parts in alternatives for p in parts)
    else:
        found = row_filter(file, condition)
        alternatives = found.alternatives
        file.check_filtered(found.columns)
    if alternatives is None:
        return list(range(file.num_row_groups))
    return prune_row_groups(file, alternatives).after_filters


def prune_row_groups(file: OpenFile, alternatives: list[list[predicates.Predicate]],
                     groups: Iterable[int] | None = None) -> PruningResult:
    """Prune some or all (None) row groups with a normalized filter, step by step."""
    def look_up(column: str, values: list[Any], left: list[int]) -> Mapping[int, Sequence[bool]]:
        return file.filters.look_up(file.footer.column(column), values, left)

    groups = list(range(file.num_row_groups)) if groups is None else list(groups)
    with file.source.one_version(), error_location(file=file.name):
        return row_groups.prune_row_groups(file.footer, alternatives, groups, look_up)


def row_groups_for(file: OpenFile, alternatives: list[list[predicates.Predicate]] | None,
                   partition_values: Mapping[str, pa.Scalar] | None = None,
                   filtered: Iterable[str] = ()) -> list[int] | None:
    """Return the row groups where a normalized filter may hold; None without a filter.

    Columns that come from the path have their values even if the file has a column of that
    name; other columns missing from this file are null. ``filtered`` are the columns that the
    filter uses, for :meth:`.OpenFile.check_filtered`, which is called unless partition values
    rule the file out.
    """
    of_file = [name for name in filtered if name not in (partition_values or {})]
    if alternatives is None:
        file.check_filtered(of_file)
        return None
    possible = alternatives
    found = file.footer.columns_by_path
    if partition_values or any(p.column not in found for some in alternatives for p in some):
        from secure_bloom.arrow.predicate_rows import constants_in, remaining
        possible = remaining(alternatives,
                             constants_in(alternatives, found, partition_values or {}))
    if possible:
        file.check_filtered(of_file)
    return prune_row_groups(file, possible).after_filters


def row_filter(file: OpenFile, filters: Filters) -> RowFilter:
    """Return the filter for rows of a file, after checking that Arrow can evaluate it."""
    from secure_bloom.arrow.row_filter import RowFilter
    condition = predicates.condition_of(filters)
    if isinstance(condition, list):
        _check(file, condition, of_rows=True)
    with error_location(file=file.name):
        return RowFilter(condition, file.schema)


def _check(file: OpenFile, alternatives: list[list[predicates.Predicate]], *,
           of_rows: bool) -> None:
    """Check that the values of a normalized filter are comparable with their columns."""
    def type_of(path: str) -> pa.DataType:
        leaf = file.column(path)
        if leaf.is_repeated and not of_rows:
            return leaf_types(pa.struct(file.schema))[leaf.ordinal]
        return predicates.find_field(file.schema, path).type

    with error_location(file=file.name):
        predicates.check(alternatives, type_of)
