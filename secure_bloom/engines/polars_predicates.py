"""What a Polars predicate says about row groups."""

from __future__ import annotations

import contextlib
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from secure_bloom.pruning.expression_tree import Call, Node
from secure_bloom.pruning.expressions import RowGroupFilter, alternatives_of


def row_group_filter(predicate: pl.Expr, schema: pa.Schema) -> RowGroupFilter:
    """Return a filter that holds for every row that a predicate selects.

    ``schema`` is that of the data set. Never raises an error because of the predicate.
    """
    expression = as_expression(predicate, schema)
    alternatives = None if expression is None \
        else alternatives_of(expression, schema, _is_translated_wrongly)
    return RowGroupFilter(alternatives, schema)


def as_expression(predicate: pl.Expr, schema: pa.Schema) -> pc.Expression | None:
    """Return the parts of a predicate that Polars can express in Arrow; None: there are none.

    Polars translates its predicates itself, for the data sets of pyarrow that it scans, and knows
    where the semantics differ. So this lets it scan such a data set, which has no rows.
    """
    recorder = _Recorder(schema.empty_table())
    with contextlib.suppress(Exception):  # _Recorded, or the translation failed
        pl.scan_pyarrow_dataset(recorder).filter(predicate).collect()
    return recorder.filter_of_scan


class _Recorded(Exception):
    """The scan need not go on."""


class _Recorder(ds.InMemoryDataset):  # type: ignore[misc]  # pyarrow has no types
    """Records the filter of a scan."""

    filter_of_scan: pc.Expression | None = None

    def scanner(self, *_: Any, **options: Any) -> ds.Scanner:
        self.filter_of_scan = options.get("filter")
        raise _Recorded


def _is_translated_wrongly(node: Node) -> bool:
    """Whether Polars may have changed the values: in is_in, it shifts instants by their offset."""
    if not isinstance(node, Call) or node.name != "is_in":
        return False
    t = node.options["value_set"].values.type
    return pa.types.is_timestamp(t) and t.tz is not None
