"""The commit protocol: the files of a job become visible together, when the job commits, or never.

    <folder>/_staging/<job id>/part-<partition>-<unique>.parquet    while tasks run
    <folder>/part-<partition>-<unique>.parquet                      after the commit
    <folder>/_SUCCESS                                               last

Readers skip names that begin with "_". A task may run several times, and its attempts write
different files; only the one that Spark reports to the commit is published. An abort may come
while tasks still write, or not at all, so nothing relies on it: what a job leaves behind is
removed by a later one.
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow.fs as pa_fs

from secure_bloom.dataset import data_files
from secure_bloom.errors import SecureBloomError
from secure_bloom.files import sync_folder

STAGING = "_staging"
SUCCESS = "_SUCCESS"
STALE_AFTER = timedelta(hours=24)  # a job writes something in this time, or has ended


class CommitError(SecureBloomError):
    """A job could not make its files visible."""


@dataclass(frozen=True)
class StagedFile:
    """A complete file in the staging folder of its job."""

    name: str
    rows: int
    size: int


class Job:
    """One write job into a folder. It goes to the tasks by pickling, with its id.

    Parameters
    ----------
    filesystem : pyarrow.fs.FileSystem
    folder : str
        Where the files become visible.
    overwrite : bool
        Whether the files that are visible now are replaced.
    """

    def __init__(self, filesystem: pa_fs.FileSystem, folder: str, overwrite: bool):
        self.filesystem = filesystem
        self.folder = folder.rstrip("/") or "/"
        self.overwrite = overwrite
        self.id = uuid.uuid4().hex

    @property
    def staging(self) -> str:
        """The folder for files that are not visible yet."""
        return f"{self.folder}/{STAGING}/{self.id}"

    def check_folder(self) -> None:
        """Raise CommitError if the job could not be committed to this folder."""
        found = self.filesystem.get_file_info(self.folder)
        if found.type not in (pa_fs.FileType.NotFound, pa_fs.FileType.Directory):
            raise CommitError("there is a file where the folder should be", file=self.folder)
        if not self.overwrite:
            return
        for path in self.visible_files():
            if not path.endswith(".parquet"):
                raise CommitError("overwrite would delete this file, which is not named *.parquet; "
                                  "move it away, or choose another folder", file=path)

    def visible_files(self) -> list[str]:
        """The data files that readers see, sorted."""
        if self.filesystem.get_file_info(self.folder).type == pa_fs.FileType.NotFound:
            return []
        return data_files(self.filesystem, self.folder)

    def new_file(self, partition: int, directory: str = "") -> str:
        """A path in the staging folder, below ``directory``, that no other attempt has."""
        folder = f"{self.staging}/{directory}".rstrip("/")
        self.filesystem.create_dir(folder, recursive=True)
        return f"{folder}/part-{partition:05d}-{uuid.uuid4()}.parquet"

    def staged(self, path: str, rows: int) -> StagedFile:
        """What the commit needs to know about a file that is complete."""
        info = self.filesystem.get_file_info(path)
        return StagedFile(path.removeprefix(f"{self.staging}/"), rows, info.size)

    def commit(self, files: list[StagedFile]) -> None:
        """Make these files visible; on overwrite, then delete those that were visible before.

        Old files go last: a failure can leave old and new files side by side, never neither.

        Raises
        ------
        CommitError, OSError
            Before the first old file is deleted, new files that are visible are taken back.
        """
        self._check_staged(files)
        old = self.visible_files() if self.overwrite else []
        with contextlib.suppress(FileNotFoundError):  # while it is there, the folder is complete
            self.filesystem.delete_file(f"{self.folder}/{SUCCESS}")
        self._publish([file.name for file in files])
        self._delete(old)
        self.filesystem.open_output_stream(f"{self.folder}/{SUCCESS}").close()
        self._sync()
        self.remove_staging()
        with contextlib.suppress(OSError):  # the job is committed, whatever happens to old ones
            self.remove_stale()

    def remove_staging(self) -> None:
        """Remove what this job has staged, as far as possible."""
        with contextlib.suppress(OSError):
            self.filesystem.delete_dir(self.staging)

    def remove_stale(self) -> None:
        """Remove the staging folders of jobs that ended long ago without removing them."""
        root = f"{self.folder}/{STAGING}"
        found = self.filesystem.get_file_info(
            pa_fs.FileSelector(root, recursive=True, allow_not_found=True))
        newest: dict[str, datetime] = {}
        for info in found:
            job = info.path.removeprefix(f"{root}/").split("/")[0]
            if info.mtime is not None:
                newest[job] = max(info.mtime, newest.get(job, info.mtime))
        for job, time in newest.items():
            if datetime.now(UTC) - time > STALE_AFTER:
                self.filesystem.delete_dir(f"{root}/{job}")

    def _check_staged(self, files: list[StagedFile]) -> None:
        paths = [f"{self.staging}/{file.name}" for file in files]
        for file, info in zip(files, self.filesystem.get_file_info(paths), strict=True):
            if info.type != pa_fs.FileType.File or info.size != file.size:
                raise CommitError(f"the file was complete with {file.size} bytes and is now "
                                  "missing or changed; write again. Do tasks and driver see the "
                                  "same folder?", file=info.path)

    def _publish(self, names: list[str]) -> None:
        published = []
        try:
            for name in names:
                published.append(f"{self.folder}/{name}")
                self.filesystem.create_dir(published[-1].rpartition("/")[0], recursive=True)
                self.filesystem.move(f"{self.staging}/{name}", published[-1])
            self._sync()
        except BaseException:
            for path in published:
                with contextlib.suppress(OSError):
                    self.filesystem.delete_file(path)
            raise

    def _delete(self, paths: list[str]) -> None:
        left = []
        for path in paths:
            try:
                self.filesystem.delete_file(path)
            except FileNotFoundError:
                pass
            except OSError:
                left.append(path)
        if left:
            raise CommitError("the new files are complete and visible, but old ones could not be "
                              f"deleted, so rows may appear twice; delete: {', '.join(left)}",
                              file=self.folder)

    def _sync(self) -> None:
        if self.filesystem.type_name == "local":
            sync_folder(self.folder)
