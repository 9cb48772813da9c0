"""Replace a file by a new one that keeps most of its bytes.

The bytes to keep are copied into a new file, by the kernel where possible. The new file then
atomically takes the name of the old one. A process that has the old file open can read it to the
end. If a local path is a symbolic link, the target of the link is replaced.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
from collections.abc import Callable, Iterable
from typing import NamedTuple

import pyarrow.fs as pa_fs

from secure_bloom.errors import ChangedMeanwhileError, UnsupportedError
from secure_bloom.storage.copying import copy_range
from secure_bloom.storage.files import Output, open_output
from secure_bloom.storage.inside import check_opened, delete_file
from secure_bloom.storage.local_files import LEFT_AS_IT_IS, remove_checksum
from secure_bloom.storage.source import Source
from secure_bloom.storage.table_names import table_of

_ZEROS = 8 * 1024 * 1024  # bytes at a time
_MILLISECOND = 1_000_000  # ns
_TRIES = 5  # where times are rounded, a random one may become the old one


class Kept(NamedTuple):
    """A range of bytes of the old file, from ``start`` to ``end`` (exclusive)."""

    start: int
    end: int


class Zeros(NamedTuple):
    """A run of ``size`` zero bytes."""

    size: int


class Rewrite:
    """A file to be replaced; ``source`` is the current one. A context manager.

    ``folder`` is the one whose files are changed, if it is not only this file: its table may have
    jobs that replace the file, too.

    With ``keep_times``, the new file has the times of the old one, to the millisecond. That is for
    local files only, and for new files with the same rows in the same row groups, because readers
    that know only size and time may confuse the two. Writing raises UnsupportedError if the
    filesystem rounds the times so much that they would be the same.
    """

    def __init__(self, filesystem: pa_fs.FileSystem, path: str, *, folder: str | None = None,
                 keep_times: bool = False):
        self._filesystem = filesystem
        self._path = self._real(path)
        within = None if folder == path else folder
        self._table = None if within is None else table_of(self._real(within))
        self.source = Source(self._path, filesystem)  # records the version it opened
        self._descriptor = self.source.file.fileno() if self._is_local else None
        if within is not None:
            self._check_inside(table_of(within))
        self._old = os.fstat(self.source.file.fileno()) if keep_times else None

    def _check_inside(self, table: str) -> None:
        """Check that what was opened is inside a table: links may have been put there since."""
        try:
            if self._descriptor is not None:
                check_opened(self._filesystem, table, self._path, self._descriptor)
        except BaseException:
            self.source.file.close()
            raise

    @property
    def _is_local(self) -> bool:
        return self._filesystem.type_name == "local"

    def _real(self, path: str) -> str:
        return os.path.realpath(path) if self._is_local else path

    @property
    def has_other_names(self) -> bool:
        """Whether the file has other hard links, which keep the old bytes."""
        return self._descriptor is not None and os.fstat(self._descriptor).st_nlink > 1

    def replace_tail(self, start: int, tail: Iterable[bytes]) -> None:
        """Keep the first ``start`` bytes and replace the rest by ``tail``.

        Raises ChangedMeanwhileError if the file has changed since it was opened.
        """
        self.replace_by(itertools.chain([Kept(0, start)], tail))

    def replace_by(self, parts: Iterable[Kept | Zeros | bytes | memoryview]) -> None:
        """Replace the file by one that consists of these parts.

        Each part is written before the next one is requested. Raises ChangedMeanwhileError if the
        file has changed since it was opened.
        """
        self._store(self._path, parts, self._before_renaming, 0o600, self._descriptor)

    def write_to(self, path: str, parts: Iterable[Kept | Zeros | bytes | memoryview]) -> None:
        """Write a new file that consists of these parts, with the permissions of the old one.

        As :meth:`replace_by`, but the old file stays.
        """
        mode = 0o666 if self._descriptor is None else os.fstat(self._descriptor).st_mode & 0o777
        self._store(path, parts, self._check_unchanged, mode)

    def delete_beside(self, path: str) -> None:
        """Delete another file, which belongs to this one, if it exists.

        Raises UnsupportedError if links lead there from the table to a place outside of it.
        """
        with contextlib.suppress(FileNotFoundError):
            if self._table is None:
                self._filesystem.delete_file(path)
            else:
                delete_file(self._filesystem, self._table, path)

    def _store(self, path: str, parts: Iterable[Kept | Zeros | bytes | memoryview],
               check: Callable[[], None], mode: int, replaced: int | None = None) -> None:
        with open_output(path, self._filesystem, mode=mode, follow=False, replaced=replaced) \
                as output:
            with self.source.one_version():  # also covers what is read to produce the parts
                for part in parts:
                    self._write(output, part)
            if self._old is not None:
                self._set_times(output.fileno(), self._old)
            output.commit(check)

    def _set_times(self, descriptor: int, old: os.stat_result) -> None:
        for _ in range(_TRIES):
            os.utime(descriptor, ns=_new_times(old))
            if os.fstat(descriptor).st_mtime_ns != old.st_mtime_ns:
                return
        raise UnsupportedError("the filesystem rounds the times of files, so the new version would "
                               "have the same time as the old one, and readers might take one for "
                               "the other: omit keep_times (--keep-times)", file=self._path)

    def _write(self, output: Output, part: Kept | Zeros | bytes | memoryview) -> None:
        if isinstance(part, Kept):
            self._copy(output, *part)
        elif isinstance(part, Zeros):
            for done in range(0, part.size, _ZEROS):
                output.write(bytes(min(_ZEROS, part.size - done)))
        else:
            output.write(part)

    def _before_renaming(self) -> None:
        self._check_unchanged()
        if self._is_local:
            remove_checksum(self._path)

    def _check_unchanged(self) -> None:
        # In this order: a job that has just ended has deleted the file, which must not reappear.
        from secure_bloom.storage.claims import is_being_replaced  # not to read key material
        if is_being_replaced(self._filesystem, self._path, self._table) \
                or self.source.is_replaced():
            raise ChangedMeanwhileError(LEFT_AS_IT_IS, file=self._path)

    def _copy(self, output: Output, start: int, end: int) -> None:
        if copy_range(self.source.file, self.source.read_at, output, start, end) < end:
            raise ChangedMeanwhileError("the file was truncated in the meantime; it is left as it "
                                        "is", file=self._path)

    def __enter__(self) -> Rewrite:
        return self

    def __exit__(self, *_: object) -> None:
        self.source.file.close()


def _new_times(old: os.stat_result) -> tuple[int, int]:
    """Return the times of a new version, of access and of modification, in ns.

    Below the millisecond, the time of modification is random, but never that of the old version. So
    it tells versions of the same size apart, even if they have the same inode one after the other.
    """
    start, digits = divmod(old.st_mtime_ns, _MILLISECOND)
    other = (digits + 1 + secrets.randbelow(_MILLISECOND - 1)) % _MILLISECOND
    return old.st_atime_ns, start * _MILLISECOND + other
