"""Erase the rows of some values from a file or a folder."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.erasing.erasure import MAX_SHARE, Erasure
from secure_bloom.erasing.matching import ErasedValues
from secure_bloom.erasing.result import EraseResult
from secure_bloom.index.planning import IndexUse
from secure_bloom.keys.retrieval import Keys, open_keys
from secure_bloom.policy.environment import reading_requirement
from secure_bloom.policy.policy import Policy
from secure_bloom.progress import shown_progress
from secure_bloom.storage.files import FilePath, resolve
from secure_bloom.storage.versions import without_subtree


def erase(path: FilePath, column: str, values: object, keys: Keys = None, *, dry_run: bool = False,
          policy: Policy | FilePath | None = None, max_share: float = MAX_SHARE,
          hash_key: bytes | None = None,
          filesystem: pa_fs.FileSystem | None = None, index: IndexUse = "auto",
          files_at_once: int | None = None,
          advance: Callable[[float], None] | None = None,
          progress: bool | None = None) -> EraseResult:
    """Erase all rows in which a column has any of the given values, and verify that they are gone.

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
        They are compared as by the operator ``in``, see the page "Row filters". In a column CHAR(n)
        of Spark, trailing spaces do not matter, as in SQL.
    keys : KmsClient or ExplicitKeys, optional
        For encrypted files: the keys of the footer and of all columns.
    dry_run : bool
        Report which files and how many rows would go, without changing anything.
    policy : Policy, path or URI, optional
        What must be encrypted according to a policy. If a file does not meet it, nothing is erased.
    max_share : float
        Refuse to erase a larger share of all rows; 1 allows any.
    hash_key : bytes, optional
        Key of the hashes that stand for values, and for old files, in the report; at least 16
        bytes. Default: a random one for values, and no hashes of old files, so that the report
        reveals nothing.
    filesystem : pyarrow.fs.FileSystem, optional
        Default: the local file system, or the one that a URI names.
    index : {"auto", "off", "require"}
        Whether to use the index of the folder to find the rows, and to verify that they are gone;
        see the page "The index of a table".
    files_at_once : int, optional
        Default: one per core.
    advance : callable, optional
        Called with the completed fraction, 0 to 1.
    progress : bool, optional
        Whether to show the progress on standard error. Default: if it takes more than two seconds,
        in a terminal or a notebook, and without ``advance``.

    Returns
    -------
    EraseResult
        The report. Its ``ok`` is False in a dry run, or if rows with these values were
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
        If there are no values, more rows would go than ``max_share`` allows, or ``hash_key`` is
        too short.
    UnsupportedError
        If the files belong to a Delta Lake, Iceberg or Hudi table, or if a file cannot be rewritten
        in the form it has.
    ChangedMeanwhileError, CommitError
        If other jobs keep changing the files.
    FormatError, AuthenticationError, KeyRetrievalError
        If a file cannot be read. Nothing has been changed then.

    Examples
    --------
    >>> secure_bloom.erase("people/", "ssn", ["078-05-1120"], "keyring.json")  # doctest: +SKIP
    """
    requirement = reading_requirement(None, policy, in_transition=True)
    filesystem, path = without_subtree(*resolve(path, filesystem))
    erasure = Erasure(filesystem, path, ErasedValues(column, values), open_keys(keys), index,
                      files_at_once or pa.cpu_count(), requirement)
    with shown_progress("erase", progress, advance) as advance:
        return erasure.run(dry_run=dry_run, max_share=max_share, hash_key=hash_key,
                           advance=advance)
