"""A row group of an open footer: bytes, of which a column chunk is decoded when it is asked for.

Decoded, a column chunk takes thirty times the memory of its bytes, and a footer may describe a
million of them. So a footer keeps decoded what was changed, and what was asked for recently.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from secure_bloom.errors import FormatError
from secure_bloom.parquet import thrift
from secure_bloom.parquet.column_chunk import ColumnChunk, Decoded
from secure_bloom.parquet.thrift import Struct

if TYPE_CHECKING:
    from secure_bloom.parquet.footer import Footer

ROW_GROUP_LAYOUT = {1: [None]}

# Field ids of RowGroup in parquet.thrift.
_COLUMNS, _TOTAL_SIZE, _NUM_ROWS, _COMPRESSED_SIZE, _ORDINAL = 1, 2, 3, 6, 7

_RECENT = 1024  # column chunks
_MIN_CHUNK = 16  # bytes: fewer than the fields take that every column chunk has


class RowGroup(Sequence):
    """The column chunks of a row group, in the order of the schema.

    Parameters
    ----------
    footer : Footer
    data : bytes
        The FileMetaData.
    struct : Struct
        The RowGroup, decoded with :data:`ROW_GROUP_LAYOUT`.
    start, end : int
        Where it begins in the data, and where it ends.

    Attributes
    ----------
    number : int
        Position of the row group in the file.
    ordinal : int or None
        What the file says of it.
    num_rows : int
    num_bytes : int
        Bytes of the pages as stored, as far as the file says.
    """

    __slots__ = ("_changed", "_chunks", "_data", "_end", "_footer", "_start", "num_bytes",
                 "num_rows", "number", "ordinal")

    def __init__(self, footer: Footer, data: bytes, struct: Struct, start: int, end: int):
        self._footer, self._data, self._start, self._end = footer, data, start, end
        self._chunks = thrift.structs(struct, _COLUMNS)
        self._changed: dict[int, bytes | Decoded] | None = None
        self.number = 0
        self.ordinal = struct.get_int(_ORDINAL)
        self.num_rows = struct.get_int(_NUM_ROWS) or 0
        size = struct.get_int(_COMPRESSED_SIZE) or struct.get_int(_TOTAL_SIZE) or 0
        self.num_bytes = max(size, 0)

    def __len__(self) -> int:
        return len(self._chunks)

    def __getitem__(self, ordinal: int) -> ColumnChunk:
        return ColumnChunk(self._footer, self, self._footer.columns[ordinal])

    def __iter__(self) -> Iterator[ColumnChunk]:
        return (ColumnChunk(self._footer, self, column) for column in self._footer.columns)

    def check(self, num_columns: int) -> None:
        """Refuse what cannot be the column chunks of so many columns.

        Raises
        ------
        FormatError
        """
        if len(self) != num_columns:
            raise FormatError(f"the row group has {len(self)} columns, the schema {num_columns}",
                              row_group=self.number)
        if self._end - self._start < _MIN_CHUNK * num_columns:
            raise FormatError("the row group is too short for its columns", row_group=self.number)

    def raw(self, ordinal: int) -> bytes | None:
        """A ColumnChunk as bytes; None once it was changed."""
        changed = self._changed and self._changed.get(ordinal)
        if isinstance(changed, Decoded):
            return None
        return changed or self._chunks[ordinal]

    def replace(self, ordinal: int, raw: bytes) -> None:
        """Put another ColumnChunk in the place of one."""
        self._change(ordinal, raw)
        self._footer.recent.pop((self.number, ordinal))

    def decoded(self, ordinal: int) -> Decoded:
        """What is known of a column chunk."""
        changed = self._changed and self._changed.get(ordinal)
        if isinstance(changed, Decoded):
            return changed
        return self._footer.recent.get((self.number, ordinal))

    def to_change(self, ordinal: int) -> Decoded:
        """The same, which is kept from now on, and written."""
        decoded = self.decoded(ordinal)
        self._change(ordinal, decoded)
        return decoded

    def _change(self, ordinal: int, state: bytes | Decoded) -> None:
        if self._changed is None:
            self._changed = {}
        self._changed[ordinal] = state

    def seal(self) -> None:
        """Encrypt the metadata of the column chunks that were changed."""
        for ordinal in sorted(self._changed or ()):
            if isinstance(self._changed[ordinal], Decoded):
                self[ordinal].seal()

    def encode(self) -> bytes:
        """The bytes of the row group."""
        parts, position = [], self._start
        for ordinal in sorted(self._changed or ()):
            state = self._changed[ordinal]
            parts += [self._data[position:self._chunks.bounds[ordinal]],
                      state if isinstance(state, bytes) else thrift.encode(state.struct)]
            position = self._chunks.bounds[ordinal + 1]
        return b"".join([*parts, self._data[position:self._end]])


class Recent:
    """The column chunks that were asked for recently, by row group and column."""

    def __init__(self):
        self._found: dict[tuple[int, int], Decoded] = {}
        self._order: deque[tuple[int, int]] = deque()

    def get(self, key: tuple[int, int]) -> Decoded:
        """What is known of a column chunk; at first nothing."""
        found = self._found.get(key)
        if found is None:  # several threads may do this at once
            found = self._found.setdefault(key, Decoded())
            self._order.append(key)
            if len(self._order) > _RECENT:
                self._found.pop(self._order.popleft(), None)
        return found

    def pop(self, key: tuple[int, int]) -> None:
        """Forget a column chunk."""
        self._found.pop(key, None)
