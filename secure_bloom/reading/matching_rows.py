"""The rows of a row group that match filters, read by pages where that is less.

First the columns of the filters: only pages that the ColumnIndex leaves, and of those that are
searched before they are decoded, only the ones with a value. Then, of the other columns, the pages
with rows that match, by the OffsetIndex; nothing if no row does. A column is read as a whole if it
has no OffsetIndex, or if most of its pages are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial, reduce
from itertools import chain, islice

import numpy as np
import pyarrow as pa

from secure_bloom.arrow.dictionaries import with_known_codes
from secure_bloom.arrow.few_row_groups import FilePart
from secure_bloom.arrow.pages import page_errors
from secure_bloom.arrow.row_filter import RowFilter
from secure_bloom.arrow.views import filtered, rows_at
from secure_bloom.errors import FormatError, KeyRetrievalError, PredicateError, error_location
from secure_bloom.parquet.row_ranges import ALL_PARTS
from secure_bloom.pruning.expressions import RowGroupFilter
from secure_bloom.pruning.found_rows import FoundRows, parts_in
from secure_bloom.pruning.pages import PageTruth, Spans, rows_in_parts, spans_where
from secure_bloom.pruning.predicates import Predicate
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.reading.page_reads import PageReads
from secure_bloom.reading.page_rows import RowGroupColumns
from secure_bloom.sbbf.light_arrow import call, truth
from secure_bloom.storage.source import Source

_SMALL = 1 << 20  # bytes of pages: pyarrow reads such a row group as fast
_SMALL_FAR_AWAY, _SMALL_ONE_BY_ONE = 8, 64  # times as many; pages take more requests
_LEAST_ROWS, _BATCH_ROWS = 32_768, 131_072
_MANY_ROWS = 1 / 32  # share of the rows; if more match, pyarrow reads them all
_MOST_ROWS = 1 / 2  # share of the rows that is decoded by pages at most: pyarrow is faster
_MOST_BYTES = 1 / 2  # likewise, of the bytes of a column chunk
_SMALL_COLUMN = 256 << 10  # rows, or bytes of pages: decoding some takes as long as reading all
_SMALL_COLUMN_FAR_AWAY = 64 << 10
_MOST_INDEX = 1 / 64  # share of the bytes; with smaller pages, the index takes longer than pages
_MOST_PREDICATES = 8  # each is compared with all bounds, and searched for on its own


class MatchingRows:
    """Reads row groups by pages, for filters that must all hold.

    Rows that match may be more than those that the caller wants, if a filter is only for pruning.
    One object is for all row groups that are read for a condition: if most rows of one match, it
    leaves the next ones to pyarrow, which reads several at a time.

    Parameters
    ----------
    filters : sequence of RowGroupFilter
    schema : pyarrow.Schema
        All columns, those of the filters among them.
    reads : PageReads, optional
        Is completed while rows are read.
    """

    def __init__(self, filters: Sequence[RowGroupFilter], schema: pa.Schema,
                 reads: PageReads | None = None):
        self._filters = [one if isinstance(one, RowFilter) else RowFilter(one.alternatives, schema)
                         for one in filters if isinstance(one, RowFilter) or one.alternatives]
        self._is_worth_it, self._reads = True, reads or PageReads()

    def of(self, file: OpenFile, constants: Mapping[str, pa.Scalar], part: FilePart, number: int,
           schema: pa.Schema,
           found_rows: FoundRows | None = None) -> Iterator[pa.RecordBatch] | None:
        """Return the rows of a row group that match; None if pyarrow should read it.

        Parameters
        ----------
        file : OpenFile
            Whose columns have been checked, as for :meth:`.OpenFile.check_columns`.
        constants : mapping of str to pyarrow.Scalar
            Columns that have one value in all rows, whatever the file has under their names.
        part : FilePart
            That has the row group.
        number : int
        schema : pyarrow.Schema
            The columns to return, among them those of the filters.
        found_rows : FoundRows, optional
            With all rows of the row groups to read that match.
        """
        constants = {**constants, **part.constants}
        names = [name for name in dict.fromkeys(schema.names) if name not in constants]
        filters = self._filters_for(file, constants, schema)
        if not filters or not self._is_worth_it:
            return None
        columns = RowGroupColumns(file, number, names, _small_column(file.source),
                                  {name for one in filters for name in one.columns})
        size = sum(map(columns.stored_bytes, names))
        if not _is_large(columns, size, file.source):
            return None
        reading = _RowGroup(columns, part, number, schema, constants, filters,
                            parts_in(found_rows, number))
        try:
            with error_location(file=file.name):
                if not reading.find():
                    self._is_worth_it = False
                    return None
                if reading.is_mostly_small():
                    return None
                found = reading.batches()
                first = list(islice(found, 1))
        except (FormatError, PredicateError):
            # The page index does not fit, or the file is damaged, which pyarrow finds out; or Arrow
            # cannot compare, which concerns whoever asked for that comparison.
            return None
        return self._counted(file, chain(first, found), reading, size)

    def expect(self, file: OpenFile, constants: Mapping[str, pa.Scalar], number: int,
               schema: pa.Schema, found_rows: FoundRows | None = None) -> PageReads | None:
        """Return what :meth:`of` must read at least, by the page indexes of the filters' columns.

        None if pyarrow would read the row group, or if a key is missing. ``schema`` has all
        columns; they are assumed to be read. ``found_rows`` are those of :meth:`of`.
        """
        with suppress(FormatError, PredicateError, KeyRetrievalError), \
                error_location(file=file.name):
            return self._expected(file, constants, number, schema, parts_in(found_rows, number))
        return None

    def _expected(self, file: OpenFile, constants: Mapping[str, pa.Scalar], number: int,
                  schema: pa.Schema, parts: int) -> PageReads | None:
        filters = self._filters_for(file, constants, schema)
        names = list(dict.fromkeys(name for one in filters for name in one.columns
                                   if name not in constants))
        if not names:
            return None
        columns = RowGroupColumns(file, number, names, _small_column(file.source), names)
        size = file.footer.row_group_num_bytes(number)
        if not _is_large(columns, size, file.source):
            return None
        return _RowGroup(columns, None, number, schema, constants, filters, parts).expect(size)

    def _filters_for(self, file: OpenFile, constants: Mapping[str, pa.Scalar],
                     schema: pa.Schema) -> list[RowFilter]:
        """Return the filters of which a row group has all columns; [] if it is not read by pages.
        """
        filters = [one for one in self._filters
                   if one.columns and all(name in schema.names for name in one.columns)]
        return filters if filters and _are_as_stored(file.schema, constants, schema) else []

    def _counted(self, file: OpenFile, batches: Iterator[pa.RecordBatch], reading: _RowGroup,
                 size: int) -> Iterator[pa.RecordBatch]:
        with error_location(file=file.name):
            yield from batches
        self._reads.add(reading.reads(size))
        if reading.num_bytes > _MOST_BYTES * size:
            self._is_worth_it = False


class _RowGroup:
    """One row group: its rows that match, and how its columns are read."""

    def __init__(self, columns: RowGroupColumns, part: FilePart | None, number: int,
                 schema: pa.Schema, constants: Mapping[str, pa.Scalar],
                 filters: Sequence[RowFilter], parts: int):
        self._columns, self._part, self._number = columns, part, number
        self._schema, self._constants, self._filters = schema, constants, filters
        self._all_compared = {name for one in filters for name in one.columns}
        names = [name for name in dict.fromkeys(schema.names) if name not in constants]
        self._compared = [name for name in names if name in self._all_compared]
        self._others = [name for name in names if name not in self._all_compared]
        # Once each, although a schema may have a column twice.
        self._compared_schema = pa.schema(list({
            one.name: one for one in schema if one.name in self._all_compared}.values()))
        self._within = [] if parts == ALL_PARTS else [rows_in_parts(parts, columns.num_rows)]
        self._rows = np.zeros(0, np.int64)
        self._found: list[pa.RecordBatch] = []  # of the columns that are compared

    @property
    def num_bytes(self) -> int:
        """The bytes that were read."""
        return self._columns.num_bytes

    def reads(self, size: int) -> PageReads:
        """Return what was read, of columns with so many bytes."""
        columns = self._columns
        return PageReads(1, size, columns.num_bytes, columns.num_pages, columns.num_pages_read)

    def expect(self, size: int) -> PageReads:
        """Return what :meth:`find` would read at least."""
        spans = self._possible_by_bounds()
        if spans is None:
            self._columns.note_whole(self._compared)
        else:
            self._columns.note_pages(self._compared, spans)
        return replace(self.reads(size), is_expected=True)

    def find(self) -> bool:
        """Find the rows that match; False if it is better to read all."""
        compared = self._compared_batches()
        if compared is None:
            return False
        rows: list[np.ndarray] = []
        seen = 0
        for numbers, batch in compared:
            mask = self._holds(batch)
            found = numbers[truth(mask)]
            seen += len(numbers)
            if len(found):
                rows.append(found)
                self._found.append(filtered(batch, mask))
            if sum(map(len, rows)) > _MANY_ROWS * max(seen, self._columns.num_rows / 8):
                return False
        self._rows = np.concatenate(rows) if rows else self._rows
        return True

    def is_mostly_small(self) -> bool:
        """Whether rows were found, and most bytes are in small columns, all of which are read.

        Of many small columns, pyarrow reads all rows as fast as rows are taken from batches.
        """
        small = [name for name in self._others if not self._columns.is_large(name)]
        return len(self._rows) > 0 and 2 * sum(map(self._columns.stored_bytes, small)) \
            > sum(map(self._columns.stored_bytes, self._others))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that match."""
        if not len(self._rows):
            return
        by_pages = [name for name in self._others if self._is_less_by_pages(name)]
        whole = [name for name in self._others if name not in by_pages]
        found = pa.Table.from_batches(self._found)
        done = 0
        for rows, of_whole in self._rows_of_whole(whole):
            of_compared = found.slice(done, len(rows)).combine_chunks()
            done += len(rows)
            arrays = {**dict(zip(found.column_names, of_compared.columns, strict=True)),
                      **of_whole, **self._columns.rows_of(by_pages, rows)}
            yield self._batch(len(rows), {
                name: array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
                for name, array in arrays.items()}, self._schema)

    def _is_less_by_pages(self, name: str) -> bool:
        return self._columns.has_pages(name) and self._columns.bytes_with(name, self._rows) \
            < _MOST_BYTES * self._columns.stored_bytes(name)

    def _rows_of_whole(self, names: list[str]) -> Iterator[tuple[np.ndarray, dict[str, pa.Array]]]:
        """Yield rows that match, a part at a time, and these columns of them."""
        if not names:
            for start in range(0, len(self._rows), _BATCH_ROWS):
                yield self._rows[start:start + _BATCH_ROWS], {}
            return
        for numbers, batch in self._whole(names):
            begin, end = np.searchsorted(self._rows, [numbers[0], numbers[-1] + 1])
            rows = self._rows[begin:end]
            if len(rows):
                yield rows, {name: rows_at(batch.column(name), rows - numbers[0])
                             for name in names}

    def _whole(self, names: list[str]) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
        """Yield all rows of some columns, with their numbers, as pyarrow reads them."""
        assert self._part is not None
        self._columns.note_whole(names)
        start = 0
        with self._part.lock, page_errors():
            for batch in self._part.row_group(self._number, names, self._rows_at_once(16)):
                yield np.arange(start, start + batch.num_rows), with_known_codes(batch)
                start += batch.num_rows

    def _rows_at_once(self, parts: int) -> int:
        """Return the rows of a batch, of which a large row group has at least some parts."""
        return max(_LEAST_ROWS, min(_BATCH_ROWS, self._columns.num_rows // parts))

    # --- the columns of the filters --------------------------------------------------------------

    def _compared_batches(self) -> Iterator[tuple[np.ndarray, pa.RecordBatch]] | None:
        """Return the rows that may match, with their numbers: the columns that are compared.

        None if that would be nearly as much as all columns.
        """
        spans = self._possible_by_bounds()
        if spans is not None:
            if spans.num_rows:
                spans = self._possible(partial(self._columns.search, spans=spans), [spans])
            if spans.num_rows <= _MOST_ROWS * self._columns.num_rows:
                return self._rows_in(spans)
        size = sum(map(self._columns.stored_bytes, self._compared))
        others = sum(map(self._columns.stored_bytes, self._others))
        return self._whole(self._compared) if size < _MOST_BYTES * others else None

    def _possible_by_bounds(self) -> Spans | None:
        """Return the rows where all filters may hold, by the ColumnIndex.

        None if the columns that are compared are not read by pages.
        """
        num_predicates = sum(map(len, chain.from_iterable(
            one.alternatives or () for one in self._filters)))
        if num_predicates > _MOST_PREDICATES \
                or not all(map(self._columns.has_pages, self._compared)):
            return None
        return self._possible(self._columns.bounds_say, self._within)

    def _rows_in(self, spans: Spans) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
        for part in spans.parts(self._rows_at_once(8)):
            rows = part.rows()
            arrays = self._columns.rows_of(self._compared, rows)
            yield rows, pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))

    def _possible(self, know: Callable[[Predicate], PageTruth | None],
                  within: list[Spans]) -> Spans:
        """Return the rows where all filters may hold, by what is known about predicates."""
        num_rows = self._columns.num_rows
        spans = [*within, *(spans_where([[know(one) for one in some] for some in alternatives],
                                        num_rows)
                            for alternatives in (one.alternatives for one in self._filters)
                            if alternatives is not None)]
        return spans_where([[one.as_truth(num_rows) for one in spans]], num_rows)

    def _holds(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        wanted = self._batch(batch.num_rows, dict(zip(batch.schema.names, batch.columns,
                                                      strict=True)), self._compared_schema)
        return reduce(partial(call, "and"), (one.holds(wanted) for one in self._filters))

    def _batch(self, num_rows: int, arrays: dict[str, pa.Array], schema: pa.Schema) \
            -> pa.RecordBatch:
        """Return columns in the order of a schema; among them those with one value."""
        constants = self._constants
        return pa.RecordBatch.from_arrays([
            pa.repeat(constants[name], num_rows) if name in constants else arrays[name]
            for name in schema.names], schema=schema)


def _is_large(columns: RowGroupColumns, size: int, source: Source) -> bool:
    """Whether reading by pages is worth it for columns with so many bytes of pages."""
    return bool(columns.num_rows) and size >= _small(source) \
        and columns.index_bytes <= _MOST_INDEX * size


def _small(source: Source) -> int:
    """Return from how many bytes on reading by pages is worth it."""
    if not source.is_far:
        return _SMALL
    return _SMALL * (_SMALL_ONE_BY_ONE if source.is_one_by_one else _SMALL_FAR_AWAY)


def _small_column(source: Source) -> int:
    """Return up to how many rows and bytes of pages a column is read as a whole."""
    return _SMALL_COLUMN_FAR_AWAY if source.is_far else _SMALL_COLUMN


def _are_as_stored(own: pa.Schema, constants: Mapping[str, pa.Scalar], schema: pa.Schema) -> bool:
    """Whether a file has columns by their names alone, with the types in a schema."""
    return not any("." in name for name in own.names) and all(
        constants[field.name].type.equals(field.type) if field.name in constants
        else len(own.get_all_field_indices(field.name)) == 1
        and own.field(field.name).equals(field, check_metadata=True) for field in schema)
