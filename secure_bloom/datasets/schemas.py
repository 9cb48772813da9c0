"""The common schema of files that are read as one table."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from secure_bloom.errors import ArgumentError, UnsupportedError
from secure_bloom.sbbf.arrow_types import plain_type

_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view,
          pa.types.is_fixed_size_binary)
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


def common_schema(paths: list[str], schemas: list[pa.Schema],
                  partition_schema: pa.Schema) -> pa.Schema:
    """Return the schema of all files together, with the columns that come from their paths.

    Types may differ if one holds every value of the others, such as int32 and int64. If path and
    file disagree about a column, the path wins.

    Raises
    ------
    UnsupportedError
        With the first file whose types do not fit the files before it.
    """
    different = {id(schema): schema for schema in schemas}  # mostly one
    own = {number: _without(schema, partition_schema) for number, schema in different.items()}
    try:
        return _unified([*own.values(), partition_schema])
    except (pa.ArrowTypeError, pa.ArrowInvalid, TypeError):
        merged = partition_schema
        for path, schema in zip(paths, schemas, strict=True):
            try:
                merged = _unified([merged, own[id(schema)]])
            except (pa.ArrowTypeError, pa.ArrowInvalid, TypeError) as error:
                raise UnsupportedError("it cannot be read as one table with the other files: "
                                       f"{error}", file=path) from error
        raise


def check_given(schema: object) -> None:
    """Raise TypeError if what a caller gives as the schema of files is not one, or has duplicates.
    """
    if schema is None:
        return
    if not isinstance(schema, pa.Schema):
        raise TypeError(f"schema must be a pyarrow.Schema, not {type(schema).__name__}")
    twice = [name for name, number in Counter(schema.names).items() if number > 1]
    if twice:
        raise ArgumentError("the schema has several columns of this name", column=twice[0])


def is_exact(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether every value of a type that can be cast to another one remains the same value."""
    if source.equals(target) or pa.types.is_null(source):
        return True
    if isinstance(source, pa.BaseExtensionType) or isinstance(target, pa.BaseExtensionType):
        return False
    if pa.types.is_nested(source) or pa.types.is_nested(target):
        return _is_exact_nested(source, target)
    source, target = plain_type(source), plain_type(target)  # without dictionaries
    if pa.types.is_integer(source):
        return pa.types.is_integer(target)
    if pa.types.is_floating(source):
        return pa.types.is_floating(target) and target.bit_width >= source.bit_width
    if pa.types.is_decimal(source):
        return pa.types.is_decimal(target) and target.scale >= source.scale
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        return source.tz == target.tz and _is_finer(target.unit, source.unit)
    if pa.types.is_time(source) or pa.types.is_duration(source):
        return target.id in _SAME_KIND[source.id] and _is_finer(target.unit, source.unit)
    if pa.types.is_date(source):
        return pa.types.is_date(target)
    return any(any(is_kind(source) for is_kind in family) and any(is_kind(target)
                                                                  for is_kind in family)
               for family in (_TEXT, _BYTES))


_TIMES = {pa.time32("s").id, pa.time64("us").id}
_SAME_KIND = {**dict.fromkeys(_TIMES, _TIMES), pa.duration("s").id: {pa.duration("s").id}}
_UNITS = ("s", "ms", "us", "ns")


def _is_finer(unit: str, other: str) -> bool:
    return _UNITS.index(unit) >= _UNITS.index(other)


def _is_exact_nested(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        return all((index := target.get_field_index(field.name)) >= 0
                   and is_exact(field.type, target.field(index).type) for field in source)
    if pa.types.is_map(source) and pa.types.is_map(target):
        return is_exact(source.key_type, target.key_type) \
            and is_exact(source.item_type, target.item_type)
    return all(any(is_list(t) for is_list in _LISTS) for t in (source, target)) \
        and is_exact(source.value_type, target.value_type)


def _without(schema: pa.Schema, partition_schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if field.name not in partition_schema.names],
                     schema.metadata)


def _unified(schemas: list[pa.Schema]) -> pa.Schema:
    """Raises pyarrow's errors, or TypeError if a value could change."""
    try:
        return pa.unify_schemas(schemas)
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        unified = pa.unify_schemas(schemas, promote_options="permissive")
    for schema in schemas:
        for field in schema:
            if not is_exact(field.type, unified.field(field.name).type):
                raise TypeError(f"column {field.name!r} has type {field.type}, which not every "
                                "type in the other files can be combined with")
    return unified
