"""The files in which rows of some values are searched."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.arrow.char_columns import common_length, length_in_file, padded
from secure_bloom.arrow.masking import OnMissingKey, is_masking
from secure_bloom.datasets.dataset_file import DatasetFile, FileAccess
from secure_bloom.datasets.index_use import index_use
from secure_bloom.datasets.scan import inspected
from secure_bloom.datasets.schemas import common_schema
from secure_bloom.datasets.sources import DatasetSource, Files, FilesRequest, find_files
from secure_bloom.display import shown_path, without_credentials
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
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.reading.rows import iter_batches
from secure_bloom.sbbf.probes import is_scalar
from secure_bloom.sbbf.scalars import plain_values
from secure_bloom.storage.cache import Cache
from secure_bloom.storage.files import FilePath
from secure_bloom.storage.many_files import NO_FAULT_OF_A_FILE, Advance

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
    write to the folder may have put the index there. ``footers`` are those that an earlier search
    without a requirement has read; those of unchanged files are not read again. With
    ``values_for``, which returns the values for the schema of the files, only the rows of these may
    be asked for: files without them may be left out.

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
                 opens_all: bool = False, footers: Cache[OpenFile] | None = None,
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
                                     indexes=found.listed, footers=footers)
        self.narrowed = found.narrowed
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

    def condition(self, values: object) -> list[list[Predicate]]:
        """Return the condition of the rows to find."""
        given = _as_list(values)
        return self._condition(given, self.char_lengths(given))

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
