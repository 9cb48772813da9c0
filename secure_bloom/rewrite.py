"""Put a new file in the place of an old one that keeps most of its bytes.

The bytes that stay are copied, by the kernel where it can, into a new file, which then takes the
name of the old one in a single step. Whoever has the old one open reads it to the end. Where a
local path is a symbolic link, the file that it leads to is replaced.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable

import pyarrow.fs as pa_fs

from secure_bloom.errors import SecureBloomError
from secure_bloom.files import Output, Source, open_output

_COPY = 8 * 1024 * 1024  # bytes at a time, where the kernel cannot copy


class ChangedMeanwhileError(SecureBloomError):
    """A file was changed by somebody else while its replacement was made; it stays as it is."""


class Rewrite:
    """A file that is to be replaced. A context manager.

    Parameters
    ----------
    filesystem : pyarrow.fs.FileSystem
    path : str

    Attributes
    ----------
    source : Source
        The file as it is.
    """

    def __init__(self, filesystem: pa_fs.FileSystem, path: str):
        self._filesystem = filesystem
        self._path = os.path.realpath(path) if self._is_local else path
        self._before = _stamp(filesystem, self._path)
        self.source = Source(self._path, filesystem)

    @property
    def _is_local(self) -> bool:
        return self._filesystem.type_name == "local"

    def replace_tail(self, start: int, tail: Iterable[bytes]) -> None:
        """Keep the first ``start`` bytes and put the others in place of the rest.

        Raises
        ------
        ChangedMeanwhileError
            If the file is not any more what it was.
        """
        output = open_output(self._path, self._filesystem, mode=0o600)  # nobody else's as yet
        try:
            self._copy(output, start)
            for part in tail:
                output.write(part)
            if self._is_local:
                _keep_mode_and_owner(self._path, output.fileno())
            output.commit(self._check_unchanged)
        except BaseException:
            output.abort()
            raise

    def _check_unchanged(self) -> None:
        try:
            is_same = _stamp(self._filesystem, self._path) == self._before
        except FileNotFoundError:
            is_same = False
        if not is_same:
            raise ChangedMeanwhileError("the file was changed meanwhile; it stays as it is now",
                                        file=self._path)

    def _copy(self, output: Output, size: int) -> None:
        position = self._copy_by_kernel(output, size) if self._is_local else 0
        while position < size:
            data = self.source.read_at(min(_COPY, size - position), position)
            if not data:
                raise ChangedMeanwhileError("the file became shorter; it stays as it is now",
                                            file=self._path)
            output.write(data)
            position += len(data)

    def _copy_by_kernel(self, output: Output, size: int) -> int:
        """Bytes that were copied; on some filesystems they are shared and take no space."""
        position = 0
        with open(self._path, "rb") as file, contextlib.suppress(OSError):
            while position < size:  # each call copies up to 2 GB
                copied = os.copy_file_range(file.fileno(), output.fileno(), size - position,
                                            position)
                if copied == 0:
                    break
                position += copied
        return position

    def __enter__(self) -> Rewrite:
        return self

    def __exit__(self, *_) -> None:
        self.source.file.close()


def _stamp(filesystem: pa_fs.FileSystem, path: str) -> tuple:
    if filesystem.type_name == "local":
        now = os.stat(path)
        return now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns
    info = filesystem.get_file_info(path)
    return info.type, info.size, info.mtime_ns


def _keep_mode_and_owner(path: str, descriptor: int) -> None:
    try:
        old = os.stat(path)
    except FileNotFoundError:
        return  # the check will notice it
    for owner, group in ((old.st_uid, -1), (-1, old.st_gid)):
        with contextlib.suppress(OSError):  # only root can give files away, and to any group
            os.fchown(descriptor, owner, group)
    mode = stat.S_IMODE(old.st_mode)
    if os.fstat(descriptor).st_gid != old.st_gid:
        mode &= ~(stat.S_IRWXG | stat.S_ISGID)  # they were for another group
    os.fchmod(descriptor, mode)
