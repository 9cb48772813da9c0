"""Write a segment of an index from pairs in order."""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pyarrow.fs as pa_fs

from secure_bloom.index import pages
from secure_bloom.index.file_table import FileTable
from secure_bloom.index.geometry import Geometry
from secure_bloom.index.sealing import ID_SIZE, MAGIC, IndexKey, ModuleType, Sealer
from secure_bloom.index.segment import PART, SUFFIX, SegmentInfo, column_type_json
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.storage.files import Output, open_output

_TAIL = 4 * 1024 * 1024  # a larger directory is read in parts
_BUFFER = 1024 * 1024


def write_segment(filesystem: pa_fs.FileSystem, folder: str, key: IndexKey,
                  column_type: ColumnType, geometry: Geometry, slices: Iterable[np.ndarray],
                  slice_bits: int, files: FileTable) -> SegmentInfo:
    """Write a segment and return what the manifest records of it.

    Parameters
    ----------
    slices : iterable of uint64 arrays
        The pairs, in order, each once; ``2**slice_bits`` arrays, by the first bits.
    """
    segment_id = os.urandom(ID_SIZE)
    output = open_output(posixpath.join(folder, segment_id.hex() + SUFFIX), filesystem)
    try:
        info = _Writer(output, key.segment(segment_id), geometry).write(
            segment_id.hex(), column_type, slices, slice_bits, files)
        output.commit()
    except BaseException:
        output.abort()
        raise
    return info


class _Writer:
    def __init__(self, output: Output, sealer: Sealer, geometry: Geometry):
        self._output, self._sealer, self._geometry = output, sealer, geometry
        self._waiting: list[bytes] = []
        self._waiting_size = self._written = 0

    def write(self, segment_id: str, column_type: ColumnType, slices: Iterable[np.ndarray],
              slice_bits: int, files: FileTable) -> SegmentInfo:
        self._add(MAGIC)
        sizes, num_pairs = np.zeros(self._geometry.num_pages, "<u4"), 0
        pages_in_slice = self._geometry.num_pages >> slice_bits
        for number, pairs in enumerate(slices):
            first = number * pages_in_slice
            for page, size in enumerate(self._add_pages(pairs, first, pages_in_slice), first):
                sizes[page] = size
            num_pairs += pairs.size
        directory = self._offset
        self._add_directory(sizes)
        start_of_files = self._offset
        self._add(self._sealer.seal(memoryview(files.to_buffer()).cast("B"), ModuleType.FILES))
        fields = {"pairs": num_pairs, "column_type": column_type_json(column_type),
                  "geometry": self._geometry.to_json(), "directory": directory,
                  "files": start_of_files}
        footer = self._sealer.seal(json.dumps(fields).encode(), ModuleType.FOOTER)
        self._add(footer + len(footer).to_bytes(4, "little") + MAGIC)
        self._flush()
        tail = directory if start_of_files - directory <= _TAIL else start_of_files
        return SegmentInfo(segment_id, tail, self._written, num_pairs, len(files),
                           files.num_row_groups)

    def _add_pages(self, pairs: np.ndarray, first: int, count: int) -> Iterable[int]:
        """Add the pages of a slice; yield their sizes."""
        geometry = self._geometry
        slots, entries = geometry.split(pairs)
        numbers = np.arange(first, first + count, dtype=np.uint64)
        bounds = np.append(np.searchsorted(slots, numbers << np.uint64(geometry.bucket_bits)),
                           pairs.size).tolist()
        buckets = slots & np.uint64((1 << geometry.bucket_bits) - 1)
        for page, (start, end) in enumerate(pairwise(bounds), first):
            yield self._add(self._sealer.seal(
                pages.encode(buckets[start:end], entries[start:end], geometry.layout),
                ModuleType.PAGE, page))

    def _add_directory(self, sizes: np.ndarray) -> None:
        offset = len(MAGIC)
        for part, start in enumerate(range(0, sizes.size, PART)):
            some = sizes[start:start + PART]
            self._add(self._sealer.seal(offset.to_bytes(8, "little") + some.tobytes(),
                                        ModuleType.DIRECTORY, part))
            offset += int(some.sum(dtype=np.int64))

    @property
    def _offset(self) -> int:
        return self._written + self._waiting_size

    def _add(self, data: bytes) -> int:
        self._waiting.append(data)
        self._waiting_size += len(data)
        if self._waiting_size >= _BUFFER:
            self._flush()
        return len(data)

    def _flush(self) -> None:
        self._output.write(b"".join(self._waiting))
        self._written += self._waiting_size
        self._waiting, self._waiting_size = [], 0
