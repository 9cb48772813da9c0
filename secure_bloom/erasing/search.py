"""Find the files, row groups and rows that have the values to erase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.arrow.leaves import leaf_types
from secure_bloom.arrow.row_filter import RowFilter
from secure_bloom.datasets.dataset_file import DatasetFile, OpenedFile
from secure_bloom.datasets.report import BLOOM_FILTERS, READ, ScanReport, describe
from secure_bloom.datasets.scan import Scan
from secure_bloom.datasets.search import Search
from secure_bloom.erasing.leftovers import erased_in_dictionaries
from secure_bloom.erasing.matching import ErasedValues
from secure_bloom.erasing.rows import RowReader
from secure_bloom.erasing.user_metadata import metadata_with_values
from secure_bloom.errors import ChangedMeanwhileError, ColumnError, error_location
from secure_bloom.index.planning import IndexUse
from secure_bloom.keys.retrieval import Keys
from secure_bloom.policy.requirement import Requirement
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.sbbf.parsing import parse_values
from secure_bloom.storage.cache import Cache
from secure_bloom.storage.files import FilePath, resolve
from secure_bloom.storage.threads import in_order, pool_for
from secure_bloom.storage.versions import FileVersion, without_subtree
from secure_bloom.storage.visibility import parquet_files


@dataclass
class Occurrences:
    """Where values are.

    Attributes
    ----------
    files : dict of str to dict of int to int
        By path and row group, how many rows have one of the values; 0: only a dictionary has.
    counts : Counter
        How often each value was found.
    report : ScanReport
        How the other files and row groups were ruled out.
    rows_of : dict of str to int
        Rows of each file that has such rows.
    versions : dict of str to FileVersion
        Of each file that has such rows, the one that was searched.
    num_dictionaries : int
        How many dictionaries were searched.
    num_files, num_rows : int
        Of the data set.
    metadata : Counter
        Key-value metadata that may have values of rows, and in how many files it is.
    ours : dict of str to FileVersion
        Files in which no dictionary has a value that no row of its row group has.
    char_lengths : frozenset of int
        The lengths n if the column is CHAR(n) of Spark.
    """

    report: ScanReport
    num_files: int
    num_rows: int
    char_lengths: frozenset[int] = frozenset()
    rows_of: dict[str, int] = field(default_factory=dict)
    versions: dict[str, FileVersion | None] = field(default_factory=dict)
    files: dict[str, dict[int, int]] = field(default_factory=dict)
    counts: Counter[Any] = field(default_factory=Counter, repr=False)
    num_dictionaries: int = 0
    metadata: Counter[str] = field(default_factory=Counter)
    ours: dict[str, FileVersion] = field(default_factory=dict, repr=False)

    def add(self, path: str, num_rows: int, version: FileVersion | None,
            groups: Mapping[int, int]) -> None:
        """Add row groups of a version of a file, which has so many rows.

        Raises ChangedMeanwhileError if others are of another version.
        """
        if groups:
            check_same(version, self.versions.get(path, version), path)
            self.rows_of[path], self.versions[path] = num_rows, version
            self.files.setdefault(path, {}).update(groups)

    def merged(self, other: Occurrences) -> Occurrences:
        """Return both together, of different files."""
        report = ScanReport(self.report.condition)
        for mine in (self.report, other.report):
            report.add(mine)
        return Occurrences(report, self.num_files + other.num_files,
                           self.num_rows + other.num_rows,
                           self.char_lengths | other.char_lengths, self.rows_of | other.rows_of,
                           self.versions | other.versions, self.files | other.files,
                           self.counts + other.counts,
                           self.num_dictionaries + other.num_dictionaries,
                           self.metadata + other.metadata, self.ours | other.ours)

    @property
    def found_rows(self) -> int:
        """Rows that have one of the values."""
        return sum(sum(groups.values()) for groups in self.files.values())

    @property
    def found_dictionaries(self) -> int:
        """Row groups without such rows that have the values in a dictionary."""
        return sum(map(only_in_dictionaries, self.files.values()))


def check_same(version: FileVersion | None, before: FileVersion | None, path: str) -> None:
    """Raise ChangedMeanwhileError if a file is not the one that was searched before."""
    if version is not None and not version.is_same_elsewhere(before):
        raise ChangedMeanwhileError("the file was changed in the meantime; run it again",
                                    file=path)


def only_in_dictionaries(groups: Mapping[int, int]) -> int:
    """Return how many of the row groups have no rows to erase."""
    return sum(not rows for rows in groups.values())


def find_occurrences(source: str | list[str], erased: ErasedValues, keys: Keys,
                     filesystem: pa_fs.FileSystem, index: IndexUse,
                     advance: Callable[[float], None],
                     requirement: Requirement | None = None,
                     footers: Cache[OpenFile] | None = None) -> Occurrences:
    """Search files, or the visible files of a folder; errors are those of ``find``.

    ``footers`` are those of an earlier search with the same keys, of files that may have changed.
    """
    search = Search(source, erased.column, [], keys, filesystem=filesystem, advance=advance,
                    index=index, opens_all=True, require_encryption=requirement, footers=footers)
    name = erased.column.split(".")[0]
    if any(name in file.partition_values for file in search.files):
        raise ColumnError("its values are in the names of folders, not in files: delete the "
                          "folders of these values", column=name)
    erased = erased.in_char(search.char_lengths(erased.values))
    found = Occurrences(ScanReport(describe(erased.condition())), search.num_files,
                        sum(file.num_rows for file in search.files), erased.char_lengths)
    for number, opened in enumerate(_candidates(search, erased, found.report), 1):
        try:
            path = opened.dataset_file.path
            with error_location(file=path), opened.source.one_version():
                groups = _count(opened, erased, found.counts)
        finally:
            opened.close()
        found.add(path, opened.file.num_rows, opened.file.version, groups)
        advance(0.5 + number / max(1, search.num_files) / 4)
    advance(0.75)
    _find_in_dictionaries(search, erased, found)
    advance(1)
    return found


def _find_in_dictionaries(search: Search, erased: ErasedValues, found: Occurrences) -> None:
    """Add the row groups that have the values in a dictionary only; nothing else rules them out.

    Also add key-value metadata that cannot be searched.
    """
    def look(file: DatasetFile) -> tuple[OpenFile, list[int], int]:
        opened = file.open()
        try:
            with error_location(file=file.path), opened.source.one_version():
                return (opened.file, *erased_in_dictionaries(opened.file, erased,
                                                             found.files.get(file.path, ())))
        finally:
            opened.close()

    with pool_for(search.access.filesystem) as pool:
        looked = in_order(pool, look, search.files)
        for file, (opened, groups, num_read) in zip(search.files, looked, strict=True):
            found.add(file.path, file.num_rows, opened.version, dict.fromkeys(groups, 0))
            found.metadata.update(metadata_with_values(opened.schema))
            if opened.version is not None and opened.footer.is_surely_ours:
                found.ours[file.path] = opened.version
            found.num_dictionaries += num_read


def _candidates(search: Search, erased: ErasedValues, report: ScanReport) -> Iterator[OpenedFile]:
    """Yield the files that may have the values, open, with the row groups to read."""
    if not search.files:
        return
    try:
        filters = [RowFilter(erased.condition(), search.schema)]
    except ColumnError:  # rows cannot be filtered by lists; but their leaves have filters
        for opened in Scan(search.files, search.access, search.schema, [], ScanReport("")) \
                .open_files():
            opened.row_groups = _groups_with_values(opened.file, erased)
            outcomes = dict.fromkeys(range(opened.file.num_row_groups), BLOOM_FILTERS)
            outcomes |= dict.fromkeys(opened.row_groups, READ)
            sizes = map(opened.file.footer.row_group_num_bytes, outcomes)
            report.add_file(outcomes.values(), sizes)
            yield opened
    else:
        yield from Scan(search.files, search.access, search.schema, filters, report).open_files()


def _groups_with_values(file: OpenFile, erased: ErasedValues) -> list[int]:
    """Return the row groups that may have one of the values in lists."""
    leaf = erased.leaf(file)
    if leaf is None:
        return []
    might = file.might_contain(leaf.path, erased.values)
    return np.flatnonzero(might.any(axis=1)).tolist()


def _count(opened: OpenedFile, erased: ErasedValues, counts: Counter[Any]) -> dict[int, int]:
    """Return of each row group with such rows their number; count the values."""
    groups: dict[int, int] = {}
    leaf = erased.leaf(opened.file)
    if leaf is None:
        return groups
    reader = RowReader(opened.file)
    to_read = range(opened.file.num_row_groups) if opened.row_groups is None else opened.row_groups
    for group in to_read:
        in_group = erased.in_row_group(reader, group, leaf)
        counts.update(in_group.found)
        if in_group.rows.true_count:
            groups[group] = in_group.rows.true_count
    return groups


def parse_texts(path: FilePath, column: str, texts: list[str], keys: Keys) -> pa.Array:
    """Parse values to erase as values of the column, in the first file that has it.

    Raises ColumnError if no file has it; ValueError if a text is not such a value.
    """
    filesystem, path = without_subtree(*resolve(path))
    for file in parquet_files(filesystem, path):
        with OpenFile(file, keys, filesystem=filesystem) as opened:
            found = ErasedValues(column, texts).leaf(opened)
            if found is not None:
                return parse_values(texts, leaf_types(pa.struct(opened.schema))[found.ordinal])
    raise ColumnError("no file has such a column", column=column)
