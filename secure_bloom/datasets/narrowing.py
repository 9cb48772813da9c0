"""The few files of a folder that a condition needs, where an index knows all of them.

Then the folder is not listed, and nothing grows with the number of its files.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Set
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.arrow.row_filter import RowFilter
from secure_bloom.datasets.partitions import find_partitions
from secure_bloom.datasets.schemas import common_schema
from secure_bloom.datasets.sources import Files, Narrowed
from secure_bloom.index.planning import FolderIndexes
from secure_bloom.index.trusted_table import TrustedTable
from secure_bloom.pruning.expressions import columns_of
from secure_bloom.pruning.predicates import Condition

if TYPE_CHECKING:
    import pyarrow.compute as pc

#: returns the condition for the schema of the files, or None if it is not known
ConditionFor: TypeAlias = "Callable[[pa.Schema], Condition | None]"


def narrowed(columns: Set[str] | None, condition_for: ConditionFor,
             indexes: FolderIndexes) -> Files | None:
    """Return the files in which a condition may hold; None if all must be listed.

    Parameters
    ----------
    columns : set of str or None
        Those that the condition compares; None: perhaps any.
    condition_for : callable
    indexes : FolderIndexes
        Of the folder.

    Raises
    ------
    ColumnError, PredicateError
        As for :class:`.RowFilter`.
    """
    table = TrustedTable.find(indexes, [
        column for column in indexes.columns
        if columns is None or not columns.isdisjoint({column, column.partition(".")[0]})])
    condition = None if table is None else condition_for(table.schema)
    if table is None or condition is None:
        return None
    filesystem, folder = indexes.table
    partition_schema, partitions = _partitions(table.listed.folders or ())
    schema = common_schema([folder], [table.schema], partition_schema)
    row_filter = RowFilter(condition, schema)
    found = table.select(row_filter.alternatives_for(table.schema), partition_schema.names)
    if found is None:
        return None
    paths = sorted(found.rows)
    start = len(indexes.table.full_path(""))
    folders = [posixpath.dirname(path[start:]) for path in paths]
    if not partitions.keys() >= set(folders):
        return None
    files = Files(folder, filesystem, paths, partition_schema, list(map(partitions.get, folders)),
                  found.listed)
    known = [one for path in paths if (one := found.listed.known_files.get(path)) is not None]
    listed = table.listed
    return files._replace(narrowed=Narrowed(
        table.schema, found.rows, listed.files - len(paths),
        listed.row_groups - sum(one.num_row_groups for one in known),
        listed.bytes - sum(one.stamp.size for one in known)))


def compared(condition: Condition) -> frozenset[str] | None:
    """Return the columns that a condition compares, or groups of them; None: perhaps any."""
    if isinstance(condition, list):
        return frozenset(p.column for alternative in condition for p in alternative)
    names = columns_of(condition)
    return None if names is None else frozenset(names)


@lru_cache(maxsize=16)
def _partitions(folders: tuple[str, ...]) -> tuple[pa.Schema, dict[str, pc.Expression | None]]:
    """Return the partition columns of a table by its folders, and their values in each of these."""
    # As their names tell it all, the filesystem does not matter.
    schema, partitions = find_partitions(pa_fs.LocalFileSystem(),
                                         [posixpath.join(folder, "file") for folder in folders])
    return schema, dict(zip(folders, partitions, strict=True))
