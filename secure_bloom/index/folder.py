"""The folder of an index: ``_index/<column>`` of the table, on any filesystem."""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.errors import SecureBloomError, error_location
from secure_bloom.index.manifest import Manifest, StoredManifest
from secure_bloom.index.segment import SUFFIX, ReadAt
from secure_bloom.keys.cache import CachedKms
from secure_bloom.storage.files import create_file, make_folder, read_file, write_file

INDEX = "_index"
_MANIFEST = ".manifest"
_VERSION = re.compile(r"(\d{12})\.manifest")
_CLOCK = "clock"
_AT_ONCE = 16  # requests to a store
_TRIES = 100


class IndexFolder:
    """The files of the index of one column.

    Parameters
    ----------
    filesystem : pyarrow.fs.FileSystem
    table : str
    column : str
        Dotted path.
    """

    def __init__(self, filesystem: pa_fs.FileSystem, table: str, column: str):
        self.filesystem, self.table, self.column = filesystem, table, column
        self.path = posixpath.join(table, INDEX, folder_name(column))

    def newest(self) -> StoredManifest | None:
        """Return the newest manifest that is complete; None if there is none."""
        for _ in range(_TRIES):
            with contextlib.suppress(FileNotFoundError):  # deleted: there is a newer one
                return self._newest_of(self.versions())
        raise SecureBloomError("other programs update this index faster than it can be read; try "
                               "again", file=self.path, column=self.column)

    def _newest_of(self, versions: list[int]) -> StoredManifest | None:
        for version in reversed(versions):
            path = self.manifest_path(version)
            with error_location(file=path):
                stored = StoredManifest.parse(read_file(self.filesystem, path), version)
            if stored is not None:
                return stored
        return None

    def open_newest(self, kms: CachedKms | None) -> Manifest | None:
        """Return the newest manifest, opened with the key; None if there is none."""
        stored = self.newest()
        if stored is None:
            return None
        with error_location(file=self.manifest_path(stored.version), column=self.column):
            return stored.open(self.column, kms)

    def publish(self, manifest: Manifest) -> None:
        """Store a manifest.

        Raises FileExistsError if another writer has stored one with this version.
        """
        make_folder(self.filesystem, self.path)
        create_file(self.filesystem, self.manifest_path(manifest.version), manifest.to_bytes())

    def delete_before(self, version: int) -> None:
        """Delete all manifests of earlier versions, which a later complete one replaces."""
        for earlier in self.versions():
            if earlier < version:
                with contextlib.suppress(FileNotFoundError):
                    self.filesystem.delete_file(self.manifest_path(earlier))

    def versions(self) -> list[int]:
        """Return the versions of all manifests, in order."""
        matches = (_VERSION.fullmatch(info.base_name) for info in self.infos())
        return sorted(int(match[1]) for match in matches if match)

    def manifest_path(self, version: int) -> str:
        """Return the path of a manifest."""
        return posixpath.join(self.path, f"{version:012}{_MANIFEST}")

    def segment_path(self, name: str) -> str:
        """Return the path of a segment."""
        return posixpath.join(self.path, name)

    def infos(self) -> list[pa_fs.FileInfo]:
        """List the files."""
        found = self.filesystem.get_file_info(pa_fs.FileSelector(self.path, allow_not_found=True))
        return [info for info in found if info.type == pa_fs.FileType.File]

    def now_ns(self) -> int | None:
        """Return the time by the clock that dates files; None if the filesystem has none."""
        path = posixpath.join(self.path, _CLOCK)
        make_folder(self.filesystem, self.path)
        write_file(self.filesystem, path, b"")
        found = self.filesystem.get_file_info(path).mtime_ns
        with contextlib.suppress(OSError):  # another update may have deleted it
            self.filesystem.delete_file(path)
        return found

    def open_segment(self, name: str) -> ReadAt:
        """Open a segment; return what reads from it. The file is closed with the result."""
        path = self.segment_path(name)
        file = pa.OSFile(path) if self.filesystem.type_name == "local" \
            else self.filesystem.open_input_file(path)

        def read_at(size: int, offset: int) -> bytes:
            return file.read_at(size, offset)

        return lambda offset, size: read_at(size, offset)

    @contextlib.contextmanager
    def pool(self) -> Iterator[ThreadPoolExecutor | None]:
        """Return threads for requests to a store; None for local files, which need none."""
        if self.filesystem.type_name == "local":
            yield None
            return
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            yield pool


def indexed_columns(filesystem: pa_fs.FileSystem, table: str) -> list[str]:
    """Return the columns that have a folder below ``_index``, sorted."""
    selector = pa_fs.FileSelector(posixpath.join(table, INDEX), allow_not_found=True)
    return sorted(unquote(info.base_name) for info in filesystem.get_file_info(selector)
                  if info.type == pa_fs.FileType.Directory)


def folder_name(column: str) -> str:
    """Return the name of the folder of a column: its dotted path, percent-encoded."""
    name = quote(column, safe="")
    return "%2E" + name[1:] if name.startswith(".") else name


def segment_names(names: Sequence[str]) -> list[str]:
    """Return those of some file names that are segments."""
    return [name for name in names if os.path.splitext(name)[1] == SUFFIX]
