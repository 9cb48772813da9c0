"""Write one file again, without the rows to erase."""

from __future__ import annotations

import hashlib
import hmac
import os
import posixpath
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import pyarrow.fs as pa_fs

from secure_bloom.erasing.matching import ErasedValues
from secure_bloom.erasing.remaining import RemainingRows
from secure_bloom.erasing.result import ErasedFile
from secure_bloom.erasing.search import check_same
from secure_bloom.index.file_change import FileChange
from secure_bloom.index.sealing import IndexKey
from secure_bloom.keys.external import create_material, read_material
from secure_bloom.keys.retrieval import Keys
from secure_bloom.maintain.new_version import opened_to_rewrite
from secure_bloom.policy.requirement import Requirement
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage.commit import Job
from secure_bloom.storage.source import Source
from secure_bloom.storage.summary import StagedFile
from secure_bloom.storage.table_names import material_path, relative_path
from secure_bloom.storage.versions import FileVersion

_BLOCK = 8 * 1024 * 1024  # bytes that are hashed at a time

Advance = Callable[[float], None]


class Rewritten(NamedTuple):
    """A file of a job that replaces this version of another one, once the job commits.

    ``change`` is for indexes of the table; None if more has changed than rows of row groups.
    """

    file: ErasedFile
    staged: StagedFile
    replaced: FileVersion
    change: FileChange | None


class FileRewriting(NamedTuple):
    """Writes files again without the rows to erase.

    Parameters
    ----------
    erased : ErasedValues
    keys, hash_key
        As for :func:`.erase`.
    requirement : Requirement, optional
        What a file must meet: it may not be the one that was searched.
    index_keys : mapping of str to IndexKey
        The columns of the table with an index, and the keys of the indexes.
    """

    erased: ErasedValues
    keys: Keys
    hash_key: bytes | None
    requirement: Requirement | None = None
    index_keys: Mapping[str, IndexKey] = MappingProxyType({})

    def for_job(self, job: Job, number: int, path: str, searched: FileVersion | None,
                row_groups: set[int], advance: Advance) -> Rewritten:
        """Write a file of a job that will replace another one.

        Parameters
        ----------
        job : Job
        number : int
            Part of the new file's name.
        path : str
            The file that it will replace.
        searched : FileVersion
            What was found there: somebody may have put something else there since, such as a link
            to a file of another table, whose rows readers of this one may not see.
        row_groups : set of int
            Those to write again: they have rows to erase, or values of these in their dictionaries.
        advance : callable
            As for :func:`.erase`.

        Raises
        ------
        ChangedMeanwhileError
            If the file was changed meanwhile.
        FormatError, AuthenticationError, KeyRetrievalError, UnsupportedError
            If it cannot be written without these rows.
        """
        with opened_to_rewrite(job.filesystem, path, self.keys,
                               self.requirement) as (rewrite, file):
            check_same(file.version, searched, path)
            replaced = job.replaced_version(path)
            remaining = self._remaining(file, row_groups, advance, has_new_material=True)
            new = job.new_file(number, posixpath.dirname(relative_path(path, job.folder)), path)
            visible = job.path(relative_path(new, job.work))
            if job.exists(material := material_path(path)):
                job.check_inside(material)  # what a link leads to may be private
                create_material(job.filesystem, new, read_material(job.filesystem, path)
                                | remaining.keys.external_material)
            before = _hmac(rewrite.source, self.hash_key)
            rewrite.write_to(new, remaining.parts())
            staged = job.staged(new, remaining.num_rows, remaining.filters)
            # If only a link is replaced, what it led to keeps the rows.
            is_link = job.filesystem.type_name == "local" and not os.path.samestat(
                os.lstat(path), os.fstat(rewrite.source.file.fileno()))
            described = ErasedFile(path, visible, file.num_rows,
                                   file.num_rows - remaining.num_rows, before,
                                   _sha256_of(job.filesystem, new),
                                   rewrite.has_other_names or is_link,
                                   remaining.accepts_old_pages, remaining.num_whole)
            change = self._change(job, file, path, new, row_groups)
        return Rewritten(described, staged, replaced, change)

    def in_place(self, filesystem: pa_fs.FileSystem, path: str, searched: FileVersion | None,
                 row_groups: set[int], advance: Advance) -> ErasedFile:
        """Replace a file; parameters and errors are those of :meth:`for_job`."""
        with opened_to_rewrite(filesystem, path, self.keys, self.requirement) as (rewrite, file):
            check_same(file.version, searched, path)
            remaining = self._remaining(file, row_groups, advance, has_new_material=False)
            before, has_other_names = _hmac(rewrite.source, self.hash_key), rewrite.has_other_names
            rewrite.replace_by(remaining.parts())
            return ErasedFile(path, path, file.num_rows, file.num_rows - remaining.num_rows,
                              before, _sha256_of(filesystem, path), has_other_names,
                              remaining.accepts_old_pages, remaining.num_whole)

    def _change(self, job: Job, file: OpenFile, path: str, new: str,
                row_groups: set[int]) -> FileChange | None:
        """Return how a new file of the job differs from the one that it replaces."""
        if not self.index_keys:
            return None
        with OpenFile(Source(new, job.filesystem), self.keys) as written, file.one_version():
            return FileChange.of(job.filesystem, file, path, written,
                                 job.path(relative_path(new, job.work)), row_groups,
                                 self.index_keys)

    def _remaining(self, file: OpenFile, row_groups: set[int], advance: Advance, *,
                   has_new_material: bool) -> RemainingRows:
        """Find the rows to erase, and return the others."""
        with file.one_version():  # what the parts read later is covered by the rewrite
            found = {group: self.erased.in_group_of(file, group).rows
                     for group in sorted(row_groups) if group < file.num_row_groups}
        remaining = RemainingRows(file, found, advance, self.erased.stays,
                                  has_new_material=has_new_material)
        remaining.check()
        return remaining


def _sha256_of(filesystem: pa_fs.FileSystem, path: str) -> str:
    source = Source(path, filesystem)
    with source.file:
        digest = hashlib.sha256()
        for block in _blocks(source):
            digest.update(block)
        return digest.hexdigest()


def _hmac(source: Source, key: bytes | None) -> str | None:
    if key is None:
        return None
    digest = hmac.new(key, digestmod="sha256")
    for block in _blocks(source):
        digest.update(block)
    return digest.hexdigest()


def _blocks(source: Source) -> Iterator[bytes | memoryview]:
    return (source.read_at(_BLOCK, start) for start in range(0, source.size, _BLOCK))
