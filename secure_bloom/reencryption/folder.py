"""Change the encryption of all files of a folder, and what is derived from them."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

import pyarrow.fs as pa_fs

from secure_bloom.erasing.out_of_reach import unpublished
from secure_bloom.erasing.summaries import find_summaries, remove_summaries
from secure_bloom.errors import ArgumentError, SecureBloomError, UnsupportedError
from secure_bloom.index.finding import index_folders
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.manifest import StoredManifest
from secure_bloom.index.replacing import replace_index
from secure_bloom.index.rotation import update_rotated
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.retrieval import Keys, open_keys
from secure_bloom.maintain.tables import check_no_table
from secure_bloom.reencryption.journal import Journal
from secure_bloom.reencryption.one_file import Outcome, Planner, change_file
from secure_bloom.reencryption.result import ReencryptedFile, ReencryptResult
from secure_bloom.storage.files import FilePath, resolve
from secure_bloom.storage.inside import check_below, check_inside, table_above
from secure_bloom.storage.leftovers import remove_leftovers_of
from secure_bloom.storage.many_files import Advance, ManyFiles, result_on_error
from secure_bloom.storage.table_names import relative_path, table_of
from secure_bloom.storage.visibility import files_below, parquet_files

_COPIES = ("copies of the old files: backups, versions of objects, snapshots of volumes, and "
           "freed blocks of the disk")
_MOST_ROUNDS = 20  # of files that other jobs add meanwhile
_ADDED = "it was added in the meantime, as many others were: run it again"


@dataclass(frozen=True)
class Files:
    """The files of a folder, or a single one, whose encryption changes.

    Attributes
    ----------
    filesystem : pyarrow.fs.FileSystem
    path : str
        The folder, or the file.
    paths : list of str
    new_paths : dict of str to str
        Where the new files are written, by path of the old one.
    output : str, path or None
        The folder for the new files. None: they take the names of the old ones. A task of many
        only needs ``new_paths``.
    keep_times : bool
        Whether the new files have the times of the old ones.
    """

    filesystem: pa_fs.FileSystem
    path: str
    paths: list[str]
    new_paths: dict[str, str]
    output: FilePath | None = None
    keep_times: bool = False


@dataclass
class Done:
    """What became of files, before what is derived from them is updated.

    ``master_keys`` and ``encrypted``, the columns that are encrypted in some file, are those of the
    files as they are then, changed or not.
    """

    result: ReencryptResult
    master_keys: set[str] = field(default_factory=set)
    encrypted: set[str] = field(default_factory=set)

    def add(self, other: Done) -> None:
        """Add what became of further files."""
        self.result.changed += other.result.changed
        self.result.unchanged += other.result.unchanged
        self.result.failed |= other.result.failed
        self.master_keys |= other.master_keys
        self.encrypted |= other.encrypted


def find_files(path: FilePath, output: FilePath | None, filesystem: pa_fs.FileSystem | None, *,
               keep_times: bool = False) -> Files:
    """Return the files to change, if their folder may be changed.

    Raises
    ------
    FileNotFoundError
        If the file or folder does not exist.
    UnsupportedError
        If the files belong to a table that records their sizes elsewhere, or ``output`` has links
        that lead out of it, or a store sets the times that are to be kept.
    ArgumentError
        If ``output`` is the folder itself, or within it, or on another filesystem.
    """
    filesystem, path = resolve(path, filesystem)
    if keep_times and filesystem.type_name != "local":
        raise UnsupportedError("only local files can keep their times; here, the filesystem sets "
                               "them: omit keep_times (--keep-times)", file=path)
    paths = parquet_files(filesystem, path)
    check_no_table(filesystem, path, paths)
    return Files(filesystem, path, paths, _new_paths(filesystem, path, paths, output), output,
                 keep_times)


def change_folder(path: FilePath, keys: Keys, planner: Planner, *, output: FilePath | None,
                  new_kms: CachedKms | None, dry_run: bool, keep_times: bool,
                  replaces_indexes: bool,
                  filesystem: pa_fs.FileSystem | None, files_at_once: int | None,
                  advance: Advance, journal: Journal | None = None) -> ReencryptResult:
    """Change the encryption of a file, or of all files of a folder.

    Parameters
    ----------
    path, output, dry_run, keep_times, filesystem, files_at_once, advance
        As for :func:`secure_bloom.encrypt`.
    keys : Keys
        Of the files as they are.
    planner : callable
        Returns what an open file becomes.
    new_kms : CachedKms or None
        Of the files as they will be.
    replaces_indexes : bool
        Whether the indexes of the table are made anew, with new keys, even if their columns are
        encrypted as before.
    journal : Journal, optional
        Notes the files that are done.

    Raises
    ------
    FileNotFoundError, UnsupportedError, ArgumentError
        As :func:`find_files`.
    KeyRetrievalError
        If the KMS does not respond.
    """
    files = find_files(path, output, filesystem, keep_times=keep_times)

    def change(files: Files, advance: Advance = lambda fraction: None) -> Done:
        return change_files(files, keys, planner, dry_run=dry_run, files_at_once=files_at_once,
                            advance=advance, journal=journal)

    return finish(files, change(files, advance), new_kms, change,
                  replaces_indexes=replaces_indexes, goes_on=journal is not None)


def change_files(files: Files, keys: Keys, planner: Planner, *, dry_run: bool,
                 files_at_once: int | None, advance: Advance,
                 journal: Journal | None = None) -> Done:
    """Change the files only. Parameters and errors are those of :func:`change_folder`."""
    filesystem, path = files.filesystem, files.path
    if not dry_run:
        remove_leftovers_of(filesystem, path, files.paths)
    keys = open_keys(keys)
    seen: set[str] = set()
    encrypted: set[str] = set()

    def change(file: str, advance: Advance) -> ReencryptedFile | None:
        check_below(filesystem, path, file)
        outcome: Outcome = change_file(filesystem, file, keys, planner, files.new_paths.get(file),
                                       folder=path, dry_run=dry_run, keep_times=files.keep_times,
                                       advance=advance)
        seen.update(outcome.master_keys)
        encrypted.update(outcome.encrypted)
        if journal is not None and outcome.change is not None and not dry_run:
            return journal.noted(outcome.change, outcome.identity)
        return outcome.change

    def result() -> ReencryptResult:
        return ReencryptResult(*many.outcomes(), dry_run, out_of_reach=[_COPIES])

    many = ManyFiles(change, files.paths, advance)
    with result_on_error(result):
        many.run(files_at_once or os.cpu_count() or 1)
    return Done(result(), seen, encrypted)


def finish(files: Files, done: Done, new_kms: CachedKms | None, change: Callable[[Files], Done], *,
           replaces_indexes: bool, goes_on: bool = False) -> ReencryptResult:
    """Change later files, update what is derived from all, and return the whole result.

    If they were replaced, summary files are removed, and indexes are made anew. ``change`` changes
    files that other jobs have added in the meantime. ``goes_on``: an earlier run may have replaced
    them all, and been killed before it did this.
    """
    result = done.result
    hidden = _change_later(files, done, change)
    result.out_of_reach += hidden
    if files.output is not None:  # the old files are still there, with what is derived from them
        return result
    if not (result.failed or hidden):
        result.unused_master_keys = sorted({name for one in result.changed
                                            for name in one.old_master_keys} - done.master_keys)
    update_derived(files.filesystem, files.path, result, Indexes(
        new_kms, done.encrypted, done.master_keys, are_replaced=replaces_indexes,
        are_late=goes_on and replaces_indexes))
    return result


def _change_later(files: Files, done: Done, change: Callable[[Files], Done]) -> list[str]:
    """Change what other jobs have added since the files were listed, until there is nothing more.

    Returns what is said of files that readers do not see yet.
    """
    filesystem, path, seen = files.filesystem, files.path, set(files.paths)
    if filesystem.get_file_info(path).type != pa_fs.FileType.Directory:
        return []
    for number in range(_MOST_ROUNDS + 1):
        hidden = unpublished(filesystem, path)  # first: what is published now, is listed then
        if done.result.dry_run:
            return hidden
        found = find_files(path, files.output, filesystem, keep_times=files.keep_times)
        later = [file for file in found.paths if file not in seen]
        if not later:
            break
        if number == _MOST_ROUNDS:
            done.result.failed |= dict.fromkeys(later, _ADDED)
        else:
            done.add(change(replace(found, paths=later)))
            seen.update(later)
    return hidden


def nothing_done(*, dry_run: bool) -> Done:
    """Return what others are added to."""
    return Done(ReencryptResult(dry_run=dry_run, out_of_reach=[_COPIES]))


def _new_paths(filesystem: pa_fs.FileSystem, path: str, paths: list[str],
               output: FilePath | None) -> dict[str, str]:
    """Return where the new files are written, by path of the old one; empty: in their place."""
    if output is None:
        return {}
    other, folder = resolve(output)
    if other != filesystem:
        raise ArgumentError("output must be in the same filesystem as the files", file=folder)
    if filesystem.type_name == "local":
        folder, real = os.path.realpath(folder), os.path.realpath(path)
    else:
        real = path
    if f"{folder}/".startswith(f"{real}/") or f"{real}/".startswith(f"{folder}/"):
        raise ArgumentError("output must be another folder, neither within the old one nor "
                            "around it", file=folder)
    names = [posixpath.basename(path)] if paths == [path] \
        else [relative_path(file, path) for file in paths]
    new_paths = [posixpath.join(folder, name) for name in names]
    for new in new_paths:
        check_inside(filesystem, folder, new)
    return dict(zip(paths, new_paths, strict=True))


# --- what is derived from the files ---------------------------------------------------------------

def update_derived(filesystem: pa_fs.FileSystem, path: str, done: ReencryptResult,
                   indexes: Indexes) -> None:
    """Remove or update what is derived from the files, and note it in the result."""
    handle = find_summaries if done.dry_run else remove_summaries
    found = handle(filesystem, path)
    done.summaries = found.paths
    done.out_of_reach += found.left
    is_folder = filesystem.get_file_info(path).type == pa_fs.FileType.Directory
    table = table_of(path) if is_folder else table_above(filesystem, path)
    failed = {}
    for folder in index_folders(filesystem, table, files_below(filesystem, table)):
        try:
            if indexes.renew(folder, done, is_part=path != table):
                done.indexes.append(folder.column)
        except (SecureBloomError, OSError, TypeError) as error:
            failed[folder.path] = f"the index could not be made anew: {error}; run it again, or " \
                                  "delete the index"
    if failed:
        done.unused_master_keys = []  # the indexes may need them
        done.failed |= failed


@dataclass(frozen=True)
class Indexes:
    """What becomes of the indexes of a table.

    Attributes
    ----------
    kms : CachedKms or None
    encrypted : collection of str
        Columns that are encrypted in some file at the end.
    master_keys : collection of str
        Those of all files then.
    are_replaced : bool
        Whether they get new keys in any case.
    are_late : bool
        Whether they are replaced although no file has changed: an earlier run may have been killed
        before it came to them.
    """

    kms: CachedKms | None
    encrypted: Collection[str]
    master_keys: Collection[str]
    are_replaced: bool
    are_late: bool

    def renew(self, folder: IndexFolder, done: ReencryptResult, *, is_part: bool) -> bool:
        """Update an index or replace it; return whether that was necessary.

        If no file was changed, an earlier run may have been killed before it came to the index,
        which would still show what the files no longer do, or in the middle of it. ``is_part``:
        the table has other files, too.
        """
        stored = folder.newest()
        if stored is None:
            return False
        is_other = self._is_other(folder.column, stored, done, is_part)
        is_unfinished = folder.has_replaced(stored)
        if not (done.changed or self.are_late or is_unfinished
                or (is_other and folder.column in self.encrypted)):
            return False
        if done.dry_run:
            return True
        if is_other or is_unfinished or self.are_replaced:
            replace_index(folder, self.kms)
        elif self.kms is not None or not stored.is_encrypted:
            update_rotated(folder, self.kms)  # once its files are old enough
        return True

    def _is_other(self, column: str, stored: StoredManifest, done: ReencryptResult,
                  is_part: bool) -> bool:
        """Whether an index has another encryption than its column."""
        if stored.material is None:
            return column in self.encrypted
        if column not in self.encrypted:
            return not is_part
        return not done.failed and stored.material.master_key_id not in self.master_keys
