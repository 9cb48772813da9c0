"""Attach Bloom filters to files that exist."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow.fs as pa_fs

from secure_bloom.errors import UnsupportedError
from secure_bloom.keys.retrieval import Keys
from secure_bloom.maintain.change import Plan, stored_filter
from secure_bloom.maintain.folders import MaintainResult, change_files
from secure_bloom.parquet.bloom_filter import PLAIN
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.schema import filter_columns, filterable_paths
from secure_bloom.reader import ParquetFile
from secure_bloom.sbbf.options import BloomFilterOptions, BloomFilters, normalize_options
from secure_bloom.storage.files import FilePath


def attach(path: FilePath, bloom_filters: BloomFilters, keys: Keys = None, *,
           replace: bool = False, dry_run: bool = False, filesystem: pa_fs.FileSystem | None = None,
           files_at_once: int | None = None,
           advance: Callable[[float], None] | None = None) -> MaintainResult:
    """Add Bloom filters to a Parquet file, or to the files of a folder.

    Only the pages of these columns are read, a few at a time. Everything else is copied byte for
    byte into a new file, which takes the place of the old one in one step. Filters of encrypted
    columns are encrypted with the column's key, all others are plain.

    Done again after it was stopped, it goes on with the files that are left.

    Parameters
    ----------
    path : str or path
        A Parquet file, whoever wrote it, or a folder of them.
    bloom_filters : bool, iterable of str, or mapping
        The leaf columns that get a filter. ``True``: every column of each file that can have one.
        A list names them by dotted path. A mapping of paths also says how: ``True``,
        BloomFilterOptions, a dict of its fields such as ``{"fpp": 0.001}``, or ``False``.
    keys : KmsClient or ExplicitKeys, optional
        For encrypted files: the keys of the footer and of these columns are needed.
    replace : bool
        Build filters anew where there are some. Otherwise those stay as they are.
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
        A file that could not be changed is among its ``failed``, for instance because it has no
        such column, or because its key is missing or denied.

    Raises
    ------
    FileNotFoundError
        If there is no such file or folder.
    UnsupportedError
        If the files belong to a table that keeps their sizes elsewhere.
    ColumnError
        If no file of a folder has such a column, or it cannot have a filter in any.
    KeyRetrievalError
        If the KMS does not answer.
    """
    wanted = filters_for_files(bloom_filters)

    def planner(file: ParquetFile) -> tuple[Plan, tuple[str, ...]]:
        asked = normalize_options(wanted, filterable_paths(file.columns))
        columns = list(zip(filter_columns(file.columns, asked), asked.values(), strict=True))
        columns.sort(key=lambda one: one[0].ordinal)
        chunks = [(chunks[column.ordinal], options) for chunks in file.footer.row_groups
                  for column, options in columns]
        return Plan([(chunk, options) for chunk, options in chunks
                     if replace or _lacks_filter(file, chunk)]), ()

    return change_files(path, keys, planner, dry_run=dry_run, filesystem=filesystem,
                        files_at_once=files_at_once, advance=advance)


def filters_for_files(bloom_filters: BloomFilters) -> bool | dict[str, BloomFilterOptions]:
    """What is asked for, checked before any file is opened: True, or filters by column path.

    Raises
    ------
    TypeError, ValueError
        If it has another form, or asks for nothing.
    """
    wanted = bloom_filters is True or normalize_options(bloom_filters)
    if not wanted:
        raise ValueError("bloom_filters names no column")
    return wanted


def _lacks_filter(file: ParquetFile, chunk: ColumnChunk) -> bool:
    stored = stored_filter(file, chunk)
    if stored is not None and stored.kind == PLAIN and chunk.encryption is not None:
        raise UnsupportedError("the column is encrypted and its filter is not: everybody can test "
                               "which values it has. Mend that with seal, or with replace",
                               **chunk.place)
    return stored is None
