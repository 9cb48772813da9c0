"""Which rows of a file may match a filter, as an index says: some row groups, and parts of each.

Parts are bits, as in :mod:`.row_ranges`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from secure_bloom.parquet.row_ranges import ALL_PARTS

#: by row group: its parts
FoundRows: TypeAlias = Mapping[int, int]

NO_ROWS: FoundRows = MappingProxyType({})  #: most files have none: they share it


def parts_in(found: FoundRows | None, row_group: int) -> int:
    """Return the parts of a row group that is read; all if nothing is known of it."""
    return ALL_PARTS if found is None else found.get(row_group, ALL_PARTS)


def both(one: FoundRows, other: FoundRows) -> FoundRows:
    """Return the rows that are in both."""
    return {group: parts & other[group] for group, parts in one.items()
            if parts & other.get(group, 0)}


def either(one: FoundRows, other: FoundRows) -> FoundRows:
    """Return the rows that are in one of the two."""
    if not one or not other:
        return one or other
    return {group: one.get(group, 0) | other.get(group, 0)
            for group in sorted({*one, *other})}
