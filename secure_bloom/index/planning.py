"""Which files and row groups of a folder a filter needs, according to the indexes of its table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import pyarrow.fs as pa_fs

from secure_bloom.display import warn
from secure_bloom.errors import (
    KMS_FAULTS,
    NO_KEY,
    ChangedMeanwhileError,
    IndexWarning,
    SecureBloomError,
)
from secure_bloom.index.column_index import ColumnIndex, HashValues
from secure_bloom.index.coverage import Coverage, ListedCoverage, Place
from secure_bloom.index.file_entry import FileEntry
from secure_bloom.index.finding import indexed_columns
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.identity import Identity, allowed_keys, check_sample
from secure_bloom.index.known_files import KnownFiles
from secure_bloom.index.lookup import found_rows
from secure_bloom.index.opened_indexes import open_column, opened_before
from secure_bloom.index.stamps import Stamp, stamps
from secure_bloom.index.table import Table, known_listing, open_with_generation
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.environment import NO_KEYS
from secure_bloom.keys.retrieval import OpenKeys, is_explicit
from secure_bloom.pruning.expressions import Alternatives
from secure_bloom.pruning.found_rows import NO_ROWS, FoundRows, both, either
from secure_bloom.pruning.predicates import Predicate
from secure_bloom.pruning.value_list import ValueList
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.sbbf.probes import ValueHashes, value_hashes
from secure_bloom.storage.table_names import table_of
from secure_bloom.storage.visibility import Check

if TYPE_CHECKING:
    from secure_bloom.storage.hive_partitioning import PartitionChoice

#: whether readers use the indexes of a table: if they can, never, or with an error if they cannot
IndexUse: TypeAlias = Literal["auto", "off", "require"]

_Result = TypeVar("_Result")

#: whether the values of a filter may be compared with values of a column type
IsComparable: TypeAlias = Callable[[ColumnType], bool]


class FolderIndexes:
    """The indexes of the table that a folder belongs to.

    Parameters
    ----------
    filesystem : pyarrow.fs.FileSystem
    folder : str
        The table, or a partition folder of it.
    keys : OpenKeys
        Those of the reader, as :func:`.open_keys` returns them.
    is_required : bool
        Whether it is an error if an index cannot be used.
    columns : collection of str
        The indexed columns.
    files : sequence of str, optional
        Paths of the files to search. Default: all files below the folder.
    opens_all : bool
        Whether the reader opens all files, and compares them with :meth:`ListedIndexes.identity`.
    """

    def __init__(self, filesystem: pa_fs.FileSystem, folder: str, keys: OpenKeys, is_required: bool,
                 columns: Collection[str], files: Sequence[str] | None = None,
                 opens_all: bool = False):
        self.table, self.folder = Table(filesystem, table_of(folder)), folder
        self.columns, self._is_required, self._files = columns, is_required, files
        self.opens_all = opens_all
        self._opened_first: dict[str, tuple[ColumnIndex | None, str | None]] = {}
        self._kms = keys if isinstance(keys, CachedKms) else None

    @classmethod
    def find(cls, filesystem: pa_fs.FileSystem, folder: str, keys: OpenKeys, index: IndexUse,
             files: Sequence[str] | None = None,
             opens_all: bool = False) -> FolderIndexes | None:
        """Return the indexes; None if there are none, or ``index`` is "off".

        Raises FileNotFoundError if there are none and ``index`` is "require".
        """
        if index == "off":
            return None
        if is_explicit(keys):
            if index == "require":
                raise TypeError('index is "require", but an index needs a KMS, not explicit keys')
            return None
        columns = indexed_columns(filesystem, table_of(folder))
        if columns:
            return cls(filesystem, folder, keys, index == "require", columns, files, opens_all)
        if index == "require":
            raise FileNotFoundError(f"{table_of(folder)} has no index, but index is \"require\"")
        return None

    @property
    def is_of_whole_table(self) -> bool:
        """Whether all files of the table are to be searched."""
        return self._files is None and self.folder == self.table.path

    def listed(self, check: Check | None = None,
               partitions: PartitionChoice | None = None) -> ListedIndexes:
        """List the files, and return what the indexes know of them.

        The arguments are those of :func:`.visible_files`.
        """
        listing = partial(self._listing, check, partitions)
        if len(self.columns) > 1:
            return ListedIndexes(self, listing())
        [column] = self.columns
        if self.table.filesystem.type_name == "local" or column in self._opened_first \
                or self._has_generation(column):
            only, generation = self._with_generation(column)
            found = listing(only if self.trusts_generation(only) else None, generation)
        else:  # each of the two takes several requests
            with ThreadPoolExecutor(1) as pool:
                listed = pool.submit(listing)
                only = self.open(column)
                found = listed.result()
        return ListedIndexes(self, found, [] if only is None else [only])

    def _listing(self, check: Check | None, partitions: PartitionChoice | None,
                 index: ColumnIndex | None = None, generation: str | None = None) \
            -> Mapping[str, Stamp]:
        filesystem = self.table.filesystem
        if self._files is not None and filesystem.type_name == "local":
            prefix = self.table.full_path("")
            infos = [info for info in filesystem.get_file_info(list(self._files)) if info.is_file]
            return dict(zip((info.path.removeprefix(prefix) for info in infos),
                            stamps(filesystem, infos), strict=True))
        # In a store, listings may show other times than requests for single files.
        found = None if index is None else self.attempt(
            index.column, lambda: known_listing(self.table, index, generation, self.folder))
        return self.table.listing(self.folder, check, partitions) if found is None else found

    def trusts_generation(self, index: ColumnIndex | None) -> bool:
        """Whether an index may say which files the table has, if it is exclusive."""
        # If all files must be checked, none that was added may be missed.
        return index is not None and not self.opens_all \
            and (index.manifest.material is not None or self._kms is None)

    def _has_generation(self, column: str) -> bool:
        known = opened_before(self._folder(column))
        return known is not None and known.manifest.body.generation is not None

    def open(self, column: str) -> ColumnIndex | None:
        """Open the newest version of the index of a column; None if it cannot be used."""
        if column in self._opened_first:
            return self._opened_first.pop(column)[0]
        return self.attempt(column, lambda: open_column(self._folder(column), self._kms))

    def _folder(self, column: str) -> IndexFolder:
        return IndexFolder(self.table.filesystem, self.table.path, column)

    def _with_generation(self, column: str) -> tuple[ColumnIndex | None, str | None]:
        """Open an index, and return it with the generation of the table."""
        if column in self._opened_first:
            return self._opened_first.pop(column)
        return open_with_generation(self.table, column, lambda: self.open(column))

    def open_first(self, column: str) -> tuple[ColumnIndex | None, str | None]:
        """Open an index that may be trusted, before the files are listed; else return None.

        Also return the generation of the table, see :func:`.open_with_generation`.

        If it cannot be trusted, this is repeated in this process only where it costs nothing: in
        stores, it is better opened while the files are listed. It is not opened again then.
        """
        known = opened_before(self._folder(column))
        is_costly = self.table.filesystem.type_name != "local"
        if is_costly and known is not None and known.manifest.body.generation is None:
            return None, None
        found = self._opened_first[column] = self._with_generation(column)
        return found

    def check(self, index: ColumnIndex, coverage: Coverage) -> bool:
        """Whether an index may be used, according to some of the files that it covers."""
        def is_checked() -> bool:
            index.check_schemas()
            if not self.opens_all:
                check_sample(index, coverage, self._kms or NO_KEYS)
            return True

        return self.attempt(index.column, is_checked) or False

    def identify(self, file: OpenFile) -> Identity:
        """Return what an open file shows, to compare with :meth:`ListedIndexes.identity`."""
        return Identity.of(file, self.columns)

    def attempt(self, column: str, work: Callable[[], _Result]) -> _Result | None:
        """Return the result of a function; None if an index cannot be used.

        A damaged index is a reason for a warning; a missing key, a KMS that does not respond, or
        segments that were merged meanwhile, are not: if they matter, reading the files fails, too.
        Raises an error only if indexes are required.
        """
        try:
            return work()
        except (SecureBloomError, OSError) as error:
            if self._is_required:
                raise
            if not isinstance(error, (*NO_KEY, *KMS_FAULTS, ChangedMeanwhileError)):
                warn(IndexWarning(f"the index of column {column!r} in {self.table.path} is not "
                                  f"used: {error}"))
            return None


class ListedIndexes:
    """The indexes of a table, and its files as they are listed now, by path relative to it."""

    def __init__(self, indexes: FolderIndexes, listing: Mapping[str, Stamp],
                 opened: Iterable[ColumnIndex] = ()):
        self.indexes = indexes  #: for later scans, which list the files again
        self.listing = listing  #: stamps of the listed files, by path relative to the table
        self._found = {index.column: index for index in opened}
        self._opened: dict[str, tuple[ColumnIndex, Coverage] | None] = {}

    @classmethod
    def of_known(cls, indexes: FolderIndexes, index: ColumnIndex, entries: Mapping[str, FileEntry],
                 places: Mapping[str, Place]) -> ListedIndexes:
        """Return some files of which an index that is trusted knows everything."""
        found = cls(indexes, {path: entry.stamp for path, entry in entries.items()})
        found._opened = dict.fromkeys(indexes.columns)  # the other ones are not asked
        found._opened[index.column] = index, ListedCoverage(places, [])
        return found

    @property
    def columns(self) -> Collection[str]:
        """The indexed columns."""
        return self.indexes.columns

    def listed(self) -> ListedIndexes:
        """Return itself: for a reader that asks once, right after the files were listed."""
        return self

    @property
    def paths(self) -> list[str]:
        """Paths of the listed files in the filesystem."""
        prefix = self.indexes.table.full_path("")
        return [prefix + path for path in self.listing]

    def covering(self, path: str) -> list[str]:
        """Return the columns of the opened indexes that cover a file."""
        relative = path.removeprefix(self.indexes.table.full_path(""))
        return [column for column, opened in self._opened.items()
                if opened is not None and relative in opened[1].places]

    def identity(self, path: str) -> Identity | None:
        """Return what the opened indexes say of a file; None if they do not say the same."""
        relative = path.removeprefix(self.indexes.table.full_path(""))
        footers, keys = set(), []
        for column, opened in self._opened.items():
            if opened is not None and (place := opened[1].places.get(relative)) is not None:
                footers.add(opened[0].entry(place).footer)
                keys.append((column, allowed_keys(opened[0])))
        return Identity(footers.pop(), tuple(keys)) if len(footers) == 1 else None

    def identify(self, file: OpenFile) -> Identity:
        """Return what an open file shows."""
        return self.indexes.identify(file)

    @cached_property
    def known_files(self) -> KnownFiles:
        """What is known of the files that any of the indexes covers."""
        opened = []
        for column in self.indexes.columns:
            if (found := self.opened(column)) is not None:
                opened.append(found)
                if not found[1].uncovered:
                    break
        return KnownFiles(self.indexes.table, self.listing, opened)

    def select(self, alternatives: Alternatives, excluded: Collection[str] = (),
               is_comparable: IsComparable | None = None) -> dict[str, FoundRows]:
        """Return the rows for which a filter may hold, of the files for which an index tells.

        Parameters
        ----------
        alternatives : list of list of Predicate, or None
            For files with certain columns and types; what is returned of others is meaningless.
        excluded : collection of str
            Columns whose values do not come from the files.
        is_comparable : callable, optional
            Where the values of the filter must not be compared with a type of the column in some
            files, the index does not tell for these. Default: they can always be compared.
        """
        union: dict[str, FoundRows] | None = None
        for alternative in alternatives or ():
            found = self._of_alternative([p for p in alternative if p.column not in excluded],
                                         is_comparable)
            union = found if union is None else {
                path: either(union[path], rows) for path, rows in found.items() if path in union}
        prefix = self.indexes.table.full_path("")
        return {prefix + path: rows for path, rows in (union or {}).items()}

    def _of_alternative(self, predicates: list[Predicate],
                        is_comparable: IsComparable | None) -> dict[str, FoundRows]:
        """Return the rows for which all predicates may hold, of files of which that is known."""
        known: dict[str, FoundRows] = {}  # each index may cover other files
        for predicate in predicates:
            values = predicate.candidates
            if not values or predicate.column not in self.indexes.columns:
                continue
            found = self._candidates(predicate.column, values, is_comparable)
            if not known:
                known = found
                continue
            for path, rows in found.items():
                earlier = known.get(path)
                known[path] = rows if earlier is None else both(earlier, rows)
        return known

    def _candidates(self, column: str, values: list[Any],
                    is_comparable: IsComparable | None) -> dict[str, FoundRows]:
        """Return the rows that may have one of some values, of the files that are covered."""
        opened = self.opened(column)
        if opened is None:
            return {}
        index, coverage = opened

        hits = self.indexes.attempt(column, lambda: index.find_hashes(hashes_of(values)))
        if hits is None:
            return {}
        segments = index.segments  # one without pairs has no value to compare
        answered = {one.segment for one in hits if not one.unanswered.size and (
            is_comparable is None or not segments[one.segment].pairs
            or is_comparable(segments[one.segment].column_type))}
        found: dict[str, FoundRows] = dict.fromkeys(coverage.places, NO_ROWS) \
            if len(answered) == len(hits) else {
                path: NO_ROWS for path, place in coverage.places.items()
                if place.segment in answered}
        with_rows, _ = found_rows(coverage, (one for one in hits if one.segment in answered))
        return found | with_rows

    def opened(self, column: str) -> tuple[ColumnIndex, Coverage] | None:
        """Return an index, and which files it covers; None if it cannot be used."""
        if column not in self._opened:
            index = self._found.get(column) or self.indexes.open(column)
            coverage = None if index is None else self.indexes.attempt(
                column, lambda: index.coverage(self.listing))  # which reads pages of files
            self._opened[column] = None
            if index is not None and coverage is not None and self.indexes.check(index, coverage):
                self._opened[column] = index, coverage
        return self._opened[column]


def hashes_of(values: list[Any]) -> HashValues:
    """Return what hashes the values of a predicate for a column type."""
    def hashes(column_type: ColumnType) -> ValueHashes:
        if isinstance(values, ValueList):
            return values.derived(value_hashes, column_type)
        return value_hashes(values[0] if len(values) == 1 else values, column_type)

    return hashes


#: the indexes of a table, which is listed for each scan, or was listed for the only one
Indexes: TypeAlias = FolderIndexes | ListedIndexes
