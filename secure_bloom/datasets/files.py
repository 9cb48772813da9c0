"""The files of a folder that is read as one table: each at a single version, few of them open.

A file is first inspected to find its schema and the row groups to read. Its rows are read later,
when all schemas are known. If it is replaced in between, it is inspected again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.arrow.few_row_groups import Each, FilePart
from secure_bloom.arrow.masking import OnMissingKey
from secure_bloom.arrow.pages import pyarrow_errors, to_table
from secure_bloom.datasets.partitions import values_of
from secure_bloom.encryption_requirement import FolderChecks
from secure_bloom.errors import ChangedMeanwhileError, FileError, KeyRetrievalError
from secure_bloom.keys.retrieval import Keys
from secure_bloom.pruning.expressions import Alternatives, columns_of
from secure_bloom.pruning.predicates import Condition
from secure_bloom.reader import ParquetFile
from secure_bloom.storage.files import Source
from secure_bloom.storage.versions import until_unchanged

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from secure_bloom.arrow.row_filter import RowFilter


class OtherFilesError(ChangedMeanwhileError):
    """The listing or the common schema is no longer valid: start again by listing the files."""


class FolderQuery(NamedTuple):
    """A query that applies to all files of a folder.

    ``folder`` is for messages. The values of the columns in ``partition_schema`` come from the
    paths of the files. ``pruning`` is that of :func:`.file_pruning`.
    """

    folder: str
    filesystem: pa_fs.FileSystem
    keys: Keys
    columns: list[str] | None
    condition: Condition | None
    pruning: Callable[[pa.Schema], Alternatives]
    partition_schema: pa.Schema
    checks: FolderChecks
    on_missing_key: OnMissingKey = "error"

    def __repr__(self) -> str:
        return f"<FolderQuery of {self.folder}>"  # never the values of the condition

    def row_filter(self, schema: pa.Schema) -> RowFilter | None:
        """Return the filter for rows of the table; None if all are read."""
        from secure_bloom.arrow.row_filter import RowFilter
        return None if self.condition is None else RowFilter(self.condition, schema)

    def filtered(self, file: ParquetFile) -> Collection[str]:
        """Return the top-level columns of a file that the filter uses."""
        if isinstance(self.condition, list):
            prefixes = tuple(f"{p.column}." for parts in self.condition for p in parts)
            return {leaf.parts[0] for leaf in file.columns if f"{leaf.path}.".startswith(prefixes)}
        names = [] if self.condition is None else columns_of(self.condition)
        return file.schema.names if names is None else names

    def masked(self, file: ParquetFile) -> frozenset[str]:
        """Return the columns of a file that are read and are masked."""
        wanted = file.schema.names if self.columns is None else self.columns
        return frozenset(file.masked_columns(set(wanted) - set(self.partition_schema.names)))


class FolderFile:
    """A file of a folder, and what to read from it: some ``row_groups``, or all (None).

    ``masked`` are the columns that are not read, but null.
    """

    masked: frozenset[str] = frozenset()

    def __init__(self, query: FolderQuery, path: str, partition: pc.Expression | None):
        self._query, self.path, self._partition = query, path, partition
        self._source: Source | None = None
        self.look()

    def look(self) -> None:
        """Find the schema and the row groups of the current version; the file stays open."""
        until_unchanged(self._look)

    def _look(self) -> None:
        query = self._query
        self._source = self._opened()
        file = ParquetFile(self._source, query.keys, require_encryption=query.checks,
                           on_missing_key=query.on_missing_key)
        row_groups = file.row_groups_for(query.pruning(file.schema), self._partition_values(),
                                         query.filtered(file))
        if row_groups != []:
            file.check_columns(query.columns, row_groups)
            file.check_columns(query.filtered(file), row_groups)
        access = file.arrow_access(row_groups) if row_groups != [] else None
        masked = query.masked(file) if row_groups != [] else frozenset()
        # All of this is of one version; if an inspection fails, everything keeps the previous one.
        self.row_groups, self._access, self.schema = row_groups, access, file.schema
        self.masked, self._num_row_groups = masked, file.num_row_groups
        self._version = self._source.version

    def _partition_values(self) -> dict[str, pa.Scalar]:
        return values_of(self._partition, self._query.partition_schema)

    def _opened(self) -> Source:
        try:
            return Source(self.path, self._query.filesystem)
        except FileNotFoundError as error:
            raise OtherFilesError("the file was removed while its folder was being read; try again",
                                  file=self.path) from error

    def open(self) -> Source:
        """Open the file for reading rows; inspect it again if its version has changed."""
        if self._source is None:
            schema, masked = self.schema, self.masked
            self._source = self._opened()
            if self._source.version != self._version:
                self.close()
                self.look()
            if not self.schema.equals(schema, check_metadata=True):
                raise OtherFilesError("the file was replaced by one with another schema while its "
                                      "folder was being read; try again", file=self.path)
            if self.masked != masked:
                raise OtherFilesError("the file was replaced by one with other keys while its "
                                      "folder was being read; try again", file=self.path)
        return self._source

    def part(self) -> FilePart | None:
        """Return the row groups to read; None if there are none. The file must be open."""
        if self.row_groups == []:
            return None
        access, source = self._access, self._source
        assert access is not None and source is not None
        return FilePart(source, access, self._num_row_groups, self.row_groups, self._partition)

    def close(self) -> None:
        """Close the file until it is opened again."""
        if self._source is not None:
            self._source.file.close()
            self._source = None


def read_rows(query: FolderQuery, files: list[FolderFile], schema: pa.Schema,
              each: Each = map) -> pa.Table:
    """Read the rows of some files, which are all open at the same time, and close the files.

    ``schema`` is that of the table; ``each`` is ``map``, or the method of a thread pool. Raises
    OtherFilesError if a file was removed, or its schema has changed; ChangedMeanwhileError if a
    file repeatedly changed while it was read.
    """
    return until_unchanged(lambda: _read_rows(query, files, schema, each))


def _read_rows(query: FolderQuery, files: list[FolderFile], schema: pa.Schema,
               each: Each) -> pa.Table:
    with ExitStack() as stack:
        for file in files:
            stack.callback(file.close)
        sources = list(each(FolderFile.open, files))
        for source in sources:
            stack.enter_context(source.one_version())
        table = _scanned(query, files, schema, each)
        list(each(_check, sources))  # several at a time, since each takes a request
    return table


def _scanned(query: FolderQuery, files: list[FolderFile], schema: pa.Schema,
             each: Each) -> pa.Table:
    row_filter = query.row_filter(schema)

    def rows(some: Iterable[tuple[FolderFile, FilePart | None]]) -> pa.Table:
        together = groupby((one for one in some if one[1] is not None),
                           key=lambda one: one[0].masked)
        tables = [to_table([part for _, part in group if part is not None], schema, query.columns,
                           row_filter, masked, each) for masked, group in together]
        return pa.concat_tables(tables or [to_table([], schema, query.columns, row_filter)])

    pairs = [(file, file.part()) for file in files]
    try:
        with pyarrow_errors(query.folder, query.keys):
            return rows(pairs)
    except (FileError, KeyRetrievalError):
        for pair in pairs:  # find the file that failed
            with pyarrow_errors(pair[0].path, query.keys):
                rows([pair])
        raise


def _check(source: Source) -> None:
    source.note_read()
    source.check()
