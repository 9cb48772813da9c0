"""Which row groups of the files of a data set a filter needs, according to indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from secure_bloom.arrow.masking import OnMissingKey
from secure_bloom.datasets.dataset_file import DatasetFile
from secure_bloom.index.planning import FolderIndexes, IndexUse, KnownFile, check_index_use
from secure_bloom.pruning.expressions import RowGroupFilter


class Selected(NamedTuple):
    """The row groups of a file where a filter may hold, if it is still as it was listed."""

    file: KnownFile
    row_groups: list[int]


def index_use(index: IndexUse, on_missing_key: OnMissingKey) -> IndexUse:
    """Return how to use indexes if columns may be masked: which are, only their files tell.

    Raises
    ------
    ValueError
        If ``index`` has another value, or is "require" although it cannot be used.
    """
    check_index_use(index)
    if on_missing_key == "error":
        return index
    if index == "require":
        raise ValueError('index must not be "require" together with on_missing_key="null", for '
                         'which every file is opened')
    return "off"


def select(files: Sequence[DatasetFile], indexes: FolderIndexes | None,
           filters: Sequence[RowGroupFilter]) -> dict[str, Selected]:
    """Return, by path, the row groups where all filters may hold, of files in an index.

    Files of which an index knows nothing are not in the result.
    """
    if indexes is None or not any(one.alternatives for one in filters):
        return {}
    if not any(p.column in indexes.columns and p.candidates for one in filters
               for alternative in one.alternatives or () for p in alternative):
        return {}
    listed = indexes.recent or indexes.listed()
    found: dict[str, Selected] = {}
    for some in _alike(files):
        paths, excluded = [file.path for file in some], some[0].partition_values
        for one in filters:
            alternatives = one.alternatives_for(some[0].schema)
            for path, groups in listed.select(paths, alternatives, excluded).items():
                known = listed.known_files[path]
                if known.schema is not some[0].schema and known.schema != some[0].schema:
                    continue  # it was replaced since then
                if path in found:
                    groups = [group for group in groups if group in found[path].row_groups]
                found[path] = Selected(known, groups)
    return found


def _alike(files: Sequence[DatasetFile]) -> list[list[DatasetFile]]:
    """Group files by their schema; those that are restricted to row groups are left out."""
    found: dict[int, list[DatasetFile]] = {}
    for file in files:
        if file.row_groups is None:
            found.setdefault(id(file.schema), []).append(file)
    return list(found.values())
