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
    filter is read once. A long ValueList counts as one value: whether any of its values may be
    there.
    """
    named = {predicate.column for alternative in alternatives for predicate in alternative}
    leaves = {leaf.path: leaf for leaf in footer.columns if leaf.path in named}

    def may_hold(predicate: Predicate, group: int) -> bool:
        leaf = leaves.get(predicate.column)
        return leaf is None or statistics.may_hold(
            predicate, footer.row_groups[group][leaf.ordinal].statistics, leaf)

    def ask(column: str, values: list[Any]) -> np.ndarray:
        return might_contain(column, values, after_statistics)

    after_statistics = [group for group in row_groups
                        if any(all(may_hold(predicate, group) for predicate in alternative)
                               for alternative in alternatives)]
    after_filters = set(surviving(alternatives, len(footer.row_groups), ask))
    return PruningResult(after_statistics, sorted(after_filters.intersection(after_statistics)))


def surviving(alternatives: list[list[Predicate]], num_row_groups: int,
              might_contain: Callable[[str, list[Any]], np.ndarray]) -> list[int]:
    """Return the row groups in which a filter may hold.

    ``might_contain(column, values)`` returns a bool array [row groups, values]; it is called once
    per column, so that each Bloom filter is read once. A long ValueList counts as one value.
    """
    candidates: dict[str, list[Any]] = {}
    for predicate in (p for alternative in alternatives for p in alternative):
        if predicate.candidates:
            candidates.setdefault(predicate.column, []).extend(_looked_up(predicate.candidates))
    answers = {column: might_contain(column, values) for column, values in candidates.items()}
    asked = dict.fromkeys(candidates, 0)
    keep = np.zeros(num_row_groups, dtype=bool)
    for alternative in alternatives:
        holds = np.ones(num_row_groups, dtype=bool)
        for predicate in alternative:
            if predicate.candidates is not None:
                column, count = predicate.column, len(_looked_up(predicate.candidates))
                begin = asked.get(column, 0)
                if count:
                    asked[column] = begin + count
                    holds &= answers[column][:, begin:begin + count].any(axis=1)
                else:
                    holds[:] = False  # "in" nothing
        keep |= holds
    return [int(row_group) for row_group in np.flatnonzero(keep)]


def _looked_up(values: list[Any]) -> list[Any]:
    """Return what to look up for some values: each of them, or a long list as a whole."""
    return [values] if isinstance(values, ValueList) and values.is_long else values
