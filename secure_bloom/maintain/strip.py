"""Remove Bloom filters from files."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow.fs as pa_fs

from secure_bloom.keys.retrieval import Keys
from secure_bloom.maintain.change import Plan
from secure_bloom.maintain.folders import MaintainResult, change_files
from secure_bloom.parquet.schema import find_column
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage.files import FilePath


def strip(path: FilePath, keys: Keys = None, *, columns: Iterable[str] | None = None,
          dry_run: bool = False, filesystem: pa_fs.FileSystem | None = None,
          files_at_once: int | None = None, advance: Callable[[float], None] | None = None) \
        -> MaintainResult:
    """Remove the Bloom filters of a Parquet file, or of the files of a folder.

    No byte of the filters is left in the file. Data pages are copied unchanged.

    Parameters
    ----------
    path : str or path
        A Parquet file from any writer, or a folder of Parquet files.
    keys : KmsClient or ExplicitKeys, optional
        For encrypted files. The keys of the footer and of these columns are required.
    columns : iterable of str, optional
        Dotted paths of leaf columns. Default: all.
    dry_run : bool
        Report what would be done, without changing anything.
    filesystem : pyarrow.fs.FileSystem, optional
        Default: the local file system, or the one that a URI names.
    files_at_once : int, optional
        Default: one per core.
    advance : callable, optional
        Called with the completed fraction, 0 to 1.

    Returns
    -------
    MaintainResult
        Files that could not be changed are listed in ``failed``.

    Raises
    ------
    FileNotFoundError
        If the file or folder does not exist.
    UnsupportedError
        If the files belong to a table that records their sizes elsewhere.
    ColumnError
        If the column exists in no file of the folder.
    KeyRetrievalError
        If the KMS does not respond.

    Examples
    --------
    >>> secure_bloom.strip("people/", "keyring.json", columns=["ssn"])  # doctest: +SKIP
    """
    if isinstance(columns, str):
        raise TypeError("columns must be a list of column paths, not a string")
    paths = None if columns is None else list(columns)

    def planner(file: OpenFile) -> Plan:
        wanted = {column.ordinal for column in file.columns} if paths is None \
            else {find_column(file.columns, path).ordinal for path in paths}
        chunks = [chunk for chunk in file.footer.column_chunks() if chunk.column.ordinal in wanted]
        return Plan(remove=[chunk for chunk in chunks if chunk.bloom_filter])

    return change_files(path, keys, planner, dry_run=dry_run, filesystem=filesystem,
                        files_at_once=files_at_once, advance=advance)
