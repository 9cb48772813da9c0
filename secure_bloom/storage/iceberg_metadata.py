"""Metadata files of Iceberg tables: JSON, which may be compressed."""

from __future__ import annotations

import json
import zlib
from typing import Any

from secure_bloom.errors import FormatError

_GZIP = b"\x1f\x8b"
MAX_SIZE = 256 * 1024 * 1024  #: bytes of a decompressed file


def parse_metadata(data: bytes) -> dict[str, Any]:
    """Return the content of a metadata file; what is in it may still be anything.

    Raises
    ------
    FormatError
        If it is not a JSON object, or too long.
    """
    try:
        if data.startswith(_GZIP):
            data = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data, MAX_SIZE + 1)
        if len(data) <= MAX_SIZE and isinstance(metadata := json.loads(data), dict):
            return metadata
    except (ValueError, RecursionError, zlib.error):
        pass
    raise not_metadata()


def not_metadata() -> FormatError:
    """Return the error for a file that is something else."""
    return FormatError("this is not a metadata file of Iceberg")
