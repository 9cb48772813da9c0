"""Filesystems of fsspec: past their caches, and with the times that they report."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.fs as pa_fs

#: names of the time of the last change, in what filesystems tell about a file: s3fs, adlfs
_TIMES = ("mtime", "LastModified", "last_modified")


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

    @staticmethod
    def _create_file_info(path: str, info: Mapping[str, Any]) -> pa_fs.FileInfo:
        found = pa_fs.FSSpecHandler._create_file_info(path, {**info, "mtime": None})
        return pa_fs.FileInfo(path, found.type, size=found.size, mtime_ns=modified_ns(info))


def modified_ns(info: Mapping[str, Any]) -> int | None:
    """Return when a file was changed, in nanoseconds since 1970; None if it is not known."""
    found = next(filter(None, map(info.get, _TIMES)), None)
    if isinstance(found, datetime):
        found = found if found.tzinfo else found.replace(tzinfo=UTC)
        return int(found.timestamp() * 10**6) * 1000
    return int(found * 10**9) if isinstance(found, int | float) else None
