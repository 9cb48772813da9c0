"""The Thrift compact protocol: encoded values and their lengths.

Layout of the protocol, as far as it is used here (Thrift, "thrift-compact-protocol.md"):

    field header   1 byte: id delta (4 bits) and type (4 bits); delta 0: a zigzag varint id follows
    booleans       the type holds the value (1 true, 2 false); one byte each inside a list
    integers       zigzag varints; BYTE is one byte; DOUBLE is 8 bytes; UUID 16
    binary         varint length, bytes
    list, set      1 byte: size (4 bits) and type (4 bits); size 15: a varint size follows
    map            varint size; if not 0, 1 byte: key type and value type
    struct         fields, then a zero byte
"""

from __future__ import annotations

import numpy as np

from secure_bloom.errors import FormatError

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)

MAX_DEPTH = 64  #: of a value that is not decoded
MIN_ID, MAX_ID = -1 << 15, (1 << 15) - 1  #: of a field: other libraries wrap others to 16 bits
_LONGEST_VARINT = 10  # bytes of 64 bits
_FIXED_SIZE = {BYTE: 1, DOUBLE: 8, UUID: 16}


def decode_int(raw: bytes) -> int:
    """Return the value of a zigzag varint."""
    try:
        value, _ = read_varint(raw, 0)
    except IndexError:
        raise FormatError("a Thrift integer is truncated") from None
    return (value >> 1) ^ -(value & 1)


def encode_int(value: int) -> bytes:
    """Encode an integer as a zigzag varint."""
    return encode_varint((value << 1) ^ (value >> 63))


def decode_binary(raw: bytes) -> bytes:
    """Return the value of a length-prefixed binary."""
    try:
        start, end = binary_bounds(raw, 0)
    except IndexError:
        raise FormatError("a Thrift binary is truncated") from None
    return bytes(raw[start:end])


def decode_binaries(raw: bytes) -> list[bytes]:
    """Return the values of a list of length-prefixed binaries."""
    found = []
    try:
        size, type_, position = read_list_header(raw, 0)
        if type_ != BINARY:
            raise FormatError("a Thrift list has elements of another type")
        for _ in range(size):
            start, position = binary_bounds(raw, position)
            found.append(bytes(raw[start:position]))
    except IndexError:
        raise FormatError("a Thrift list is truncated") from None
    return found


def decode_integers(raw: bytes) -> np.ndarray:
    """Return the values of a list of I16, I32 or I64, as int64."""
    try:
        size, type_, position = read_list_header(raw, 0)
    except IndexError:
        raise FormatError("a Thrift list is truncated") from None
    if not I16 <= type_ <= I64:
        raise FormatError("a Thrift list has elements of another type")
    found = decode_varints(raw[position:])
    if len(found) != size:
        raise FormatError("a Thrift list has another length than it says")
    return signed(found)


def decode_varints(data: bytes) -> np.ndarray:
    """Return unsigned varints, one behind the other, as uint64, shape (n,).

    Raises FormatError if the last one is truncated, or one is longer than 10 bytes.
    """
    octets = np.frombuffer(data, np.uint8)
    if not len(octets):
        return np.zeros(0, np.uint64)
    if octets[-1] >= 0x80:
        raise FormatError("a Thrift integer is truncated")
    ends = np.flatnonzero(octets < 0x80) + 1
    starts = np.concatenate([[0], ends[:-1]])
    lengths = ends - starts
    if lengths.max() > _LONGEST_VARINT:
        raise FormatError("a Thrift varint is longer than 10 bytes")
    places = np.arange(len(octets)) - np.repeat(starts, lengths)
    return np.add.reduceat((octets & 0x7F).astype(np.uint64) << (7 * places).astype(np.uint64),
                           starts)


def signed(values: np.ndarray) -> np.ndarray:
    """Return what unsigned varints stand for in zigzag encoding, as int64."""
    return (values >> np.uint64(1)).astype(np.int64) ^ -(values & np.uint64(1)).astype(np.int64)


def decode_booleans(raw: bytes) -> list[bool]:
    """Return the values of a list of booleans, of which each is a byte."""
    try:
        size, type_, position = read_list_header(raw, 0)
    except IndexError:
        raise FormatError("a Thrift list is truncated") from None
    if type_ not in (TRUE, FALSE):
        raise FormatError("a Thrift list has elements of another type")
    return [byte == 1 for byte in raw[position:position + size]]


def encode_varint(value: int) -> bytes:
    """Encode an unsigned varint."""
    out = bytearray()
    value &= 0xFFFFFFFFFFFFFFFF
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return an unsigned varint, and where it ends."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return byte, position
    value = byte & 0x7F
    for shift in range(7, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
    raise FormatError("a Thrift varint is longer than 10 bytes")


def read_id(data: bytes, position: int) -> tuple[int, int]:
    """Return the id of a field that is spelled out after its header, and where it ends."""
    raw, position = read_varint(data, position)
    field_id = (raw >> 1) ^ -(raw & 1)
    if not MIN_ID <= field_id <= MAX_ID:
        raise FormatError("a Thrift field id does not fit into 16 bits")
    return field_id, position


def binary_bounds(data: bytes, position: int) -> tuple[int, int]:
    """Return where the bytes of a binary begin, and where they end."""
    size, start = read_varint(data, position)
    end = start + size
    if end > len(data):
        raise FormatError(f"a Thrift binary claims {size} bytes, but {len(data) - start} are left")
    return start, end


def read_list_header(data: bytes, position: int) -> tuple[int, int, int]:
    """Return number and type of the elements of a list, and where they begin."""
    header = data[position]
    size, position = header >> 4, position + 1
    if size == 15:
        size, position = read_varint(data, position)
    if size > len(data) - position:  # every element takes at least one byte
        raise FormatError(f"a Thrift list claims {size} elements, but {len(data) - position} "
                          "bytes are left")
    return size, header & 0x0F, position


def end_of_struct(data: bytes) -> int:
    """Return where the structure at the start of the data ends, without decoding it.

    Raises FormatError as :func:`decode` does.
    """
    try:
        return skip_struct(data, 0, 1)
    except IndexError:
        raise FormatError("a Thrift structure is truncated") from None


def skip(data: bytes, position: int, type_: int, depth: int) -> int:
    """Return the position after a value; raise if the value extends beyond the data."""
    if I16 <= type_ <= I64:
        return _skip_integers(data, position, 1)
    if type_ == BINARY:
        return binary_bounds(data, position)[1]
    if type_ in (TRUE, FALSE):
        return position
    if depth > MAX_DEPTH:
        raise FormatError(f"Thrift structures are nested deeper than {MAX_DEPTH}")
    if type_ == STRUCT:
        return skip_struct(data, position, depth + 1)
    if type_ in (LIST, SET):
        size, element, position = read_list_header(data, position)
        if I16 <= element <= I64:
            return _skip_integers(data, position, size)
        return _skip_elements(data, position, size, (element,), depth + 1)
    if type_ == MAP:
        size, position = read_varint(data, position)
        if size == 0:
            return position
        if size > len(data) - position:
            raise FormatError(f"a Thrift map claims {size} entries")
        kinds = data[position]
        return _skip_elements(data, position + 1, size, (kinds >> 4, kinds & 0x0F), depth + 1)
    if type_ in _FIXED_SIZE:
        end = position + _FIXED_SIZE[type_]
        if end > len(data):
            raise FormatError("a Thrift value is truncated")
        return end
    raise FormatError(f"unknown Thrift type {type_}")


def _skip_integers(data: bytes, position: int, size: int) -> int:
    for _ in range(size):
        while data[position] >= 0x80:
            position += 1
        position += 1
    return position


def _skip_elements(data: bytes, position: int, size: int, types: tuple[int, ...], depth: int) \
        -> int:
    if types == (STRUCT,) and depth <= MAX_DEPTH:
        for _ in range(size):
            position = skip_struct(data, position, depth + 1)
        return position
    types = tuple(BYTE if type_ in (TRUE, FALSE) else type_ for type_ in types)
    for _ in range(size):
        for type_ in types:
            position = skip(data, position, type_, depth)
    return position


def skip_struct(data: bytes, position: int, depth: int) -> int:
    """Skip as :func:`skip`, with common types inlined: large footers spend most time here.

    A short binary that extends beyond the data is detected when the next field is read.
    The ids must ascend, as every writer stores them: so none is repeated.
    """
    field_id, first = 0, position
    while True:
        header = data[position]
        position += 1
        if header >= 0x10:
            field_id += header >> 4
        elif header:
            begin, last = position, field_id
            field_id, position = read_id(data, position)
            if field_id <= last and begin > first + 1:
                raise FormatError(f"Thrift field {field_id} is repeated, or follows {last}")
        else:
            if field_id > MAX_ID:
                raise FormatError("a Thrift field id does not fit into 16 bits")
            return position
        type_ = header & 0x0F
        if I16 <= type_ <= I64:
            while data[position] >= 0x80:
                position += 1
            position += 1
        elif type_ == BINARY and data[position] < 0x80:
            position += 1 + data[position]
        else:
            position = skip(data, position, type_, depth)


def encode_list_header(size: int) -> bytes:
    """Encode the header of a list of ``size`` structures."""
    if size < 15:
        return bytes([size << 4 | STRUCT])
    return bytes([0xF0 | STRUCT]) + encode_varint(size)
