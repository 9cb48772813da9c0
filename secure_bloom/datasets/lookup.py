"""Find the rows of a few values, or of a million, in many files, some of which may be damaged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.arrow.masking import OnMissingKey
from secure_bloom.datasets.dataset_file import OutdatedError
from secure_bloom.datasets.search import OnError, Search
from secure_bloom.datasets.searched_rows import SearchedRows
from secure_bloom.datasets.sources import DatasetSource
from secure_bloom.errors import ChangedMeanwhileError
from secure_bloom.keys.retrieval import Keys
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.requirement import RequireEncryption
from secure_bloom.progress import shown_progress
from secure_bloom.storage.files import FilePath
from secure_bloom.storage.many_files import Advance
from secure_bloom.storage.versions import until_unchanged

if TYPE_CHECKING:
    from secure_bloom.index.planning import IndexUse


def find(source: DatasetSource, column: str, values: object, keys: Keys = None, *,
         columns: list[str] | None = None, filesystem: pa_fs.FileSystem | None = None,
         all_files: bool = False, require_encryption: RequireEncryption = None,
         policy: Policy | FilePath | None = None,
         on_missing_key: OnMissingKey = "error", on_error: OnError | None = None,
         advance: Advance | None = None, progress: bool | None = None,
         index: IndexUse = "auto") -> pa.Table:
    """Find the rows in which a column has any of the given values.

    Row groups are skipped by partition, statistics and Bloom filters. Only matching rows are kept
    in memory.

    Parameters
    ----------
    source : path, list of paths, DeltaTable, or pyiceberg table or scan
        The path of a file, a folder, a glob pattern (``**`` crosses folders), or a URI of
        one; details as for :func:`secure_bloom.dataset`. The files are read as one table.
    column : str
        Name of a column, or dotted path of a field of structs.
    values : scalar, sequence, or Arrow array
        They are compared as by the operator ``in``, see the page "Row filters"; None is
        not found. In a column CHAR(n) of Spark, trailing spaces do not matter, as in SQL.
    keys : KmsClient, ExplicitKeys, path of a keyring, or URI of a KMS, optional
        For encrypted files. Default: the KMS of the environment, see the page "Keys". For a table
        that Iceberg encrypts: the KMS that has its master key.
    columns : list of str, optional
        Names of the columns to return. Default: all. Only these columns and ``column`` must have
        types in all files that fit together.
    filesystem : pyarrow.fs.FileSystem, optional
        Filesystem of ``source``; default: local, or by URI.
    all_files : bool
        Search the folder of a Delta Lake, Iceberg or Hudi table, or of a Spark streaming query, as
        plain files. These may hold rows that the table has deleted.
    require_encryption : bool, list of str, or mapping of str to str, optional
        What must be encrypted; as for :func:`read_table`. Files in which it is not are errors.
    policy : Policy, path or URI, optional
        What must be encrypted according to a policy; with ``require_encryption``, both must hold.
    on_missing_key : {"error", "null"}
        What happens to columns whose key is missing, or denied by the KMS; as for
        :func:`secure_bloom.dataset`. The key of ``column`` is always needed.
    on_error : callable, optional
        Is called with a :class:`.FailedFile` for each file that cannot be read, and the search goes
        on: ``on_error=failed.append``. Rows that were found in the file before the error remain in
        the result, and it may have more of them. Default: the first error is raised.
    advance : callable, optional
        Called with the completed fraction, 0 to 1.
    progress : bool, optional
        Whether to show the progress on standard error. Default: if it takes more than two seconds,
        in a terminal or a notebook, and without ``advance``.
    index : {"auto", "off", "require"}
        Whether to use the index of the files' table, see the page "The index of a table". "auto":
        if there is one, and its key is available. "require": an error if it cannot be used.

    Returns
    -------
    pyarrow.Table
        The columns ``file`` (path, string) and ``row_group`` (from 0, int32), then the columns of
        the rows.

    Raises
    ------
    ColumnError
        If no file has such a column.
    PredicateError
        If a value cannot be compared with the column.
    KmsUnavailableError, KeyringError
        If the KMS does not respond, or the keyring cannot be read; also with ``on_error``.
    FormatError, AuthenticationError, KeyRetrievalError, UnsupportedError, OSError
        If a file cannot be read, without ``on_error``.

    Examples
    --------
    >>> secure_bloom.find("people/", "ssn", "078-05-1120", "keyring.json")    # doctest: +SKIP
    """
    def found() -> pa.Table:
        search = Search(source, column, columns, keys, filesystem=filesystem, all_files=all_files,
                        require_encryption=require_encryption, policy=policy,
                        on_missing_key=on_missing_key,
                        on_error=on_error, advance=advance, index=index,
                        values_for=lambda _: values)
        rows = SearchedRows(search, values)
        return pa.Table.from_batches(rows.batches(), rows.schema)

    if isinstance(values, Iterator):
        values = list(values)  # the search may be tried again
    with shown_progress("find", progress, advance) as advance:
        if on_error is not None:
            return found()
        return until_unchanged(found, ChangedMeanwhileError, OutdatedError)
