"""Avro files for tests, byte by byte."""

import json

SYNC = b"S" * 16


def long(value: int) -> bytes:
    """Encode an int or a long."""
    value, encoded = (value << 1) ^ (value >> 63), b""
    while value > 0x7F:
        encoded, value = encoded + bytes([value & 0x7F | 0x80]), value >> 7
    return encoded + bytes([value])


def binary(value: bytes) -> bytes:
    """Encode bytes or a string."""
    return long(len(value)) + value


def field(name: str, id_: int, type_) -> dict:
    """Return a field of a record's schema."""
    return {"name": name, "type": type_, "field-id": id_}


def avro_file(schema, *blocks: tuple[int, bytes], codec: bytes = b"null") -> bytes:
    """Return a file with blocks, each of a number of records."""
    header = {b"avro.schema": json.dumps(schema).encode(), b"avro.codec": codec}
    return b"Obj\x01" + long(len(header)) + b"".join(
        binary(name) + binary(value) for name, value in header.items()) + long(0) + SYNC \
        + b"".join(long(number) + binary(data) + SYNC for number, data in blocks)
