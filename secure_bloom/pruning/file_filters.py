"""The Bloom filters of an open file: what is stored, and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeGuard, TypeVar

import numpy as np

from secure_bloom.errors import UnsupportedError, error_location
from secure_bloom.parquet.bloom_filter import BloomFilterInfo, Disjoint, read_filter, read_info
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.pruning.value_list import ValueList
from secure_bloom.sbbf.filter import SplitBlockBloomFilter
from secure_bloom.sbbf.probes import Probes, is_scalar
from secure_bloom.storage.source import Source

_FEW = 8  # values that are checked faster one by one than as an Arrow array

Answer = TypeVar("Answer")


class FilterCache(Protocol):
    """Bloom filters by path, version, row group and column ordinal, for several files."""

    def get(self, key: Hashable, /) -> SplitBlockBloomFilter | None:
        """Return a filter, or None."""

    def put(self, key: Hashable, value: SplitBlockBloomFilter, size: int, /) -> None:
        """Keep a filter of this many bytes."""


class FileFilters:
    """The Bloom filters of a file. They are read when they are needed, unless the cache has them.

    Errors have file, row group and column.
    """

    def __init__(self, source: Source, footer: Footer, cache: FilterCache | None):
        self._source, self._footer, self._cache = source, footer, cache

    def reopened(self, source: Source) -> FileFilters:
        """Return the filters of the same version of the file with another handle."""
        return FileFilters(source, self._footer, self._cache)

    def infos(self) -> list[BloomFilterInfo]:
        """Read the header of each filter; see :attr:`.ParquetFile.bloom_filters`."""
        with error_location(file=self._source.name):
            return [info for chunk in self._footer.column_chunks()
                    if (info := read_info(self._source, chunk, self._footer.start)) is not None]

    def read(self, row_group: int, column: LeafColumn,
             disjoint: Disjoint | None = None) -> SplitBlockBloomFilter | None:
        """Read the filter of a column chunk; None if it has none."""
        source, cache = self._source, self._cache
        key = (source.base_path, source.version, row_group, column.ordinal)
        if cache is not None and (known := cache.get(key)) is not None:
            return known
        try:
            chunk = self._footer.row_groups[row_group][column.ordinal]
        except IndexError:
            raise IndexError(f"there is no row group {row_group} in {source.name}; it has "
                             f"{len(self._footer.row_groups)}") from None
        with error_location(file=source.name):
            found = read_filter(source, chunk, self._footer.start, disjoint)
        if cache is not None and found is not None and source.version is not None:
            cache.put(key, found, found.num_bytes)
        return found

    def might_contain(self, column: LeafColumn, values: object,
                      row_groups: Iterable[int]) -> np.ndarray:
        """Check which row groups may hold which values; bool array [all row groups, values].

        Only the filters of the given row groups are read; the others may hold everything.
        """
        ask: Callable[[SplitBlockBloomFilter], Any]
        if _are_few(values):
            num_values, ask = len(values), partial(_ask_each, values)
        else:
            probes = Probes(values, column.type)
            num_values, ask = len(probes), probes.check
        answers = np.ones((len(self._footer.row_groups), num_values), dtype=bool)
        for row_group, found in self._asked(column, row_groups, ask):
            answers[row_group] = found
        return answers

    def look_up(self, column: LeafColumn, values: list[Any],
                row_groups: Iterable[int]) -> dict[int, Sequence[bool]]:
        """Return which values each row group may hold; a long ValueList counts as one value.

        Row groups without a filter, or with one of another kind, are omitted.
        """
        if _are_few(values) or any(isinstance(value, ValueList) for value in values):
            return dict(self._asked(column, row_groups, partial(_ask_each, values)))
        probes = Probes(values, column.type)
        return dict(self._asked(column, row_groups,
                                lambda filter_: probes.check(filter_).tolist()))

    def _asked(self, column: LeafColumn, row_groups: Iterable[int],
               ask: Callable[[SplitBlockBloomFilter], Answer]) -> Iterator[tuple[int, Answer]]:
        """Yield what the filter of each row group answers, if it has one of a known kind."""
        disjoint = Disjoint(self._footer.start)
        for row_group in row_groups:
            try:
                filter_ = self.read(row_group, column, disjoint)
            except UnsupportedError:
                continue
            if filter_ is not None:
                yield row_group, ask(filter_)


def _are_few(values: object) -> TypeGuard[list[Any]]:
    return isinstance(values, list) and len(values) <= _FEW and all(map(is_scalar, values))


def _ask_each(values: list[Any], filter_: SplitBlockBloomFilter) -> list[bool]:
    return [_may_hold(filter_, value) for value in values]


def _may_hold(filter_: SplitBlockBloomFilter, value: Any) -> bool:
    if isinstance(value, ValueList):
        assert filter_.column_type is not None
        return value.derived(Probes, filter_.column_type).check_any(filter_)
    return bool(filter_.check(value))
