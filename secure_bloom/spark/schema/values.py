"""Which file types can be read as which DataFrame types, and whether values stay comparable."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import lru_cache
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import types as T

from secure_bloom.sbbf.arrow_types import is_bytes, is_text
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.spark.schema.types import arrow_schema

_IsType: TypeAlias = Callable[[pa.DataType], bool]


def _is_zoned(t: pa.DataType) -> bool:
    return pa.types.is_timestamp(t) and t.tz is not None


def _is_unzoned(t: pa.DataType) -> bool:
    return pa.types.is_timestamp(t) and t.tz is None


def _is_int(t: pa.DataType) -> bool:
    return pa.types.is_integer(t) and t.bit_width <= 32


# (type in the file, type of the DataFrame): a value that fits is equal in both, and sorts the same
_SAME_VALUES = (
    (pa.types.is_integer, pa.types.is_integer),
    (pa.types.is_float32, pa.types.is_float32),
    (pa.types.is_float32, pa.types.is_float64),
    (pa.types.is_float64, pa.types.is_float64),
    (pa.types.is_decimal, pa.types.is_decimal),
    (is_text, is_text),
    (is_bytes, is_bytes),
    (pa.types.is_fixed_size_binary, is_bytes),
    (pa.types.is_date, pa.types.is_date),
    (_is_zoned, _is_zoned),
    (_is_unzoned, _is_unzoned),
)

# the value stays the same, but becomes a different kind of value; as in Spark's own reader
_OTHER_KIND = (
    (pa.types.is_null, lambda _: True),
    (pa.types.is_integer, pa.types.is_decimal),
    (_is_int, pa.types.is_float64),
    (pa.types.is_float16, pa.types.is_floating),
    (is_text, is_bytes),
    (is_bytes, is_text),
    (pa.types.is_date, _is_unzoned),
    (_is_zoned, _is_unzoned),  # the wall clock time in UTC
    (_is_unzoned, _is_zoned),
    (pa.types.is_time, pa.types.is_time),
    (pa.types.is_duration, pa.types.is_duration),
    (pa.types.is_int64, pa.types.is_duration),  # as Spark stores intervals
)


def can_be_read_as(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether values keep their meaning in another type. Values that do not fit are an error.

    Both types have no fields: that of the file, and that of the DataFrame.
    """
    return source == target or _is_any(source, target, (*_SAME_VALUES, *_OTHER_KIND))


def same_values(spark_type: T.DataType | None, column_type: ColumnType) -> bool:
    """Whether a value of the DataFrame's column equals the one in the file, and sorts like it.

    Only then can statistics and Bloom filters of the file be used for a predicate on the
    DataFrame. This holds for the same type and for exact, checked conversions. It does not hold
    for INT96, whose nanoseconds are truncated, for collations in which different strings are
    equal, or if the DataFrame has no such column (None).
    """
    source = column_type.arrow_type
    if spark_type is None or source is None or column_type.physical_type == "INT96":
        return False
    if isinstance(spark_type, T.StringType) and spark_type != T.StringType():
        return False
    return _is_any(source, _arrow_type(spark_type), _SAME_VALUES)


@lru_cache(maxsize=256)
def _arrow_type(spark_type: T.DataType) -> pa.DataType:
    return arrow_schema(T.StructType([T.StructField("value", spark_type)])).field(0).type


_KINDS = (
    (T.BooleanType, bool), (T.IntegralType, int), (T.FractionalType, float), (T.StringType, str),
    (T.BinaryType, bytes), (T.TimestampType, datetime.datetime), (T.DateType, datetime.date))


def keeps_value(spark_type: T.DataType | None, value: object) -> bool:
    """Whether Spark compares a value with a column of this type without turning it into null.

    If the types differ, Spark casts the value. If the cast fails and ANSI mode is off, the result
    is null, and ``<=>`` then holds for null rows.
    """
    if isinstance(spark_type, T.DecimalType):
        if not isinstance(value, Decimal) or not value.is_finite():
            return False
        exponent = value.as_tuple().exponent
        assert isinstance(exponent, int)  # it is finite
        return -exponent <= spark_type.scale \
            and (not value or value.adjusted() < spark_type.precision - spark_type.scale)
    return any(isinstance(spark_type, own) and type(value) is kind for own, kind in _KINDS)


def _is_any(source: pa.DataType, target: pa.DataType,
            pairs: Iterable[tuple[_IsType, _IsType]]) -> bool:
    return any(is_source(source) and is_target(target) for is_source, is_target in pairs)
