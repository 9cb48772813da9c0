"""Rows as a table for people, as CSV, as JSON, or as Parquet: written batch by batch.

In CSV and JSON, times are in UTC, bytes in base64, UUIDs in their usual form; durations are numbers
in the unit of the column. JSON has one object per line; decimals, dates, times, NaN and infinity
are strings. CSV has a header line; text is in quotes, null is an empty field without quotes, and
lists, structs and maps are JSON.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pyarrow as pa

from secure_bloom.arrow.leaves import with_leaf_types
from secure_bloom.arrow.views import without_views
from secure_bloom.cli.tables import render_table
from secure_bloom.errors import UnsupportedError
from secure_bloom.sbbf.arrow_types import is_bytes, is_text

SUFFIXES = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json",
            ".parquet": "parquet", ".txt": "table"}
_ROWS_AT_ONCE = 1000  # of a table for people, between two headers
_FORMULA = r"^[=+\-@\t\r]"  # what a spreadsheet takes for a formula


class Sink(Protocol):
    """Where bytes are appended."""

    def write(self, data: Any) -> object:
        """Append bytes."""


def write_rows(form: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema, sink: Sink) -> None:
    """Write rows as ``table``, ``csv``, ``json`` or ``parquet``."""
    if form == "parquet":
        _write_parquet(batches, schema, sink)
        return
    parts: Callable[[Iterator[pa.RecordBatch], pa.Schema], Iterator[bytes]]
    parts = {"table": _table_parts, "csv": _csv_parts, "json": _json_parts}[form]
    for part in parts(batches, schema):
        sink.write(part)


def json_rows(batch: pa.RecordBatch) -> Iterator[str]:
    """Yield each row as a JSON object."""
    batch = _cast(_cast(batch, _plain_leaf), _text_leaf)
    for row in batch.to_pylist():
        yield _dump(row)


def formula_columns(batch: pa.RecordBatch) -> list[str]:
    """Return the columns with text, or a name, that a spreadsheet would run as a formula."""
    import pyarrow.compute as pc
    found = []
    for name, array in zip(batch.schema.names, _flat(batch).columns, strict=True):
        texts = [pa.array([name])] + [array] * is_text(array.type)
        if any(pc.any(pc.match_substring_regex(text, _FORMULA)).as_py() for text in texts):
            found.append(name)
    return found


def _table_parts(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[bytes]:
    slices = (batch.slice(start, _ROWS_AT_ONCE) for batch in batches
              for start in range(0, batch.num_rows, _ROWS_AT_ONCE))
    waiting: list[pa.RecordBatch] = []
    for batch in slices:
        if sum(one.num_rows for one in waiting) + batch.num_rows > _ROWS_AT_ONCE:
            yield _table_part(waiting, schema)
            waiting = []
        waiting.append(batch)
    if waiting:
        yield _table_part(waiting, schema)


def _table_part(batches: list[pa.RecordBatch], schema: pa.Schema) -> bytes:
    rows = ([_cell(value) for value in json.loads(row).values()]
            for batch in batches for row in json_rows(batch))
    return f"{render_table(schema.names, rows)}\n".encode()


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _json_parts(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[bytes]:
    for batch in batches:
        yield "".join(f"{row}\n" for row in json_rows(batch)).encode()


def _csv_parts(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[bytes]:
    from pyarrow import csv

    def part(batch: pa.RecordBatch, **options: Any) -> bytes:
        buffer = io.BytesIO()
        csv.write_csv(_flat(batch), buffer, csv.WriteOptions(**options))
        return buffer.getvalue()

    yield part(pa.RecordBatch.from_pylist([], schema))
    for batch in batches:
        yield part(batch, include_header=False)


def _write_parquet(batches: Iterator[pa.RecordBatch], schema: pa.Schema, sink: Sink) -> None:
    from secure_bloom.arrow.row_groups import DEFAULT_ROW_GROUP_ROWS, row_groups
    from secure_bloom.cli.convert import MAX_ROW_GROUP_BYTES
    from secure_bloom.policy import NO_POLICY
    from secure_bloom.writer import ParquetWriter
    with ParquetWriter(sink, schema, policy=NO_POLICY) as writer:
        for table in row_groups(batches, schema, DEFAULT_ROW_GROUP_ROWS, MAX_ROW_GROUP_BYTES):
            writer.write_table(table)


# --- values --------------------------------------------------------------------------------------

def _flat(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with columns that CSV can hold."""
    batch = _cast(batch, _plain_leaf)
    return pa.RecordBatch.from_arrays(list(map(_flat_column, batch.columns)), batch.schema.names)


def _flat_column(array: pa.Array) -> pa.Array:
    t = array.type
    if pa.types.is_nested(t):
        rows = json_rows(pa.RecordBatch.from_arrays([array], [""]))
        return pa.array([None if value is None else _dump(value) for value in (
            json.loads(row)[""] for row in rows)], pa.large_string())
    if isinstance(t, pa.BaseExtensionType) or is_bytes(t) or pa.types.is_fixed_size_binary(t):
        return pa.array([None if value is None else _as_text(value)
                         for value in array.to_pylist()], pa.large_string())
    return array


def _cast(batch: pa.RecordBatch, replace: Callable[[pa.DataType], pa.DataType]) -> pa.RecordBatch:
    schema = pa.schema([field.with_type(with_leaf_types(field.type, replace))
                        for field in batch.schema])
    try:
        return batch if schema.equals(batch.schema) else batch.cast(schema)
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedError(f"a column cannot be shown as text: {error}; choose other columns, "
                               "or write Parquet") from None


def _plain_leaf(t: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(t):
        return _plain_leaf(t.value_type)
    if pa.types.is_timestamp(t) and t.tz is not None:
        return pa.timestamp(t.unit, "UTC")
    if pa.types.is_duration(t):
        return pa.int64()
    return without_views(t)


def _text_leaf(t: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_temporal(t) or pa.types.is_decimal(t) else t


def _dump(value: Any) -> str:
    try:
        return json.dumps(value, default=_as_text, allow_nan=False)
    except ValueError:  # NaN or infinity
        return json.dumps(_finite(value), default=_as_text)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    return list(map(_finite, value)) if isinstance(value, list | tuple) else value


def _as_text(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)

