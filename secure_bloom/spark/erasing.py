"""Erase rows from the files of a folder, distributed over a Spark cluster.

Tasks search files, and write those that have such rows again. The driver commits all of them
together. Attempts that fail or are repeated leave hidden files, which the commit removes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING

from secure_bloom.erasing.erasure import Erasure
from secure_bloom.erasing.file import FileRewriting, Rewritten
from secure_bloom.erasing.matching import ErasedValues
from secure_bloom.erasing.result import EraseResult
from secure_bloom.erasing.search import Occurrences, find_occurrences
from secure_bloom.erasing.table_indexes import TableIndexes
from secure_bloom.errors import ColumnError
from secure_bloom.index.finding import indexed_columns
from secure_bloom.index.planning import IndexUse
from secure_bloom.keys.keyring import Keyring
from secure_bloom.spark.options.kms import client_or_no_keys, uri_for_tasks
from secure_bloom.spark.options.options import locate
from secure_bloom.spark.tasks import run_tasks
from secure_bloom.storage.commit import Job
from secure_bloom.storage.files import FilePath
from secure_bloom.storage.table_names import table_of
from secure_bloom.storage.versions import FileVersion
from secure_bloom.storage.visibility import parquet_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILES_PER_TASK = 64  # to search


def erase(spark: SparkSession, path: FilePath, column: str, values: object, *,
          keys: Keyring | FilePath | None = None, dry_run: bool = False, max_share: float = 0.01,
          hash_key: bytes | None = None, index: IndexUse = "auto") -> EraseResult:
    """Erase all rows of a folder in which a column has one of some values; verify their absence.

    As :func:`secure_bloom.erase`, but tasks search the files and write those that have such rows
    again, each file in a task; the driver commits. The values are sent to the tasks.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        Classic or Connect.
    path : str or path
        The folder; the driver and all executors must be able to access it.
    column : str
        Dotted path of a leaf column.
    values : scalar, sequence, or Arrow array
        They are compared as by the operator ``in``, see the page "Row filters".
    keys : str, path or Keyring, optional
        The path of a keyring, or the URI of a KMS, which the workers need as well. Of a Keyring,
        only the path is used. Default: as set in the environment of this process.
    dry_run : bool
        Report which files and how many rows would go, without changing anything.
    max_share : float
        Refuse to erase a larger share of all rows; 1 allows any.
    hash_key : bytes, optional
        Key of the hashes that stand for values in the report. Default: a random one.
    index : {"auto", "off", "require"}
        Whether to use the index of the folder; see the page "The index of a table".

    Returns
    -------
    EraseResult

    Raises
    ------
    FileNotFoundError
        If the folder does not exist.
    ColumnError
        If no file has such a column, or it is in the names of folders.
    ValueError
        If there are no values, or more rows would go than ``max_share`` allows.
    UnsupportedError
        If the files belong to a table with a log.
    ChangedMeanwhileError, CommitError
        If other jobs keep changing the files.
    pyspark.errors.PySparkException
        If a task fails. Nothing has been changed then.

    Examples
    --------
    >>> secure_bloom.spark.erase(spark, "/data/people", "ssn", ["078-05-1120"])  # doctest: +SKIP
    """
    tasks = _Tasks(str(path), uri_for_tasks(keys), ErasedValues(column, values))
    return _SparkErasure(spark, tasks, index).run(
        dry_run=dry_run, max_share=max_share, hash_key=hash_key, advance=lambda fraction: None)


class _SparkErasure(Erasure):
    """An erasure whose files are searched and written in tasks."""

    def __init__(self, spark: SparkSession, tasks: _Tasks, index: IndexUse):
        super().__init__(*locate(tasks.root), tasks.erased, client_or_no_keys(tasks.uri), index)
        self._spark, self._tasks = spark, tasks

    def find(self, advance: Callable[[float], None]) -> Occurrences:
        """Find the rows to erase: on the driver if an index tells where to look."""
        if not self.is_folder or self.index == "require" or (
                self.index == "auto" and self.erased.column in indexed_columns(
                    self.filesystem, table_of(self.path))):
            return super().find(advance)
        paths = parquet_files(self.filesystem, self.path)
        parts = [paths[start:start + _FILES_PER_TASK]
                 for start in range(0, len(paths), _FILES_PER_TASK)]
        searched = run_tasks(self._spark, self._with_values().search, parts)
        found = [one for one in searched if one is not None]
        if not found:
            raise ColumnError("no file has such a column", column=self.erased.column)
        merged = reduce(Occurrences.merged, found)
        if any(one.char_lengths != merged.char_lengths for one in found):
            # A task sees only its own files, but values are padded as in any file of the folder.
            self.erased = self.erased.in_char(merged.char_lengths)
            return self.find(advance)
        return merged

    def rewrite(self, job: Job, found: Occurrences, advance: Callable[[float], None]) \
            -> Iterator[Rewritten]:
        """Write the files without these rows, each in a task."""
        files = [(number, path, found.versions[path], set(groups))
                 for number, (path, groups) in enumerate(found.files.items())]
        yield from run_tasks(self._spark,
                             partial(self._with_values().rewrite, job, self.hash_key), files)

    def _with_values(self) -> _Tasks:
        """Return the tasks with what is known about the values by now."""
        return replace(self._tasks, erased=self.erased)


@dataclass(frozen=True)
class _Tasks:
    """What tasks do. Its pickle contains the values."""

    root: str
    uri: str | None
    erased: ErasedValues

    def search(self, paths: list[str]) -> Occurrences | None:
        """Search some files; None if none of them has the column."""
        try:
            return find_occurrences(paths, self.erased, client_or_no_keys(self.uri),
                                    locate(self.root)[0], "off", lambda fraction: None)
        except ColumnError:
            return None

    def rewrite(self, job: Job, hash_key: bytes | None,
                file: tuple[int, str, FileVersion | None, set[int]]) -> Rewritten:
        """Write a file of the job."""
        number, path, searched, groups = file
        keys = client_or_no_keys(self.uri)
        index_keys = TableIndexes(job.filesystem, job.table, keys).keys()
        return FileRewriting(self.erased, keys, hash_key, index_keys=index_keys).for_job(
            job, number, path, searched, groups, lambda fraction: None)
