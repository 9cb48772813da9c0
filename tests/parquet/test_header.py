"""BloomFilterHeader."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_bloom.errors import FormatError, UnsupportedError
from secure_bloom.parquet import thrift
from secure_bloom.parquet.header import (
    LONGEST_HEADER,
    MAX_HEADER_SIZE,
    decode_header,
    encode_header,
)
from secure_bloom.parquet.thrift import BINARY, I32, STRUCT, Struct
from secure_bloom.sbbf.sizing import MAX_BYTES
from tests.support import examples

KNOWN = bytes.fromhex("15 8010" + "1c 1c 00 00" * 3 + "00")  # numBytes = 1024, three unions


def header(num_bytes=1024, members=(1, 1, 1)) -> Struct:
    """A header with another size or other members of its unions; None leaves one out."""
    struct = Struct()
    if num_bytes is not None:
        struct.set_int(1, I32, num_bytes)
    for field_id, member in enumerate(members, 2):
        if member is not None:
            fields = [[member, STRUCT, Struct()]] if member else []
            struct.set(field_id, STRUCT, Struct(fields))
    return struct


def test_known_bytes():
    assert encode_header(1024) == KNOWN
    assert decode_header(KNOWN) == (1024, 16)


@pytest.mark.parametrize("num_bytes", [32, 64, 32 * 200, 2**20, MAX_BYTES])
def test_every_size_comes_back(num_bytes):
    data = encode_header(num_bytes)
    assert decode_header(data) == (num_bytes, len(data))
    assert data == thrift.encode(header(num_bytes))


@pytest.mark.parametrize("behind", [b"\0" * 84, b"\xff" * 2000, b"\x15", bytes(10_000)])
def test_bytes_behind_the_header_are_ignored(behind):
    assert decode_header(KNOWN + behind) == (1024, len(KNOWN))
    assert decode_header(memoryview(KNOWN + behind)) == (1024, len(KNOWN))


def test_cut_off_anywhere():
    for size in range(len(KNOWN)):
        with pytest.raises(FormatError, match="truncated"):
            decode_header(KNOWN[:size])


def test_unknown_fields_are_ignored():
    struct = header()
    struct.set_binary(5, b"\xff\xfe not UTF-8")
    struct.set(9, STRUCT, Struct([[1, BINARY, b"\x01x"]]))
    struct.set_int(-3, I32, 7)
    data = thrift.encode(struct)
    assert decode_header(data) == (1024, len(data))


@pytest.mark.parametrize(("field", "name"), [(0, "algorithm"), (1, "hash"), (2, "compression")])
@pytest.mark.parametrize("member", [0, 2, 77])
def test_an_unknown_union_member_is_unsupported(field, name, member):
    members = [1, 1, 1]
    members[field] = member
    with pytest.raises(UnsupportedError, match=name):
        decode_header(thrift.encode(header(members=members)))


@pytest.mark.parametrize(("num_bytes", "members", "name"), [
    (None, (1, 1, 1), "numBytes"), (32, (None, 1, 1), "algorithm"), (32, (1, None, 1), "hash"),
    (32, (1, 1, None), "compression")])
def test_a_missing_field_is_malformed(num_bytes, members, name):
    with pytest.raises(FormatError, match=name):
        decode_header(thrift.encode(header(num_bytes, members)))


def test_a_field_of_another_type_is_missing():
    struct = header()
    struct.set_binary(1, b"1024")
    with pytest.raises(FormatError, match="numBytes"):
        decode_header(thrift.encode(struct))


@pytest.mark.parametrize(("field", "name"), [(2, "algorithm"), (3, "hash"), (4, "compression")])
def test_a_union_of_another_type_is_missing(field, name):
    struct = header()
    struct.set_binary(field, b"x")
    with pytest.raises(FormatError, match=f"lacks {name}"):
        decode_header(thrift.encode(struct))


@pytest.mark.parametrize("fields", [[[1, BINARY, b"\0"]],
                                    [[1, STRUCT, Struct()], [2, STRUCT, Struct()]]],
                         ids=["a member of another type", "two members"])
@pytest.mark.parametrize("field", [2, 3, 4])
def test_a_union_has_one_member_which_is_a_struct(field, fields):
    struct = header()
    struct.set(field, STRUCT, Struct(fields))
    with pytest.raises(UnsupportedError, match="unknown"):
        decode_header(thrift.encode(struct))


@pytest.mark.parametrize("num_bytes", [0, -1, -2**31, 2**31])
def test_an_impossible_size_is_malformed(num_bytes):
    with pytest.raises(FormatError, match="claims"):
        decode_header(thrift.encode(header(num_bytes)))


@pytest.mark.parametrize("num_bytes", [MAX_BYTES + 1, MAX_BYTES + 32, 2**31 - 32, 2**31 - 1])
def test_a_size_that_is_valid_but_too_large_is_unsupported(num_bytes):
    with pytest.raises(UnsupportedError, match="more than the 134,217,728"):
        decode_header(thrift.encode(header(num_bytes)))


@pytest.mark.parametrize("num_bytes", [1, 31, 33, MAX_BYTES - 1])
def test_a_size_of_no_whole_blocks_is_unsupported(num_bytes):
    with pytest.raises(UnsupportedError, match="multiple of 32"):
        decode_header(thrift.encode(header(num_bytes)))


def with_field(field: str) -> bytes:
    """A header with another field at its end, in hex digits."""
    return KNOWN[:-1] + bytes.fromhex(field) + b"\0"


REFUSED = {
    "numBytes twice": with_field("05 02 8010"),
    "algorithm twice": with_field("0c 04 1c0000"),
    "a member twice": bytes.fromhex("15 8010 1c 1c00 0c0200 00") + KNOWN[7:],
    "an unknown field twice": with_field("15 02 05 0a 02"),
    "a field twice in an unknown structure": with_field("1c 15 02 05 02 04 00"),
    "an id of 2**15": with_field("05 808004 02"),
    "an id below -2**15": with_field("05 818004 02"),
    "a chain of ids to 2**15": with_field("05 feff03 02 15 02"),
    "an id of 2**62": with_field("05 80808080808080808001 02"),
    "a stop byte of 16": KNOWN[:-1] + b"\x10",
    "a stop byte of 240 in a member": bytes.fromhex("15 8010 1c 1cf0 00") + KNOWN[7:],
    "a stop byte of 32 in an unknown structure": with_field("1c 20"),
    "a size of 11 bytes": bytes.fromhex("15 80908080808080808080 00") + KNOWN[3:],
    "a type that does not exist": with_field("1f"),
    "elements of no type": with_field("19 20"),
    "elements of a type that does not exist": with_field("19 2e 0000"),
    "2**60 elements of no type": with_field("19 f0 808080808080808010"),
    "2**31 booleans": with_field("19 f1 8080808008"),
    "2**31 entries": with_field("1b 8080808008 33"),
    "2**40 bytes": with_field("18 808080808040"),
    "a map in 70 maps": with_field("1b" + "01 bb" * 70 + "00" * 71),
    "a list in 70 lists": with_field("19" + "19" * 70 + "03"),
    "a structure in 70 structures": with_field("1c" * 70 + "00" * 70),
}


@pytest.mark.parametrize("behind", [b"", bytes(5000), b"\x01" * 5000])
def test_what_the_thrift_package_lets_pass_is_refused(behind):
    """Bytes behind the header are a bitset, which is not taken for the rest of a field."""
    for name, data in REFUSED.items():
        with pytest.raises(FormatError, match="truncated or malformed"):
            pytest.fail(f"{name}: {decode_header(data + behind)}")


ACCEPTED = {
    "ids of 16 bits": with_field("05 feff03 02 05 ffff03 02"),
    "every type": with_field("11 12 13ff 14 7e 15 7e 16 7e 17" + "ff" * 8 + "18 02 c3ff"
                             "19 f1 10" + "02" * 16 + "1a 28 00 01ff 1b 01 1c 01 00 1d"
                             + "ff" * 16),
    "an empty map and an empty list": with_field("1b 00 19 0c"),
    "numBytes last": KNOWN[3:-1].replace(b"\x1c\x1c", b"\x2c\x1c", 1) + b"\x05\x02\x80\x10\0",
    "a structure in 60 structures": with_field("1c" * 60 + "00" * 60),
}


def test_what_else_a_header_has_is_ignored():
    for name, data in ACCEPTED.items():
        assert decode_header(data + bytes(99)) == (1024, len(data)), name


@given(st.binary(max_size=80))
@examples(300)
def test_any_bytes_are_decoded_or_refused(data):
    try:
        num_bytes, size = decode_header(data)
    except (FormatError, UnsupportedError):
        return
    assert 0 < num_bytes <= MAX_BYTES
    assert size <= len(data)


@pytest.mark.parametrize("data", [b"\x1c" * 5000, b"\x19" * 5000, b"\x1a" * 5000,
                                  b"\x1b\x01\xbb" * 2000, b"\x18\xff\xff\xff\xff\x07",
                                  b"\x15" + b"\xff" * 5000, b"\x19\xfc\xff\xff\xff\xff\x07"])
def test_hostile_bytes_are_refused_at_once(data):
    with pytest.raises(FormatError):
        decode_header(data)


def test_a_long_header_is_unsupported():
    struct = header()
    struct.set_binary(9, bytes(MAX_HEADER_SIZE))
    long = thrift.encode(struct)
    with pytest.raises(UnsupportedError, match="the Bloom filter header has 1,043 bytes"):
        decode_header(long + bytes(1024))
    with pytest.raises(FormatError):  # it is cut off
        decode_header(long[:-1])
    struct.set_binary(9, bytes(LONGEST_HEADER))
    with pytest.raises(FormatError):
        decode_header(thrift.encode(struct))
