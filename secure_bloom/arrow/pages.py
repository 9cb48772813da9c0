"""Reading with pyarrow: pages and their rows, and pyarrow's errors.

``pyarrow.dataset`` is imported only where the rows of many row groups are read: it imports pandas
if that is installed, which takes longer than a lookup.
"""

from __future__ import annotations

import atexit
import operator
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, reduce
from itertools import groupby, islice
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from secure_bloom.arrow.dictionaries import filtered_rows, with_known_codes
from secure_bloom.arrow.few_row_groups import Each, FilePart, batches_of_few
from secure_bloom.arrow.masking import with_masked
from secure_bloom.errors import (
    AuthenticationError,
    ChangedMeanwhileError,
    FormatError,
    KeyNotFoundError,
    UnknownColumnError,
    UnsupportedError,
    error_location,
    unknown_column,
)
from secure_bloom.keys.environment import NO_KEYS
from secure_bloom.keys.retrieval import Keys
from secure_bloom.parquet.schema import check_names

if TYPE_CHECKING:
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    from secure_bloom.arrow.row_filter import RowFilter

_AT_ONCE = 8  # row groups of far files whose matching rows are read at a time


def new_fragment(part: FilePart) -> ds.ParquetFileFragment:
    """Create a pyarrow dataset fragment of some or all row groups of an open file.

    Not of a path, which pyarrow would open again: by then it may refer to another version.
    """
    import pyarrow.dataset as ds
    if part.decryption_properties is not None:
        _let_arrow_finish_at_exit()
    options = ds.ParquetFragmentScanOptions(decryption_properties=part.decryption_properties)
    format_ = ds.ParquetFileFormat(default_fragment_scan_options=options)
    fragment = format_.make_fragment(part.file, partition_expression=_partition(part))
    try:
        is_verified = fragment.metadata.equals(part.metadata)  # read once, for all scans
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise FormatError("pyarrow cannot read the footer") from error
    if not is_verified:
        raise ChangedMeanwhileError("the footer of the file was replaced while the file was being "
                                    "read; try again")
    # Not passed to make_fragment, which would mix up their order.
    return fragment if part.row_groups is None else fragment.subset(row_group_ids=part.row_groups)


def _partition(part: FilePart) -> pc.Expression | None:
    """Return what holds for all rows, as an expression; None if nothing is known."""
    import pyarrow.compute as pc
    known = [pc.field(name) == value for name, value in part.constants.items()]
    if part.partition is not None:
        known.append(part.partition)
    return reduce(operator.and_, known) if known else None


@cache
def _let_arrow_finish_at_exit() -> None:
    """Keep a process that exits just after a read from occasionally being aborted at exit.

    Arrow threads release the KMS client, a Python object, shortly after the last rows have
    arrived. A thread that requests the GIL while the interpreter shuts down is killed inside C++,
    which aborts the process. A pause lets the thread acquire the GIL before that.
    """
    atexit.register(time.sleep, 0.02)


def to_table(parts: Sequence[FilePart], schema: pa.Schema, columns: list[str] | None,
             row_filter: RowFilter | None, masked: Collection[str] = ()) -> pa.Table:
    """Read the rows of files for which a filter on this schema holds.

    The ``masked`` columns are not read, but null; the filter does not use them.
    """
    check_names(columns)
    known = projected_schema(schema, columns)
    if known is not None and (row_filter is not None or not parts):
        read = _without(known, masked)
        rows = pa.Table.from_batches(_rows(parts, schema, read.names, row_filter), read)
        return with_masked(rows, known, masked) if masked else rows
    import pyarrow.dataset as ds
    fragments = list(map(new_fragment, parts))
    format_ = fragments[0].format if fragments else ds.ParquetFileFormat()
    dataset = ds.FileSystemDataset(fragments, schema, format_)
    try:
        scanner = dataset.scanner(columns)  # the caller's errors surface here
    except pa.ArrowInvalid as error:
        if columns is not None:
            raise _unknown_column(dataset, columns) or error from None
        raise UnsupportedError("pyarrow cannot read several columns with the same name; select "
                               "other columns") from error
    if masked:
        wanted = scanner.projected_schema
        rows = to_table(parts, schema, [name for name in wanted.names if name not in masked],
                        row_filter)
        return with_masked(rows, wanted, masked)
    if row_filter is None:
        with page_errors():
            return with_known_codes(scanner.to_table())
    if isinstance(columns, dict):
        raise TypeError("columns must be a list of names if filters are given")
    return pa.Table.from_batches(_rows(parts, schema, columns or [], row_filter),
                                 scanner.projected_schema)


def _unknown_column(dataset: ds.Dataset, columns: object) -> UnknownColumnError | None:
    """Return the error for the first column that Arrow cannot select."""
    for name in columns if isinstance(columns, list) else ():
        try:
            dataset.scanner([name])
        except pa.ArrowInvalid:
            return unknown_column(name, dataset.schema.names)
    return None


def projected_schema(schema: pa.Schema, columns: object) -> pa.Schema | None:
    """Return the schema of some or all (None) columns; None if only pyarrow's scanner knows it."""
    names = schema.names if columns is None else columns
    if not isinstance(names, list) or not all(
            isinstance(name, str) and len(schema.get_all_field_indices(name)) == 1
            for name in names):
        return None
    return pa.schema([schema.field(name) for name in names], schema.metadata)


def _without(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    return pa.schema([field for field in schema if field.name not in names], schema.metadata) \
        if names else schema


def _rows(parts: Sequence[FilePart], schema: pa.Schema, columns: Sequence[str],
          row_filter: RowFilter | None) -> Iterator[pa.RecordBatch]:
    """Yield some columns of the rows for which a filter holds."""
    compared = [] if row_filter is None else row_filter.columns
    for batch in read_batches(parts, schema, [*columns, *compared]):
        if row_filter is None:
            yield batch
        else:
            rows = row_filter.holds(batch.select(range(len(columns), batch.num_columns)))
            yield filtered_rows(batch.select(range(len(columns))), rows)


def read_batches(parts: Sequence[FilePart], schema: pa.Schema, columns: Any,
                 options: Mapping[str, Any] = MappingProxyType({}), each: Each = map) \
        -> Iterator[pa.RecordBatch]:
    """Yield the rows of files as one table with a schema.

    ``columns`` and ``options`` are those of :meth:`pyarrow.dataset.Dataset.scanner`; ``each`` is
    ``map``, or the method of a thread pool.
    """
    if not parts:
        return
    if any(part.decryption_properties is not None for part in parts):
        _let_arrow_finish_at_exit()
    known = None if options else projected_schema(schema, columns)
    if known is not None and any(part.matching is not None for part in parts):
        yield from _matching(parts, schema, columns, known, each)
        return
    batches = None if known is None else batches_of_few(parts, known, each)
    if batches is None:
        import pyarrow.dataset as ds
        fragments = list(each(new_fragment, parts))
        dataset = ds.FileSystemDataset(fragments, schema, fragments[0].format)
        batches = dataset.scanner(columns, **options).to_batches()
    while True:
        with page_errors():
            batch = next(batches, None)
        if batch is None:
            return
        yield with_known_codes(batch)


def _matching(parts: Sequence[FilePart], schema: pa.Schema, columns: Any, wanted: pa.Schema,
              each: Each) -> Iterator[pa.RecordBatch]:
    """Yield rows of files, of which some parts may read only those that match a filter.

    ``wanted`` is the schema of the columns.
    """
    def rows(unit: tuple[FilePart, int]) -> Iterable[pa.RecordBatch] | None:
        part, number = unit
        found = None if part.matching is None else part.matching(part, number, wanted)
        return found if found is None or not part.is_far else list(found)  # in this thread

    is_far = parts[0].is_far
    rest: list[tuple[FilePart, int]] = []  # row groups of which all rows are read, together
    units = ((part, number) for part in parts for number in part.numbers)
    at_once, many = (_AT_ONCE, each) if is_far else (1, map)
    while some := list(islice(units, at_once)):
        if is_far:  # before the threads read: see FilePart.opened
            deque((part.opened for part, _ in some), maxlen=0)
        for unit, found in zip(some, list(many(rows, some)), strict=True):
            if found is None:
                rest.append(unit)
                continue
            yield from read_batches(_together(rest), schema, columns, each=each)
            rest = []
            with page_errors():
                yield from found
    yield from read_batches(_together(rest), schema, columns, each=each)


def _together(units: list[tuple[FilePart, int]]) -> list[FilePart]:
    """Return parts of files with these row groups, in their order."""
    return [part.of_row_groups([number for _, number in some])
            for part, some in groupby(units, key=itemgetter(0))]


@contextmanager
def page_errors() -> Iterator[None]:
    """A block in which pyarrow's errors about the values of pages become ours."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
        raise FormatError("pyarrow cannot read the pages") from error
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedError("pyarrow cannot read a column as the type that the schema says; "
                               f"choose another one, or leave the column out: {error}") from error


@contextmanager
def column_errors(what: str = "pages") -> Iterator[None]:
    """The same for a block that reads a column as it is stored, whatever its type and its name."""
    try:
        yield
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedError("pyarrow cannot read this type of column") from error
    except pa.ArrowInvalid as error:
        raise FormatError(f"pyarrow cannot read the {what}") from error
    except UnicodeDecodeError as error:
        raise FormatError("pyarrow cannot read the schema") from error


@contextmanager
def pyarrow_errors(name: str, keys: Keys = None) -> Iterator[None]:
    """Convert pyarrow's errors about the bytes of a file to ours, and add the file name."""
    with error_location(file=name):
        try:
            yield
        except OSError as error:
            if type(error) is not OSError or error.errno is not None:
                raise  # from the operating system
            if "decrypt" in str(error).lower() and keys in (None, NO_KEYS):
                raise KeyNotFoundError("a column is encrypted; pass keys (--keys), or select "
                                       "other columns") from error
            if "decrypt" in str(error).lower():
                raise AuthenticationError(
                    "the pages of a column cannot be decrypted: the keys are wrong, or the file "
                    "was changed") from error
            if "ciphertext length" in str(error):
                raise FormatError(
                    "an encrypted page has another length than it claims: the file is damaged, or "
                    "parquet-java wrote it with data pages V2, which pyarrow cannot decrypt; write "
                    "it with data pages V1") from error
            raise FormatError(f"pyarrow cannot read the file: {error}") from error
