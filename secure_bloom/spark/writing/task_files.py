"""The files of one task: rows are buffered by folder and written as row groups.

Memory is bounded, regardless of the number of folders. If all buffered rows together exceed a
limit, the rows of the folder with the most are written and its file is closed. If too many files
are open, the file with the most rows is closed. So input that is sorted by folder produces the
fewest files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

import pyarrow as pa

from secure_bloom.spark.options.write import WriteOptions
from secure_bloom.storage.commit import Job
from secure_bloom.storage.summary import StagedFile
from secure_bloom.writer import ParquetWriter

MAX_WAITING_BYTES = 128 * 1024 * 1024  # of Arrow data, in all folders together
MAX_OPEN_FILES = 16
_BYTES_PER_COLUMN = 256  # overhead of the arrays of a small batch, in addition to their values
_MANY_BATCHES = 8
_FEW_ROWS = 8 * 500  # in that many batches together


@dataclass
class _Folder:
    """The open file of a folder, if any, and the rows that are buffered for it."""

    name: str
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_rows: int = 0
    waiting_bytes: int = 0
    merged: int = 0  # how many of the waiting batches have been checked, and are not merged again
    writer: ParquetWriter | None = None
    path: str = ""
    written_rows: int = 0


class TaskFiles:
    """Writes the rows of a task. A context manager: after an exception, no open file is completed.

    ``partition`` is the task's number, ``schema`` that of the files; ``open_writer`` opens a file
    at a path.
    """

    def __init__(self, job: Job, partition: int, schema: pa.Schema, options: WriteOptions,
                 open_writer: Callable[[str], ParquetWriter]):
        self._job, self._partition, self._schema = job, partition, schema
        self._open_writer = open_writer
        self._row_group_rows = options.row_group_size
        self._max_rows, self._max_bytes = options.max_rows_per_file, options.max_bytes_per_file
        self._row_group_bytes = min(MAX_WAITING_BYTES, self._max_bytes or MAX_WAITING_BYTES)
        self._folders: dict[str, _Folder] = {}
        self._waiting_bytes = 0
        self._staged: list[StagedFile] = []

    def add(self, folder_name: str, batch: pa.RecordBatch) -> None:
        """Add rows for a folder below the target folder; "" is the target folder itself."""
        folder = self._folders.setdefault(folder_name, _Folder(folder_name))
        while batch.num_rows:
            part = batch.slice(0, self._room(folder))
            batch = batch.slice(part.num_rows)
            self._wait(folder, part)
            if not self._room(folder) or folder.waiting_bytes >= self._row_group_bytes:
                self._write_row_group(folder)
        if not folder.waiting and folder.writer is None:
            del self._folders[folder_name]
        while self._waiting_bytes >= MAX_WAITING_BYTES:
            self._finish(max(self._folders.values(), key=lambda f: f.waiting_bytes))

    def finish(self) -> list[StagedFile]:
        """Write the buffered rows, and close all files."""
        for folder in list(self._folders.values()):
            self._finish(folder)
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
        return room - folder.waiting_rows

    def _wait(self, folder: _Folder, batch: pa.RecordBatch) -> None:
        folder.waiting.append(batch)
        folder.waiting_rows += batch.num_rows
        self._count(folder, _size(batch))
        tail = folder.waiting[folder.merged:]
        if len(tail) == _MANY_BATCHES:
            if sum(part.num_rows for part in tail) < _FEW_ROWS:
                folder.waiting[folder.merged:] = [pa.concat_batches(tail)]
                self._count(folder, _size(folder.waiting[-1]) - sum(map(_size, tail)))
            folder.merged = len(folder.waiting)

    def _count(self, folder: _Folder, size: int) -> None:
        folder.waiting_bytes += size
        self._waiting_bytes += size

    def _write_row_group(self, folder: _Folder) -> None:
        table = pa.Table.from_batches(folder.waiting, self._schema)
        self._count(folder, -folder.waiting_bytes)
        folder.waiting, folder.waiting_rows, folder.merged = [], 0, 0
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
        folder.writer, folder.written_rows = None, 0

    def _finish(self, folder: _Folder) -> None:
        if folder.waiting:
            self._write_row_group(folder)
        if folder.writer is not None:
            self._close(folder, folder.writer)
        del self._folders[folder.name]


def _size(batch: pa.RecordBatch) -> int:
    return batch.nbytes + _BYTES_PER_COLUMN * batch.num_columns
