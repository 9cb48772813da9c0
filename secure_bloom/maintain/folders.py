"""Apply an operation to every Parquet file of a folder, several at once; it can be resumed.

Each file is changed atomically or not at all, and a file that needs no change is left alone. So
an interrupted operation is resumed by running it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from threading import Lock
from typing import Any

import pyarrow.fs as pa_fs

from secure_bloom.display import Summarized, count, names
from secure_bloom.errors import (
    KMS_FAULTS,
    ChangedMeanwhileError,
    ColumnError,
    MissingExtraError,
    SecureBloomError,
    error_location,
)
from secure_bloom.keys.environment import shared_keys
from secure_bloom.keys.retrieval import Keys
from secure_bloom.maintain.change import FileChange, Plan, apply, check_keys, check_pages
from secure_bloom.maintain.mistakes import Mistakes
from secure_bloom.maintain.tables import check_no_table
from secure_bloom.maintain.threads import in_threads
from secure_bloom.reader import ParquetFile
from secure_bloom.storage.files import FilePath, resolve
from secure_bloom.storage.rewrite import Rewrite, remove_leftovers_of
from secure_bloom.storage.visibility import parquet_files

_NO_FAULT_OF_A_FILE = (*KMS_FAULTS, MissingExtraError)
_OTHER_NAMES = "the file has other names (hard links), which keep the old bytes"


@dataclass(repr=False)
class MaintainResult(Summarized):
    """What an operation did to the files of a folder, or what a dry run would do.

    Attributes
    ----------
    changed : list of FileChange
    unchanged : int
        Files that needed no change.
    failed : dict of str to str
        Files that could not be changed, and why. They are unmodified.
    dry_run : bool
        Whether this was a dry run, which changes nothing.
    """

    changed: list[FileChange] = field(default_factory=list)
    unchanged: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    dry_run: bool = False

    def __post_init__(self) -> None:
        self.mistake: ColumnError | None = None  # in the arguments, if a single file was given

    def _headline(self) -> str:
        return (f"{count(len(self.changed), 'file')} {'to change' if self.dry_run else 'changed'}, "
                f"{self.unchanged:,} unchanged, {len(self.failed):,} failed")

    def _rows(self) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        changed = ((change.file, names(change.columns), change.built, change.removed)
                   for change in self.changed)
        failed = ((file, message, 0, 0) for file, message in self.failed.items())
        return ("file", "columns, or error", "built", "removed"), chain(failed, changed)

    def to_dict(self) -> dict[str, Any]:
        """The result as a dictionary for JSON."""
        return asdict(self)


Planner = Callable[[ParquetFile], tuple[Plan, tuple[str, ...]]]


def change_files(path: FilePath, keys: Keys, planner: Planner, *, dry_run: bool,
                 filesystem: pa_fs.FileSystem | None = None, files_at_once: int | None = None,
                 advance: Callable[[float], None] | None = None) -> MaintainResult:
    """Change the filters of a file, or of all files of a folder.

    Parameters
    ----------
    path : str or path
    keys : KmsClient or ExplicitKeys or None
    planner : callable
        Returns the plan for an open file, with notes for the result.
    dry_run : bool
        Report what would be done, without changing anything.
    filesystem : pyarrow.fs.FileSystem, optional
    files_at_once : int, optional
        Default: one per core.
    advance : callable, optional
        Called with the completed fraction.

    Raises
    ------
    FileNotFoundError
        If the file or folder does not exist.
    UnsupportedError
        If the files belong to a table that records their sizes elsewhere.
    ColumnError
        If no file of a folder could be changed because of the same mistake: none has such a
        column, or it cannot have a filter. The result also lists the files that could not be read.
    KeyRetrievalError
        If the KMS does not respond. Every exception that ends an operation has an
        attribute ``result``, a MaintainResult with what was done before.
    """
    filesystem, path = resolve(path, filesystem)
    paths = parquet_files(filesystem, path)
    check_no_table(filesystem, path, paths)
    if filesystem.type_name == "local" and not dry_run:
        remove_leftovers_of(paths)
    keys = shared_keys(keys)
    job = _Job(filesystem, paths, keys, planner, dry_run, advance or (lambda fraction: None))
    try:
        job.run(files_at_once or os.cpu_count() or 1)
    except BaseException as error:
        ended: Any = error
        ended.result = job.result()
        raise
    result = job.result()
    if mistake := job.mistake():
        if paths == [path]:
            mistake.file, result.mistake = path, mistake
            return result
        result.failed = {file: message for file, message in result.failed.items()
                         if file not in job.mistakes.files}
        if result.failed:
            ended = mistake
            ended.result = result
        raise mistake
    return result


class _Job:
    """An operation on several files."""

    def __init__(self, filesystem: pa_fs.FileSystem, paths: list[str], keys: Keys, planner: Planner,
                 dry_run: bool, advance: Callable[[float], None]):
        self._filesystem, self._paths, self._keys = filesystem, paths, keys
        self._planner, self._dry_run, self._advance = planner, dry_run, advance
        self._outcomes: dict[str, FileChange | str | None] = {}
        self.mistakes = Mistakes()
        self._files_done = 0
        self._fractions: dict[str, float] = {}  # of files in progress, by path
        self._lock = Lock()

    def run(self, files_at_once: int) -> None:
        for _ in in_threads(self._try, self._paths, files_at_once):
            pass

    def result(self) -> MaintainResult:
        """The results so far, in the order of the paths."""
        result = MaintainResult(dry_run=self._dry_run)
        for path in (path for path in self._paths if path in self._outcomes):
            outcome = self._outcomes[path]
            if isinstance(outcome, FileChange):
                result.changed.append(outcome)
            elif outcome is None:
                result.unchanged += 1
            else:
                result.failed[path] = outcome
        return result

    def mistake(self) -> ColumnError | None:
        """The mistake in the arguments for which no file could be changed, if all share it."""
        failed = sum(isinstance(outcome, str) for outcome in self._outcomes.values())
        return self.mistakes.error(failed - len(self.mistakes.files)) \
            if failed == len(self._paths) else None

    def _try(self, path: str) -> None:
        try:
            with error_location(file=path):
                self._outcomes[path] = self._change(path)
        except _NO_FAULT_OF_A_FILE:
            raise
        except SecureBloomError as error:
            if isinstance(error, ColumnError):
                self.mistakes.add(path, error)
            error.file = None  # the message is shown with the file already
            self._outcomes[path] = str(error)
        except OSError as error:
            self._outcomes[path] = str(error)
        with self._lock:
            self._files_done += 1
            self._fractions.pop(path, None)
        self._tell()

    def _change(self, path: str) -> FileChange | None:
        with Rewrite(self._filesystem, path) as rewrite, \
                ParquetFile(path, self._keys, filesystem=self._filesystem) as file:
            if rewrite.source.version != file.version:  # or a link has a new target
                raise ChangedMeanwhileError("the file was changed in the meantime; it is "
                                            "left as it is")
            with file.one_version():
                plan, notes = self._planner(file)
                if not plan:
                    return None
                if rewrite.has_other_names:
                    notes += (_OTHER_NAMES,)
                check_keys(plan, file)
                check_pages(plan, file)
                change = FileChange.planned(plan, file, notes)
            if self._dry_run:
                return change
            num_bytes = apply(plan, rewrite, file, self._keys,
                              lambda fraction: self._tell(path, fraction))
            return replace(change, bytes=num_bytes)

    def _tell(self, path: str | None = None, fraction: float = 0.0) -> None:
        with self._lock:
            if path is not None:
                self._fractions[path] = fraction
            done = self._files_done + sum(self._fractions.values())
            self._advance(done / len(self._paths))
