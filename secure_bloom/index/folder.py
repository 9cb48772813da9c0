"""The folder of an index: ``_index/<column>`` of the table, on any filesystem."""

from __future__ import annotations

import contextlib
import posixpath
import re
import uuid
from bisect import bisect_right
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache, cached_property
from itertools import accumulate
from urllib.parse import quote

import pyarrow.fs as pa_fs

from secure_bloom.errors import (
    ChangedMeanwhileError,
    FormatError,
    SecureBloomError,
    UnsupportedError,
    error_location,
)
from secure_bloom.index.exclusive_files import create_exclusively
from secure_bloom.index.manifest import Manifest, StoredManifest
from secure_bloom.index.segment import ReadAt
from secure_bloom.index.segment_info import PART_SUFFIX, SUFFIX, SegmentInfo
from secure_bloom.keys.cache import CachedKms
from secure_bloom.storage import inside
from secure_bloom.storage.files import make_folder, write_file
from secure_bloom.storage.local_files import temporary_target
from secure_bloom.storage.local_listing import (
    file_names,
    folder_expected,
    list_folder,
    with_valid_names,
)
from secure_bloom.storage.small_files import open_small, read_cached
from secure_bloom.storage.table_names import INDEX

MANIFEST = ".manifest"  #: suffix of manifests
_VERSION = re.compile(rf"(\d{{12}}){re.escape(MANIFEST)}")
_LAST = 10**12 - 1  # version
_CLOCK = "clock-"
_OWN = re.compile(rf"{_VERSION.pattern}|{_CLOCK}[0-9a-f]{{32}}"
                  rf"|[0-9a-f]{{32}}({re.escape(SUFFIX)}|{re.escape(PART_SUFFIX)})")
_AT_ONCE = 16  # requests to a store
_TRIES = 10
_MAX_TORN = 8  # manifests
MAX_MANIFEST = 128 * 1024 * 1024  #: bytes


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

    @property
    def is_local(self) -> bool:
        """Whether the files are local, so that requests need not be sent together."""
        return bool(self.filesystem.type_name == "local")

    @cached_property
    def place(self) -> tuple[str, str]:
        """What distinguishes the folder from others, together with its filesystem."""
        return self.filesystem.type_name, posixpath.normpath(self.path)

    def newest(self, known: StoredManifest | None = None) -> StoredManifest | None:
        """Return the newest manifest that is complete; None if there is none.

        If its bytes are those of a known manifest, that one is returned.
        """
        for _ in range(_TRIES):
            versions = self.versions()
            found, is_gone = self._newest_of(versions, known)
            # A later version may have been published, and these deleted. A listing at that moment
            # may miss both.
            if found is not None or not (is_gone or self.versions() != versions):
                break
        return found

    def open_newest(self, kms: CachedKms | None) -> Manifest | None:
        """Return the newest manifest, opened with the key; None if there is none."""
        stored = self.newest()
        return None if stored is None else self.opened(stored, kms)

    def published_segments(self, kms: CachedKms | None) -> set[str]:
        """Return the names of the files of segments in all manifests that are still there."""
        names: set[str] = set()
        for version in self.versions():
            path = self.manifest_path(version)
            with contextlib.suppress(FileNotFoundError), \
                    error_location(file=path, column=self.column):
                stored = StoredManifest.parse(self._read_manifest(path), version)
                names |= self.opened(stored, kms).body.file_names if stored else set()
        return names

    def newest_and_next(self, kms: CachedKms | None) -> tuple[Manifest | None, int]:
        """Return the newest manifest, and the version that follows; both from one listing.

        So that version exists already if another writer has published one since then. It is later
        than a torn manifest, too, which stays where it is.
        """
        versions = self.versions()
        found, _ = self._newest_of(versions)
        manifest = None if found is None else self.opened(found, kms)
        return manifest, max(versions, default=0) + 1

    def _newest_of(self, versions: list[int], known: StoredManifest | None = None) \
            -> tuple[StoredManifest | None, bool]:
        """Return the newest one that is complete, and whether one has been deleted.

        Raises FormatError if several are torn, which writers do not leave.
        """
        is_gone, torn = False, 0
        for version in reversed(versions):
            path = self.manifest_path(version)
            try:
                with error_location(file=path, column=self.column):
                    data = self._read_manifest(path)
                    is_known = known is not None and (version, data) == (known.version, known.data)
                    stored = known if is_known else StoredManifest.parse(data, version)
            except FileNotFoundError:
                is_gone = True
                continue
            if stored is not None:
                return stored, is_gone
            torn += 1
            if torn == _MAX_TORN:
                raise FormatError(f"the newest {torn} manifests of the index are not complete: "
                                  "delete them", file=path, column=self.column)
        return None, is_gone

    def has_replaced(self, newest: StoredManifest) -> bool:
        """Whether manifests of an index that this one has replaced are still there."""
        for version in self.versions():
            # One that cannot be read is left alone: it tells nothing.
            with contextlib.suppress(FileNotFoundError, SecureBloomError):
                earlier = None if version >= newest.version else \
                    StoredManifest.parse(self._read_manifest(self.manifest_path(version)), version)
                if earlier is not None and earlier.index_id != newest.index_id:
                    return True
        return False

    def _read_manifest(self, path: str) -> bytes:
        return read_cached(self.filesystem, path, MAX_MANIFEST)

    def opened(self, stored: StoredManifest, kms: CachedKms | None) -> Manifest:
        """Open a manifest of this folder with the key."""
        with self.location(stored):
            return stored.open(self.column, kms)

    def key_digest(self, stored: StoredManifest, kms: CachedKms | None) -> bytes:
        """Return :meth:`.StoredManifest.key_digest`."""
        with self.location(stored):
            return stored.key_digest(kms)

    def location(self, stored: StoredManifest) -> AbstractContextManager[None]:
        """Add to errors where a manifest is."""
        return error_location(file=self.manifest_path(stored.version), column=self.column)

    def publish(self, manifest: Manifest) -> None:
        """Store a manifest.

        Raises FileExistsError if another writer has stored one with this version.
        """
        if manifest.version > _LAST:  # it would not be found
            raise FormatError("the newest manifest has the highest version that its name can have, "
                              "which somebody must have put there: delete the index",
                              file=self.path, column=self.column)
        self._make()
        path, data = self.manifest_path(manifest.version), manifest.to_bytes()
        if len(data) > MAX_MANIFEST:
            raise UnsupportedError(f"the next manifest would have {len(data):,} bytes, more than "
                                   "are read; compact the index", file=path, column=self.column)
        with inside.held_folder(self.filesystem, self.table, self.path) as (filesystem, place):
            create_exclusively(filesystem, posixpath.join(place, posixpath.basename(path)), data)

    def delete_before(self, version: int) -> None:
        """Delete all manifests of earlier versions, which a later complete one replaces."""
        for earlier in self.versions():
            if earlier < version:
                self.delete(self.manifest_path(earlier))

    def versions(self) -> list[int]:
        """Return the versions of all manifests, in order."""
        matches = map(_VERSION.fullmatch, file_names(self.filesystem, self.path))
        return sorted(int(match[1]) for match in matches if match)

    def manifest_path(self, version: int) -> str:
        """Return the path of a manifest."""
        return f"{self.path}/{version:012}{MANIFEST}"

    def segment_path(self, name: str) -> str:
        """Return the path of a file of a segment."""
        return posixpath.join(self.path, name)

    def infos(self) -> list[pa_fs.FileInfo]:
        """List the files."""
        found = list_folder(self.filesystem, self.path, True)
        return [info for info in with_valid_names(found) if info.type == pa_fs.FileType.File]

    def own_infos(self) -> list[pa_fs.FileInfo]:
        """List the files whose names this library makes."""
        return [info for info in self.infos()
                if _OWN.fullmatch(temporary_target(info.base_name) or info.base_name)]

    @staticmethod
    def is_of_segment(info: pa_fs.FileInfo) -> bool:
        """Whether a file is one of a segment, also before it is complete."""
        return (temporary_target(info.base_name) or info.base_name).endswith((SUFFIX, PART_SUFFIX))

    def check_inside(self) -> None:
        """Raise UnsupportedError if a link leads from the folder out of the table.

        This precedes whatever is written to it.
        """
        inside.check_inside(self.filesystem, self.table, self.path)

    def delete(self, path: str) -> None:
        """Delete one of the files, if it exists; raises as :meth:`check_inside`."""
        with contextlib.suppress(FileNotFoundError):
            inside.delete_file(self.filesystem, self.table, path)

    def now_ns(self) -> int | None:
        """Return the time by the clock of modification times; None if the filesystem has none."""
        name = f"{_CLOCK}{uuid.uuid4().hex}"
        path = posixpath.join(self.path, name)
        self._make()
        with inside.held_folder(self.filesystem, self.table, self.path) as (filesystem, place):
            write_file(filesystem, posixpath.join(place, name), b"")
        # As listed, like the times of the files: in MinIO, others are whole seconds.
        found = {info.base_name: info.mtime_ns for info in self.infos()}
        with contextlib.suppress(OSError):  # vacuum deletes it then
            self.delete(path)
        return found.get(name)

    def _make(self) -> None:
        self.check_inside()
        with folder_expected(self.path):
            make_folder(self.filesystem, self.path)

    def open_segment(self, info: SegmentInfo) -> ReadAt:
        """Open a segment; return what reads from it. Its files are closed with the result.

        Parts are opened when they are first read. Both raise ChangedMeanwhileError if a file does
        not exist.
        """
        own = self._open_file(info.name)
        if not info.parts:
            return own
        return _joined([self._opened_later(part.name) for part in info.parts] + [own],
                       [part.size for part in info.parts])

    def _opened_later(self, name: str) -> ReadAt:
        opened = cache(lambda: self._open_file(name))
        return lambda offset, size: opened()(offset, size)

    def _open_file(self, name: str) -> ReadAt:
        path = self.segment_path(name)
        try:
            file = open_small(self.filesystem, path)
            whole = file.size()
        except OSError as error:
            raise self._missing(path, error) from error

        def read_at(offset: int, size: int) -> bytes:
            try:
                # Checked first: pyarrow allocates what is asked for.
                data = file.read_at(size, offset) if 0 <= size <= whole - offset <= whole else b""
            except OSError as error:
                raise self._missing(path, error) from error
            if len(data) != size:
                raise FormatError("this segment of the index is truncated", file=path,
                                  column=self.column)
            return data

        return read_at

    def _missing(self, path: str, error: OSError) -> Exception:
        """Return what to raise if a segment cannot be read."""
        if not isinstance(error, FileNotFoundError) \
                and self.filesystem.get_file_info(path).type != pa_fs.FileType.NotFound:
            return error  # of the disk, or the network
        return ChangedMeanwhileError(
            "this segment of the index is missing: another program has deleted it, or it was "
            "lost; try again, or update the index", file=path, column=self.column)

    @contextlib.contextmanager
    def pool(self) -> Iterator[ThreadPoolExecutor | None]:
        """Return threads for requests to a store; None for local files, which need none."""
        if self.is_local:
            yield None
            return
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            yield pool


def _joined(files: list[ReadAt], sizes: list[int]) -> ReadAt:
    """Return what reads from the bytes of several files, one after the other.

    ``sizes`` are those of all files but the last one.
    """
    starts = list(accumulate(sizes, initial=0))

    def read_at(offset: int, size: int) -> bytes:
        number = max(bisect_right(starts, offset) - 1, 0)
        found = []
        while number < len(sizes) and offset + size > starts[number + 1]:
            here = starts[number + 1] - offset
            found.append(files[number](offset - starts[number], here))
            offset, size, number = offset + here, size - here, number + 1
        found.append(files[number](offset - starts[number], size))
        return found[0] if len(found) == 1 else b"".join(found)

    return read_at


def folder_name(column: str) -> str:
    """Return the name of the folder of a column: its dotted path, percent-encoded."""
    name = quote(column, safe="")
    return "%2E" + name[1:] if name.startswith(".") else name
