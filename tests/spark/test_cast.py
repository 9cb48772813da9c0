"""Conversion from the types of a file to those of a DataFrame, without Spark."""

import datetime
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from secure_bloom.errors import UnsupportedError
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.spark.schema.cast import cast_to_schema
from secure_bloom.spark.schema.values import same_values

NOON = datetime.datetime(2024, 1, 1, 12)
UTC = datetime.UTC
NTZ, TZ = pa.timestamp("us"), pa.timestamp("us", "UTC")


@pytest.mark.parametrize("values, source, target, expected", [
    ([5], pa.int8(), pa.int64(), [5]), ([5], pa.int64(), pa.int8(), [5]),
    ([2**63 - 1], pa.uint64(), pa.int64(), [2**63 - 1]),
    ([2**63 - 1], pa.int64(), pa.decimal128(20, 0), [Decimal(2**63 - 1)]),
    ([2**31 - 1], pa.int32(), pa.float64(), [2.0**31 - 1]),
    ([0.1], pa.float64(), pa.float64(), [0.1]), ([1.5], pa.float16(), pa.float32(), [1.5]),
    ([0.5], pa.float32(), pa.float64(), [0.5]),
    ([Decimal("1.20")], pa.decimal128(9, 2), pa.decimal128(38, 1), [Decimal("1.2")]),
    (["ä"], pa.large_string(), pa.string(), ["ä"]), ([b"a"], pa.binary(1), pa.binary(), [b"a"]),
    (["ä"], pa.string(), pa.binary(), ["ä".encode()]), ([b"a"], pa.binary(), pa.string(), ["a"]),
    (["a", None], pa.dictionary(pa.int8(), pa.string()), pa.string(), ["a", None]),
    ([uuid.UUID(int=1)], pa.uuid(), pa.binary(), [uuid.UUID(int=1).bytes]),
    ([NOON.date()], pa.date32(), NTZ, [NOON.replace(hour=0)]),
    ([NOON], pa.timestamp("ns"), NTZ, [NOON]), ([NOON], pa.timestamp("s"), NTZ, [NOON]),
    ([NOON], NTZ, TZ, [NOON.replace(tzinfo=UTC)]), ([NOON.replace(tzinfo=UTC)], TZ, NTZ, [NOON]),
    ([datetime.time(1)], pa.time32("ms"), pa.time64("ns"), [datetime.time(1)]),
    ([5], pa.int64(), pa.duration("us"), [datetime.timedelta(microseconds=5)]),
    ([None], pa.null(), pa.list_(pa.int8()), [None]),
    ([[1], None], pa.large_list(pa.int32()), pa.list_(pa.int64()), [[1], None]),
    ([[1]], pa.list_(pa.int32(), 1), pa.list_(pa.float64()), [[1.0]]),
])
def test_values_stay_what_they_are(values, source, target, expected):
    array = cast_to_schema(pa.array(values, source), target)
    assert array.type == target
    assert array.to_pylist() == expected


@pytest.mark.parametrize("values, source, target", [
    ([NOON.replace(tzinfo=UTC)], TZ, pa.date32()), ([NOON], NTZ, pa.date32()),
    ([NOON], NTZ, pa.int64()), ([NOON], NTZ, pa.string()), ([NOON], NTZ, pa.time64("ns")),
    ([0.5], pa.float64(), pa.decimal128(10, 2)), ([0.5], pa.float32(), pa.decimal128(10, 2)),
    ([0.5], pa.float64(), pa.float32()), ([1.0], pa.float64(), pa.int64()),
    ([Decimal(1)], pa.decimal128(29, 9), pa.float64()), ([True], pa.bool_(), pa.int32()),
    ([Decimal(1)], pa.decimal128(9), pa.int64()), ([1], pa.int32(), pa.bool_()),
    ([1], pa.int64(), pa.string()),
    (["1"], pa.string(), pa.int64()), (["1"], pa.dictionary(pa.int8(), pa.string()), pa.int64()),
    ([1], pa.int64(), TZ), ([1], pa.int64(), NTZ), ([1], pa.int32(), pa.date32()),
    ([1], pa.int32(), pa.float32()), ([1], pa.int64(), pa.float64()),
    ([NOON.date()], pa.date32(), TZ), ([NOON.date()], pa.date32(), pa.int32()),
    ([b"ab"], pa.binary(2), pa.string()), ([[1]], pa.list_(pa.int32()), pa.list_(pa.bool_())),
    ([[NOON]], pa.large_list(NTZ), pa.list_(pa.date32())),
    ([[1]], pa.list_(pa.int32()), pa.int32()),
    ([{"a": 1}], pa.struct({"a": pa.int32()}), pa.list_(pa.int32())),
])
def test_types_that_mean_something_else(values, source, target):
    with pytest.raises(UnsupportedError, match=r"the type .* cannot be read as .*; specify"):
        cast_to_schema(pa.array(values, source), target)


@pytest.mark.parametrize("values, source, target", [
    ([128], pa.int16(), pa.int8()), ([2**63], pa.uint64(), pa.int64()),
    ([Decimal("1.25")], pa.decimal128(9, 2), pa.decimal128(9, 1)),
    ([Decimal("100")], pa.decimal128(9, 2), pa.decimal128(3, 1)),
    ([b"\xff"], pa.binary(), pa.string()), ([1], pa.timestamp("ns"), NTZ),
    ([2**62], pa.timestamp("s"), NTZ), ([2**31 - 1], pa.date32(), NTZ),
])
def test_values_that_do_not_fit(values, source, target):
    array = pa.array(values, source) if not pa.types.is_temporal(source) else \
        pa.array(values, pa.int32() if pa.types.is_date(source) else pa.int64()).view(source)
    with pytest.raises(UnsupportedError, match="without changing it"):
        cast_to_schema(array, target)


@pytest.mark.parametrize("spark_type, file_type, expected", [
    (T.LongType(), pa.int8(), True), (T.ByteType(), pa.uint64(), True),
    (T.DoubleType(), pa.float32(), True), (T.DoubleType(), pa.int32(), False),
    (T.FloatType(), pa.float64(), False), (T.DecimalType(9, 2), pa.decimal128(20, 3), True),
    (T.DecimalType(9, 2), pa.int32(), False), (T.StringType(), pa.string(), True),
    (T.StringType("UTF8_LCASE"), pa.string(), False), (T.StringType(), pa.binary(), False),
    (T.BinaryType(), pa.binary(4), True), (T.DateType(), pa.date32(), True),
    (T.TimestampType(), pa.timestamp("ns", "UTC"), True), (T.TimestampType(), NTZ, False),
    (T.TimestampNTZType(), NTZ, True), (T.TimestampNTZType(), pa.date32(), False),
    (T.DayTimeIntervalType(), pa.int64(), False), (T.LongType(), None, False),
    (None, pa.int64(), False),
])
def test_where_statistics_and_filters_of_the_file_count(spark_type, file_type, expected):
    assert same_values(spark_type, ColumnType("INT64", 0, file_type)) is expected
    assert not same_values(spark_type, ColumnType("INT96", 0, file_type))
