"""Put a new file in the place of an old one that keeps most of its bytes.

The bytes that stay are copied, by the kernel where it can, into a new file, which then takes the
name of the old one in a single step. Whoever has the old one open reads it to the end.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

import pyarrow.fs as pa_fs

from secure_bloom.errors import SecureBloomError
from secure_bloom.files import Output, Source, open_output, remove_leftovers

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
        self._filesystem, self._path = filesystem, path
        self._before = _stamp(filesystem, path)
        self.source = Source(path, filesystem)

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
        if self._is_local:
            remove_leftovers(self._path)
        output = open_output(self._path, self._filesystem)
        try:
            self._copy(output, start)
            for part in tail:
                output.write(part)
            if self._is_local:
                _keep_mode_and_owner(self._path, output.fileno())
            if _stamp(self._filesystem, self._path) != self._before:
                raise ChangedMeanwhileError("the file was changed meanwhile; it stays as it is now",
                                            file=self._path)
            output.commit()
        except BaseException:
            output.abort()
            raise

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
        stat = os.stat(path)
        return stat.st_ino, stat.st_size, stat.st_mtime_ns
    info = filesystem.get_file_info(path)
    return info.type, info.size, info.mtime_ns


def _keep_mode_and_owner(path: str, descriptor: int) -> None:
    stat = os.stat(path)
    with contextlib.suppress(PermissionError):  # only root can give files away
        os.fchown(descriptor, stat.st_uid, stat.st_gid)
    os.fchmod(descriptor, stat.st_mode & 0o7777)
