"""The schema of a file, decoded once for all files that share it, as most of a folder do."""

from __future__ import annotations

from functools import cached_property, lru_cache

from secure_bloom.parquet import thrift
from secure_bloom.parquet.schema import (
    SCHEMA_ELEMENT_LAYOUT,
    LeafColumn,
    leaf_columns,
    paths_of_elements,
)
from secure_bloom.parquet.tail import MAGIC
from secure_bloom.parquet.thrift import Struct

# Field ids of parquet.thrift that this module uses.
_SCHEMA, _NUM_ROWS, _ROW_GROUPS = 2, 3, 4  # FileMetaData
_OF_SCHEMA = 1, _SCHEMA, 5, 6  # with version, key-value metadata, created_by


class KnownSchema:
    """The leaf columns of a schema, and those by path that were looked for."""

    def __init__(self, columns: list[LeafColumn], raw: bytes = b""):
        self.columns, self._raw = columns, raw
        self.found: dict[str, LeafColumn] = {}

    @cached_property
    def paths_of_elements(self) -> list[tuple[bytes, ...]]:
        """The SchemaElements to each leaf column."""
        return paths_of_elements(thrift.each(Struct([[_SCHEMA, thrift.LIST, self._raw]]),
                                             _SCHEMA, {}))

    @cached_property
    def by_path(self) -> dict[str, LeafColumn]:
        """The leaf columns by dotted path."""
        return {column.path: column for column in self.columns}


def schema_of(file_meta: Struct) -> KnownSchema:
    """Return the schema of a FileMetaData; raises FormatError if it is malformed."""
    for field_id, type_, value in file_meta.fields:
        if field_id == _SCHEMA and type_ == thrift.LIST:
            known = _schema_columns if len(value) <= thrift.MAX_REMEMBERED \
                else _schema_columns.__wrapped__  # the paths may be far longer
            return known(value)
    return KnownSchema(leaf_columns([]))


@lru_cache(maxsize=8)
def _schema_columns(raw: bytes) -> KnownSchema:
    """Return a schema's leaf columns from SchemaElements."""
    schema = Struct([[_SCHEMA, thrift.LIST, raw]])
    with thrift.no_garbage_collection():
        elements = thrift.each(schema, _SCHEMA, SCHEMA_ELEMENT_LAYOUT)
        return KnownSchema(leaf_columns(elements, len(raw)), raw)


def schema_file(file_meta: Struct) -> bytes:
    """Return a plaintext Parquet file with this schema and no rows; see :class:`.Footer`."""
    fields = tuple(tuple(field) for field in file_meta.fields if field[0] in _OF_SCHEMA)
    is_small = sum(len(value) for *_, value in fields) <= thrift.MAX_REMEMBERED
    return (_schema_file if is_small else _schema_file.__wrapped__)(fields)


@lru_cache(maxsize=8)
def _schema_file(fields: tuple[tuple[int, int, bytes], ...]) -> bytes:
    meta = Struct([list(field) for field in fields])
    meta.set_int(_NUM_ROWS, thrift.I64, 0)
    meta.set(_ROW_GROUPS, thrift.LIST, [])
    content = thrift.encode(meta)
    return MAGIC + content + len(content).to_bytes(4, "little") + MAGIC
