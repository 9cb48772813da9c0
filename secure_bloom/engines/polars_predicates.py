"""What a Polars predicate says about row groups."""

from __future__ import annotations

import contextlib
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from secure_bloom.pruning.expression_tree import Call, Field, Literal, Node, parse
from secure_bloom.pruning.expressions import RowGroupFilter, alternatives_in

_ORDERINGS = ("less", "less_equal", "greater", "greater_equal")


def row_group_filter(predicate: pl.Expr, schema: pa.Schema) -> RowGroupFilter:
    """Return a filter that holds for every row that a predicate selects.

    ``schema`` is that of the data set. Never raises an error because of the predicate.
    """
    expression = as_expression(predicate, schema)
    tree = None if expression is None else parse(expression)
    return RowGroupFilter(predicate.meta.root_names(),
                          alternatives_in(tree and _trusted(tree, schema), schema), schema)


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


def _trusted(tree: Node, schema: pa.Schema) -> Node:
    """Return a tree in which wrongly translated parts are replaced by something unknown."""
    if isinstance(tree, Literal):
        t = tree.value.type
        return Call("unknown") if _has_zone(t) and t.tz != "UTC" else tree
    if not isinstance(tree, Call):
        return tree
    if tree.name == "is_in" and _has_zone(tree.options["value_set"].values.type):
        return Call("unknown")
    if tree.name in _ORDERINGS and any(_is_dictionary(node, schema) for node in tree.args):
        return Call("unknown")  # Polars compares an Enum by the order of its categories
    return Call(tree.name, [_trusted(node, schema) for node in tree.args], tree.options)


def _is_dictionary(node: Node, schema: pa.Schema) -> bool:
    return isinstance(node, Field) and len(node.path) == 1 \
        and pa.types.is_dictionary(schema.field(node.path[0]).type)


def _has_zone(t: pa.DataType) -> bool:
    """Whether Polars 2.1 may shift instants of this type by their offset from UTC.

    It shifts a single value if its zone is not UTC, and sets of values in every zone.
    """
    return pa.types.is_timestamp(t) and t.tz is not None
