"""Change the encryption of all files of a folder, and what is derived from them."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

import pyarrow.fs as pa_fs

from secure_bloom import index as table_index
from secure_bloom.erasing.out_of_reach import unpublished
from secure_bloom.erasing.summaries import find_summaries, remove_summaries
from secure_bloom.errors import SecureBloomError, UnsupportedError
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.inspection import index_folders
from secure_bloom.index.rotation import update_rotated
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.retrieval import Keys, open_keys
from secure_bloom.maintain.tables import check_no_table
from secure_bloom.reencryption.journal import Journal
from secure_bloom.reencryption.one_file import Advance, Outcome, Planner, change_file
from secure_bloom.reencryption.result import ReencryptedFile, ReencryptResult
from secure_bloom.storage.files import FilePath, resolve
from secure_bloom.storage.inside import check_below, check_inside
from secure_bloom.storage.many_files import ManyFiles, result_on_error
from secure_bloom.storage.rewrite import remove_leftovers_of
from secure_bloom.storage.visibility import files_below, parquet_files, relative_path, table_of

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
    """

    filesystem: pa_fs.FileSystem
    path: str
    paths: list[str]
    new_paths: dict[str, str]
    output: FilePath | None = None


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


def find_files(path: FilePath, output: FilePath | None,
               filesystem: pa_fs.FileSystem | None) -> Files:
    """Return the files to change, if their folder may be changed.

    Raises
    ------
    FileNotFoundError
        If the file or folder does not exist.
    UnsupportedError
        If the files belong to a table that records their sizes elsewhere, or ``output`` is the
        folder itself, or within it, or has links that lead out of it.
    """
    filesystem, path = resolve(path, filesystem)
    paths = parquet_files(filesystem, path)
    check_no_table(filesystem, path, paths)
    return Files(filesystem, path, paths, _new_paths(filesystem, path, paths, output), output)


def change_folder(path: FilePath, keys: Keys, planner: Planner, *, output: FilePath | None,
                  new_kms: CachedKms | None, dry_run: bool, replaces_indexes: bool,
                  filesystem: pa_fs.FileSystem | None, files_at_once: int | None,
                  advance: Advance, journal: Journal | None = None) -> ReencryptResult:
    """Change the encryption of a file, or of all files of a folder.

    Parameters
    ----------
    path, output, dry_run, filesystem, files_at_once, advance
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
    FileNotFoundError, UnsupportedError
        As :func:`find_files`.
    KeyRetrievalError
        If the KMS does not respond.
    """
    files = find_files(path, output, filesystem)

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
                                       dry_run=dry_run, advance=advance)
        seen.update(outcome.master_keys)
        encrypted.update(outcome.encrypted)
        if journal is not None and outcome.identity is not None and not dry_run:
            journal.add(outcome.identity)
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
    _update_derived(files.filesystem, files.path, result, _Indexes(
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
        found = find_files(path, files.output, filesystem)
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
        raise UnsupportedError("output must be in the same filesystem as the files", file=folder)
    if filesystem.type_name == "local":
        folder, real = os.path.realpath(folder), os.path.realpath(path)
    else:
        real = path
    if f"{folder}/".startswith(f"{real}/") or f"{real}/".startswith(f"{folder}/"):
        raise UnsupportedError("output must be another folder, neither within the old one nor "
                               "around it", file=folder)
    names = [posixpath.basename(path)] if paths == [path] \
        else [relative_path(file, path) for file in paths]
    new_paths = [posixpath.join(folder, name) for name in names]
    for new in new_paths:
        check_inside(filesystem, folder, new)
    return dict(zip(paths, new_paths, strict=True))


def _update_derived(filesystem: pa_fs.FileSystem, path: str, done: ReencryptResult,
                    indexes: _Indexes) -> None:
    """Remove or update what is derived from the files: summary files, and indexes."""
    handle = find_summaries if done.dry_run else remove_summaries
    found = handle(filesystem, path)
    done.summaries = found.paths
    done.out_of_reach += found.left
    is_folder = filesystem.get_file_info(path).type == pa_fs.FileType.Directory
    table = table_of(path if is_folder else posixpath.dirname(path))
    for folder in index_folders(filesystem, table, files_below(filesystem, table)):
        try:
            if indexes.renew(folder, done):
                done.indexes.append(folder.column)
        except (SecureBloomError, OSError, TypeError) as error:
            done.unused_master_keys = []  # the index may need them
            done.out_of_reach.append(f"the index of column {folder.column}, {folder.path}, could "
                                     f"not be made anew ({error}): delete it and build it again")


@dataclass(frozen=True)
class _Indexes:
    """What becomes of the indexes of a table.

    ``encrypted`` are the columns that are encrypted in some file at the end, and ``master_keys``
    those of all files.
    """

    kms: CachedKms | None
    encrypted: Collection[str]
    master_keys: Collection[str]
    are_replaced: bool
    are_late: bool  # although no file has changed

    def renew(self, folder: IndexFolder, done: ReencryptResult) -> bool:
        """Update an index or make it anew; return whether that was necessary.

        If no file was changed, an earlier run may have been killed before it came to the index,
        which would still show what the files no longer do.
        """
        stored = folder.newest()
        if stored is None:
            return False
        is_encrypted = folder.column in self.encrypted
        has_old_key = stored.material is not None and not done.failed \
            and stored.material.master_key_id not in self.master_keys
        is_other = stored.is_encrypted != is_encrypted or has_old_key
        if not (done.changed or self.are_late or (is_other and is_encrypted)):
            return False
        if done.dry_run:
            return True
        if is_other or self.are_replaced:
            for info in folder.own_infos():
                folder.delete(info.path)
            table_index.build(folder.table, folder.column, self.kms,
                              encryption="column" if is_encrypted else None,
                              filesystem=folder.filesystem)
        if self.kms is not None:
            update_rotated(folder, self.kms)  # once its files are old enough
        return True
