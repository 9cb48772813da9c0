"""Apply an operation to every Parquet file of a folder, several at once; it can be resumed.

Each file is changed atomically or not at all, and a file that needs no change is left alone. So
an interrupted operation is resumed by running it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import pyarrow.fs as pa_fs

from secure_bloom.display import ChangeResult, names
from secure_bloom.errors import ChangedMeanwhileError, ColumnError
from secure_bloom.keys.retrieval import Keys, open_keys
from secure_bloom.maintain.change import FileChange, Plan, apply, check_keys, check_pages
from secure_bloom.maintain.mistakes import Mistakes
from secure_bloom.maintain.tables import check_no_table
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage.files import FilePath, resolve
from secure_bloom.storage.inside import check_below
from secure_bloom.storage.leftovers import remove_leftovers_of
from secure_bloom.storage.local_files import LEFT_AS_IT_IS
from secure_bloom.storage.many_files import Advance, ManyFiles, result_on_error
from secure_bloom.storage.rewrite import Rewrite
from secure_bloom.storage.visibility import parquet_files

#: a note on a file that was changed
OTHER_NAMES = "the file has other names (hard links), which keep the old bytes"


@dataclass(repr=False)
class MaintainResult(ChangeResult):
    """What an operation did to the filters of files, or what a dry run would do.

    Attributes
    ----------
    changed : list of FileChange
    unchanged, failed, dry_run
        See :class:`ChangeResult`.
    """

    changed: list[FileChange] = field(default_factory=list)
    unchanged: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    dry_run: bool = False

    def __post_init__(self) -> None:
        self.mistake: ColumnError | None = None  # in the arguments, if a single file was given

    def _headline(self) -> str:
        return self._counts(len(self.changed), "to change", "changed")

    def _rows(self) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        changed = ((change.file, names(change.columns), change.built, change.removed,
                    change.indexed) for change in self.changed)
        failed = ((file, message, 0, 0, 0) for file, message in self.failed.items())
        return ("file", "columns, or error", "built", "removed", "indexed"), \
            chain(failed, changed)


Planner = Callable[[OpenFile], Plan]


def change_files(path: FilePath, keys: Keys, planner: Planner, *, dry_run: bool,
                 filesystem: pa_fs.FileSystem | None = None, files_at_once: int | None = None,
                 advance: Advance | None = None, folder: str | None = None) -> MaintainResult:
    """Change the filters of a file, or of all files of a folder.

    ``planner`` returns the plan for an open file. ``folder`` is the one in which the file was
    found, if it is not ``path``: of a link that nobody has named, nothing is changed. The other
    parameters and the errors are those of :func:`secure_bloom.attach`.

    The ColumnError is raised if no file of a folder could be changed because of the same mistake;
    its ``result`` lists the files that could not be read. Any other error of secure_bloom that ends
    an operation has a ``result``, too: a MaintainResult with what was done before. So has the
    OperationInterrupted that is raised on KeyboardInterrupt, of which it is a subclass.
    """
    filesystem, path = resolve(path, filesystem)
    paths = parquet_files(filesystem, path)
    check_no_table(filesystem, path, paths)
    if not dry_run:
        remove_leftovers_of(filesystem, path, paths, all_of_them=False)
    keys, mistakes = open_keys(keys), Mistakes()

    def change(file: str, advance: Advance) -> FileChange | None:
        check_below(filesystem, folder or path, file)
        try:
            return _change(filesystem, folder or path, file, keys, planner, dry_run, advance)
        except ColumnError as error:
            mistakes.add(file, error)
            raise

    def result() -> MaintainResult:
        return MaintainResult(*files.outcomes(), dry_run)

    files = ManyFiles(change, paths, advance)
    with result_on_error(result):
        files.run(files_at_once or os.cpu_count() or 1)
    if paths != [path]:
        return without_mistake(result(), mistakes, len(paths))
    done = result()
    done.mistake = mistakes.error(0)
    if done.mistake is not None:
        done.mistake.file = path
    return done


def without_mistake(done: MaintainResult, mistakes: Mistakes, num_files: int) -> MaintainResult:
    """Return the result for the files of a folder.

    Raises the ColumnError of :func:`change_files`.
    """
    if len(done.failed) < num_files \
            or (mistake := mistakes.error(num_files - len(mistakes.files))) is None:
        return done
    done.failed = {file: message for file, message in done.failed.items()
                   if file not in mistakes.files}
    mistake.result = done if done.failed else None
    raise mistake


def _change(filesystem: pa_fs.FileSystem, folder: str, path: str, keys: Keys, planner: Planner,
            dry_run: bool, advance: Advance) -> FileChange | None:
    """Change one file of a folder; return None if it needs no change."""
    with Rewrite(filesystem, path, folder=folder) as rewrite, \
            OpenFile(path, keys, filesystem=filesystem) as file:
        if rewrite.source.version != file.version:  # or a link has a new target
            raise ChangedMeanwhileError(LEFT_AS_IT_IS)
        with file.one_version():
            plan = planner(file)
            if not plan:
                return None
            if rewrite.has_other_names:
                plan.notes += (OTHER_NAMES,)
            check_keys(plan, file)
            check_pages(plan, file)
            change = FileChange.planned(plan, file)
        if dry_run:
            return change
        return replace(change, bytes=apply(plan, rewrite, file, keys, advance))
