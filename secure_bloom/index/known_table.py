"""Files all of which an index knows, so that a lookup touches only those that it finds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa

from secure_bloom.index.column_index import ColumnIndex
from secure_bloom.index.coverage import Coverage, Place
from secure_bloom.index.lookup import found_rows
from secure_bloom.index.manifest import Listed
from secure_bloom.index.planning import FolderIndexes, ListedIndexes, hashes_of
from secure_bloom.pruning.expressions import Alternatives
from secure_bloom.pruning.found_rows import FoundRows, both, either
from secure_bloom.pruning.predicates import Predicate


class FoundFiles(NamedTuple):
    """The files that may have rows for which a filter holds, and these rows, by path."""

    listed: ListedIndexes
    rows: dict[str, FoundRows]


class KnownTable:
    """Files of one schema, all of which an index covers.

    Attributes
    ----------
    schema : pyarrow.Schema
        Of all files.
    totals : Listed
        Of all files; their folders are known, and relative to the folder that is read.
    """

    def __init__(self, indexes: FolderIndexes, index: ColumnIndex, coverage: Coverage,
                 schema: pa.Schema, totals: Listed):
        self._indexes, self._index, self._coverage = indexes, index, coverage
        self.schema, self.totals = schema, totals

    @classmethod
    def unlisted(cls, indexes: FolderIndexes, columns: Iterable[str]) -> KnownTable | None:
        """Return what one of some indexed columns knows of a table that need not be listed.

        None if it must be listed.
        """
        if not indexes.is_of_whole_table or indexes.opens_all:
            return None
        for column in columns:
            index, generation = indexes.open_first(column)
            if index is None or not indexes.trusts_generation(index):
                continue
            listed, coverage = index.manifest.body.listed, index.trusted(generation)
            if coverage is None or listed is None or listed.folders is None or not listed.files:
                continue
            if indexes.check(index, coverage) and index.only_schema is not None:
                return cls(indexes, index, coverage, index.only_schema, listed)
        return None

    @classmethod
    def listed(cls, listed: ListedIndexes, columns: Iterable[str]) -> KnownTable | None:
        """Return what one of some indexed columns knows of listed files; None: not all of them."""
        if listed.indexes.opens_all or not listed.listing:
            return None
        for column in columns:
            opened = listed.opened(column)
            if opened is None or opened[1].uncovered or opened[0].only_schema is None:
                continue
            index, coverage = opened
            totals = Listed.of(listed.listing, index.num_row_groups(coverage),
                               listed.indexes.table.prefix(listed.indexes.folder))
            return cls(listed.indexes, index, coverage, opened[0].only_schema, totals)
        return None

    def select(self, alternatives: Alternatives, excluded: Iterable[str]) -> FoundFiles | None:
        """Return the files in which a filter may hold; None if the index does not tell.

        ``excluded`` are columns whose values do not come from the files.
        """
        column = self._index.column
        if alternatives is None or column in excluded:
            return None
        # Each page of the index may be damaged, also one that says which files it covers.
        return self._indexes.attempt(column, lambda: self._selected(alternatives))

    def _selected(self, alternatives: Iterable[Iterable[Predicate]]) -> FoundFiles | None:
        column = self._index.column
        places: dict[str, Place] = {}
        union: dict[str, FoundRows] = {}
        for alternative in alternatives:
            wanted = [p for p in alternative if p.column == column and p.candidates]
            found = self._of_all(wanted, places)
            if found is None:
                return None
            union = {path: either(union.get(path, {}), found.get(path, {}))
                     for path in {**union, **found}}
        entries = {path: self._index.entry(places[path]) for path in union}
        listed = ListedIndexes.of_known(self._indexes, self._index, entries, places)
        prefix = self._indexes.table.full_path("")
        return FoundFiles(listed, {prefix + path: rows for path, rows in union.items()})

    def _of_all(self, predicates: list[Predicate], places: dict[str, Place]) \
            -> dict[str, FoundRows] | None:
        """Return the rows for which all predicates may hold, and note the places of their files."""
        common: dict[str, FoundRows] | None = None
        for predicate in predicates:
            found = self._of_values(predicate.candidates, places)
            if found is None:
                return None
            common = found if common is None else {
                path: both(rows, found[path]) for path, rows in common.items() if path in found}
        return common

    def _of_values(self, values: Any, places: dict[str, Place]) -> dict[str, FoundRows] | None:
        hits = self._index.find_hashes(hashes_of(values))
        if any(one.unanswered.size for one in hits):
            return None
        rows, found = found_rows(self._coverage, hits)
        places |= found
        return rows
