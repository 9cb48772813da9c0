"""BloomFilterHeader (parquet.thrift), in Thrift's compact protocol.

    1: i32 numBytes                            size of the bitset that follows
    2: union algorithm { 1: SplitBlockAlgorithm }
    3: union hash { 1: XxHash }
    4: union compression { 1: Uncompressed }
"""

from __future__ import annotations

from functools import lru_cache

from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TException, TType
from thrift.transport.TTransport import TMemoryBuffer

from secure_bloom.crypto.modules import Bytes
from secure_bloom.errors import FormatError, UnsupportedError
from secure_bloom.sbbf.sizing import BYTES_PER_BLOCK, MAX_BYTES

MAX_HEADER_SIZE = 1024  #: more than any header needs; without unknown fields a header has 15 to 20

_UNIONS = {2: "algorithm", 3: "hash", 4: "compression"}


def encode_header(num_bytes: int) -> bytes:
    """Return the header of a bitset of ``num_bytes`` bytes: split-block, XXH64, uncompressed."""
    transport = TMemoryBuffer()
    protocol = TCompactProtocol(transport)
    protocol.writeStructBegin("BloomFilterHeader")
    protocol.writeFieldBegin("numBytes", TType.I32, 1)
    protocol.writeI32(num_bytes)
    protocol.writeFieldEnd()
    for field_id, name in _UNIONS.items():
        protocol.writeFieldBegin(name, TType.STRUCT, field_id)
        _write_union(protocol)
        protocol.writeFieldEnd()
    protocol.writeFieldStop()
    protocol.writeStructEnd()
    return transport.getvalue()


def decode_header(data: Bytes) -> tuple[int, int]:
    """Return the size of the bitset, and of the header itself, both in bytes.

    Bytes after the header are ignored: the bitset, or zeros that pad an encrypted header.

    Raises
    ------
    FormatError
        If the header is truncated, malformed, or specifies an invalid bitset size.
    UnsupportedError
        If the header is valid but specifies an algorithm, hash or compression other than the ones
        above, or a bitset that is not a whole number of blocks: such a filter cannot be used here.
    """
    data = bytes(data[:MAX_HEADER_SIZE])
    # Most decrypted headers equal an earlier one; longer data includes a part of the bitset.
    return _decode(data) if len(data) <= 64 else _decode.__wrapped__(data)


@lru_cache(maxsize=64)
def _decode(data: bytes) -> tuple[int, int]:
    transport = TMemoryBuffer(data)
    protocol = _Protocol(transport, string_length_limit=MAX_HEADER_SIZE,
                         container_length_limit=MAX_HEADER_SIZE)
    try:
        num_bytes, unions = _read_fields(protocol)
    except (EOFError, TException, AssertionError, ValueError, KeyError, IndexError):
        raise FormatError("the Bloom filter header is truncated or malformed") from None
    missing = [name for field_id, name in _UNIONS.items() if field_id not in unions]
    if num_bytes is None or missing:
        raise FormatError("the Bloom filter header lacks "
                          + ", ".join((["numBytes"] if num_bytes is None else []) + missing))
    for field_id, name in _UNIONS.items():
        if unions[field_id] != 1:
            raise UnsupportedError(f"the Bloom filter has an unknown {name} "
                                   f"(union member {unions[field_id]})")
    if not 0 < num_bytes <= MAX_BYTES:
        raise FormatError(f"the Bloom filter header claims a bitset of {num_bytes} bytes; 1 to "
                          f"{MAX_BYTES} are allowed")
    if num_bytes % BYTES_PER_BLOCK:
        raise UnsupportedError(f"the bitset has {num_bytes} bytes, which is not a multiple of "
                               f"{BYTES_PER_BLOCK}")
    return num_bytes, transport.cstringio_buf.tell()


class _Protocol(TCompactProtocol):  # type: ignore[misc]  # Thrift has no types
    def readString(self) -> bytes:
        return self.readBinary()  # an unknown field that is skipped need not be UTF-8


def _write_union(protocol: TCompactProtocol) -> None:
    """Write a union with its first member, an empty structure."""
    protocol.writeStructBegin("")
    protocol.writeFieldBegin("", TType.STRUCT, 1)
    protocol.writeStructBegin("")
    protocol.writeFieldStop()
    protocol.writeStructEnd()
    protocol.writeFieldEnd()
    protocol.writeFieldStop()
    protocol.writeStructEnd()


def _read_fields(protocol: TCompactProtocol) -> tuple[int | None, dict[int, int]]:
    """Read numBytes, and for each union the id of the member that is set (0: none)."""
    num_bytes, unions = None, {}
    protocol.readStructBegin()
    while True:
        _, type_, field_id = protocol.readFieldBegin()
        if type_ == TType.STOP:
            break
        if field_id == 1 and type_ == TType.I32:
            num_bytes = protocol.readI32()
        elif field_id in _UNIONS and type_ == TType.STRUCT:
            unions[field_id] = _read_union(protocol)
        else:
            protocol.skip(type_)
        protocol.readFieldEnd()
    protocol.readStructEnd()
    return num_bytes, unions


def _read_union(protocol: TCompactProtocol) -> int:
    member = 0
    protocol.readStructBegin()
    while True:
        _, type_, field_id = protocol.readFieldBegin()
        if type_ == TType.STOP:
            break
        member = member or field_id
        protocol.skip(type_)
        protocol.readFieldEnd()
    protocol.readStructEnd()
    return member
