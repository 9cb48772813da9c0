"""Remove Bloom filters from files."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow.fs as pa_fs

from secure_bloom.keys.retrieval import Keys
from secure_bloom.maintain.change import Plan
from secure_bloom.maintain.folders import MaintainResult, change_files
from secure_bloom.parquet.schema import find_column
from secure_bloom.reader import ParquetFile
from secure_bloom.storage.files import FilePath


def strip(path: FilePath, keys: Keys = None, *, columns: Iterable[str] | None = None,
          dry_run: bool = False, filesystem: pa_fs.FileSystem | None = None,
          files_at_once: int | None = None, advance: Callable[[float], None] | None = None) \
        -> MaintainResult:
    """Remove the Bloom filters of a Parquet file, or of the files of a folder.

    No byte of them is left in the file. Data pages are copied as they are.

    Parameters
    ----------
    path : str or path
        A Parquet file, whoever wrote it, or a folder of them.
    keys : KmsClient or ExplicitKeys, optional
        For encrypted files: the keys of the footer and of these columns are needed.
    columns : iterable of str, optional
        Dotted paths of leaf columns. Default: all.
    dry_run : bool
        Only say what would be done.
    filesystem : pyarrow.fs.FileSystem, optional
        Default: local, or by URI.
    files_at_once : int, optional
        Default: one for each core.
    advance : callable, optional
        Told the fraction that is done, 0 to 1.

    Returns
    -------
    MaintainResult
        A file that could not be changed is among its ``failed``.

    Raises
    ------
    FileNotFoundError
        If there is no such file or folder.
    UnsupportedError
        If the files belong to a table that keeps their sizes elsewhere.
    ColumnError
        If no file of a folder has such a column.
    KeyRetrievalError
        If the KMS does not answer.
    """
    if isinstance(columns, str):
        raise TypeError("columns must be a list of column paths, not a string")
    paths = None if columns is None else list(columns)

    def planner(file: ParquetFile) -> tuple[Plan, tuple[str, ...]]:
        wanted = {column.ordinal for column in file.columns} if paths is None \
            else {find_column(file.columns, path).ordinal for path in paths}
        chunks = [chunk for chunk in file.footer.column_chunks()
                  if chunk.column.ordinal in wanted]
        return Plan(remove=[chunk for chunk in chunks if chunk.bloom_filter]), ()

    return change_files(path, keys, planner, dry_run=dry_run, filesystem=filesystem,
                        files_at_once=files_at_once, advance=advance)
