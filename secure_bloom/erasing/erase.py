"""Erase the rows of some values from a file or a folder, and verify that they are gone."""

from __future__ import annotations

import contextlib
import hmac
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.display import count
from secure_bloom.erasing.file import Rewritten, rewrite_for_job, rewrite_in_place
from secure_bloom.erasing.matching import ErasedValues
from secure_bloom.erasing.result import Absence, ErasedFile, ErasedValue, EraseResult
from secure_bloom.erasing.search import Occurrences, find_occurrences
from secure_bloom.errors import ChangedMeanwhileError, SecureBloomError, UnsupportedError
from secure_bloom.index.index import Index
from secure_bloom.index.planning import IndexUse
from secure_bloom.keys.environment import shared_keys
from secure_bloom.keys.external import material_path
from secure_bloom.keys.retrieval import Keys
from secure_bloom.maintain.tables import table_of_files
from secure_bloom.storage.commit import Job
from secure_bloom.storage.files import FilePath, resolve
from secure_bloom.storage.local_files import remove_checksum
from secure_bloom.storage.versions import without_subtree
from secure_bloom.storage.visibility import STAGING, parquet_files, table_of

_TRIES = 5  # after other jobs have changed files meanwhile
_SHARE = 0.01

_STATEMENTS = {
    "Delta Lake": "DELETE FROM delta.`{folder}` WHERE {column} IN (...), then VACUUM",
    "Iceberg": "DELETE FROM its table WHERE {column} IN (...), then the procedures "
               "rewrite_data_files and expire_snapshots",
    "Hudi": "DELETE FROM its table WHERE {column} IN (...), then the procedure run_clean",
    "Spark Structured Streaming": "stop the query, and write the folder again without these rows",
}
_OUT_OF_REACH = ("copies, backups, snapshots of disks, and older versions of objects that a bucket "
                 "keeps")


def erase(path: FilePath, column: str, values: object, keys: Keys = None, *, dry_run: bool = False,
          max_share: float = _SHARE, hash_key: bytes | None = None,
          filesystem: pa_fs.FileSystem | None = None, index: IndexUse = "auto",
          files_at_once: int | None = None,
          advance: Callable[[float], None] = lambda fraction: None) -> EraseResult:
    """Erase all rows in which a column has one of some values, and verify that they are gone.

    Only files that have such rows are written again; their encryption, keys, compression, order,
    row groups, metadata and Bloom filters stay. Row groups without such rows are copied. A folder
    changes in one step; readers that began before see all of its old files. If the folder has an
    index, that is brought up to date, and its old segments are deleted.

    An erasure that was interrupted has either happened or not; run it again to clean up.

    Parameters
    ----------
    path : str or path
        A Parquet file, or a folder of Parquet files, from any writer.
    column : str
        Dotted path of a leaf column. In a column of lists or maps, a row goes if any of its values
        is one of these.
    values : scalar, sequence, or Arrow array
        They are compared as by the operator ``in`` of :mod:`secure_bloom.pruning.predicates`.
    keys : KmsClient or ExplicitKeys, optional
        For encrypted files: the keys of the footer and of all columns.
    dry_run : bool
        Report which files and how many rows would go, without changing anything.
    max_share : float
        Refuse to erase a larger share of all rows; 1 allows any.
    hash_key : bytes, optional
        Key of the hashes that stand for values in the report. Default: a random one, so that the
        report reveals nothing.
    filesystem : pyarrow.fs.FileSystem, optional
        Default: the local file system, or the one that a URI names.
    index : {"auto", "off", "require"}
        Whether to use the index of the folder to find the rows, and to verify that they are gone;
        see ``docs/index.md``.
    files_at_once : int, optional
        Default: one per core.
    advance : callable, optional
        Called with the completed fraction, 0 to 1.

    Returns
    -------
    EraseResult
        The report. Its ``is_complete`` is False in a dry run, or if rows with these values were
        written meanwhile.

    Raises
    ------
    FileNotFoundError
        If the file or folder does not exist.
    ColumnError
        If there is no such column, or it is in the names of folders.
    PredicateError
        If a value cannot be compared with the column.
    ValueError
        If there are no values, or more rows would go than ``max_share`` allows.
    UnsupportedError
        If the files belong to a Delta Lake, Iceberg or Hudi table, or if a file cannot be written
        in the way in which it is stored.
    ChangedMeanwhileError, CommitError
        If other jobs keep changing the files.
    FormatError, AuthenticationError, KeyRetrievalError
        If a file cannot be read. Nothing has been changed then.
    """
    filesystem, path = without_subtree(*resolve(path, filesystem))
    erased, keys = ErasedValues(column, values), shared_keys(keys)
    paths = parquet_files(filesystem, path)
    _check_no_table(filesystem, path, paths, column)
    task = _Erasure(filesystem, path, erased, keys, index, files_at_once or pa.cpu_count())
    for tries in range(_TRIES):
        found = task.find(lambda done: advance(done / 4))
        _check_share(found, max_share)
        result = _report(path, erased, found, len(paths), hash_key, dry_run)
        if dry_run:
            return result
        try:
            result.files = task.change(found, lambda done: advance(1 / 4 + done / 2))
            break
        except ChangedMeanwhileError:
            if tries == _TRIES - 1:
                raise
    result.indexes = task.purge_indexes(result.left)
    result.absence = _absence(task.find(lambda done: advance(3 / 4 + done / 4)))
    return result


class _Erasure:
    """The steps of an erasure; the parameters are those of :func:`erase`."""

    def __init__(self, filesystem: pa_fs.FileSystem, path: str, erased: ErasedValues, keys: Keys,
                 index: IndexUse, files_at_once: int):
        self._filesystem, self._path, self._erased = filesystem, path, erased
        self._keys, self._index, self._files_at_once = keys, index, files_at_once
        self._is_folder = filesystem.get_file_info(path).type == pa_fs.FileType.Directory

    def find(self, advance: Callable[[float], None]) -> Occurrences:
        """Find the rows to erase."""
        return find_occurrences(self._path, self._erased, self._keys, self._filesystem,
                                self._index, advance)

    def change(self, found: Occurrences, advance: Callable[[float], None]) -> list[ErasedFile]:
        """Replace the files that have such rows; return what became of them."""
        if not self._is_folder:
            return [rewrite_in_place(self._filesystem, path, self._erased, set(groups), self._keys,
                                     advance) for path, groups in found.files.items()]
        job = Job(self._filesystem, self._path, False)
        if not found.files and not job.exists(f"{job.table}/{STAGING}"):
            return []
        job.start()  # also finishes what an erasure that was killed has left
        if not found.files:
            job.abort()
            return []
        rewritten: list[Rewritten] = []
        try:
            rewritten += self._rewrite(job, found, advance)
            _forget_checksums(self._filesystem, rewritten)
        except BaseException:
            job.abort()
            _remove_material(job, [one.file.new_file for one in rewritten])
            raise
        try:
            job.commit([one.staged for one in rewritten],
                       replaced=[one.replaced for one in rewritten])
        except ChangedMeanwhileError:
            _remove_material(job, [one.file.new_file for one in rewritten])
            raise
        _remove_material(job, [one.file.file for one in rewritten])
        return [one.file for one in rewritten]

    def purge_indexes(self, left: list[str]) -> list[str]:
        """Bring the indexes of the table up to date; return their columns."""
        table = table_of(self._path) if self._is_folder else None
        if table is None:
            return []
        keys: Any = self._keys
        try:
            index = Index.open(table, keys, filesystem=self._filesystem)
            index.purge()
        except FileNotFoundError:  # the table has none
            return []
        except (SecureBloomError, OSError, TypeError) as error:  # explicit keys open no index
            left.append(f"the indexes of {table}, which could not be brought up to date, have "
                        f"fingerprints of these values ({error}): run secure-bloom index update, "
                        "compact and vacuum")
            return []
        return index.columns

    def _rewrite(self, job: Job, found: Occurrences, advance: Callable[[float], None]) \
            -> Iterator[Rewritten]:
        done = [0.0] * len(found.files)

        def rewrite(number: int, path: str, groups: set[int]) -> Rewritten:
            def tell(fraction: float) -> None:
                done[number] = fraction
                advance(sum(done) / len(done))
            return rewrite_for_job(job, number, path, self._erased, groups, self._keys, tell)

        with ThreadPoolExecutor(self._files_at_once) as pool:
            tasks = [pool.submit(rewrite, number, path, set(groups))
                     for number, (path, groups) in enumerate(found.files.items())]
            try:
                for task in tasks:
                    yield task.result()
            except BaseException:
                for task in tasks:
                    task.cancel()
                raise


def _check_no_table(filesystem: pa_fs.FileSystem, path: str, files: list[str],
                    column: str) -> None:
    table = table_of_files(filesystem, path, files)
    if table is not None:
        statement = _STATEMENTS[table.kind].format(folder=table.folder, column=column)
        raise UnsupportedError(f"this belongs to {table}, whose log says which files it has; erase "
                               f"there: {statement}", file=table.folder)


def _check_share(found: Occurrences, max_share: float) -> None:
    if found.found_rows > max_share * found.num_rows:
        raise ValueError(f"{count(found.found_rows, 'row')} of {found.num_rows:,} would be erased, "
                         f"more than {max_share:.4g} of all; if that is intended, pass "
                         "max_share=1 (--yes)")


def _report(path: str, erased: ErasedValues, found: Occurrences, num_files: int,
            hash_key: bytes | None, dry_run: bool) -> EraseResult:
    key = secrets.token_bytes(32) if hash_key is None else hash_key
    return EraseResult(
        path, erased.column, dry_run, num_files, found.num_rows,
        [ErasedFile(file, None, found.rows_of[file], sum(groups.values()))
         for file, groups in found.files.items()],
        [ErasedValue(_hash(key, value), found.counts[value]) for value in erased.values],
        left=[_OUT_OF_REACH])


def _hash(key: bytes, value: Any) -> str:
    data = value if isinstance(value, bytes) else str(value).encode()
    return hmac.digest(key, data, "sha256").hex()


def _absence(found: Occurrences) -> Absence:
    return Absence(found.found_rows, found.report.files, found.report.row_groups)


def _forget_checksums(filesystem: pa_fs.FileSystem, rewritten: list[Rewritten]) -> None:
    if filesystem.type_name == "local":
        for one in rewritten:
            remove_checksum(one.file.file)


def _remove_material(job: Job, paths: list[str | None]) -> None:
    """Remove key material next to files that are gone; it would open nothing else."""
    for path in filter(None, paths):
        with contextlib.suppress(OSError):
            job.delete_file(material_path(path))
