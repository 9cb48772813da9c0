"""The indexes of a table: build them, look values up, keep them small and up to date."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias

import pyarrow.fs as pa_fs

from secure_bloom.arguments import names_of_columns
from secure_bloom.display import Summarized, choices, listed, names, warn
from secure_bloom.errors import ColumnError, IndexWarning, KeyNotFoundError, UnsupportedError
from secure_bloom.index import compaction
from secure_bloom.index.building import BUDGET
from secure_bloom.index.column_index import ColumnIndex
from secure_bloom.index.coverage import ListedCoverage
from secure_bloom.index.finding import indexed_columns
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.identity import check_sample
from secure_bloom.index.inspection import IndexInfo, inspect_index
from secure_bloom.index.integrity import SAMPLE, IndexVerification, verify_columns
from secure_bloom.index.later_errors import change_each
from secure_bloom.index.lookup import Lookup, look_up
from secure_bloom.index.opened_indexes import open_column, with_newest
from secure_bloom.index.purging import purge_columns
from secure_bloom.index.rotation import IndexRotation, rotate_indexes
from secure_bloom.index.table import Table, coverage_for, open_with_generation
from secure_bloom.index.update import (
    IndexEncryption,
    UpdateResult,
    create_index,
    update_indexes,
)
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.environment import NO_KEYS, NoKeys
from secure_bloom.keys.kms import KeyWrapper, can_wrap
from secure_bloom.keys.retrieval import open_client, open_keys
from secure_bloom.policy.environment import reading_requirement
from secure_bloom.policy.policy import Policy
from secure_bloom.progress import shown_progress
from secure_bloom.storage.files import FilePath
from secure_bloom.storage.many_files import Advance
from secure_bloom.storage.threads import Turns

#: keys of an index; None: the KMS of the environment
IndexKeys: TypeAlias = KeyWrapper | NoKeys | str | os.PathLike[str] | None


def build(path: FilePath, columns: str | Iterable[str], keys: IndexKeys = None, *,
          encryption: IndexEncryption = "column", exclusive: bool = False,
          policy: Policy | FilePath | None = None,
          filesystem: pa_fs.FileSystem | None = None, budget: int = BUDGET,
          advance: Advance | None = None, progress: bool | None = None) -> UpdateResult:
    """Build the indexes of some columns of a table, or update those that exist.

    Parameters
    ----------
    path : str or path
        The folder of the table, or its URI. The index is stored in ``_index`` below it.
    columns : str or iterable of str
        Dotted paths of columns that can have a Bloom filter.
    keys : KmsClient, path of a keyring, or URI of a KMS, optional
        Default: the KMS of the environment.
    encryption : {"column", None}
        How a new index is encrypted. "column": under the master key of the column, which must be
        encrypted. None: not at all, for columns without encryption: anyone who can read the index
        can then test which values exist.
    exclusive : bool
        Whether only jobs of secure_bloom (``write_dataset`` and the Spark data source) add and
        remove files of the table. Then lookups need not list the folder while no job has written
        since the last update. Do not set it for other tables: lookups would miss their files.
    policy : Policy, path or URI, optional
        What must be encrypted according to a policy. Files that do not meet it are not covered.
    filesystem : pyarrow.fs.FileSystem, optional
        Filesystem of ``path``; default: local, or by URI.
    budget : int
        Bytes of memory for values; the process needs about four times as much.
    advance : callable, optional
        Called with the completed fraction, 0 to 1.
    progress : bool, optional
        Whether to show the progress on standard error. Default: if it takes more than two seconds,
        in a terminal or a notebook, and without ``advance``.

    Returns
    -------
    UpdateResult

    Raises
    ------
    ColumnError
        If no file has the column, or it cannot have a Bloom filter. Or if the encryption does not
        fit: an index with encryption of a column without, or the reverse.
    KeyRetrievalError
        If a key is missing, denied or wrong, or the KMS does not respond.
    FileNotFoundError
        If the folder does not exist, or has no Parquet files.
    UnsupportedError
        If it is a file, or the folder of an Iceberg table: the index belongs to its folder
        ``data``.

    Examples
    --------
    >>> secure_bloom.index.build("people/", ["ssn"], "keyring.json")    # doctest: +SKIP
    """
    wanted, requirement = names_of_columns(columns), reading_requirement(None, policy)
    table, kms = Table.at(path, filesystem), index_client(keys)
    if table.filesystem.get_file_info(table.path).is_file:
        raise UnsupportedError("an index is for all files of a folder: pass the folder",
                               file=table.path)
    listing = table.listing()
    for column in wanted:
        create_index(table, column, kms, encryption, listing, exclusive, requirement)
    with shown_progress("index", progress, advance) as advance:
        return update_indexes(table, wanted, kms, budget=budget, advance=advance,
                              requirement=requirement)


class Index(Summarized):
    """The indexes of a table, by column. Use :meth:`open`.

    Attributes
    ----------
    columns : list of str
        The indexed columns.
    """

    def __init__(self, table: Table, columns: list[str], kms: CachedKms | None):
        self._table, self.columns, self._kms = table, columns, kms
        self._turns = Turns()

    @classmethod
    def open(cls, path: FilePath, keys: IndexKeys = None, *,
             filesystem: pa_fs.FileSystem | None = None) -> Index:
        """Open the indexes of a table.

        Parameters
        ----------
        path : str or path
            The folder of the table, or its URI.
        keys : KmsClient, path of a keyring, or URI of a KMS, optional
            Default: the KMS of the environment. An index is opened with the master key of its
            column, when the column is first looked up.
        filesystem : pyarrow.fs.FileSystem, optional
            Filesystem of ``path``; default: local, or by URI.

        Raises
        ------
        FileNotFoundError
            If the table has no index.
        """
        table = Table.at(path, filesystem)
        columns = indexed_columns(table.filesystem, table.path)
        if not columns:
            raise FileNotFoundError(f"{table.path} has no index; build one with "
                                    "secure_bloom.index.build, or secure-bloom index build")
        return cls(table, columns, index_client(keys))

    def lookup(self, column: str, values: Any) -> Lookup:
        """Look values up in the files that the table has now.

        Parameters
        ----------
        column : str
            Dotted path of an indexed column.
        values : scalar, sequence, or Arrow array
            Null, NaN, and values that cannot be converted exactly to the type of the column may be
            anywhere.

        Raises
        ------
        ColumnError
            If the column has no index.
        FileNotFoundError
            If its index was deleted.
        KeyRetrievalError
            If the master key of the column is missing, denied or wrong.
        AuthenticationError, FormatError
            If the index was changed, or is damaged; with the name of the file.

        Warns
        -----
        IndexWarning
            If a file has the column under another master key than the index, as while keys are
            rotated, or if somebody put the index there. Then it covers no file.
        """
        if isinstance(values, Iterator):
            values = list(values)  # the lookup may be tried again

        def look_up_newest() -> Lookup:
            index, generation = open_with_generation(self._table, column,
                                                     lambda: self.column(column))
            coverage = coverage_for(self._table, index, generation)
            try:
                check_sample(index, coverage, self._kms or NO_KEYS)
            except UnsupportedError as error:
                warn(IndexWarning(f"the index covers no file: {error}"))
                coverage = ListedCoverage({}, sorted([*coverage.places, *coverage.uncovered]))
            return look_up(index, coverage, values)

        with self._turns.taken():
            return with_newest(look_up_newest)

    def column(self, column: str) -> ColumnIndex:
        """Open the newest version of the index of a column; the errors are those of lookup."""
        folder = IndexFolder(self._table.filesystem, self._table.path, column)
        found = open_column(folder, self._kms)
        if found is None:
            self.chosen(column)
            raise FileNotFoundError(f"there is no index of column {column!r} any more")
        return found

    def update(self, columns: str | Iterable[str] | None = None, *,
               policy: Policy | FilePath | None = None, budget: int = BUDGET,
               advance: Advance | None = None) -> UpdateResult:
        """Cover the files that the indexes do not cover yet; then merge segments of similar size.

        Lookups use the new version as a whole. After an error or a crash, call it again.

        Parameters
        ----------
        columns : str or iterable of str, optional
            Dotted paths of the columns whose indexes are updated. Default: all indexed columns.
        policy : Policy, path or URI, optional
            What must be encrypted according to a policy. Files that do not meet it are not
            covered.
        budget : int
            Bytes of memory for values; the process needs about four times as much.
        advance : callable, optional
            Called with the completed fraction, 0 to 1.

        Raises
        ------
        ColumnError
            If a column has no index.
        KeyRetrievalError
            If the master key of a column is missing, denied or wrong.
        AuthenticationError, FormatError, UnsupportedError
            If the manifest of an index was changed, or is damaged, or its folder is a link out of
            the table. The other indexes are updated before this is raised.
        """
        return update_indexes(self._table, self.chosen(columns), self._kms, budget=budget,
                              advance=advance, requirement=reading_requirement(None, policy))

    def compact(self, columns: str | Iterable[str] | None = None, *, budget: int = BUDGET) -> int:
        """Merge all segments of each column, without files that do not exist any more.

        No data file is read. Returns the number of segments that were merged. Their files remain
        until :meth:`vacuum`.

        ``columns``, ``budget`` and errors are those of :meth:`update`.
        """
        return sum(change_each(
            self._folders(columns),
            lambda folder: compaction.compact(self._table, folder, self._kms, budget)))

    def verify(self, sample: int | None = SAMPLE, *, integrity: bool = False,
               advance: Advance | None = None) -> IndexVerification:
        """Check that the indexes are intact, and miss no value.

        All pages of all segments are read and authenticated, and counts are compared.

        Parameters
        ----------
        sample : int or None
            Number of covered files, chosen at random, of which all values are read and looked up;
            None: all covered files.
        integrity : bool
            Also compare the footer of each file with the index, and report files that were
            replaced, rolled back to an older version, removed or added since the last update.
        advance : callable, optional
            Called with the completed fraction, 0 to 1.

        Raises
        ------
        KeyRetrievalError
            If the master key of a column is missing, denied or wrong.
        AuthenticationError, FormatError
            If a manifest was changed, or is damaged. What is wrong with segments and files is in
            the result.
        """
        return verify_columns(self._table, self.columns, self._kms, sample, integrity, advance)

    def vacuum(self, grace: float = compaction.GRACE, *,
               columns: str | Iterable[str] | None = None) -> list[str]:
        """Delete segments and manifests that the newest version does not need.

        Files with names that this library does not make are left alone.

        Parameters
        ----------
        grace : float
            Seconds. Younger files are kept, because open readers may use them, or an update may be
            about to publish them. Use 0 only while no other process reads or updates the index.
        columns : str or iterable of str, optional
            As for :meth:`update`.

        Returns
        -------
        list of str
            Names of the deleted files.

        Raises
        ------
        UnsupportedError
            If the folder of an index is a link out of the table.
        ValueError
            If ``grace`` is negative or NaN.
        """
        return list(chain.from_iterable(change_each(
            self._folders(columns), lambda folder: compaction.vacuum(folder, self._kms, grace))))

    def purge(self, *, budget: int = BUDGET) -> list[str]:
        """Forget what is no longer in the files: update, compact, and delete what that replaced.

        Nothing is left of values that were removed from the files before, except in segments that
        other processes are about to publish, which :meth:`vacuum` deletes later.

        Returns
        -------
        list of str
            Names of the deleted files. The errors are those of :meth:`update`.
        """
        return purge_columns(self._table, self.columns, self._kms, budget)

    def rotate(self, *, old: str, new: str, dry_run: bool = False) -> IndexRotation:
        """Wrap the keys of the indexes with another master key.

        Each index gets one new manifest, and its earlier manifests are deleted. Segments do not
        change. Indexes under other master keys are left as they are.

        :func:`secure_bloom.keys.rotate_master_keys` rotates the files. Rotated files have new sizes
        and times: call :meth:`update` after two seconds, which reads only their footers.

        Parameters
        ----------
        old, new : str
            Names of master keys. If they are equal, for a KMS that has a new version of the key,
            every index under this key is wrapped again.
        dry_run : bool
            Only report what would be done, after a test of both master keys.

        Raises
        ------
        TypeError
            If the index was opened without a KMS client that wraps keys.
        KeyNotFoundError
            If no index uses the old or the new master key.
        KeyRetrievalError
            If the old or the new master key is missing or denied, or cannot unwrap what it has
            wrapped, or the KMS does not respond.
        """
        if self._kms is None or not can_wrap(self._kms.kms):
            raise TypeError("open the index with a KmsClient that has the old and the new master "
                            "key")
        result = rotate_indexes(self._folders(), self._kms, old=old, new=new, dry_run=dry_run)
        if not result.failed and not {old, new} & set(result.master_keys):
            raise KeyNotFoundError(f"no index of {self._table.path} uses master key {old!r}; the "
                                   f"indexes use: {listed(result.master_keys) or 'none'}")
        return result

    def inspect(self) -> list[IndexInfo]:
        """Return what each index is; without its key, only what its manifest reveals.

        Raises
        ------
        KmsUnavailableError, KeyringError
            If the KMS does not respond, or the keyring cannot be read.
        """
        listing = self._table.listing()
        return [inspect_index(folder, self._kms, listing) for folder in self._folders()]

    def chosen(self, columns: str | Iterable[str] | None) -> list[str]:
        """Return the names of some indexed columns; None: all. Raises ColumnError for others."""
        chosen = self.columns if columns is None else names_of_columns(columns)
        for column in chosen:
            if column not in self.columns:
                raise ColumnError("the column has no index"
                                  + choices(column, self.columns, "indexed columns"),
                                  column=column)
        return chosen

    def _folders(self, columns: str | Iterable[str] | None = None) -> Sequence[IndexFolder]:
        return [IndexFolder(self._table.filesystem, self._table.path, column)
                for column in self.chosen(columns)]

    def _headline(self) -> str:
        return f"{self._table.path}: {names(self.columns)}"


def index_client(keys: IndexKeys) -> CachedKms | None:
    """Return the KMS client for the keys of an index; None without keys.

    Raises TypeError if it cannot unwrap keys.
    """
    found = open_keys(keys)
    return None if found is NO_KEYS else open_client(found)
