"""The layer ``xxh64``: values of every physical and logical type."""

from __future__ import annotations

import struct

from xxhash import xxh64_intdigest

from vectors.builder.small import Layer

_WIDTHS = {"INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}


def _i32(value: int) -> bytes:
    return struct.pack("<i", value)


def _u32(value: int) -> bytes:
    return struct.pack("<I", value)


def _i64(value: int) -> bytes:
    return struct.pack("<q", value)


def _big(value: int, length: int) -> bytes:
    return value.to_bytes(length, "big", signed=True)


def _int96(nanoseconds: int, julian_day: int) -> bytes:
    return struct.pack("<qi", nanoseconds, julian_day)


_DAY = 86_400_000_000_000

# physical type, logical type, length, [(what is special, value in words or None, plain encoding)]
_GOOD = [
    ("INT32", None, None, [("zero", "0", _i32(0)), ("minus_one", "-1", _i32(-1)),
                           ("largest", "2147483647", _i32(2**31 - 1)),
                           ("smallest", "-2147483648", _i32(-2**31))]),
    ("INT32", "INTEGER(8,signed)", None, [("smallest", "-128", _i32(-128))]),
    ("INT32", "INTEGER(8,unsigned)", None, [("largest", "255", _i32(255))]),
    ("INT32", "INTEGER(16,signed)", None, [("smallest", "-32768", _i32(-32768))]),
    ("INT32", "INTEGER(16,unsigned)", None, [("largest", "65535", _i32(65535))]),
    ("INT32", "INTEGER(32,unsigned)", None, [("largest", "4294967295", _u32(2**32 - 1))]),
    ("INT32", "DATE", None, [("before_1970", "1960-02-29", _i32(-3594)),
                             ("year_9999", "9999-12-31", _i32(2932896))]),
    ("INT32", "TIME(MILLIS,UTC)", None, [("last", "23:59:59.999", _i32(86_399_999))]),
    ("INT32", "DECIMAL(9,2)", None, [("negative", "-1234567.89", _i32(-123456789))]),
    ("INT64", None, None, [("zero", "0", _i64(0)), ("minus_one", "-1", _i64(-1)),
                           ("largest", "9223372036854775807", _i64(2**63 - 1)),
                           ("smallest", "-9223372036854775808", _i64(-2**63))]),
    ("INT64", "INTEGER(64,unsigned)", None, [("largest", "18446744073709551615", _i64(-1))]),
    ("INT64", "TIME(MICROS,UTC)", None, [("last", "23:59:59.999999", _i64(86_399_999_999))]),
    ("INT64", "TIME(NANOS,local)", None, [("one", "00:00:00.000000001", _i64(1))]),
    ("INT64", "TIMESTAMP(MILLIS,UTC)", None,
     [("epoch_minus_one", "1969-12-31T23:59:59.999Z", _i64(-1))]),
    ("INT64", "TIMESTAMP(MICROS,UTC)", None,
     [("summer", "2024-07-01T12:00:00.000001Z", _i64(1_719_835_200_000_001))]),
    ("INT64", "TIMESTAMP(MICROS,local)", None,
     [("summer", "2024-07-01T12:00:00.000001", _i64(1_719_835_200_000_001))]),
    ("INT64", "TIMESTAMP(NANOS,UTC)", None,
     [("one", "1970-01-01T00:00:00.000000001Z", _i64(1))]),
    ("INT64", "DECIMAL(18,4)", None, [("largest", "99999999999999.9999", _i64(10**18 - 1))]),
    ("INT96", None, None, [("epoch", "1970-01-01T00:00:00", _int96(0, 2_440_588)),
                           ("end_of_1900", "1900-12-31T23:59:59.999999999",
                            _int96(_DAY - 1, 2_415_385)),
                           ("beyond_nanoseconds", None, _int96(1, 5_373_484))]),
    ("FLOAT", None, None, [("zero", None, struct.pack("<f", 0.0)),
                           ("minus_zero", None, struct.pack("<f", -0.0)),
                           ("one_and_a_half", "1.5", struct.pack("<f", 1.5)),
                           ("infinity", "inf", struct.pack("<f", float("inf"))),
                           ("quiet_nan", None, bytes.fromhex("0000c07f"))]),
    ("DOUBLE", None, None, [("zero", None, struct.pack("<d", 0.0)),
                            ("minus_zero", None, struct.pack("<d", -0.0)),
                            ("a_third", "0.3333333333333333", struct.pack("<d", 1 / 3)),
                            ("smallest", "5e-324", struct.pack("<d", 5e-324)),
                            ("nan_with_payload", None, bytes.fromhex("230100000000f8ff"))]),
    ("BYTE_ARRAY", None, None, [("empty", "", b"")]
     + [(f"{size}_bytes", None, bytes(range(size)))
        for size in (1, 3, 4, 7, 8, 9, 15, 16, 31, 32, 33, 63, 64, 100)]),
    ("BYTE_ARRAY", "STRING", None, [("ascii", "parquet", b"parquet"),
                                    ("umlaut", "näme", "näme".encode()),
                                    ("emoji", "😀" * 9, ("😀" * 9).encode())]),
    ("BYTE_ARRAY", "JSON", None, [("object", '{"a": 1}', b'{"a": 1}')]),
    ("BYTE_ARRAY", "DECIMAL(20,2)", None, [("shortest_form", None, b"\x7b")]),
    ("FIXED_LEN_BYTE_ARRAY", None, 1, [("zero", None, b"\0")]),
    ("FIXED_LEN_BYTE_ARRAY", None, 5, [("text", "abcde", b"abcde"), ("ones", None, b"\xff" * 5)]),
    ("FIXED_LEN_BYTE_ARRAY", "UUID", 16,
     [("", "00112233-4455-6677-8899-aabbccddeeff",
       bytes.fromhex("00112233445566778899aabbccddeeff"))]),
    ("FIXED_LEN_BYTE_ARRAY", "FLOAT16", 2, [("one_and_a_half", "1.5", b"\x00\x3e")]),
    ("FIXED_LEN_BYTE_ARRAY", "DECIMAL(20,2)", 9, [("minus_one", "-0.01", b"\xff" * 9),
                                                  ("large", "123456789012345678.90",
                                                   _big(12345678901234567890, 9))]),
    ("FIXED_LEN_BYTE_ARRAY", "DECIMAL(38,10)", 16, [("negative", "-1234567890.0123456789",
                                                     _big(-12345678900123456789, 16))]),
    ("FIXED_LEN_BYTE_ARRAY", "DECIMAL(47,2)", 20, [("large", "1" * 45 + ".25",
                                                    _big(int("1" * 45 + "25"), 20))]),
]


def xxh64() -> Layer:
    """Good values, values of a wrong length, and the type that has no filter."""
    layer = Layer("xxh64", "vectors/builder/hashes.py, hashes by xxHash")
    for physical_type, logical_type, length, values in _GOOD:
        for special, words, plain in values:
            name = "_".join(filter(None, ["hash", physical_type, logical_type, special]))
            layer.add(_plain_name(name), "hash",
                      _inputs(physical_type, length, plain, logical_type, words), "hashed",
                      {"hash": f"{xxh64_intdigest(plain):016x}"},
                      comment=_COMMENTS.get(special))
    for physical_type, width in {**_WIDTHS, "FIXED_LEN_BYTE_ARRAY": 5}.items():
        length = width if physical_type == "FIXED_LEN_BYTE_ARRAY" else None
        for special, size in (("short", width - 1), ("long", width + 1), ("empty", 0)):
            layer.add(_plain_name(f"hash_{physical_type}_{special}"), "hash",
                      _inputs(physical_type, length, bytes(size)), "wrong_length",
                      fault=f"{size} bytes are not a value of {width} bytes")
    layer.add("hash_boolean", "hash", _inputs("BOOLEAN", None, b"\1"), "unsupported_type",
              fault="a BOOLEAN column has no Bloom filter")
    return layer


_COMMENTS = {
    "minus_zero": "-0.0 equals 0.0 but hashes differently: a reader has to look for both",
    "quiet_nan": "every NaN has the hash of its own bits",
    "nan_with_payload": "every NaN has the hash of its own bits",
    "beyond_nanoseconds": "the year 9999: too far for a 64-bit number of nanoseconds",
    "shortest_form": "a BYTE_ARRAY decimal may be padded at will, so a filter cannot exclude it",
}


def _inputs(physical_type, length, plain, logical_type=None, words=None) -> dict:
    return {"physical_type": physical_type, "type_length": length, "plain": plain,
            "logical_type": logical_type, "value": words}


def _plain_name(name: str) -> str:
    for character in "(),":
        name = name.replace(character, "_")
    return name.lower().replace("__", "_").rstrip("_")
