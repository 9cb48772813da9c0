"""The few files of a folder that a condition needs, where an index knows all of them.

Nothing is prepared for the other ones. If the folder need not be listed, nothing grows with the
number of its files.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence, Set
from functools import lru_cache
from itertools import compress
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.arrow.row_filter import RowFilter
from secure_bloom.datasets.partitions import PossiblePartitions, find_partitions, partitions_as
from secure_bloom.datasets.schemas import common_schema
from secure_bloom.datasets.selection import Selection
from secure_bloom.datasets.sources import Files, Narrowed
from secure_bloom.index.known_table import KnownTable
from secure_bloom.index.planning import FolderIndexes, ListedIndexes
from secure_bloom.pruning.expressions import columns_of
from secure_bloom.pruning.predicates import Condition
from secure_bloom.storage.hive_partitioning import partition_values

if TYPE_CHECKING:
    import pyarrow.compute as pc

#: returns the condition for the schema of the files, or None if it is not known
ConditionFor: TypeAlias = "Callable[[pa.Schema], Condition | None]"


def narrowed(columns: Set[str] | None, condition_for: ConditionFor,
             found: FolderIndexes | ListedIndexes, given: pa.Schema | None = None,
             possible: PossiblePartitions | None = None) -> Files | None:
    """Return the files in which a condition may hold; None if no index tells for all files.

    Parameters
    ----------
    columns : set of str or None
        Those that the condition compares; None: perhaps any.
    condition_for : callable
    found : FolderIndexes or ListedIndexes
        Indexes of the folder; before and after its files were listed.
    given : pyarrow.Schema, optional
        The schema of the table, if the caller gives one.
    possible : PossiblePartitions, optional
        Files in others are left out.

    Raises
    ------
    ColumnError, PredicateError
        As for :class:`.RowFilter`.
    """
    some = [column for column in found.columns
            if columns is None or not columns.isdisjoint({column, column.partition(".")[0]})]
    table = KnownTable.listed(found, some) if isinstance(found, ListedIndexes) \
        else KnownTable.unlisted(found, some)
    condition = None if table is None else condition_for(table.schema)
    if table is None or condition is None:
        return None
    indexes = found.indexes if isinstance(found, ListedIndexes) else found
    filesystem, folder = indexes.table.filesystem, indexes.folder
    known_folders = table.totals.folders or ()
    if given is None:
        partition_schema, known_partitions = _partitions(known_folders)
        row_filter = RowFilter(condition, common_schema([folder], [table.schema], partition_schema))
    else:
        row_filter = RowFilter(condition, given)
    few = table.select(row_filter.alternatives_for(table.schema), _names(known_folders))
    if few is None:
        return None
    start = len(indexes.table.full_path(indexes.table.prefix(folder)))
    paths = sorted(few.rows)
    folders = [posixpath.dirname(path[start:]) for path in paths]
    partitions: Sequence[pc.Expression | None]
    if given is None:
        if not known_partitions.keys() >= set(folders):
            return None
        partitions = list(map(known_partitions.get, folders))
    else:
        if possible is not None:
            paths = list(compress(paths, possible.enters(folders)))
        partition_schema, partitions = partitions_as(given, {path: path[start:] for path in paths})
    files = Files(folder, filesystem, paths, partition_schema, partitions, few.listed)
    known = [one for path in paths if (one := few.listed.known_files.get(path)) is not None]
    return files._replace(narrowed=Narrowed(
        table.schema, Selection(few.listed, few.rows), table.totals.files - len(paths),
        table.totals.row_groups - sum(one.num_row_groups for one in known),
        table.totals.bytes - sum(one.stamp.size for one in known)))


def compared(condition: Condition) -> frozenset[str] | None:
    """Return the columns that a condition compares, or groups of them; None: perhaps any."""
    if isinstance(condition, list):
        return frozenset(p.column for alternative in condition for p in alternative)
    names = columns_of(condition)
    return None if names is None else frozenset(names)


@lru_cache(maxsize=16)
def _names(folders: tuple[str, ...]) -> frozenset[str]:
    """Return the names of the partition columns of a table."""
    return frozenset(name for folder in folders for name in partition_values(f"{folder}/"))


@lru_cache(maxsize=16)
def _partitions(folders: tuple[str, ...]) -> tuple[pa.Schema, dict[str, pc.Expression | None]]:
    """Return the partition columns of a table by its folders, and their values in each of these."""
    # As their names tell it all, the filesystem does not matter.
    schema, partitions = find_partitions(pa_fs.LocalFileSystem(),
                                         [posixpath.join(folder, "file") for folder in folders])
    return schema, dict(zip(folders, partitions, strict=True))
