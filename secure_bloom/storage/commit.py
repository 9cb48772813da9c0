"""The commit protocol: the files of a job become visible together when it commits, or never.

Markers in ``_staging/<job>`` tell our readers which files are visible; ``storage/visibility.py``
describes how. A job commits by writing one of them, ``committed``. This is the commit point: a job
that fails before it is rolled back, a job that fails after it is finished by the next job on the
table.

- Where a rename is cheap, tasks write below ``_staging/<job>``, and at their end sync what they
  wrote. The commit moves the files to their final paths, then writes ``committed``.
- Elsewhere, for example on S3, tasks write each file directly to its final path, after they have
  written a marker ``pending`` for it.

    start      write process, if only this one will commit the job; write started
    attempt    write pending, check started, write the file, check started
    commit     write committing, and process if it claims files or partitions; claim the files to
               replace, move files, check started, given_up and the files to replace, write
               committed
    finish     delete replaced files, write the batch, _SUCCESS and generation, then end
    roll back  delete files, write generation, then end
    end        remove started; list pending; delete the files of attempts that lost, then their
               markers; remove committed

These invariants hold at any moment, whichever process dies and whatever else runs concurrently:

1. An unpublished file is hidden: by ``started``, then by its ``pending``, which is removed after
   the file. An attempt whose ``pending`` was written too late to be listed finds ``started`` gone
   and writes nothing; an attempt that was listed but has not written yet keeps its ``pending``.
2. ``committed`` is removed last, when no replaced file and no ``pending`` of a published file is
   left.
3. So if ``committed`` is missing and ``started`` exists, checked in this order, the job has not
   committed. If both are missing, another job has ended this one: its files show how.
4. Any job may finish a job that has committed; several may do so concurrently.
5. Only the job itself rolls it back, unless its process is known to be dead, or it was silent for
   STALE_AFTER, and then wrote nothing for GRACE after another job had written ``given_up``, both by
   the clock of the store, which dates the markers. The job checks for ``given_up`` before it
   commits.
6. Of two jobs that replace the same file, or overwrite the same partition, at most one commits,
   unless both overwrite the whole folder.

Other readers, such as Spark's own, see only whole files, and ``_SUCCESS`` is missing while a commit
runs. A task may run several times, and its attempts write different files; only the attempt that
Spark reports is published. An abort may arrive while tasks are still writing, or never, so nothing
relies on it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import posixpath
from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from types import MappingProxyType
from typing import Any

import pyarrow.fs as pa_fs

from secure_bloom.errors import CommitError, SecureBloomError
from secure_bloom.storage.batches import Batch, is_committed
from secure_bloom.storage.commit_record import CommitRecord, signature
from secure_bloom.storage.ending import STALE_AFTER
from secure_bloom.storage.inside import held_folder
from secure_bloom.storage.job_folder import COMMITTING, PROCESS
from secure_bloom.storage.processes import this_process
from secure_bloom.storage.replacing import ReplacingJob
from secure_bloom.storage.small_files import MAX_RECORD, read_unlinked
from secure_bloom.storage.summary import CommitSummary, FilterTotals, StagedFile
from secure_bloom.storage.table_names import SUCCESS, material_path, new_name, relative_path
from secure_bloom.storage.versions import FileVersion
from secure_bloom.storage.visibility import COMMITTED, GIVEN_UP, PENDING, STARTED, files_below

_log = logging.getLogger("secure_bloom.spark")


class Job(ReplacingJob):
    """One write job into a folder. It is pickled, with its id, and sent to the tasks.

    Its files become visible in ``folder``. With ``overwrite``, the commit replaces the files that
    are visible at that time; with ``"partitions"``, those of the Hive partitions for which the job
    has rows; with a ``Partition``, those of this one. ``id`` is that of an existing job; default: a
    new one.
    """

    def check_folder(self) -> None:
        """Raise CommitError if the job could not be committed to this folder."""
        found = self.filesystem.get_file_info(self.folder)
        if found.type not in (pa_fs.FileType.NotFound, pa_fs.FileType.Directory):
            raise CommitError("there is a file where the folder should be", file=self.folder)
        self.check_inside(self.folder)
        if self.overwrite is True:
            visible = self.visible_files()
            self._check_overwritten(visible)
            for folder in set(map(posixpath.dirname, visible)):
                self.check_inside(folder)

    # --- before the commit -----------------------------------------------------------------------

    def start(self, *, is_of_process: bool = False) -> None:
        """Announce the job, on the driver and before any task; finish what dead jobs left.

        ``is_of_process``: only this process will commit the job. If it dies, the next job takes
        the job back at once, if it can tell.
        """
        if is_of_process:
            self.write_marker(PROCESS, this_process())
        self.write_marker(STARTED)
        try:
            self.recover()
        except (OSError, SecureBloomError) as error:
            _log.warning("%s: leftover files of earlier jobs could not be removed: %s",
                         self.table, error)

    def new_file(self, partition: int, directory: str = "", replaced: str = "") -> str:
        """Return a path to write a file to that no other attempt uses.

        ``directory`` is below the folder: ``day=2024-01-01/city=x``. ``replaced`` is the file of
        which it is a new version. Raises CommitError if the job has ended.
        """
        name = posixpath.join(self.name, directory, new_name(partition, self.id, replaced))
        self.check_inside(posixpath.dirname(self.path(name)))
        if self.in_place:
            self.write_marker(f"{PENDING}/{name}")
        # Files leave the staging folder before they need a durable name.
        self.make_folder(posixpath.dirname(f"{self.work}/{name}"), durable=self.in_place)
        if not self.has(STARTED):  # checked after the marker was written
            raise self._too_late(name)
        return f"{self.work}/{name}"

    def staged(self, path: str, rows: int, filters: FilterTotals | None = None) -> StagedFile:
        """Describe a complete file for the commit.

        Raises CommitError if the job has ended in the meantime; the file is then removed.
        """
        name = relative_path(path, self.work)
        if not self.has(STARTED):
            raise self._too_late(name)
        size = self.filesystem.get_file_info(path).size
        filters = filters or FilterTotals()
        return StagedFile(name, rows, size, filters.encrypted, filters.plain, filters.bytes)

    def abort(self) -> None:
        """Roll back what the job has written so far, as far as possible, unless it has ended."""
        with contextlib.suppress(OSError):
            if not self.has(COMMITTED) and self.has(STARTED):  # in this order
                self.roll_back()

    # --- the commit ------------------------------------------------------------------------------

    def commit(self, files: list[StagedFile], batch: Batch | None = None,
               replaced: Mapping[str, FileVersion] = MappingProxyType({})) -> CommitSummary | None:
        """Make these files visible; on overwrite they replace files that were visible before.

        Parameters
        ----------
        files : list of StagedFile
        batch : Batch, optional
            Batch of a streaming query. If it was already committed, the files are dropped.
        replaced : mapping of str to FileVersion
            Visible files that these replace, by path; see :meth:`replaced_version`.

        Returns
        -------
        CommitSummary or None
            None if the batch was already committed.

        Raises
        ------
        CommitError, ChangedMeanwhileError, OSError
            Then nothing has changed and the files are gone, unless the error or one of its notes
            says that this is unknown.
        BaseException
            For example KeyboardInterrupt. If the job has committed, a note says so.
        """
        tried, success = False, None
        try:
            if batch is not None and is_committed(self, batch):
                self.abort()
                return None
            self.write_marker(COMMITTING)
            self._check_alive()
            self._check_staged(files)
            partitions = self._partitions(files)
            self._claim(partitions, replaced)
            if partitions:
                self._check_partition_links(file.path for file in files)
            self._wait_for_rewrites(partitions, replaced)
            signatures = {path: signature(version) for path, version in replaced.items()}
            record = self._record(files, batch, {**signatures, **self._overwritten(partitions)})
            success = self._remove_success()
            self._publish(record.files)
            self._check_alive()
            self._check_replaced(replaced)
            tried = True
            self._write_record(record)
            if not self._has_committed(record):
                raise self._given_up()
        except BaseException as error:
            if not (tried and self._has_committed_despite(error, record)):
                with contextlib.suppress(OSError):
                    if tried:
                        self.remove_marker(COMMITTED)
                    self.roll_back(success)
                raise
            if not isinstance(error, Exception):
                self._note_committed(error)
                raise
        return self._complete(record)

    # --- parts of these --------------------------------------------------------------------------

    def _too_late(self, name: str) -> CommitError:
        """Remove what an attempt has written, and its marker last."""
        self.delete_file(f"{self.work}/{name}")
        if self.in_place:
            self.remove_marker(f"{PENDING}/{name}")
        else:
            self.delete_staging()
        return CommitError("the job ended before this task, or this task does not see the same "
                           "folder as the driver", file=self.folder)

    def _check_alive(self) -> None:
        if self.has(GIVEN_UP) or not self.has(STARTED):
            raise self._given_up()

    def _given_up(self) -> CommitError:
        return CommitError("another job removed the files of this job, which had written nothing "
                           f"for {STALE_AFTER}; run the job again", file=self.folder)

    def _check_staged(self, files: list[StagedFile]) -> None:
        found = self.filesystem.get_file_info([f"{self.work}/{file.path}" for file in files])
        for file, info in zip(files, found, strict=True):
            if info.type != pa_fs.FileType.File or info.size != file.size:
                raise CommitError(f"the file was complete with {file.size} bytes and is now "
                                  "missing or changed; check that tasks and driver see the same "
                                  "folder, and run the job again", file=info.path)

    def _record(self, files: list[StagedFile], batch: Batch | None,
                replaced: Mapping[str, list[Any]]) -> CommitRecord:
        for folder in {posixpath.dirname(path) for path in replaced}:
            self.check_inside(folder)
        signatures = {relative_path(path, self.table): one for path, one in replaced.items()}
        record = CommitRecord([file.path for file in files], signatures,
                              CommitSummary.of(self.id, files).to_record(),
                              None if batch is None else batch.stream,
                              None if batch is None else batch.id, self.name)
        if not record.is_readable():
            raise CommitError(f"one commit cannot write {len(files):,} files and replace "
                              f"{len(signatures):,}: write larger files, or one Hive folder after "
                              "the other", file=self.folder)
        return record

    def _remove_success(self) -> bytes | None:
        """Remove ``_SUCCESS`` and return its content, which :meth:`roll_back` restores.

        While it exists, the folder is complete for readers that do not know our markers.
        """
        path = posixpath.join(self.folder, SUCCESS)
        try:
            content = read_unlinked(self.filesystem, path, MAX_RECORD)
            self.delete_file(path)
        except FileNotFoundError:
            return None
        return content

    def _publish(self, names: list[str]) -> None:
        if self.in_place:
            return
        folders = set()
        for name in names:
            while name:  # up to the table, which is ""
                name = posixpath.dirname(name)
                folders.add(self.path(name).rstrip("/") or "/")
        for folder in folders:
            self.make_folder(folder, durable=False)  # all are synced below, each once
        staged = files_below(self.filesystem, self.staging)
        for folder, some in groupby(sorted(names, key=posixpath.dirname), posixpath.dirname):
            self._move(folder, some, staged)
        self.sync(folders)

    def _move(self, folder: str, names: Iterable[str], staged: Collection[str]) -> None:
        """Publish files of one folder, with their key material."""
        source = posixpath.join(self.staging, folder)
        with held_folder(self.filesystem, self.table, source) as (filesystem, before), \
                held_folder(self.filesystem, self.table, self.path(folder)) as (_, after):
            for path in names:
                material = material_path(path)  # after its file, which a job finds
                for one in (path, material) if material in staged else (path,):
                    name = posixpath.basename(one)
                    filesystem.move(posixpath.join(before, name), posixpath.join(after, name))

    def _write_record(self, record: CommitRecord) -> None:
        self.write_file(f"{self.staging}/{COMMITTED}", record.to_bytes())

    def _has_committed(self, record: CommitRecord) -> bool:
        """Check the outcome of writing the record: perhaps only the response was lost."""
        committed = self.has(COMMITTED)
        if self.has(STARTED):  # in this order: finishing a job removes committed last
            return committed
        found = self.filesystem.get_file_info([self.path(name) for name in record.files])
        if not committed and any(info.type == pa_fs.FileType.NotFound for info in found):
            raise CommitError("another job ended this one, and its files are gone: either they "
                              "were committed and then replaced by a later job, or this job was "
                              f"inactive for {STALE_AFTER} and was rolled back", file=self.folder)
        return all(info.type == pa_fs.FileType.File for info in found)

    def _has_committed_despite(self, error: BaseException, record: CommitRecord) -> bool:
        try:
            return self._has_committed(record)
        except OSError as unknown:
            self._note(error, "it is unknown whether the job committed: check the rows before you "
                              "write again")
            raise error from unknown

    def _complete(self, record: CommitRecord) -> CommitSummary:
        try:
            self.finish(record)
        except Exception as error:
            _log.warning("%s: the new files are visible, but cleaning up failed and is left to "
                         "the next job; until then, other readers may see replaced files: %s",
                         self.folder, error)
        except BaseException as error:
            self._note_committed(error)
            raise
        _log.info("%s: committed %s", self.folder, json.dumps(record.summary))
        return CommitSummary(**record.summary)

    def _note_committed(self, error: BaseException) -> None:
        self._note(error, "the job committed nevertheless, and its rows are visible: do not write "
                          "them again. The next job will clean up")

    def _note(self, error: BaseException, text: str) -> None:
        _log.warning("%s: %s", self.folder, text)
        error.add_note(f"{self.folder}: {text}.")
