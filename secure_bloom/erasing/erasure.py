"""The steps of an erasure: find the rows, erase them, verify that they are gone."""

from __future__ import annotations

import hmac
import random
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, TypeVar

import pyarrow.fs as pa_fs

from secure_bloom.datasets.dataset_file import new_footers
from secure_bloom.display import count, names
from secure_bloom.erasing.file import FileRewriting, Rewritten
from secure_bloom.erasing.leftover_search import LeftoverSearch
from secure_bloom.erasing.leftovers import RemovedValues
from secure_bloom.erasing.matching import ErasedValues
from secure_bloom.erasing.out_of_reach import names_of_folders, unpublished
from secure_bloom.erasing.result import Absence, ErasedFile, ErasedValue, EraseResult
from secure_bloom.erasing.search import Occurrences, find_occurrences, only_in_dictionaries
from secure_bloom.erasing.summaries import Summaries, find_summaries, remove_summaries
from secure_bloom.erasing.table_indexes import TableIndexes
from secure_bloom.errors import ChangedMeanwhileError, UnsupportedError
from secure_bloom.index.finding import index_folders
from secure_bloom.index.planning import IndexUse
from secure_bloom.keys.retrieval import Keys
from secure_bloom.maintain.tables import table_of_files
from secure_bloom.policy.requirement import Requirement
from secure_bloom.storage.commit import Job
from secure_bloom.storage.inside import leads_out, table_above
from secure_bloom.storage.leftovers import remove_leftovers_of
from secure_bloom.storage.local_files import remove_checksum
from secure_bloom.storage.table_names import STAGING, relative_path, table_of
from secure_bloom.storage.threads import in_order
from secure_bloom.storage.visibility import files_below, parquet_files

Result = TypeVar("Result")

_TRIES = 5  # after other jobs have changed files meanwhile
_MAX_PAUSE = 0.2  # seconds
MAX_SHARE = 0.01  #: of all rows that may go, by default
_MIN_HASH_KEY = 16  # bytes
_AHEAD = 4  # queued files per thread

_STATEMENTS = {
    # Delta's log would keep the values in the condition of a DELETE.
    "Delta Lake": "MERGE INTO delta.`{folder}` t USING erased e ON t.{column} = e.{column} WHEN "
                  "MATCHED THEN DELETE, then REORG TABLE ... APPLY (PURGE) and VACUUM",
    "Iceberg": "DELETE FROM its table WHERE {column} IN (...), then CALL "
               "system.rewrite_data_files(table => ..., options => map('delete-file-threshold', "
               "'1')) and system.expire_snapshots",
    "Hudi": "DELETE FROM its table WHERE {column} IN (...), then the procedure run_clean",
    "Spark Structured Streaming": "stop the query, and write the folder again without these rows",
}
_OUT_OF_REACH = ("copies, backups, snapshots of disks, and older versions of objects that a bucket "
                 "keeps")


class Erasure:
    """The steps of an erasure, on this machine.

    Parameters
    ----------
    filesystem, path
        A file or a folder.
    erased : ErasedValues
    keys, index, files_at_once
        As for :func:`secure_bloom.erase`.
    requirement : Requirement, optional
        What the files must meet.

    Raises UnsupportedError if the files belong to a table with a log.
    """

    def __init__(self, filesystem: pa_fs.FileSystem, path: str, erased: ErasedValues, keys: Keys,
                 index: IndexUse, files_at_once: int = 1,
                 requirement: Requirement | None = None):
        self.filesystem, self.path, self.erased = filesystem, path, erased
        self.keys, self.index, self.files_at_once = keys, index, files_at_once
        self._requirement = requirement
        _check_no_table(filesystem, path, erased.column)
        self.hash_key: bytes | None = None
        # Without a requirement, which is checked whenever a file is opened.
        self._footers = new_footers() if requirement is None else None
        self.is_folder = filesystem.get_file_info(path).type == pa_fs.FileType.Directory
        table = table_of(path) if self.is_folder else table_above(filesystem, path)
        self._indexes = TableIndexes(filesystem, table, self.keys)

    def run(self, *, dry_run: bool, max_share: float, hash_key: bytes | None,
            advance: Callable[[float], None]) -> EraseResult:
        """Find the rows, erase them, and verify that they are gone.

        Parameters and errors are those of :func:`secure_bloom.erase`.
        """
        summaries = Summaries([], [])  # also those that were removed before a step was repeated

        def find_and_change() -> tuple[EraseResult, RemovedValues]:
            found = self.find(lambda done: advance(done / 4))
            self.erased = self.erased.in_char(found.char_lengths)
            _check_share(found, max_share)
            removed = leftovers.removed(self.erased, found)
            leftovers.add_to(found, removed)
            result = self._report(found, dry_run)
            if dry_run:
                result.summaries, left = find_summaries(self.filesystem, self.path)
                result.out_of_reach += left
                result.out_of_reach += self._unsearched(found)
                result.out_of_reach += self._beside(result.files)
            else:
                result.files = self._change(found, summaries,
                                            lambda done: advance(1 / 4 + done / 2))
                result.summaries = summaries.paths
                result.out_of_reach += dict.fromkeys(summaries.left)
            return result, removed

        def verify() -> Occurrences:
            found = self.find(lambda done: advance(3 / 4 + done / 4))
            leftovers.add_to(found, removed)
            return found

        if hash_key is not None and len(hash_key) < _MIN_HASH_KEY:
            raise ValueError(f"the key of the hashes has {len(hash_key)} bytes, but needs at least "
                             f"{_MIN_HASH_KEY}: make one with openssl rand 32")
        self.hash_key = hash_key
        leftovers = LeftoverSearch(self.filesystem, self.path, self.keys, self.files_at_once)
        result, removed = _unless_changed(find_and_change)
        if dry_run:
            return result
        result.out_of_reach += [f"{one.file} has other names (links), which keep the rows"
                                for one in result.files if one.has_other_names]
        result.out_of_reach += [
            f"{one.new_file} uses AES_GCM_CTR_V1 and keeps its data keys: anyone who has a copy of "
            "the old file can put its pages back, without a key"
            for one in result.files if one.accepts_old_pages]
        if not result.files:
            for one in self._indexes_below:
                one.note([])
        result.indexes = list(dict.fromkeys(
            column for one in (self._indexes, *self._indexes_below)
            for column in one.purge(result.out_of_reach)))
        left = _unless_changed(verify)
        result.absence = Absence(left.found_rows, left.report.files, left.report.row_groups,
                                 left.num_dictionaries, left.found_dictionaries)
        result.out_of_reach += self._unsearched(left)
        result.out_of_reach += self._beside(result.files)
        return result

    @cached_property
    def _indexes_below(self) -> list[TableIndexes]:
        """The indexes of tables in subfolders, whose files are erased from, too."""
        if not self.is_folder:
            return []
        table = table_of(self.path)
        found = {one.table for one in index_folders(self.filesystem, self.path,
                                                    files_below(self.filesystem, self.path))}
        return [TableIndexes(self.filesystem, one, self.keys) for one in sorted(found - {table})
                if not leads_out(self.filesystem, table, [relative_path(one, table)])]

    def _distrust_below(self) -> None:
        """Make lookups there list the files: the job changes only the generation of its own table.

        Before files change and after, as for a single file.
        """
        for one in self._indexes_below:
            one.distrust()

    def find(self, advance: Callable[[float], None]) -> Occurrences:
        """Find the rows to erase."""
        return find_occurrences(self.path, self.erased, self.keys, self.filesystem,
                                self.index, advance, self._requirement, self._footers)

    def _unsearched(self, found: Occurrences) -> list[str]:
        """Return what is said of metadata that may have the values."""
        if not found.metadata:
            return []
        values = {str(value) for value in self.erased.values}
        shown = [name for name in sorted(found.metadata)
                 if not any(value in name for value in values)]
        named = names(shown, 10) if shown else "its names contain such values"
        return ["key-value metadata, which is kept and cannot be searched, in up to "
                f"{count(max(found.metadata.values()), 'file')}: {named}"]

    def _beside(self, files: list[ErasedFile]) -> list[str]:
        """Return what is said of a folder besides its visible files."""
        if not self.is_folder:
            return []
        return [*unpublished(self.filesystem, self.path),
                *names_of_folders(self.filesystem, self.path, self.erased, files)]

    def _change(self, found: Occurrences, summaries: Summaries,
                advance: Callable[[float], None]) -> list[ErasedFile]:
        """Replace the files that have such rows; return what became of them.

        Summary files are removed before the new files become visible: also if there is nothing to
        replace, since they may have the values of files that were replaced by others.
        """
        def remove() -> None:
            removed = remove_summaries(self.filesystem, self.path)
            summaries.paths.extend(removed.paths)
            summaries.left.extend(removed.left)

        self._indexes.note([None] if found.files else [])  # until the job has committed
        if self.filesystem.type_name == "local":  # what was killed may have left rows, too
            remove_leftovers_of(self.filesystem, self.path,
                                parquet_files(self.filesystem, self.path))
        if not self.is_folder:
            remove()
            if not found.files:
                return []
            self._indexes.distrust()  # in case this process is killed while it changes files
            rewriting = FileRewriting(self.erased, self.keys, self.hash_key, self._requirement)
            files = [rewriting.in_place(self.filesystem, path, found.versions[path], set(groups),
                                        advance)
                     for path, groups in found.files.items()]
            self._indexes.distrust()  # another process may have updated them meanwhile
            return files
        job = Job(self.filesystem, self.path, False)
        if not found.files and not job.exists(f"{job.table}/{STAGING}"):
            remove()
            return []
        job.start(is_of_process=True)  # also finishes what an erasure that was killed has left
        if not found.files:
            job.abort()
            remove()
            return []
        self._distrust_below()
        try:
            rewritten = list(self.rewrite(job, found, advance))
            for one in rewritten if self.filesystem.type_name == "local" else ():
                remove_checksum(one.file.file)
            remove()
        except BaseException:
            job.abort()
            raise
        job.commit([one.staged for one in rewritten],
                   replaced={one.file.file: one.replaced for one in rewritten})
        self._distrust_below()
        self._indexes.note(one.change for one in rewritten)
        return [one.file for one in rewritten]

    def rewrite(self, job: Job, found: Occurrences, advance: Callable[[float], None]) \
            -> Iterator[Rewritten]:
        """Write the files without these rows; none of them is visible before the job commits."""
        done = [0.0] * len(found.files)
        rewriting = FileRewriting(self.erased, self.keys, self.hash_key, self._requirement,
                                  self._indexes.keys())

        def rewrite(item: tuple[int, tuple[str, Iterable[int]]]) -> Rewritten:
            number, (path, groups) = item

            def tell(fraction: float) -> None:
                done[number] = fraction
                advance(sum(done) / len(done))
            return rewriting.for_job(job, number, path, found.versions[path], set(groups), tell)

        with ThreadPoolExecutor(self.files_at_once) as pool:
            yield from in_order(pool, rewrite, enumerate(found.files.items()),
                                _AHEAD * self.files_at_once)

    def _report(self, found: Occurrences, dry_run: bool) -> EraseResult:
        key = secrets.token_bytes(32) if self.hash_key is None else self.hash_key
        return EraseResult(
            self.path, self.erased.column, dry_run, found.num_files, found.num_rows,
            [ErasedFile(file, None, found.rows_of[file], sum(groups.values()),
                        dictionaries=only_in_dictionaries(groups))
             for file, groups in found.files.items()],
            [ErasedValue(_hash(key, value), found.counts[value])
             for value in self.erased.values],
            out_of_reach=[_OUT_OF_REACH])


def _unless_changed(step: Callable[[], Result]) -> Result:
    """Return the result of a step, which is tried again if files change or disappear meanwhile."""
    for _ in range(_TRIES - 1):
        try:
            return step()
        except (ChangedMeanwhileError, FileNotFoundError):
            time.sleep(random.random() * _MAX_PAUSE)  # so that two do not meet again
    return step()


def _check_no_table(filesystem: pa_fs.FileSystem, path: str, column: str) -> None:
    table = table_of_files(filesystem, path, parquet_files(filesystem, path))
    if table is not None:
        statement = _STATEMENTS[table.kind].format(folder=table.folder, column=column)
        raise UnsupportedError(f"this belongs to {table}, whose log says which files it has; erase "
                               f"there: {statement}", file=table.folder)


def _check_share(found: Occurrences, max_share: float) -> None:
    if not found.found_rows <= max_share * found.num_rows:  # NaN allows nothing
        raise ValueError(f"{count(found.found_rows, 'row')} of {found.num_rows:,} would be erased, "
                         f"more than {max_share:.4g} of all; if that is intended, pass "
                         "max_share=1 (--yes)")


def _hash(key: bytes, value: Any) -> str:
    data = value if isinstance(value, bytes) else str(value).encode()
    return hmac.digest(key, data, "sha256").hex()
