"""Build or update the indexes of a table: cover the files that are not covered yet."""

from __future__ import annotations

import os
import posixpath
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Literal, NamedTuple, TypeAlias

import pyarrow as pa

from secure_bloom.display import Result, count
from secure_bloom.errors import ColumnError, UnsupportedError
from secure_bloom.index.building import BUDGET
from secure_bloom.index.column_keys import UNENCRYPTED, master_keys
from secure_bloom.index.column_segments import INDEXED, RESTAMPED, SegmentMaker, Segments
from secure_bloom.index.column_update import ColumnUpdate
from secure_bloom.index.compaction import Merge, merge_here, merge_tiers
from secure_bloom.index.file_pages import are_normal
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.later_errors import LaterErrors
from secure_bloom.index.manifest import Manifest
from secure_bloom.index.opened_indexes import open_column, with_newest
from secure_bloom.index.publishing import drop_missing, publish
from secure_bloom.index.stamps import Stamp
from secure_bloom.index.table import Table
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.environment import NoKeys
from secure_bloom.parquet.schema import filter_columns, find_column
from secure_bloom.parquet.thrift import no_garbage_collection
from secure_bloom.policy.requirement import FolderChecks, Requirement
from secure_bloom.storage.many_files import Advance, ManyFiles
from secure_bloom.storage.table_formats import ICEBERG_DATA, table_below
from secure_bloom.storage.table_names import job_of

#: how a new index is encrypted: with the column's own master key, or not at all
IndexEncryption: TypeAlias = Literal["column"] | None

_SETTLED_NS = 2 * 10**9  # until then, a file may change again within the same tick of its time
TOO_YOUNG = "changed less than two seconds ago"


@dataclass(repr=False)
class UpdateResult(Result):
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

    _derived = ("ok",)

    @property
    def ok(self) -> bool:
        """Whether no file failed."""
        return not self.failed

    def _headline(self) -> str:
        return (f"{count(self.indexed, 'file')} indexed, {self.restamped:,} restamped, "
                f"{self.unchanged:,} unchanged, {len(self.uncovered):,} not covered, "
                f"{len(self.failed):,} failed")


def create_index(table: Table, column: str, kms: CachedKms | None, encryption: IndexEncryption,
                 listing: Mapping[str, Stamp], is_exclusive: bool,
                 requirement: Requirement | None = None) -> None:
    """Publish the first manifest of an index, unless there is one.

    Raises
    ------
    ColumnError
        If no file has the column, it cannot have a filter, or the encryption does not fit it.
    UnsupportedError
        If the folder has the log of an Iceberg table among its files.
    AuthenticationError
        If a file does not meet the requirement.
    """
    _check_no_log(table, listing)
    folder = IndexFolder(table.filesystem, table.path, column)
    stored = folder.newest()
    if stored is not None:
        if stored.is_encrypted != (encryption == "column"):
            raise ColumnError(f"this index {_has(stored.is_encrypted)} encryption; delete "
                              f"{folder.path} to build another one", column=column)
        return
    master_key = _master_key(table, column, kms, listing, encryption, requirement)
    publish(folder, kms, lambda body: body,
            first=lambda: Manifest.new(column, master_key, kms, is_exclusive=is_exclusive))


def _check_no_log(table: Table, listing: Iterable[str]) -> None:
    found = table_below(table.path, list(listing))
    if found is not None:
        raise UnsupportedError(f"this is {found}; build the index of its folder with data files, "
                               f"{posixpath.join(found.folder, ICEBERG_DATA)}", file=found.folder)


def update_indexes(table: Table, columns: Iterable[str], kms: CachedKms | None, *,
                   budget: int = BUDGET, advance: Advance | None = None,
                   requirement: Requirement | None = None) -> UpdateResult:
    """Cover the files of existing indexes that are not covered yet."""
    update = TableUpdate(table, columns, kms)
    makers = {column.column: column.maker(table.path, budget // len(update.columns))
              for column in update.columns}
    files = {path: (update.listing[path], names) for path, names in update.wanting.items()}
    added = add_files(table, kms, update.now, makers, files, _threads(table), requirement, advance)
    return update.finish([added], budget)


def trust_again(table: Table, columns: Iterable[str], kms: CachedKms | None) -> None:
    """Record in indexes that a job has kept current that they cover all files, if they do.

    The files are listed, but none is opened. Exclusive indexes are trusted from then on until
    another job writes.
    """
    if table.generation() is None:
        return  # other jobs are at work: the last one does it
    update = TableUpdate(table, columns, kms)
    if not update.wanting:
        update.publish([], is_whole=True)
    update.errors.raise_now()


class Added(NamedTuple):
    """What was added of some files.

    ``outcomes`` are those of :func:`add_file`, by path. ``failed`` says why files could not be
    read. ``made`` are the segments of each column.
    """

    outcomes: dict[str, str]
    failed: dict[str, str]
    made: dict[str, Segments]


def add_files(table: Table, kms: CachedKms | NoKeys | None, now: int | None,
              makers: Mapping[str, SegmentMaker],
              files: Mapping[str, tuple[Stamp, Collection[str]]], threads: int = 1,
              requirement: Requirement | None = None, advance: Advance | None = None) -> Added:
    """Add files to segments, and write these. ``files`` has stamps and columns by path."""
    checks = FolderChecks(requirement)

    def add(path: str, _: Advance) -> tuple[str, str]:
        stamp, columns = files[path]
        return path, add_file(table, kms, path, stamp, now,
                              [makers[column] for column in columns], checks)

    with ExitStack() as stack:
        for maker in makers.values():
            stack.callback(maker.close)
        many = ManyFiles(add, list(files), advance)
        if files:
            many.run(threads)
            checks.finish()
        outcomes, _, failed = many.outcomes()
        return Added(dict(outcomes), failed,
                     {column: maker.write() for column, maker in makers.items()})


class TableUpdate:
    """An update of the indexes of some columns: which files they lack, and how it is finished.

    The files can be added anywhere, by :func:`add_files`.

    Attributes
    ----------
    columns : list of ColumnUpdate
    listing : dict of str to Stamp
    now : int or None
        Time of the filesystem, before the listing.
    errors : LaterErrors
        Of indexes that cannot be opened, and are not among ``columns``.
    """

    def __init__(self, table: Table, columns: Iterable[str], kms: CachedKms | None):
        self._table, self._kms = table, kms
        self.errors, self.now = LaterErrors(), None
        folders = [IndexFolder(table.filesystem, table.path, column) for column in columns]
        for folder in folders:
            with self.errors.later():
                self.now = folder.now_ns()
                break
        self.columns: list[ColumnUpdate] = []
        with no_garbage_collection():  # there may be millions of objects, all of which stay
            self._generation, self.listing = table.state()
            for folder in folders:
                with self.errors.later():
                    folder.check_inside()
                    drop_missing(folder, kms)
                    self.columns.append(with_newest(partial(self._opened, folder)))
        if not self.columns:
            self.errors.raise_now()

    def _opened(self, folder: IndexFolder) -> ColumnUpdate:
        index = open_column(folder, self._kms)
        if index is None:
            raise FileNotFoundError(f"there is no index of column {folder.column!r}")
        return ColumnUpdate(folder, index, self._kms, self.listing)

    @cached_property
    def wanting(self) -> dict[str, list[str]]:
        """The columns that do not cover a file, by its path; without files that all cover."""
        found: dict[str, list[str]] = {}
        for update in self.columns:
            for path in update.uncovered:
                found.setdefault(path, []).append(update.column)
        return found

    def finish(self, added: Sequence[Added], budget: int = BUDGET,
               merge: Merge = merge_here) -> UpdateResult:
        """Publish what was made of all files, merge segments, and return what was done."""
        outcomes = [one for part in added for one in part.outcomes.items()]
        values = [outcome for _, outcome in outcomes]
        uncovered = {path: reason for path, reason in outcomes
                     if reason not in (INDEXED, RESTAMPED)}
        failed = {path: reason for part in added for path, reason in part.failed.items()}
        result = UpdateResult([update.column for update in self.columns], values.count(INDEXED),
                              values.count(RESTAMPED), len(self.listing) - len(self.wanting),
                              uncovered, failed)
        self.publish(added, is_whole=not uncovered and not failed)
        for update in self.columns:
            merge_tiers(self._table, update.folder, self._kms, budget, merge)
        self.errors.raise_now()
        return result

    def publish(self, added: Sequence[Added], *, is_whole: bool) -> None:
        """Publish what was made of all files. ``is_whole``: all that were listed are covered."""
        is_whole = is_whole and self._generation == self._table.generation()
        for update in self.columns:
            update.finish([part.made[update.column] for part in added],
                          self._generation if is_whole else None)


def add_file(table: Table, kms: CachedKms | NoKeys | None, path: str, stamp: Stamp,
             now: int | None, makers: Iterable[SegmentMaker],
             checks: FolderChecks | None = None) -> str:
    """Add a file to segments; return INDEXED, RESTAMPED, or why it is not covered.

    ``path`` is relative to the table, ``stamp`` as listed, and ``now`` the time by the clock of the
    filesystem before that.
    """
    if now is None or stamp.mtime_ns < 0:
        return "its filesystem records no modification times"
    if now - stamp.mtime_ns < _SETTLED_NS and job_of(path) is None:
        return TOO_YOUNG
    if not are_normal([path]):
        return "its path is not normalized"
    filesystem = table.filesystem
    stamp.wait()
    with table.open(path, kms, checks) as file:
        if not stamp.is_of(file.version, filesystem):
            return "changed after it was listed"
        outcomes = {maker.add(file, path, stamp) for maker in makers}
    return min(outcomes - {INDEXED, RESTAMPED} or outcomes)


def wait_until_settled() -> None:
    """Wait until files that exist now are old enough for an update."""
    time.sleep(_SETTLED_NS / 1e9 + 0.1)


def _threads(table: Table) -> int:
    if table.filesystem.type_name == "local":
        return min(os.cpu_count() or 1, 4)
    return pa.io_thread_count()


def _master_key(table: Table, column: str, kms: CachedKms | None, listing: Mapping[str, Stamp],
                encryption: IndexEncryption, requirement: Requirement | None) -> str | None:
    """Return the master key of a new index; None: it has no encryption."""
    found = find_master_key(table, column, kms, listing, requirement)
    if found is not None and encryption is None:
        raise ColumnError("a file encrypts the column, so its index must be encrypted; omit "
                          "encryption=None (--no-encryption)", file=found.path, column=column)
    if found is None and encryption is not None:
        raise ColumnError("no file encrypts the column; pass encryption=None (--no-encryption) "
                          "for an index without encryption, from which anyone can learn which "
                          "values exist", column=column)
    return None if found is None else found.name


class FoundKey(NamedTuple):
    """A master key, and a file that has the column under it."""

    name: str
    path: str


def find_master_key(table: Table, column: str, kms: CachedKms | None, listing: Iterable[str],
                    requirement: Requirement | None = None) -> FoundKey | None:
    """Return the master key under which the files have a column; None: it has no encryption.

    ``listing`` and the errors are those of :func:`create_index`.
    """
    missing: ColumnError | None = None
    is_there = False
    for path in listing:
        with table.open(path, kms, requirement) as file:
            try:
                leaf = find_column(file.columns, column)
            except ColumnError as error:
                missing = error
                continue
            filter_columns(file.columns, [column])
            is_there = True
            found = master_keys(file, leaf) - {UNENCRYPTED}
        if found:
            return FoundKey(min(filter(None, found)), path)
    if not is_there:
        raise missing or FileNotFoundError(f"there are no Parquet files in {table.path}")
    return None


def _has(is_encrypted: bool) -> str:
    return "has" if is_encrypted else "has no"
