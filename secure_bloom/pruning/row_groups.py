"""Which row groups may contain rows that match a filter: by statistics, then by Bloom filters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from secure_bloom.parquet.footer import Footer
from secure_bloom.pruning import statistics
from secure_bloom.pruning.predicates import Predicate
from secure_bloom.pruning.value_list import ValueList

#: takes a column, values, and row groups; returns which values a row group may hold, for each row
#: group that has a filter
MightContain: TypeAlias = Callable[[str, list[Any], list[int]], Mapping[int, Sequence[bool]]]


class PruningResult(NamedTuple):
    """Row groups remaining after statistics, and after Bloom filters."""

    after_statistics: list[int]
    after_filters: list[int]


def prune_row_groups(footer: Footer, alternatives: list[list[Predicate]], row_groups: list[int],
                     might_contain: MightContain) -> PruningResult:
    """Prune row groups with a normalized filter.

    ``might_contain`` is called once per column, so that each filter is read once, and only where
    its answer matters. A long ValueList counts as one value: whether any of its values may be
    there.
    """
    def may_hold(predicate: Predicate, group: int) -> bool:
        leaf = footer.columns_by_path.get(predicate.column)
        return leaf is None or statistics.may_hold(
            predicate, footer.row_groups[group][leaf.ordinal].statistics, leaf)

    possible = [[group for group in row_groups if all(may_hold(predicate, group)
                                                      for predicate in alternative)]
                for alternative in alternatives]
    after_statistics = _union(possible)
    if after_statistics:
        possible = after_filters(alternatives, possible, might_contain)
    return PruningResult(after_statistics, _union(possible))


def after_filters(alternatives: list[list[Predicate]], possible: list[list[int]],
                  might_contain: MightContain) -> list[list[int]]:
    """Return, for each alternative, the row groups of ``possible`` that the Bloom filters leave."""
    values: dict[str, list[Any]] = {}
    row_groups: dict[str, set[int]] = {}
    places: list[tuple[int, str, int, int]] = []
    for number, alternative in enumerate(alternatives):
        for column, wanted in ((p.column, p.candidates) for p in alternative):
            if wanted is None or not possible[number]:
                continue
            asked = values.setdefault(column, [])
            places.append((number, column, len(asked), len(asked) + len(_looked_up(wanted))))
            asked += _looked_up(wanted)
            row_groups.setdefault(column, set()).update(possible[number])
    answers = {column: might_contain(column, values[column], sorted(groups))
               for column, groups in row_groups.items() if values[column]}
    left = list(possible)
    for number, column, begin, end in places:
        left[number] = [] if begin == end else [
            group for group in left[number]
            if group not in answers[column] or any(answers[column][group][begin:end])]
    return left


def _union(groups: list[list[int]]) -> list[int]:
    return sorted(set(chain.from_iterable(groups)))


def _looked_up(values: list[Any]) -> list[Any]:
    """Return what to look up for some values: each of them, or a long list as a whole."""
    return [values] if isinstance(values, ValueList) and values.is_long else values
