"""What the footer says of the values of encrypted columns, to readers without the column's key.

Under a plaintext footer, an encrypted column has a copy of its metadata for readers that only need
the place and size of its pages. By Encryption.md, section 5.5, this copy has no statistics.
parquet-java and Arrow C++ leave some in it.
"""

from __future__ import annotations

from secure_bloom.parquet import thrift
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.thrift import Struct

_STATISTICS, _GEOSPATIAL = 12, 17
#: fields of ColumnMetaData that describe values, not where pages are and how to decode them
_REVEALING = {
    8: "key-value metadata",
    _STATISTICS: "statistics such as counts of nulls",
    13: "numbers of pages by encoding",
    16: "size statistics (nulls, bytes of values, lengths of lists)",
    _GEOSPATIAL: "bounding boxes and kinds of shapes",
}
_BOUNDS = 1, 2, 5, 6  # Statistics: max, min, max_value, min_value


def revealed_fields(chunk: ColumnChunk) -> list[int]:
    """Return the ids of the fields of ColumnMetaData that reveal something about the values.

    Empty for a column that is not encrypted, and if only the holder of its key can read them.
    """
    exposed = chunk.exposed_metadata
    return [] if exposed is None else [field for field in _REVEALING
                                       if exposed.get(field) is not None]


def revealed(chunk: ColumnChunk) -> list[str]:
    """Return what these fields contain, in words."""
    bounds = ["minimum and maximum values"] if _bounds(chunk.exposed_metadata) else []
    return bounds + [_REVEALING[field] for field in revealed_fields(chunk)]


def has_readable_bounds(chunk: ColumnChunk) -> bool:
    """Whether minimum and maximum of an encrypted column can be read without its key."""
    exposed = chunk.exposed_metadata
    return exposed is not None and (exposed.get(_GEOSPATIAL) is not None or _bounds(exposed))


def _bounds(metadata: Struct | None) -> bool:
    raw = None if metadata is None else metadata.get(_STATISTICS)
    found = thrift.decode(raw, {})[0] if isinstance(raw, bytes) else Struct()
    return any(found.get(field) is not None for field in _BOUNDS)


def redact(chunk: ColumnChunk) -> None:
    """Remove these fields from the copy of an encrypted column's metadata. Needs no key.

    Metadata without a module stays: there it is the only copy, and sealing it would vouch for what
    others could have changed.
    """
    if chunk.has_metadata_module and (fields := revealed_fields(chunk)):
        chunk.redact(fields)
