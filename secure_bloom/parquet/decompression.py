"""Decompression of single pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa

from secure_bloom.errors import FormatError

#: by CompressionCodec: names in Arrow; not LZ4 (5), which is framed in two ways
_CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}

#: returns the bytes that were compressed, given their number; raises FormatError
Decompress: TypeAlias = Callable[[bytes, int], bytes]


def decompressor(codec: int) -> Decompress | None:
    """Return what decompresses pages; None if only Arrow's reader of files can."""
    if codec == 0:
        return lambda body, size: body
    if codec not in _CODECS or not pa.Codec.is_available(_CODECS[codec]):
        return None
    of_arrow = pa.Codec(_CODECS[codec])

    def decompress(body: bytes, size: int) -> bytes:
        try:
            return of_arrow.decompress(body, size, asbytes=True)
        except (OSError, pa.ArrowInvalid) as error:
            raise FormatError("a page cannot be decompressed") from error

    return decompress
