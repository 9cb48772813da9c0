"""Where a job writes: its paths, its markers, and what it does to files."""

from __future__ import annotations

import contextlib
import posixpath
import uuid
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor

import pyarrow.fs as pa_fs

from secure_bloom.storage.files import make_folder, write_file
from secure_bloom.storage.local_files import sync_folder
from secure_bloom.storage.visibility import (
    COMMITTED,
    GENERATION,
    PENDING,
    STAGING,
    STARTED,
    files_below,
    job_of,
    relative_path,
    table_of,
)

COMMITTING = "committing"  # files may stand in their places that have no marker of their own

_RENAMING = ("local", "hdfs", "py::fsspec+file")  # filesystems on which a rename is cheap
_AT_ONCE = 8


class JobFolder:
    """A folder, and the part of ``_staging`` that belongs to one job. Names are relative to the
    table, which is the folder or above it.

    Parameters
    ----------
    filesystem : pyarrow.fs.FileSystem
    folder : str
        Where the files of the job become visible.
    id : str, optional
        Of a job that exists; default: a new one.
    """

    def __init__(self, filesystem: pa_fs.FileSystem, folder: str, id: str | None = None):
        self.filesystem = filesystem
        self.folder = folder.rstrip("/") or "/"
        self.table = table_of(self.folder)
        self.id = id or uuid.uuid4().hex
        self.in_place = filesystem.type_name not in _RENAMING

    @property
    def staging(self) -> str:
        """The folder for the markers of this job, and for files that are not visible yet."""
        return posixpath.join(self.table, STAGING, self.id)

    @property
    def work(self) -> str:
        """Where tasks write."""
        return self.table if self.in_place else self.staging

    @property
    def name(self) -> str:
        """The folder as seen from the table: "" or ``day=1``."""
        return relative_path(self.folder, self.table)

    def path(self, name: str) -> str:
        """Where readers find a file."""
        return posixpath.join(self.table, name)

    # --- markers ---------------------------------------------------------------------------------

    def has(self, marker: str) -> bool:
        """Whether a marker is there."""
        return self.exists(f"{self.staging}/{marker}")

    def write_marker(self, marker: str) -> None:
        """Write a marker, and the folders above it."""
        write_empty(self.filesystem, f"{self.staging}/{marker}")

    def remove_marker(self, marker: str) -> None:
        """Remove a marker, if it is there."""
        self.delete_file(f"{self.staging}/{marker}")

    def pending(self) -> set[str]:
        """Names of files that attempts may write."""
        return set(files_below(self.filesystem, f"{self.staging}/{PENDING}", allow_not_found=True))

    def end(self, settled: AbstractSet[str] = frozenset(), wait: bool = True) -> None:
        """The last steps of a job that has committed, or has been taken back. May be repeated.

        Parameters
        ----------
        settled : set of str
            Files that are published, or have been deleted.
        wait : bool
            Whether the others may still be written: their markers stay until they were.
        """
        self.remove_marker(STARTED)  # first: no attempt begins any more, so this is all of them
        pending = self.pending()
        others = pending - settled
        removed = self.delete_files(others)
        waiting = others - removed if wait else set()
        if waiting:
            self._delete(f"{self.staging}/{marker}" for marker in
                         (COMMITTING, *(f"{PENDING}/{name}" for name in pending - waiting)))
        else:  # at once, which is cheap on an object store
            with contextlib.suppress(FileNotFoundError):
                self.filesystem.delete_dir(f"{self.staging}/{PENDING}")
        self.remove_marker(COMMITTED)  # last: a published file without it, but pending, is hidden
        if not waiting:
            self.delete_staging()

    def note_change(self) -> None:
        """Let readers list again that are listing now."""
        write_file(self.filesystem, posixpath.join(self.table, STAGING, GENERATION),
                   uuid.uuid4().hex.encode())

    # --- files -----------------------------------------------------------------------------------

    def own_files(self) -> list[str]:
        """Names of the files of this job in their final places."""
        found = files_below(self.filesystem, self.folder, allow_not_found=True)
        names = (relative_path(info.path, self.table) for info in found.values())
        return [name for name in names
                if job_of(name) == self.id and not name.startswith(f"{STAGING}/")]

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        return self.filesystem.get_file_info(path).type != pa_fs.FileType.NotFound

    def delete_file(self, path: str) -> bool:
        """Whether it was there."""
        try:
            self.filesystem.delete_file(path)
        except OSError as error:  # HDFS does not say what is wrong
            if not isinstance(error, FileNotFoundError) and self.exists(path):
                raise
            return False
        return True

    def delete_files(self, names: Iterable[str]) -> set[str]:
        """Delete files in their final places; those that were there."""
        names = list(names)
        found = self._delete(map(self.path, names))
        return {name for name, was_there in zip(names, found, strict=True) if was_there}

    def delete_staging(self) -> None:
        """Remove the folder of the job, which has ended."""
        # A late attempt may write into it at this moment: what is left is removed by a later job.
        with contextlib.suppress(OSError):
            self.filesystem.delete_dir(self.staging)

    def sync(self, folders: Iterable[str]) -> None:
        """Make what was done to the entries of folders last."""
        if self.filesystem.type_name == "local":
            for folder in folders:
                sync_folder(folder)

    def _delete(self, paths: Iterable[str]) -> list[bool]:
        with ThreadPoolExecutor(_AT_ONCE) as pool:  # on an object store each one takes a while
            return list(pool.map(self.delete_file, paths))


def write_empty(filesystem: pa_fs.FileSystem, path: str) -> None:
    """Write an empty file, and the folders above it."""
    make_folder(filesystem, posixpath.dirname(path))
    write_file(filesystem, path, b"")
