"""Read Parquet files: their Bloom filters, encrypted or not, and the row groups worth reading.

The footer and the filters are read here; pages are read and decrypted by pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cached_property, partial, wraps
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from secure_bloom.arrow import masking
from secure_bloom.arrow.decryption import (
    ArrowAccess,
    SharedDecryption,
    is_read_alike,
    with_key_material,
    with_physical_types,
)
from secure_bloom.arrow.few_row_groups import FilePart
from secure_bloom.arrow.leaves import leaf_types
from secure_bloom.arrow.masking import OnMissingKey, with_masked
from secure_bloom.arrow.pages import pyarrow_errors, to_table
from secure_bloom.arrow.schema import arrow_schema
from secure_bloom.crypto.key_retriever import KeyRetriever
from secure_bloom.display import Summarized, count, shown
from secure_bloom.encryption_requirement import (
    RequireEncryption,
    check_encryption,
    encryption_requirement,
)
from secure_bloom.errors import (
    KMS_FAULTS,
    FileError,
    FormatError,
    KeyRetrievalError,
    UnsupportedError,
    error_location,
    unknown_column,
)
from secure_bloom.keys.external import read_material
from secure_bloom.keys.retrieval import Keys, KmsKeys, key_retriever
from secure_bloom.parquet.bloom_filter import BloomFilterInfo
from secure_bloom.parquet.column_keys import ColumnKeys
from secure_bloom.parquet.footer import TAIL_SIZE, Footer, read_footer
from secure_bloom.parquet.schema import LeafColumn, check_names
from secure_bloom.pruning import predicates
from secure_bloom.pruning.expressions import Alternatives, columns_of
from secure_bloom.pruning.file_filters import FileFilters, FilterCache
from secure_bloom.pruning.predicates import Filters
from secure_bloom.pruning.row_groups import PruningResult, prune_row_groups
from secure_bloom.sbbf.filter import SplitBlockBloomFilter
from secure_bloom.storage.files import FileSource, Source
from secure_bloom.storage.versions import FileVersion

if TYPE_CHECKING:
    from secure_bloom.arrow.row_filter import RowFilter

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _of_one_version(method: Callable[Concatenate[ParquetFile, _Arguments], _Result]) \
        -> Callable[Concatenate[ParquetFile, _Arguments], _Result]:
    """Make a method raise ChangedMeanwhileError, instead of anything else, if the file changes."""
    @wraps(method)
    def checked(self: ParquetFile, /, *args: _Arguments.args,
                **kwargs: _Arguments.kwargs) -> _Result:
        with self._source.one_version():
            return method(self, *args, **kwargs)
    return checked


class ParquetFile(Summarized):
    """A Parquet file and its Bloom filters.

    All data that an object reads is of one version of the file. If a local file is replaced by
    renaming, that is the version that was opened, until :meth:`close`. If a file is overwritten in
    place, or is in an object store, methods raise ChangedMeanwhileError once it has changed.

    Parameters
    ----------
    source : str, path, buffer, or seekable binary file
        A Python file object is read by one thread at a time; the other sources by many.
    keys : KmsClient, ExplicitKeys, path of a keyring, or URI of a KMS, optional
        For encrypted files. Default: the KMS of the environment, see ``docs/keys.md``. Without
        keys, or with ``secure_bloom.keys.NO_KEYS``, only plaintext parts can be read.
    filesystem : pyarrow.fs.FileSystem, optional
        Filesystem of ``source`` if that is a path; default: local, or by URI.
    require_encryption : bool, list of str, mapping of str to str, or Policy, optional
        What must be encrypted. True: the footer, which may be signed instead, and every column. A
        list of dotted paths: these columns, where a group stands for all leaves below it. A
        mapping: these columns, each under this master key. A :class:`Policy`: what it says. By
        default only :class:`ExplicitKeys` refuse unencrypted files.
    on_missing_key : {"error", "null"}
        What :meth:`read`, :meth:`iter_tables` and :meth:`iter_batches` do with columns whose key
        does not exist or is denied. "null": they are masked, which means that all values are null,
        and a :class:`.MissingKeyWarning` names them. See ``docs/keys.md``.
    filter_cache : FilterCache, optional
        Where decrypted filters are kept. By default they are read each time.

    Raises
    ------
    FormatError, AuthenticationError, KeyRetrievalError
        With the name of the file, and with row group and column if applicable.
    ColumnError
        If ``require_encryption`` names a column that does not exist.
    UnsupportedError
        If the file is a summary of other files (``_metadata``), without rows of its own.
    ChangedMeanwhileError
        If the file was replaced or changed while it was read.
    """

    def __init__(self, source: FileSource | Source, keys: Keys = None, *,
                 filesystem: pa_fs.FileSystem | None = None,
                 require_encryption: RequireEncryption = None,
                 on_missing_key: OnMissingKey = "error",
                 filter_cache: FilterCache | None = None):
        self._masks = masking.is_masking(on_missing_key)
        self._read_alike: list[bool] = []  # one element, when known; shared with other handles
        requirement = encryption_requirement(require_encryption)
        self._source = source if isinstance(source, Source) else Source(source, filesystem)
        self._keys = key_retriever(keys) if self._source.path is None else key_retriever(
            keys, partial(_key_material_beside, self._source), self.path)
        with error_location(file=self._source.name), self._source.one_version():
            self._content, self._magic = read_footer(self._source)
            self._footer = Footer(self._content, self._magic, self._keys,
                                  start=self._source.size - TAIL_SIZE - len(self._content))
            self._check_has_rows()
            check_encryption(self._footer, self._keys, requirement, self.path)
        self._column_keys = ColumnKeys(self._footer, self.name)
        self._filters = FileFilters(self._source, self._footer, filter_cache)

    def _check_has_rows(self) -> None:
        """Raise UnsupportedError if this is only a summary of other files."""
        if self._footer.is_summary:
            raise UnsupportedError("this is a summary of the footers of other files, without rows "
                                   "of its own; open these files, or their folder")

    @property
    def name(self) -> str:
        """Name of the file, as used in errors."""
        return self._source.name

    @property
    def path(self) -> str | None:
        """Path of the file, in the base filesystem of a subtree; None if the source has none."""
        return self._source.base_path

    @property
    def keys(self) -> KeyRetriever | None:
        """Where the data keys of this file come from; None if it is read without keys."""
        return self._keys

    @property
    def version(self) -> FileVersion | None:
        """The version of the open file; None if the source has no path."""
        return self._source.version

    def reopened(self, source: Source) -> ParquetFile:
        """Return the same version of the file with another handle, and the same parsed footer."""
        assert source.version == self.version
        file = copy(self)
        file._source, file._filters = source, self._filters.reopened(source)
        return file

    @contextmanager
    def one_version(self) -> Iterator[None]:
        """A block that succeeds only if everything read in it is of one version.

        For reads that other methods do not check: :meth:`read_at`, and what pyarrow reads for
        :meth:`open_in_pyarrow`. Any error in the block is replaced by a ChangedMeanwhileError if
        the file has changed.

        Raises
        ------
        ChangedMeanwhileError
        """
        with self._source.one_version():
            yield
            self._source.note_read()

    @property
    def num_row_groups(self) -> int:
        """Number of row groups."""
        return len(self._footer.row_groups)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self._footer.num_rows

    @property
    def columns(self) -> list[LeafColumn]:
        """The leaf columns."""
        return self._footer.columns

    @property
    def footer_size(self) -> int:
        """Stored bytes of the footer."""
        return len(self._content)

    @property
    def stored_footer(self) -> bytes:
        """The bytes of the footer as they are stored."""
        return self._content

    @property
    def magic(self) -> bytes:
        """The last 4 bytes of the file."""
        return self._magic

    @property
    def footer(self) -> Footer:
        """The footer, for uses beyond what this class provides."""
        return self._footer

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema."""
        with pyarrow_errors(self.name, self._keys):
            return arrow_schema(self._footer.schema_file())

    @cached_property
    @_of_one_version
    def bloom_filters(self) -> list[BloomFilterInfo]:
        """Return one record per filter, by row group and column. Reads the header of each filter.

        The :attr:`columns_without_key` are omitted: whether they have filters cannot be known.
        """
        return self._filters.infos()

    @property
    def columns_without_key(self) -> list[str]:
        """Paths of columns whose metadata is encrypted with a key not available to this reader.

        The key is missing, or the KMS denies access to it.
        """
        return list(self.key_errors)

    @cached_property
    def key_errors(self) -> dict[str, KeyRetrievalError]:
        """Why the key of each of the :attr:`columns_without_key` is not available."""
        return self._column_keys.missing_for_metadata()

    @_of_one_version
    def masked_columns(self, columns: Iterable[str] | None = None) -> dict[str, KeyRetrievalError]:
        """Return which of some or all (None) top-level columns are masked, and why.

        Requests the keys of these columns. A column is masked if the key of any leaf below it is
        missing. None is masked unless the file was opened with ``on_missing_key="null"``.

        Raises
        ------
        KeyRetrievalError
            If the key of a column is not available for another reason.
        """
        if not self._masks or not self._footer.is_encrypted:
            return {}
        return self._column_keys.missing(columns)

    @property
    def maskable_columns(self) -> frozenset[str]:
        """Names of the top-level columns whose key may be missing. No key is requested."""
        return self._column_keys.that_may_be_missing()

    def check_filtered(self, columns: Iterable[str]) -> None:
        """Check that none of the columns that a filter uses is masked.

        A filter would find nothing in a masked column, even if there are matching rows.

        Parameters
        ----------
        columns : iterable of str
            Dotted paths of columns or groups. Those that the file lacks are ignored.

        Raises
        ------
        KeyRetrievalError
            If ``on_missing_key`` is "null", and the key of one of them is not available.
        """
        if self._masks:
            with self._source.one_version():
                self._column_keys.check(self._leaves(columns))

    @_of_one_version
    def check_columns(self, columns: object = None,
                      row_groups: Iterable[int] | None = None) -> None:
        """Check that encrypted columns are those that the schema says; see ``docs/keys.md``.

        The methods of this class do so themselves, except :meth:`open_in_pyarrow`. Requests the
        keys of these columns.

        Parameters
        ----------
        columns : list of str, or mapping of str to pyarrow.compute.Expression, optional
            Dotted paths of columns or groups, or what is computed from them. Default: all. Those
            that the file lacks are ignored.
        row_groups : iterable of int, optional
            Default: all.

        Raises
        ------
        AuthenticationError
            If a column is another one in its own metadata, which is encrypted with its key.
        KeyRetrievalError
            If a key is not available, unless it is missing or denied: then nothing can be read.
        """
        if self._footer.is_encrypted and self._keys is not None:
            names = _names_in(columns)
            leaves = self.columns if names is None else self._leaves(names)
            self._column_keys.check_names(leaves, row_groups)

    @_of_one_version
    def read_bloom_filter(self, row_group: int, column: str) -> SplitBlockBloomFilter | None:
        """Read the filter of a column chunk; None if it has none.

        It records the column's type, so that ``check`` hashes values as the file does.

        Raises
        ------
        FormatError, AuthenticationError, UnsupportedError, KeyRetrievalError
            If the filter cannot be read; with file, row group and column.
        ColumnError
            If there is no such column.
        """
        return self._filters.read(row_group, self._column(column))

    @_of_one_version
    def might_contain(self, column: str, values: object) -> np.ndarray:
        """Check which row groups may hold which values, as far as the Bloom filters tell.

        Parameters
        ----------
        column : str
            Dotted path of a leaf column.
        values : scalar, sequence, or Arrow array

        Returns
        -------
        bool array, shape (row groups, values)
            False: the value is certainly not there. True also if a row group has no filter, or one
            of an unknown kind.
        """
        return self._filters.might_contain(self._column(column), values,
                                           range(self.num_row_groups))

    def prune(self, filters: Filters) -> list[int]:
        """Return the row groups that may hold rows matching these filters.

        Statistics are checked first, which costs nothing, then the Bloom filters of the remaining
        row groups.

        Parameters
        ----------
        filters : list of tuple, list of list of tuple, or pyarrow.compute.Expression
            ``[("city", "==", "Rome")]``, or a list of such lists of which one must hold. Or an
            Expression such as ``pc.field("city") == "Rome"``, with Arrow's semantics; see
            ``docs/filters.md``.

        Raises
        ------
        PredicateError
            If a value cannot be compared with its column.
        KeyRetrievalError
            If a filter uses a column whose key is missing.
        """
        condition = predicates.condition_of(filters)
        alternatives: Alternatives
        if isinstance(condition, list):
            alternatives = self._checked(condition, of_rows=False)
            self.check_filtered(p.column for parts in alternatives for p in parts)
        else:
            row_filter = self._row_filter(condition)
            alternatives = row_filter.alternatives
            self.check_filtered(row_filter.columns)
        if alternatives is None:
            return list(range(self.num_row_groups))
        return self.prune_row_groups(alternatives).after_filters

    @_of_one_version
    def prune_row_groups(self, alternatives: list[list[predicates.Predicate]],
                         row_groups: Iterable[int] | None = None) -> PruningResult:
        """Prune the row groups with a normalized filter, step by step."""
        def look_up(column: str, values: list[Any], groups: list[int]) \
                -> Mapping[int, Sequence[bool]]:
            return self._filters.look_up(self._footer.column(column), values, groups)

        groups = list(range(self.num_row_groups)) if row_groups is None else list(row_groups)
        with error_location(file=self.name):
            return prune_row_groups(self._footer, alternatives, groups, look_up)

    def read(self, columns: list[str] | None = None, filters: Filters | None = None) -> pa.Table:
        """Read rows; row groups that statistics or Bloom filters rule out are not read.

        Parameters
        ----------
        columns : list of str, optional
            Names of the columns to read. Default: all.
        filters : list of tuple, list of list of tuple, or pyarrow.compute.Expression, optional
            As for :meth:`prune`; only matching rows are returned.

        Raises
        ------
        PredicateError
            If a value cannot be compared with its column; raised before any row is read.
        UnsupportedError
            If all columns are requested, and two of them have the same name.
        """
        row_filter, masked = self._to_read(columns, filters)
        with self._source.one_version(), self._page_errors(columns, row_filter, masked):
            parts = self._parts_for(columns, row_filter)
            table = to_table(parts, self.schema, columns, row_filter, masked)
            if parts:
                self._source.note_read()
            return table

    def iter_tables(self, columns: list[str] | None = None, filters: Filters | None = None) \
            -> Iterator[pa.Table]:
        """Yield the rows that :meth:`read` returns, one table for each row group that is read.

        Before a table is yielded, it is checked to be of the version that was opened.
        """
        row_filter, masked = self._to_read(columns, filters)
        with self._source.one_version(), self._page_errors(columns, row_filter, masked):
            parts = self._parts_for(columns, row_filter)
            for part in (one for some in parts for one in some.each_row_group()):
                table = to_table([part], self.schema, columns, row_filter, masked)
                self._source.note_read()
                self._source.check()
                yield table

    def iter_batches(self, columns: list[str] | None = None,
                     row_groups: Iterable[int] | None = None,
                     batch_rows: int = 65_536) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some row groups in small batches, decoded one at a time.

        Parameters
        ----------
        columns : list of str, optional
            Names of top-level columns. Default: all.
        row_groups : iterable of int, optional
            Default: all.
        batch_rows : int
            Maximum number of rows per batch.

        Notes
        -----
        INT96 timestamps are returned in microseconds, which can represent all years.

        Before a batch is yielded, it is checked to be of the version that was opened.
        """
        groups = list(range(self.num_row_groups)) if row_groups is None else list(row_groups)
        check_names(columns)
        known = {leaf.parts[0] for leaf in self.columns}
        for name in columns or ():
            if name not in known and not self._leaves([name]):
                with error_location(file=self.name):
                    raise unknown_column(name, self.schema.names)
        if not groups:
            return
        counts = list(map(self._footer.row_group_num_rows, groups))
        ends, rows, rows_read = accumulate(counts), 0, 0
        _, masked = self._to_read(columns, None)
        with self._source.one_version(), self._page_errors(columns, masked=masked):
            wanted = [field for field in self.schema  # fails here if pyarrow cannot read it
                      if columns is None or field.name in columns]
            if masked:
                columns = [field.name for field in wanted if field.name not in masked]
            self.check_columns(columns, groups)
            try:
                file = self.open_in_pyarrow(coerce_int96_timestamp_unit="us")
                for batch in file.iter_batches(batch_rows, groups, columns, use_threads=False):
                    rows += batch.num_rows
                    while rows_read < rows:  # pyarrow reads a row group when it reaches it
                        rows_read = next(ends, rows)
                        self._source.note_read()
                    self._source.check()
                    yield with_masked(batch, wanted, masked) if masked else batch
            except pa.ArrowInvalid as error:
                raise FormatError("pyarrow cannot read the pages") from error
            if rows != sum(counts):  # pyarrow stops where the shortest column ends
                raise FormatError("the pages of a column do not have as many rows as the footer "
                                  "says")

    def _parts_for(self, columns: object, row_filter: RowFilter | None) -> list[FilePart]:
        """Return the row groups where a filter may hold; one part or none."""
        alternatives = row_filter.alternatives if row_filter else None
        row_groups = self.row_groups_for(alternatives)
        if row_groups == [] and alternatives is not None:
            return []
        self.check_columns(columns, row_groups)
        if row_filter is not None:
            self.check_columns(row_filter.columns, row_groups)
        return [FilePart(self._source, self.arrow_access(row_groups), self.num_row_groups,
                         row_groups)]

    def row_groups_for(self, alternatives: list[list[predicates.Predicate]] | None,
                       partition_values: Mapping[str, pa.Scalar] | None = None,
                       filtered: Iterable[str] = ()) -> list[int] | None:
        """Return the row groups where a normalized filter may hold; None without a filter.

        Columns that come from the path have their values even if the file has a column of that
        name; other columns missing from this file are null. ``filtered`` are the columns that the
        filter uses, for :meth:`check_filtered`, which is called unless partition values rule the
        file out.
        """
        of_file = [name for name in filtered if name not in (partition_values or {})]
        if alternatives is None:
            self.check_filtered(of_file)
            return None
        possible = alternatives
        found = self._footer.columns_by_path
        if partition_values or any(p.column not in found for some in alternatives for p in some):
            from secure_bloom.arrow.predicate_rows import constants_in, remaining
            possible = remaining(alternatives,
                                 constants_in(alternatives, found, partition_values or {}))
        if possible:
            self.check_filtered(of_file)
        return self.prune_row_groups(possible).after_filters

    def _to_read(self, columns: list[str] | None, filters: Filters | None) \
            -> tuple[RowFilter | None, Collection[str]]:
        """Return the filter for rows, and the columns that are masked; warn about them."""
        row_filter = None if filters is None else self._row_filter(filters)
        if not self._masks:
            return row_filter, ()
        if isinstance(columns, Mapping):
            raise TypeError('columns must be a list of names if on_missing_key is "null"')
        if row_filter is not None:
            self.check_filtered(row_filter.columns)
        masked = self.masked_columns(columns)
        masking.warn_of_missing_keys(dict.fromkeys(masked, 1), self.name)
        return row_filter, masked

    def _row_filter(self, filters: Filters) -> RowFilter:
        """Return the filter for rows of this file, after checking that Arrow can evaluate it."""
        from secure_bloom.arrow.row_filter import RowFilter
        condition = predicates.condition_of(filters)
        if isinstance(condition, list):
            self._checked(condition, of_rows=True)
        with error_location(file=self.name):
            return RowFilter(condition, self.schema)

    def _checked(self, alternatives: list[list[predicates.Predicate]], *, of_rows: bool) \
            -> list[list[predicates.Predicate]]:
        """Return a normalized filter, after checking that its values are comparable."""
        def type_of(path: str) -> pa.DataType:
            leaf = self._column(path)
            if leaf.is_repeated and not of_rows:
                return leaf_types(pa.struct(self.schema))[leaf.ordinal]
            return predicates.find_field(self.schema, path).type

        with error_location(file=self.name):
            predicates.check(alternatives, type_of)
        return alternatives

    def read_at(self, nbytes: int, offset: int) -> bytes:
        """Return raw bytes of the file; fewer at its end. See :meth:`one_version`."""
        return bytes(self._source.read_at(nbytes, offset))

    def open_in_pyarrow(self, *, with_annotations: bool = True, **options: Any) \
            -> pq.ParquetFile:
        """Open the file in pyarrow, with the keys; errors are pyarrow's.

        It reads through this object, and therefore only until :meth:`close`; its reads are checked
        by :meth:`one_version`. pyarrow does not compare what encrypted columns say about themselves
        with the schema: call :meth:`check_columns` first.

        Parameters
        ----------
        with_annotations : bool
            False: read values as they are stored, by physical type alone.
        **options
            Options of :class:`pyarrow.parquet.ParquetFile`.
        """
        access = self.arrow_access() if with_annotations else with_physical_types(
            self._source.size, self._content, self._magic, self._keys)
        return pq.ParquetFile(access.file(self._source), metadata=access.metadata(),
                              decryption_properties=access.properties, **options)

    def close(self) -> None:
        """Close the file if it was opened by this object."""
        if self._source.path is not None:
            self._source.close()

    def __enter__(self) -> ParquetFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _page_errors(self, columns: Iterable[str] | None, row_filter: RowFilter | None = None,
                     masked: Collection[str] = ()) -> Iterator[None]:
        """Convert pyarrow's errors to ours; if a column's key is unavailable, add its location."""
        with pyarrow_errors(self.name, self._keys):
            try:
                yield
            except (KeyRetrievalError, FileError, OSError) as error:
                is_placed = getattr(error, "column", None) is not None
                if self._keys is not None and not is_placed and not isinstance(error, KMS_FAULTS):
                    leaves = self.columns if columns is None else self._leaves(
                        {*columns, *(row_filter.columns if row_filter else ())})
                    self._column_keys.check(leaf for leaf in leaves
                                            if leaf.parts[0] not in masked)
                raise

    def _leaves(self, names: Iterable[str]) -> list[LeafColumn]:
        """Return the leaf columns with these paths, and those below them."""
        prefixes = tuple(f"{name}." for name in names)
        return [leaf for leaf in self.columns if f"{leaf.path}.".startswith(prefixes)]

    def arrow_access(self, row_groups: Iterable[int] | None = None,
                     shared: SharedDecryption | None = None) -> ArrowAccess:
        """Return how pyarrow reads the pages of some or all (None) row groups of this version.

        ``shared`` is what it has in common with other files, if they are read together.
        """
        if not self._footer.is_encrypted or self._keys is None:
            return ArrowAccess(self._end)
        if isinstance(self._keys, KmsKeys) and self._is_read_alike(row_groups):
            return ArrowAccess(self._end, (shared or SharedDecryption()).properties(self._keys.kms))
        return self._with_key_material

    @property
    def _end(self) -> bytes:
        """The footer up to the end of the file."""
        return b"".join([self._content, len(self._content).to_bytes(4, "little"), self._magic])

    def _is_read_alike(self, row_groups: Iterable[int] | None) -> bool:
        if row_groups is not None:
            return is_read_alike(self._footer, row_groups)
        if not self._read_alike:
            self._read_alike.append(is_read_alike(self._footer, range(self.num_row_groups)))
        return self._read_alike[0]

    def read_key_material(self) -> Mapping[str, str]:
        """Return the key material that is in a file next to this one, by name.

        Raises
        ------
        KeyRetrievalError
            If there is none, or it cannot be parsed.
        ChangedMeanwhileError
            If this file has been replaced, so that the key material may belong to another file.
        """
        return _key_material_beside(self._source)

    @cached_property
    def _with_key_material(self) -> ArrowAccess:
        assert self._keys is not None
        return with_key_material(self._source.size, self._content, self._magic, self._keys)

    def _column(self, path: str) -> LeafColumn:
        with error_location(file=self._source.name):
            return self._footer.column(path)

    def _headline(self) -> str:
        return (f"{shown(self.name, 60)}: {count(self.num_row_groups, 'row group')}, "
                f"{count(self.num_rows, 'row')}")

    def _rows(self) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        return ("column", "type"), ((leaf.path, leaf.type) for leaf in self.columns)


def _names_in(columns: object) -> Iterable[str] | None:
    """Return the columns that are read for some columns or expressions; None: perhaps all."""
    if not isinstance(columns, Mapping):
        return cast("Iterable[str] | None", columns)
    names: set[str] = set()
    for expression in columns.values():
        used = columns_of(expression)
        if used is None:
            return None
        names.update(used)
    return names


def _key_material_beside(source: Source) -> Mapping[str, str]:
    # Not a bound method: otherwise the file would stay open until garbage collection.
    assert source.path is not None
    material = read_material(source.filesystem, source.path)
    source.check_name()
    return material
