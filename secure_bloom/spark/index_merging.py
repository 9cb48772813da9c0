"""Merge segments of an index, distributed over a Spark cluster.

Pages are in the order of fingerprints. So each task merges the pages of one slice of the
fingerprints from all segments, and writes them in a separate file, a part of the new segment. The
driver writes the rest: directory, file table and footer. Parts have no effect until the segment is
published, so attempts that fail or are repeated are harmless; ``vacuum`` deletes what they leave.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from secure_bloom.errors import ChangedMeanwhileError
from secure_bloom.index.building import BUDGET
from secure_bloom.index.column_index import ColumnIndex
from secure_bloom.index.column_segments import SentKey
from secure_bloom.index.compaction import compact, merge_here
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.index import Index
from secure_bloom.index.later_errors import change_each
from secure_bloom.index.merging import Keep, MergePlan
from secure_bloom.index.sealing import ID_SIZE
from secure_bloom.index.segment import Segment
from secure_bloom.index.segment_info import SegmentInfo
from secure_bloom.index.segment_writer import WrittenPart, write_after_parts, write_part
from secure_bloom.index.table import Table
from secure_bloom.keys.keyring import Keyring
from secure_bloom.spark.options.kms import client_or_none, uri_for_tasks
from secure_bloom.spark.options.options import locate
from secure_bloom.spark.tasks import run_tasks
from secure_bloom.storage.files import FilePath

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASK_PAIRS = 1 << 25  # a task merges about as many, in a few seconds


def compact_index(spark: SparkSession, path: FilePath, columns: str | Iterable[str] | None = None,
                  *, keys: Keyring | FilePath | None = None) -> int:
    """Merge all segments of each column, without files that do not exist any more.

    This is :meth:`secure_bloom.index.Index.compact` for an index that is too large for one machine.
    Each task merges one slice of the fingerprints and writes it; the driver publishes the slices
    together, as one segment. Up to 67 million values are merged on the driver.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        Classic or Connect.
    path : str or path
        The folder of the table; the driver and all executors must be able to access it.
    columns : str or iterable of str, optional
        Dotted paths of the columns whose indexes are merged. Default: all indexed columns.
    keys : str, path or Keyring, optional
        The path of a keyring, or the URI of a KMS. Of a Keyring, only the path is used. Tasks do
        not need it: the driver sends them the keys of the indexes. Default: as set in the
        environment of this process.

    Returns
    -------
    int
        The number of segments that were merged. Their files remain until
        :meth:`secure_bloom.index.Index.vacuum`.

    Raises
    ------
    ColumnError
        If a column has no index.
    KeyRetrievalError
        If the master key of a column is missing, denied or wrong.
    AuthenticationError, FormatError
        If a manifest or the end of a segment was changed, or is damaged.
    ChangedMeanwhileError
        If another program has deleted a part before all were written.
    FileNotFoundError
        If the table has no index.
    pyspark.errors.PySparkException
        If a task fails. The index is not changed then.

    Examples
    --------
    >>> secure_bloom.spark.compact_index(spark, "/data/people")  # doctest: +SKIP
    """
    root = str(path)
    filesystem, folder = locate(root)
    kms = client_or_none(uri_for_tasks(keys))
    table = Table.at(folder, filesystem)
    chosen = Index.open(folder, kms, filesystem=filesystem).chosen(columns)
    folders = [IndexFolder(filesystem, table.path, column) for column in chosen]
    return sum(change_each(folders, lambda one: compact(table, one, kms, BUDGET,
                                                        SparkMerge(spark, root))))


class SparkMerge:
    """Merges segments in tasks, or in this process if there are few values.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
    root : str
        The table, as the user has named it: tasks open its filesystem.
    """

    def __init__(self, spark: SparkSession, root: str):
        self._spark, self._root = spark, root

    def __call__(self, index: ColumnIndex, segments: Sequence[Segment], keep: Keep,
                 budget: int) -> SegmentInfo:
        """Write one segment with the files of several that are kept."""
        pairs = sum(segment.pairs for segment in segments)
        if pairs < 2 * _TASK_PAIRS:
            return merge_here(index, segments, keep, budget)
        plan, files = MergePlan.of(segments, keep, budget)
        task_bits = min(plan.slice_bits, (pairs // _TASK_PAIRS - 1).bit_length())
        folder, segment_id = index.folder, os.urandom(ID_SIZE)
        work = partial(_merge_slice, self._root, folder.table, folder.column,
                       SentKey(index.manifest), segment_id, plan,
                       [segment.info for segment in segments], task_bits)
        parts = run_tasks(self._spark, work, range(1 << task_bits))
        info = write_after_parts(folder.filesystem, folder.path, index.manifest.key, segment_id,
                                 segments[0].column_type, plan.geometry, parts, files)
        _check_stored(folder, info)
        return info


def _merge_slice(root: str, table: str, column: str, key: SentKey, segment_id: bytes,
                 plan: MergePlan, segments: list[SegmentInfo], task_bits: int,
                 number: int) -> WrittenPart:
    """Merge one of ``2**task_bits`` slices, and write it. The pickle of ``key`` contains the key.
    """
    folder = IndexFolder(locate(root)[0], table, column)
    folder.check_inside()
    opened = [Segment(info, key.key.segment(bytes.fromhex(info.id)), folder.open_segment(info))
              for info in segments]
    count = 1 << plan.slice_bits - task_bits
    first = number * count
    slices = plan.slices(folder.path, opened, range(first, first + count))
    return write_part(folder.filesystem, folder.path, key.key, segment_id, plan.geometry, slices,
                      plan.slice_bits, first)


def _check_stored(folder: IndexFolder, info: SegmentInfo) -> None:
    """Raise ChangedMeanwhileError if a file of a new segment is missing, or has another size."""
    own = info.size - info.parts_size
    sizes = {part.name: part.size for part in info.parts} | {info.name: own}
    paths = [folder.segment_path(name) for name in sizes]
    for found, size in zip(folder.filesystem.get_file_info(paths), sizes.values(), strict=True):
        if found.size != size:
            raise ChangedMeanwhileError(
                "this new part of the index is missing or incomplete; another program may have "
                "deleted it: vacuum with a longer grace period than a merge takes, and try again",
                file=found.path, column=folder.column)
