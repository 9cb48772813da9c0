"""A row group of an open footer: bytes, from which column chunks are decoded on demand.

A decoded column chunk takes thirty times the memory of its bytes, and a footer may describe a
million of them. A footer therefore keeps only changed and recently used chunks decoded.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Any

import numpy as np

from secure_bloom.errors import FormatError
from secure_bloom.parquet import thrift
from secure_bloom.parquet.column_chunk import ColumnChunk, Decoded
from secure_bloom.parquet.compiled_footers import ROOM, CompiledFooters
from secure_bloom.parquet.file_crypto import FileCrypto
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.parquet.thrift import Slices, Struct

ROW_GROUP_LAYOUT = {1: [None]}
COLUMN_ORDERS = 7  #: field id of FileMetaData in parquet.thrift

# Field ids of parquet.thrift that only this module uses.
_COLUMNS, _TOTAL_SIZE, _NUM_ROWS, _OFFSET, _COMPRESSED_SIZE, _ORDINAL = 1, 2, 3, 5, 6, 7  # RowGroup
_TYPE_ORDER = 1  # ColumnOrder

_RECENT = 1024  # column chunks
_MIN_CHUNK = 16  # bytes: fewer than the mandatory fields of a column chunk take


class RowGroup(Sequence[ColumnChunk]):
    """The column chunks of a row group, in the order of the schema.

    Parameters
    ----------
    data : bytes
        The FileMetaData.
    struct : Struct
        The RowGroup, decoded with :data:`ROW_GROUP_LAYOUT`.
    start, end : int
        Where it begins and ends in the data.

    Attributes
    ----------
    shared : Shared
    number : int
        Position of the row group in the file.
    ordinal : int or None
        The ordinal stored in the file.
    num_rows : int
    num_bytes : int
        Stored size of the pages in bytes, as far as the file specifies it.
    """

    __slots__ = ("_around", "_changed", "_chunks", "_data", "_fields", "num_bytes", "num_rows",
                 "number", "ordinal", "shared")

    def __init__(self, data: bytes, struct: Struct, start: int, end: int):
        self._chunks: Any = thrift.structs(struct, _COLUMNS)  # Slices, or empty
        bounds = getattr(self._chunks, "bounds", (end, end))
        self._data, self._around = data, (start, bounds[0], bounds[-1], end)
        self._changed: dict[int, bytes | Decoded] | None = None
        self._fields: dict[int, int] = {}
        self.ordinal = struct.get_int(_ORDINAL)
        self.num_rows = struct.get_int(_NUM_ROWS) or 0
        size = struct.get_int(_COMPRESSED_SIZE) or struct.get_int(_TOTAL_SIZE) or 0
        self.num_bytes = max(size, 0)

    def __len__(self) -> int:
        return len(self._chunks)

    def __getitem__(self, ordinal: int) -> ColumnChunk:  # type: ignore[override]  # no slices
        return ColumnChunk(self, self.shared.columns[ordinal])

    def __iter__(self) -> Iterator[ColumnChunk]:
        return (ColumnChunk(self, column) for column in self.shared.columns)

    def open(self, number: int, shared: Shared) -> None:
        """Make the column chunks accessible.

        Raises FormatError if the data cannot contain one column chunk per column.
        """
        self.number, self.shared = number, shared
        num_columns = len(shared.columns)
        if len(self) != num_columns:
            raise FormatError(f"the row group has {len(self)} columns, but the schema has "
                              f"{num_columns}", row_group=number)
        start, _, _, end = self._around
        if end - start < _MIN_CHUNK * num_columns:
            raise FormatError("the row group is too short for its columns", row_group=number)

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
        new_places = np.full((len(self), 2), -1, np.int64)
        new_places[wanted] = [places[ordinal] for ordinal in wanted]
        out = np.empty(bounds[-1] - bounds[0] + ROOM * len(self), np.uint8)
        ends = np.empty(len(self), np.int64)
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

    def place(self, number: int, start: int, shared: Shared) -> None:
        """Make this a row group of a new version of the file.

        All column chunks must have been decoded for a change: their metadata will be encrypted
        again, and after this call could not be decrypted.

        Parameters
        ----------
        number : int
            Its place among the row groups, to which modules are bound.
        start : int
            Its offset in the file, in bytes.
        shared : Shared
            Of the new version: see :meth:`.Footer.renew`.
        """
        for state in (self._changed or {}).values():
            if isinstance(state, Decoded):
                state.cipher = None
        self.number, self.shared = number, shared
        self._fields |= {_OFFSET: start, _ORDINAL: number}
        if self.ordinal is not None:
            self.ordinal = number

    def resize(self, num_rows: int, num_bytes: int, total_size: int) -> None:
        """Record the number of rows, and the stored and uncompressed size of the pages in bytes."""
        self.num_rows, self.num_bytes = num_rows, num_bytes
        self._fields |= {_NUM_ROWS: num_rows, _COMPRESSED_SIZE: num_bytes, _TOTAL_SIZE: total_size}

    def seal(self) -> None:
        """Encrypt the metadata of changed column chunks."""
        for ordinal, state in sorted((self._changed or {}).items(), key=itemgetter(0)):
            if isinstance(state, Decoded):
                self[ordinal].seal()

    def encode(self) -> bytes:
        """Return the bytes of the row group."""
        encoded = self._with_changed_chunks()
        if not self._fields:
            return encoded
        struct, _ = thrift.decode(encoded, {})
        for field_id, value in self._fields.items():
            if struct.get(field_id) is not None:
                type_ = thrift.I16 if field_id == _ORDINAL else thrift.I64
                struct.set_int(field_id, type_, value)
        return thrift.encode(struct)

    def _with_changed_chunks(self) -> bytes:
        start, first, last, end = self._around
        parts = [self._data[start:first]]
        if self._chunks:
            data, bounds = self._chunks.data, self._chunks.bounds
            position = bounds[0]
            for ordinal, state in sorted((self._changed or {}).items(), key=itemgetter(0)):
                parts += [data[position:bounds[ordinal]],
                          state if isinstance(state, bytes) else thrift.encode(state.to_encode())]
                position = bounds[ordinal + 1]
            parts.append(data[position:bounds[-1]])
        return b"".join([*parts, self._data[last:end]])


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
