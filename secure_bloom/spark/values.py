"""Which columns of files hold the very values that the DataFrame has."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as T

from secure_bloom.parquet.schema import ColumnType


def same_values(spark_type: T.DataType, column_type: ColumnType) -> bool:
    """Whether a value of the DataFrame's column equals the one in the file, and sorts like it.

    Only then do statistics and Bloom filters of the file say anything about a predicate on the
    DataFrame. It is so for the same type and for exact, checked conversions; not for INT96, whose
    nanoseconds are cut off, nor for collations in which other strings are equal.
    """
    t = column_type.arrow_type
    if t is None or column_type.physical_type == "INT96":
        return False
    match spark_type:
        case T.ByteType() | T.ShortType() | T.IntegerType() | T.LongType():
            return pa.types.is_integer(t)
        case T.FloatType():
            return pa.types.is_float32(t)
        case T.DoubleType():
            return pa.types.is_float32(t) or pa.types.is_float64(t)
        case T.DecimalType():
            return pa.types.is_decimal(t)
        case T.StringType():
            return pa.types.is_string(t) and spark_type == T.StringType()
        case T.BinaryType():
            return pa.types.is_binary(t) or pa.types.is_fixed_size_binary(t)
        case T.DateType():
            return pa.types.is_date32(t)
        case T.TimestampType():
            return pa.types.is_timestamp(t) and t.tz is not None
        case T.TimestampNTZType():
            return pa.types.is_timestamp(t) and t.tz is None
    return False
