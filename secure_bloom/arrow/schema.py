"""Schemas: the Arrow schema of a Parquet file, and the leaf columns of an Arrow schema."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from secure_bloom.arrow.leaves import is_nested, with_fields
from secure_bloom.errors import FormatError, UnsupportedError
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.parquet.tail import split_tail

#: keys of the metadata of fields that only describe their types
METADATA_OF_TYPES = frozenset({b"PARQUET:field_id", b"ARROW:extension:name",
                               b"ARROW:extension:metadata"})


#: how the keys begin under which Polars stores all categories of an Enum
_CATEGORIES = b"_PL_ENUM_VALUES"


def without_values(field: pa.Field) -> pa.Field:
    """Return a field without metadata that may have values of rows, at every depth.

    Polars stores all categories of an Enum there.
    """
    return _with_metadata(field, METADATA_OF_TYPES.__contains__)


def without_categories(schema: pa.Schema, columns: Collection[str]) -> pa.Schema:
    """Return a schema without metadata that has all categories of one of these columns."""
    return pa.schema([_with_metadata(field, lambda key: not key.startswith(_CATEGORIES))
                      if field.name in columns and any(leaf_categories(field)) else field
                      for field in schema], schema.metadata)


def leaf_categories(field: pa.Field) -> list[bool]:
    """Return for each leaf column of a field whether metadata has all its categories."""
    has_own = any(key.startswith(_CATEGORIES) for key in field.metadata or {})
    t = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
    if not is_nested(t):
        return [has_own]
    return [has_own or one for number in range(t.num_fields)
            for one in leaf_categories(t.field(number))]


def _with_metadata(field: pa.Field, stays: Callable[[bytes], bool]) -> pa.Field:
    kept = {key: value for key, value in (field.metadata or {}).items() if stays(key)}
    t = field.type
    if is_nested(t):
        t = with_fields(t, [_with_metadata(t.field(number), stays)
                            for number in range(t.num_fields)])
    return field.with_type(t).with_metadata(kept or None)


@lru_cache(maxsize=8)
def arrow_schema(file: bytes) -> pa.Schema:
    """Return the Arrow schema of a file, for which :meth:`Footer.schema_file` is sufficient.

    Cached, because files in one folder mostly share a schema.
    """
    try:
        schema = pq.ParquetFile(pa.BufferReader(file)).schema_arrow
        _ = schema.names  # raises if a name is not valid UTF-8
        # pyarrow calls the entries of a map as its column; its IPC format and pickles do not.
        return pa.ipc.read_schema(schema.serialize())
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise FormatError("pyarrow cannot read the schema") from error
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedError("pyarrow does not support a type in the schema") from error


def parquet_leaves(schema: pa.Schema, **writer_options: Any) -> list[LeafColumn]:
    """Return the leaf columns that pyarrow creates for an Arrow schema with these options.

    Determined by writing a file without rows with pyarrow: only pyarrow knows how its many options
    change names and types. Cached, because many files are written with the same schema.
    """
    # Serialized, because equal schemas may differ in the names of list elements.
    return list(_leaves(_Written((schema.serialize().to_pybytes(), repr(writer_options)),
                                 schema, writer_options)))


@dataclass(frozen=True)
class _Written:
    """What a file without rows is written with; ``key`` tells it from others."""

    key: tuple[bytes, str]
    schema: pa.Schema = field(compare=False)
    options: Mapping[str, Any] = field(compare=False)


@lru_cache(maxsize=8)
def _leaves(what: _Written) -> tuple[LeafColumn, ...]:
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, what.schema, **what.options).close()
    _, content, magic = split_tail(sink.getvalue().to_pybytes())
    return tuple(Footer(content, magic).columns)
