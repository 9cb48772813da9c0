"""Values that are given as text."""

import datetime
import decimal
import re
import uuid

import pyarrow as pa
import pytest

from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.sbbf.parsing import parse_value, parse_values


@pytest.mark.parametrize(("arrow_type", "text", "value"), [
    (pa.int8(), "-128", -128), (pa.uint64(), str(2**64 - 1), 2**64 - 1), (pa.float32(), "1.5", 1.5),
    (pa.float64(), "-0", -0.0), (pa.decimal128(5, 2), "1.5", decimal.Decimal("1.50")),
    (pa.string(), "", ""), (pa.string(), "naïve", "naïve"), (pa.binary(), "raw", b"raw"),
    (pa.binary(4), "four", b"four"), (pa.binary(16), "x" * 16, b"x" * 16),
    (pa.binary(16), str(uuid.UUID(int=7)), uuid.UUID(int=7).bytes),
    (pa.date32(), "2020-02-29", datetime.date(2020, 2, 29)),
    (pa.time32("ms"), "01:02:03.5", datetime.time(1, 2, 3, 500_000)),
    (pa.time64("us"), "01:02:03.000005", datetime.time(1, 2, 3, 5)),
    (pa.timestamp("us"), "2020-02-29 01:02:03", datetime.datetime(2020, 2, 29, 1, 2, 3)),
])
def test_text_is_read_as_the_column_has_it(arrow_type, text, value):
    scalar = parse_value(text, ColumnType("", getattr(arrow_type, "byte_width", 0)
                                          if pa.types.is_fixed_size_binary(arrow_type) else 0,
                                          arrow_type))
    assert scalar.type == arrow_type
    assert scalar.as_py() == value


def test_text_with_a_zone():
    column = ColumnType("INT64", 0, pa.timestamp("us", "UTC"))
    for text in ("2020-01-01T00:00:00Z", "2020-01-01 09:00:00+09:00"):
        assert parse_value(text, column).value == 1_577_836_800 * 10**6


@pytest.mark.parametrize(("arrow_type", "text"), [
    (pa.int8(), "128"), (pa.int64(), "1.5"), (pa.int64(), "SECRET"), (pa.uint8(), "-1"),
    (pa.float64(), "SECRET"), (pa.decimal128(5, 2), "1.555"), (pa.decimal128(5, 2), "12345"),
    (pa.date32(), "2020-02-30"), (pa.time32("ms"), "25:00"), (pa.binary(4), "SECRET"),
    (pa.timestamp("us"), "SECRET"), (None, "SECRET")])
def test_text_that_is_no_value_is_refused_and_not_repeated(arrow_type, text):
    with pytest.raises(ValueError, match="value") as caught:
        parse_value(text, ColumnType("INT32", 4, arrow_type))
    assert text not in str(caught.value)


@pytest.mark.parametrize(("texts", "arrow_type", "expected"), [
    (["1", "2"], pa.int64(), [1, 2]),
    (["00:00:01", "23:59"], pa.time32("s"), [1, 86_340]),
    (["00:00:01.5"], pa.time64("ns"), [1_500_000_000]),
    (["ab", "cd"], pa.binary(2), [b"ab", b"cd"]),
    (["00000000-0000-0000-0000-000000000001"], pa.binary(16), [bytes(15) + b"\1"]),
])
def test_texts_are_read_as_values(texts, arrow_type, expected):
    found = parse_values(texts, arrow_type)
    assert found.type == arrow_type
    if pa.types.is_time(arrow_type):
        found = found.view(pa.int32() if arrow_type.bit_width == 32 else pa.int64())
    assert found.to_pylist() == expected


@pytest.mark.parametrize(("text", "arrow_type"), [
    ("x", pa.int64()), ("24:00", pa.time32("s")), ("00:60", pa.time32("s")),
    ("00:00:60", pa.time32("s")), ("00:00:00.5", pa.time32("s")), ("0:00", pa.time32("s")),
    ("00:00:00.1234567890", pa.time64("ns")), ("abc", pa.binary(2)), ("abc", pa.binary(16))])
def test_a_text_that_is_not_a_value_is_refused_with_its_number(text, arrow_type):
    with pytest.raises(ValueError, match="^the value is not a valid " + re.escape(str(arrow_type))):
        parse_values([text], arrow_type)
    good = {pa.int64(): "1", pa.binary(2): "ab", pa.binary(16): "a" * 16}.get(arrow_type, "00:00")
    with pytest.raises(ValueError, match="the value number 2 is not"):
        parse_values([good, text], arrow_type)
