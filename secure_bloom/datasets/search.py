"""The search for rows of some values: in which files, and the rows of each."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.arrow.char_columns import common_length, length_in_file, padded
from secure_bloom.arrow.decryption import SharedDecryption
from secure_bloom.arrow.dictionaries import filtered_rows, nothing
from secure_bloom.arrow.few_row_groups import FilePart
from secure_bloom.arrow.masking import OnMissingKey, is_masking, masked_schema, warn_of_missing_keys
from secure_bloom.arrow.pages import pyarrow_errors
from secure_bloom.arrow.row_filter import RowFilter
from secure_bloom.arrow.schema import without_values
from secure_bloom.datasets.dataset_file import (
    SOURCE_SCHEMA,
    DatasetFile,
    FileAccess,
    OpenedFile,
)
from secure_bloom.datasets.index_use import index_use
from secure_bloom.datasets.masking import NOT_MASKED, MaskedColumns, find_masked
from secure_bloom.datasets.report import INDEX, ScanReport, describe
from secure_bloom.datasets.scan import Scan, inspected
from secure_bloom.datasets.schemas import common_schema
from secure_bloom.datasets.selection import Selection
from secure_bloom.datasets.sources import DatasetSource, Files, FilesRequest, find_files
from secure_bloom.display import count, shown_path, without_credentials
from secure_bloom.errors import (
    ColumnError,
    SecureBloomError,
    UnsupportedError,
    error_location,
    unknown_column,
)
from secure_bloom.keys.retrieval import Keys, open_keys
from secure_bloom.parquet.schema import check_names
from secure_bloom.policy.environment import reading_requirement
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.requirement import FolderChecks, RequireEncryption
from secure_bloom.pruning.predicates import Predicate
from secure_bloom.pruning.value_list import ValueList
from secure_bloom.reading.rows import iter_batches
from secure_bloom.sbbf.probes import is_scalar
from secure_bloom.sbbf.scalars import plain_values
from secure_bloom.storage.files import FilePath
from secure_bloom.storage.many_files import NO_FAULT_OF_A_FILE, Advance
from secure_bloom.storage.threads import in_order, pool_for
from secure_bloom.storage.versions import until_unchanged

if TYPE_CHECKING:
    from secure_bloom.index.known_files import KnownFiles
    from secure_bloom.index.planning import FolderIndexes, IndexUse, ListedIndexes

_FIRST_ROWS = 1000  # that tell whether a column is CHAR(n)


class FailedFile(NamedTuple):
    """A file that could not be searched completely."""

    file: str
    error: SecureBloomError | OSError

    @property
    def message(self) -> str:
        """The error, with the path."""
        text = str(self.error) or type(self.error).__name__
        file = shown_path(without_credentials(self.file))
        return text if file in text else f"file {file}: {text}"


OnError: TypeAlias = Callable[[FailedFile], object]


class Search:
    """The files to search. Their footers are read when it is created.

    The parameters are those of :func:`secure_bloom.find`. With ``opens_all``, the footer of each
    file is read and compared with what an index says of it, as with a requirement: anyone who can
    write to the folder may have put the index there. With ``values_for``, which returns the values
    for the schema of the files, only :meth:`rows` of these may be asked for: files without them may
    be left out.

    Attributes
    ----------
    schema : pyarrow.Schema
        The columns that are needed of all files that could be opened.
    paths : list of str
        Of all files, with those that could not be opened, and without those that were left out.
    num_files : int
        Number of all files.
    is_known : bool
        Whether ``schema`` is that of the files; else none could be opened.
    column, columns
        As passed.
    files : list of DatasetFile
    access : FileAccess
    """

    def __init__(self, source: DatasetSource, column: str, columns: list[str] | None = None,
                 keys: Keys = None, *, filesystem: pa_fs.FileSystem | None = None,
                 all_files: bool = False, require_encryption: RequireEncryption = None,
                 policy: Policy | FilePath | None = None,
                 on_missing_key: OnMissingKey = "error", on_error: OnError | None = None,
                 advance: Advance | None = None, index: IndexUse = "auto",
                 opens_all: bool = False,
                 values_for: Callable[[pa.Schema], object] | None = None):
        check_names(columns)
        self.column, self.columns = column, columns
        self._on_error, self._advance = on_error, advance or (lambda fraction: None)
        requirement = reading_requirement(require_encryption, policy, in_transition=True)
        opens_all |= requirement is not None
        keys = open_keys(keys, remember_denials=is_masking(on_missing_key))
        found = find_files(source, filesystem, all_files=all_files, request=FilesRequest(
            keys, index_use(index, on_missing_key), opens_all,
            None if values_for is None else partial(self._narrowed, values_for)))
        checks = FolderChecks(requirement, found.partition_schema.names)
        self.access = FileAccess.new(found.filesystem, found.keys or keys, checks,
                                     with_source=True, on_missing_key=on_missing_key,
                                     indexes=found.listed)
        self.narrowed = found.narrowed
        self.selection = None if found.narrowed is None \
            else Selection(found.listed, found.narrowed.rows)
        self.paths, self.num_files = found.paths, len(found.paths)
        if found.narrowed is not None:
            self.num_files += found.narrowed.num_files
        with error_location(file=found.name):
            files = self._inspected(found, None if opens_all else found.known)
            try:
                checks.finish()
            except ColumnError:
                if len(files) == self.num_files:  # else one of the others may have the column
                    raise
        known = [file.schema for file in files]
        if found.narrowed is not None and not known:
            known = [found.narrowed.schema]
        self._check_names(known, found.partition_schema)
        self.is_known = bool(known)
        self.files, self.schema = self._of_one_schema(files, found.partition_schema) if files \
            else ([], common_schema([], self._needed_parts(known), found.partition_schema))

    def rows(self, values: object) -> SearchedRows:
        """Return the rows to find; the errors are those of :func:`secure_bloom.find`."""
        given = _as_list(values)
        return SearchedRows(self, self._condition(given, self.char_lengths(given)),
                            self.schema.names if self.columns is None else self.columns)

    def _condition(self, given: list[Any], lengths: frozenset[int]) -> list[list[Predicate]]:
        given = [*given, *(one for value in given for one in padded(value, lengths))]
        return [[Predicate(self.column, "in", ValueList(given))]]

    def _narrowed(self, values_for: Callable[[pa.Schema], object],
                  found: FolderIndexes | ListedIndexes) -> Files | None:
        """Return the files that may have the values, if an index knows all files."""
        from secure_bloom.datasets.narrowing import narrowed  # with an index only

        def condition(schema: pa.Schema) -> list[list[Predicate]] | None:
            given, length = _as_list(values_for(schema)), length_in_file(schema, self.column)
            if length == 0 and any(isinstance(value, str) for value in given):
                return None  # only the values in a file tell whether it is CHAR(n)
            return self._condition(given, frozenset([length] if length else ()))

        return narrowed({self.column}, condition, found)

    def char_lengths(self, values: list[Any]) -> frozenset[int]:
        """Return the lengths of the column if it is CHAR(n) of Spark, and values are text.

        Where a file of Spark does not say so, the first values tell.
        """
        if not any(isinstance(value, str) for value in values):
            return frozenset()
        schemas = {id(file.schema): file.schema for file in self.files}
        found = {key: length_in_file(schema, self.column) for key, schema in schemas.items()}
        lengths = {length for length in found.values() if length}
        undeclared = [file for file in self.files if found[id(file.schema)] == 0]
        for file in undeclared:
            length = self.attempt(file.path, partial(self._common_length, file))
            if isinstance(length, int):
                lengths.add(length)
                break
        return frozenset(lengths - {0})

    def _common_length(self, file: DatasetFile) -> int | None:
        opened = file.open()
        try:
            return common_length(iter_batches(opened.file, [self.column], None, _FIRST_ROWS))
        finally:
            opened.close()

    def _inspected(self, found: Files, known: KnownFiles | None) -> list[DatasetFile]:
        files = []
        for number, file in enumerate(inspected(found, self.access, known, self.attempt), 1):
            if isinstance(file, FailedFile):
                self.fail(file)
            else:
                files.append(file)
            self.tell(number / 2)
        return files

    def _of_one_schema(self, files: list[DatasetFile], partition_schema: pa.Schema) \
            -> tuple[list[DatasetFile], pa.Schema]:
        """Return the files that can be read as one table, and its schema."""
        paths = [file.path for file in files]
        schemas = self._needed_parts([file.schema for file in files])
        try:
            return files, common_schema(paths, schemas, partition_schema)
        except UnsupportedError:
            if self._on_error is None:
                raise
        fitting, schema = files[:1], common_schema(paths[:1], schemas[:1], partition_schema)
        for file, own in zip(files[1:], schemas[1:], strict=True):
            try:
                schema = common_schema([paths[0], file.path], [schema, own], partition_schema)
                fitting.append(file)
            except UnsupportedError as error:
                self.fail(FailedFile(file.path, error))
        return fitting, schema

    def _check_names(self, of_files: list[pa.Schema], partition_schema: pa.Schema) -> None:
        """Raise ColumnError unless a file has each of the columns."""
        schemas = {id(schema): schema for schema in of_files}.values()
        known = list(dict.fromkeys(name for schema in [*schemas, partition_schema]
                                   for name in schema.names))
        for name in [self.column, *(self.columns or ())] if of_files else ():
            is_known = name in known or (name == self.column and any(
                name.startswith(f"{group}.") for group in known))
            if not is_known:
                raise unknown_column(name, known)

    def _needed_parts(self, schemas: list[pa.Schema]) -> list[pa.Schema]:
        """Return of each file the schema of the columns that are needed."""
        if self.columns is None:
            return schemas
        parts: dict[int, pa.Schema] = {}
        for whole in {id(schema): schema for schema in schemas}.values():
            part = pa.schema([field for field in whole if field.name in (self.columns or ())
                              or f"{self.column}.".startswith(f"{field.name}.")])
            parts[id(whole)] = part
        return [parts[id(schema)] for schema in schemas]

    def attempt(self, path: str, work: Callable[[], Any]) -> Any:
        """Return the result of a function, or a FailedFile if it fails because of the file."""
        try:
            with error_location(file=path):
                return work()
        except NO_FAULT_OF_A_FILE:
            raise
        except (SecureBloomError, OSError) as error:
            return FailedFile(path, error)

    def fail(self, failed: FailedFile) -> None:
        """Report a file that cannot be read: to the caller, or as an error."""
        if self._on_error is None:
            raise failed.error
        self._on_error(failed)

    def tell(self, num_done: float) -> None:
        """Report progress: opening a file is one half of its work."""
        self._advance(num_done / max(1, self.num_files))


def _as_list(values: object) -> list[Any]:
    wanted: Any = [values] if is_scalar(values) else values
    return plain_values(wanted)


class SearchedRows:
    """The rows of the values that are looked for, one batch at a time.

    Attributes
    ----------
    schema : pyarrow.Schema
        Of the rows that are returned.
    report : ScanReport
        What has been read and skipped so far. Files that could not be opened are not counted.
    """

    def __init__(self, search: Search, condition: list[list[Predicate]], columns: list[str]):
        self._search, self.report = search, ScanReport(describe(condition))
        self._filters: list[RowFilter] = []
        self._shared = SharedDecryption()
        self.schema, self._masking = SOURCE_SCHEMA, NOT_MASKED
        if not search.is_known:  # nothing is known about columns
            return
        row_filter = RowFilter(condition, search.schema)
        self._filters = [row_filter]
        self._schema = _with_source(search.schema, [*columns, *row_filter.columns])
        self._masking = self._masked(columns)
        fields = [without_values(self._schema.field(name)) for name in columns]
        self.schema = masked_schema(pa.schema([*SOURCE_SCHEMA, *fields]), self._masking.num_files)

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows, in the order of files and row groups; a batch is of one row group.

        Before a batch is yielded, it is checked to be of the version that was opened.
        """
        search, access = self._search, self._search.access
        if search.narrowed is not None:
            self.report.add_skipped(INDEX, search.narrowed.num_files,
                                    search.narrowed.num_row_groups, search.narrowed.num_bytes)
        if not search.files:
            return
        scan = Scan(search.files, access, self._schema, self._filters, self.report, self._masking,
                    search.selection)
        done = search.num_files - len(search.files) / 2
        with pool_for(access.filesystem) as pool:
            look = partial(self._look, scan)
            candidates = scan.candidates()
            done += (len(search.files) - len(candidates)) / 2
            for looked in in_order(pool, look, candidates):
                if isinstance(looked, FailedFile):
                    search.fail(looked)
                else:
                    opened, outcomes = looked
                    scan.count(opened, outcomes)
                    try:
                        yield from self._of_file(scan, opened, done)
                    finally:
                        opened.close()
                done += 0.5
                search.tell(done)

    def _masked(self, columns: list[str]) -> MaskedColumns:
        """Find the masked columns; those of files that cannot be opened are found out later."""
        search = self._search
        if search.access.on_missing_key != "null":
            return NOT_MASKED
        compared = {name for one in self._filters for name in one.columns}

        def each(work: Callable[[DatasetFile], Any], files: list[DatasetFile]) -> Iterator[Any]:
            def attempt(file: DatasetFile) -> Any:
                return search.attempt(file.path, lambda: work(file))

            for found in in_order(pool, attempt, files):
                yield () if isinstance(found, FailedFile) else found

        with pool_for(search.access.filesystem) as pool:
            found = find_masked(search.files, self._filters,
                                [name for name in columns if name not in compared], [], each)
        warn_of_missing_keys(found.num_files, count(search.num_files, "file"))
        return found

    def _look(self, scan: Scan, file: DatasetFile) -> Any:
        return self._search.attempt(file.path, lambda: until_unchanged(lambda: scan.look(file)))

    def _of_file(self, scan: Scan, opened: OpenedFile, done: float) -> Iterator[pa.RecordBatch]:
        path = opened.dataset_file.path
        parts = self._search.attempt(path, lambda: opened.parts(
            self._shared, self._schema.names, scan.matching))
        if isinstance(parts, FailedFile):
            self._search.fail(parts)
            return
        for number, part in enumerate(parts, 1):
            found = self._search.attempt(path, partial(self._of_row_group, scan, opened, part))
            if isinstance(found, FailedFile):
                self._search.fail(found)
                return
            yield from found
            self._search.tell(done + number / len(parts) / 2)

    def _of_row_group(self, scan: Scan, opened: OpenedFile,
                      part: FilePart) -> list[pa.RecordBatch]:
        [row_filter] = self._filters
        found = []
        with opened.source.one_version(), \
                pyarrow_errors(opened.dataset_file.path, self._search.access.keys):
            for batch in scan.rows_of([part], opened.masked, None, {}):
                holds = row_filter.holds(batch)
                if holds.true_count:  # what is found is handed over: nothing else is in it
                    rows = filtered_rows(batch.select(self.schema.names), holds, nothing)
                    found.append(pa.RecordBatch.from_arrays(rows.columns, schema=self.schema))
        opened.check()
        return found


def _with_source(schema: pa.Schema, names: list[str]) -> pa.Schema:
    """Return a schema of some columns, behind those of the source."""
    fields = []
    for name in dict.fromkeys(names):
        if name in SOURCE_SCHEMA.names:
            raise ColumnError("find returns a column of this name, which says where a row was "
                              "found; choose other columns, or use secure_bloom.dataset",
                              column=name)
        if len(schema.get_all_field_indices(name)) != 1:
            raise ColumnError("several columns have this name", column=name)
        fields.append(schema.field(name))
    return pa.schema([*SOURCE_SCHEMA, *fields])
