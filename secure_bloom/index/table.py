"""The table that an index belongs to: its files as listed, and its generation."""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pyarrow.fs as pa_fs

from secure_bloom.errors import FormatError
from secure_bloom.index.column_index import ColumnIndex
from secure_bloom.index.coverage import Coverage
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.opened_indexes import opened_before
from secure_bloom.index.stamps import Stamp, stamps
from secure_bloom.keys.retrieval import Keys
from secure_bloom.policy.requirement import FolderChecks, RequireEncryption
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage.files import FilePath, resolve
from secure_bloom.storage.inside import is_own_table, leads_out
from secure_bloom.storage.small_files import MAX_MARKER, read_cached
from secure_bloom.storage.source import Source
from secure_bloom.storage.table_names import (
    GENERATION,
    STAGING,
    folders_of,
    relative_path,
    table_of,
)
from secure_bloom.storage.visibility import Check, files_below, visible_files

if TYPE_CHECKING:
    from secure_bloom.storage.hive_partitioning import PartitionChoice

_Opened = TypeVar("_Opened", ColumnIndex, ColumnIndex | None)


class Table(NamedTuple):
    """A folder of Parquet files, with a filesystem."""

    filesystem: pa_fs.FileSystem
    path: str

    @classmethod
    def at(cls, path: FilePath, filesystem: pa_fs.FileSystem | None = None) -> Table:
        """Return the table at a path.

        Raises ValueError if the path is a partition folder, which belongs to the table above.
        """
        filesystem, found = resolve(path, filesystem)
        found = found.rstrip("/") or "/"
        if table_of(found) != found:
            raise ValueError(f"{found} is a partition of {table_of(found)}; pass the path of the "
                             "whole table")
        return cls(filesystem, found)

    def listing(self, folder: str | None = None, check: Check | None = None,
                partitions: PartitionChoice | None = None) -> dict[str, Stamp]:
        """Return the stamps of the visible files, by path relative to the table.

        ``folder`` is the table or a partition folder of it; ``check`` and ``partitions`` are those
        of :func:`.visible_files`.
        """
        folder = self.path if folder is None else folder
        found = visible_files(self.filesystem, folder, check, partitions=partitions)
        prefix = self.prefix(folder)
        return self._stamps({prefix + path: info for path, info in found.items()}
                            if prefix else found)

    def _stamps(self, found: Mapping[str, pa_fs.FileInfo]) -> dict[str, Stamp]:
        return dict(zip(found, stamps(self.filesystem, found.values()), strict=True))

    def state(self) -> TableState:
        """Return its generation and its files as they are now."""
        generation, found = self.generation(), visible_files(self.filesystem, self.path)
        if generation is not None and not self._are_own(found):
            generation = None
        return TableState(generation, self._stamps(found))

    def _are_own(self, found: Mapping[str, pa_fs.FileInfo]) -> bool:
        folders = folders_of(found)
        links = {path for path, info in found.items() if getattr(info, "is_link", False)}
        return all(table_of(posixpath.join("table", folder)) == "table" for folder in folders) \
            and not leads_out(self.filesystem, self.path, folders | links)

    def prefix(self, folder: str) -> str:
        """Return how the relative paths of all files below a folder of the table begin."""
        below = relative_path(folder, self.path)
        return f"{below}/" if below else ""

    def full_path(self, path: str) -> str:
        """Return the path of a file of the table, as the filesystem lists it."""
        full = posixpath.join(self.path, path)
        return full.lstrip("/") if self.filesystem.type_name == "subtree" else full

    def open(self, path: str, keys: Keys,
             require_encryption: RequireEncryption | FolderChecks = None) -> OpenFile:
        """Open a file of the table by its relative path."""
        return OpenFile(Source(self.full_path(path), self.filesystem), keys,
                        require_encryption=require_encryption)

    def generation(self) -> str | None:
        """Return what changes with every job that adds or removes files.

        None if no job has written to the table, or one is at work or has left markers; also if the
        table is a link to a partition of another one, whose jobs leave no marker here.
        """
        if not is_own_table(self.filesystem, self.path):
            return None
        staging = posixpath.join(self.path, STAGING)
        try:
            is_only = type(self.filesystem) is pa_fs.LocalFileSystem \
                and os.listdir(staging) == [GENERATION]  # which takes less time
            if not is_only and set(files_below(self.filesystem, staging, allow_not_found=True)) \
                    != {GENERATION}:
                return None
            # If it is replaced meanwhile, its hash is none that was recorded.
            content = read_cached(self.filesystem, f"{staging}/{GENERATION}", MAX_MARKER)
        except (OSError, FormatError):
            return None  # so the files must be listed, which fails if this was not the cause
        return hashlib.sha256(content).hexdigest()


class TableState(NamedTuple):
    """The files of a table, and its generation before they were listed.

    The generation is None if other programs may change files without changing it: in a folder that
    is not a partition, or where a link leads to.
    """

    generation: str | None
    listing: dict[str, Stamp]


def open_with_generation(table: Table, column: str, open_index: Callable[[], _Opened]) \
        -> tuple[_Opened, str | None]:
    """Open an index, and return it with the generation of the table; in stores at the same time.

    That is None if the index has none, as far as this process knows.
    """
    if table.filesystem.type_name == "local":
        index = open_index()
        has_one = index is not None and index.manifest.body.generation is not None
        return index, table.generation() if has_one else None
    known = opened_before(IndexFolder(table.filesystem, table.path, column))
    if known is not None and known.manifest.body.generation is None:
        return open_index(), None
    with ThreadPoolExecutor(1) as pool:
        generation = pool.submit(table.generation)
        return open_index(), generation.result()


def coverage_for(table: Table, index: ColumnIndex, generation: str | None) -> Coverage:
    """Return which files of a table of some generation an index covers.

    They are listed if that is necessary.
    """
    trusted = index.trusted(generation)
    if trusted is not None:
        return trusted
    listing = known_listing(table, index, generation)
    return index.coverage(table.listing() if listing is None else listing)


def known_listing(table: Table, index: ColumnIndex, generation: str | None,
                  folder: str | None = None) -> dict[str, Stamp] | None:
    """Return what :meth:`Table.listing` returns, from an index; None: the table must be listed."""
    if not index.is_of(generation):
        return None
    removed, prefix = index.removed, table.prefix(folder or table.path)
    known = index.stamps
    if known is None or (not removed and not prefix):  # None: there are two versions of a file
        return known
    return {path: stamp for path, stamp in known.items()
            if path not in removed and path.startswith(prefix)}
