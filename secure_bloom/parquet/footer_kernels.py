"""Numba kernels for large footers: see :mod:`secure_bloom.parquet.compiled_footers`.

They never read beyond the bytes passed.
"""

from __future__ import annotations

import numpy as np
from numba import types

from secure_bloom.kernels.compiling import kernel, part_of_kernel
from secure_bloom.kernels.simd import stack_array
from secure_bloom.parquet.thrift.protocol import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    MAP,
    MAX_DEPTH,
    MAX_ID,
    MIN_ID,
    SET,
    STRUCT,
    TRUE,
    UUID,
)

_META_DATA, _CRYPTO_META_DATA, _ENCRYPTED_META_DATA = 3, 8, 9  # ColumnChunk
_BLOOM_OFFSET, _BLOOM_LENGTH = 14, 15  # ColumnMetaData
_INT = np.int64  # with uint64, numba would convert numbers to floats
_DEPTH = MAX_DEPTH + 1  # of containers around a value, as _skip uses them
_stack_of_types = stack_array(types.uint8, _DEPTH)
_stack_of_counts = stack_array(types.int64, _DEPTH)
_NO_ID = MIN_ID - 1  # before the first field of a structure
_stack_of_ids = stack_array(types.int64, _DEPTH)


@part_of_kernel
def _varint(data, position):
    """Return the value of a varint of up to 10 bytes and the position after it; -1 if invalid."""
    value = np.uint64(0)
    for shift in range(0, 70, 7):
        if position >= len(data):
            return value, -1
        byte = _INT(data[position])
        position += 1
        value |= np.uint64(byte & 0x7F) << np.uint64(shift)
        if byte < 0x80:
            return value, position
    return value, -1


@part_of_kernel
def _after_bytes(data, position):
    """Return the position after a length and that many bytes."""
    size, position = _varint(data, position)
    if position < 0 or size > np.uint64(len(data) - position):
        return -1
    return position + _INT(size)


@part_of_kernel
def _after_simple(data, position, type_):
    """Return the position after a value without nested values; -1 if truncated or unknown."""
    if I16 <= type_ <= I64:
        while position < len(data) and data[position] >= 0x80:
            position += 1
        position += 1
    elif type_ == BINARY:
        position = _after_bytes(data, position)
    elif type_ == BYTE:
        position += 1
    elif type_ == DOUBLE:
        position += 8
    elif type_ == UUID:
        position += 16
    elif type_ not in (TRUE, FALSE):
        return -1
    return position if position <= len(data) else -1


@part_of_kernel
def _enter(data, position, type_):
    """Return the start of a list, set or map: position, alternating element types, and count."""
    if position >= len(data):
        return -1, 0, 0, 0
    if type_ == MAP:
        size, position = _varint(data, position)
        kinds = 0
        if position >= 0 and size > np.uint64(0):
            if size > np.uint64(len(data) - position) or position >= len(data):
                return -1, 0, 0, 0
            kinds = _INT(data[position])
            position += 1
        return position, _element(kinds >> 4), _element(kinds & 15), 2 * _INT(size)
    kind = _element(_INT(data[position]) & 15)
    size = np.uint64(data[position] >> 4)
    position += 1
    if size == np.uint64(15):
        size, position = _varint(data, position)
    if position < 0 or size > np.uint64(len(data) - position):
        return -1, 0, 0, 0
    return position, kind, kind, _INT(size)


@part_of_kernel
def _element(type_):
    """Return the type of such a value inside a list, where booleans take a byte."""
    return BYTE if type_ in (TRUE, FALSE) else type_


@part_of_kernel
def _field(data, position):
    """Return a field header: id delta (0 if an id follows), type (0 at the end), position after it.

    The position is -1 if there is no valid header.
    """
    if position >= len(data):
        return 0, 0, -1
    header = _INT(data[position])
    if header != 0 and header & 15 == 0:
        return 0, 0, -1
    return header >> 4, header & 15, position + 1


@part_of_kernel
def _spelled_id(data, position, last):
    """Return an id that follows a field header, and the position after it; -1 if it is invalid, or
    not greater than the last one.
    """
    raw, position = _varint(data, position)
    number = _INT(raw >> np.uint64(1)) ^ -_INT(raw & np.uint64(1))
    if not last < number <= MAX_ID:
        position = -1
    return number, position


@part_of_kernel
def _skip(data, position, type_, first, second, left, ids):
    """Return the position after a value.

    The arrays hold the containers around the current value: the types of their elements in turn,
    and how many are left; -1 for a structure, and the id of its last field. Common cases are
    inlined: a function call would take three times as long.
    """
    depth = 0
    while True:
        if position < 0 or (depth > MAX_DEPTH and type_ in (STRUCT, LIST, SET, MAP)):
            return -1
        if type_ == STRUCT:
            left[depth] = -1
            ids[depth] = _NO_ID
            depth += 1
        elif type_ in (LIST, SET, MAP):
            position, first[depth], second[depth], left[depth] = _enter(data, position, type_)
            depth += 1
        elif type_ == BINARY and position < len(data) and data[position] < 0x80:
            position += 1 + _INT(data[position])
        else:
            position = _after_simple(data, position, type_)
        type_ = 0
        while type_ == 0:
            if not 0 <= position <= len(data):
                return -1
            if depth == 0:
                return position
            remaining = left[depth - 1]
            if remaining == 0:
                depth -= 1
            elif remaining > 0:
                type_ = _INT(second[depth - 1] if remaining & 1 else first[depth - 1])
                left[depth - 1] = remaining - 1
                if type_ == 0:
                    return -1
            else:
                header = _INT(data[position]) if position < len(data) else 1
                number = ids[depth - 1]
                while header >= 0x10 and I16 <= header & 15 <= I64:
                    number = (header >> 4) + (0 if number == _NO_ID else number)
                    position += 1
                    while position < len(data) and data[position] >= 0x80:
                        position += 1
                    position += 1
                    header = _INT(data[position]) if position < len(data) else 1
                type_ = header & 15
                position += 1
                if header == 0:
                    depth -= 1
                elif type_ == 0:
                    return -1
                elif header < 0x10:
                    number, position = _spelled_id(data, position, number)
                else:
                    number = (header >> 4) + (0 if number == _NO_ID else number)
                if number > MAX_ID:
                    return -1
                if header != 0:
                    ids[depth - 1] = number


@kernel
def struct_ends(data, position, ends):
    """Find the end of each of ``ends.size`` consecutive structures that begin at a position.

    ``ends`` (int64) receives the positions; the last one is -1 if anything is invalid.
    """
    first, second = _stack_of_types(), _stack_of_types()
    left, ids = _stack_of_counts(), _stack_of_ids()
    for i in range(ends.size):
        end = _skip(data, position, STRUCT, first, second, left, ids)
        if end <= position:
            ends[-1] = -1
            return 0
        position = ends[i] = end
    return 0


@kernel
def fields(data, table):
    """Find the fields of one structure.

    Parameters
    ----------
    data : bytes
        Begins with the structure.
    table : int64 array, shape (n, 4)
        Receives id, type, start and end of each field.

    Returns
    -------
    int
        The number of fields; -1 if anything is invalid, there are more than n fields, or they are
        not ordered by id. The structure ends one byte after its last field.
    """
    first, second = _stack_of_types(), _stack_of_types()
    left, ids = _stack_of_counts(), _stack_of_ids()
    position = number = 0
    for i in range(table.shape[0]):
        delta, type_, start = _field(data, position)
        if type_ == 0 and start >= 0:
            return i
        if start < 0 or delta == 0:
            break
        number += delta
        position = _skip(data, start, type_, first, second, left, ids)
        if position < 0:
            break
        table[i] = number, type_, start, position
    return -1


@part_of_kernel
def _copy(data, start, stop, out, at):
    for i in range(start, stop):
        out[at] = data[i]
        at += 1
    return at


@part_of_kernel
def _put(out, at, value):
    """Write a positive integer as a zigzag varint."""
    value = np.uint64(value) << np.uint64(1)
    while value > np.uint64(0x7F):
        out[at] = np.uint8(value & np.uint64(0x7F)) | np.uint8(0x80)
        value >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(value)
    return at + 1


@part_of_kernel
def _fields_around(data, position, first, second, left, ids):
    """Find what precedes and follows the position of a Bloom filter in a ColumnMetaData.

    Returns the end of the last field before it and its id, the start of the first field after it,
    its id and type (0 if there is none), and the end of the structure; -1 if anything is invalid
    or fields are not ordered by id.
    """
    before, last, behind, following, kind, number = position, 0, -1, 0, 0, 0
    while True:
        header = _INT(data[position]) if position < len(data) else 1
        type_ = header & 15
        if header != 0 and (header < 0x10 or type_ == 0):
            return -1, 0, 0, 0, 0, 0
        number += header >> 4
        if number > MAX_ID:
            return -1, 0, 0, 0, 0, 0
        if behind < 0 and (header == 0 or number > _BLOOM_LENGTH):
            behind, following, kind = position, number, type_
        position += 1
        if header == 0:
            return before, last, behind, following, kind, position
        if I16 <= type_ <= I64:  # as _skip does, avoiding most calls
            while position < len(data) and data[position] >= 0x80:
                position += 1
            position += 1
        else:
            position = _skip(data, position, type_, first, second, left, ids)
            if position < 0:
                return -1, 0, 0, 0, 0, 0
        if number < _BLOOM_OFFSET:
            before, last = position, number


@part_of_kernel
def _with_bloom_filter(data, position, end, offset, length, out, at, first, second, left, ids):
    """Copy the ColumnChunk between two positions; returns the position after the copy, or -1."""
    begin, number = position, 0
    before = last = behind = following = kind = -1
    while True:
        delta, type_, start = _field(data, position)
        if start < 0 or (delta == 0 and type_ != 0):
            return -1
        if type_ == 0:
            break
        number += delta
        if number > MAX_ID or number in (_CRYPTO_META_DATA, _ENCRYPTED_META_DATA):
            return -1
        if number == _META_DATA and type_ == STRUCT:
            before, last, behind, following, kind, position = _fields_around(
                data, start, first, second, left, ids)
            if before < 0:
                return -1
        else:
            position = _skip(data, start, type_, first, second, left, ids)
            if position < 0:
                return -1
    if start != end or not begin <= before <= behind < end:
        return -1  # never write beyond the space requested
    at = _copy(data, begin, before, out, at)
    out[at] = (_BLOOM_OFFSET - last) << 4 | I64
    at = _put(out, at + 1, offset)
    out[at] = 1 << 4 | I32
    at = _put(out, at + 1, length)
    if kind != 0:
        out[at] = (following - _BLOOM_LENGTH) << 4 | kind
        at += 1
        behind += 1
    return _copy(data, behind, end, out, at)


@kernel
def with_bloom_filters(data, bounds, places, out, ends):
    """Write column chunks with the positions of their Bloom filters.

    Parameters
    ----------
    data : bytes
        ColumnChunks of plaintext columns, without crypto metadata, stored consecutively.
    bounds : int64 array, shape (n + 1,)
        Where each begins, and where the last one ends.
    places : int64 array, shape (n, 2)
        Offset and length of each filter; a column chunk with a negative offset is only copied.
    out : uint8 array
        Receives the new bytes, at most 32 more per chunk than the old ones.
    ends : int64 array, shape (n,)
        Receives the end of each chunk; -1 for anything that is not such a column chunk, for which
        no bytes are written.
    """
    first, second = _stack_of_types(), _stack_of_types()
    left, ids = _stack_of_counts(), _stack_of_ids()
    at = 0
    for i in range(ends.size):
        if places[i, 0] < 0:
            ends[i] = _copy(data, bounds[i], bounds[i + 1], out, at)
        else:
            ends[i] = _with_bloom_filter(data, bounds[i], bounds[i + 1], places[i, 0],
                                         places[i, 1], out, at, first, second, left, ids)
        at = max(at, ends[i])
    return 0
