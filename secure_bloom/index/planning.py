"""Which files and row groups of a folder a filter needs, according to the indexes of its table."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.errors import (
    KMS_FAULTS,
    NO_KEY,
    ChangedMeanwhileError,
    IndexWarning,
    SecureBloomError,
)
from secure_bloom.index.column_index import ColumnIndex, Coverage, open_column
from secure_bloom.index.file_table import Stamp
from secure_bloom.index.folder import indexed_columns
from secure_bloom.index.lookup import located
from secure_bloom.index.table import Table, listing_for
from secure_bloom.keys.cache import cached
from secure_bloom.pruning.expressions import Alternatives
from secure_bloom.pruning.predicates import Predicate
from secure_bloom.pruning.value_list import ValueList
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.sbbf.probes import ValueHashes, value_hashes
from secure_bloom.storage.visibility import Check, relative_path, table_of

#: whether readers use the indexes of a table: if they can, never, or with an error if they cannot
IndexUse: TypeAlias = Literal["auto", "off", "require"]

_Result = TypeVar("_Result")

def check_index_use(index: object) -> None:
    """Raise ValueError unless this is an :data:`IndexUse`."""
    if index not in ("auto", "off", "require"):
        raise ValueError(f'index must be "auto", "off" or "require", not {index!r}')


class KnownFile(NamedTuple):
    """What an index knows of a file as it is listed now."""

    stamp: Stamp
    schema: pa.Schema
    num_row_groups: int


class FolderIndexes:
    """The indexes of the table that a folder belongs to.

    Parameters
    ----------
    filesystem : pyarrow.fs.FileSystem
    folder : str
        The table, or a partition folder of it.
    keys : Any
        Those of the reader, as :func:`.shared_keys` returns them.
    is_required : bool
        Whether it is an error if an index cannot be used.
    columns : collection of str
        The indexed columns.

    Attributes
    ----------
    recent : ListedIndexes or None
        For a reader that asks once, right after it has listed the files. None: they are listed
        again for each scan, because they may have changed.
    """

    recent: ListedIndexes | None = None

    def __init__(self, filesystem: pa_fs.FileSystem, folder: str, keys: Any, is_required: bool,
                 columns: Collection[str]):
        self.table, self.folder = Table(filesystem, table_of(folder)), folder
        self.columns, self._is_required = columns, is_required
        self._kms = cached(keys) if hasattr(keys, "unwrap_key") else None

    @classmethod
    def find(cls, filesystem: pa_fs.FileSystem, folder: str, keys: Any,
             index: IndexUse) -> FolderIndexes | None:
        """Return the indexes; None if there are none, or ``index`` is "off".

        Raises FileNotFoundError if there are none and ``index`` is "require".
        """
        if index == "off":
            return None
        if hasattr(keys, "footer_key"):
            if index == "require":
                raise TypeError('index is "require", but an index needs a KMS, not explicit keys')
            return None
        columns = indexed_columns(filesystem, table_of(folder))
        if columns:
            return cls(filesystem, folder, keys, index == "require", columns)
        if index == "require":
            raise FileNotFoundError(f"{table_of(folder)} has no index, but index is \"require\"")
        return None

    def listed(self, check: Check | None = None) -> ListedIndexes:
        """List the files, and return what the indexes know of them."""
        only = self.open(next(iter(self.columns))) if len(self.columns) == 1 else None
        listing = self.table.listing(self.folder, check) if only is None \
            else listing_for(self.table, only, self.folder, check)
        return ListedIndexes(self, listing, [] if only is None else [only])

    def open(self, column: str) -> ColumnIndex | None:
        """Open the newest version of the index of a column; None if it cannot be used."""
        return self.attempt(column, lambda: open_column(self.table.filesystem, self.table.path,
                                                        column, self._kms))

    def attempt(self, column: str, work: Callable[[], _Result]) -> _Result | None:
        """Return the result of a function; None if an index cannot be used.

        A damaged index is a reason for a warning; a missing key, or segments that were merged
        meanwhile, are not. Raises an error only if indexes are required, or the KMS does not
        respond.
        """
        try:
            return work()
        except KMS_FAULTS:
            raise
        except (SecureBloomError, OSError) as error:
            if self._is_required:
                raise
            if not isinstance(error, (*NO_KEY, ChangedMeanwhileError)):
                warnings.warn(IndexWarning(f"the index of column {column!r} in {self.table.path} "
                                           f"is not used: {error}"), stacklevel=2)
            return None


class ListedIndexes:
    """The indexes of a table, and its files as they are listed now, by path relative to it."""

    def __init__(self, indexes: FolderIndexes, listing: Mapping[str, Stamp],
                 opened: Iterable[ColumnIndex] = ()):
        self._indexes, self._listing = indexes, listing
        self._opened: dict[str, tuple[ColumnIndex, Coverage] | None] = {
            index.column: (index, index.coverage(listing)) for index in opened}

    @property
    def paths(self) -> list[str]:
        """Paths of the listed files in the filesystem."""
        table = self._indexes.table
        return [table.full_path(path) for path in self._listing]

    @cached_property
    def known_files(self) -> dict[str, KnownFile]:
        """What is known of the files that any of the indexes covers, by path in the filesystem."""
        found: dict[str, KnownFile] = {}
        for column in self._indexes.columns:
            if len(found) == len(self._listing):
                break
            if (opened := self._open(column)) is not None:
                found = self._known_by(*opened) | found
        return found

    def select(self, paths: Iterable[str], alternatives: Alternatives,
               excluded: Collection[str] = ()) -> dict[str, list[int]]:
        """Return the row groups where a filter may hold, of the files for which an index tells.

        Parameters
        ----------
        paths : iterable of str
            Files in the filesystem that have the columns and types for which the filter is meant.
        alternatives : list of list of Predicate, or None
        excluded : collection of str
            Columns whose values do not come from the files.
        """
        table = self._indexes.table.path
        own = {relative_path(path, table): path for path in paths}
        union: dict[str, list[int]] | None = None
        for alternative in alternatives or ():
            found = self._of_alternative(own.keys(), [
                p for p in alternative if p.column not in excluded])
            union = found if union is None else {
                path: sorted({*union[path], *groups}) for path, groups in found.items()
                if path in union}
        return {own[path]: groups for path, groups in (union or {}).items()}

    def _of_alternative(self, paths: Collection[str], predicates: list[Predicate]) \
            -> dict[str, list[int]]:
        """Return the row groups where all predicates may hold, of files of which that is known."""
        known: dict[str, list[int]] = {}
        for predicate in predicates:
            values = predicate.candidates
            if not values or predicate.column not in self._indexes.columns:
                continue
            for path, groups in self._candidates(predicate.column, values, paths).items():
                known[path] = groups if path not in known \
                    else [group for group in known[path] if group in set(groups)]
        return known

    def _candidates(self, column: str, values: list[Any], paths: Collection[str]) \
            -> dict[str, list[int]]:
        """Return the row groups that may have one of some values, of the files that are covered."""
        opened = self._open(column)
        if opened is None:
            return {}
        index, coverage = opened

        def hashes(column_type: ColumnType) -> ValueHashes:
            if isinstance(values, ValueList):
                return values.derived(value_hashes, column_type)
            return value_hashes(values[0] if len(values) == 1 else values, column_type)

        hits = self._indexes.attempt(column, lambda: index.find_hashes(hashes))
        if hits is None:
            return {}
        answered = {one.segment for one in hits if not one.unanswered.size}
        found: dict[str, list[int]] = {path: [] for path, place in coverage.places.items()
                                       if place.segment in answered and path in paths}
        for one in hits:
            for _, path, group in located(index, coverage, one) if one.segment in answered else ():
                if path in found:
                    found[path].append(group)
        return {path: sorted(set(groups)) if groups else groups for path, groups in found.items()}

    def _open(self, column: str) -> tuple[ColumnIndex, Coverage] | None:
        if column not in self._opened:
            index = self._indexes.open(column)
            self._opened[column] = None if index is None \
                else (index, index.coverage(self._listing))
        return self._opened[column]

    def _known_by(self, index: ColumnIndex, coverage: Coverage) -> dict[str, KnownFile]:
        table, schemas, counts = self._indexes.table, [], []
        for segment in index.segments:
            schemas.append([_parsed(schema) for schema in segment.files.schemas])
            counts.append(np.diff(segment.files.first_group).tolist())
        ids = [segment.files.schema_ids for segment in index.segments]
        return {table.full_path(path): KnownFile(
                    self._listing[path], schemas[segment][ids[segment][file]],
                    counts[segment][file])
                for path, (segment, file) in coverage.places.items()}


_schemas: dict[bytes, pa.Schema] = {}


def _parsed(serialized: bytes) -> pa.Schema:
    """Parse a schema; equal ones are one object, by which files are grouped."""
    if serialized not in _schemas:
        if len(_schemas) > 1000:
            _schemas.clear()
        _schemas[serialized] = pa.ipc.read_schema(pa.py_buffer(serialized))
    return _schemas[serialized]
