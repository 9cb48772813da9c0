"""Replace a file by a new one that keeps most of its bytes.

The bytes to keep are copied into a new file, by the kernel where possible. The new file then
atomically takes the name of the old one. A process that has the old file open can read it to the
end. If a local path is a symbolic link, the target of the link is replaced.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow.fs as pa_fs

from secure_bloom.errors import ChangedMeanwhileError
from secure_bloom.storage.files import Output, Source, open_output
from secure_bloom.storage.local_files import remove_leftovers, sync_folder
from secure_bloom.storage.visibility import is_replaced

_COPY = 8 * 1024 * 1024  # bytes at a time, where the kernel cannot copy


class Kept(NamedTuple):
    """A range of bytes of the old file, from ``start`` to ``end`` (exclusive)."""

    start: int
    end: int


class Zeros(NamedTuple):
    """A run of ``size`` zero bytes."""

    size: int


class Rewrite:
    """A file to be replaced. A context manager.

    Parameters
    ----------
    filesystem : pyarrow.fs.FileSystem
    path : str

    Attributes
    ----------
    source : Source
        The current file.
    """

    def __init__(self, filesystem: pa_fs.FileSystem, path: str):
        self._filesystem = filesystem
        self._path = os.path.realpath(path) if self._is_local else path
        self.source = Source(self._path, filesystem)  # records the version it opened

    @property
    def _is_local(self) -> bool:
        return self._filesystem.type_name == "local"

    @property
    def has_other_names(self) -> bool:
        """Whether the file has other hard links, which keep the old bytes."""
        return self._is_local and os.stat(self._path).st_nlink > 1

    def replace_tail(self, start: int, tail: Iterable[bytes]) -> None:
        """Keep the first ``start`` bytes and replace the rest by ``tail``.

        Raises
        ------
        ChangedMeanwhileError
            If the file has changed since it was opened.
        """
        self.replace_by(itertools.chain([Kept(0, start)], tail))

    def replace_by(self, parts: Iterable[Kept | Zeros | bytes | memoryview]) -> None:
        """Replace the file by one that consists of these parts.

        Parameters
        ----------
        parts : iterable of Kept, Zeros, bytes or memoryview
            Each part is written before the next one is requested.

        Raises
        ------
        ChangedMeanwhileError
            If the file has changed since it was opened.
        """
        output = open_output(self._path, self._filesystem, mode=0o600)  # if the old one disappears
        try:
            with self.source.one_version():  # also covers what is read to produce the parts
                for part in parts:
                    self._write(output, part)
            output.commit(self._before_renaming)
        except BaseException:
            output.abort()
            raise

    def _write(self, output: Output, part: Kept | Zeros | bytes | memoryview) -> None:
        if isinstance(part, Kept):
            self._copy(output, *part)
        elif isinstance(part, Zeros):
            for done in range(0, part.size, _COPY):
                output.write(bytes(min(_COPY, part.size - done)))
        else:
            output.write(part)

    def _before_renaming(self) -> None:
        self._check_unchanged()
        if self._is_local:
            _remove_checksum(self._path)

    def _check_unchanged(self) -> None:
        if self.source.is_replaced() \
                or is_replaced(self._filesystem, self._path):  # a new file would be visible again
            raise ChangedMeanwhileError("the file was changed in the meantime; it is left as it is",
                                        file=self._path)

    def _copy(self, output: Output, start: int, end: int) -> None:
        position = self._copy_by_kernel(output, start, end) if self._is_local else start
        while position < end:
            data = self.source.read_at(min(_COPY, end - position), position)
            if not data:
                raise ChangedMeanwhileError("the file was truncated in the meantime; it is left "
                                            "as it is",
                                            file=self._path)
            output.write(data)
            position += len(data)

    def _copy_by_kernel(self, output: Output, start: int, end: int) -> int:
        """Copy and return where the copy ends; some filesystems share the bytes, using no space."""
        position = start
        with contextlib.suppress(OSError):
            while position < end:  # each call copies up to 2 GB
                copied = os.copy_file_range(self.source.file.fileno(), output.fileno(),
                                            end - position, position)
                if copied == 0:
                    break
                position += copied
        return position

    def __enter__(self) -> Rewrite:
        return self

    def __exit__(self, *_: object) -> None:
        self.source.file.close()


def _remove_checksum(path: str) -> None:
    """Remove the checksum file that Hadoop stores next to a local file and verifies it against.

    This happens before the rename, so that a power cut leaves no file that Spark considers corrupt.
    """
    folder, name = os.path.split(path)
    try:
        os.unlink(os.path.join(folder, f".{name}.crc"))
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENAMETOOLONG):
            raise
    else:
        sync_folder(folder)


def remove_leftovers_of(filesystem: pa_fs.FileSystem, paths: Iterable[str]) -> None:
    """Remove what killed processes have left of rewrites of these files, if they are local."""
    if filesystem.type_name != "local":
        return
    folders: dict[str, set[str]] = {}
    for path in paths:
        folder, name = os.path.split(os.path.realpath(path))
        folders.setdefault(folder, set()).add(name)
    for folder, names in folders.items():
        with contextlib.suppress(OSError):  # leftovers are harmless
            remove_leftovers(folder, names)
