"""Structured Streaming: a folder is read in batches of files that no batch had before.

The driver keeps a log of the files of each batch, see :mod:`.seen_files`; tasks read files as those
of other queries do. Spark 4.2 and later say how much a batch may have, and what is available to
``trigger(availableNow=True)``. Spark 4.0 and 4.1 only ask for the next position.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pyarrow.fs as pa_fs
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from secure_bloom.errors import ChangedMeanwhileError, OptionError, UnsupportedError
from secure_bloom.spark.options.options import CHECKPOINT, FORMAT, locate
from secure_bloom.spark.plain_errors import plain_errors
from secure_bloom.spark.reading.folder import Folder, Listing
from secure_bloom.spark.reading.metrics import TaskReport, logger
from secure_bloom.spark.reading.reader import SecureParquetReader
from secure_bloom.spark.reading.seen_files import MAX_FILES, Position, SeenFiles, identity
from secure_bloom.spark.reading.splits import DataFile, FileRange
from secure_bloom.storage.table_names import job_of, relative_path

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # before Spark 4.2
        SupportsTriggerAvailableNow = object

Offset = dict[str, Any]
_TRIES = 10  # to open a file that is replaced again and again


class _Files:
    """The visible files of a folder now, by their identities."""

    def __init__(self, folder: Folder):
        self.listing = folder.list()
        self.by_identity: dict[bytes, DataFile] = {}
        for file in self.listing.files:
            other = self.by_identity.setdefault(identity(_name(folder, file)), file)
            if other is not file:
                raise UnsupportedError(
                    "by its name it is another version of a file that is also there, "
                    f"{posixpath.basename(other.path)}. So one of them is a copy, or was written "
                    "under the name of a file that was replaced: give it a name of its own, or "
                    "remove it", file=file.path)


class BatchReader(SecureParquetReader):
    """Reads the files of batches. What is read is the version that is there at that time."""

    def plan(self, files: _Files, batch: list[DataFile]) -> list[InputPartition]:
        """Plan what each task reads of a batch."""
        return self._tasks(Listing(tuple(batch), files.listing.partition_columns)) if batch else []

    def _read_range(self, part: FileRange, places: dict[str, int],
                    report: TaskReport) -> Iterator[pa.RecordBatch]:
        current: FileRange | None = part
        for attempt in range(_TRIES):
            if current is None:
                return
            batches = super()._read_range(current, places, report)
            try:
                first = next(batches, None)
                break
            except ChangedMeanwhileError:
                if attempt == _TRIES - 1:
                    raise
                current = self._renewed(current)
        if first is not None:
            yield first
            yield from batches

    def _renewed(self, part: FileRange) -> FileRange | None:
        """Return the current version of a file of which nothing was read yet; None if it is gone.

        A part of a file cannot be read from another version: its row groups may be others.
        """
        file = self._folder.listed_again(part.file) \
            or _Files(self._folder).by_identity.get(identity(_name(self._folder, part.file)))
        if file is None:
            self.miss(part.file.path)
            return None
        if part.start or part.end < part.file.size:
            raise ChangedMeanwhileError("the file was changed since the batch was planned, and is "
                                        "read by several tasks; start the query again, which "
                                        "repeats the batch", file=part.file.path)
        return FileRange(file, 0, file.size)

    def miss(self, path: str) -> None:
        """Note that a file is gone; raise ChangedMeanwhileError unless that is allowed."""
        if not self._folder.options.ignore_missing:
            raise ChangedMeanwhileError(
                "the file was removed before the query had read it, so its rows are lost to the "
                "query: put it back, or set option ignoreMissingFiles to true", file=path)
        logger.warning("%s: the file was removed before the query had read it", path)


class SecureParquetStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a folder as a stream.

    ``checkpoint`` is the folder in which the log of files is kept; empty: no folder is known.
    """

    def __init__(self, reader: BatchReader, folder: Folder, checkpoint: str):
        self._reader, self._folder = reader, folder
        self._position = Position()
        self._available: frozenset[bytes] | None = None
        self._planned: tuple[Position, Position, _Files, list[DataFile]] | None = None
        self._log: SeenFiles | None = None
        self._checkpoint = checkpoint

    @plain_errors()
    def initialOffset(self) -> Offset:
        """Return the position before all files."""
        self._seen_files()
        if self._folder.filesystem.get_file_info(self._folder.path).type == pa_fs.FileType.File:
            raise UnsupportedError("a stream reads a folder, and this is a file",
                                   file=self._folder.path)
        return Position().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how many files a batch may have."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles
        most = self._folder.options.max_files
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    @plain_errors()
    def prepareForTriggerAvailableNow(self) -> None:
        """Note which files are there now."""
        self._available = frozenset(_Files(self._folder).by_identity)

    @plain_errors()
    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        """Return the position after the next batch; the same one if there are no new files."""
        position = self._position if start is None else Position.from_json(start)
        most = self._folder.options.max_files if limit is None else \
            getattr(limit, "max_files", None)
        files, log = _Files(self._folder), self._seen_files()
        batch = self._new(files, log.seen(position))[:min(most or MAX_FILES, MAX_FILES)]
        if not batch:
            return position.to_json()
        self._position = log.add(position, [_name(self._folder, file) for file in batch],
                                 files.by_identity)
        self._planned = position, self._position, files, batch
        return self._position.to_json()

    @plain_errors()
    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Plan what each task of a batch reads. Spark 4.0 also tells the last position like this.
        """
        self._position = last = Position.from_json(end)
        first = Position.from_json(start)
        if first == last:
            return []
        if self._planned is None or self._planned[:2] != (first, last):
            files = _Files(self._folder)
            self._planned = first, last, files, self._found(files, first, last)
        return self._reader.plan(*self._planned[2:])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        return self._reader.read(partition)

    def _seen_files(self) -> SeenFiles:
        if self._log is None:
            if not self._checkpoint:
                raise OptionError("Spark does not say where the checkpoint of the query is: set "
                                  "this option of readStream, too, to a folder that only this "
                                  "query uses", option="checkpointLocation")
            filesystem, path = locate(self._checkpoint, CHECKPOINT)
            self._log = SeenFiles(filesystem, posixpath.join(path, FORMAT))
        return self._log

    def _new(self, files: _Files, seen: Mapping[bytes, int]) -> list[DataFile]:
        """Return the files that no batch had, in order of their commits.

        The files of a commit belong together, and their times tell about when it was.
        """
        new = [file for one, file in files.by_identity.items()
               if one not in seen and (self._available is None or one in self._available)]
        commits: dict[str, int] = {}
        for file in new:
            commits[_commit(file)] = max(commits.get(_commit(file), -1), _arrival(file))
        return sorted(new, key=lambda file: (commits[_commit(file)], _commit(file), file.path))

    def _found(self, files: _Files, start: Position, end: Position) -> list[DataFile]:
        found = []
        for name in self._seen_files().between(start, end):
            file = files.by_identity.get(identity(name))
            if file is None:
                self._reader.miss(posixpath.join(self._folder.path, name))
            else:
                found.append(file)
        return found


class FailingStreamReader(DataSourceStreamReader):
    """Raises an error. Spark hides those of ``streamReader`` behind its own."""

    def __init__(self, error: Exception):
        self._error = error

    @plain_errors()
    def _raise(self, *_: object, **__: object) -> NoReturn:
        raise self._error

    # Spark calls first: without a checkpoint, with one, and if a batch is to be repeated.
    initialOffset = latestOffset = partitions = read = _raise


def _name(folder: Folder, file: DataFile) -> str:
    return relative_path(file.path, folder.path)


def _commit(file: DataFile) -> str:
    return job_of(file.path) or file.path


def _arrival(file: DataFile) -> int:
    """Return about when a file got its name, in ns: a job renames its files when it commits."""
    renamed = file.tag.partition("-")[2]
    return int(renamed, 16) if renamed else file.mtime_ns or 0
