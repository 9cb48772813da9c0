"""Metadata files of Iceberg tables: JSON, which may be compressed."""

from __future__ import annotations

import zlib
from typing import Any

from secure_bloom.errors import FormatError
from secure_bloom.storage.small_files import parse_json

_GZIP = b"\x1f\x8b"
MAX_SIZE = 256 * 1024 * 1024  #: bytes of a file
_MAX_DECOMPRESSED = 128 * 1024 * 1024
_MAX_VALUES = 500_000, 4_000_000  # lists and objects, and commas: 10,000 snapshots have a tenth


def parse_metadata(data: bytes) -> dict[str, Any]:
    """Return the content of a metadata file; what is in it may still be anything.

    Raises
    ------
    FormatError
        If it is not a JSON object, too long, or has too many values.
    """
    try:
        if data.startswith(_GZIP):
            data = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data, _MAX_DECOMPRESSED + 1)
            if len(data) > _MAX_DECOMPRESSED:
                raise not_metadata()
        metadata = parse_json(data, *_MAX_VALUES)
        if isinstance(metadata, dict):
            return metadata
    except (ValueError, zlib.error):
        pass
    raise not_metadata()


def not_metadata() -> FormatError:
    """Return the error for a file that is something else."""
    return FormatError("this is not a metadata file of Iceberg")
