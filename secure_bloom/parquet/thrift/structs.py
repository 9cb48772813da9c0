"""Structures of the Thrift compact protocol in memory."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from secure_bloom.errors import FormatError
from secure_bloom.parquet.thrift.protocol import (
    BINARY,
    FALSE,
    I16,
    I32,
    I64,
    TRUE,
    decode_binary,
    decode_int,
    encode_int,
    encode_varint,
)


class Struct:
    """One structure: its fields in file order, each as ``[id, type, value]``.

    A value is bytes (not decoded), a :class:`Struct`, a list of bytes and :class:`Struct`, or
    :class:`Slices`.
    """

    __slots__ = ("fields",)

    def __init__(self, fields: list[list[Any]] | None = None):
        self.fields = fields if fields is not None else []

    def get(self, field_id: int) -> Any:
        """Return the value of a field as stored here, or None if the field is absent."""
        for field in self.fields:
            if field[0] == field_id:
                return field[2]
        return None

    def set(self, field_id: int, type_: int, value: Any) -> None:
        """Replace a field, or add it in the order of field ids."""
        position = 0
        for field in self.fields:
            if field[0] == field_id:
                field[1:] = [type_, value]
                return
            position += field[0] < field_id
        self.fields.insert(position, [field_id, type_, value])

    def remove(self, field_id: int) -> None:
        """Remove a field if it is present."""
        self.fields = [field for field in self.fields if field[0] != field_id]

    def get_int(self, field_id: int) -> int | None:
        """Return an I16, I32 or I64 field."""
        return None if (raw := self._raw(field_id, (I16, I32, I64))) is None else decode_int(raw)

    def get_bool(self, field_id: int) -> bool | None:
        """Return a boolean field."""
        for field in self.fields:
            if field[0] == field_id and field[1] in (TRUE, FALSE):
                return field[1] == TRUE
        return None

    def get_binary(self, field_id: int) -> bytes | None:
        """Return a BINARY (or string) field."""
        return None if (raw := self._raw(field_id, (BINARY,))) is None else decode_binary(raw)

    def get_string(self, field_id: int) -> str | None:
        """Return a BINARY field as UTF-8 text; invalid UTF-8 bytes are escaped."""
        raw = self.get_binary(field_id)
        return None if raw is None else raw.decode("utf-8", "backslashreplace")

    def set_int(self, field_id: int, type_: int, value: int) -> None:
        """Set an I16, I32 or I64 field."""
        self.set(field_id, type_, encode_int(value))

    def set_binary(self, field_id: int, value: bytes) -> None:
        """Set a BINARY field."""
        self.set(field_id, BINARY, encode_varint(len(value)) + value)

    def set_bool(self, field_id: int, value: bool) -> None:
        """Set a boolean field."""
        self.set(field_id, TRUE if value else FALSE, b"")

    def _raw(self, field_id: int, types: tuple[int, ...]) -> bytes | None:
        for field in self.fields:
            if field[0] == field_id:
                if field[1] not in types or not isinstance(field[2], bytes):
                    raise FormatError(f"Thrift field {field_id} has an unexpected type {field[1]}")
                return field[2]
        return None


class Slices(Sequence[bytes]):
    """The structures of a list as bytes, extracted on access.

    ``bounds`` has where each begins, and where the last one ends.
    """

    __slots__ = ("bounds", "data")

    def __init__(self, data: bytes, bounds: array[int]):
        self.data, self.bounds = data, bounds

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, index: int) -> bytes:  # type: ignore[override]  # no slices
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.data[self.bounds[index]:self.bounds[index + 1]]
