"""Build or update the indexes of a table, distributed over a Spark cluster.

Tasks read files, and write segments. The driver publishes them. A segment has no effect until then,
so attempts that fail or are repeated are harmless; ``vacuum`` deletes what they leave.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from secure_bloom.arguments import names_of_columns
from secure_bloom.index.building import BUDGET
from secure_bloom.index.column_segments import SegmentMaker, SentKey
from secure_bloom.index.stamps import Stamp
from secure_bloom.index.table import Table
from secure_bloom.index.update import (
    Added,
    IndexEncryption,
    TableUpdate,
    UpdateResult,
    add_files,
    create_index,
)
from secure_bloom.keys.keyring import Keyring
from secure_bloom.spark.index_merging import SparkMerge
from secure_bloom.spark.options.kms import client_or_no_keys, client_or_none, uri_for_tasks
from secure_bloom.spark.options.options import locate
from secure_bloom.spark.tasks import run_tasks
from secure_bloom.storage.files import FilePath

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASK_BYTES = 256 * 2**20
_OPEN_COST = 4 * 2**20  # as many bytes could be read in the time of opening a file
_MAX_TASKS = 10_000


def build_index(spark: SparkSession, path: FilePath, columns: str | Iterable[str], *,
                keys: Keyring | FilePath | None = None, encryption: IndexEncryption = "column",
                exclusive: bool = False) -> UpdateResult:
    """Build the indexes of some columns of a table, or update those that exist.

    Tasks read these columns and write segments; the driver publishes all of them together. The
    keys of the indexes are sent to the tasks as the key-encryption keys of a write are.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        Classic or Connect.
    path : str or path
        The folder of the table; the driver and all executors must be able to access it.
    columns : str or iterable of str
        Dotted paths of columns that can have a Bloom filter.
    keys : str, path or Keyring, optional
        The path of a keyring, or the URI of a KMS, which the workers need as well. Of a Keyring,
        only the path is used. Default: as set in the environment of this process.
    encryption : {"column", None}
        How a new index is encrypted, as for :func:`secure_bloom.index.build`.
    exclusive : bool
        Whether only jobs of secure_bloom add and remove files of the table, as there.

    Returns
    -------
    UpdateResult

    Raises
    ------
    ColumnError
        If no file has the column, or it cannot have a Bloom filter.
    UnsupportedError
        If the encryption does not fit: an index with encryption of an open column, or the reverse.
    KeyRetrievalError
        If a key is missing, denied or wrong, or the KMS does not respond.
    FileNotFoundError
        If the folder does not exist, or has no Parquet files.
    pyspark.errors.PySparkException
        If a task fails as a whole. Nothing is published then.

    Examples
    --------
    >>> secure_bloom.spark.build_index(spark, "/data/people", "ssn")  # doctest: +SKIP
    """
    wanted = names_of_columns(columns)
    root = str(path)
    filesystem, folder = locate(root)
    uri = uri_for_tasks(keys)
    table, kms = Table.at(folder, filesystem), client_or_none(uri)
    listing = table.listing()
    for column in wanted:
        create_index(table, column, kms, encryption, listing, exclusive)
    update = TableUpdate(table, wanted, kms)
    files = [_File(name, update.listing[name], names) for name, names in update.wanting.items()]
    work = partial(_write_segments, root, table.path, uri, update.now,
                   {one.column: _Column(one.key, one.earlier) for one in update.columns})
    added = run_tasks(spark, work, _tasks(files)) if files else []
    return update.finish(added, BUDGET, SparkMerge(spark, root))


class _File(NamedTuple):
    """A file to cover, and by the indexes of which columns."""

    path: str
    stamp: Stamp
    columns: list[str]


class _Column(NamedTuple):
    """What a task needs to make a segment of a column."""

    key: SentKey
    earlier: Mapping[str, Any]


def _write_segments(root: str, folder: str, uri: str | None, now: int | None,
                    columns: dict[str, _Column], files: list[_File]) -> Added:
    """Write segments for some files, and return what is to be published.

    The pickle of ``columns`` contains the keys of the indexes.
    """
    table = Table(locate(root)[0], folder)
    makers = {column: SegmentMaker(table.filesystem, table.path, column, one.key, one.earlier,
                                   BUDGET // len(columns)) for column, one in columns.items()}
    return add_files(table, client_or_no_keys(uri), now, makers,
                     {file.path: (file.stamp, file.columns) for file in files})


def _tasks(files: list[_File]) -> list[list[_File]]:
    """Divide the files among tasks, in their order."""
    total = sum(file.stamp.size + _OPEN_COST for file in files)
    limit = max(min(_TASK_BYTES, total // (os.cpu_count() or 1)), total // _MAX_TASKS)
    tasks: list[list[_File]] = []
    room = 0
    for file in files:
        if room <= 0:
            tasks.append([])
            room = limit
        tasks[-1].append(file)
        room -= file.stamp.size + _OPEN_COST
    return tasks
