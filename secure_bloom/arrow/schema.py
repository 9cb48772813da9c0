"""Schemas: the Arrow schema of a Parquet file, and the leaf columns of an Arrow schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from secure_bloom.arrow.leaves import is_list, with_fields
from secure_bloom.errors import FormatError, UnsupportedError
from secure_bloom.parquet.footer import Footer, split_tail
from secure_bloom.parquet.schema import LeafColumn

#: keys of the metadata of fields that only describe their types
METADATA_OF_TYPES = frozenset({b"PARQUET:field_id", b"ARROW:extension:name",
                               b"ARROW:extension:metadata"})


def without_values(field: pa.Field) -> pa.Field:
    """Return a field without metadata that may have values of rows, at every depth.

    Polars stores all categories of an Enum there.
    """
    kept = {key: value for key, value in (field.metadata or {}).items()
            if key in METADATA_OF_TYPES}
    return field.with_type(_without_values(field.type)).with_metadata(kept or None)


def _without_values(t: pa.DataType) -> pa.DataType:
    if isinstance(t, pa.BaseExtensionType) or not (
            pa.types.is_struct(t) or pa.types.is_map(t) or is_list(t)):
        return t
    return with_fields(t, [without_values(t.field(number)) for number in range(t.num_fields)])


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
