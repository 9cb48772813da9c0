"""What is stored at the offset of a Bloom filter: recognised without a key, read with care."""

import pytest

from secure_bloom.crypto.modules import OVERHEAD
from secure_bloom.errors import FormatError
from secure_bloom.parquet.bloom_filter import (
    ENCRYPTED,
    PLAIN,
    UNKNOWN,
    StoredFilter,
    _FilterBytes,
    detect_filter,
)
from secure_bloom.parquet.header import LONGEST_HEADER, encode_header
from secure_bloom.sbbf.sizing import MAX_BYTES

HEADER = encode_header(64)


class Stored:
    """Bytes that are read as those of a file."""

    def __init__(self, data: bytes):
        self.data = data

    def read_at(self, nbytes: int, offset: int) -> bytes:
        return self.data[offset:offset + nbytes]


def module(length: int) -> bytes:
    """Return the beginning of a module of so many bytes; the rest follows as 0xff."""
    return (length - 4).to_bytes(4, "little") + b"\xff" * (length - 4)


def detected(data: bytes, more: int = 0) -> StoredFilter:
    return detect_filter(Stored(b"PAR1" + data), 4, 4 + len(data) + more)


def test_a_plaintext_filter_is_recognised():
    assert detected(HEADER + bytes(64)) == StoredFilter(PLAIN, len(HEADER) + 64)


def test_an_encrypted_filter_is_recognised_with_its_size():
    header, bitset = OVERHEAD + len(HEADER), OVERHEAD + 64
    assert detected(module(header) + module(bitset)) == StoredFilter(ENCRYPTED, header + bitset)


@pytest.mark.parametrize("data", [
    b"\xff" * 64,                                              # no module begins here
    module(OVERHEAD - 1) + bytes(64),                          # too short for one
    module(1 << 16),                                           # too long for a header
    module(1 << 16) + module(OVERHEAD + 64),                   # likewise
    module(OVERHEAD + 12) + b"\1\0\0\0" + bytes(64),           # the second one is too short
    module(OVERHEAD + 12) + (1 << 20).to_bytes(4, "little"),   # extends beyond the data
    module(OVERHEAD + 12) + b"\0",                             # the data ends
])
def test_anything_else_is_not_taken_for_a_filter(data):
    assert detected(data) == StoredFilter(UNKNOWN)


def test_filters_that_are_too_large_to_be_used_are_recognised_with_their_size():
    header, size = module(OVERHEAD + 12), MAX_BYTES + 32
    data = header + (OVERHEAD - 4 + size).to_bytes(4, "little")
    assert detected(data, more=2 * MAX_BYTES) \
        == StoredFilter(ENCRYPTED, len(header) + OVERHEAD + size)
    long = HEADER[:-1] + b"\x48\x80\x10" + bytes(2048) + b"\0"  # field 8 has 2,048 bytes
    for header, size in ((encode_header(MAX_BYTES + 32), MAX_BYTES + 32), (long, 64)):
        assert detected(header, more=2 * MAX_BYTES) == StoredFilter(PLAIN, len(header) + size)


def test_a_length_larger_than_any_filter_is_not_read_and_refused():
    largest = LONGEST_HEADER + OVERHEAD + MAX_BYTES + OVERHEAD
    _FilterBytes(Stored(b""), 4, largest, 4 * MAX_BYTES).check_length()
    data = _FilterBytes(Stored(b""), 4, largest + 1, 4 * MAX_BYTES)
    data.read_all()
    with pytest.raises(FormatError, match="larger than any filter"):
        data.check_length()


@pytest.mark.parametrize(("offset", "length"), [(0, 8), (-1, 8), (100, None), (50, 51), (50, 0),
                                                (50, -1)])
def test_a_filter_outside_of_the_data_is_refused(offset, length):
    with pytest.raises(FormatError, match="outside the data"):
        _FilterBytes(Stored(bytes(200)), offset, length, 100)


def test_a_file_that_ends_within_a_filter_is_refused():
    data = _FilterBytes(Stored(bytes(60)), 50, 20, 100)
    with pytest.raises(FormatError, match="the file ends at 60, but a Bloom filter extends to 70"):
        data.read_all()


def test_a_filter_that_needs_more_bytes_than_are_left_is_refused():
    data = _FilterBytes(Stored(bytes(100)), 50, 20, 100)
    assert len(data.take(15)) == 15
    with pytest.raises(FormatError, match="needs 6 more bytes, but only 5 are left"):
        data.take(6)
