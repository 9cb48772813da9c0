"""Small structures in Thrift's compact protocol, read and written with the thrift package.

What the package lets pass is refused here: fields that are repeated, ids of more than 16 bits, and
stop bytes that are not zero. Other readers would see other structures in the same bytes. Fields
that are not known are skipped as in a footer, which is strict and takes no memory.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, TypeAlias

from thrift.protocol.TCompactProtocol import CTYPES, TCompactProtocol
from thrift.Thrift import TException, TType
from thrift.transport.TTransport import TMemoryBuffer

from secure_bloom.errors import FormatError
from secure_bloom.parquet.thrift.protocol import MAX_ID, MIN_ID, skip

#: A structure by field ids: integers (i32) and structures. A field of another type is None.
Fields: TypeAlias = "dict[int, int | Fields | None]"


def write(fields: Fields) -> bytes:
    """Return the bytes of a structure."""
    buffer = TMemoryBuffer()
    _write(TCompactProtocol(buffer), fields)
    return bytes(buffer.getvalue())


def read(data: bytes, known: Container[int]) -> tuple[Fields, int]:
    """Read a structure from the start of ``data``; also return where it ends.

    Of the structures in it, those in ``known`` fields are read. The others are skipped, and empty.
    Raises FormatError if the data is truncated or malformed.
    """
    source = _Source(data)
    try:
        return _read(TCompactProtocol(source), known), source.position
    except (EOFError, IndexError):
        raise FormatError("a Thrift structure is truncated") from None
    except (TException, KeyError):  # a type that does not exist is a KeyError
        raise FormatError("a Thrift structure is malformed") from None


class _Source:
    """What the package reads from: never more than there is, whatever the bytes claim."""

    def __init__(self, data: bytes):
        self.data, self.position = data, 0

    def readAll(self, size: int) -> bytes:
        """Return so many of the next bytes; raise EOFError if there are fewer."""
        start, self.position = self.position, self.position + size
        if self.position > len(self.data):
            raise EOFError
        return self.data[start:self.position]


def _write(protocol: Any, fields: Fields) -> None:
    protocol.writeStructBegin("")
    for field_id, value in fields.items():
        if isinstance(value, dict):
            protocol.writeFieldBegin("", TType.STRUCT, field_id)
            _write(protocol, value)
        else:
            protocol.writeFieldBegin("", TType.I32, field_id)
            protocol.writeI32(value)
        protocol.writeFieldEnd()
    protocol.writeFieldStop()
    protocol.writeStructEnd()


def _read(protocol: Any, known: Container[int] = ()) -> Fields:
    fields: Fields = {}
    source: _Source = protocol.trans
    protocol.readStructBegin()
    while True:
        _, type_, field_id = protocol.readFieldBegin()
        if type_ == TType.STOP:
            break
        if field_id in fields:
            raise FormatError(f"Thrift field {field_id} is repeated")
        if not MIN_ID <= field_id <= MAX_ID:
            raise FormatError("a Thrift field id does not fit into 16 bits")
        if type_ == TType.I32:
            fields[field_id] = protocol.readI32()
        elif type_ == TType.STRUCT and field_id in known:
            fields[field_id] = _read(protocol)
        else:
            source.position = skip(source.data, source.position, CTYPES[type_], 0)
            fields[field_id] = {} if type_ == TType.STRUCT else None
        protocol.readFieldEnd()
    if source.data[source.position - 1]:  # the package takes 16, 32 ... for stop bytes, too
        raise FormatError("a Thrift structure ends with an unknown type")
    protocol.readStructEnd()
    return fields
