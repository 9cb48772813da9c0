"""Build or update the indexes of a table: cover the files that are not covered yet."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from secure_bloom.display import Summarized, count
from secure_bloom.errors import ColumnError
from secure_bloom.index.building import BUDGET
from secure_bloom.index.column_index import open_column
from secure_bloom.index.column_keys import UNENCRYPTED, master_keys
from secure_bloom.index.column_update import INDEXED, RESTAMPED, ColumnUpdate, new_manifest
from secure_bloom.index.compaction import merge_tiers
from secure_bloom.index.file_table import Stamp
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.publishing import drop_missing, publish
from secure_bloom.index.table import Table
from secure_bloom.keys.cache import CachedKms
from secure_bloom.parquet.schema import filter_columns, find_column
from secure_bloom.reader import ParquetFile
from secure_bloom.storage.files import Source
from secure_bloom.storage.many_files import Advance, ManyFiles
from secure_bloom.storage.visibility import job_of

#: how a new index is encrypted: with the column's own master key, or not at all
IndexEncryption: TypeAlias = Literal["column"] | None

_SETTLED_NS = 2 * 10**9  # until then, a file may change again within the same tick of its time
TOO_YOUNG = "changed less than two seconds ago"


@dataclass(repr=False)
class UpdateResult(Summarized):
    """What an update did.

    Attributes
    ----------
    columns : list of str
        The indexed columns.
    indexed : int
        Files whose values were added. A file counts once for all columns.
    restamped : int
        Files that were rewritten with the same values, because keys were rotated, or filters were
        added or removed. Only their footers were read, and their new size and time recorded.
    unchanged : int
        Files that were covered already.
    uncovered : dict of str to str
        Files that are not covered, and why. Lookups search them. ``update`` tries them again.
    failed : dict of str to str
        Files that could not be read, and why.
    """

    columns: list[str]
    indexed: int = 0
    restamped: int = 0
    unchanged: int = 0
    uncovered: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def _headline(self) -> str:
        return (f"{count(self.indexed, 'file')} indexed, {self.restamped:,} restamped, "
                f"{self.unchanged:,} unchanged, {len(self.uncovered):,} not covered, "
                f"{len(self.failed):,} failed")

    def to_dict(self) -> dict[str, Any]:
        """The result as a dictionary for JSON."""
        return asdict(self)


def create_index(table: Table, column: str, kms: CachedKms | None, encryption: IndexEncryption,
                 listing: Mapping[str, Stamp], is_exclusive: bool) -> None:
    """Publish the first manifest of an index, unless there is one.

    Raises
    ------
    ColumnError
        If no file has the column, it cannot have a filter, or the encryption does not fit it.
    """
    folder = IndexFolder(table.filesystem, table.path, column)
    stored = folder.newest()
    if stored is not None:
        if stored.is_encrypted != (encryption == "column"):
            raise ColumnError(f"this index {_has(stored.is_encrypted)} encryption; delete "
                              f"{folder.path} to build another one", column=column)
        return
    master_key = _master_key(table, column, kms, listing, encryption)
    publish(folder, kms, lambda body: body,
            first=lambda: new_manifest(column, master_key, kms, is_exclusive))


def update_indexes(table: Table, columns: Iterable[str], kms: CachedKms | None, *,
                   budget: int = BUDGET, advance: Advance | None = None) -> UpdateResult:
    """Cover the files of existing indexes that are not covered yet."""
    with ExitStack() as stack:
        folders = [IndexFolder(table.filesystem, table.path, column) for column in columns]
        now = folders[0].now_ns()
        generation, listing = table.generation(), table.listing()
        updates = []
        for folder in folders:
            drop_missing(folder, kms)
            index = open_column(table.filesystem, table.path, folder.column, kms)
            if index is None:
                raise FileNotFoundError(f"there is no index of column {folder.column!r}")
            update = ColumnUpdate(folder, index, kms, listing, budget // len(folders))
            stack.callback(update.close)
            updates.append(update)
        work = _Work(table, kms, updates, listing, now)
        result = work.run(advance)
        settled = generation if generation == table.generation() else None
        for update in updates:
            is_whole = not result.uncovered and not result.failed
            update.finish(settled if is_whole else None, lambda fraction: None)
    for folder in folders:
        merge_tiers(table, folder, kms, budget)
    return result


class _Work:
    """The files that some columns do not cover."""

    def __init__(self, table: Table, kms: CachedKms | None, updates: list[ColumnUpdate],
                 listing: Mapping[str, Stamp], now: int | None):
        self._table, self._kms, self._updates = table, kms, updates
        self._listing, self._now = listing, now
        self._wanting: dict[str, list[ColumnUpdate]] = {}  # by path
        for update in updates:
            for path in update.coverage.uncovered:
                self._wanting.setdefault(path, []).append(update)

    def run(self, advance: Advance | None) -> UpdateResult:
        files = ManyFiles(lambda path, _: (path, self._add(path)), list(self._wanting), advance)
        if self._wanting:
            files.run(_threads(self._table))
        outcomes, _, failed = files.outcomes()
        reasons = {path: reason for path, reason in outcomes if reason not in (INDEXED, RESTAMPED)}
        values = [reason for _, reason in outcomes]
        return UpdateResult([update.column for update in self._updates], values.count(INDEXED),
                            values.count(RESTAMPED), len(self._listing) - len(self._wanting),
                            reasons, failed)

    def _add(self, path: str) -> str:
        """Cover a file by all columns that want it; return the outcome."""
        stamp = self._listing[path]
        if self._now is None or stamp.mtime_ns < 0:
            return "its filesystem records no modification times"
        if self._now - stamp.mtime_ns < _SETTLED_NS and job_of(path) is None:
            return TOO_YOUNG
        filesystem = self._table.filesystem
        with ParquetFile(Source(self._table.full_path(path), filesystem), self._kms) as file:
            version = file.version
            if version is None or not version.is_as_listed(
                    *stamp, exactly=filesystem.type_name == "local"):
                return "changed after it was listed"
            outcomes = {update.add(file, path, stamp) for update in self._wanting[path]}
        reasons = outcomes - {INDEXED, RESTAMPED}
        return min(reasons) if reasons else min(outcomes)


def _threads(table: Table) -> int:
    if table.filesystem.type_name == "local":
        return min(os.cpu_count() or 1, 4)
    return pa.io_thread_count()


def _master_key(table: Table, column: str, kms: CachedKms | None, listing: Mapping[str, Stamp],
                encryption: IndexEncryption) -> str | None:
    """Return the master key under which the files have a column; None: it has no encryption."""
    missing: ColumnError | None = None
    is_there = False
    for path in listing:
        with ParquetFile(Source(table.full_path(path), table.filesystem), kms) as file:
            try:
                leaf = find_column(file.columns, column)
            except ColumnError as error:
                missing = error
                continue
            filter_columns(file.columns, [column])
            is_there = True
            found = master_keys(file, leaf) - {UNENCRYPTED}
        if found and encryption is None:
            raise ColumnError("a file encrypts the column, so its index must be encrypted; omit "
                              "encryption=None (--no-encryption)", file=path, column=column)
        if found:
            return min(filter(None, found))
    if not is_there:
        raise missing or FileNotFoundError(f"there are no Parquet files in {table.path}")
    if encryption is not None:
        raise ColumnError("no file encrypts the column; pass encryption=None (--no-encryption) "
                          "for an index without encryption, from which anyone can learn which "
                          "values exist", column=column)
    return None


def _has(is_encrypted: bool) -> str:
    return "has" if is_encrypted else "has no"
