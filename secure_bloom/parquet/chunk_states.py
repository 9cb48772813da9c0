"""What is known of the column chunks of a row group: their bytes, what was decoded, and changed.

A decoded column chunk takes thirty times the memory of its bytes, and a footer may describe a
million of them. A footer therefore keeps only changed and recently used chunks decoded.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from secure_bloom.crypto.modules import ModuleCipher
from secure_bloom.parquet import thrift
from secure_bloom.parquet.compiled_footers import ROOM, CompiledFooters
from secure_bloom.parquet.file_crypto import FileCrypto
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.parquet.thrift import Slices, Struct

COLUMN_ORDERS = 7  #: field id of FileMetaData in parquet.thrift
_TYPE_ORDER = 1  # ColumnOrder
_RECENT = 1024  # column chunks


@dataclass(frozen=True)
class RawStatistics:
    """The footer's statistics for the values of a column chunk; None if not specified.

    The number of values includes nulls. Minimum and maximum are in plain encoding. They are bounds:
    no value is outside, but they need not be actual values.
    """

    num_values: int | None = None
    null_count: int | None = None
    minimum: bytes | None = None
    maximum: bytes | None = None


class Decoded:
    """The decoded state of a column chunk.

    ``struct`` is the ColumnChunk; ``meta`` is the ColumnMetaData that was in a module, once
    decrypted. ``statistics`` do not change.
    """

    __slots__ = ("cipher", "meta", "statistics", "struct")

    def __init__(self) -> None:
        self.struct: Struct | None = None
        self.meta: Struct | None = None
        self.cipher: ModuleCipher | None = None
        self.statistics: RawStatistics | None = None

    def to_encode(self) -> Struct:
        """Return the ColumnChunk, which was changed and is therefore decoded."""
        assert self.struct is not None
        return self.struct


class ChunkStates:
    """The column chunks of a row group as bytes, decoded or changed.

    Attributes
    ----------
    number : int
        Position of the row group in the file.
    ordinal : int or None
        The ordinal stored in the file.
    shared : Shared
    """

    __slots__ = ("_changed", "_chunks", "number", "ordinal", "shared")

    number: int
    shared: Shared

    def __init__(self, chunks: Any, ordinal: int | None):
        self._chunks = chunks  # Slices, or empty
        self._changed: dict[int, bytes | Decoded] | None = None
        self.ordinal = ordinal

    def raw(self, ordinal: int) -> bytes | None:
        """Return a ColumnChunk as bytes; None once it was changed."""
        changed = None if self._changed is None else self._changed.get(ordinal)
        if isinstance(changed, Decoded):
            return None
        return changed or self._chunks[ordinal]

    def replace(self, ordinal: int, raw: bytes) -> None:
        """Replace the bytes of a ColumnChunk."""
        self._change(ordinal, raw)
        self.shared.recent.pop((self.number, ordinal))

    def set_bloom_filters(self, places: Mapping[int, tuple[int, int]]) -> set[int]:
        """Record the positions of Bloom filters as far as compiled functions can do it.

        ``places`` has offset and length by ordinal. Returns the ordinals that are done. The column
        chunks that are not decoded are copied, and all together replace what was in the file.
        """
        wanted = list(places.keys() - (self._changed or {}).keys())
        if self.shared.kernels is None or not wanted:
            return set()
        bounds = np.frombuffer(self._chunks.bounds, np.int64)
        new_places = np.full((len(self._chunks), 2), -1, np.int64)
        new_places[wanted] = [places[ordinal] for ordinal in wanted]
        out = np.empty(bounds[-1] - bounds[0] + ROOM * len(self._chunks), np.uint8)
        ends = np.empty(len(self._chunks), np.int64)
        self.shared.kernels.with_bloom_filters(self._chunks.data, bounds, new_places, out, ends)
        failed = set(np.flatnonzero(ends < 0).tolist())
        if failed:
            return self._set_some(wanted, failed, out.tobytes(), ends)
        self._chunks = Slices(out[:ends[-1]].tobytes(), array("q", [0, *ends.tolist()]))
        self.shared.recent.forget(self.number, wanted)
        return set(wanted)

    def _set_some(self, wanted: list[int], failed: set[int], new: bytes, ends: np.ndarray) \
            -> set[int]:
        """Record those that have not failed; ``new`` has nothing for the others."""
        start, done = 0, set(wanted) - failed
        for ordinal, end in enumerate(ends.tolist()):
            if end >= 0:
                if ordinal in done:
                    self.replace(ordinal, new[start:end])
                start = end
        return done

    def decoded(self, ordinal: int) -> Decoded:
        """Return the decoded state of a column chunk."""
        changed = None if self._changed is None else self._changed.get(ordinal)
        if isinstance(changed, Decoded):
            return changed
        return self.shared.recent.get((self.number, ordinal))

    def to_change(self, ordinal: int) -> Decoded:
        """Return the same state, which from now on is kept and written."""
        decoded = self.decoded(ordinal)
        self._change(ordinal, decoded)
        return decoded

    def _change(self, ordinal: int, state: bytes | Decoded) -> None:
        if self._changed is None:
            self._changed = {}
        self._changed[ordinal] = state


class Shared:
    """What the column chunks of a file have in common.

    It has no reference to the footer, which references the row groups: a reference cycle would
    keep all of them and the open file alive until the garbage collector runs.

    ``kernels`` decode large footers faster. ``orders`` is the list of ColumnOrders, as it is in
    FileMetaData.
    """

    def __init__(self, columns: list[LeafColumn], crypto: FileCrypto,
                 kernels: CompiledFooters | None, orders: Any):
        self.columns, self.crypto, self.kernels = columns, crypto, kernels
        self.recent = Recent()
        self._orders = orders

    def with_crypto(self, crypto: FileCrypto) -> Shared:
        """Return the same for a file that is encrypted in another way."""
        return Shared(self.columns, crypto, self.kernels, self._orders)

    def has_defined_order(self, column: LeafColumn) -> bool:
        """Whether a column's minimum and maximum follow the order defined by its type."""
        return column.type.has_order and self.has_type_order(column)

    def has_type_order(self, column: LeafColumn) -> bool:
        """Whether the file says that a column is ordered as its type defines, if that does."""
        return column.ordinal < len(self._defined_orders) \
            and bool(self._defined_orders[column.ordinal])

    @cached_property
    def _defined_orders(self) -> bytes:
        raw = self._orders
        known = _defined_orders if raw is None or len(raw) <= thrift.MAX_REMEMBERED \
            else _defined_orders.__wrapped__
        return known(raw)


@lru_cache(maxsize=8)  # files of a folder mostly have the same
def _defined_orders(raw: bytes | None) -> bytes:
    """Return 1 for each column with an order defined by its type, else 0, from ColumnOrders."""
    orders = thrift.each(Struct([[COLUMN_ORDERS, thrift.LIST, raw]]), COLUMN_ORDERS, {})
    return bytes(order.get(_TYPE_ORDER) is not None for order in orders)


class Recent:
    """The recently used column chunks, by row group and column."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], Decoded] = {}
        self._order: deque[tuple[int, int]] = deque()

    def get(self, key: tuple[int, int]) -> Decoded:
        """Return the decoded state of a column chunk; initially empty."""
        found = self._found.get(key)
        if found is None:  # several threads may do this at once
            found = self._found.setdefault(key, Decoded())
            self._order.append(key)
            if len(self._order) > _RECENT:
                self._found.pop(self._order.popleft(), None)
        return found

    def forget(self, number: int, ordinals: Iterable[int]) -> None:
        """Remove column chunks of a row group."""
        if self._found:
            for ordinal in ordinals:
                self.pop((number, ordinal))

    def pop(self, key: tuple[int, int]) -> None:
        """Remove a column chunk."""
        self._found.pop(key, None)
