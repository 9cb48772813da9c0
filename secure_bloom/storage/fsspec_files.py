"""Filesystems of fsspec: past their caches, with the times that they report, and without copies."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.fs as pa_fs

#: names of the time of the last change, in what filesystems tell about a file: s3fs, adlfs
_TIMES = ("mtime", "LastModified", "last_modified")
#: of s3fs, gcsfs and adlfs
_UPLOADING = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"}
_ONE_REQUEST = 4 << 20  # bytes


class UncachedHandler(pa_fs.FSSpecHandler):  # type: ignore[misc]  # pyarrow has no types
    """Sees what other processes have written and deleted.

    Many filesystems keep listings for as long as they exist. To a job or a reader, an old one might
    lack a marker, and half of a commit would be visible, or of the table's files.
    """

    def get_file_info(self, paths: list[str]) -> list[pa_fs.FileInfo]:
        """Return what is at each path."""
        self.fs.invalidate_cache()
        return super().get_file_info(paths)

    def get_file_info_selector(self, selector: pa_fs.FileSelector) -> list[pa_fs.FileInfo]:
        """List a folder; unless recursively, without what adlfs adds from folders below."""
        self.fs.invalidate_cache()
        found = super().get_file_info_selector(selector)
        folder = selector.base_dir.strip("/")
        return found if selector.recursive else [
            info for info in found if posixpath.dirname(info.path.strip("/")) == folder]

    def open_input_stream(self, path: str) -> pa.PythonFile:
        """Open a file to read it from start to end."""
        self.fs.invalidate_cache()
        return super().open_input_stream(path)

    def open_input_file(self, path: str) -> pa.PythonFile:
        """Open a file to read at any position."""
        self.fs.invalidate_cache()
        return super().open_input_file(path)

    def delete_file(self, path: str) -> None:
        """Delete a file."""
        self.fs.invalidate_cache()
        super().delete_file(path)

    def delete_dir(self, path: str) -> None:
        """Delete a folder with all that is in it."""
        self.fs.invalidate_cache()
        super().delete_dir(path)

    def move(self, src: str, dest: str) -> None:
        """Give a file another name."""
        self.fs.invalidate_cache()
        super().move(src, dest)

    def open_output_stream(self, path: str, metadata: Mapping[str, str]) -> pa.PythonFile:
        """Open a file to write it."""
        if not uploads(self.fs):
            return super().open_output_stream(path, metadata)
        return pa.PythonFile(_Upload(self.fs, path), mode="w")

    @staticmethod
    def _create_file_info(path: str, info: Mapping[str, Any]) -> pa_fs.FileInfo:
        found = pa_fs.FSSpecHandler._create_file_info(path, {**info, "mtime": None})
        return pa_fs.FileInfo(path, found.type, size=found.size, mtime_ns=modified_ns(info))


class _Upload:
    """An object that appears, whole, when this is closed.

    A small one is sent in one request. adlfs sends larger ones as blocks, and if two writers of one
    object do so at the same time, one of them fails.
    """

    def __init__(self, filesystem: Any, path: str):
        self._filesystem, self._path = filesystem, path
        self._data = bytearray()
        self._file: Any = None
        self.closed = False

    def write(self, data: bytes) -> int:
        """Append bytes; return their number."""
        if self._file is None and len(self._data) + len(data) > _ONE_REQUEST:
            self._file = self._filesystem.open(self._path, "wb")
            self._file.write(self._data)
            self._data = bytearray()
        if self._file is None:
            self._data += data
        else:
            self._file.write(data)
        return len(data)

    def close(self) -> None:
        """Complete the object."""
        if self.closed:
            return
        self.closed = True
        if self._file is None:
            self._filesystem.pipe_file(self._path, bytes(self._data))
        else:
            self._file.close()


def uploads(filesystem: Any) -> bool:
    """Whether files of an fsspec filesystem appear only when they are closed, and as a whole."""
    protocol = getattr(filesystem, "protocol", ())
    if protocol == "dir":  # a part of another one
        return uploads(filesystem.fs)
    return not _UPLOADING.isdisjoint((protocol,) if isinstance(protocol, str) else protocol)


def modified_ns(info: Mapping[str, Any]) -> int | None:
    """Return when a file was changed, in nanoseconds since 1970; None if it is not known."""
    found = next(filter(None, map(info.get, _TIMES)), None)
    if isinstance(found, datetime):
        found = found if found.tzinfo else found.replace(tzinfo=UTC)
        return int(found.timestamp() * 10**6) * 1000
    return int(found * 10**9) if isinstance(found, int | float) else None
