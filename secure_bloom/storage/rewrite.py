"""Put a new file in the place of an old one that keeps most of its bytes.

The bytes that stay are copied, by the kernel where it can, into a new file, which then takes the
name of the old one in a single step. Whoever has the old one open reads it to the end. Where a
local path is a symbolic link, the file that it leads to is replaced.
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
    """Bytes of the old file, from ``start`` to before ``end``."""

    start: int
    end: int


class Zeros(NamedTuple):
    """So many zero bytes."""

    size: int


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
        self.source = Source(self._path, filesystem)  # knows which version it has opened

    @property
    def _is_local(self) -> bool:
        return self._filesystem.type_name == "local"

    @property
    def has_other_names(self) -> bool:
        """Whether the file has hard links, which keep the old bytes."""
        return self._is_local and os.stat(self._path).st_nlink > 1

    def replace_tail(self, start: int, tail: Iterable[bytes]) -> None:
        """Keep the first ``start`` bytes and put the others in place of the rest.

        Raises
        ------
        ChangedMeanwhileError
            If the file is not any more what it was.
        """
        self.replace_by(itertools.chain([Kept(0, start)], tail))

    def replace_by(self, parts: Iterable[Kept | Zeros | bytes | memoryview]) -> None:
        """Put a file of these parts in the place of the old one.

        Parameters
        ----------
        parts : iterable of Kept, Zeros, bytes or memoryview
            Each is written before the next one is asked for.

        Raises
        ------
        ChangedMeanwhileError
            If the file is not any more what it was.
        """
        output = open_output(self._path, self._filesystem, mode=0o600)  # should the old one go
        try:
            with self.source.one_version():  # what is read for the parts, too, fails if it is not
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
                or is_replaced(self._filesystem, self._path):  # would be visible again
            raise ChangedMeanwhileError("the file was changed meanwhile; it stays as it is now",
                                        file=self._path)

    def _copy(self, output: Output, start: int, end: int) -> None:
        position = self._copy_by_kernel(output, start, end) if self._is_local else start
        while position < end:
            data = self.source.read_at(min(_COPY, end - position), position)
            if not data:
                raise ChangedMeanwhileError("the file became shorter; it stays as it is now",
                                            file=self._path)
            output.write(data)
            position += len(data)

    def _copy_by_kernel(self, output: Output, start: int, end: int) -> int:
        """Where the copy ends; on some filesystems the bytes are shared and take no space."""
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
    """Remove what Hadoop keeps beside a local file and compares its bytes with.

    Before the renaming, so that a power cut leaves no file that Spark takes for damaged.
    """
    folder, name = os.path.split(path)
    try:
        os.unlink(os.path.join(folder, f".{name}.crc"))
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENAMETOOLONG):
            raise
    else:
        sync_folder(folder)


def remove_leftovers_of(paths: Iterable[str]) -> None:
    """Remove what rewrites of these local files have left whose processes were killed."""
    folders: dict[str, set[str]] = {}
    for path in paths:
        folder, name = os.path.split(os.path.realpath(path))
        folders.setdefault(folder, set()).add(name)
    for folder, names in folders.items():
        with contextlib.suppress(OSError):  # it does no harm if they stay
            remove_leftovers(folder, names)
