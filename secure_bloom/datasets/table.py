"""Read a Parquet file, or many files as one table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeGuard, cast

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.arrow import masking
from secure_bloom.arrow.masking import OnMissingKey
from secure_bloom.datasets.index_use import index_use
from secure_bloom.errors import error_location
from secure_bloom.keys.retrieval import Keys, open_keys
from secure_bloom.policy.environment import reading_requirement
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.requirement import RequireEncryption
from secure_bloom.pruning.predicates import Filters, condition_of
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.reading.rows import read_rows
from secure_bloom.storage.files import FilePath, FileSource, is_path, resolve
from secure_bloom.storage.locations import is_pattern
from secure_bloom.storage.versions import until_unchanged

if TYPE_CHECKING:
    from secure_bloom.datasets.sources import DatasetSource, Files, TableOfFiles
    from secure_bloom.index.planning import IndexUse


def read_table(source: FileSource | DatasetSource, keys: Keys = None, *,
               columns: list[str] | None = None, filters: Filters | None = None,
               schema: pa.Schema | None = None,
               filesystem: pa_fs.FileSystem | None = None, all_files: bool = False,
               require_encryption: RequireEncryption = None,
               policy: Policy | FilePath | None = None,
               on_missing_key: OnMissingKey = "error", index: IndexUse = "auto") -> pa.Table:
    """Read a Parquet file, or many as one table, skipping what the Bloom filters rule out.

    Parameters
    ----------
    source : str, path, list of them, table, buffer, or binary file that can seek
        A file, a folder, a glob pattern such as ``lake/day=2024-*/*.parquet``, a list of these,
        or a table as in :func:`dataset`. In a folder, files are skipped if any part of their path
        begins with ``_`` or ``.``, or if a Spark job has not committed them; ``name=value``
        folders become columns (Hive partitions). The table has all columns, and all fields of
        structs, of all files; those that a file lacks are null.
    keys : KmsClient, ExplicitKeys, path of a keyring, or URI of a KMS, optional
        For encrypted files. Default: the KMS of the environment, see the page "Keys". Without
        keys, or with ``secure_bloom.keys.NO_KEYS``, only plaintext parts can be read.
    columns : list of str, optional
        Names of the columns to read. Default: all.
    filters : list of tuple, list of list of tuple, or pyarrow.compute.Expression, optional
        Only rows that match are returned. ``[("city", "==", "Rome")]``, or a list of such lists,
        one of which must hold. Or an Expression such as ``pc.field("city") == "Rome"``, with
        Arrow's semantics; see the page "Row filters".
    schema : pyarrow.Schema, optional
        The columns of the table and their types, instead of those that the files have: those that a
        file lacks are null, and a partition column has the type that the schema says. Then
        ``filters`` on partition columns leave out partitions before their files are listed or
        opened; see the page "Data sets". Only for paths and tables.
    filesystem : pyarrow.fs.FileSystem, optional
        Filesystem of ``source`` if that is a path; default: local, or by URI.
    all_files : bool
        Read the folder of a Delta Lake, Iceberg or Hudi table, or of a Spark streaming query, as
        plain files. These may hold rows that the table has deleted. A file passed as ``source``
        is always read.
    require_encryption : bool, list of str, or mapping of str to str, optional
        What must be encrypted. True: the footer, which may be signed instead, and every column. A
        list of dotted paths: these columns, where a group stands for all leaves below it. A
        mapping: these columns, each under this master key. By default only :class:`ExplicitKeys`
        refuse unencrypted files. In a folder, a file may lack a column that another file has.
    policy : Policy, path or URI, optional
        What must be encrypted according to a policy, see the page "One policy for all files". With
        ``require_encryption``, both must hold.
    on_missing_key : {"error", "null"}
        What to do with columns whose key does not exist or is denied. "null": they are masked,
        which means that all values are null, in the files whose key is missing. A
        :class:`.MissingKeyWarning` names them. See the page "Keys".
    index : {"auto", "off", "require"}
        Whether to use the index of a folder for ``filters``, see the page "The index of a table".
        "auto": if there is one, and its key is available. "require": an error if it cannot be used.

    Raises
    ------
    UnsupportedError
        If the folder belongs to such a table, or contains one; if a column has different types
        in two files; or if values of a file do not fit the types in ``schema``.
    ChangedMeanwhileError
        If a file changes while it is read, or the files of a folder do, on each of ten attempts.
        The rows of a file are always of one version of it.

    Examples
    --------
    >>> secure_bloom.read_table("people/", "keyring.json",  # doctest: +SKIP
    ...                         filters=[("ssn", "==", "078-05-1120")])
    """
    requirement = reading_requirement(require_encryption, policy, in_transition=True)
    keys = open_keys(keys, remember_denials=masking.is_masking(on_missing_key))
    index = index_use(index, on_missing_key)
    if filters is not None:
        filters = condition_of(filters)  # once, although reading may be tried again

    def read_many(find: Callable[..., Files], name: str | None) -> pa.Table:
        from secure_bloom.datasets.folder import FilesReader  # imports what one file does not need
        with error_location(file=name):
            return FilesReader(keys, columns, filters, schema, requirement, on_missing_key,
                               index).read(find)

    if _is_of_many(source) or (schema is not None and is_path(source)):
        from secure_bloom.datasets.sources import find_files
        return read_many(partial(find_files, source, filesystem, all_files=all_files), None)
    if not is_path(source):
        if schema is not None:
            raise TypeError("schema is only for paths and tables, not for an open file or a buffer")
        file = OpenFile(cast(FileSource, source), keys, require_encryption=requirement,
                        on_missing_key=on_missing_key)
        return read_rows(file, columns, filters)
    filesystem, path = resolve(source, filesystem)
    path = path.rstrip("/") or path
    kind = filesystem.get_file_info(path).type
    if kind == pa_fs.FileType.Directory or is_pattern(path, kind):
        from secure_bloom.datasets.sources import files_of_path
        return read_many(partial(files_of_path, filesystem, path, kind, all_files), path)

    def read() -> pa.Table:
        with OpenFile(path, keys, filesystem=filesystem, require_encryption=requirement,
                      on_missing_key=on_missing_key) as file:
            return read_rows(file, columns, filters)

    return until_unchanged(read)


def _is_of_many(source: object) -> TypeGuard[Sequence[FilePath] | TableOfFiles]:
    """Whether this is a list of files, or a table of another package."""
    return isinstance(source, list | tuple) \
        or any(hasattr(source, name) for name in ("file_uris", "plan_files", "scan"))
