"""Which row groups of the files of a data set a filter needs, according to indexes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from secure_bloom.datasets.dataset_file import ROW_GROUP, DatasetFile
from secure_bloom.pruning.expressions import RowGroupFilter
from secure_bloom.pruning.found_rows import FoundRows, both

if TYPE_CHECKING:
    from secure_bloom.index.identity import Identity
    from secure_bloom.index.known_files import KnownFile
    from secure_bloom.index.planning import Indexes, ListedIndexes


class Selected(NamedTuple):
    """The rows of a file for which a filter may hold, if it is still as it was listed.

    ``identity`` is what the indexes say of the file; ``columns`` are those whose indexes cover it.
    """

    file: KnownFile
    rows: FoundRows
    identity: Identity | None
    columns: Collection[str]


class Selection:
    """The rows of files for which filters may hold, as far as indexes tell."""

    def __init__(self, listed: ListedIndexes | None = None,
                 rows: Mapping[str, FoundRows] = MappingProxyType({})):
        self._listed, self._rows = listed, rows

    def of(self, file: DatasetFile) -> Selected | None:
        """Return what is selected of a file; None if no index tells."""
        rows = self._rows.get(file.path)
        if rows is None or self._listed is None:
            return None
        known = self._listed.known_files.get(file.path)
        if known is None or not (known.schema is file.schema or known.schema.equals(file.schema)):
            return None  # in the last case it was replaced after the data set was opened
        if not file.is_of(known.stamp, identity := self._listed.identity(file.path)):
            return None
        # The columns of files that are skipped are not needed.
        return Selected(known, rows, identity, self._listed.covering(file.path) if rows else ())


def select(files: Sequence[DatasetFile], indexes: Indexes | None,
           filters: Sequence[RowGroupFilter]) -> Selection:
    """Return the rows for which all filters may hold, of files that an index covers."""
    if indexes is None or not any(
            p.column in indexes.columns and p.candidates for one in filters
            for alternative in one.alternatives or () for p in alternative):
        return Selection()
    listed = indexes.listed()
    rows: dict[str, FoundRows] = {}
    alike = _alike(files)
    for some in alike:
        own = {ROW_GROUP} if some[0].access.with_source else set()  # no column of the file
        found = where_all_may_hold(listed, some[0].schema, own.union(some[0].partition_values),
                                   filters)
        if len(alike) > 1:
            found = {file.path: found[file.path] for file in some if file.path in found}
        rows = {**rows, **found} if rows else found
    return Selection(listed, rows)


def where_all_may_hold(listed: ListedIndexes, schema: pa.Schema, others: Collection[str],
                       filters: Sequence[RowGroupFilter]) -> dict[str, FoundRows]:
    """Return rows by path, for files of a schema.

    ``others`` are columns of the result that are not in the files.
    """
    found: dict[str, FoundRows] = {}
    for one in filters:
        alternatives = one.alternatives_for(schema)
        selected = listed.select(alternatives, others)
        found = {**found, **selected, **{
            path: both(rows, selected[path])
            for path, rows in found.items() if path in selected}} if found else selected
    return found


def _alike(files: Sequence[DatasetFile]) -> list[list[DatasetFile]]:
    """Group files by their columns and types, and by the columns that come from their paths.

    Those that are restricted to row groups are left out.
    """
    schemas = {id(file.schema): file.schema for file in files}
    numbers: dict[tuple[Any, ...], int] = {}  # equal for schemas that differ in metadata only
    kinds = {key: numbers.setdefault(tuple((field.name, field.type) for field in schema), key)
             for key, schema in schemas.items()}
    found: dict[tuple[int, tuple[str, ...]], list[DatasetFile]] = {}
    for file in files:
        if file.row_groups is None:
            alike = kinds[id(file.schema)], tuple(file.partition_values)
            found.setdefault(alike, []).append(file)
    return list(found.values())
