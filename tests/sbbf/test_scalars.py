"""Values of NumPy, pandas and Arrow as plain Python values."""

import datetime
import math
import uuid
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from secure_bloom.sbbf.scalars import plain_value
from tests.cases import for_each

NANO = pa.scalar(1, pa.timestamp("ns"))


@for_each(("value", "plain"), [
    (np.int8(5), 5), (np.uint64(2**64 - 1), 2**64 - 1), (np.float16(1.5), 1.5),
    (np.float32(0.1), 0.10000000149011612), (np.str_("x"), "x"), (np.bytes_(b"x"), b"x"),
    (np.bool_(True), True), (np.datetime64("NaT"), None), (np.timedelta64("NaT", "s"), None),
    (np.datetime64("2020-02"), pa.scalar(datetime.date(2020, 2, 1))),
    (np.datetime64(1, "W"), pa.scalar(datetime.date(1970, 1, 8))),
    (np.datetime64(1, "h"), pa.scalar(3600, pa.timestamp("s"))),
    (np.datetime64(3, "25s"), pa.scalar(75, pa.timestamp("s"))),
    (np.datetime64(1, "ns"), NANO), (np.timedelta64(2, "D"), pa.scalar(172_800, pa.duration("s"))),
    (np.timedelta64(2, "us"), pa.scalar(2, pa.duration("us"))),
    (pd.NaT, None), (pd.NA, None), (pd.Timestamp(1), NANO),
    (pd.Timestamp(1, tz="Europe/Rome"), pa.scalar(1, pa.timestamp("ns", "UTC"))),
    (pd.Timestamp(1000), pd.Timestamp(1000)), (pd.Timedelta(1), pa.scalar(1, pa.duration("ns"))),
    (pa.scalar(5, pa.int8()), 5), (pa.scalar(None, pa.large_string()), None),
    (pa.scalar(1.5, pa.float16()), 1.5), (pa.scalar("a", pa.string_view()), "a"),
    (pa.scalar(Decimal("1.5")), Decimal("1.5")), (NANO, NANO),
    (pa.array(["a"]).dictionary_encode()[0], "a"),
    (pa.array([None], pa.string()).dictionary_encode()[0], None),
    (pa.array([uuid.UUID(int=1)], pa.uuid())[0], uuid.UUID(int=1).bytes),
    (pa.array(["1"], pa.json_())[0], "1"), (None, None), ("x", "x"), (5, 5), ([1], [1]),
    (bytearray(b"x"), b"x"), (memoryview(b"x"), b"x"),
])
def test_values_of_libraries(value, plain):
    found = plain_value(value)
    assert type(found) is type(plain)
    assert found == plain


def test_nan_stays():
    for value in (np.float32("nan"), np.float64("nan"), pa.scalar(math.nan), math.nan):
        assert math.isnan(plain_value(value))


@pytest.mark.parametrize("value", [
    np.longdouble(1), np.datetime64(1, "ps"), np.timedelta64(1, "Y"), np.timedelta64(5),
    np.datetime64(2**60, "h"), np.datetime64(2**40, "D"), pd.Period("2020"), object()],
    ids=range(8))
def test_what_python_and_arrow_lack_stays(value):
    assert (type(plain_value(value)), repr(plain_value(value))) == (type(value), repr(value))
