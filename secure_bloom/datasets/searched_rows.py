"""The rows of a search, one batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from secure_bloom.arrow.decryption import SharedDecryption
from secure_bloom.arrow.dictionaries import filtered_rows, nothing
from secure_bloom.arrow.few_row_groups import FilePart
from secure_bloom.arrow.masking import masked_schema, warn_of_missing_keys
from secure_bloom.arrow.pages import pyarrow_errors
from secure_bloom.arrow.row_filter import RowFilter
from secure_bloom.arrow.schema import without_values
from secure_bloom.datasets.dataset_file import SOURCE_SCHEMA, DatasetFile, OpenedFile
from secure_bloom.datasets.masking import NOT_MASKED, MaskedColumns, find_masked
from secure_bloom.datasets.report import INDEX, ScanReport, describe
from secure_bloom.datasets.scan import Scan
from secure_bloom.datasets.search import FailedFile, Search
from secure_bloom.display import count
from secure_bloom.errors import ColumnError
from secure_bloom.storage.threads import in_order, pool_for
from secure_bloom.storage.versions import until_unchanged


class SearchedRows:
    """The rows of the values that are looked for, one batch at a time.

    The errors are those of :func:`secure_bloom.find`.

    Attributes
    ----------
    schema : pyarrow.Schema
        Of the rows that are returned.
    report : ScanReport
        What has been read and skipped so far. Files that could not be opened are not counted.
    """

    def __init__(self, search: Search, values: object):
        condition = search.condition(values)
        columns = search.schema.names if search.columns is None else search.columns
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
                    None if search.narrowed is None else search.narrowed.selection)
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
