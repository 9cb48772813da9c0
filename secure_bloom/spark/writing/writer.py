"""The writer: tasks write Arrow batches to files, the driver publishes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import pyarrow as pa
import pyarrow.fs as pa_fs
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from secure_bloom.arrow.encrypted_columns import protection
from secure_bloom.arrow.schema import parquet_leaves
from secure_bloom.datasets.task_files import HAS_FILES, TaskFiles, open_checked, write_empty_file
from secure_bloom.errors import (
    ColumnError,
    CommitError,
    OptionError,
    SecureBloomError,
    error_location,
)
from secure_bloom.index.writing import TaskSegments, WrittenIndexes
from secure_bloom.keys.environment import NO_KEYS
from secure_bloom.keys.retrieval import Keys
from secure_bloom.policy.slips import warn_of_unused_rules
from secure_bloom.policy.writing import check_file_of_folder
from secure_bloom.spark.options.analysed import parse_analysed
from secure_bloom.spark.options.columns import Path
from secure_bloom.spark.options.encryption import keys_by_column
from secure_bloom.spark.options.options import (
    INDEX_COLUMNS,
    PARTITION_BY,
    Options,
    locate,
)
from secure_bloom.spark.options.write import parse_write_options
from secure_bloom.spark.plain_errors import plain_errors
from secure_bloom.spark.schema.nested import without_hidden_nulls
from secure_bloom.spark.schema.sensitivity import mark
from secure_bloom.spark.schema.types import (
    check_partition_types,
    field_metadata,
    file_schema,
    stored_schema,
)
from secure_bloom.spark.writing.receipts import leave
from secure_bloom.storage.batches import Batch
from secure_bloom.storage.commit import Job
from secure_bloom.storage.files import FileTarget
from secure_bloom.storage.hive_partitioning import Partitioner, check_same_columns
from secure_bloom.storage.summary import StagedFile
from secure_bloom.storage.table_names import relative_path
from secure_bloom.storage.versions import without_subtree
from secure_bloom.writer import ParquetWriter


@dataclass
class TaskCommit(WriterCommitMessage):
    """What a task reports: its files; none if it had no rows."""

    files: list[StagedFile]
    index: TaskSegments | None = None


class SecureParquetWriter(DataSourceArrowWriter):
    """Writes one DataFrame to a folder. Created on the driver, then pickled and sent to the tasks.

    It carries the key-encryption keys, so the KMS is called once, and tasks do not need a KMS. With
    single wrapping, tasks use the KMS, and check that its master keys are those of the driver.

    Raises SecureBloomError before any task runs, if there is a problem with the options, the KMS,
    the columns or the folder.
    """

    def __init__(self, options: Options, schema: StructType, overwrite: bool):
        place = locate(options.get("path"))
        self._row_schema = stored_schema(schema)
        path = without_subtree(*place)[1]
        with error_location(file=path):
            analysed = parse_analysed(options)
            metadata = analysed.with_metadata(field_metadata(schema))
            self._options = parse_write_options(options, self._row_schema, metadata, path)
        replaced = self._options.overwrites(path) if overwrite else False
        if self._options.policy is not None:
            warn_of_unused_rules(self._options.policy.for_path(path),
                                 parquet_leaves(self._row_schema), path)
        self._is_new, self._receipt = analysed.is_new, analysed.receipt
        partition_by = self._options.partition_by
        check_partition_types(schema, partition_by)
        in_files = StructType([column for column in schema if column.name not in partition_by])
        self._file_schema = file_schema(mark(in_files, self._own_keys()))
        self.job = Job(*place, replaced)
        self.job.check_folder()
        self._check_new()
        if replaced is not True and not self._is_new:
            _check_partition_columns(self.job, partition_by)
        self._keks = self._options.key_encryption_keys()
        self._master_keys = self._options.master_key_check()
        self._try()
        self._indexes = self._opened_indexes()
        self.job.start()

    @plain_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Write the rows of a task to files that stay hidden until the job commits."""
        if self._indexes is None:
            return TaskCommit(self._write(iterator, self._open_file))
        with self._indexes.task(self.job, self._reading_keys()) as task:
            staged = self._write(iterator, lambda path: task.observe(path, self._open_file(path)),
                                 task.add)
            return TaskCommit(staged, task.finish())

    def _write(self, iterator: Iterator[pa.RecordBatch], open_file: Callable[[str], ParquetWriter],
               completed: Callable[[StagedFile], None] | None = None) -> list[StagedFile]:
        partitioner = Partitioner(self._options.partition_by)
        with TaskFiles(self.job, task_context().partitionId(), self._file_schema, open_file,
                       row_group_size=self._options.row_group_size,
                       max_rows_per_file=self._options.max_rows_per_file,
                       max_bytes_per_file=self._options.max_bytes_per_file,
                       completed=completed) as files:
            for batch in iterator:
                for folder, part in partitioner.split(self._cast(batch)):
                    files.add(folder, part)
            return files.finish()

    @plain_errors()
    def commit(self, messages: Sequence[WriterCommitMessage | None],
               batch: Batch | None = None) -> None:
        """Publish the files of the tasks; if there are none, one file that holds the schema."""
        reports = cast("list[TaskCommit | None]", messages)  # what ``write`` returned in the tasks
        files = [file for report in reports if report is not None for file in report.files]
        if not files and not self.job.remaining_files():
            files = [write_empty_file(self.job, self._options.partition_by, self._open_file)]
        self._check_new()
        committed = self.job.commit(files, batch)
        if committed is None:
            return
        indexed = [] if self._indexes is None else self._indexes.publish(
            self.job, [report.index for report in reports
                       if report is not None and report.index is not None],
            self._options.index_client())
        if self._receipt is not None:
            encrypted, others = protection(self._options.encryption,
                                           parquet_leaves(self._file_schema))
            leave(self._receipt, replace(committed, encrypted_columns=encrypted,
                                         open_columns=others, indexed_columns=indexed))

    @plain_errors()
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove the files that the tasks have written so far."""
        self.job.abort()

    def _check_new(self) -> None:
        if self._is_new and self.job.visible_files():
            raise CommitError(HAS_FILES, file=self.job.folder)

    def _opened_indexes(self) -> WrittenIndexes | None:
        try:
            return WrittenIndexes.of(self.job, self._options.index_columns,
                                     self._options.index_client())
        except ColumnError as error:
            raise OptionError(error.message, option=INDEX_COLUMNS, column=error.column,
                              file=error.file) from None

    def _own_keys(self) -> dict[Path, set[str]]:
        """Return the master keys of leaf columns, for files without rows, which have no chunks."""
        keys = keys_by_column(self._options.encryption)
        return {leaf.parts: {keys[leaf.path]} for leaf in parquet_leaves(self._row_schema)
                if leaf.path in keys}

    def _reading_keys(self) -> Keys:
        """Return the keys with which a task reads what it has written."""
        if self._options.encryption is None:
            return NO_KEYS
        return self._options.kms_client() if self._keks is None else self._keks

    def _try(self) -> None:
        """Write a file without rows to memory, so that pyarrow checks the options."""
        try:
            with self._open(pa.BufferOutputStream()) as writer:
                writer.write_table(self._file_schema.empty_table())
        except SecureBloomError:
            raise
        except (pa.ArrowException, ValueError, OSError) as error:
            raise OptionError("pyarrow rejects these options for these columns: "
                              f"{error}") from error

    def _cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        # Timestamps arrive in the session's time zone, text and binary possibly as large variants.
        batch = without_hidden_nulls(batch)
        return batch if batch.schema.equals(self._row_schema) else batch.cast(self._row_schema)

    def _open_file(self, path: str) -> ParquetWriter:
        self._check_path(path)
        return self._open(path, self.job.filesystem)

    def _check_path(self, path: str) -> None:
        """Check a file by the rules of the policy that are for some files of the folder only."""
        policy = self._options.policy
        if policy is None:
            return
        name = relative_path(path, self.job.work)
        folder, path = (without_subtree(self.job.filesystem, where)[1]
                        for where in (self.job.folder, self.job.path(name)))
        check_file_of_folder(policy, folder, path, self._options.partition_by,
                             self._options.encryption, parquet_leaves(self._file_schema))

    def _open(self, where: FileTarget,
              filesystem: pa_fs.FileSystem | None = None) -> ParquetWriter:
        return open_checked(where, self._file_schema, self._master_keys, self._options.kms_client,
                            filesystem=filesystem,
                            **self._options.writer_arguments(self._keks))


def task_context() -> TaskContext:
    """Return the context of the task in which this runs."""
    context = TaskContext.get()
    assert context is not None
    return context


def _check_partition_columns(job: Job, partition_by: tuple[str, ...]) -> None:
    try:
        check_same_columns(job.visible_files(), job.folder, partition_by)
    except ColumnError as error:
        raise OptionError(error.message, option=PARTITION_BY, file=error.file) from None
