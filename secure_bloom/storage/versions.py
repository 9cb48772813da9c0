"""The version of an open file, and whether the file has been replaced since.

Footer, filters and pages of a file belong together, so everything that is read from it must come
from one version. How versions are distinguished depends on the filesystem:

- local: device, inode, size and time of the open descriptor. Renaming another file over it leaves
  the open file unchanged, so reading continues; overwriting the file in place is detected.
- S3, Google Cloud Storage, Azure: ETag or generation, size and time, as returned when opening.
- fsspec: the file information that it reports, bypassing its caches.
- others: size and time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import stat
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.errors import ChangedMeanwhileError, UnsupportedError
from secure_bloom.storage.fsspec_files import UncachedHandler, modified_ns

_Result = TypeVar("_Result")

_STORES = ("s3", "gcs", "abfs")
_FSSPEC_FACTS = {"etag", "generation", "versionid", "md5", "md5hash", "contentmd5", "ino", "mtime",
                 "lastmodified", "updated", "created"}
#: Linux opens the file of a descriptor again; elsewhere, the path is opened after the check
DESCRIPTORS = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else ""
_RESOLVE = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK) | os.O_CLOEXEC  # opens no pipe
_CLOCK_STEP = 20_000_000  # ns; the clocks of local filesystems advance in steps of up to 10 ms
_TRIES = 10


class FileVersion(NamedTuple):
    """Properties that distinguish a version of a file from others with the same name.

    The size is in bytes; the modification time is None if the filesystem does not report it.
    ``tag`` is device and inode, or an ETag or generation; None if there is neither.
    """

    size: int | None
    mtime_ns: int | None
    tag: object = None

    def is_as_listed(self, size: int | None, mtime_ns: int | None, *, exactly: bool) -> bool:
        """Whether a listing of the folder refers to this version, as far as can be determined.

        Stores may round the time in one of the two responses: without ``exactly``, times less than
        a second apart are considered equal.
        """
        if mtime_ns is None or self.mtime_ns is None:
            return size == self.size
        apart = abs(mtime_ns - self.mtime_ns)
        return size == self.size and apart < (1 if exactly else 10**9)

    def is_same_elsewhere(self, other: FileVersion | None) -> bool:
        """Whether another machine may have seen this version.

        Machines count the devices that they share each in its own way.
        """
        return other is not None and self._without_device() == other._without_device()

    def _without_device(self) -> FileVersion:
        match self.tag:
            case (int(), int(inode)):  # local
                return self._replace(tag=inode)
        return self


class VersionedFile:
    """A file that is open for reading, and its version.

    ``filesystem`` and ``path`` are None for buffers and files that the caller has opened; ``name``
    is for messages. If nothing is known about the version, it is None: then nothing is checked.
    """

    def __init__(self, file: pa.NativeFile, name: str, filesystem: pa_fs.FileSystem | None = None,
                 path: str | None = None, version: FileVersion | None = None):
        self.file, self.name = file, name
        self.filesystem, self.path, self.version = filesystem, path, version
        self._last_read = self._last_checked = object()

    @cached_property
    def base_path(self) -> str | None:
        """The path in the base filesystem, if the filesystem is a subtree."""
        if self.filesystem is None or self.path is None:
            return None
        return without_subtree(self.filesystem, self.path)[1]

    def note_read(self) -> None:
        """Record that something was read, so that the next check is not skipped."""
        self._last_read = object()  # a new one, so that threads need no lock

    def check(self) -> None:
        """Raise ChangedMeanwhileError unless everything read so far comes from one version."""
        last_read = self._last_read
        if self.version is None or last_read is self._last_checked:
            return
        if isinstance(self.file, pa.OSFile):
            is_same = _stat_version(os.fstat(self.file.fileno())) == self.version
        else:
            is_same = not self.is_replaced()
        if not is_same:
            raise self.changed()
        self._last_checked = last_read

    def check_name(self) -> None:
        """Raise ChangedMeanwhileError unless this version, which has companion files, has its name.
        """
        if self.version is not None and self.is_replaced():
            raise self.changed()

    def one_version(self) -> AbstractContextManager[None]:
        """Run a block that succeeds only if everything read in it comes from one version.

        Otherwise it raises ChangedMeanwhileError, which also replaces any other error raised after
        the file has changed: decoding parts of two versions fails in many ways.
        """
        return _OneVersion(self)

    def is_replaced(self) -> bool:
        """Whether another version, or no file, has this file's name now."""
        assert self.path is not None  # it has a version
        try:
            return current_version(self.filesystem, self.path) != self.version
        except FileNotFoundError:
            return True

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def changed(self) -> ChangedMeanwhileError:
        """Return the error to raise when the file was replaced or changed."""
        return ChangedMeanwhileError("the file was replaced or changed while it was being read; "
                                     "try again", file=self.name)


class _OneVersion:
    """See :meth:`VersionedFile.one_version`. A generator would take longer to enter and leave."""

    __slots__ = ("_file",)

    def __init__(self, file: VersionedFile):
        self._file = file

    def __enter__(self) -> None:
        pass

    def __exit__(self, exc_type: object, error: BaseException | None, traceback: object) -> None:
        file = self._file
        if error is None:
            file.check()
        elif isinstance(error, Exception) and not isinstance(error, ChangedMeanwhileError) \
                and file.version is not None and not file.file.closed:
            with contextlib.suppress(OSError):  # the first error is then more informative
                if file.is_replaced():
                    raise file.changed() from error


def open_file(filesystem: pa_fs.FileSystem, path: str) -> tuple[pa.NativeFile, FileVersion]:
    """Open a file for reading; return it with its version.

    Raises FileNotFoundError; IsADirectoryError if the path is a local folder.
    """
    filesystem, path = without_subtree(filesystem, path)
    if filesystem.type_name == "local":
        file, found = _open_local(path)
        version = _stat_version(found)
        assert version.mtime_ns is not None  # local files have a time
        wait_for_the_clock(version.mtime_ns)
        return file, version
    if filesystem.type_name in _STORES:
        file = filesystem.open_input_file(path)
        return file, _store_version(file)
    version = current_version(filesystem, path)  # first: a later version is detected as a change
    return filesystem.open_input_file(path), version


def open_regular(filesystem: pa_fs.FileSystem, path: str, *, by_links: bool = True) \
        -> pa.NativeFile:
    """Open a file for reading, without its version; of a local path, only a regular file.

    Raises FileNotFoundError; UnsupportedError if it is a pipe, a device or similar;
    IsADirectoryError; without ``by_links``, OSError (ELOOP) if a local path is a symbolic link, or
    the file has several names.
    """
    filesystem, path = without_subtree(filesystem, path)
    return _open_local(path, by_links=by_links)[0] if filesystem.type_name == "local" \
        else filesystem.open_input_file(path)


def open_stream(filesystem: pa_fs.FileSystem, path: str) -> pa.NativeFile:
    """Do the same for reading from start to end, which takes one request to a store."""
    filesystem, path = without_subtree(filesystem, path)
    return _open_local(path)[0] if filesystem.type_name == "local" \
        else filesystem.open_input_stream(path, compression=None)


def current_version(filesystem: pa_fs.FileSystem, path: str) -> FileVersion:
    """Return the version that has this name now. Raises FileNotFoundError."""
    filesystem, path = without_subtree(filesystem, path)
    if filesystem.type_name == "local":
        return _stat_version(os.stat(path))
    if filesystem.type_name in _STORES:
        with filesystem.open_input_file(path) as file:  # a file info has no ETag
            return _store_version(file)
    handler = getattr(filesystem, "handler", None)
    if isinstance(handler, pa_fs.FSSpecHandler):
        return _fsspec_version(handler.fs, path)
    info = filesystem.get_file_info(path)
    if info.type == pa_fs.FileType.NotFound:
        raise _missing(path)
    return FileVersion(info.size, info.mtime_ns)


def until_unchanged(read: Callable[[], _Result],
                    *errors: type[ChangedMeanwhileError]) -> _Result:
    """Retry a call while it raises exactly one of these errors: ten tries, in about half a second.

    Default: exactly ChangedMeanwhileError.
    """
    for attempt in range(_TRIES - 1):
        try:
            return read()
        except ChangedMeanwhileError as changed:
            if type(changed) not in (errors or (ChangedMeanwhileError,)):
                raise
            time.sleep(0.001 * 2**attempt)
    return read()


def _open_local(path: str, *, by_links: bool = True) -> tuple[pa.OSFile, os.stat_result]:
    """Open a file that has a descriptor, unlike those that pyarrow's filesystem opens.

    Opening a pipe would wait for a writer, perhaps for ever. So the path is resolved once, to what
    is looked at and then opened, and nobody can put a pipe there in between.
    """
    try:
        descriptor = os.open(path, _RESOLVE if by_links else _RESOLVE | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise _missing(path) from None
    except OSError as error:
        if error.errno == errno.ELOOP and by_links:
            raise UnsupportedError("it is a link that leads back to itself; remove it",
                                   file=path) from None
        raise
    try:
        found = os.fstat(descriptor)
        if not by_links and (stat.S_ISLNK(found.st_mode) or found.st_nlink > 1):
            raise OSError(errno.ELOOP, "it is a link, or the file has several names", path)
        _check_kind(path, found.st_mode)
        return _reopened(descriptor, path), found
    finally:
        os.close(descriptor)


def _check_kind(path: str, mode: int) -> None:
    """Raise UnsupportedError, or IsADirectoryError, unless this is the mode of a regular file."""
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{path} is a folder; specify one of its files")
    if not stat.S_ISREG(mode):
        raise UnsupportedError("it is a pipe, a device or similar, but only regular files can be "
                               "read: write its content to a file first", file=path)


def _reopened(descriptor: int, path: str) -> pa.OSFile:
    """Open the file that a descriptor refers to, which was found at a path."""
    if not DESCRIPTORS:
        return pa.OSFile(path)
    same = f"{DESCRIPTORS}/{descriptor}"
    try:
        return pa.OSFile(same)
    except OSError as error:
        raise OSError(error.errno, str(error.strerror or error).replace(same, path)) from None


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(f"there is no file {path}")


def without_subtree(filesystem: pa_fs.FileSystem, path: str) -> tuple[pa_fs.FileSystem, str]:
    """Unwrap subtree filesystems; return the base filesystem and the path in it.

    A local path becomes absolute: the rules of a policy depend on the folders around the file.
    """
    while isinstance(filesystem, pa_fs.SubTreeFileSystem):
        path = posixpath.join(filesystem.base_path, path.lstrip("/"))
        filesystem = filesystem.base_fs
    filesystem, path = as_local(filesystem, path)
    if path and not os.path.isabs(path) and _is_local(filesystem):
        path = os.path.join(os.getcwd(), path)
    return filesystem, path


def as_local(filesystem: pa_fs.FileSystem, path: str) -> tuple[pa_fs.FileSystem, str]:
    """Replace the local filesystem of fsspec by that of pyarrow, and return the path in it.

    So links, pipes and versions of files are treated alike, whichever of the two is passed. pyarrow
    does the same with a filesystem of fsspec that was not wrapped yet. Others of fsspec are asked
    past their caches; see :class:`.UncachedHandler`.
    """
    if isinstance(filesystem, pa_fs.SubTreeFileSystem):
        base = filesystem.base_fs
        new = as_local(base, "")[0]
        is_same = new is base or new.type_name == "local"  # see without_subtree
        return filesystem if is_same else pa_fs.SubTreeFileSystem(filesystem.base_path, new), path
    handler: Any = getattr(filesystem, "handler", None)
    if type(handler) is not pa_fs.FSSpecHandler:
        return filesystem, path
    if type(handler.fs).__name__ == "LocalFileSystem" and _is_local(filesystem):
        return pa_fs.LocalFileSystem(), handler.fs._strip_protocol(path) if path else path
    return pa_fs.PyFileSystem(UncachedHandler(handler.fs)), path


def local_path(filesystem: pa_fs.FileSystem, path: str) -> str | None:
    """Return the path of a file on the local disk; None if the file is elsewhere."""
    if type(filesystem) is pa_fs.LocalFileSystem and path.startswith("/"):  # mostly
        return path
    filesystem, path = without_subtree(filesystem, path)
    return path if _is_local(filesystem) else None


def _is_local(filesystem: pa_fs.FileSystem) -> bool:
    handler = getattr(filesystem, "handler", None)
    if not isinstance(handler, pa_fs.FSSpecHandler):
        return bool(filesystem.type_name == "local")
    protocol = getattr(handler.fs, "protocol", ())  # several: pyarrow's type_name has all of them
    return "file" in ((protocol,) if isinstance(protocol, str) else protocol)


def _stat_version(found: os.stat_result) -> FileVersion:
    # Not the time of the last status change (ctime): it also changes when the file is unlinked.
    return FileVersion(found.st_size, found.st_mtime_ns, (found.st_dev, found.st_ino))


def wait_for_the_clock(time_ns: int) -> None:
    """Wait until any later change of a local file that has this time is certain to change it."""
    age = time.time_ns() - time_ns
    if 0 <= age < _CLOCK_STEP:
        time.sleep((_CLOCK_STEP - age) / 10**9)


def _store_version(file: pa.NativeFile) -> FileVersion:
    facts = {name.lower(): value.decode("utf-8", "replace")
             for name, value in file.metadata().items()}
    size = facts.get("content-length", facts.get("size"))
    tags = tuple(facts.get(name) for name in ("etag", "generation"))
    return FileVersion(int(size) if size else file.size(),
                       _nanoseconds(facts.get("last-modified", facts.get("updated"))), tags)


def _nanoseconds(text: str | None) -> int | None:
    try:
        return int(datetime.fromisoformat(text or "").timestamp() * 10**6) * 1000
    except ValueError:
        return None


def _fsspec_version(filesystem: Any, path: str) -> FileVersion:
    filesystem.invalidate_cache(path)
    info = filesystem.info(path)
    facts = ((name, str(value)) for name, value in info.items()
             if "".join(filter(str.isalnum, name)).lower() in _FSSPEC_FACTS)
    return FileVersion(info.get("size"), modified_ns(info), tuple(sorted(facts)))
