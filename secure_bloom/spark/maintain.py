"""Attach filters and offset indexes to the files of a folder, distributed over a Spark cluster."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow.fs as pa_fs

from secure_bloom.errors import UnsupportedError
from secure_bloom.keys.keyring import Keyring
from secure_bloom.maintain.attach import filters_for_files, planner_for
from secure_bloom.maintain.folders import MaintainResult, change_files, without_mistake
from secure_bloom.maintain.mistakes import Mistakes
from secure_bloom.maintain.tables import check_no_table
from secure_bloom.sbbf.options import BloomFilterOptions, BloomFilters
from secure_bloom.spark.options.kms import client_or_no_keys, uri_for_tasks
from secure_bloom.spark.options.options import locate
from secure_bloom.spark.tasks import run_tasks
from secure_bloom.storage.files import FilePath
from secure_bloom.storage.inside import check_below
from secure_bloom.storage.visibility import parquet_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def attach(spark: SparkSession, path: FilePath, bloom_filters: BloomFilters = None, *,
           keys: Keyring | FilePath | None = None, replace: bool = False,
           page_index: bool = False, dry_run: bool = False) -> MaintainResult:
    """Add Bloom filters and offset indexes to the files of a folder, one task for each file.

    Only the pages of these columns are read, a few at a time. Filters of encrypted columns are
    encrypted with the column's key; all others are plain. A retried task finds the filters that
    the first attempt added, and keeps them.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        Classic or Connect.
    path : str or path
        The folder, as given to ``save``; the driver and all executors must be able to access it.
    bloom_filters : bool, iterable of str, or mapping, optional
        The leaf columns that get a filter. ``True``: every column of each file that can have one.
        A list names them by dotted path. A mapping from paths also sets the options of each:
        ``True``, BloomFilterOptions, a dict of its fields such as ``{"fpp": 0.001}``, or
        ``False``. Required without ``page_index``.
    keys : str, path or Keyring, optional
        The path of a keyring, or the URI of a KMS, which the workers need as well. Of a Keyring,
        only the path is used. Default: as set in the environment of this process.
    replace : bool
        Rebuild existing filters. Otherwise they are kept unchanged.
    page_index : bool
        Also add an offset index to every column without one, see :func:`secure_bloom.attach`.
    dry_run : bool
        Only report what would be done.

    Returns
    -------
    MaintainResult
        A file that could not be changed is listed in ``failed``.

    Raises
    ------
    FileNotFoundError
        If the folder does not exist.
    UnsupportedError
        If the files belong to a table that records their sizes elsewhere.
    ColumnError
        If no file of the folder has such a column, or the column cannot have a filter in any file.

    Examples
    --------
    >>> secure_bloom.spark.attach(spark, "/data/people", ["ssn"])  # doctest: +SKIP
    """
    wanted = filters_for_files(bloom_filters, page_index=page_index)
    root = str(path)
    filesystem, folder = locate(root)
    paths = parquet_files(filesystem, folder)
    check_no_table(filesystem, folder, paths)
    outside = _outside(filesystem, folder, paths)
    work = partial(_attach_to_one, root, uri_for_tasks(keys), wanted, replace, page_index, dry_run)
    result = MaintainResult(dry_run=dry_run, failed=outside)
    inside, mistakes = [one for one in paths if one not in outside], Mistakes()
    for one, done in zip(inside, run_tasks(spark, work, inside), strict=True):
        result.changed += done.changed
        result.unchanged += done.unchanged
        result.failed |= done.failed
        if done.mistake is not None:
            mistakes.add(one, done.mistake)
    return without_mistake(result, mistakes, len(paths))


def _outside(filesystem: pa_fs.FileSystem, folder: str, paths: list[str]) -> dict[str, str]:
    """Return the files that links lead to from the folder, and why they are not changed."""
    found = {}
    for path in paths:
        try:
            check_below(filesystem, folder, path)
        except UnsupportedError as error:
            found[path] = error.message
    return found


def _attach_to_one(root: str, uri: str | None, bloom_filters: bool | dict[str, BloomFilterOptions],
                   replace: bool, page_index: bool, dry_run: bool, path: str) -> MaintainResult:
    """Attach filters to a file."""
    filesystem, folder = locate(root)
    planner = planner_for(bloom_filters, replace=replace, page_index=page_index)
    return change_files(path, client_or_no_keys(uri), planner, dry_run=dry_run,
                        filesystem=filesystem, files_at_once=1, folder=folder)
