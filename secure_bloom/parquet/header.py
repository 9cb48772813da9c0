"""BloomFilterHeader (parquet.thrift), in Thrift's compact protocol.

    1: i32 numBytes                            size of the bitset that follows
    2: union algorithm { 1: SplitBlockAlgorithm }
    3: union hash { 1: XxHash }
    4: union compression { 1: Uncompressed }
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from secure_bloom.crypto.modules import Bytes
from secure_bloom.errors import FormatError, UnsupportedError
from secure_bloom.parquet import strict_thrift
from secure_bloom.sbbf.sizing import BYTES_PER_BLOCK, MAX_BYTES

MAX_HEADER_SIZE = 1024  #: more than any header needs; without unknown fields a header has 15 to 20
#: whose end is looked for; a module of this size cannot be mistaken for a plaintext header
LONGEST_HEADER = 32 * 1024

_NUM_BYTES = 1
_UNIONS = {2: "algorithm", 3: "hash", 4: "compression"}


@lru_cache(maxsize=64)
def encode_header(num_bytes: int) -> bytes:
    """Return the header of a bitset of ``num_bytes`` bytes: split-block, XXH64, uncompressed."""
    first_member: strict_thrift.Fields = {1: {}}
    return strict_thrift.write({_NUM_BYTES: num_bytes, **dict.fromkeys(_UNIONS, first_member)})


@dataclass(frozen=True, slots=True)
class Header:
    """What a header says.

    ``num_bytes`` is the size of the bitset, and ``size`` that of the header, in bytes. ``obstacle``
    says why this valid header belongs to a filter that cannot be used here; None if it can. Where
    the algorithm, hash or compression is not known, ``length`` of header and bitset is None.
    """

    num_bytes: int
    size: int
    obstacle: str | None = None
    length: int | None = None


def decode_header(data: Bytes) -> tuple[int, int]:
    """Return the size of the bitset, and of the header itself, both in bytes.

    Bytes after the header are ignored: the bitset, or zeros that pad an encrypted header.

    Raises
    ------
    FormatError
        If the header is truncated, malformed, or specifies an invalid bitset size.
    UnsupportedError
        If the header is valid, but the filter cannot be used here: it has an algorithm, hash or
        compression other than the ones above, a bitset that is not a whole number of blocks or has
        more than 128 MiB, or a header of more than 1,024 bytes.
    """
    return usable(parse_header(lambda size: data[:size]))


def usable(header: Header) -> tuple[int, int]:
    """Return the sizes of bitset and header; raise UnsupportedError if there is an obstacle."""
    if header.obstacle is not None:
        raise UnsupportedError(header.obstacle)
    return header.num_bytes, header.size


def parse_header(peek: Callable[[int], Bytes]) -> Header:
    """Parse the header with which some bytes begin, also of a filter that cannot be used.

    ``peek`` returns up to so many of the bytes. Only for a long header, more than
    :data:`MAX_HEADER_SIZE` are requested. Raises FormatError as :func:`decode_header` does.
    """
    head = bytes(peek(MAX_HEADER_SIZE))
    if len(head) < MAX_HEADER_SIZE:
        # Most decrypted headers equal an earlier one; longer data includes a part of the bitset.
        return _parse(head) if len(head) <= 64 else _parse.__wrapped__(head)
    try:
        found = strict_thrift.read(head, _UNIONS)
    except FormatError:  # is it longer?
        header = _parse.__wrapped__(bytes(peek(LONGEST_HEADER)))
        return replace(header, obstacle=f"the Bloom filter header has {header.size:,} bytes, more "
                                        f"than the {MAX_HEADER_SIZE:,} that are read here")
    return _header(*found)


@lru_cache(maxsize=64)
def _parse(data: bytes) -> Header:
    try:
        found = strict_thrift.read(data, _UNIONS)
    except FormatError as error:
        raise FormatError("the Bloom filter header is truncated or malformed") from error
    return _header(*found)


def _header(fields: strict_thrift.Fields, size: int) -> Header:
    num_bytes = fields.get(_NUM_BYTES)
    unions = {field_id: union for field_id in _UNIONS
              if isinstance(union := fields.get(field_id), dict)}
    missing = [name for field_id, name in _UNIONS.items() if field_id not in unions]
    if not isinstance(num_bytes, int):
        missing.insert(0, "numBytes")
    if not isinstance(num_bytes, int) or missing:
        raise FormatError(f"the Bloom filter header lacks {', '.join(missing)}")
    if not 0 < num_bytes < 2**31:
        raise FormatError(f"the Bloom filter header claims a bitset of {num_bytes} bytes")
    for field_id, name in _UNIONS.items():
        union = unions[field_id]
        if len(union) != 1 or not isinstance(union.get(1), dict):
            return Header(num_bytes, size, f"the Bloom filter has an unknown {name} (union members "
                                           f"{list(union)})")
    obstacle = None
    if num_bytes > MAX_BYTES:
        obstacle = (f"the bitset has {num_bytes:,} bytes, more than the {MAX_BYTES:,} that are "
                    "read here")
    elif num_bytes % BYTES_PER_BLOCK:
        obstacle = (f"the bitset has {num_bytes} bytes, which is not a multiple of "
                    f"{BYTES_PER_BLOCK}")
    return Header(num_bytes, size, obstacle, size + num_bytes)
