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
