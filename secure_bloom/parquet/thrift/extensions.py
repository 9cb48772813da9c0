"""Extensions: bytes of any meaning, which each structure of Parquet's metadata may have.

The format reserves field 32767 of all structures for them (BinaryProtocolExtensions.md). One may
be a footer in another encoding, with all statistics.
"""

from __future__ import annotations

import re

from secure_bloom.errors import FormatError
from secure_bloom.parquet.thrift.protocol import (
    LIST,
    MAX_DEPTH,
    SET,
    STRUCT,
    read_id,
    read_list_header,
    skip,
)

_EXTENSION = 32767
_MARK = re.compile(rb"[\xe0-\xfe]\xff\x03")  # its id as a zigzag varint, or up to 15 less


def may_have_extensions(data: bytes) -> bool:
    """Whether a structure may have extensions; False is certain where ids are stored as usual.

    Their id is far from any other, so it is spelled out, unless a chain of fields leads to it.
    """
    return _MARK.search(data) is not None


def without_extensions(data: bytes) -> bytes:
    """Return a structure without extensions at any depth.

    Raises FormatError if the data is not a valid structure, and nothing else.
    """
    if not may_have_extensions(data):
        return data
    found: list[tuple[int, int]] = []
    try:
        _find_in_struct(data, 0, found, 0)
    except IndexError:
        raise FormatError("a Thrift structure is truncated") from None
    parts, position = [], 0
    for start, stop in found:
        parts.append(data[position:start])
        position = stop
    return b"".join([*parts, data[position:]])


def _find_in_struct(data: bytes, position: int, found: list[tuple[int, int]], depth: int) -> int:
    """Add where the extensions of a structure are; return where it ends."""
    field_id = 0
    while header := data[position]:
        start, type_ = position, header & 0x0F
        position += 1
        if header >> 4:
            if field_id == _EXTENSION:
                raise FormatError("a Thrift field id is too large")
            field_id += header >> 4
        else:
            field_id, position = read_id(data, position)
        if field_id == _EXTENSION:
            position = skip(data, position, type_, depth)
            found.append((start, position))
        else:
            position = _find_in_value(data, position, type_, found, depth)
    return position + 1


def _find_in_value(data: bytes, position: int, type_: int, found: list[tuple[int, int]],
                   depth: int) -> int:
    if depth > MAX_DEPTH:
        raise FormatError(f"Thrift structures are nested deeper than {MAX_DEPTH}")
    if type_ == STRUCT:
        return _find_in_struct(data, position, found, depth + 1)
    if type_ in (LIST, SET):
        size, element, first = read_list_header(data, position)
        if element in (STRUCT, LIST, SET):
            for _ in range(size):
                first = _find_in_value(data, first, element, found, depth + 1)
            return first
    return skip(data, position, type_, depth)
