"""The indexes of the table from which rows are erased: they forget the values, too."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pyarrow.fs as pa_fs

from secure_bloom.display import count
from secure_bloom.errors import SecureBloomError
from secure_bloom.index.compaction import unpublished
from secure_bloom.index.file_change import FileChange
from secure_bloom.index.finding import indexed_columns
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.index import index_client
from secure_bloom.index.purging import purge_columns
from secure_bloom.index.sealing import IndexKey
from secure_bloom.index.table import Table
from secure_bloom.keys.retrieval import Keys
from secure_bloom.storage.job_folder import JobFolder
from secure_bloom.storage.table_names import GENERATION, STAGING

_ERRORS = SecureBloomError, OSError, TypeError  # explicit keys open no index


class TableIndexes:
    """The indexes of a table of which files are written again.

    Parameters
    ----------
    filesystem : pyarrow.fs.FileSystem
    table : str
    keys : KeyRetriever or KmsClient, optional
    """

    def __init__(self, filesystem: pa_fs.FileSystem, table: str, keys: Keys):
        self._filesystem, self._table, self._keys = filesystem, table, keys
        self._changes: list[FileChange] | None = None

    def keys(self) -> dict[str, IndexKey]:
        """Return the keys of the indexes by column, as far as they can be opened.

        Call it before files change: the keys are needed to record what the files lose.
        """
        found: dict[str, IndexKey] = {}
        with suppress(*_ERRORS):
            kms = self._kms()
            for column in indexed_columns(self._filesystem, self._table):
                with suppress(*_ERRORS):
                    manifest = IndexFolder(self._filesystem, self._table, column).open_newest(kms)
                    if manifest is not None:
                        found[column] = manifest.key
        return found

    def distrust(self) -> None:
        """Make lookups in exclusive indexes list the files, until the indexes are updated."""
        folder = JobFolder(self._filesystem, self._table)
        if folder.exists(posixpath.join(self._table, STAGING, GENERATION)):
            folder.note_change()

    def note(self, changes: Iterable[FileChange | None]) -> None:
        """Note what the files have lost, after their job has committed; None: it is not known."""
        known = list(changes)
        self._changes = None if None in known else [one for one in known if one is not None]

    def purge(self, out_of_reach: list[str]) -> list[str]:
        """Bring the indexes up to date; return their columns.

        Adds to ``out_of_reach`` if that fails.
        """
        columns = indexed_columns(self._filesystem, self._table)
        if not columns:
            return []
        try:
            kms = self._kms()
            purge_columns(Table.at(self._table, self._filesystem), columns, kms,
                          changes=self._changes)
            left = sum(len(unpublished(IndexFolder(self._filesystem, self._table, column), kms))
                       for column in columns)
        except _ERRORS as error:
            out_of_reach.append(
                f"the indexes of {self._table}, which could not be brought up to date, have "
                f"fingerprints of these values ({error}): run secure-bloom index update, compact "
                "and vacuum")
            return []
        if left:
            out_of_reach.append(
                f"{count(left, 'unpublished file')} of segments in the indexes of {self._table}, "
                "which may have fingerprints of these values; a process is writing them, or was "
                "killed: when none is running, run secure-bloom index vacuum --grace 0")
        return columns

    def _kms(self) -> Any:
        keys: Any = self._keys
        return index_client(keys)
