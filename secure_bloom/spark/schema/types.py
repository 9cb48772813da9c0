"""Spark schemas and Arrow schemas, and how a file records the schema it was written with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from inspect import signature
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from secure_bloom.arrow.char_columns import ROW_METADATA
from secure_bloom.arrow.leaves import is_list, with_leaf_types
from secure_bloom.arrow.views import without_views
from secure_bloom.errors import UnsupportedError
from secure_bloom.json_text import decode_json
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.sbbf.arrow_types import plain_type

# Spark's own writer stores this beside its schema (ROW_METADATA), which tells Spark's reader the
# types that Parquet lacks (intervals, variants). It says that days before 1582 need no rebasing.
_SPARK_VERSION = b"org.apache.spark.version"

# A timestamp is a point in time; the time zone in which the writing session displays it does not
# matter. Older PySpark lacks this parameter and always uses UTC.
_to_arrow = partial(to_arrow_schema, timezone="UTC") \
    if "timezone" in signature(to_arrow_schema).parameters else to_arrow_schema

_PARTITION_TYPES = (BooleanType, IntegralType, DecimalType, DateType, StringType)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema in which Spark exchanges rows of this schema with a data source.

    Raises UnsupportedError if a column has a type that Spark cannot exchange.
    """
    for column in schema:
        try:
            _to_arrow(StructType([column]))
        except (PySparkException, pa.ArrowException, ValueError) as error:
            raise UnsupportedError(
                f"Spark cannot pass the type {column.dataType.simpleString()} to Python; cast the "
                "column", column=column.name) from error
    return _to_arrow(schema)


def stored_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema with the types in which Spark stores its values in Parquet.

    Raises UnsupportedError if a column has a type that cannot be stored, or could not be read back
    by Spark.
    """
    for column in schema:
        _check_storable(column.dataType, column.name)
    return pa.schema([column.with_type(with_leaf_types(column.type, _stored))
                      for column in arrow_schema(schema)])


def _check_storable(type_: DataType, path: str) -> None:
    if type_.typeName() in ("geometry", "geography"):
        raise UnsupportedError(f"pyarrow cannot store the type {type_.simpleString()}; store its "
                               "bytes: st_asbinary(...)", column=path)
    for name, child in _children(type_):
        _check_storable(child.dataType, f"{path}.{name}")


def _stored(leaf: pa.DataType) -> pa.DataType:
    """Return the type in Parquet: Spark passes times in nanoseconds, but stores microseconds."""
    return pa.time64("us") if pa.types.is_time64(leaf) else leaf


def _children(type_: DataType) -> list[tuple[str, StructField]]:
    """Return the fields directly below a type, with their paths in the Parquet schema."""
    if isinstance(type_, StructType):
        return [(field.name, field) for field in type_]
    if isinstance(type_, ArrayType):
        return [("list.element", StructField("element", type_.elementType))]
    if isinstance(type_, MapType):
        return [("key_value.key", StructField("key", type_.keyType)),
                ("key_value.value", StructField("value", type_.valueType))]
    return []


def field_metadata(schema: StructType) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return the metadata of all fields that have any, by path in the Parquet schema."""
    found = {}

    def collect(field: StructField, path: tuple[str, ...]) -> None:
        if field.metadata:
            found[path] = field.metadata
        for name, child in _children(field.dataType):
            below = (name,) if isinstance(field.dataType, StructType) else name.split(".")
            collect(child, (*path, *below))

    for field in schema:
        collect(field, (field.name,))
    return found


def leaf_paths(schema: StructType) -> list[str]:
    """Return the dotted paths of the leaf columns in the Parquet schema."""
    def below(type_: DataType, path: str) -> Iterator[str]:
        children = _children(type_)
        for name, child in children:
            yield from below(child.dataType, f"{path}.{name}" if path else name)
        if not children:
            yield path

    return list(below(schema, ""))


def check_partition_types(schema: StructType, names: Iterable[str]) -> None:
    """Raise UnsupportedError if the values of a column have no unique text form."""
    for name in names:
        type_ = schema[name].dataType
        if not isinstance(type_, _PARTITION_TYPES) or type_.simpleString().startswith(
                "string collate"):
            raise UnsupportedError(
                f"partition_by cannot use the type {type_.simpleString()}; it can use boolean, "
                "integers, decimal, date and string: cast a copy of the column", column=name)


def file_schema(schema: StructType) -> pa.Schema:
    """Return the stored schema with the metadata from which Spark's own reader restores it."""
    return stored_schema(schema).with_metadata({
        ROW_METADATA: schema.json().encode(), _SPARK_VERSION: pyspark.__version__.encode()})


def spark_schema(schema: pa.Schema, leaves: Iterable[LeafColumn] = ()) -> StructType:
    """Return a file's Spark schema; every column is nullable, as in all of Spark's file sources.

    If the leaf columns are given, INT96 timestamps are points in time, as in Spark.

    Raises UnsupportedError if a column has an Arrow type without a corresponding Spark type.
    """
    remembered = (schema.metadata or {}).get(ROW_METADATA, b"")
    with suppress(ValueError, TypeError, LookupError, AttributeError, AssertionError):
        found = StructType.fromJson(decode_json(remembered)).toNullable()
        if all(isinstance(entries, dict) for entries in field_metadata(found).values()):
            return found  # what is not a schema of Spark is ignored, as by Spark
    leaves = iter(leaves)
    schema = pa.schema([column.with_type(_for_spark(column.type, leaves)) for column in schema])
    for column in schema:
        try:
            from_arrow_schema(pa.schema([column]))
        except PySparkException as error:
            raise UnsupportedError(f"Spark has no type for {column.type}; specify which to use: "
                                   ".schema(...) before .load", column=column.name) from error
    return from_arrow_schema(schema).toNullable()


def _for_spark(type_: pa.DataType, leaves: Iterator[LeafColumn]) -> pa.DataType:
    """Return the type without dictionaries and views, and with INT96 as a point in time."""
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_for_spark(field.type, leaves)) for field in type_])
    if pa.types.is_map(type_):
        key = type_.key_field.with_type(_for_spark(type_.key_type, leaves))
        return pa.map_(key, type_.item_field.with_type(_for_spark(type_.item_type, leaves)))
    if is_list(type_):
        return pa.list_(type_.value_field.with_type(_for_spark(type_.value_type, leaves)))
    leaf = next(leaves, None)
    if leaf is not None and leaf.type.physical_type == "INT96":
        return pa.timestamp("us", "UTC")
    return without_views(plain_type(type_))
