"""One file of a data set: its schema, and an open handle of one version when it is read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.arrow.decryption import SharedDecryption
from secure_bloom.arrow.few_row_groups import FilePart
from secure_bloom.arrow.masking import OnMissingKey
from secure_bloom.errors import ChangedMeanwhileError
from secure_bloom.keys.retrieval import Keys
from secure_bloom.policy.requirement import FolderChecks
from secure_bloom.reading.matching_rows import MatchingRows
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.sbbf import light_arrow
from secure_bloom.sbbf.filter import SplitBlockBloomFilter
from secure_bloom.storage.cache import Cache
from secure_bloom.storage.source import Source, UnopenedSource
from secure_bloom.storage.versions import FileVersion, current_version, until_unchanged

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from secure_bloom.index.identity import Identity
    from secure_bloom.index.known_files import KnownFile
    from secure_bloom.index.planning import Indexes
    from secure_bloom.index.stamps import Stamp
    from secure_bloom.pruning.found_rows import FoundRows

FILE, ROW_GROUP = "file", "row_group"  # the columns of the source of a row
SOURCE_SCHEMA = pa.schema([pa.field(FILE, pa.string(), nullable=False),
                           pa.field(ROW_GROUP, pa.int32(), nullable=False)])
_FOOTER_BYTES = 16 * 1024 * 1024  # as stored; parsed they take several times as much
_FILTER_BYTES = 128 * 1024 * 1024


def new_footers() -> Cache[OpenFile]:
    """Return a cache of files whose footers were parsed, by path; they are closed."""
    return Cache(_FOOTER_BYTES)


class OutdatedError(ChangedMeanwhileError):
    """The data set no longer has the files or schemas with which it was opened."""


class FileAccess(NamedTuple):
    """What all files of a data set have in common, and what was read of them last.

    The files in ``footers`` are closed. ``filters`` are by path, version, row group and column.
    ``indexes`` are those that scans use.
    """

    filesystem: pa_fs.FileSystem
    keys: Keys
    checks: FolderChecks
    with_source: bool
    on_missing_key: OnMissingKey
    footers: Cache[OpenFile]
    filters: Cache[SplitBlockBloomFilter]
    indexes: Indexes | None = None

    @classmethod
    def new(cls, filesystem: pa_fs.FileSystem, keys: Keys, checks: FolderChecks,
            with_source: bool, on_missing_key: OnMissingKey = "error",
            indexes: Indexes | None = None,
            footers: Cache[OpenFile] | None = None) -> FileAccess:
        """Return the access to files of which at most footers have been read."""
        return cls(filesystem, keys, checks, with_source, on_missing_key,
                   new_footers() if footers is None else footers, Cache(_FILTER_BYTES), indexes)

    def keep(self, path: str, file: OpenFile) -> None:
        """Keep what was parsed of a file."""
        self.footers.put(path, file, len(file.stored_footer))


class DatasetFile:
    """A file of a data set, closed. Its schema stays the same, whatever version it has.

    ``partition`` is an expression that holds for all rows, ``partition_values`` are those of the
    columns that come from the path, among them ``file`` if requested. ``row_groups`` are those to
    read at most; None: all. ``maskable`` are the columns whose key may be missing.

    ``look`` is called with the open file, unless it is ``known``. If it returns True, the file
    stays open, :meth:`open` returns it once, and whoever passed ``look`` closes it.
    """

    maskable: frozenset[str] = frozenset()
    _kept: OpenedFile | None = None

    def __init__(self, access: FileAccess, path: str, partition: pc.Expression | None,
                 partition_values: dict[str, pa.Scalar], known: KnownFile | None = None,
                 look: Callable[[OpenedFile], bool] | None = None):
        self.access, self.path = access, path
        self.partition, self.partition_values = partition, partition_values
        if access.with_source:
            self.partition_values = {**partition_values,
                                     FILE: light_arrow.scalar(path, pa.string())}
        self.row_groups: list[int] | None = None
        self._version: FileVersion | None = None
        self._schema: pa.Schema | None = None
        self._identity: Identity | None = None  # of the version that was opened first
        self._identified: FileVersion | None = None
        self._is_masked: dict[str, bool] = {}  # as far as the keys were requested
        self.is_encrypted = False  # until it has been opened
        if known is not None:
            self._schema, self.num_rows = known.schema, known.num_rows
            return
        until_unchanged(partial(self._look, look))

    def _look(self, look: Callable[[OpenedFile], bool] | None) -> None:
        with ExitStack() as stack:
            opened = self._open(keep=look is None)
            stack.callback(opened.close)
            self.num_rows = opened.file.num_rows
            if self.access.indexes is not None:
                self._identity = self.access.indexes.identify(opened.file)
                self._identified = opened.file.version
            if self.access.on_missing_key == "null":
                self.maskable = opened.file.maskable_columns
            if look is None:
                return
            if look(opened):
                self._kept = opened
                stack.pop_all()
            if self.row_groups != []:  # otherwise it is not opened again
                self.access.keep(self.path, opened.file)

    @property
    def schema(self) -> pa.Schema:
        """Schema of the file itself."""
        assert self._schema is not None
        return self._schema

    def masked_columns(self, names: Collection[str]) -> list[str]:
        """Return which of these columns are masked; keys are requested the first time."""
        unknown = [name for name in names
                   if name in self.maskable and name not in self._is_masked]
        if unknown:
            with self._open_for_keys() as opened:
                masked = opened.file.masked_columns(unknown)
            self._is_masked.update({name: name in masked for name in unknown})
        return [name for name in names if self._is_masked.get(name)]

    def check_compared(self, names: Collection[str]) -> None:
        """Raise KeyRetrievalError if one of these columns is masked."""
        if self.masked_columns(names):
            with self._open_for_keys() as opened:
                opened.file.check_filtered(names)

    def is_of(self, stamp: Stamp, identity: Identity | None) -> bool:
        """Whether an index may know the file, as far as it has been opened."""
        if self._identity is None:
            return True
        return identity is not None and identity.allows(self._identity) \
            and stamp.is_of(self._identified, self.access.filesystem)

    def forget_keys(self) -> None:
        """Request keys again for :meth:`masked_columns`."""
        self._is_masked.clear()

    def restricted(self, version: FileVersion | None, row_groups: list[int] | None) -> DatasetFile:
        """Return this file with only some row groups, which are those of one version."""
        file = copy(self)
        file.row_groups = row_groups
        file._version = None if row_groups is None else version
        return file

    def open(self) -> OpenedFile:
        """Open the current version of the file.

        A local file that was read before is not opened yet; see :meth:`OpenedFile.open_now`.

        Raises OutdatedError if the file was removed, or has another schema now.
        """
        kept, self._kept = self._kept, None
        return until_unchanged(self._open) if kept is None else kept

    @contextmanager
    def _open_for_keys(self) -> Iterator[OpenedFile]:
        """Open the file; one that stays open is left so."""
        if self._kept is not None:
            yield self._kept
            return
        opened = self.open()
        try:
            yield opened
        finally:
            opened.close()

    def _open(self, *, keep: bool = True) -> OpenedFile:
        """Open the file; with ``keep``, what is read of it is kept for the next time."""
        known = self.access.footers.get(self.path)
        try:
            source = self._source(known)
        except FileNotFoundError as error:
            if self._schema is None:  # it was not there before
                raise
            raise OutdatedError("the file was removed after the data set was opened; open the data "
                                "set again", file=self.path) from error
        try:
            if self._version is not None and source.version != self._version:
                raise OutdatedError("the file was replaced after its row groups were chosen; start "
                                    "again with the data set", file=self.path)
            if known is None or source.version is None or known.version != source.version:
                opened = OpenedFile(self, self._parsed(source, keep), source)
            else:
                opened = OpenedFile(self, known.reopened(source), source)
                self._schema = self._schema or known.schema
        except BaseException:
            source.close()
            raise
        self.is_encrypted = opened.file.footer.is_encrypted
        return opened

    def _source(self, known: OpenFile | None) -> Source:
        """Return the current version; not yet open if nothing of it may have to be read."""
        filesystem = self.access.filesystem
        if known is not None and known.version is not None and filesystem.type_name == "local" \
                and current_version(filesystem, self.path) == known.version:
            return UnopenedSource(filesystem, self.path, known.version)
        return Source(self.path, filesystem)

    def _parsed(self, source: Source, keep: bool) -> OpenFile:
        access = self.access
        file = OpenFile(source, access.keys, require_encryption=access.checks,
                        on_missing_key=access.on_missing_key,
                        filter_cache=access.filters if keep else None)
        if self._schema is None:
            self._schema = file.schema
        elif not self._schema.equals(file.schema, check_metadata=True):
            raise OutdatedError("the file was replaced by one with another schema after the data "
                                "set was opened; open the data set again", file=self.path)
        if keep:
            access.keep(self.path, file)
        return file


class OpenedFile:
    """A file of a data set that is open at one version, and the row groups to read; None: all.

    ``masked`` are the columns that are not read, but null. ``is_pruned``: whether ``row_groups``
    are those that the filter of the scan needs. ``found_rows`` are those for which the filter may
    hold, as an index says of this version; None: all.
    """

    masked: frozenset[str] = frozenset()
    found_rows: FoundRows | None = None
    is_pruned = False

    def __init__(self, dataset_file: DatasetFile, file: OpenFile, source: Source):
        self.dataset_file, self.file, self.source = dataset_file, file, source
        self.row_groups = dataset_file.row_groups

    @property
    def num_rows(self) -> int:
        """Number of rows in the row groups to read."""
        if self.row_groups is None:
            return self.file.num_rows
        return sum(map(self.file.footer.row_group_num_rows, self.row_groups))

    def parts(self, shared: SharedDecryption, columns: object,
              matching: MatchingRows | None = None) -> list[FilePart]:
        """Return the row groups to read, as pyarrow reads them while the file is open.

        If ``matching`` reads some by pages, they have only the rows that match.
        With the columns of the source, if the data set has them: then each row group is one part.
        The columns that will be read are checked: see :meth:`.OpenFile.check_columns`.
        """
        self.file.check_columns(columns, self.row_groups)
        if not self.dataset_file.access.with_source:
            return [self._part(shared, self.row_groups, {}, matching)]
        return [self._part(shared, [group], self._source_of(group), matching)
                for group in self.groups]

    @property
    def groups(self) -> Sequence[int]:
        """The numbers of the row groups to read."""
        return range(self.file.num_row_groups) if self.row_groups is None else self.row_groups

    def constants(self, group: int) -> dict[str, pa.Scalar]:
        """Return the columns that have one value in all rows of a row group."""
        file = self.dataset_file
        return {**file.partition_values,
                **(self._source_of(group) if file.access.with_source else {})}

    def _source_of(self, group: int) -> dict[str, pa.Scalar]:
        return {FILE: self.dataset_file.partition_values[FILE],
                ROW_GROUP: light_arrow.scalar(group, pa.int32())}

    def _part(self, shared: SharedDecryption, row_groups: list[int] | None,
              constants: dict[str, pa.Scalar], matching: MatchingRows | None) -> FilePart:
        of_path = self.dataset_file.partition_values
        return FilePart(self.source, self.file.arrow_access(row_groups, shared),
                        self.file.num_row_groups, row_groups, self.dataset_file.partition,
                        constants, None if matching is None
                        else partial(matching.of, self.file, of_path,
                                     found_rows=self.found_rows))

    def is_selected(self, stamp: Stamp, identity: Identity | None) -> bool:
        """Whether the open version is the one that an index knows, and a listing showed."""
        return stamp.is_of(self.file.version, self.dataset_file.access.filesystem) \
            and identity is not None and identity.allows_file(self.file)

    def check(self) -> None:
        """Raise ChangedMeanwhileError if what was read is not of one version."""
        self.source.note_read()
        self.source.check()

    def open_now(self) -> None:
        """Open the file if that was put off. Raises ChangedMeanwhileError if it was replaced."""
        _ = self.source.file

    def close(self) -> None:
        """Close the file."""
        self.source.close()
