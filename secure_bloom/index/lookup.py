"""Where values may be, according to an index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from secure_bloom.display import Result, count
from secure_bloom.index.column_index import ColumnIndex, Found, Hits
from secure_bloom.index.coverage import Coverage, Place
from secure_bloom.pruning.found_rows import FoundRows
from secure_bloom.sbbf.probes import as_arrays, is_plain, is_scalar


@dataclass(frozen=True, repr=False)
class Lookup(Result):
    """Where values may be.

    Attributes
    ----------
    row_groups : list of dict of str to list of int
        For each value, the row groups that may have it, by the path of the file, relative to the
        table; only of covered files.
    uncovered : list of str
        Files that the index does not cover: they may have any value.
    num_files : int
        Number of files that were listed.
    """

    row_groups: list[dict[str, list[int]]]
    uncovered: list[str] = field(default_factory=list)
    num_files: int = 0

    def _headline(self) -> str:
        found = {path for groups in self.row_groups for path in groups}
        return (f"{len(found):,} of {count(self.num_files, 'file')} may have one of "
                f"{count(len(self.row_groups), 'value')}, {len(self.uncovered):,} not covered")


def look_up(index: ColumnIndex, coverage: Coverage, values: Any) -> Lookup:
    """Look values up in the files that an index covers."""
    if is_scalar(values):
        values = [values]
    elif isinstance(values, np.ndarray):
        values = np.atleast_1d(values)
    elif not isinstance(values, pa.Array | pa.ChunkedArray):
        values = list(values)  # positions of a Series may have other labels
    nulls = _nulls(values)
    is_one = len(values) == 1 and is_scalar(values[0])  # which is looked up in less time
    if is_one and not nulls and (rows := index.find_one(values[0])) is not None:
        return _lookup(coverage, [_groups_by_path(coverage, rows)])
    found: list[dict[str, list[int]]] = [{} for _ in range(len(values))]
    several: set[int] = set()  # values that are not in a single row group, as nearly all are
    for hits in index.find(values[0] if is_one else values):
        for value, path, group in zip(hits.values.tolist(), _covered_paths(coverage, hits),
                                      hits.row_groups.tolist(), strict=True):
            if path is None:
                continue
            of_value = found[value]
            if of_value:
                several.add(value)
                of_value.setdefault(path, []).append(group)
            else:
                of_value[path] = [group]
        for value in hits.unanswered.tolist():
            several.add(value)
            found[value].update(all_row_groups(index, coverage, hits.segment))
    for value in nulls:
        several.add(value)
        for segment in range(len(index.segments)):
            found[value].update(all_row_groups(index, coverage, segment))
    for value in several:
        found[value] = _in_order(found[value])
    return _lookup(coverage, found)


def _lookup(coverage: Coverage, found: list[dict[str, list[int]]]) -> Lookup:
    uncovered = coverage.uncovered
    return Lookup(found, uncovered, coverage.num_covered + len(uncovered))


def _groups_by_path(coverage: Coverage, rows: list[Found]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for path, place, group in rows:
        if path is not None and coverage.covers(path, place):
            found.setdefault(path, []).append(group)
    return _in_order(found) if len(rows) > 1 else found


def located(coverage: Coverage, hits: Hits) -> Iterator[tuple[int, str, int, int, int]]:
    """Yield hits in covered files: number of the value; path, number, row group, and its parts."""
    for value, path, file, group, parts in zip(
            hits.values.tolist(), _covered_paths(coverage, hits), hits.files.tolist(),
            hits.row_groups.tolist(), hits.parts.tolist(), strict=True):
        if path is not None:
            yield value, path, file, group, parts


def _covered_paths(coverage: Coverage, hits: Hits) -> list[str | None]:
    """Return the paths of hits; None where the file is not covered."""
    if coverage.covers_all_entries:
        return hits.paths
    covers, segment = coverage.covers, hits.segment
    return [path if path is not None and covers(path, (segment, file)) else None
            for path, file in zip(hits.paths, hits.files.tolist(), strict=True)]


def found_rows(coverage: Coverage, hits: Iterable[Hits]) \
        -> tuple[dict[str, FoundRows], dict[str, Place]]:
    """Return the rows that hits name in covered files, and where these files are, by path."""
    rows: dict[str, dict[int, int]] = {}
    places: dict[str, Place] = {}
    for one in hits:
        for _, path, file, group, parts in located(coverage, one):
            of_file = rows.setdefault(path, {})
            of_file[group] = of_file.get(group, 0) | parts
            places[path] = Place(one.segment, file)
    return dict(rows), places


def all_row_groups(index: ColumnIndex, coverage: Coverage, segment: int) \
        -> dict[str, list[int]]:
    """Return the row groups of all covered files of a segment."""
    counts = index.segments[segment].files.rows.row_group_counts
    return {path: list(range(counts[place.file])) for path, place in coverage.places.items()
            if place.segment == segment}


def _in_order(found: dict[str, list[int]]) -> dict[str, list[int]]:
    """Return row groups by path in order, each once."""
    return {path: sorted(set(found[path])) for path in sorted(found)}


def _nulls(values: Any) -> list[int]:
    """Return the positions of nulls, also of those that Arrow, numpy and pandas have for a type."""
    if isinstance(values, list) and is_plain(values):
        return [number for number, value in enumerate(values) if value is None]
    found, start = [], 0
    for array in as_arrays(values):
        if isinstance(array, pa.DictionaryArray):
            array = array.dictionary_decode()
        if array.null_count:
            found += (start + np.flatnonzero(array.is_null())).tolist()
        start += len(array)
    return found
