"""Erase rows from the files of a folder, distributed over a Spark cluster.

Tasks search files, and write those that have such rows again. The driver commits all of them
together. Attempts that fail or are repeated leave files that nobody sees, which the commit removes.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from secure_bloom.erasing.erasure import Erasure
from secure_bloom.erasing.file import Rewritten, rewrite_for_job
from secure_bloom.erasing.matching import ErasedValues
from secure_bloom.erasing.result import EraseResult
from secure_bloom.erasing.search import Occurrences, find_occurrences
from secure_bloom.errors import ColumnError
from secure_bloom.index.folder import indexed_columns
from secure_bloom.index.planning import IndexUse
from secure_bloom.keys.environment import NO_KEYS
from secure_bloom.keys.keyring import Keyring
from secure_bloom.spark.frames import key_options
from secure_bloom.spark.options.kms import environment_uri, kms_client, kms_uri
from secure_bloom.spark.options.options import Options, locate
from secure_bloom.spark.worker_python import fitting_python
from secure_bloom.storage.commit import Job
from secure_bloom.storage.files import FilePath
from secure_bloom.storage.visibility import parquet_files, table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

_FILES_PER_TASK = 64  # to search


def erase(spark: SparkSession, path: FilePath, column: str, values: object, *,
          keys: Keyring | FilePath | None, dry_run: bool, max_share: float,
          hash_key: bytes | None, index: IndexUse) -> EraseResult:
    """See :func:`secure_bloom.spark.erase`."""
    root = str(path)
    filesystem, folder = locate(root)
    uri = kms_uri(Options(key_options(keys)).with_default_kms(environment_uri()))
    erasure = _SparkErasure(filesystem, folder, ErasedValues(column, values), _client(uri), index)
    erasure.spark, erasure.tasks = spark, _Tasks(root, uri, erasure.erased)
    return erasure.run(dry_run=dry_run, max_share=max_share, hash_key=hash_key,
                       advance=lambda fraction: None)


class _SparkErasure(Erasure):
    """An erasure whose files are searched and written in tasks."""

    spark: SparkSession
    tasks: _Tasks

    def find(self, advance: Callable[[float], None]) -> Occurrences:
        """Find the rows to erase: on the driver if an index tells where to look."""
        if not self.is_folder or self.index == "require" or (
                self.index == "auto" and self.erased.column in indexed_columns(
                    self.filesystem, table_of(self.path))):
            return super().find(advance)
        paths = parquet_files(self.filesystem, self.path)
        parts = [paths[start:start + _FILES_PER_TASK]
                 for start in range(0, len(paths), _FILES_PER_TASK)]
        found = [one for one in _run(self.spark, self.tasks.search, parts) if one is not None]
        if not found:
            raise ColumnError("no file has such a column", column=self.erased.column)
        return reduce(Occurrences.merged, found)

    def rewrite(self, job: Job, found: Occurrences, advance: Callable[[float], None]) \
            -> Iterator[Rewritten]:
        """Write the files without these rows, each in a task."""
        files = [(number, path, set(groups))
                 for number, (path, groups) in enumerate(found.files.items())]
        yield from _run(self.spark, partial(self.tasks.rewrite, job), files)


@dataclass(frozen=True)
class _Tasks:
    """What tasks do. Its pickle contains the values."""

    root: str
    uri: str | None
    erased: ErasedValues

    def search(self, paths: list[str]) -> Occurrences | None:
        """Search some files; None if none of them has the column."""
        try:
            return find_occurrences(paths, self.erased, _client(self.uri), locate(self.root)[0],
                                    "off", lambda fraction: None)
        except ColumnError:
            return None

    def rewrite(self, job: Job, file: tuple[int, str, set[int]]) -> Rewritten:
        """Write a file of the job."""
        number, path, groups = file
        return rewrite_for_job(job, number, path, self.erased, groups, _client(self.uri),
                               lambda fraction: None)


def _run(spark: SparkSession, work: Callable[[Item], Outcome], items: list[Item]) \
        -> list[Outcome]:
    """Return the result of a function for each item, each in a task, in order."""
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            result = pickle.dumps(work(items[number]))
            yield pa.RecordBatch.from_pydict({"number": [number], "result": [result]})

    numbers = spark.range(0, len(items), 1, max(1, len(items)))
    with fitting_python(spark):
        rows = numbers.mapInArrow(run, "number long, result binary").collect()
    return [pickle.loads(row["result"]) for row in sorted(rows)]


def _client(uri: str | None) -> Any:
    return NO_KEYS if uri is None else kms_client(uri)
