"""The rows of an open file: those that match a filter, or those of some row groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import accumulate

import pyarrow as pa

from secure_bloom.arrow import masking
from secure_bloom.arrow.dictionaries import with_known_codes
from secure_bloom.arrow.few_row_groups import FilePart
from secure_bloom.arrow.masking import with_masked
from secure_bloom.arrow.pages import page_errors, pyarrow_errors, to_table
from secure_bloom.arrow.row_filter import RowFilter
from secure_bloom.errors import (
    KMS_FAULTS,
    ColumnError,
    FileError,
    FormatError,
    KeyRetrievalError,
    PredicateError,
    error_location,
    unknown_column,
)
from secure_bloom.parquet.schema import check_names
from secure_bloom.pruning.found_rows import FoundRows
from secure_bloom.pruning.predicates import Filters, Predicate
from secure_bloom.reading.matching_rows import MatchingRows
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.reading.row_groups import row_filter, row_groups_for


def read_rows(file: OpenFile, columns: list[str] | None = None,
              filters: Filters | None = None) -> pa.Table:
    """See :meth:`.ParquetFile.read`."""
    wanted, masked = _to_read(file, columns, filters)
    with file.source.one_version(), _page_errors(file, columns, wanted, masked):
        parts = _parts_for(file, columns, wanted)
        table = to_table(parts, file.schema, columns, wanted, masked)
        if parts:
            file.source.note_read()
        return table


def iter_tables(file: OpenFile, columns: list[str] | None = None,
                filters: Filters | None = None) -> Iterator[pa.Table]:
    """See :meth:`.ParquetFile.iter_tables`."""
    wanted, masked = _to_read(file, columns, filters)
    with file.source.one_version(), _page_errors(file, columns, wanted, masked):
        parts = _parts_for(file, columns, wanted)
        for part in (one for some in parts for one in some.each_row_group()):
            table = to_table([part], file.schema, columns, wanted, masked)
            file.source.note_read()
            file.source.check()
            yield table


def iter_batches(file: OpenFile, columns: list[str] | None = None,
                 row_groups: Iterable[int] | None = None,
                 batch_rows: int = 65_536) -> Iterator[pa.RecordBatch]:
    """See :meth:`.ParquetFile.iter_batches`."""
    groups = list(range(file.num_row_groups)) if row_groups is None else list(row_groups)
    check_names(columns)
    known = {leaf.parts[0] for leaf in file.columns}
    for name in columns or ():
        if name not in known and not file.leaves([name]):
            with error_location(file=file.name):
                raise unknown_column(name, file.schema.names)
    if not groups:
        return
    counts = list(map(file.footer.row_group_num_rows, groups))
    ends, rows, rows_read = accumulate(counts), 0, 0
    _, masked = _to_read(file, columns, None)
    with file.source.one_version(), _page_errors(file, columns, masked=masked):
        wanted = [field for field in file.schema  # fails here if pyarrow cannot read it
                  if columns is None or field.name in columns]
        if masked:
            columns = [field.name for field in wanted if field.name not in masked]
        file.check_columns(columns, groups)
        with page_errors():
            opened = file.open_in_pyarrow(coerce_int96_timestamp_unit="us")
            for batch in opened.iter_batches(batch_rows, groups, columns, use_threads=False):
                rows += with_known_codes(batch).num_rows
                while rows_read < rows:  # pyarrow reads a row group when it reaches it
                    rows_read = next(ends, rows)
                    file.source.note_read()
                file.source.check()
                yield with_masked(batch, wanted, masked) if masked else batch
        if rows != sum(counts):  # pyarrow stops where the shortest column ends
            raise FormatError("the pages of a column do not have as many rows as the footer says")


def matching_batches(file: OpenFile, columns: list[str], row_groups: list[int],
                     conditions: list[list[list[Predicate]]], batch_rows: int,
                     found_rows: FoundRows | None = None) -> Iterator[pa.RecordBatch]:
    """Yield rows of some row groups, among them all for which conditions hold.

    Those of large row groups are read by pages. Otherwise as :func:`iter_batches`. All conditions
    must hold; each has alternatives. ``found_rows`` are those of :meth:`.MatchingRows.of`.
    """
    matching, schema = _by_pages(file, columns, conditions)
    if matching is None or not row_groups or file.masked_columns(columns):
        yield from iter_batches(file, columns, row_groups, batch_rows)
        return
    part = FilePart(file.source, file.arrow_access(row_groups), file.num_row_groups, row_groups)
    rest: list[int] = []  # of which all rows are read
    for number in row_groups:
        with file.source.one_version(), _page_errors(file, columns):
            file.check_columns(columns, [number])
            found = matching.of(file, {}, part, number, schema, found_rows)
            file.source.note_read()
            if found is None:
                rest.append(number)
                continue
            yield from iter_batches(file, columns, rest, batch_rows)
            rest = []
            for batch in found:
                file.source.check()
                for start in range(0, batch.num_rows, batch_rows):
                    yield batch.slice(start, batch_rows)
    yield from iter_batches(file, columns, rest, batch_rows)


def _by_pages(file: OpenFile, columns: list[str], conditions: list[list[list[Predicate]]]) \
        -> tuple[MatchingRows | None, pa.Schema]:
    """Return what reads row groups by pages, for the columns of a schema; None if nothing does."""
    fields = [field for field in file.schema if field.name in columns]
    has_int96 = any(leaf.type.physical_type == "INT96" for leaf in file.leaves(columns))
    filters: list[RowFilter] = []
    for condition in [] if has_int96 else conditions:  # of an INT96, the caller chooses the unit
        with suppress(ColumnError, PredicateError):  # Arrow cannot compare: pruning says "perhaps"
            filters.append(RowFilter(condition, file.schema))
    return MatchingRows(filters, file.schema) if filters else None, pa.schema(fields)


def _to_read(file: OpenFile, columns: list[str] | None, filters: Filters | None) \
        -> tuple[RowFilter | None, Collection[str]]:
    """Return the filter for rows, and the columns that are masked; warn about them."""
    wanted = None if filters is None else row_filter(file, filters)
    if not file.masks:
        return wanted, ()
    if isinstance(columns, Mapping):
        raise TypeError('columns must be a list of names if on_missing_key is "null"')
    if wanted is not None:
        file.check_filtered(wanted.columns)
    masked = file.masked_columns(columns)
    masking.warn_of_missing_keys(dict.fromkeys(masked, 1), file.name)
    return wanted, masked


def _parts_for(file: OpenFile, columns: object, wanted: RowFilter | None) -> list[FilePart]:
    """Return the row groups where a filter may hold; one part or none."""
    alternatives = wanted.alternatives if wanted else None
    row_groups = row_groups_for(file, alternatives)
    if row_groups == [] and alternatives is not None:
        return []
    file.check_columns(columns, row_groups)
    if wanted is not None:
        file.check_columns(wanted.columns, row_groups)
    matching = partial(MatchingRows([wanted], file.schema).of, file, {}) if wanted else None
    return [FilePart(file.source, file.arrow_access(row_groups), file.num_row_groups, row_groups,
                     matching=matching)]


@contextmanager
def _page_errors(file: OpenFile, columns: Iterable[str] | None, wanted: RowFilter | None = None,
                 masked: Collection[str] = ()) -> Iterator[None]:
    """Convert pyarrow's errors to ours; if a column's key is unavailable, add its location."""
    with pyarrow_errors(file.name, file.keys):
        try:
            yield
        except (KeyRetrievalError, FileError, OSError) as error:
            is_placed = getattr(error, "column", None) is not None
            if file.keys is not None and not is_placed and not isinstance(error, KMS_FAULTS):
                leaves = file.columns if columns is None else file.leaves(
                    {*columns, *(wanted.columns if wanted else ())})
                file.column_keys.check(leaf for leaf in leaves if leaf.parts[0] not in masked)
            raise
