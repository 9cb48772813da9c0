"""BloomFilterHeader (parquet.thrift), in Thrift's compact protocol.

    1: i32 numBytes                            size of the bitset that follows
    2: union algorithm { 1: SplitBlockAlgorithm }
    3: union hash { 1: XxHash }
    4: union compression { 1: Uncompressed }
"""

from __future__ import annotations

from functools import lru_cache

from secure_bloom.crypto.modules import Bytes
from secure_bloom.errors import FormatError, UnsupportedError
from secure_bloom.parquet import thrift
from secure_bloom.parquet.thrift import I32, STRUCT, Layout, Struct
from secure_bloom.sbbf.sizing import BYTES_PER_BLOCK, MAX_BYTES

MAX_HEADER_SIZE = 1024  #: more than any header needs; without unknown fields a header has 15 to 20

_NUM_BYTES = 1
_UNIONS = {2: "algorithm", 3: "hash", 4: "compression"}
_LAYOUT: Layout = {field_id: {} for field_id in _UNIONS}


def encode_header(num_bytes: int) -> bytes:
    """Return the header of a bitset of ``num_bytes`` bytes: split-block, XXH64, uncompressed."""
    first_member = b"\x1c\x00\x00"  # field 1, an empty structure; the end of the union
    return thrift.encode(Struct([[_NUM_BYTES, I32, thrift.encode_int(num_bytes)],
                                 *([field_id, STRUCT, first_member] for field_id in _UNIONS)]))


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
    try:
        header, size = thrift.decode(data, _LAYOUT)
    except FormatError as error:
        raise FormatError("the Bloom filter header is truncated or malformed") from error
    num_bytes = next((thrift.decode_int(value) for field_id, type_, value in header.fields
                      if field_id == _NUM_BYTES and type_ == I32), None)
    unions = {field_id: value for field_id, type_, value in header.fields
              if field_id in _UNIONS and type_ == STRUCT}
    missing = [name for field_id, name in _UNIONS.items() if field_id not in unions]
    if num_bytes is None or missing:
        raise FormatError("the Bloom filter header lacks "
                          + ", ".join((["numBytes"] if num_bytes is None else []) + missing))
    for field_id, name in _UNIONS.items():
        members = [(member, type_) for member, type_, _ in unions[field_id].fields]
        if members != [(1, STRUCT)]:
            raise UnsupportedError(f"the Bloom filter has an unknown {name} (union members "
                                   f"{[member for member, _ in members]})")
    if not 0 < num_bytes <= MAX_BYTES:
        raise FormatError(f"the Bloom filter header claims a bitset of {num_bytes} bytes; 1 to "
                          f"{MAX_BYTES} are allowed")
    if num_bytes % BYTES_PER_BLOCK:
        raise UnsupportedError(f"the bitset has {num_bytes} bytes, which is not a multiple of "
                               f"{BYTES_PER_BLOCK}")
    return num_bytes, size
