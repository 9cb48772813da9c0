"""The Bloom filters of a table that is about to be written, one for each column chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import pyarrow as pa

from secure_bloom.arrow.leaves import leaf_arrays, leaf_types
from secure_bloom.errors import ColumnError
from secure_bloom.parquet.schema import LeafColumn, filter_columns, filterable_paths
from secure_bloom.sbbf.arrow_types import used_dictionary_values
from secure_bloom.sbbf.filter import SplitBlockBloomFilter
from secure_bloom.sbbf.hashing import hash_stored
from secure_bloom.sbbf.options import BloomFilterOptions, BloomFilters, normalize_options

#: (position among its leaves, leaf column, options), by position of the top-level field
FilterPlan: TypeAlias = dict[int, list[tuple[int, LeafColumn, BloomFilterOptions]]]

_PART = 1 << 16  # values whose hashes stay in the cache


def plan_filters(schema: pa.Schema, leaves: list[LeafColumn],
                 bloom_filters: BloomFilters) -> FilterPlan:
    """Return which filters are to be built for tables of this schema.

    Raises ColumnError if a column does not exist or cannot have a filter.
    """
    plan: FilterPlan = {}
    asked = normalize_options(bloom_filters,
                              filterable_paths(leaves) if bloom_filters is True else None)
    if not asked:
        return plan
    owners = [(index, position) for index, field in enumerate(schema)
              for position in range(len(leaf_types(field.type)))]
    for column, options in zip(filter_columns(leaves, asked), asked.values(), strict=True):
        index, position = owners[column.ordinal]
        plan.setdefault(index, []).append((position, column, options))
    return plan


def num_values(table: pa.Table, plan: FilterPlan) -> int:
    """Return roughly how many values the filters of a table are built from."""
    return table.num_rows * sum(map(len, plan.values()))


def build_filters(table: pa.Table, plan: FilterPlan) \
        -> Iterator[tuple[int, SplitBlockBloomFilter]]:
    """Yield the ordinals of leaf columns with the filters of their values."""
    for index, wanted in plan.items():
        leaves = zip(*(leaf_arrays(chunk) for chunk in table.column(index).chunks), strict=True)
        arrays = dict(enumerate(leaves))
        for position, column, options in wanted:
            try:
                yield column.ordinal, _build_filter(arrays.get(position, ()), column, options)
            except ColumnError as error:
                error.column = column.path
                raise


def _build_filter(arrays: Iterable[pa.Array], column: LeafColumn,
                  options: BloomFilterOptions) -> SplitBlockBloomFilter:
    """Build the filter of one column chunk over the leaf arrays that it stores."""
    arrays = [used_dictionary_values(array) for array in arrays]
    count = sum(len(array) - array.null_count for array in arrays)
    filter_ = SplitBlockBloomFilter(options.num_blocks(count), column_type=column.type)
    for array in arrays:
        for start in range(0, len(array), _PART):
            filter_.insert_hashes(hash_stored(array.slice(start, _PART), column.type))
    return options.fitted(filter_)
