"""The commit protocol: the files of a job become visible together, when the job commits, or never.

Markers in ``<folder>/_staging/<job>`` tell our readers what to see; ``secure_bloom/folder.py`` says
how. A job commits by writing one of them, ``committed``, which is the commit point: what fails
before is taken back, what fails after is finished by the next job on the folder.

- Where a rename is cheap, tasks write below ``_staging/<job>``, and the commit moves the files to
  their places, then writes ``committed``.
- Elsewhere, as on S3, tasks write to the final places at once, each after a marker ``pending``.

Other readers, such as Spark's own, see whole files only, and ``_SUCCESS`` is gone while a commit
runs. A task may run several times, and its attempts write different files; only the one that Spark
reports is published. An abort may come while tasks still write, or not at all, so nothing relies on
it, and an attempt that ends after its job stays hidden.
"""

from __future__ import annotations

import contextlib
import json
import logging
import posixpath
import re
import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

import pyarrow.fs as pa_fs

from secure_bloom.errors import SecureBloomError
from secure_bloom.files import UPLOADS, sync_folder, write_file
from secure_bloom.folder import (
    COMMITTED,
    PENDING,
    STAGING,
    STARTED,
    SUCCESS,
    CommitRecord,
    files_below,
    new_name,
    read_jobs,
    relative_path,
    signature,
    visible_files,
)
from secure_bloom.spark.summary import CommitSummary, StagedFile
from secure_bloom.writer import FilterTotals

STREAMS = "_streams"
STALE_AFTER = timedelta(hours=24)  # a job writes something in this time, or has ended

_RENAMING = ("local", "hdfs", "py::fsspec+file")  # filesystems on which a rename is cheap
_log = logging.getLogger("secure_bloom.spark")


class CommitError(SecureBloomError):
    """A job could not make its files visible."""


@dataclass(frozen=True)
class Batch:
    """A batch of a streaming query, by the query's id; it is committed once."""

    stream: str
    id: int


class Job:
    """One write job into a folder. It goes to the tasks by pickling, with its id.

    Parameters
    ----------
    filesystem : pyarrow.fs.FileSystem
    folder : str
        Where the files become visible.
    overwrite : bool
        Whether the files that are visible at the commit are replaced.
    id : str, optional
        Of a job that exists; default: a new one.
    """

    def __init__(self, filesystem: pa_fs.FileSystem, folder: str, overwrite: bool,
                 id: str | None = None):
        self.filesystem = filesystem
        self.folder = folder.rstrip("/") or "/"
        self.overwrite = overwrite
        self.id = id or uuid.uuid4().hex
        self.in_place = filesystem.type_name not in _RENAMING

    @property
    def staging(self) -> str:
        """The folder for the markers of this job, and for files that are not visible yet."""
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
        return [info.path for info in self._visible().values()]

    # --- before the commit -----------------------------------------------------------------------

    def start(self) -> None:
        """Announce the job, on the driver and before any task; finish what dead jobs have left."""
        self._write_marker(f"{self.staging}/{STARTED}")
        self._sync([posixpath.dirname(self.staging), self.folder])
        try:
            self.recover()
        except (OSError, SecureBloomError) as error:
            _log.warning("%s: what earlier jobs left could not be removed: %s", self.folder, error)

    def new_file(self, partition: int, directory: str = "") -> str:
        """A path to write a file to, that no other attempt has.

        Parameters
        ----------
        partition : int
        directory : str
            Where below the folder: ``day=2024-01-01/city=x``.
        """
        name = posixpath.join(directory, new_name(partition, self.id))
        if self.in_place:
            self._write_marker(f"{self.staging}/{PENDING}/{name}")
        path = f"{self._work}/{name}"
        self._make_folder(posixpath.dirname(path))
        return path

    def staged(self, path: str, rows: int, filters: FilterTotals | None = None) -> StagedFile:
        """What the commit needs to know about a file that is complete.

        Raises
        ------
        CommitError
            If the job has ended meanwhile; the file is removed then.
        """
        info, started = self.filesystem.get_file_info([path, f"{self.staging}/{STARTED}"])
        if started.type == pa_fs.FileType.NotFound:
            self._delete_file(path)
            raise CommitError("the job ended before this task, or this task does not see the "
                              "folder that the driver sees", file=self.folder)
        filters = filters or FilterTotals()
        return StagedFile(relative_path(path, self._work), rows, info.size, filters.encrypted,
                          filters.plain, filters.bytes)

    def abort(self) -> None:
        """Take back what the job has written so far, as far as possible."""
        with contextlib.suppress(OSError):
            self._roll_back([])

    # --- the commit ------------------------------------------------------------------------------

    def commit(self, files: list[StagedFile], batch: Batch | None = None) -> CommitSummary | None:
        """Make these files visible, in place of those that were visible before on overwrite.

        Parameters
        ----------
        files : list of StagedFile
        batch : Batch, optional
            Of a streaming query. If it has been committed before, the files are dropped.

        Returns
        -------
        CommitSummary or None
            None if the batch had been committed before.

        Raises
        ------
        CommitError, OSError
            Nothing has changed then, and the files are gone.
        """
        success = None
        try:
            if batch is not None and self._is_committed(batch):
                self.abort()
                return None
            self._check_staged(files)
            summary = CommitSummary.of(self.id, files)
            replaced = {path: signature(info) for path, info in self._visible().items()} \
                if self.overwrite else {}
            success = self._remove_success()
            self._publish([file.path for file in files])
            record = CommitRecord([file.path for file in files], replaced, asdict(summary),
                                  batch and batch.stream, batch and batch.id)
            self._write_record(record)
        except BaseException:
            with contextlib.suppress(OSError):
                self._roll_back([file.path for file in files], success)
            raise
        try:
            self.finish(record)
        except OSError as error:
            _log.warning("%s: the new files are visible, but cleaning up failed, and is left to "
                         "the next job. Until then other readers may see replaced files: %s",
                         self.folder, error)
        _log.info("%s: committed %s", self.folder, json.dumps(asdict(summary)))
        return summary

    def finish(self, record: CommitRecord) -> None:
        """Remove what the commit has made useless, its markers last. May be done several times."""
        self._delete_replaced(record)
        kept = [path for path in self._pending()
                if path not in record.files and not self._delete_file(f"{self.folder}/{path}")]
        if record.stream is not None:
            self._write_batch(Batch(record.stream, record.batch))
        write_file(self.filesystem, f"{self.folder}/{SUCCESS}",
                   json.dumps(record.summary).encode())
        self._sync([self.folder])
        self._delete_file(f"{self.staging}/{STARTED}")
        self._remove_pending(kept)
        self._delete_file(f"{self.staging}/{COMMITTED}")
        if not kept:
            self._delete_folder(self.staging)

    def recover(self) -> None:
        """Finish jobs that died after their commit point, and take back those that died before."""
        for id, state in read_jobs(self.filesystem, self.folder).items():
            if id == self.id:
                continue
            other = Job(self.filesystem, self.folder, False, id)
            if state.record is not None:
                other.finish(state.record)
            elif state.newest and datetime.now(UTC) - state.newest > STALE_AFTER:
                files = files_below(self.filesystem, self.folder) if state.started else ()
                other._roll_back([path for path in files if id in posixpath.basename(path)
                                  and not path.startswith(f"{STAGING}/")])
                other._delete_folder(other.staging)

    # --- parts of these --------------------------------------------------------------------------

    @property
    def _work(self) -> str:
        """Where tasks write."""
        return self.folder if self.in_place else self.staging

    def _visible(self) -> dict[str, pa_fs.FileInfo]:
        if self.filesystem.get_file_info(self.folder).type == pa_fs.FileType.NotFound:
            return {}
        return visible_files(self.filesystem, self.folder)

    def _check_staged(self, files: list[StagedFile]) -> None:
        paths = [f"{self._work}/{file.path}" for file in files]
        started, *found = self.filesystem.get_file_info([f"{self.staging}/{STARTED}", *paths])
        if started.type == pa_fs.FileType.NotFound:
            raise CommitError("another job has removed the files of this one, which wrote nothing "
                              f"for {STALE_AFTER}; write again", file=self.folder)
        for file, info in zip(files, found, strict=True):
            if info.type != pa_fs.FileType.File or info.size != file.size:
                raise CommitError(f"the file was complete with {file.size} bytes and is now "
                                  "missing or changed; write again. Do tasks and driver see the "
                                  "same folder?", file=info.path)

    def _remove_success(self) -> bytes | None:
        """While it is there, the folder is complete for readers that do not know our markers."""
        path = f"{self.folder}/{SUCCESS}"
        try:
            with self.filesystem.open_input_stream(path) as stream:
                content = stream.read()
            self.filesystem.delete_file(path)
        except FileNotFoundError:
            return None
        return content

    def _publish(self, paths: list[str]) -> None:
        if self.in_place:
            return
        folders = {posixpath.dirname(f"{self.folder}/{path}") for path in paths}
        for folder in folders:
            self._make_folder(folder)
        for path in paths:
            self.filesystem.move(f"{self.staging}/{path}", f"{self.folder}/{path}")
        self._sync({self.folder, *folders, *map(posixpath.dirname, folders)})

    def _write_record(self, record: CommitRecord) -> None:
        path = f"{self.staging}/{COMMITTED}"
        try:
            write_file(self.filesystem, path, record.to_bytes())
        except OSError:  # perhaps only the answer was lost
            if self.filesystem.get_file_info(path).type == pa_fs.FileType.NotFound:
                raise

    def _roll_back(self, files: list[str], success: bytes | None = None) -> None:
        """Remove the job, unless it has committed. Markers go last, and only with their files:
        an attempt that still runs may write its file later.
        """
        if self._exists(f"{self.staging}/{COMMITTED}"):
            return
        pending = self._pending()
        gone = {path for path in {*files, *pending} if self._delete_file(f"{self.folder}/{path}")}
        if success is not None:
            write_file(self.filesystem, f"{self.folder}/{SUCCESS}", success)
        kept = [path for path in pending if path not in gone]
        self._delete_file(f"{self.staging}/{STARTED}")
        self._remove_pending(kept)
        if not kept:
            self._delete_folder(self.staging)

    def _delete_replaced(self, record: CommitRecord) -> None:
        paths = {f"{self.folder}/{path}": which for path, which in record.replaced.items()}
        for info in self.filesystem.get_file_info(list(paths)):
            if info.type == pa_fs.FileType.File and signature(info) == paths[info.path]:
                self._delete_file(info.path)

    def _pending(self) -> list[str]:
        return list(files_below(self.filesystem, f"{self.staging}/{PENDING}",
                                allow_not_found=True))

    def _remove_pending(self, kept: list[str]) -> None:
        """All but these. A failure is an error: files whose marker stays would become hidden."""
        if not kept:  # at once, which is cheap on an object store
            with contextlib.suppress(FileNotFoundError):
                self.filesystem.delete_dir(f"{self.staging}/{PENDING}")
            return
        for path in set(self._pending()) - set(kept):
            self._delete_file(f"{self.staging}/{PENDING}/{path}")

    # --- streams ---------------------------------------------------------------------------------

    def _batches(self, stream: str) -> list[int]:
        names = files_below(self.filesystem, f"{self.folder}/{STREAMS}/{stream}",
                            allow_not_found=True)
        return [int(name) for name in names if re.fullmatch(r"\d+", name)]

    def _is_committed(self, batch: Batch) -> bool:
        # In this order: who removes a commit record has written the file for its batch before.
        records = [state.record for state in read_jobs(self.filesystem, self.folder).values()]
        done = [record.batch for record in records if record and record.stream == batch.stream]
        return max(done + self._batches(batch.stream), default=-1) >= batch.id

    def _write_batch(self, batch: Batch) -> None:
        # One file for each batch, of which the highest counts: writing an old one changes nothing.
        folder = f"{self.folder}/{STREAMS}/{batch.stream}"
        self._write_marker(f"{folder}/{batch.id}")
        for number in self._batches(batch.stream):
            if number < batch.id:
                self._delete_file(f"{folder}/{number}")

    # --- files -----------------------------------------------------------------------------------

    def _exists(self, path: str) -> bool:
        return self.filesystem.get_file_info(path).type != pa_fs.FileType.NotFound

    def _make_folder(self, path: str) -> None:
        if self.filesystem.type_name not in UPLOADS:  # these have none
            self.filesystem.create_dir(path, recursive=True)

    def _write_marker(self, path: str) -> None:
        self._make_folder(posixpath.dirname(path))
        write_file(self.filesystem, path, b"")

    def _delete_file(self, path: str) -> bool:
        """Whether it was there."""
        try:
            self.filesystem.delete_file(path)
        except FileNotFoundError:
            return False
        return True

    def _delete_folder(self, path: str) -> None:
        # A late attempt may write into it at this moment: what is left is removed by a later job.
        with contextlib.suppress(OSError):
            self.filesystem.delete_dir(path)

    def _sync(self, folders) -> None:
        if self.filesystem.type_name == "local":
            for folder in folders:
                sync_folder(folder)
