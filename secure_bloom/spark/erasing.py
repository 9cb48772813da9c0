"""Erase rows from the files of a folder, distributed over a Spark cluster.

Tasks search files, and write those that have such rows again. The driver commits all of them
together. Attempts that fail or are repeated leave hidden files, which the commit removes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

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
from secure_bloom.spark.tasks import run_tasks
from secure_bloom.storage.commit import Job
from secure_bloom.storage.files import FilePath
from secure_bloom.storage.visibility import parquet_files, table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILES_PER_TASK = 64  # to search


def erase(spark: SparkSession, path: FilePath, column: str, values: object, *,
          keys: Keyring | FilePath | None, dry_run: bool, max_share: float,
          hash_key: bytes | None, index: IndexUse) -> EraseResult:
    """See :func:`secure_bloom.spark.erase`."""
    uri = kms_uri(Options(key_options(keys)).with_default_kms(environment_uri()))
    tasks = _Tasks(str(path), uri, ErasedValues(column, values))
    return _SparkErasure(spark, tasks, index).run(
        dry_run=dry_run, max_share=max_share, hash_key=hash_key, advance=lambda fraction: None)


class _SparkErasure(Erasure):
    """An erasure whose files are searched and written in tasks."""

    def __init__(self, spark: SparkSession, tasks: _Tasks, index: IndexUse):
        super().__init__(*locate(tasks.root), tasks.erased, _client(tasks.uri), index)
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
        files = [(number, path, set(groups))
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
            return find_occurrences(paths, self.erased, _client(self.uri), locate(self.root)[0],
                                    "off", lambda fraction: None)
        except ColumnError:
            return None

    def rewrite(self, job: Job, hash_key: bytes | None, file: tuple[int, str, set[int]]) \
            -> Rewritten:
        """Write a file of the job."""
        number, path, groups = file
        return rewrite_for_job(job, number, path, self.erased, groups, _client(self.uri),
                               lambda fraction: None, hash_key)


def _client(uri: str | None) -> Any:
    return NO_KEYS if uri is None else kms_client(uri)
