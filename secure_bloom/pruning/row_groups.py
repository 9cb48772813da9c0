"""Which row groups may contain rows that match a filter: by statistics, then by Bloom filters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from secure_bloom.parquet.footer import Footer
from secure_bloom.pruning import statistics
from secure_bloom.pruning.predicates import Predicate
from secure_bloom.pruning.value_list import ValueList


class PruningResult(NamedTuple):
    """Row groups remaining after statistics, and after Bloom filters."""

    after_statistics: list[int]
    after_filters: list[int]


def prune_row_groups(footer: Footer, alternatives: list[list[Predicate]], row_groups: list[int],
                     might_contain: Callable[[str, list[Any], Iterable[int]], np.ndarray]
                     ) -> PruningResult:
    """Prune row groups with a normalized filter.

    ``might_contain(column, values, row_groups)`` returns a bool array [all row groups, values],
    from the Bloom filters of the given row groups. It is called once per column, so that each
    filter is read once, and only where its answer matters. A long ValueList counts as one value:
    whether any of its values may be there.
    """
    named = {predicate.column for alternative in alternatives for predicate in alternative}
    leaves = {leaf.path: leaf for leaf in footer.columns if leaf.path in named}

    def may_hold(predicate: Predicate, group: int) -> bool:
        leaf = leaves.get(predicate.column)
        return leaf is None or statistics.may_hold(
            predicate, footer.row_groups[group][leaf.ordinal].statistics, leaf)

    possible = np.zeros((len(alternatives), len(footer.row_groups)), dtype=bool)
    for number, alternative in enumerate(alternatives):
        possible[number, row_groups] = [all(may_hold(predicate, group)
                                            for predicate in alternative) for group in row_groups]
    after_statistics = np.flatnonzero(possible.any(axis=0)).tolist()
    if after_statistics:
        check_filters(alternatives, possible, might_contain)
    return PruningResult(after_statistics, np.flatnonzero(possible.any(axis=0)).tolist())


def check_filters(alternatives: list[list[Predicate]], possible: np.ndarray,
                   might_contain: Callable[[str, list[Any], Iterable[int]], np.ndarray]) -> None:
    """Set to False where an alternative certainly does not hold; ``possible`` is a bool array
    [alternatives, row groups].
    """
    values: dict[str, list[Any]] = {}
    row_groups: dict[str, np.ndarray] = {}
    places: list[tuple[int, str, int, int]] = []
    for number, alternative in enumerate(alternatives):
        for column, wanted in ((p.column, p.candidates) for p in alternative):
            if wanted is None or not possible[number].any():
                continue
            asked = values.setdefault(column, [])
            places.append((number, column, len(asked), len(asked) + len(_looked_up(wanted))))
            asked += _looked_up(wanted)
            row_groups[column] = row_groups.get(column, False) | possible[number]
    answers = {column: might_contain(column, values[column], np.flatnonzero(groups).tolist())
               for column, groups in row_groups.items() if values[column]}
    for number, column, begin, end in places:
        possible[number] &= answers[column][:, begin:end].any(axis=1) if begin < end else False


def _looked_up(values: list[Any]) -> list[Any]:
    """Return what to look up for some values: each of them, or a long list as a whole."""
    return [values] if isinstance(values, ValueList) and values.is_long else values
