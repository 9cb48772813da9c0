"""Create a small file that several writers want to create, of which one may succeed.

Local filesystems decide this themselves. An fsspec filesystem is asked to, if it can. On other
stores a writer looks whether the file exists, and reads it again after writing: it notices if it
was overwritten until then, but not if that happens later.
"""

from __future__ import annotations

import inspect
import posixpath
from typing import Any

import pyarrow.fs as pa_fs

from secure_bloom.errors import FormatError
from secure_bloom.storage.files import create_file
from secure_bloom.storage.small_files import read_small
from secure_bloom.storage.versions import without_subtree


def create_exclusively(filesystem: pa_fs.FileSystem, path: str, data: bytes) -> None:
    """Write a whole file at a path where no file exists yet.

    Raises FileExistsError if the file exists, or another writer has overwritten it.
    """
    filesystem, path = without_subtree(filesystem, path)
    options = _exclusively(filesystem)
    if options is None:
        create_file(filesystem, path, data)
    else:
        _create_on(filesystem.handler.fs, path, data, options)
    if filesystem.type_name != "local" and not _has(filesystem, path, data):
        raise FileExistsError(f"another writer has overwritten {path}")


def _has(filesystem: pa_fs.FileSystem, path: str, data: bytes) -> bool:
    try:
        return read_small(filesystem, path, len(data)) == data
    except (FileNotFoundError, FormatError):
        return False


def _exclusively(filesystem: pa_fs.FileSystem) -> dict[str, Any] | None:
    """Return how an fsspec filesystem is asked to create a file exclusively; None if it cannot."""
    handler = getattr(filesystem, "handler", None)
    if not isinstance(handler, pa_fs.FSSpecHandler):
        return None
    function = getattr(handler.fs, "_pipe_file", None) or handler.fs.pipe_file
    known = inspect.signature(function).parameters
    return {"mode": "create"} if "mode" in known \
        else {"overwrite": False} if "overwrite" in known else None  # adlfs


def _create_on(fsspec: Any, path: str, data: bytes, options: dict[str, Any]) -> None:
    fsspec.makedirs(posixpath.dirname(path), exist_ok=True)
    try:
        fsspec.pipe_file(path, data, **options)
    except FileExistsError:
        raise
    except OSError:  # s3fs calls it an invalid argument if the file exists
        fsspec.invalidate_cache(path)
        if not fsspec.exists(path):
            raise
    fsspec.invalidate_cache(path)
