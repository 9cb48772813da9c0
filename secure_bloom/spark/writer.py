"""Writing: tasks turn Arrow batches into files, the driver publishes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from secure_bloom.convert import row_groups
from secure_bloom.spark.commit import Batch, Job, StagedFile
from secure_bloom.spark.nested import without_hidden_nulls
from secure_bloom.spark.options import locate, parse_write_options
from secure_bloom.spark.schema import file_schema
from secure_bloom.writer import ParquetWriter

_MAX_ROW_GROUP_BYTES = 128 * 1024 * 1024  # of Arrow data: bounds the memory of a task


@dataclass
class TaskCommit(WriterCommitMessage):
    """What a task reports: its file, or None if it had no rows."""

    file: StagedFile | None


class SecureParquetWriter(DataSourceArrowWriter):
    """Writes one DataFrame into a folder. Made on the driver, then pickled to the tasks.

    Parameters
    ----------
    options : mapping of str to str
    schema : pyspark.sql.types.StructType
    overwrite : bool

    Raises
    ------
    SecureBloomError
        If anything is wrong with the options, the keyring, the columns or the folder, before any
        task runs.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool):
        self._schema = file_schema(schema)
        self._options = parse_write_options(options, self._schema)
        self.job = Job(*locate(options), overwrite)
        self.job.check_folder()
        # A file without rows, to memory: opens the keyring and finds what pyarrow would refuse.
        self._open(pa.BufferOutputStream()).close()
        self.job.start()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Write the rows of a task to a file that the job hides."""
        tables = row_groups(map(self._cast, iterator), self._schema, self._options.row_group_size,
                            _MAX_ROW_GROUP_BYTES)
        first = next(tables, None)
        if first is None:
            return TaskCommit(None)
        return TaskCommit(self._write_file(TaskContext.get().partitionId(), first, tables))

    def commit(self, messages: list[TaskCommit | None], batch: Batch | None = None) -> None:
        """Publish the files of the tasks; without any, one file that holds the schema."""
        files = [message.file for message in messages if message is not None and message.file]
        if not files and (self.job.overwrite or not self.job.visible_files()):
            files = [self._write_file(0, self._schema.empty_table())]
        self.job.commit(files, batch)

    def abort(self, messages: list[TaskCommit | None]) -> None:
        """Remove what the tasks have written so far."""
        self.job.abort()

    def _cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        # Timestamps come in the zone of the session, text and binary perhaps as large variants.
        batch = without_hidden_nulls(batch)
        return batch if batch.schema.equals(self._schema) else batch.cast(self._schema)

    def _write_file(self, partition: int, first: pa.Table,
                    others: Iterable[pa.Table] = ()) -> StagedFile:
        path = self.job.new_file(partition)
        rows = 0
        with self._open(path, filesystem=self.job.filesystem) as writer:
            for table in chain([first], others):
                writer.write_table(table, max(table.num_rows, 1))
                rows += table.num_rows
        return self.job.staged(path, rows, writer.filter_totals)

    def _open(self, where, **place) -> ParquetWriter:
        return ParquetWriter(where, self._schema, **place, **self._options.writer_arguments())
