"""Everything that a file or an index stores, decrypted and decompressed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from secure_bloom import SplitBlockBloomFilter
from secure_bloom.crypto.aad import ModuleType
from secure_bloom.index import Index
from secure_bloom.index.column_segments import column_hashes
from secure_bloom.parquet import thrift
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.pages import StoredPages, copied_pages
from secure_bloom.reading.open_file import OpenFile

# Field ids of PageHeader in parquet.thrift, and of the header of data pages of version 2.
_UNCOMPRESSED_SIZE, _COMPRESSED_SIZE, _HEADER_V2, _LEVELS, _IS_COMPRESSED = 2, 3, 8, (5, 6), 7
_CODEC = 4  # ColumnMetaData
_CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 5: "lz4", 6: "zstd", 7: "lz4_raw"}
_INDEXES = {"column_index": ModuleType.COLUMN_INDEX, "offset_index": ModuleType.OFFSET_INDEX}


def stored(path: Path, keys: Any) -> Iterator[tuple[str, bytes]]:
    """Yield what a file stores, each with its place; no byte of the file is left out."""
    with OpenFile(path, keys) as file:
        ranges = []
        yield "footer", bytes(file.stored_footer)
        for chunk in file.footer.column_chunks():
            place = f"{chunk.column.path} of row group {chunk.row_group}"
            yield f"metadata of {place}", thrift.encode(chunk.metadata())
            ranges.append(chunk.pages)
            for content in _pages(file, chunk):
                yield f"page of {place}", content
            for name, module_type in _INDEXES.items():
                if (where := getattr(chunk, name)) is not None:
                    ranges.append(where)
                    data = file.read_at(where[1], where[0])
                    yield f"{name} of {place}", data if chunk.modules is None \
                        else chunk.modules.decrypt(data, module_type)
            if chunk.bloom_filter is not None:
                ranges.append(_check_filter(file, chunk))
        yield "bytes between", _between(file, ranges)


def _pages(file: OpenFile, chunk: ColumnChunk) -> Iterator[bytes]:
    """Yield headers and bodies of all pages."""
    parts = copied_pages(file, chunk.pages, chunk.modules, None, StoredPages())
    codec = chunk.metadata().get_int(_CODEC) or 0
    for raw in parts:
        yield bytes(raw)
        header, _ = thrift.decode(raw, {_HEADER_V2: {}})
        size, body = header.get_int(_COMPRESSED_SIZE), b""
        while len(body) < size or (not body and size):
            body += next(parts)
        if not size:
            next(parts)
        yield _decompressed(header, body, codec)


def _decompressed(header: Any, body: bytes, codec: int) -> bytes:
    levels, v2 = 0, header.get(_HEADER_V2)
    if v2 is not None:
        levels = sum(v2.get_int(field) or 0 for field in _LEVELS)
        if v2.get_bool(_IS_COMPRESSED) is False:
            codec = 0
    size = header.get_int(_UNCOMPRESSED_SIZE) - levels
    if not codec or not size or not body[levels:]:
        return body
    return body[:levels] + pa.Codec(_CODECS[codec]).decompress(body[levels:], size, asbytes=True)


def _check_filter(file: OpenFile, chunk: ColumnChunk) -> tuple[int, int]:
    """Check that a filter has no bits but those of the rows; return where it is."""
    found = file.read_bloom_filter(chunk.row_group, chunk.column.path)
    of_rows = SplitBlockBloomFilter(found.num_blocks)
    for portion in column_hashes(file, chunk.column):
        if portion.row_group == chunk.row_group:
            of_rows.insert_hashes(portion.hashes)
    assert bytes(found.bitset) == bytes(of_rows.bitset), \
        f"the filter of {chunk.column.path} has bits that no row has"
    return chunk.bloom_filter


def _between(file: OpenFile, ranges: list[tuple[int, int]]) -> bytes:
    """Return the bytes in no module that the footer names."""
    found, position = b"", 4
    for start, size in sorted(ranges):
        found += file.read_at(max(0, start - position), position)
        position = max(position, start + size)
    return found + file.read_at(max(0, file.footer.start - position), position)


def check_index(lake: Path, column: str, keys: Any) -> None:
    """Check that an index has no fingerprints but those of rows, and no other files."""
    opened = Index.open(lake, keys).column(column)
    hashes = [np.zeros(0, np.uint64)]
    for path in lake.glob("*.parquet"):
        with OpenFile(path, keys) as file:
            [leaf] = [one for one in file.columns if one.path == column]
            hashes += [some.hashes for some in column_hashes(file, leaf)]
    expected = {one >> 26 for one in
                opened.manifest.key.fingerprints(np.concatenate(hashes)).tolist()}
    names = {name for info in opened.manifest.body.segments for name in info.file_names}
    for segment in opened.segments:
        if segment.pairs:
            for fingerprints, *_ in segment.decode(0, segment.geometry.num_pages):
                extra = set(fingerprints.tolist()) - expected
                assert not extra, f"the index has {len(extra)} fingerprints that no row has"
    left = {path.name for path in lake.rglob("*") if path.suffix in (".seg", ".part")}
    assert left == names, f"segments are left: {left - names}"
