"""Structured Streaming: each batch of a query is a job, and is committed once.

A batch is identified by the id of its query, which Spark keeps in the checkpoint, and its number.
Spark passes the number to the commit, but the id only to the tasks, so they report it. The location
of the checkpoint would not be sufficient: if the checkpoint is deleted, the numbers start again,
and rows would be lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from secure_bloom.errors import CommitError, UnsupportedError
from secure_bloom.spark.options.options import OVERWRITE_MODE, PARTITION_BY, Options
from secure_bloom.spark.plain_errors import plain_errors
from secure_bloom.spark.writing.writer import SecureParquetWriter, TaskCommit, task_context
from secure_bloom.storage.batches import Batch
from secure_bloom.storage.commit import Job

_QUERY_ID = "sql.streaming.queryId"
_SPARK_OPTIONS = ("checkpointlocation", "queryname")  # Spark's own, but passed to data sources too


@dataclass
class StreamTaskCommit(WriterCommitMessage):
    """What a task of a batch reports, and which job and query it belongs to."""

    task: TaskCommit
    job: str
    query: str


class SecureParquetStreamWriter(DataSourceStreamArrowWriter):
    """Writes one batch of a streaming query.

    Spark creates one writer on the driver for the tasks, and another for the commit. The options
    are those of a batch write. With ``overwrite``, a batch replaces the existing files, as in
    output mode ``complete``.
    """

    def __init__(self, options: Options, schema: StructType, overwrite: bool):
        options = Options({OVERWRITE_MODE: "static", **options.without(_SPARK_OPTIONS)})
        if overwrite and PARTITION_BY in options \
                and options.text(OVERWRITE_MODE).lower() == "dynamic":
            raise UnsupportedError("output mode complete replaces the whole folder: set option "
                                   "partitionOverwriteMode to static", file=options.get("path"))
        self._writer = SecureParquetWriter(options, schema, overwrite)

    @plain_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StreamTaskCommit:
        """Write the rows of a task to files that stay hidden until the job commits."""
        query = task_context().getLocalProperty(_QUERY_ID)
        if not query:
            raise CommitError(f"Spark does not identify the query ({_QUERY_ID} is not set), "
                              "so a batch could be written twice")
        return StreamTaskCommit(self._writer.write(iterator), self._writer.job.id, query)

    @plain_errors()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Publish the files of the tasks, unless this batch has already been published.

        Raises UnsupportedError if tasks have not reported, as with a continuous trigger: Spark
        then commits an epoch without waiting for its rows, and never sends them to be committed.
        Without partitions, Spark also reports None, but only once.
        """
        if len(messages) > 1 and None in messages:
            raise UnsupportedError("Spark commits a batch whose tasks have not reported their "
                                   "rows, so these would be lost. A continuous trigger is not "
                                   "supported: use trigger(processingTime=...) or "
                                   "trigger(availableNow=True)", file=self._writer.job.folder)
        reports = self._take_job(messages)
        batch = Batch(reports[0].query, batchId) if reports else None
        self._writer.commit([report.task for report in reports], batch)

    @plain_errors()
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Remove the files that the tasks have written so far."""
        self._take_job(messages)
        self._writer.abort([])

    def _take_job(self, messages: Sequence[WriterCommitMessage | None]) -> list[StreamTaskCommit]:
        """Switch to the tasks' job, and discard the job that this writer has started."""
        reports = cast("list[StreamTaskCommit]",  # what ``write`` returned in the tasks
                       [message for message in messages if message is not None])
        if reports:
            own = self._writer.job
            own.abort()
            self._writer.job = Job(own.filesystem, own.folder, own.overwrite, reports[0].job)
        return reports
