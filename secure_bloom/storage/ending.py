"""How jobs end: those that have committed are finished, the others rolled back, by any process.

:mod:`secure_bloom.storage.commit` describes the protocol.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

import pyarrow.fs as pa_fs

from secure_bloom.errors import CommitError, UnsupportedError
from secure_bloom.storage.batches import note_batch
from secure_bloom.storage.commit_record import CommitRecord
from secure_bloom.storage.job_folder import COMMITTING, PROCESS, JobFolder
from secure_bloom.storage.leftovers import remove_leftovers
from secure_bloom.storage.local_files import is_temporary
from secure_bloom.storage.local_listing import list_folder
from secure_bloom.storage.processes import is_dead
from secure_bloom.storage.small_files import MAX_MARKER, read_small
from secure_bloom.storage.table_names import (
    GENERATION,
    STAGING,
    SUCCESS,
    is_job_id,
    material_path,
    relative_path,
)
from secure_bloom.storage.versions import open_regular
from secure_bloom.storage.visibility import (
    COMMITTED,
    GIVEN_UP,
    STARTED,
    JobState,
    files_below,
    read_jobs,
)

STALE_AFTER = timedelta(hours=24)  # a live job writes something within this time
GRACE = timedelta(hours=1)  # at most, from a job's last check of its markers to its commit point
SUFFIX = ".parquet"
_MAGIC = b"PAR1", b"PARE"


class EndingJob(JobFolder):
    """A job that this process may end: its own, or one whose process has died."""

    def recover(self) -> None:
        """Finish jobs that died after their commit point, and roll back those that died before."""
        entries = list_folder(self.filesystem, posixpath.join(self.table, STAGING), True)
        jobs = read_jobs(self.filesystem, self.table)
        now = self._time_of_store(jobs)
        for id, state in jobs.items():
            if id == self.id:
                continue
            if state.record is not None:
                folder = posixpath.join(self.table, state.record.folder)
                EndingJob(self.filesystem, folder, id).finish(state.record)
            elif state.newest is not None:
                EndingJob(self.filesystem, self.table, id).take_back(state, now)
        self._remove_empty([info for info in entries if info.base_name not in jobs], now)
        self._remove_temporary(jobs)

    def finish(self, record: CommitRecord) -> None:
        """Remove what the commit has made obsolete, its markers last."""
        self._delete_replaced(record)
        if not self.has(COMMITTED):  # another job has finished this one in the meantime
            return
        note_batch(self, record)
        self.write_file(posixpath.join(self.folder, SUCCESS), json.dumps(record.summary).encode())
        self.note_change()
        self.end(set(record.files))

    def roll_back(self, success: bytes | None = None) -> None:
        """Remove a job that has not committed. Files are deleted before the markers hiding them."""
        files = self.pending()
        if self.has(COMMITTING):
            files.update(self.own_files())
        self.delete_material(files)
        removed = self.delete_files(files)
        path = posixpath.join(self.folder, SUCCESS)
        if success is not None and not self.exists(path):
            self.write_file(path, success)
        if removed:
            self.note_change()
        self.end(removed)

    def take_back(self, state: JobState, now: datetime) -> None:
        """Roll back a dead job, in two steps, because it may be about to commit right now."""
        assert state.newest is not None  # time of its newest marker or file
        silent = now - state.newest
        if self._is_of_dead_process():
            has_committed = self.has(COMMITTED)
            if self.has(STARTED) and not has_committed:  # checked in this order
                self.roll_back()
            elif not has_committed:  # it has ended, or never started
                self.end(wait=False)
        elif self.has(STARTED):
            if not state.given_up and silent > STALE_AFTER:
                self.write_marker(GIVEN_UP)
            elif state.given_up and silent > GRACE and not self.has(COMMITTED):
                self.roll_back()
        elif silent > STALE_AFTER and not self.has(COMMITTED):  # attempts that came late
            self.end(wait=False)

    def _time_of_store(self, jobs: Mapping[str, JobState]) -> datetime:
        """Return the time of this job's own marker, which was just written.

        The ages of other markers are measured by the clock that dated them. The clock of this
        process may differ from it, and a running job would seem dead.
        """
        own = jobs.get(self.id)
        return own.newest if own is not None and own.newest is not None else datetime.now(UTC)

    def _is_of_dead_process(self) -> bool:
        """Whether the process that alone could commit the job has died.

        Only on local filesystems: a store may still carry out what the process asked for.
        """
        if self.filesystem.type_name != "local":
            return False
        try:
            return is_dead(read_small(self.filesystem, f"{self.staging}/{PROCESS}", MAX_MARKER))
        except FileNotFoundError:
            return False

    def _delete_replaced(self, record: CommitRecord) -> None:
        if record.replaced:
            found = files_below(self.filesystem, self.folder, allow_not_found=True)
            names = {relative_path(info.path, self.table): info for info in found.values()}
            replaced = {name for name in record.replaced
                        if name not in names or record.replaces(name, names[name])}
            self._check_data_files(replaced & names.keys())
            self.delete_files(replaced & names.keys())
            self.delete_material(name for name in replaced if material_path(name) in names)

    def _check_data_files(self, replaced: Iterable[str]) -> None:
        """Check that a record, which anyone may have planted, names only data files.

        No overwrite replaces a file of another name, and other jobs only what they read as Parquet.
        """
        for name in replaced:
            if name.endswith(SUFFIX):
                continue
            with contextlib.suppress(FileNotFoundError), \
                    open_regular(self.filesystem, self.path(name)) as file:
                if file.read(len(_MAGIC[0])) not in _MAGIC:
                    raise CommitError("this commit record would delete a file that is not Parquet, "
                                      f"{name}, so no job has written it: remove the record",
                                      file=f"{self.staging}/{COMMITTED}")

    def _remove_empty(self, entries: list[pa_fs.FileInfo], now: datetime) -> None:
        """Remove folders of attempts that came too late, and temporary files."""
        for info in entries:
            is_folder = info.type == pa_fs.FileType.Directory  # object stores do not date folders
            if not (is_job_id(info.base_name) if is_folder else is_temporary(info.base_name)):
                continue  # we did not make it
            if now - info.mtime <= STALE_AFTER if info.mtime is not None else not is_folder:
                continue  # it may be in use
            if is_folder:
                JobFolder(self.filesystem, self.table, info.base_name).delete_staging()
            else:
                self.delete_file(info.path)

    def _remove_temporary(self, jobs: Iterable[str]) -> None:
        """Remove what dead processes have left of markers that no job would remove."""
        if self.filesystem.type_name == "local":
            staging = posixpath.join(self.table, STAGING)
            for folder, name in ((self.folder, SUCCESS), (staging, GENERATION),
                                 *((posixpath.join(staging, id), PROCESS) for id in jobs)):
                with contextlib.suppress(OSError, UnsupportedError):
                    self.check_inside(folder)
                    remove_leftovers(folder, [name])
