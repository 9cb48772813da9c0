"""Write a segment of an index from pairs in order: one file, or parts by several processes."""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.errors import FormatError
from secure_bloom.index.file_table import FileDirectory, FileTable
from secure_bloom.index.geometry import Geometry
from secure_bloom.index.sealing import ID_SIZE, MAGIC, IndexKey, ModuleType, Sealer
from secure_bloom.index.segment import DIRECTORY_PART, column_type_json
from secure_bloom.index.segment_info import PART_SUFFIX, SUFFIX, Part, SegmentInfo
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.storage.copying import copy_range
from secure_bloom.storage.files import Output, open_output
from secure_bloom.storage.inside import delete_file, held_folder

PART = 16 * 1024 * 1024  #: bytes; a part of a segment has half to twice as many
_MAX_PART_BITS = 6  # then parts are larger
_TAIL = 4 * 1024 * 1024  # a larger directory is read in parts
_FEW_FILES = 64 * 1024  # bytes of pages of files that are read together with the directory
_BUFFER = 1024 * 1024


class WrittenPages(NamedTuple):
    """Pages that were written: the stored size of each, and how many pairs they have."""

    sizes: np.ndarray
    pairs: int


class WrittenPart(NamedTuple):
    """A part of a segment that was written, and its pages."""

    part: Part
    pages: WrittenPages


def write_segment(filesystem: pa_fs.FileSystem, folder: str, key: IndexKey,
                  column_type: ColumnType, geometry: Geometry, slices: Iterable[np.ndarray],
                  slice_bits: int, files: FileTable) -> SegmentInfo:
    """Write a segment, and return what the manifest records of it.

    The pages of a large one are written in parts, so that a page of it can be replaced without
    copying all others.

    Parameters
    ----------
    slices : iterable of uint64 arrays
        The pairs, in order, each once; ``2**slice_bits`` arrays, by the first bits.
    """
    segment_id = os.urandom(ID_SIZE)
    part_bits = min(_part_bits(geometry), slice_bits)
    if part_bits:
        count, remaining = 1 << slice_bits - part_bits, iter(slices)
        parts: list[WrittenPart] = []
        with deleted_after_errors(filesystem, folder, names := list[str]()):
            for first in range(0, 1 << slice_bits, count):
                parts.append(write_part(filesystem, folder, key, segment_id, geometry,
                                        islice(remaining, count), slice_bits, first))
                names.append(parts[-1].part.name)
            return write_after_parts(filesystem, folder, key, segment_id, column_type, geometry,
                                     parts, files)
    sealer = key.segment(segment_id)
    with new_file(filesystem, folder, segment_id.hex() + SUFFIX) as file:
        file.add(MAGIC)
        written = file.add_pages(sealer, geometry, slices, slice_bits)
        return file.add_tail(segment_id, sealer, column_type, geometry, written,
                             file.add_files(sealer, files))


def _part_bits(geometry: Geometry) -> int:
    """Return how many parts a segment has, as a power of two; 0: it has one file."""
    layout = geometry.layout
    most = geometry.num_pages * (1 << layout.bucket_bits) * (8 * layout.width + 2) // 8  # bytes
    return min(max(most // PART, 1).bit_length() - 1, _MAX_PART_BITS)


@contextmanager
def deleted_after_errors(filesystem: pa_fs.FileSystem, folder: str,
                         names: Sequence[str]) -> Iterator[None]:
    """Delete new files of these names if there is an error: nothing will refer to them."""
    try:
        yield
    except BaseException:
        for name in names:
            with suppress(OSError):  # vacuum deletes it then
                delete_file(filesystem, _table(folder), posixpath.join(folder, name))
        raise


def _table(folder: str) -> str:
    """Return the table of the folder of an index: ``_index/<column>`` of it."""
    return posixpath.dirname(posixpath.dirname(folder))


def write_part(filesystem: pa_fs.FileSystem, folder: str, key: IndexKey, segment_id: bytes,
               geometry: Geometry, slices: Iterable[np.ndarray], slice_bits: int,
               first_slice: int) -> WrittenPart:
    """Write the pages of successive slices of a segment in a separate file, a part.

    The part with the first slice begins the segment.
    """
    part_id = os.urandom(ID_SIZE).hex()  # another one for each attempt
    with new_file(filesystem, folder, part_id + PART_SUFFIX) as file:
        if first_slice == 0:
            file.add(MAGIC)
        written = file.add_pages(key.segment(segment_id), geometry, slices, slice_bits,
                                 first_slice)
        file.flush()
        return WrittenPart(Part(part_id, file.size), written)


def write_after_parts(filesystem: pa_fs.FileSystem, folder: str, key: IndexKey, segment_id: bytes,
                      column_type: ColumnType, geometry: Geometry, parts: Sequence[WrittenPart],
                      files: FileTable) -> SegmentInfo:
    """Write what follows the pages of a segment, and return what the manifest records of it.

    Raises ValueError if the parts do not have all pages of the segment.
    """
    sizes = np.concatenate([one.pages.sizes for one in parts])
    if sizes.size != geometry.num_pages:
        raise ValueError(f"the parts have {sizes.size:,} of {geometry.num_pages:,} pages")
    written = WrittenPages(sizes, sum(one.pages.pairs for one in parts))
    sealer = key.segment(segment_id)
    with new_file(filesystem, folder, segment_id.hex() + SUFFIX) as file:
        return file.add_tail(segment_id, sealer, column_type, geometry, written,
                             file.add_files(sealer, files), tuple(one.part for one in parts))


@contextmanager
def new_file(filesystem: pa_fs.FileSystem, folder: str, name: str) -> Iterator[SegmentFile]:
    """Write a file, which does not exist if there is an error.

    On Linux, links that come to the place of the folder meanwhile change nothing.
    """
    with held_folder(filesystem, _table(folder), folder) as (held, place), \
            open_output(posixpath.join(place, name), held) as output:
        yield SegmentFile(output)
        output.commit()


class SegmentFile:
    """A file of a segment that is being written."""

    def __init__(self, output: Output):
        self._output = output
        self._waiting: list[bytes] = []
        self._waiting_size = self._written = 0

    @property
    def size(self) -> int:
        """Bytes that were added."""
        return self._written + self._waiting_size

    def add(self, data: bytes) -> int:
        """Append bytes; return their number."""
        self._waiting.append(data)
        self._waiting_size += len(data)
        if self._waiting_size >= _BUFFER:
            self.flush()
        return len(data)

    def flush(self) -> None:
        """Write what is waiting."""
        self._output.write(b"".join(self._waiting))
        self._written += self._waiting_size
        self._waiting, self._waiting_size = [], 0

    def copy(self, file: pa.NativeFile, start: int, end: int) -> None:
        """Append bytes of a file. Raises FormatError if it does not have them."""
        self.flush()
        if copy_range(file, file.read_at, self._output, start, end) < end:
            raise FormatError("this segment of the index is truncated")
        self._written += end - start

    def add_pages(self, sealer: Sealer, geometry: Geometry, slices: Iterable[np.ndarray],
                  slice_bits: int, first_slice: int = 0) -> WrittenPages:
        """Append the pages of successive slices."""
        sizes: list[int] = []
        pairs, pages_in_slice = 0, geometry.num_pages >> slice_bits
        for number, some in enumerate(slices, first_slice):
            sizes += self._add_slice(sealer, geometry, some, number * pages_in_slice,
                                     pages_in_slice)
            pairs += some.size
        return WrittenPages(np.array(sizes, "<u4"), pairs)

    def _add_slice(self, sealer: Sealer, geometry: Geometry, pairs: np.ndarray, first: int,
                   count: int) -> Iterator[int]:
        """Append the pages of a slice; yield their sizes."""
        pages, ends = geometry.encode_pages(pairs, first, count)
        for page, (start, end) in enumerate(pairwise([0, *ends]), first):
            yield self.add(sealer.seal(pages[start:end], ModuleType.PAGE, page))

    def add_files(self, sealer: Sealer, files: FileTable) -> FileDirectory:
        """Append the pages of files; return their directory."""
        sizes = [self.add(sealer.seal(page.to_bytes(), ModuleType.FILE_PAGE, number))
                 for number, page in enumerate(files.all_pages())]
        return files.directory._replace(sizes=np.array(sizes))

    def add_tail(self, segment_id: bytes, sealer: Sealer, column_type: ColumnType,
                 geometry: Geometry, written: WrittenPages, files: FileDirectory,
                 parts: tuple[Part, ...] = ()) -> SegmentInfo:
        """Append what follows all pages; return what the manifest records of the segment."""
        before = sum(part.size for part in parts)
        directory = before + self.size
        start_of_pages = directory - int(files.sizes.sum())
        self._add_directory(sealer, written.sizes)
        start_of_files = before + self.size
        self.add(sealer.seal(files.to_bytes(), ModuleType.FILES))
        fields = {"pairs": written.pairs, "column_type": column_type_json(column_type),
                  "geometry": geometry.to_json(), "directory": directory, "files": start_of_files}
        footer = sealer.seal(json.dumps(fields).encode(), ModuleType.FOOTER)
        self.add(footer + len(footer).to_bytes(4, "little") + MAGIC)
        self.flush()
        tail = start_of_files if start_of_files - directory > _TAIL \
            else directory if directory - start_of_pages > _FEW_FILES else start_of_pages
        return SegmentInfo(segment_id.hex(), max(tail, before), before + self.size, written.pairs,
                           files.num_files, int(files.groups.sum()), parts)

    def _add_directory(self, sealer: Sealer, sizes: np.ndarray) -> None:
        offset = len(MAGIC)
        for part, start in enumerate(range(0, sizes.size, DIRECTORY_PART)):
            some = sizes[start:start + DIRECTORY_PART]
            self.add(sealer.seal(offset.to_bytes(8, "little") + some.tobytes(),
                                 ModuleType.DIRECTORY, part))
            offset += int(some.sum(dtype=np.int64))
