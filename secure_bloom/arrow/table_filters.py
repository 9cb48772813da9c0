"""The Bloom filters of what is about to be written: of a table, and of a file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from secure_bloom.arrow.leaves import leaf_arrays, leaf_types
from secure_bloom.errors import ColumnError, FormatError
from secure_bloom.parquet.bloom_filter import encode_filter
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.row_ranges import ALL_ROWS, pieces
from secure_bloom.parquet.schema import LeafColumn, filter_columns, filterable_paths
from secure_bloom.sbbf.arrow_types import used_dictionary_values
from secure_bloom.sbbf.filter import SplitBlockBloomFilter
from secure_bloom.sbbf.hashing import hash_stored
from secure_bloom.sbbf.options import BloomFilterOptions, BloomFilters, normalize_options
from secure_bloom.storage.spill import FilterStore
from secure_bloom.storage.summary import FilterTotals


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


# --- of a file, from its first row group to its footer --------------------------------------------

#: called with row group, leaf column, hashes of values (uint64), and the range of the rows that
#: have them (see :mod:`.row_ranges`); None instead of hashes: they cannot be hashed
HashObserver: TypeAlias = Callable[[int, LeafColumn, np.ndarray | None, int], None]


class FilterWriter:
    """Builds the filters of each row group, and keeps them until the file ends.

    ``totals`` says what was written. Raises ColumnError if a column does not exist or cannot have a
    filter.
    """

    def __init__(self, schema: pa.Schema, leaves: list[LeafColumn], bloom_filters: BloomFilters):
        self._schema, self._leaves = schema, leaves
        self._plan = plan_filters(schema, leaves, bloom_filters)
        self._observer: HashObserver | None = None
        self._store = FilterStore()
        self._numbers: list[dict[int, int]] = []  # by row group: column ordinal -> number in store
        self.totals = FilterTotals()

    def observe(self, columns: Collection[str], observer: HashObserver) -> None:
        """Pass on the hashes of some columns; see :meth:`.ParquetWriter.observe_hashes`."""
        filters = {one.column.path: one.options for of_field in self._plan.values()
                   for one in of_field if one.options is not None}
        self._plan = plan_filters(self._schema, self._leaves, filters, columns)
        self._observer = observer

    def num_values(self, table: pa.Table) -> int:
        """Return roughly how many values the filters of a table are built from."""
        return num_values(table, self._plan)

    def add_row_group(self, table: pa.Table) -> None:
        """Build the filters of the next row group."""
        observe = self._observer and partial(self._observer, len(self._numbers))
        self._numbers.append({ordinal: self._store.put(filter_) for ordinal, filter_
                              in build_filters(table, self._plan, observe)})

    def encode(self, footer: Footer, start: int) -> Iterator[bytes | memoryview]:
        """Yield the filters as they are stored from an offset on; the footer gets their places.

        A filter is encrypted if its column is, in the footer. At the end, :attr:`totals` is set.
        Raises FormatError if the footer has other row groups.
        """
        if len(footer.row_groups) != len(self._numbers):
            raise FormatError(f"pyarrow wrote {len(footer.row_groups)} row groups, but "
                              f"{len(self._numbers)} were expected")
        position, encrypted, plain = start, 0, 0
        for row_group, numbers in enumerate(self._numbers):
            places = {}
            for ordinal in sorted(numbers):
                chunk = footer.row_groups[row_group][ordinal]
                parts = encode_filter(self._store.get(numbers[ordinal]), chunk)
                yield from parts
                length = sum(map(len, parts))
                places[ordinal] = position, length
                position += length
                encrypted += chunk.cipher is not None
                plain += chunk.cipher is None
            footer.set_bloom_filters(row_group, places)
        self.totals = FilterTotals(encrypted, plain, position - start)

    def close(self) -> None:
        """Discard all filters."""
        self._store.close()
