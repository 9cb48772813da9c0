"""Avro: its binary encoding, and files of records.

Files may come from anyone, so no size or number in them makes this allocate or loop for more than
the file has. See https://avro.apache.org/docs/1.12.0/specification/
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pyarrow as pa

from secure_bloom.errors import UnsupportedError
from secure_bloom.storage.small_files import parse_json

MAGIC = b"Obj\x01"
_LONGEST_VARINT = 10  # bytes
_SYNC_SIZE = 16
_MAX_BLOCK = 64 * 1024 * 1024  #: bytes of a decompressed block; writers make them 1,000 times less
_MAX_RATIO, _FREE = 200, 4 * 1024 * 1024  # bytes of a decompressed file by those of the file
_MAX_VALUES = 500_000  #: in one record: Iceberg has some 20 for each column
_MAX_SCHEMA = 20_000, 200_000  # lists and objects, and commas


class Decoder:
    """Reads values in the binary encoding. All methods raise ValueError at the end of the data."""

    def __init__(self, data: bytes):
        self._data, self.position = bytes(data), 0
        self._values_left = _MAX_VALUES

    def has_more(self) -> bool:
        """Whether there are more bytes."""
        return self.position < len(self._data)

    def byte(self) -> int:
        """Return the next byte."""
        return self.take(1)[0]

    def long(self) -> int:
        """Read an int or a long."""
        value = 0
        for shift in range(0, 7 * _LONGEST_VARINT, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)  # zigzag
        raise ValueError("this is not a valid varint")

    def binary(self) -> bytes:
        """Read bytes or a string."""
        return self.take(self.long())

    def branch(self, branches: int) -> int:
        """Read which branch of a union follows."""
        branch = self.long()
        if not 0 <= branch < branches:
            raise ValueError("a union has no such branch")
        return branch

    def take(self, size: int) -> bytes:
        """Read a number of bytes."""
        end = self.position + size
        if size < 0 or end > len(self._data):
            raise ValueError("the data ends early")
        taken, self.position = self._data[self.position:end], end
        return taken

    def record(self, read: _Reader) -> Any:
        """Read a record that is in no other one, and count its values anew."""
        self._values_left = _MAX_VALUES
        return read(self)

    def count(self, number: int) -> None:
        """Count values before they are read: each takes far more memory than bytes."""
        self._values_left -= number
        if self._values_left < 0:
            raise ValueError("a record has too many values")

    def items(self, read: _Reader) -> list[Any]:
        """Read the items of an array, or of a map."""
        found: list[Any] = []
        while (number := self.long()) != 0:
            if number < 0:
                self.long()  # the size of these items in bytes
            self.count(abs(number))
            found += self.several(read, abs(number))
        return found

    def several(self, read: _Reader, number: int) -> Iterator[Any]:
        """Read a number of values."""
        for _ in range(number):
            start = self.position
            yield read(self)
            if self.position == start:  # there could be any number of them
                raise ValueError("a value has no bytes")


_Reader: TypeAlias = Callable[[Decoder], Any]
_PRIMITIVES: dict[str, _Reader] = {
    "null": lambda _: None, "boolean": Decoder.byte, "int": Decoder.long, "long": Decoder.long,
    "float": lambda data: data.take(4), "double": lambda data: data.take(8),
    "bytes": Decoder.binary, "string": Decoder.binary}


def read_records(data: bytes) -> Iterator[dict[int, Any]]:
    """Yield the records of a file, as dictionaries by Iceberg's field ids.

    Arrays and maps are lists. Numbers that are not whole, and strings, are bytes.

    Raises
    ------
    ValueError, TypeError, LookupError, AttributeError, RecursionError
        If the file is not valid.
    UnsupportedError
        If its compression is not ``null``, ``deflate`` or ``zstandard``.
    """
    file = Decoder(data)
    if file.take(len(MAGIC)) != MAGIC:
        raise ValueError("this is not an Avro file")
    header = dict(file.items(_entry(Decoder.binary)))
    codec, sync = header.get(b"avro.codec", b"null"), file.take(_SYNC_SIZE)
    read = _reader(parse_json(header[b"avro.schema"], *_MAX_SCHEMA), {})
    left = _FREE + _MAX_RATIO * len(data)
    while file.has_more():
        number, content = file.long(), _decompressed(file.binary(), codec, min(left, _MAX_BLOCK))
        left -= len(content)
        block = Decoder(content)
        yield from block.several(lambda data: data.record(read), number)
        if number < 0 or block.has_more() or file.take(_SYNC_SIZE) != sync:
            raise ValueError("a block has another length")


def _reader(schema: Any, names: dict[str, _Reader]) -> _Reader:
    """Return what reads values of a schema; ``names`` are the types that were named before."""
    if isinstance(schema, list):
        branches = [_reader(one, names) for one in schema]
        return lambda data: branches[data.branch(len(branches))](data)
    if isinstance(schema, str):
        return _PRIMITIVES[schema] if schema in _PRIMITIVES else names[schema]
    kind = schema["type"]
    if kind == "record":
        fields: list[tuple[int, _Reader]] = []
        names[schema["name"]] = lambda data: _record(data, fields)
        fields += [(field.get("field-id"), _reader(field["type"], names))
                   for field in schema["fields"]]
        return names[schema["name"]]
    if kind in ("fixed", "enum"):
        size = schema["size"] if kind == "fixed" else 0
        names[schema["name"]] = Decoder.long if kind == "enum" else lambda data: data.take(size)
        return names[schema["name"]]
    if kind in ("array", "map"):
        item = _reader(schema["items"], names) if kind == "array" \
            else _entry(_reader(schema["values"], names))
        return lambda data: data.items(item)
    return _reader(kind, names)  # a primitive type with attributes


def _record(data: Decoder, fields: list[tuple[int, _Reader]]) -> dict[int, Any]:
    data.count(len(fields))
    return {id_: read(data) for id_, read in fields}


def _entry(read: _Reader) -> _Reader:
    return lambda data: (data.binary(), read(data))


def _decompressed(block: bytes, codec: bytes, limit: int) -> bytes:
    if codec not in (b"null", b"deflate", b"zstandard"):
        raise UnsupportedError("the compression of this file is neither deflate nor zstandard")
    try:
        if codec == b"null":
            return block
        found = zlib.decompressobj(-15).decompress(block, limit + 1) if codec == b"deflate" \
            else pa.CompressedInputStream(pa.BufferReader(block), "zstd").read(limit + 1)
    except (zlib.error, OSError):
        raise ValueError("a block cannot be decompressed") from None
    if len(found) > limit:
        raise ValueError("a block is too long")
    return found
