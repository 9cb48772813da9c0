"""The layer ``headers``: BloomFilterHeader, byte by byte in Thrift's compact protocol.

    15 xx ...   field 1, i32: numBytes, zigzag varint
    1c 1c 00 00 field 2, struct { field 1, struct {} }: algorithm = BLOCK
    1c 1c 00 00 field 3, likewise: hash = XXHASH
    1c 1c 00 00 field 4, likewise: compression = UNCOMPRESSED
    00          end
"""

from __future__ import annotations

from vectors.builder.small import Layer

_UNION = bytes.fromhex("1c1c0000")
_BODY = _UNION * 3 + b"\0"
_NAMES = ("algorithm", "hash", "compression")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _num_bytes(value: int) -> bytes:
    return b"\x15" + _varint((value << 1 ^ value >> 63) & 0xFFFF_FFFF_FFFF_FFFF)


def header(num_bytes: int) -> bytes:
    """The header in its shortest form."""
    return _num_bytes(num_bytes) + _BODY


def headers() -> Layer:
    """Good headers in every form, and one fault at a time."""
    layer = Layer("headers", "vectors/builder/headers.py, from the specification")
    for num_bytes in (32, 64, 1024, 2**20, 2**27):
        layer.add(f"header_encode_{num_bytes}", "encode", {"num_bytes": num_bytes}, "encoded",
                  {"header": header(num_bytes)})
    for name, (data, num_bytes, size) in _good().items():
        layer.add(f"header_{name}", "decode", {"data": data}, "decoded",
                  {"num_bytes": num_bytes, "header_size": size})
    for name, (data, fault) in _malformed().items():
        layer.add(f"header_{name}", "decode", {"data": data}, "malformed", fault=fault)
    for name, (data, fault) in _unsupported().items():
        layer.add(f"header_{name}", "decode", {"data": data}, "unsupported", fault=fault)
    return layer


def _good() -> dict:
    short = header(1024)
    unknown_end = header(64)[:-1] + b"\x18\x03abc" + b"\0"  # field 5, binary
    nested = header(64)[:-1] + bytes.fromhex("1c" "15" "02" "19" "25" "02" "04" "00") + b"\0"
    long_form = (b"\x05\x02\x80\x01" + b"\x0c\x04\x1c\0\0" + b"\x0c\x06\x1c\0\0"
                 + b"\x0c\x08\x1c\0\0\0")
    other_order = (b"\x4c\x1c\0\0" + b"\x0c\x06\x1c\0\0" + b"\x0c\x04\x1c\0\0"
                   + b"\x05\x02\x80\x01\0")
    member_fields = b"\x15\x80\x01" + b"\x1c\x1c\x15\x02\0\0" + _UNION * 2 + b"\0"
    return {
        "32_bytes": (header(32), 32, 15),
        "96_bytes_no_power_of_two": (header(96), 96, 16),
        "128_mib": (header(2**27), 2**27, 19),
        "then_bitset": (short + b"\xff" * 64, 1024, len(short)),
        "then_zeros_to_100_bytes": (short.ljust(100, b"\0"), 1024, len(short)),
        "then_garbage": (short + b"\x15\x02\x7f", 1024, len(short)),
        "unknown_field": (unknown_end, 64, len(unknown_end)),
        "unknown_struct": (nested, 64, len(nested)),
        "long_form_fields": (long_form, 64, len(long_form)),
        "fields_in_other_order": (other_order, 64, len(other_order)),
        "unknown_field_in_member": (member_fields, 64, len(member_fields)),
        "long_varint": (b"\x15\x80\x81\0" + _BODY, 64, 17),
    }


def _malformed() -> dict:
    whole = header(1024)
    bad = {f"cut_after_{size}": (whole[:size], f"{size} of {len(whole)} bytes are present")
           for size in range(len(whole))}
    for num_bytes, what in ((0, "no bytes"), (-1, "a negative number of bytes"),
                            *((size, "a negative number of bytes") for size in (-32, -64, -1024)),
                            (-2**31, "the smallest number")):
        bad[f"claims_{num_bytes}"] = (header(num_bytes), f"claims a bitset of {what}")
    bad["claims_more_than_an_i32"] = (header(2**31 + 32), "claims more than an i32 can hold")
    bad["no_num_bytes"] = (b"\x2c\x1c\0\0" + _UNION * 2 + b"\0", "numBytes is missing")
    for i, name in enumerate(_NAMES):
        unions = [_UNION] * 3
        unions[i] = b""
        if i < 2:
            unions[i + 1] = b"\x2c\x1c\0\0"
        bad[f"no_{name}"] = (_num_bytes(64) + b"".join(unions) + b"\0", f"{name} is missing")
        unions = [_UNION] * 3
        unions[i] = b"\x15\x02"
        bad[f"{name}_is_a_number"] = (_num_bytes(64) + b"".join(unions) + b"\0",
                                      f"{name} is an i32, not a union")
    bad["num_bytes_is_binary"] = (b"\x18\x01\x40" + _BODY, "numBytes is binary, not an i32")
    bad["num_bytes_is_a_struct"] = (b"\x1c\0" + _BODY, "numBytes is a struct, not an i32")
    bad["endless_varint"] = (b"\x15" + b"\xff" * 40, "a varint that does not end")
    bad["string_of_2_gib"] = (header(64)[:-1] + b"\x18" + _varint(2**31 - 1),
                              "an unknown field claims 2 GiB")
    bad["list_of_2_g"] = (header(64)[:-1] + b"\x19\xf3" + _varint(2**31 - 1),
                          "an unknown list claims 2 G bytes")
    bad["unknown_type"] = (header(64)[:-1] + b"\x1e\0", "a field of a type that Thrift has not")
    bad["nested_without_end"] = (header(64)[:-1] + b"\x1c" * 900, "structures that never end")
    bad["ends_with_0x20"] = (header(64)[:-1] + b"\x20",
                             "the last byte is 0x20, but only a zero byte ends a structure")
    bad["zeros"] = (bytes(64), "nothing but zeros")
    bad["ones"] = (b"\xff" * 64, "nothing but ones")
    bad["random"] = (bytes.fromhex("9bd2a7615c30e84f117a"), "random bytes")
    bad["of_1024_as_le32"] = ((1024).to_bytes(4, "little") + bytes(8),
                              "three 32-bit numbers, as before the format was settled")
    return bad


def _unsupported() -> dict:
    bad = {}
    for i, name in enumerate(_NAMES):
        for member, code in ((2, b"\x2c"), (7, b"\x7c")):
            unions = [_UNION] * 3
            unions[i] = b"\x1c" + code + b"\0\0"
            bad[f"{name}_member_{member}"] = (
                _num_bytes(64) + b"".join(unions) + b"\0",
                f"{name} is union member {member}, which the specification does not define")
        unions = [_UNION] * 3
        unions[i] = b"\x1c\0"
        bad[f"{name}_without_member"] = (_num_bytes(64) + b"".join(unions) + b"\0",
                                         f"no member of the union {name} is set")
    for name, member in (("struct", b"\x1c\0"), ("number", b"\x15\x02")):
        bad[f"algorithm_and_a_{name}"] = (
            _num_bytes(64) + b"\x1c\x1c\0" + member + b"\0" + _UNION * 2 + b"\0",
            "the union algorithm has a second member, which the specification does not define")
    for num_bytes, what in ((2**27 + 32, "a block more than 128 MiB"), (2**30, "1 GiB"),
                            (2**31 - 32, "2 GiB")):
        bad[f"claims_{num_bytes}"] = (
            header(num_bytes), f"{what}: a valid size, but more than other readers accept")
    bad["with_2048_unknown_bytes"] = (header(64)[:-1] + b"\x48\x80\x10" + bytes(2048) + b"\0",
                            "an unknown field of 2,048 bytes: valid, but no header needs as many")
    for num_bytes in (1, 31, 33, 1000):
        bad[f"of_{num_bytes}_bytes"] = (
            header(num_bytes), f"{num_bytes} bytes are not a whole number of blocks")
    return bad
