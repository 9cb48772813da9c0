"""The interface of ``pyarrow.dataset.Scanner`` over the files of a data set.

Not pyarrow's own scanner: it simplifies filters using statistics, and so loses rows
(the page "Row filters"), and its ``to_reader`` holds Python's lock while it waits for a KMS client.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pyarrow as pa

from secure_bloom.arrow import masking
from secure_bloom.arrow.dictionaries import compact_dictionaries, filtered_rows
from secure_bloom.arrow.leaves import contains, has_dictionary_in_list, is_list_view
from secure_bloom.arrow.pages import projected_schema
from secure_bloom.arrow.row_filter import RowFilter
from secure_bloom.arrow.views import filtered, taken
from secure_bloom.datasets.dataset_file import DatasetFile, FileAccess, OpenedFile
from secure_bloom.datasets.masking import NOT_MASKED, MaskedColumns, find_masked
from secure_bloom.datasets.report import ScanReport, describe
from secure_bloom.datasets.scan import NewReader, Rows, Scan
from secure_bloom.datasets.selection import Selection
from secure_bloom.display import Summarized, count, warn
from secure_bloom.errors import UnsupportedError, unknown_column
from secure_bloom.parquet.schema import check_names
from secure_bloom.pruning.expressions import RowGroupFilter, columns_of
from secure_bloom.pruning.predicates import Filters, condition_of
from secure_bloom.storage.threads import in_order, pool_for
from secure_bloom.storage.versions import until_unchanged

if TYPE_CHECKING:
    import pyarrow.compute as pc


#: names to read, or expressions by the names of their results; None: all columns
Columns: TypeAlias = "list[str] | Mapping[str, pc.Expression] | None"


class View(NamedTuple):
    """How files are seen: the columns of the table, and a filter that every scan applies.

    ``selection`` is what indexes have selected for the filter of the only scan, if anything has.
    """

    access: FileAccess
    schema: pa.Schema
    where: tuple[Filters, ...] = ()
    selection: Selection | None = None


class Scanner(Summarized):
    """Reads the rows of a data set for which a filter holds. Each method starts a new pass.

    Attributes
    ----------
    dataset_schema : pyarrow.Schema
        Of the data set.
    report : ScanReport
        What the last pass has read and skipped.
    """

    def __init__(self, view: View, files: list[DatasetFile], columns: Columns,
                 filter: Filters | None, options: Mapping[str, Any],
                 row_group_filter: RowGroupFilter | None = None):
        self.dataset_schema = view.schema
        self._view, self._files, self._options = view, files, options
        check_names(columns)
        self._columns = columns if columns is None or isinstance(columns, Mapping) \
            else list(columns)
        self._projected = _projected(view.schema, self._columns)
        filters = [*view.where, *([] if filter is None else [filter])]
        self._filters = [RowFilter(condition_of(one), view.schema) for one in filters]
        self._row_group_filters: list[RowGroupFilter] = [*self._filters]
        if row_group_filter is not None:
            self._row_group_filters.append(row_group_filter)
        self._new_report()

    @cached_property
    def projected_schema(self) -> pa.Schema:
        """Schema of the rows that are returned."""
        names = self._masking.num_files
        if isinstance(self._columns, Mapping):
            return masking.masked_schema(self._projected, [
                name for name, one in self._columns.items() if _is_column(one, names)])
        return masking.masked_schema(self._projected, names)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as record batches, in the order of files and row groups.

        Raises
        ------
        FormatError, AuthenticationError, KeyRetrievalError
            With the name of the file.
        ChangedMeanwhileError
            If a file changed while it was read. The batches so far may be of two versions.
        """
        return self._batches(self._pass(self._masking))

    def rows_by(self, new_reader: NewReader[Rows]) -> Iterator[Rows]:
        """Yield the rows in another form; only without filters of rows. See :class:`Scan`."""
        assert not self._filters
        return self._pass(self._masking).rows_by(new_reader, self._columns, dict(self._options))

    def to_table(self) -> pa.Table:
        """Return the rows as a table. If a file changes meanwhile, they are read again."""
        return until_unchanged(
            lambda: pa.Table.from_batches(self.to_batches(), self.projected_schema))

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the rows."""
        warn_of_old_duckdb()  # this is what DuckDB calls
        check_for_duckdb(self.projected_schema)
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows as a table. If a file changes meanwhile, they are read again."""
        if num_rows < 0:
            raise ValueError(f"num_rows must be at least 0, not {num_rows}")
        return until_unchanged(lambda: self._head(num_rows))

    def take(self, indices: Any) -> pa.Table:
        """Return the rows with these positions, in this order."""
        return compact_dictionaries(taken(self.to_table(), indices))

    def count_rows(self) -> int:
        """Return the number of rows; without a filter, from the footers alone."""
        if self._filters:
            return until_unchanged(lambda: sum(batch.num_rows for batch in self.to_batches()))
        return sum(opened.num_rows for opened in self._opened_and_closed())

    def explain(self) -> ScanReport:
        """Return what a pass would read and skip.

        Only footers, Bloom filters, and the page indexes of the columns in the filter are read.
        """
        scan = self._pass()
        for opened in scan.open_files():
            try:
                scan.expect(opened)
            finally:
                opened.close()
        return self.report

    def remaining_files(self) -> Iterator[DatasetFile]:
        """Yield the files that may have matching rows, each restricted to the row groups to read.
        """
        for opened in self._opened_and_closed():
            yield opened.dataset_file.restricted(opened.file.version, opened.row_groups)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _opened_and_closed(self) -> Iterator[OpenedFile]:
        for opened in self._pass().open_files():
            opened.close()
            yield opened

    def _new_report(self) -> None:
        conditions = [describe(one.alternatives) for one in self._row_group_filters]
        self.report = ScanReport(" and ".join(conditions) or describe(None))

    def _pass(self, masked: MaskedColumns = NOT_MASKED) -> Scan:
        self._new_report()
        return Scan(self._files, self._view.access, self._view.schema, self._row_group_filters,
                    self.report, masked, self._view.selection)

    @property
    def _computes_itself(self) -> bool:
        """Whether expressions are computed from rows in memory, since columns may be masked."""
        return isinstance(self._columns, Mapping) and self._view.access.on_missing_key == "null"

    @cached_property
    def _masking(self) -> MaskedColumns:
        """The masked columns; found once, so that all results have the same schema."""
        access = self._view.access
        computed: list[str] = []
        if access.on_missing_key != "null":
            return NOT_MASKED
        if isinstance(self._columns, Mapping):
            for one in self._columns.values():
                names = columns_of(one)
                if names is None or not _is_column(one, names):
                    computed += self._view.schema.names if names is None else names
        compared = {name for one in self._row_group_filters for name in one.columns}
        needed = self._needed()
        candidates = [name for name in (self._view.schema.names if needed is None else needed)
                      if name not in compared and name not in computed]
        with pool_for(access.filesystem) as pool:
            found = find_masked(self._files, self._row_group_filters, candidates, computed,
                                partial(in_order, pool))
        masking.warn_of_missing_keys(found.num_files, count(len(self._files), "file"))
        return found

    def _batches(self, scan: Scan) -> Iterator[pa.RecordBatch]:
        batches = scan.batches(self._needed(), **self._options)
        if not self._filters and not self._computes_itself:
            return batches
        return self._filtered(batches)

    def _head(self, num_rows: int) -> pa.Table:
        scan, found = self._pass(self._masking), []
        for batch in self._batches(scan):
            first = batch.slice(0, num_rows)
            found.append(filtered_rows(first, pa.repeat(True, len(first))))
            num_rows -= len(found[-1])
            if num_rows <= 0:
                scan.check()
                break
        return pa.Table.from_batches(found, self.projected_schema)

    def _filtered(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for one in self._filters:
                batch = filtered(batch, one.holds(batch))
            if batch.num_rows:
                yield self._project(compact_dictionaries(batch))

    def _needed(self) -> Columns:
        """Return the columns that are read: those of the result and of the filters; None: all."""
        if self._columns is None or not (self._filters or self._computes_itself):
            return self._columns
        names: list[list[str] | None] = [one.columns for one in self._filters]
        if isinstance(self._columns, Mapping):
            names += map(columns_of, self._columns.values())
        else:
            names.append(self._columns)
        if None in names:
            return None
        return list(dict.fromkeys(name for some in names if some for name in some))

    def _project(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not isinstance(self._columns, Mapping):
            return batch.select(self._projected.names)
        import pyarrow.dataset as ds
        scanner = ds.Scanner.from_batches(iter([batch]), schema=batch.schema,
                                          columns=dict(self._columns))
        rows = scanner.to_table().combine_chunks().to_batches()[0]
        return masking.marked(rows, masking.masked_names(self.projected_schema))

    def _headline(self) -> str:
        return f"{count(len(self._projected), 'column')}; {self.report._headline()}"


def _is_column(expression: pc.Expression, names: Iterable[str]) -> bool:
    """Whether an expression only renames one of some columns."""
    import pyarrow.compute as pc
    return any(expression.equals(pc.field(name)) for name in names)


def _projected(schema: pa.Schema, columns: Columns) -> pa.Schema:
    if columns is None:
        return schema
    if not isinstance(columns, Mapping):
        for name in columns:
            if name not in schema.names:
                raise unknown_column(name, schema.names)
    known = projected_schema(schema, columns)
    if known is not None:
        return known
    import pyarrow.dataset as ds
    return ds.InMemoryDataset(schema.empty_table()).scanner(columns).projected_schema


# --- what DuckDB would read wrong -----------------------------------------------------------------

_has_warned = False


def warn_of_old_duckdb() -> None:
    """Warn, once in a process, if a version of DuckDB is imported that returns wrong results."""
    global _has_warned
    version = str(getattr(sys.modules.get("duckdb"), "__version__", ""))
    major = re.match(r"(\d+)\.", version)
    if _has_warned or major is None or int(major[1]) >= 2:
        return
    _has_warned = True
    warn(UserWarning(f"DuckDB {version} reads decimals of pyarrow data sets wrong, and loses NaN "
                     "in filters; use DuckDB 2.0 or newer"))


def check_for_duckdb(schema: pa.Schema) -> None:
    """Raise UnsupportedError if DuckDB is imported, and would read a column wrong or break on it.

    These are dictionaries in lists, which data sets have with list views only.
    """
    for field in schema if "duckdb" in sys.modules else ():
        if has_dictionary_in_list(field.type) and contains(field.type, is_list_view):
            raise UnsupportedError("DuckDB reads dictionaries in lists wrong, and in types with "
                                   "list views values cannot replace them; leave the column out",
                                   column=field.name)
