"""The folder a job writes to: its paths, its markers, and its operations on files."""

from __future__ import annotations

import contextlib
import posixpath
import uuid
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor

import pyarrow.fs as pa_fs

from secure_bloom.errors import FormatError
from secure_bloom.storage import inside
from secure_bloom.storage.files import make_folder, write_file
from secure_bloom.storage.local_files import sync_file, sync_folder
from secure_bloom.storage.local_listing import folder_expected
from secure_bloom.storage.small_files import NO_FILE, regular_file_expected
from secure_bloom.storage.table_names import (
    GENERATION,
    STAGING,
    job_of,
    material_path,
    relative_path,
    table_of,
)
from secure_bloom.storage.versions import local_path
from secure_bloom.storage.visibility import COMMITTED, PENDING, STARTED, files_below

COMMITTING = "committing"  # files without a marker of their own may be at their final paths
PROCESS = "process"  #: the process that alone may commit the job, see ``storage/processes.py``
REPLACING = "replacing"  #: which files the job is about to replace, see ``storage/claims.py``

_AT_ONCE = 8


class JobFolder:
    """A folder, and the part of ``_staging`` that belongs to one job.

    Names are relative to the table, which is the folder itself or a folder above it. The files of
    the job become visible in ``folder``. ``id`` is that of an existing job; default: a new one.
    """

    def __init__(self, filesystem: pa_fs.FileSystem, folder: str, id: str | None = None):
        self.filesystem = filesystem
        self.folder = folder.rstrip("/") or "/"
        self.table = table_of(self.folder)
        self.id = id or uuid.uuid4().hex
        # A rename is cheap on disks and HDFS.
        self.in_place = local_path(filesystem, self.table) is None \
            and filesystem.type_name != "hdfs"

    @property
    def staging(self) -> str:
        """The folder for the markers of this job, and for files that are not visible yet."""
        return posixpath.join(self.table, STAGING, self.id)

    @property
    def work(self) -> str:
        """The folder that tasks write to."""
        return self.table if self.in_place else self.staging

    @property
    def name(self) -> str:
        """The folder's path relative to the table: "" or ``day=1``."""
        return relative_path(self.folder, self.table)

    def path(self, name: str) -> str:
        """Return the path at which readers find a file."""
        return posixpath.join(self.table, name)

    # --- markers ---------------------------------------------------------------------------------

    def has(self, marker: str) -> bool:
        """Whether a marker exists."""
        return self.exists(f"{self.staging}/{marker}")

    def write_marker(self, marker: str, content: bytes = b"") -> None:
        """Write a marker, and the folders above it."""
        path = f"{self.staging}/{marker}"
        self.make_folder(posixpath.dirname(path))
        self.write_file(path, content)

    def remove_marker(self, marker: str) -> None:
        """Remove a marker, if it exists."""
        self.delete_file(f"{self.staging}/{marker}")

    def pending(self) -> set[str]:
        """Return the names of files of this job that attempts may write."""
        found = files_below(self.filesystem, f"{self.staging}/{PENDING}", allow_not_found=True)
        return {name for name in found if job_of(name) == self.id}

    def end(self, settled: AbstractSet[str] = frozenset(), wait: bool = True) -> None:
        """Do the last steps of a job that has committed or was rolled back. May be repeated.

        ``settled`` are files that are published or have been deleted. With ``wait``, the other
        files may still be written: their markers stay until then.
        """
        self.remove_marker(STARTED)  # first: no attempt starts after this, so the list is complete
        pending = self.pending()
        others = pending - settled
        removed = self.delete_files(others)
        waiting = others - removed if wait else set()
        if waiting:
            self._delete(f"{self.staging}/{marker}" for marker in
                         (COMMITTING, REPLACING,
                          *(f"{PENDING}/{name}" for name in pending - waiting)))
        else:  # in one call, which is cheap on an object store
            self._delete_folder(f"{self.staging}/{PENDING}")
        # Not even a power cut may leave STARTED without COMMITTED: the job would be rolled back.
        self._sync_if_present([self.staging])
        self.remove_marker(COMMITTED)  # last: without it a published file still pending is hidden
        if not waiting:
            self.delete_staging()

    def note_change(self) -> None:
        """Make readers that are listing the folder now list it again."""
        self.write_file(posixpath.join(self.table, STAGING, GENERATION),
                        uuid.uuid4().hex.encode())

    # --- files -----------------------------------------------------------------------------------

    def check_inside(self, path: str) -> None:
        """Raise UnsupportedError if links lead from a path to a place outside of the table."""
        inside.check_inside(self.filesystem, self.table, path)

    def make_folder(self, path: str, *, durable: bool = True) -> None:
        """Create a folder of the table; raise FormatError if something else is in its place."""
        self.check_inside(path)
        with folder_expected(path):
            make_folder(self.filesystem, path, durable=durable)

    def write_file(self, path: str, content: bytes = b"") -> None:
        """Write a file of the table that is not a data file.

        A link in its place, which may lead to a data file, is replaced. Raises FormatError if there
        is a folder.
        """
        folder, name = posixpath.split(path)
        with regular_file_expected(path), \
                inside.held_folder(self.filesystem, self.table, folder) as (filesystem, place):
            write_file(filesystem, posixpath.join(place, name), content, follow=False)

    def own_files(self) -> list[str]:
        """Return the names of this job's files at their final paths."""
        found = files_below(self.filesystem, self.folder, allow_not_found=True)
        names = (relative_path(info.path, self.table) for info in found.values())
        return [name for name in names
                if job_of(name) == self.id and not name.startswith(f"{STAGING}/")]

    def delete_material(self, names: Iterable[str]) -> None:
        """Delete the key material of files, where it is stored next to them."""
        self.delete_files(map(material_path, names))

    def exists(self, path: str) -> bool:
        """Whether a file or folder exists at a path."""
        return self.filesystem.get_file_info(path).type != pa_fs.FileType.NotFound

    def delete_file(self, path: str) -> bool:
        """Delete a file of the table; return whether it existed.

        Of a link to a file, the link is deleted. Raises UnsupportedError if the folder of the file
        is outside of the table; FormatError if there is a folder.
        """
        try:
            inside.delete_file(self.filesystem, self.table, path)
        except IsADirectoryError:
            raise FormatError(NO_FILE, file=path) from None
        except OSError:  # HDFS does not report the cause, and a store may have answered falsely
            if self.exists(path):
                raise
            return False
        return True

    def delete_files(self, names: Iterable[str]) -> set[str]:
        """Delete files at their final paths, durably; return those that existed.

        Markers are removed after this. A power cut that brought files back without them would make
        rows visible that were replaced or never committed.
        """
        names = list(names)
        found = self._delete(map(self.path, names))
        deleted = {name for name, was_there in zip(names, found, strict=True) if was_there}
        self._sync_if_present({posixpath.dirname(self.path(name)) for name in deleted})
        return deleted

    def delete_staging(self) -> None:
        """Remove the staging folder of the job, which has ended."""
        # A late attempt may be writing into it: what is left is removed by a later job.
        with contextlib.suppress(OSError):
            self._delete_folder(self.staging)

    def sync_written(self, names: Iterable[str]) -> None:
        """Make files durable that a task has written below :attr:`work`, before they are published.

        They are written without syncing each: together, they share the flushes of the disk.
        """
        work = local_path(self.filesystem, self.work)
        if work is not None:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(sync_file, [f"{work}/{name}" for name in names]))

    def sync(self, folders: Iterable[str]) -> None:
        """Make changes to the entries of folders durable."""
        for folder in folders:
            path = local_path(self.filesystem, folder)
            if path is not None:
                sync_folder(path)

    def _sync_if_present(self, folders: Iterable[str]) -> None:
        """Sync folders, unless another job has removed them in the meantime."""
        for folder in folders:
            with contextlib.suppress(FileNotFoundError):
                self.sync([folder])

    def _delete_folder(self, path: str) -> None:
        """Delete a folder, if it exists."""
        try:
            inside.delete_folder(self.filesystem, self.table, path)
        except FileNotFoundError:
            pass
        except OSError:  # pyarrow's filesystem of Google Cloud Storage does not report the cause
            if self.exists(path):
                raise

    def _delete(self, paths: Iterable[str]) -> list[bool]:
        with ThreadPoolExecutor(_AT_ONCE) as pool:  # each request to an object store is slow
            return list(pool.map(self.delete_file, paths))
