"""The Bloom filters of a file that is being written, from its first row group to its footer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from secure_bloom.arrow.table_filters import build_filters, num_values, plan_filters
from secure_bloom.errors import FormatError
from secure_bloom.parquet.bloom_filter import encode_filter
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.sbbf.options import BloomFilters
from secure_bloom.storage.spill import FilterStore
from secure_bloom.storage.summary import FilterTotals

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
