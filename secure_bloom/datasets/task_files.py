"""The files of one task: rows are buffered by folder and written as row groups.

Memory is bounded, regardless of the number of folders. If all buffered rows together exceed a
limit, the rows of the folder with the most are written and its file is closed. If too many files
are open, the file with the most rows is closed. So input that is sorted by folder produces the
fewest files.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import pyarrow as pa

from secure_bloom.arrow.row_groups import DEFAULT_ROW_GROUP_ROWS, MAX_WAITING_BYTES, WaitingRows
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.master_key_check import MasterKeyCheck
from secure_bloom.policy import NO_POLICY
from secure_bloom.storage.commit import Job
from secure_bloom.storage.files import FileTarget
from secure_bloom.storage.hive_partitioning import null_folder
from secure_bloom.storage.summary import StagedFile
from secure_bloom.writer import ParquetWriter

MAX_OPEN_FILES = 16

#: with mode "error"
HAS_FILES = ('the folder already has files: write to another one, or pass mode="append" to add to '
             "them")


@dataclass
class _Folder:
    """The open file of a folder, if any, and the rows that are buffered for it."""

    name: str
    waiting: WaitingRows
    writer: ParquetWriter | None = None
    path: str = ""
    written_rows: int = 0


class TaskFiles:
    """Writes the rows of a task. A context manager: after an exception, no open file is completed.

    Parameters
    ----------
    job : Job
    partition : int
        Number of the task.
    schema : pyarrow.Schema
        That of the files.
    open_writer : callable
        Opens a file at a path.
    row_group_size : int
        Rows in a row group, at most.
    max_rows_per_file, max_bytes_per_file : int, optional
        When to close a file and start another; the number of bytes is approximate.
    completed : callable, optional
        Called with each file that is complete.
    """

    def __init__(self, job: Job, partition: int, schema: pa.Schema,
                 open_writer: Callable[[str], ParquetWriter], *,
                 row_group_size: int = DEFAULT_ROW_GROUP_ROWS,
                 max_rows_per_file: int | None = None, max_bytes_per_file: int | None = None,
                 completed: Callable[[StagedFile], None] | None = None):
        self._job, self._partition, self._schema = job, partition, schema
        self._open_writer = open_writer
        self._row_group_rows = row_group_size
        self._max_rows, self._max_bytes = max_rows_per_file, max_bytes_per_file
        self._row_group_bytes = min(MAX_WAITING_BYTES, self._max_bytes or MAX_WAITING_BYTES)
        self._folders: dict[str, _Folder] = {}
        self._waiting_bytes = 0
        self._staged: list[StagedFile] = []
        self._completed = completed

    def add(self, folder_name: str, batch: pa.RecordBatch) -> None:
        """Add rows for a folder below the target folder; "" is the target folder itself."""
        folder = self._folders.setdefault(
            folder_name, _Folder(folder_name, WaitingRows(self._schema)))
        while batch.num_rows:
            part = batch.slice(0, self._room(folder))
            batch = batch.slice(part.num_rows)
            self._wait(folder, part)
            if not self._room(folder) or folder.waiting.bytes >= self._row_group_bytes:
                self._write_row_group(folder)
        if not folder.waiting.rows and folder.writer is None:
            del self._folders[folder_name]
        while self._waiting_bytes >= MAX_WAITING_BYTES:
            self._finish(max(self._folders.values(), key=lambda f: f.waiting.bytes))

    def finish(self) -> list[StagedFile]:
        """Write the buffered rows, close all files, and make them durable."""
        for folder in list(self._folders.values()):
            self._finish(folder)
        self._job.sync_written(file.path for file in self._staged)
        return self._staged

    def __enter__(self) -> TaskFiles:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None,
                 traceback: TracebackType | None) -> None:
        for folder in self._folders.values():
            if folder.writer is not None:
                folder.writer.__exit__(exc_type, exc, traceback)

    def _room(self, folder: _Folder) -> int:
        """Return how many more rows fit into the next row group of a folder."""
        room = self._row_group_rows
        if self._max_rows is not None:
            room = min(room, self._max_rows - folder.written_rows)
        return room - folder.waiting.rows

    def _wait(self, folder: _Folder, batch: pa.RecordBatch) -> None:
        self._waiting_bytes -= folder.waiting.bytes
        folder.waiting.add(batch)
        self._waiting_bytes += folder.waiting.bytes

    def _write_row_group(self, folder: _Folder) -> None:
        self._waiting_bytes -= folder.waiting.bytes
        table = folder.waiting.take()
        writer = self._open(folder) if folder.writer is None else folder.writer
        writer.write_table(table, table.num_rows)
        folder.written_rows += table.num_rows
        if folder.written_rows == self._max_rows or (
                self._max_bytes is not None and writer.num_bytes >= self._max_bytes):
            self._close(folder, writer)

    def _open(self, folder: _Folder) -> ParquetWriter:
        open_ = [other for other in self._folders.values() if other.writer is not None]
        if len(open_) >= MAX_OPEN_FILES:
            self._finish(max(open_, key=lambda other: other.written_rows))
        folder.path = self._job.new_file(self._partition, folder.name)
        folder.writer = self._open_writer(folder.path)
        return folder.writer

    def _close(self, folder: _Folder, writer: ParquetWriter) -> None:
        writer.close()
        self._staged.append(self._job.staged(folder.path, folder.written_rows,
                                             writer.filter_totals))
        if self._completed is not None:
            self._completed(self._staged[-1])
        folder.writer, folder.written_rows = None, 0

    def _finish(self, folder: _Folder) -> None:
        if folder.waiting.rows:
            self._write_row_group(folder)
        if folder.writer is not None:
            self._close(folder, folder.writer)
        del self._folders[folder.name]


def write_empty_file(job: Job, partition_by: tuple[str, ...],
                     open_writer: Callable[[str], ParquetWriter]) -> StagedFile:
    """Write a file without rows, for a folder that would otherwise not have a schema."""
    # Partition columns are known only from paths: the null partition adds no value.
    path = job.new_file(0, null_folder(partition_by))
    open_writer(path).close()
    file = job.staged(path, 0)
    job.sync_written([file.path])
    return file


def open_checked(where: FileTarget, schema: pa.Schema, master_keys: MasterKeyCheck | None,
                 client: Callable[[], CachedKms], **arguments: Any) -> ParquetWriter:
    """Open a file of a job; with single wrapping, check that the KMS still has its master keys.

    The file is not durable until :meth:`.JobFolder.sync_written`.

    Parameters
    ----------
    where, schema, **arguments
        As for :class:`ParquetWriter`.
    master_keys : MasterKeyCheck or None
        None: the keys of the file are not wrapped by the KMS.
    client : callable
        Returns the KMS client to check.

    Raises
    ------
    MasterKeyChangedError
        If the KMS has another master key of the same name.
    """
    with ExitStack() as stack:
        writer = stack.enter_context(ParquetWriter(
            where, schema, durable=False, policy=NO_POLICY, **arguments))  # the caller checks it
        if master_keys is not None:  # the keys of the file are wrapped by now
            master_keys.verify(client())
        stack.pop_all()
        return writer
