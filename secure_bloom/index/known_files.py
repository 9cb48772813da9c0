"""What indexes know of files as they are listed now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from secure_bloom.index.column_index import ColumnIndex
from secure_bloom.index.coverage import Coverage
from secure_bloom.index.stamps import Stamp
from secure_bloom.index.table import Table

_FEW = 100  # files of which the schemas are looked up one by one


class KnownFile(NamedTuple):
    """What an index knows of a file as it is listed now."""

    stamp: Stamp
    schema: pa.Schema
    num_row_groups: int
    num_rows: int


class KnownFiles:
    """What indexes know of the files of a table, by path in the filesystem."""

    def __init__(self, table: Table, listing: Mapping[str, Stamp],
                 indexes: list[tuple[ColumnIndex, Coverage]]):
        self._prefix, self._listing, self._indexes = table.full_path(""), listing, indexes

    def schemas(self, paths: Sequence[str]) -> list[pa.Schema] | None:
        """Return the schemas of files, equal ones as one object; None unless all are known."""
        start = len(self._prefix)
        for index, coverage in self._indexes:
            found = map(coverage.places.get, [path[start:] for path in paths])
            places = [place for place in found if place is not None]
            if len(places) == len(paths):
                return list(map(index.schema, places)) if len(places) <= _FEW \
                    else index.schemas(places)
        return None

    def get(self, path: str) -> KnownFile | None:
        """Return what is known of a file."""
        relative = path.removeprefix(self._prefix)
        for index, coverage in self._indexes:
            place = coverage.places.get(relative)
            if place is not None:
                entry = index.entry(place)
                return KnownFile(self._listing[relative], index.schema(place), entry.row_groups,
                                 entry.rows)
        return None
