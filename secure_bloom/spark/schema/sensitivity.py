"""Sensitive columns: derived from the keys in files, recorded in the metadata of Spark fields.

When a column with its own master key is read, its field has the metadata ``secure_bloom.key``,
regardless of how the file was written, so that a copy is not written in plaintext by mistake.
Columns that only share the footer key are not marked.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from secure_bloom.errors import KeyRetrievalError, UnsupportedError
from secure_bloom.keys.material import KeyMaterial
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.footer import Footer
from secure_bloom.spark.options.columns import KEY, MASKED, OUR_METADATA, Path
from secure_bloom.spark.schema.types import field_metadata

_ELEMENT, _KEY, _VALUE = ("list", "element"), ("key_value", "key"), ("key_value", "value")


def with_own_key(footer: Footer, row_groups: Iterable[int],
                 columns: Container[Path]) -> Iterator[ColumnChunk]:
    """Yield the chunks of some leaf columns that are encrypted with a column key."""
    return (chunk for number in row_groups for chunk in footer.row_groups[number]
            if chunk.column.parts in columns and chunk.encryption == "column key")


def column_keys(footer: Footer) -> dict[Path, set[str]]:
    """Return the master keys of leaf columns that have their own.

    If the file does not name a column's master key, Spark cannot read the column.
    """
    found: dict[Path, set[str]] = {}
    own = {(chunk.column.parts, chunk.key_metadata) for chunk in footer.column_chunks()
           if chunk.encryption == "column key"}
    for path, key_metadata in own:
        with suppress(KeyRetrievalError, UnsupportedError):
            material = KeyMaterial.parse(key_metadata or b"")
            found.setdefault(path, set()).add(material.master_key_id)
    return found


def mark(schema: StructType, keys: Mapping[Path, set[str]]) -> StructType:
    """Return the schema with the master keys of leaf columns in the metadata of its fields.

    Elements of lists and maps that are not structs have no field: their key is recorded in the
    field of the list or map. A field that already names a key is not changed.
    """
    return StructType([_marked(field, _below(keys, (field.name,))) for field in schema])


def mark_maskable(schema: StructType, names: Collection[str]) -> StructType:
    """Return the schema with marks on columns whose values may be null for lack of a key.

    The driver does not request these keys, so whether they are missing is not known here.
    """
    return StructType([
        StructField(field.name, field.dataType, True, field.metadata | {MASKED: True})
        if field.name in names else field for field in schema])


def _marked(field: StructField, keys: Mapping[Path, set[str]]) -> StructField:
    if not keys or KEY in field.metadata:
        return field
    type_, own = _with_keys(field.dataType, keys)
    metadata = field.metadata | _entry(sorted(own))
    return StructField(field.name, type_, field.nullable, metadata)


def _with_keys(type_: DataType, keys: Mapping[Path, set[str]]) -> tuple[DataType, set[str]]:
    """Return the type with keys in its fields, and the keys for which it has no field.

    Other writers may structure lists differently; then the key is recorded for the whole list.
    """
    if isinstance(type_, StructType) and {path[0] for path in keys if path} <= set(type_.names):
        return mark(type_, keys), keys.get((), set())
    if isinstance(type_, ArrayType) and all(path[:2] == _ELEMENT for path in keys):
        element, own = _with_keys(type_.elementType, _below(keys, _ELEMENT))
        return ArrayType(element, type_.containsNull), own
    if isinstance(type_, MapType) and all(path[:2] in (_KEY, _VALUE) for path in keys):
        key, own = _with_keys(type_.keyType, _below(keys, _KEY))
        value, more = _with_keys(type_.valueType, _below(keys, _VALUE))
        return MapType(key, value, type_.valueContainsNull), own | more
    return type_, set().union(*keys.values())


def _below(keys: Mapping[Path, set[str]], prefix: Path) -> dict[Path, set[str]]:
    return {path[len(prefix):]: names for path, names in keys.items()
            if path[:len(prefix)] == prefix}


def unite(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a field's metadata from two files: our entries of both, with all master keys.

    Several keys are allowed when reading, as after a change of keys, but are an error when writing.
    """
    ours = {name: value for name, value in other.items() if name.startswith(OUR_METADATA)}
    keys = _names(one) + [name for name in _names(other) if name not in _names(one)]
    return {**ours, **one, **_entry(keys)}


def _names(metadata: Mapping[str, Any]) -> list[Any]:
    value = metadata.get(KEY, [])
    return value if isinstance(value, list) else [value]


def _entry(keys: list[Any]) -> dict[str, Any]:
    return {KEY: keys[0] if len(keys) == 1 else keys} if keys else {}


def marked_paths(schema: StructType) -> list[Path]:
    """Return the paths in the Parquet schema of the fields whose metadata names a key."""
    return [path for path, entries in field_metadata(schema).items() if KEY in entries]
