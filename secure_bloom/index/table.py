"""The table that an index belongs to: its files as listed, and its generation."""

from __future__ import annotations

import hashlib
import posixpath
from typing import NamedTuple

import pyarrow.fs as pa_fs

from secure_bloom.index.column_index import ColumnIndex, Place
from secure_bloom.index.file_table import Stamp
from secure_bloom.storage.files import FilePath, read_file, resolve
from secure_bloom.storage.visibility import (
    GENERATION,
    STAGING,
    files_below,
    table_of,
    visible_files,
)


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

    def listing(self) -> dict[str, Stamp]:
        """Return the stamps of the visible files, by path."""
        return stamps(visible_files(self.filesystem, self.path))

    def full_path(self, path: str) -> str:
        """Return the path of a file of the table in the filesystem."""
        return posixpath.join(self.path, path)

    def generation(self) -> str | None:
        """Return what changes with every job that adds or removes files.

        None if no job has written to the table, or one is at work or has left markers.
        """
        staging = posixpath.join(self.path, STAGING)
        if set(files_below(self.filesystem, staging, allow_not_found=True)) != {GENERATION}:
            return None
        try:
            content = read_file(self.filesystem, posixpath.join(staging, GENERATION))
        except FileNotFoundError:
            return None
        return hashlib.sha256(content).hexdigest()


def stamps(infos: dict[str, pa_fs.FileInfo]) -> dict[str, Stamp]:
    """Return the stamps of listed files; files without a time have none that matches."""
    return {path: Stamp(info.size, -1 if info.mtime_ns is None else info.mtime_ns)
            for path, info in infos.items()}


def listing_for(table: Table, index: ColumnIndex) -> dict[str, Stamp]:
    """Return the listing for a lookup.

    It is that of the last update if only jobs of ours write to the table, and none has since then.
    """
    body = index.manifest.body
    if body.generation is None or body.generation != table.generation():
        return table.listing()
    dead = set(body.dead)
    found: dict[str, Stamp] = {}
    places: dict[str, Place] = {}
    for (path, *stamp), place in index.places.items():
        if path in dead:
            continue
        if places.setdefault(path, place) != place:
            return table.listing()  # two segments have this path: only a listing can tell
        found[path] = Stamp(*stamp)
    return found
