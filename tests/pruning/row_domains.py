"""Types that row filters take: values to store in a column, and values to ask for.

Both come with the value that :mod:`tests.reference` compares.
"""

import datetime
import json
import math
import uuid
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from tests.reference import Nanos

UTC = datetime.UTC
ROME = datetime.timezone(datetime.timedelta(hours=1))
NAN, INF = math.nan, math.inf


class Domain(NamedTuple):
    """Some values of a type, and values that can be compared with them.

    Attributes
    ----------
    stored : pyarrow.Array
    values : list
        The same for the reference.
    asked : list of tuple
        (value for secure_bloom, value for the reference)
    """

    stored: pa.Array
    values: list
    asked: list[tuple]


def _same(values: list) -> list[tuple]:
    return [(value, value) for value in values]


NUMBERS = [0, 1, -1, 5, 127, 128, -129, 300, 2**53, 2**53 + 1, 2**53 + 3, 2**63 - 1, 2**63, -2**63,
           2**64 - 1, 2**64, 10**30, -10**400, 10**400,
           0.0, -0.0, 5.0, 5.5, -5.5, 0.1, NAN, INF, -INF, 5e-324, 1e308, 2.0**53, 2.0**63,
           65504.0, 65519.0, 1e40,
           *map(Decimal, ["5", "5.00", "5.005", "-0", "0.1", "1E+40", "-1E-40", "NaN", "-Infinity",
                          "123.45", "999.99", "999.991", "-1000"]), Fraction(1, 3), Fraction(11, 2)]
ASKED_NUMBERS = [*_same(NUMBERS), (np.int8(5), 5), (np.uint64(2**64 - 1), 2**64 - 1),
                 (np.float32(0.1), float(np.float32(0.1))), (np.float16(1.5), 1.5),
                 (np.float64(NAN), NAN), (pa.scalar(5, pa.int16()), 5),
                 (pa.scalar(1.5, pa.float16()), 1.5), (pa.scalar(Decimal("123.45")),
                                                       Decimal("123.45")),
                 (pd.NA, None), (pd.NaT, None)]
REALS = [0.0, -0.0, 1.5, -2.25, INF, -INF, 5.0, 0.1, 65504.0]
DECIMALS = list(map(Decimal, ["0.00", "5.00", "-5.50", "123.45", "999.99", "-999.99"]))
TEXTS = ["", "a", "ab", "B", "ä", "zz", "\U0001f600", "\ue000", "5"]
RAW = [b"", b"a", b"ab", b"\x00", b"\xff\xff", "ä".encode()]
DAYS = [datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(1970, 1, 1),
        datetime.date(2024, 2, 29), datetime.date(9999, 12, 31)]
MOMENTS = [datetime.datetime(1969, 12, 31, 23, 59, 59), datetime.datetime(1970, 1, 1),
           datetime.datetime(2024, 2, 29), datetime.datetime(2024, 2, 29, 12, 30)]
FINE = [moment.replace(microsecond=1) for moment in MOMENTS]
TIMES = [datetime.time(0), datetime.time(1, 2, 3), datetime.time(23, 59, 59)]
FINE_TIMES = [time.replace(microsecond=1) for time in TIMES]
SPANS = [datetime.timedelta(days=-1), datetime.timedelta(0), datetime.timedelta(seconds=5)]
FINE_SPANS = [span + datetime.timedelta(microseconds=1) for span in SPANS]
UUIDS = [uuid.UUID(int=number) for number in (0, 1, 2**127, 2**128 - 1)]


def _zoned(moments: list) -> list:
    return [moment.replace(tzinfo=UTC) for moment in moments]


def integers(t: pa.DataType) -> Domain:
    signed, bits = not pa.types.is_unsigned_integer(t), t.bit_width
    values = [0, 1, 5, 100, 2**(bits - signed) - 1, *([-2**(bits - 1), -1] if signed else []),
              *([2**53, 2**53 + 1] if bits == 64 else [])]
    return Domain(pa.array(values, t), values, ASKED_NUMBERS)


def reals(t: pa.DataType) -> Domain:
    """NaN comes in three bit patterns."""
    values = [*REALS, *([2.0**53, 2.0**53 + 2, 2.0**53 + 4] if t.bit_width == 64 else [])]
    stored = np.array([*values, NAN, NAN, NAN], t.to_pandas_dtype())
    bits = stored.view(f"u{stored.itemsize}")
    bits[-1] |= bits.dtype.type(3)  # another payload
    bits[-2] |= bits.dtype.type(1 << 8 * stored.itemsize - 1)  # another sign
    assert len(set(bits.tolist())) == len(stored) == len(values) + 3
    numbers = stored.astype(float).tolist()
    return Domain(pa.array(stored), numbers, [*_same(numbers) * 5, *ASKED_NUMBERS])


def _nanos(t: pa.DataType, counts: list[int]) -> Domain:
    """A type of nanoseconds, asked for with Arrow's scalars and with Python's values."""
    stored = pa.array(counts, pa.int64()).view(t)
    values = list(map(Nanos, counts))
    asked = list(zip(stored, values, strict=True))
    if pa.types.is_timestamp(t):
        asked += _same(_zoned([*MOMENTS, *FINE]) if t.tz else [*MOMENTS, *FINE, *DAYS])
        asked.append((pa.scalar(5, pa.timestamp("s", t.tz)), Nanos(5 * 10**9)))
        if not t.tz:
            asked += [(np.datetime64(1, "ns"), Nanos(1)), (pd.Timestamp(1), Nanos(1))]
    elif pa.types.is_time(t):
        asked += _same(TIMES + FINE_TIMES)
    else:
        asked += [*_same(SPANS + FINE_SPANS), (np.timedelta64(1, "ns"), Nanos(1)),
                  (np.timedelta64(5, "s"), SPANS[2])]
    return Domain(stored, values, asked)


def _moments(unit: str, zone: str | None) -> Domain:
    values = MOMENTS + (FINE if unit == "us" else [])
    asked = [*MOMENTS, *FINE]
    if zone:
        values, asked = _zoned(values), _zoned(asked) + [m.replace(tzinfo=ROME) for m in MOMENTS]
    else:
        asked += DAYS
    return Domain(pa.array(values, pa.timestamp(unit, zone)), values, _same(asked))


def _texts(t: pa.DataType) -> Domain:
    is_text = "string" in str(t)
    values = TEXTS if is_text else RAW
    return Domain(pa.array(values, t), values,
                  [*_same(TEXTS + RAW), (np.str_("ab"), "ab"), (np.bytes_(b"ab"), b"ab"),
                   (bytearray(b"ab"), b"ab"), (pa.scalar("ä", pa.string_view()), "ä")])


def _simple(t: pa.DataType, values: list, asked: list = ()) -> Domain:
    return Domain(pa.array(values, t), values, _same([*values, *asked]))


def domains() -> dict[str, Domain]:
    """By the name of the column."""
    found = {str(t): integers(t) for t in (
        pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
        pa.uint64())}
    found |= {str(t): reals(t) for t in (pa.float16(), pa.float32(), pa.float64())}
    found |= {str(t): Domain(pa.array(DECIMALS, t), DECIMALS, ASKED_NUMBERS) for t in (
        pa.decimal32(5, 2), pa.decimal64(15, 2), pa.decimal128(9, 2), pa.decimal128(38, 2),
        pa.decimal256(60, 2))}
    found |= {str(t): _texts(t) for t in (
        pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(),
        pa.binary_view())}
    found |= {f"moment {unit} {zone}": _moments(unit, zone)
              for unit in ("s", "ms", "us") for zone in (None, "UTC", "Europe/Rome")}
    found |= {str(t): _nanos(t, [-1, 0, 1, 999, 10**9, 5 * 10**9]) for t in (
        pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.duration("ns"))}
    found |= {str(t): _simple(t, SPANS, FINE_SPANS) for t in (
        pa.duration("s"), pa.duration("ms"))}
    texts = _texts(pa.string())
    largest = [Decimal("9" * 35 + ".999"), Decimal("-" + "9" * 35 + ".999"), Decimal("1.005")]
    return found | {
        "duration us": _simple(pa.duration("us"), SPANS + FINE_SPANS),
        "time ms": _simple(pa.time32("ms"), TIMES, FINE_TIMES),
        "time s": _simple(pa.time32("s"), TIMES, FINE_TIMES),
        "time us": _simple(pa.time64("us"), TIMES + FINE_TIMES),
        "time ns": _nanos(pa.time64("ns"), [0, 1, 999, 10**9, 5 * 10**9]),
        "date": _simple(pa.date32(), DAYS, MOMENTS + FINE),
        "date64": _simple(pa.date64(), DAYS, MOMENTS + FINE),
        "flag": Domain(pa.array([False, True]), [False, True],
                       [*_same([False, True]), (np.bool_(True), True)]),
        "fixed": _simple(pa.binary(2), [b"\x00\x00", b"ab", b"\xff\xff"], [b"a", b"abc", b""]),
        "uuid": Domain(pa.array(UUIDS, pa.uuid()), [one.bytes for one in UUIDS],
                       [*((one, one.bytes) for one in UUIDS), (UUIDS[1].bytes, UUIDS[1].bytes)]),
        "json": _simple(pa.json_(), [json.dumps(one) for one in (1, None, "a")], ["1.0"]),
        "dictionary": texts._replace(stored=texts.stored.dictionary_encode()),
        "dictionary of large": texts._replace(
            stored=texts.stored.cast(pa.large_string()).dictionary_encode()),
        "largest decimals": Domain(pa.array(largest, pa.decimal128(38, 3)), largest,
                                   _same([*largest, 10**40, -10**40])),
        "null": Domain(pa.nulls(2), [None, None], [*ASKED_NUMBERS[:3], *_same(TEXTS)]),
    }
