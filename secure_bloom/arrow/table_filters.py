"""The Bloom filters of a table that is about to be written, one for each column chunk."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from secure_bloom.arrow.leaves import leaf_arrays, leaf_types
from secure_bloom.errors import ColumnError
from secure_bloom.parquet.row_ranges import ALL_ROWS, pieces
from secure_bloom.parquet.schema import LeafColumn, filter_columns, filterable_paths
from secure_bloom.sbbf.arrow_types import used_dictionary_values
from secure_bloom.sbbf.filter import SplitBlockBloomFilter
from secure_bloom.sbbf.hashing import hash_stored
from secure_bloom.sbbf.options import BloomFilterOptions, BloomFilters, normalize_options


class PlannedColumn(NamedTuple):
    """What is to be made of the values of a leaf column.

    ``position`` is its position among the leaves of its field. ``options`` is None if it has no
    filter. ``is_observed``: whether its hashes are also passed on.
    """

    position: int
    column: LeafColumn
    options: BloomFilterOptions | None
    is_observed: bool


#: by position of the top-level field
FilterPlan: TypeAlias = dict[int, list[PlannedColumn]]

#: called with hashes (uint64) of some values, and the range of the rows that have them; None: the
#: values of the column cannot be hashed
Observe: TypeAlias = Callable[[LeafColumn, np.ndarray | None, int], None]

_PART = 1 << 16  # values whose hashes stay in the cache


def plan_filters(schema: pa.Schema, leaves: list[LeafColumn], bloom_filters: BloomFilters,
                 observed: Collection[str] = ()) -> FilterPlan:
    """Return which filters are to be built for tables of this schema.

    ``observed`` are the dotted paths of columns whose hashes are also passed on.

    Raises ColumnError if a column does not exist or cannot have a filter.
    """
    plan: FilterPlan = {}
    asked = normalize_options(bloom_filters,
                              filterable_paths(leaves) if bloom_filters is True else None)
    paths = list(dict.fromkeys([*asked, *observed]))
    if not paths:
        return plan
    owners = [(index, position) for index, field in enumerate(schema)
              for position in range(len(leaf_types(field.type)))]
    for column, path in zip(filter_columns(leaves, paths), paths, strict=True):
        index, position = owners[column.ordinal]
        plan.setdefault(index, []).append(
            PlannedColumn(position, column, asked.get(path), path in observed))
    return plan


def num_values(table: pa.Table, plan: FilterPlan) -> int:
    """Return roughly how many values the filters of a table are built from."""
    return table.num_rows * sum(map(len, plan.values()))


def build_filters(table: pa.Table, plan: FilterPlan, observe: Observe | None = None) \
        -> Iterator[tuple[int, SplitBlockBloomFilter]]:
    """Yield the ordinals of leaf columns with the filters of their values.

    ``observe`` is called for the columns that are to be observed.
    """
    for index, wanted in plan.items():
        leaves = zip(*(leaf_arrays(chunk) for chunk in table.column(index).chunks), strict=True)
        arrays = dict(enumerate(leaves))
        for planned in wanted:
            column, own = planned.column, arrays.get(planned.position, ())
            seen = observe if planned.is_observed else None
            try:
                num_rows = table.num_rows if seen and _are_of_rows(own, column) else 0
                if planned.options is not None:
                    yield column.ordinal, _build_filter(own, column, planned.options, seen,
                                                        num_rows)
                elif seen is not None:
                    _observe(own, column, seen, num_rows)
            except ColumnError as error:
                error.column = column.path
                raise


def _build_filter(arrays: Iterable[pa.Array], column: LeafColumn, options: BloomFilterOptions,
                  observe: Observe | None, num_rows: int) -> SplitBlockBloomFilter:
    """Build the filter of one column chunk over the leaf arrays that it stores."""
    arrays = [used_dictionary_values(array) for array in arrays]
    count = sum(len(array) - array.null_count for array in arrays)
    filter_ = SplitBlockBloomFilter(options.num_blocks(count), column_type=column.type)
    for range_, hashes in _hashes(arrays, column, num_rows):
        filter_.insert_hashes(hashes)
        if observe is not None:
            observe(column, hashes, range_)
    return options.fitted(filter_)


def _observe(arrays: Iterable[pa.Array], column: LeafColumn, observe: Observe,
             num_rows: int) -> None:
    try:
        for range_, hashes in _hashes(map(used_dictionary_values, arrays), column, num_rows):
            observe(column, hashes, range_)
    except ColumnError:  # what is written does not depend on it
        observe(column, None, ALL_ROWS)


def _are_of_rows(arrays: Iterable[pa.Array], column: LeafColumn) -> bool:
    """Whether leaf arrays have one value or null for each row; of dictionaries, less is hashed."""
    return not column.is_repeated \
        and not any(pa.types.is_dictionary(array.type) for array in arrays)


def _hashes(arrays: Iterable[pa.Array], column: LeafColumn, num_rows: int) \
        -> Iterator[tuple[int, np.ndarray]]:
    """Yield ranges of rows with the hashes of their values.

    ``num_rows`` is 0 if it is not known in which rows the values are.
    """
    start = 0
    for array in arrays:
        for piece in pieces(start, start + len(array), num_rows, _PART):
            yield piece.range, hash_stored(
                array.slice(piece.start - start, piece.stop - piece.start), column.type)
        start += len(array)
