"""Read a Parquet file, or a folder of files as one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.arrow import masking
from secure_bloom.arrow.masking import OnMissingKey
from secure_bloom.datasets.index_use import index_use
from secure_bloom.encryption_requirement import RequireEncryption, encryption_requirement
from secure_bloom.keys.denials import keys_for_files
from secure_bloom.keys.retrieval import Keys
from secure_bloom.pruning.predicates import Filters, condition_of
from secure_bloom.reader import ParquetFile
from secure_bloom.storage.files import FileSource, is_path, resolve
from secure_bloom.storage.versions import until_unchanged

if TYPE_CHECKING:
    from secure_bloom.index.planning import IndexUse


def read_table(source: FileSource, keys: Keys = None, *, columns: list[str] | None = None,
               filters: Filters | None = None, filesystem: pa_fs.FileSystem | None = None,
               all_files: bool = False, require_encryption: RequireEncryption = None,
               on_missing_key: OnMissingKey = "error", index: IndexUse = "auto") -> pa.Table:
    """Read a Parquet file or a folder of files, skipping what the Bloom filters rule out.

    Parameters
    ----------
    source : str, path, buffer, or binary file that can seek
        In a folder, files are skipped if any part of their path begins with ``_`` or ``.``, or if
        a Spark job has not committed them; ``name=value`` folders become columns (Hive
        partitions). The table has all columns, and all fields of structs, of all files; those
        that a file lacks are null.
    keys : KmsClient, ExplicitKeys, path of a keyring, or URI of a KMS, optional
        For encrypted files. Default: the KMS of the environment, see ``docs/keys.md``. Without
        keys, or with ``secure_bloom.keys.NO_KEYS``, only plaintext parts can be read.
    columns : list of str, optional
        Names of the columns to read. Default: all.
    filters : list of tuple, list of list of tuple, or pyarrow.compute.Expression, optional
        Only rows that match are returned. ``[("city", "==", "Rome")]``, or a list of such lists of
        which one must hold. Or an Expression such as ``pc.field("city") == "Rome"``, with Arrow's
        semantics; see ``docs/filters.md``.
    filesystem : pyarrow.fs.FileSystem, optional
        Filesystem of ``source`` if that is a path; default: local, or by URI.
    all_files : bool
        Read the folder of a Delta Lake, Iceberg or Hudi table, or of a Spark streaming query, as
        plain files. These may hold rows that the table has deleted. A file passed as ``source``
        is always read.
    require_encryption : bool, list of str, mapping of str to str, or Policy, optional
        What must be encrypted. True: the footer, which may be signed instead, and every column. A
        list of dotted paths: these columns, where a group stands for all leaves below it. A
        mapping: these columns, each under this master key. A :class:`Policy`: what it says. By
        default only :class:`ExplicitKeys` refuse unencrypted files.
        In a folder, a file may lack a column that another file has.
    on_missing_key : {"error", "null"}
        What to do with columns whose key does not exist or is denied. "null": they are masked,
        which means that all values are null, in the files whose key is missing. A
        :class:`.MissingKeyWarning` names them. See ``docs/keys.md``.
    index : {"auto", "off", "require"}
        Whether to use the index of a folder for ``filters``, see ``docs/table-index.md``. "auto":
        if there is one, and its key is available. "require": an error if it cannot be used.

    Raises
    ------
    UnsupportedError
        If the folder belongs to such a table, or contains one; or if a column has different types
        in two files.
    ChangedMeanwhileError
        If a file changes while it is read, or the files of a folder do, on each of ten attempts.
        The rows of a file are always of one version of it.
    """
    requirement = encryption_requirement(require_encryption)
    keys = keys_for_files(keys, masks=masking.is_masking(on_missing_key))
    index = index_use(index, on_missing_key)
    if filters is not None:
        filters = condition_of(filters)  # once, although reading may be tried again
    if not is_path(source):
        return ParquetFile(source, keys, require_encryption=requirement,
                           on_missing_key=on_missing_key).read(columns, filters)
    filesystem, path = resolve(source, filesystem)
    path = path.rstrip("/") or path
    if filesystem.get_file_info(path).type != pa_fs.FileType.Directory:
        def read() -> pa.Table:
            with ParquetFile(path, keys, filesystem=filesystem,
                             require_encryption=requirement,
                             on_missing_key=on_missing_key) as file:
                return file.read(columns, filters)

        return until_unchanged(read)
    from secure_bloom.datasets.folder import read_folder  # imports what one file does not need
    return read_folder(filesystem, path, keys, columns, filters, requirement, all_files,
                       on_missing_key, index)
