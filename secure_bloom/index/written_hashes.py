"""The values of a file, collected for indexes while it is written, which saves reading them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from secure_bloom.index.geometry import pack, place_of
from secure_bloom.index.pair_sorting import DividedPairs
from secure_bloom.index.pair_store import PairStore
from secure_bloom.index.sealing import IndexKey
from secure_bloom.parquet.row_ranges import ALL_ROWS
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.sbbf.column_type import ColumnType


class WrittenHashes:
    """Collects fingerprints of the values of some columns of a file.

    :meth:`add` is the observer of a :class:`.ParquetWriter`.

    Parameters
    ----------
    keys : mapping of str to IndexKey
        By dotted path of the column.
    budget : int
        Bytes of memory for each column, as for :class:`.PairStore`.
    """

    def __init__(self, keys: Mapping[str, IndexKey], budget: int):
        self._keys = keys
        self._stores = {column: PairStore(budget) for column in keys}
        self._types: dict[str, ColumnType] = {}

    @property
    def num_in_memory(self) -> int:
        """Number of fingerprints in memory."""
        return sum(store.num_in_memory for store in self._stores.values())

    def spill(self) -> None:
        """Spill what is in memory; after an error, as in :meth:`add`, the column is forgotten."""
        for column, store in list(self._stores.items()):
            try:
                store.spill()
            except Exception:
                self._forget(column)

    def add(self, row_group: int, column: LeafColumn, hashes: np.ndarray | None,
            range_: int = ALL_ROWS) -> None:
        """Add hashes of values of a row group, or of a range of its rows.

        None: not all of its values are known.

        After an error, the column is forgotten: the file can be read instead.
        """
        store = self._stores.get(column.path)
        if store is None:
            return
        self._types[column.path] = column.type
        try:
            if hashes is not None:
                store.add(pack(self._keys[column.path].fingerprints(hashes),
                               place_of(row_group, range_)))
                return
        except Exception:  # such as a full disk
            pass
        self._forget(column.path)

    def pairs(self, column: LeafColumn) -> Iterator[DividedPairs] | None:
        """Return what was collected of a column of the file.

        None if that is not complete, or the file has values of another type.
        """
        store = self._stores.get(column.path)
        if store is None or self._types.get(column.path) != column.type:
            return None
        return store.parts()

    def close(self) -> None:
        """Discard what was collected."""
        for column in list(self._stores):
            self._forget(column)

    def _forget(self, column: str) -> None:
        self._stores.pop(column).close()
