"""Key-value metadata of files that may have values of rows.

Most of it describes the schema. But users and other programs store in it what they like, which
cannot be searched: text may be encoded in any way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from secure_bloom.arrow.schema import METADATA_OF_TYPES
from secure_bloom.json_text import decode_json

_PANDAS_KEYS = {"index_columns", "column_indexes", "columns", "creator", "pandas_version",
                "partition_columns", "attributes"}
_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
#: describe the schema or the writer
_KNOWN = {b"ARROW:schema", b"org.apache.spark.version", b"org.apache.spark.timeZone",
          b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96",
          b"parquet.avro.schema", b"avro.schema", b"writer.model.name", b"writer.date",
          b"writer.time.zone", b"iceberg.schema"}
_KNOWN_IN_SPARK = {"__CHAR_VARCHAR_TYPE_STRING", "comment"}


def metadata_with_values(schema: pa.Schema) -> set[str]:
    """Return what of a file's key-value metadata may have values of rows: keys, and fields."""
    found = {_text(key) for key, value in (schema.metadata or {}).items()
             if not _is_of_schema(key, value)}
    for field in schema:
        found |= {f"{_text(key)} of column {path}" for path, key in _of_fields(field, field.name)}
    return found


def _is_of_schema(key: bytes, value: bytes) -> bool:
    if key in _KNOWN:
        return True
    if key not in (b"pandas", _SPARK_SCHEMA):
        return False
    try:
        content = decode_json(value)
    except ValueError:
        return False
    if key == b"pandas":
        return isinstance(content, dict) and not content.get("attributes") \
            and content.keys() <= _PANDAS_KEYS
    return all(one in _KNOWN_IN_SPARK for one in _spark_metadata(content))


def _spark_metadata(schema: Any) -> Iterator[str]:
    """Yield the keys of the metadata of all fields in a schema of Spark."""
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            metadata = one.get("metadata")
            yield from metadata if isinstance(metadata, dict) else ()
            waiting += [value for key, value in one.items() if key != "metadata"]
        elif isinstance(one, list):
            waiting += one


def _of_fields(field: pa.Field, path: str) -> Iterator[tuple[str, bytes]]:
    """Yield path and key of the metadata of a field and those below it."""
    for key in field.metadata or {}:
        if key not in METADATA_OF_TYPES:
            yield path, key
    t = field.type
    if isinstance(t, pa.BaseExtensionType):
        t = t.storage_type
    for number in range(t.num_fields) if pa.types.is_nested(t) else ():
        yield from _of_fields(t.field(number), f"{path}.{t.field(number).name}")


def _text(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")
