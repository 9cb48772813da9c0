"""Avro files: what pyiceberg writes is read, and hostile files end soon, with a ValueError."""

import random
import zlib

import pyarrow as pa
import pytest

from secure_bloom.errors import UnsupportedError
from secure_bloom.storage import avro
from secure_bloom.storage.avro import read_records
from tests.storage.avro_files import avro_file, binary, field, long


def record(*types, name="r"):
    return {"type": "record", "name": name,
            "fields": [field(f"f{id_}", id_, type_) for id_, type_ in enumerate(types)]}


EMPTY, INTS = record(name="e"), {"type": "array", "items": "int"}
TYPES = record("int", ["null", "string"], {"type": "map", "values": "bytes"}, INTS, "boolean",
               "double", {"type": "fixed", "size": 2, "name": "two"}, "float", "two",
               {"type": "enum", "name": "e", "symbols": ["a"]},
               {"type": "long", "logicalType": "x"})
VALUES = (long(-5) + long(1) + binary(b"x") + long(-1) + long(99) + binary(b"k") + binary(b"v")
          + long(0) + long(2) + long(7) + long(8) + long(0) + b"\1" + bytes(8) + b"ab" + bytes(4)
          + b"cd" + long(0) + long(1 << 62))
READ = {0: -5, 1: b"x", 2: [(b"k", b"v")], 3: [7, 8], 4: 1, 5: bytes(8), 6: b"ab", 7: bytes(4),
        8: b"cd", 9: 0, 10: 1 << 62}


@pytest.mark.parametrize(("codec", "compress"), [
    (b"null", bytes), (b"deflate", lambda data: zlib.compress(data, wbits=-15)),
    (b"zstandard", lambda data: pa.compress(data, "zstd", asbytes=True))])
def test_values_of_all_types(codec, compress):
    data = avro_file(TYPES, (2, compress(VALUES * 2)), (1, compress(VALUES)), codec=codec)
    assert list(read_records(data)) == [READ] * 3


@pytest.mark.parametrize("data", [
    avro_file(EMPTY, (1 << 60, b"")),
    avro_file(record({"type": "array", "items": EMPTY}), (1, long(1 << 60))),
    avro_file(record({"type": "array", "items": "null"}), (1, long(-(1 << 60)) + long(1))),
    avro_file(record(INTS), (1, long(1 << 60))), avro_file(record("bytes"), (1, long(1 << 40))),
    avro_file(record("bytes"), (1, long(-3))),
    avro_file(record({"type": "fixed", "size": 1 << 40, "name": "f"}), (1, b"x")),
    avro_file(record("int"), (-1, b"")), avro_file(record("int"), (1, long(1) * 2)),
    avro_file(record("int"), (2, long(1))), avro_file(record("int"), (1, long(1)))[:-1],
    avro_file(record("int"), (1, zlib.compress(bytes(65 << 20), 1, wbits=-15)), codec=b"deflate"),
    avro_file(record("int"), (1, b"damaged"), codec=b"deflate"),
    avro_file(record("int"), (1, b"damaged"), codec=b"zstandard"),
    avro_file(record(["null", "int"]), (1, long(2))), avro_file(record("int"), (1, b"\xff" * 11)),
    b"PAR1"])
def test_a_hostile_file_is_an_error(data):
    with pytest.raises(ValueError):
        list(read_records(data))


def test_a_block_of_another_length_is_noticed():
    one = avro_file(record("int"), (1, long(1)))
    for data in (avro_file(record("int"), (1, long(1) * 2)), avro_file(record("int"), (-1, b"")),
                 one[:-1] + b"x", avro_file(record("int"), (1, long(1) * 2), (0, b""))):
        with pytest.raises(ValueError, match="another length"):
            list(read_records(data))


@pytest.mark.parametrize("codec", [b"deflate", b"zstandard"])
def test_a_block_that_becomes_too_long_is_not_cut_off(monkeypatch, codec):
    monkeypatch.setattr(avro, "_MAX_BLOCK", 5)
    for size in (5, 6, 7):
        block = zlib.compress(bytes(size), wbits=-15) if codec == b"deflate" \
            else pa.compress(bytes(size), "zstd", asbytes=True)
        data = avro_file(record("int"), (size, block), codec=codec)
        if size == 5:
            assert list(read_records(data)) == [{0: 0}] * 5
        else:
            with pytest.raises(ValueError, match="too long"):
                list(read_records(data))


def deflated(data: bytes) -> bytes:
    return zlib.compress(data, wbits=-15)


@pytest.mark.slow
@pytest.mark.parametrize("fields", [1, 20])
def test_the_values_of_a_record_are_limited_but_not_those_of_a_file(fields):
    """Also those without bytes, such as nulls."""
    inner = record(*["boolean", *["null"] * (fields - 1)], name="i")
    schema = record({"type": "array", "items": inner})
    most = avro._MAX_VALUES // (fields + 1) - 1
    for number, is_good in ((most, True), (most + 2, False)):
        values = long(number) + bytes(number) + long(0)
        data = avro_file(schema, (3, values * 3))
        if is_good:
            assert [len(one[0]) for one in read_records(data)] == [number] * 3
        else:
            with pytest.raises(ValueError, match="too many values"):
                next(read_records(data))


def test_a_small_file_does_not_become_a_large_one():
    """Deflate makes a byte of 1,000 zeros; manifests become at most 50 times smaller."""
    large, blocks = record({"type": "fixed", "size": 1 << 20, "name": "f"}), \
        [(1, deflated(bytes(1 << 20)))] * 6
    with pytest.raises(ValueError, match="too long"):
        list(read_records(avro_file(large, *blocks, codec=b"deflate")))
    assert len(list(read_records(avro_file(large, *blocks[:4], codec=b"deflate")))) == 4


def test_other_compression_is_unsupported():
    with pytest.raises(UnsupportedError, match="neither deflate nor zstandard"):
        list(read_records(avro_file(EMPTY, (1, b""), codec=b"snappy")))


def test_a_type_may_contain_itself_and_ends():
    links = record(["null", "r"])
    assert list(read_records(avro_file(links, (1, long(1) * 3 + long(0))))) \
        == [{0: {0: {0: {0: None}}}}]
    with pytest.raises(RecursionError):
        list(read_records(avro_file(links, (1, long(1) * 10_000))))


def test_changed_bytes_are_an_error_or_other_values():
    data, changes = avro_file(TYPES, (2, VALUES * 2)), random.Random(7)
    for _ in range(3000):
        changed = bytearray(data)
        for _ in range(changes.randint(1, 4)):
            changed[changes.randrange(len(changed))] = changes.choice([0, 1, 127, 128, 255])
        try:
            list(read_records(bytes(changed)))
        except (ValueError, TypeError, LookupError, AttributeError, UnsupportedError):
            continue
