"""Columns that Spark declares as CHAR(n): it pads their values with spaces, and ignores these.

Spark compares such a column with a text as if both had n characters. It does so for whole columns,
not for fields of structs. The declaration is in the metadata of a field of a Spark schema. Spark
stores it in files that are written from a DataFrame, but not in those of an INSERT statement.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pyarrow as pa

from secure_bloom.json_text import decode_json
from secure_bloom.sbbf.arrow_types import is_text, plain_type

#: the Spark schema in the metadata of a file
ROW_METADATA = b"org.apache.spark.sql.parquet.row.metadata"
_DECLARED = "__CHAR_VARCHAR_TYPE_STRING"
_MAX_LENGTH = 10_000  # to which values are padded only because a file says so
_MAX_VALUES = 10_000  # that are looked up for one condition


def declared_length(metadata: Mapping[str, Any]) -> int | None:
    """Return n if the metadata of a field of a Spark schema declares CHAR(n), else None."""
    found = re.fullmatch(r"char\((\d{1,9})\)", str(metadata.get(_DECLARED)))
    return int(found[1]) if found else None


def length_in_file(schema: pa.Schema, column: str) -> int | None:
    """Return n if the schema of a file says that a column is CHAR(n); 0 if it may be CHAR.

    None: it is not, as Spark did not write the file, or the column is something else.
    """
    for field in _spark_fields(schema):
        if isinstance(field, dict) and field.get("name") == column \
                and field.get("type") == "string":
            metadata = field.get("metadata")
            metadata = metadata if isinstance(metadata, dict) else {}
            length = declared_length(metadata) or 0
            if length or _DECLARED not in metadata:
                return length if length <= _MAX_LENGTH else 0
    return None


def _spark_fields(schema: pa.Schema) -> list[Any]:
    try:
        fields = decode_json((schema.metadata or {}).get(ROW_METADATA, b"{}"))["fields"]
    except (ValueError, KeyError, TypeError):
        return []
    return fields if isinstance(fields, list) else []


def common_length(batches: Iterable[pa.RecordBatch]) -> int | None:
    """Return the number of characters of values, which may then be CHAR of this length.

    Only the first batch with values is read. 0 if they differ in length, or are not text; None if
    there are no values.
    """
    import pyarrow.compute as pc  # takes 50 ms
    for batch in batches:
        column = batch.column(0)
        if not is_text(plain_type(column.type)):
            return 0
        if column.null_count < len(column):
            lengths = pc.min_max(pc.utf8_length(column.cast(pa.large_string())))
            least, most = lengths["min"].as_py(), lengths["max"].as_py()
            return int(most) if least == most else 0
    return None


def padded(value: Any, lengths: Collection[int]) -> list[str]:
    """Return what else equals a value in columns CHAR(n) of some lengths n.

    That is the value with n characters, as Spark stores it, and without trailing spaces.
    """
    if not isinstance(value, str) or not lengths:
        return []
    bare = value.rstrip(" ")
    return [one for one in {bare, *map(bare.ljust, lengths)} if one != value]


def equal_values(values: Collection[Any], length: int) -> list[Any] | None:
    """Return whatever may be stored that equals one of some values in a column CHAR(length).

    Other writers may have stored fewer spaces than Spark, which adds them when it reads. None if
    that would be too many, or if a value is not text.
    """
    if not all(isinstance(value, str) for value in values):
        return None
    bare = {(value.rstrip(" "), max(length, len(value))) for value in values}
    if sum(longest - len(text) + 1 for text, longest in bare) > _MAX_VALUES:
        return None
    return [text.ljust(own) for text, longest in bare for own in range(len(text), longest + 1)]
