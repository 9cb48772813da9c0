"""Destinations of files: local paths, pyarrow filesystems, open file objects.

A file that is being written is invisible, or at least incomplete, until :meth:`Output.commit`:

- a local path: a hidden temporary file in the same folder, fsync, rename, fsync of the folder;
  a pipe or device is written to directly;
- S3 and Google Cloud Storage, and Azure through fsspec: the object itself, which appears when its
  upload is complete;
- another filesystem: a hidden temporary name in the same folder, then the filesystem's move, or a
  copy where it has none;
- an open binary file: bytes are appended; the footer, which makes them a Parquet file, comes last.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable
from typing import Any, BinaryIO, Protocol, TypeAlias, TypeGuard

import pyarrow.fs as pa_fs

from secure_bloom.errors import UnsupportedError
from secure_bloom.storage.fsspec_files import UncachedHandler, uploads
from secure_bloom.storage.local_files import (
    Replacement,
    create,
    is_special,
    sync_folder,
    temporary_name,
)
from secure_bloom.storage.locations import is_uri, open_uri
from secure_bloom.storage.versions import as_local, without_subtree


class Readable(Protocol):
    """A seekable binary file."""

    def read(self, size: int = -1, /) -> bytes:
        """Read up to ``size`` bytes."""

    def seek(self, offset: int, whence: int = 0, /) -> object:
        """Move to a position."""


class Writable(Protocol):
    """A binary file to append to."""

    def write(self, data: bytes, /) -> object:
        """Append bytes; return the number written, or None for all."""


FilePath: TypeAlias = str | os.PathLike[str]
FileSource: TypeAlias = FilePath | bytes | bytearray | memoryview | Readable
FileTarget: TypeAlias = FilePath | Writable


def resolve(where: FilePath, filesystem: pa_fs.FileSystem | None = None) \
        -> tuple[pa_fs.FileSystem, str]:
    """Split a path or URI into filesystem and path; see :mod:`secure_bloom.storage.locations`."""
    path = os.fspath(where)
    if filesystem is None:
        if is_uri(path):
            return open_uri(path)
        return pa_fs.LocalFileSystem(), os.path.abspath(os.path.expanduser(path))
    if not isinstance(filesystem, pa_fs.FileSystem):  # an fsspec filesystem
        filesystem = pa_fs.PyFileSystem(pa_fs.FSSpecHandler(filesystem))
    return as_local(filesystem, path)


def is_path(where: object) -> TypeGuard[FilePath]:
    """Whether this is the path of a file rather than a file object or buffer."""
    return isinstance(where, str | os.PathLike)


_UPLOADS = ("s3", "gcs")


class Output:
    """A destination that bytes are appended to, and that is then published or dropped.

    As a context manager it is dropped if there is an error.

    It belongs to the process that opened it. In a fork of that process nothing can be written or
    published, and nothing is dropped.

    Parameters
    ----------
    stream : object with ``write``
    finish : callable, optional
        Called first by :meth:`commit`: the slow part.
    publish : callable, optional
        Called next. Takes a function that is called just before the file becomes visible.
    drop : callable, optional
        Called by :meth:`abort`.
    """

    def __init__(self, stream: Any, *, finish: Callable[[], None] | None = None,
                 publish: Callable[[Callable[[], None] | None], None] | None = None,
                 drop: Callable[[], None] | None = None):
        self._stream = stream
        self._finish = finish
        self._publish = publish
        self._drop = drop
        self._process = os.getpid()

    @property
    def is_own(self) -> bool:
        """Whether this process opened the output, rather than a process that it was forked from."""
        return os.getpid() == self._process

    def check_own(self) -> None:
        """Raise UnsupportedError in a fork of the process that opened the output."""
        if not self.is_own:
            raise UnsupportedError(f"process {self._process} opened this file, and only that "
                                   "process can write and close it; this process is a fork: open "
                                   "a separate file here")

    def write(self, data: Any) -> None:
        """Append all of the data; raw files may accept only part of it per call."""
        self.check_own()
        data = memoryview(data).cast("B")
        while len(data):
            written = self._stream.write(data)
            data = data[len(data) if written is None else written:]

    def fileno(self) -> int:
        """Return the descriptor of a local file."""
        return self._stream.fileno()

    def commit(self, check: Callable[[], None] | None = None) -> None:
        """Make the file visible under its name.

        ``check`` is called at the last moment; if it raises, the file does not become visible. In a
        local folder, other commits with a check wait until this one has finished.
        """
        self.check_own()
        if self._finish is not None:
            self._finish()
        if self._publish is not None:
            self._publish(check)

    def abort(self) -> None:
        """Remove what was written, as far as it belongs to this output."""
        if not self.is_own:
            _keep_for_ever(self._stream)  # closing it might write, or complete an upload
        elif self._drop is not None:
            self._drop()

    def __enter__(self) -> Output:
        return self

    def __exit__(self, exc_type: object, error: object, traceback: object) -> None:
        if exc_type is not None:
            self.abort()


def _keep_for_ever(stream: object) -> None:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(stream))


def open_output(where: FileTarget, filesystem: pa_fs.FileSystem | None = None, *,
                mode: int = 0o666, durable: bool = True, follow: bool = True,
                replaced: int | None = None) -> Output:
    """Open a destination; nothing is visible under its name before ``commit``.

    ``mode`` is that of a new local file, before the umask; a replaced file keeps its own mode.
    Without ``durable``, a power cut may damage a local file after the commit; see
    :func:`.sync_file`. Without ``follow``, a link, pipe or device is replaced like a file: in a
    table, somebody else may have put it there. ``replaced`` is a descriptor of the only local file
    that a commit with a check may replace, and that has the permissions which the new one gets.
    """
    if not is_path(where):
        if not hasattr(where, "write"):
            raise TypeError("where must be a path or a writable binary file, "
                            f"not {type(where).__name__}")
        return Output(where)
    filesystem, path = without_subtree(*resolve(where, filesystem))
    if filesystem.type_name == "local":
        return _open_local(path, mode, durable, follow, replaced)
    if _uploads(filesystem):
        return _open_upload(filesystem, path)
    return _open_on(filesystem, path)


def _uploads(filesystem: pa_fs.FileSystem) -> bool:
    """Whether a file appears only when it is closed, and never partially."""
    handler = getattr(filesystem, "handler", None)
    return filesystem.type_name in _UPLOADS \
        or (isinstance(handler, UncachedHandler) and uploads(handler.fs))


def write_file(filesystem: pa_fs.FileSystem, path: str, data: bytes, *,
               follow: bool = True) -> None:
    """Write a whole file; readers never see a part of it. ``follow``: see :func:`open_output`."""
    with open_output(path, filesystem, follow=follow) as output:
        output.write(data)
        output.commit()


def create_file(filesystem: pa_fs.FileSystem, path: str, data: bytes) -> None:
    """Write a whole file at a path where no file exists yet.

    Raises FileExistsError if the file exists. Filesystems other than the local one may miss a file
    that is created at the same moment.
    """
    if filesystem.type_name != "local":
        check_absent(filesystem, path)
        write_file(filesystem, path, data)
        return
    create(path, lambda file: Output(file).write(data))


def check_absent(filesystem: pa_fs.FileSystem, path: str) -> None:
    """Raise FileExistsError if anything exists at a path, even a dangling link."""
    if filesystem.get_file_info(path).type != pa_fs.FileType.NotFound \
            or (filesystem.type_name == "local" and os.path.islink(path)):
        raise FileExistsError(f"{path} exists")


def _open_local(path: str, mode: int, durable: bool, follow: bool,
                replaced: int | None) -> Output:
    if follow and is_special(path):
        file = open(path, "wb", buffering=0)  # noqa: SIM115 - closed by the output
        return Output(file, publish=lambda _: file.close(), drop=file.close)
    new = Replacement(path, mode, durable=durable, follow=follow, replaced=replaced)
    return Output(new.file, finish=new.finish, publish=new.publish, drop=new.drop)


def _open_upload(filesystem: pa_fs.FileSystem, path: str) -> Output:
    stream: BinaryIO = filesystem.open_output_stream(path)

    def drop() -> None:
        # pyarrow cannot abort an upload: closing the stream, or deleting it, completes what was
        # written so far. So the stream is kept forever, with its last few megabytes.
        if not stream.closed:
            _keep_for_ever(stream)

    def publish(check: Callable[[], None] | None) -> None:
        if check is not None:
            check()
        stream.close()

    return Output(stream, publish=publish, drop=drop)


def _open_on(filesystem: pa_fs.FileSystem, path: str) -> Output:
    temporary = temporary_name(path)
    stream: BinaryIO = filesystem.open_output_stream(temporary)
    moving = False

    def publish(check: Callable[[], None] | None) -> None:
        nonlocal moving
        if check is not None:
            check()
        moving = True
        _move(filesystem, temporary, path)

    def drop() -> None:
        if moving:  # some filesystems move by copying: this may be the only complete file
            return
        with contextlib.suppress(OSError):
            stream.close()
        with contextlib.suppress(OSError):
            filesystem.delete_file(temporary)

    return Output(stream, finish=stream.close, publish=publish, drop=drop)


def _move(filesystem: pa_fs.FileSystem, source: str, target: str) -> None:
    try:
        filesystem.move(source, target)
    except NotImplementedError:  # Azure without a hierarchical namespace, which copies by itself
        filesystem.copy_file(source, target)
        # pyarrow waits until the copy ends, but does not look whether it has failed.
        old, new = filesystem.get_file_info([source, target])
        if new.type != pa_fs.FileType.File or new.size != old.size:
            raise OSError(f"the store has not copied {source} to {target}; the only complete file "
                          "is the first one") from None
        filesystem.delete_file(source)


def make_folder(filesystem: pa_fs.FileSystem, path: str, *, durable: bool = True) -> None:
    """Create a folder and its parents. On object stores there are no folders to create.

    Without ``durable``, their names are not synced to the disk.
    """
    if _uploads(without_subtree(filesystem, path)[0]):
        return
    new = []
    if durable and filesystem.type_name == "local":
        above = path
        while above and not os.path.isdir(above):
            new.append(above)
            above = os.path.dirname(above)
    filesystem.create_dir(path, recursive=True)
    for folder in new:
        sync_folder(os.path.dirname(folder) or ".")
