"""The data that users pass to writers, as a stream of record batches with one schema.

Tables and data frames of other libraries arrive through the Arrow PyCapsule interface, batch by
batch. A stream is never collected.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from secure_bloom.arrow.leaves import with_leaf_types
from secure_bloom.arrow.masking import check_writable
from secure_bloom.arrow.views import convert_views, without_views
from secure_bloom.display import names
from secure_bloom.errors import ColumnError


class ArrowStreamExportable(Protocol):
    """A table, data frame, query result or stream of batches; pandas needs version 2.2."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """See the Arrow PyCapsule interface."""


class ArrowArrayExportable(Protocol):
    """A record batch."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> object:
        """See the Arrow PyCapsule interface."""


class Scannable(Protocol):
    """A Dataset or Scanner of pyarrow, which has no types itself."""

    def to_batches(self) -> Any:
        """Yield the rows batch by batch."""


class LazyFrame(Protocol):
    """A lazy query of Polars."""

    def collect_schema(self) -> Any:
        """Return the schema of the result."""

    def collect_batches(self) -> Iterator[Any]:
        """Run the query and yield its result frame by frame."""


_Rows: TypeAlias = ArrowStreamExportable | ArrowArrayExportable
#: what writers accept: rows of any library, a query, or an iterable of batches
ArrowData: TypeAlias = _Rows | LazyFrame | Scannable | Iterable[_Rows]

_CAST_ROWS = 1 << 16  # rows that are converted at a time, because a batch may be a whole table
_ACCEPTED = ("a table, data frame, query result or record batch of a library with the Arrow "
             "PyCapsule interface (pyarrow, pandas, Polars, DuckDB, arro3 and others), a pyarrow "
             "Dataset or Scanner, a Polars LazyFrame, or an iterable of record batches")


class BatchStream:
    """Record batches with one schema, to iterate over once. A context manager.

    Its batches have the types of ``schema``: text, binary and lists are converted between their
    normal, large and view variants, and nulls to any type.
    """

    def __init__(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch],
                 close: Callable[[], None] = lambda: None):
        self.schema = schema
        self._batches = batches
        self._close = close

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(self._batches):
            check_writable(batch.schema)
            if batch.schema.equals(self.schema):
                yield batch
                continue
            _check_same(batch, self.schema, number)
            for start in range(0, batch.num_rows, _CAST_ROWS):
                yield _cast(batch.slice(start, _CAST_ROWS), self.schema, number)

    def with_schema(self, schema: pa.Schema) -> BatchStream:
        """Return the same batches, converted to another schema."""
        return BatchStream(schema, self._batches, self._close)

    def __enter__(self) -> BatchStream:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self._close()


def open_stream(data: ArrowData) -> BatchStream:
    """Open the data that a user has passed.

    Text and binary views become large text and binary, which every reader of Parquet understands.
    The schema of an iterable is that of its first batch; its dictionaries count with at least 32
    bits.

    Raises
    ------
    TypeError
        If this is not accepted; the message says what is.
    ValueError
        If an iterable has no batches, and therefore no schema.
    ColumnError
        If a column is masked because its key was missing when it was read.
    """
    if isinstance(data, BatchStream):
        return data
    stream = _rows(data)
    is_frame = stream is not None and not isinstance(data, pa.RecordBatchReader)
    stream = stream or _query(data) or _iterable(data)
    check_writable(stream.schema)
    return stream.with_schema(_storable(stream.schema, widen=not is_frame))


# --- what is accepted ----------------------------------------------------------------------------

def _rows(data: Any) -> BatchStream | None:
    """Open rows of any library; None if this is something else."""
    if isinstance(data, pa.RecordBatchReader):  # so that its own exceptions arrive unchanged
        return BatchStream(data.schema, data)
    if isinstance(data, pa.Table):
        return BatchStream(data.schema, data.to_batches())
    if isinstance(data, pa.RecordBatch):
        return BatchStream(data.schema, [data])
    if isinstance(data, type):
        return None
    try:
        if hasattr(data, "__arrow_c_stream__"):
            reader = pa.RecordBatchReader.from_stream(data)
            return BatchStream(reader.schema, reader, reader.close)
        if hasattr(data, "__arrow_c_array__"):
            batch = pa.record_batch(data)
            return BatchStream(batch.schema, [batch])
    except pa.ArrowInvalid as error:
        if "non-struct type" not in str(error):
            raise
        raise TypeError(f"{type(data).__name__} is a single column: pass a table or data frame "
                        "that has it as a named column") from error
    return None


def _query(data: Any) -> BatchStream | None:
    """Open something that yields its result batch by batch; None if this is something else."""
    dataset = sys.modules.get("pyarrow.dataset")  # unless it is imported, this is not one of its
    # Not to_reader(): it keeps Python's lock while it waits for a KMS client written in Python.
    if dataset is not None and isinstance(data, dataset.Dataset):
        return BatchStream(data.schema, data.to_batches())
    if dataset is not None and isinstance(data, dataset.Scanner):
        return BatchStream(data.projected_schema, data.to_batches())
    if hasattr(data, "collect") and hasattr(data, "collect_schema"):
        if not hasattr(data, "collect_batches"):
            raise TypeError("this version of Polars cannot stream a LazyFrame: pass .collect()")
        empty = data.collect_schema().to_frame()
        return BatchStream(pa.RecordBatchReader.from_stream(empty).schema,
                           _batches(data.collect_batches()))
    return None


def _iterable(data: Any) -> BatchStream:
    if isinstance(data, Mapping):
        raise TypeError(f"data must be {_ACCEPTED}, not {type(data).__name__}: pass "
                        "pyarrow.table(...) of it")
    if isinstance(data, str | bytes | type) or not isinstance(data, Iterable):
        raise TypeError(f"data must be {_ACCEPTED}, not {type(data).__name__}")
    batches = _batches(data)
    first = next(batches, None)
    if first is None:
        raise ValueError("the iterable has no batches, so the columns are not known: pass "
                         "pyarrow.RecordBatchReader.from_batches(schema, batches)")

    def every() -> Iterator[pa.RecordBatch]:
        yield first
        yield from batches

    return BatchStream(first.schema, every())


def _batches(items: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    for number, item in enumerate(items):
        stream = _rows(item)
        if stream is None:
            advice = ": pass pyarrow.Table.from_pylist(...)" if isinstance(item, Mapping) else ""
            raise TypeError(f"data must be {_ACCEPTED}; item {number} of this "
                            f"{type(items).__name__} is a {type(item).__name__}{advice}")
        with stream:
            empty = True
            for batch in stream:
                empty = False
                yield batch
            if empty:
                yield pa.RecordBatch.from_arrays([pa.nulls(0, t) for t in stream.schema.types],
                                                 schema=stream.schema)


# --- types ---------------------------------------------------------------------------------------

def _storable(schema: pa.Schema, widen: bool) -> pa.Schema:
    """Return the schema with large text and binary instead of views.

    With ``widen``, dictionaries have room for more values: each batch may bring others, and pyarrow
    cannot read more than its index type can count.
    """
    def leaf(t: pa.DataType) -> pa.DataType:
        if pa.types.is_dictionary(t):
            index = pa.int32() if widen and t.index_type.bit_width < 32 else t.index_type
            return pa.dictionary(index, without_views(t.value_type), t.ordered)
        return without_views(t)

    return pa.schema([field.with_type(with_leaf_types(field.type, leaf)) for field in schema],
                     schema.metadata)


def _check_same(batch: pa.RecordBatch, schema: pa.Schema, number: int) -> None:
    """Raise ColumnError unless a batch can be converted without changing any value."""
    found = batch.schema
    if found.names != schema.names:
        raise ColumnError(f"batch {number} has the columns {names(found.names)}, not "
                          f"{names(schema.names)}: all batches must have the same columns")
    for column, field in zip(batch.columns, schema, strict=True):
        if not _is_null(column) and _kind(column.type) != _kind(field.type):
            raise ColumnError(f"batch {number} has the type {column.type}, not {field.type}: cast "
                              "it, all batches must have the same types", column=field.name)


def _is_null(column: pa.Array) -> bool:
    return pa.types.is_null(column.type) or 0 < column.null_count == len(column)


def _kind(t: pa.DataType) -> pa.DataType:
    """Return the type with one variant each of text, binary and lists."""
    if pa.types.is_list(t) or pa.types.is_large_list(t):
        return pa.list_(t.value_field.with_type(_kind(t.value_type)))
    if pa.types.is_struct(t):
        return pa.struct([field.with_type(_kind(field.type)) for field in t])
    if pa.types.is_dictionary(t):
        return pa.dictionary(pa.int32(), _kind(t.value_type), t.ordered)
    if pa.types.is_string(t):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary(t) else without_views(t)


def _cast(batch: pa.RecordBatch, schema: pa.Schema, number: int) -> pa.RecordBatch:
    try:
        columns = [pa.nulls(len(column), field.type) if _is_null(column)
                   else convert_views(column, without_views(column.type))
                   if pa.types.is_nested(column.type) else column
                   for column, field in zip(batch.columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, names=schema.names).cast(schema)
    except (pa.ArrowException, ValueError) as error:
        raise ColumnError(f"batch {number} cannot be converted to the schema of the others: "
                          f"{error}") from error


def total_rows(data: object) -> int | None:
    """Return the number of rows of data that is in memory; None for streams and queries."""
    rows = getattr(data, "num_rows", None)
    if rows is None and type(data).__module__.partition(".")[0] in ("pandas", "polars"):
        rows = getattr(data, "shape", (None,))[0]  # a LazyFrame has none
    return rows if isinstance(rows, int) else None
