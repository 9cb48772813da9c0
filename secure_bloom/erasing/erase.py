"""Erase the rows of some values from a file or a folder."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.erasing.erasure import MAX_SHARE, Erasure
from secure_bloom.erasing.matching import ErasedValues
from secure_bloom.erasing.result import EraseResult
from secure_bloom.index.planning import IndexUse
from secure_bloom.keys.environment import shared_keys
from secure_bloom.keys.retrieval import Keys
from secure_bloom.storage.files import FilePath, resolve
from secure_bloom.storage.versions import without_subtree


def erase(path: FilePath, column: str, values: object, keys: Keys = None, *, dry_run: bool = False,
          max_share: float = MAX_SHARE, hash_key: bytes | None = None,
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
        They are compared as by the operator ``in``, see ``docs/filters.md``. In a column CHAR(n)
        of Spark, trailing spaces do not matter, as in SQL.
    keys : KmsClient or ExplicitKeys, optional
        For encrypted files: the keys of the footer and of all columns.
    dry_run : bool
        Report which files and how many rows would go, without changing anything.
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
        see ``docs/table-index.md``.
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
        If there are no values, more rows would go than ``max_share`` allows, or ``hash_key`` is
        too short.
    UnsupportedError
        If the files belong to a Delta Lake, Iceberg or Hudi table, or if a file cannot be written
        in the way in which it is stored.
    ChangedMeanwhileError, CommitError
        If other jobs keep changing the files.
    FormatError, AuthenticationError, KeyRetrievalError
        If a file cannot be read. Nothing has been changed then.
    """
    filesystem, path = without_subtree(*resolve(path, filesystem))
    erasure = Erasure(filesystem, path, ErasedValues(column, values), shared_keys(keys), index,
                      files_at_once or pa.cpu_count())
    return erasure.run(dry_run=dry_run, max_share=max_share, hash_key=hash_key, advance=advance)
