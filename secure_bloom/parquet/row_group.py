"""A row group of an open footer: column chunks that are decoded on demand, and written again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter

from secure_bloom.errors import FormatError
from secure_bloom.parquet import thrift
from secure_bloom.parquet.chunk_states import ChunkStates, Decoded, Shared
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.thrift import Struct

ROW_GROUP_LAYOUT = {1: [None]}

# Field ids of parquet.thrift that only this module uses.
_COLUMNS, _TOTAL_SIZE, _NUM_ROWS, _OFFSET, _COMPRESSED_SIZE, _ORDINAL = 1, 2, 3, 5, 6, 7  # RowGroup

_MIN_CHUNK = 16  # bytes: fewer than the mandatory fields of a column chunk take


class RowGroup(ChunkStates, Sequence[ColumnChunk]):
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
    num_rows : int
    num_bytes : int
        Stored size of the pages in bytes, as far as the file specifies it.
    """

    __slots__ = ("_around", "_data", "_fields", "num_bytes", "num_rows")

    def __init__(self, data: bytes, struct: Struct, start: int, end: int):
        super().__init__(thrift.structs(struct, _COLUMNS), struct.get_int(_ORDINAL))
        bounds = getattr(self._chunks, "bounds", (end, end))
        self._data, self._around = data, (start, bounds[0], bounds[-1], end)
        self._fields: dict[int, int] = {}
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
            assert isinstance(state, Decoded)
            state.cipher = None
        self.number, self.shared = number, shared
        self._fields |= {_OFFSET: start, _ORDINAL: number}
        if self.ordinal is not None or shared.crypto.algorithm is not None:
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
            is_needed = field_id == _ORDINAL and self.ordinal is not None
            if is_needed or struct.get(field_id) is not None:
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
