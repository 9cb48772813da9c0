"""Write a segment again without some of its pairs: the pages that had them, and the tail.

The new version has the id of the old one, and so its key and the AAD of its modules. What does not
change is copied as it is stored, or stays where it is if it is in a part that does not change.

Under one id, pages only lose pairs that no file has any more, and files keep their places. Modules
of all versions authenticate. So an attacker who mixes them gets an index that has all pairs of the
newest version, or one that cannot be read.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from secure_bloom.errors import error_location
from secure_bloom.index.file_entry import FileEntry
from secure_bloom.index.file_pages import FilePage
from secure_bloom.index.file_table import FileDirectory
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.sealing import ID_SIZE, SBX2, IndexKey, ModuleType, Sealer
from secure_bloom.index.segment import Segment
from secure_bloom.index.segment_info import PART_SUFFIX, SUFFIX, Part, SegmentInfo
from secure_bloom.index.segment_writer import (
    SegmentFile,
    WrittenPages,
    deleted_after_errors,
    new_file,
)
from secure_bloom.storage.versions import open_regular

MOST_BYTES = 64 * 1024 * 1024  #: of pages that change: the new ones are in memory together


class Module(NamedTuple):
    """A sealed module in the place of an older one of another size."""

    old_size: int
    content: bytes


#: new modules by the offset of those that they replace
Modules = dict[int, Module]


def patch_segment(folder: IndexFolder, key: IndexKey, segment: Segment, lost: np.ndarray,
                  entries: Mapping[int, FileEntry]) -> SegmentInfo | None:
    """Write a segment again; return what the manifest records of it.

    Parameters
    ----------
    lost : uint64 array
        Pairs that the segment loses, as :func:`.pack` returns them, with row groups as places.
    entries : mapping of int to FileEntry
        New entries by the number of the file, with as many row groups as the old ones.

    Returns None if the segment does not have all of these pairs, so many pages have them that it
    is better merged, or its form does not allow it.
    """
    info, sealer = segment.info, key.segment(bytes.fromhex(segment.info.id))
    if segment.magic == SBX2 or segment.directory < info.parts_size:
        return None
    modules, sizes = Modules(), segment.page_sizes()
    pages, num_removed = segment.geometry.place(lost)[0], 0
    changed = np.unique(pages).astype(np.int64)
    if sizes[changed].sum() > MOST_BYTES:
        return None
    for page in changed.tolist():
        offset, size = segment.place_of_page(page)
        module, count = segment.without(page, lost[pages == page])
        modules[offset], sizes[page] = Module(size, module), len(module)
        num_removed += count
    if num_removed != lost.size:
        return None
    files = _new_files(segment, sealer, entries, modules)
    ends = list(accumulate((part.size for part in info.parts), initial=0))[1:]
    ends.append(segment.directory)
    if any(offset + module.old_size > ends[bisect_right(ends, offset)]
           for offset, module in modules.items()):
        return None  # a part ends within the module
    written = WrittenPages(sizes.astype("<u4"), segment.pairs - lost.size)
    with deleted_after_errors(folder.filesystem, folder.path, new := list[str]()):
        parts = tuple(_patch_part(folder, part, end - part.size, modules, new)
                      for part, end in zip(info.parts, ends, strict=False))
        own = os.urandom(ID_SIZE).hex()
        with new_file(folder.filesystem, folder.path, own + SUFFIX) as file:
            _copy(folder, info.name, info.parts_size, segment.directory, modules, file)
            found = file.add_tail(bytes.fromhex(info.id), sealer, segment.column_type,
                                  segment.geometry, written, files, parts)
    return replace(found, file=own)


def _new_files(segment: Segment, sealer: Sealer, entries: Mapping[int, FileEntry],
               modules: Modules) -> FileDirectory:
    """Add the changed pages of files to the modules; return the directory of all of them."""
    table, bounds = segment.files, segment.file_bounds
    directory = table.directory
    known = {*directory.schemas}
    schemas = [*directory.schemas, *dict.fromkeys(
        entry.schema for entry in entries.values() if entry.schema not in known)]
    numbers = {schema: number for number, schema in enumerate(schemas)}
    sizes = directory.sizes.copy()
    for page in {number // directory.page_files for number in entries}:
        first = page * directory.page_files
        some = range(first, min(first + directory.page_files, len(table)))
        rows = [entries[number] if number in entries else table.entry(number) for number in some]
        module = sealer.seal(FilePage.of(rows, numbers).to_bytes(), ModuleType.FILE_PAGE, page)
        modules[int(bounds[page])] = Module(int(sizes[page]), module)
        sizes[page] = len(module)
    return directory._replace(sizes=sizes, schemas=schemas)


def _patch_part(folder: IndexFolder, part: Part, start: int, modules: Modules,
                new: list[str]) -> Part:
    """Return a part, written again if a module in it changes; its name is added to ``new``."""
    inside = {offset - start: module for offset, module in modules.items()
              if start <= offset < start + part.size}
    if not inside:
        return part
    part_id = os.urandom(ID_SIZE).hex()
    with new_file(folder.filesystem, folder.path, part_id + PART_SUFFIX) as file:
        _copy(folder, part.name, 0, part.size, inside, file)
        file.flush()
        size = file.size
    new.append(part_id + PART_SUFFIX)
    return Part(part_id, size)


def _copy(folder: IndexFolder, name: str, first: int, last: int, modules: Modules,
          target: SegmentFile) -> None:
    """Append bytes of a segment with new modules; the file begins with byte ``first`` of it.

    Raises OSError if it is a link: an attacker could make it point to a file that must stay secret.
    """
    path, at = folder.segment_path(name), first
    with error_location(file=path, column=folder.column), \
            open_regular(folder.filesystem, path, by_links=False) as file:
        for offset in sorted(one for one in modules if first <= one < last):
            target.copy(file, at - first, offset - first)
            target.add(modules[offset].content)
            at = offset + modules[offset].old_size
        target.copy(file, at - first, last - first)
