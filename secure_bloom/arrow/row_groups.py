"""Row groups that are filled from batches of any size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from secure_bloom.arrow.leaves import has_dictionary
from secure_bloom.arrow.streams import BatchStream

DEFAULT_ROW_GROUP_ROWS = 1024 * 1024  # pyarrow's own default and limit
MAX_ROW_GROUP_ROWS = 64 * 1024 * 1024
MAX_WAITING_BYTES = 128 * 1024 * 1024  # of Arrow data; a row group ends there
_BYTES_PER_COLUMN = 256  # overhead of the arrays of a small batch, in addition to their values
_MANY_BATCHES = 8
_FEW_ROWS = 8 * 500  # in that many batches together


class WaitingRows:
    """Rows that wait until their row group is full. Small batches are merged.

    Batches with dictionaries are not: Arrow cannot always unify these, and in those of half floats
    it changes values.

    Attributes
    ----------
    batches : list of pyarrow.RecordBatch
    rows, bytes : int
        Of these batches together.
    """

    def __init__(self, schema: pa.Schema):
        self._schema = schema
        self._mergeable = not any(map(has_dictionary, schema.types))
        self._clear()

    def _clear(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.rows = self.bytes = 0
        self._merged = 0  # how many of the batches have been checked, and are not merged again

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.bytes += _size(batch)
        tail = self.batches[self._merged:]
        if self._mergeable and len(tail) == _MANY_BATCHES:
            if sum(part.num_rows for part in tail) < _FEW_ROWS:
                self.batches[self._merged:] = [pa.concat_batches(tail)]
                self.bytes += _size(self.batches[-1]) - sum(map(_size, tail))
            self._merged = len(self.batches)

    def take(self) -> pa.Table:
        """Return the rows as one table; none wait afterwards."""
        table = pa.Table.from_batches(self.batches, self._schema)
        self._clear()
        return table


def as_row_groups(data: pa.Table | BatchStream, schema: pa.Schema, row_group_size: int | None) \
        -> Iterator[pa.Table]:
    """Return tables of this many rows, or pyarrow's default; the last one may have fewer.

    A stream is converted to the schema. A table without rows is one row group.
    """
    if row_group_size is not None and row_group_size < 1:
        raise ValueError(f"row_group_size must be at least 1, got {row_group_size}")
    rows = min(row_group_size or DEFAULT_ROW_GROUP_ROWS, MAX_ROW_GROUP_ROWS)
    if isinstance(data, pa.Table):
        return (data.slice(start, rows) for start in range(0, max(len(data), 1), rows))
    return row_groups(data.with_schema(schema), schema, rows)


def row_groups(batches: Iterable[pa.RecordBatch], schema: pa.Schema, rows: int,
               max_bytes: int | None = None) -> Iterator[pa.Table]:
    """Yield tables of this many rows, the last of fewer.

    One of ``max_bytes`` of Arrow data, MAX_WAITING_BYTES by default, ends earlier.
    """
    max_bytes = max_bytes or MAX_WAITING_BYTES
    waiting = WaitingRows(schema)
    for batch in batches:
        while batch.num_rows:
            part = batch.slice(0, rows - waiting.rows)
            batch = batch.slice(part.num_rows)
            waiting.add(part)
            if waiting.rows == rows or waiting.bytes >= max_bytes:
                yield waiting.take()
    if waiting.rows:
        yield waiting.take()


def _size(batch: pa.RecordBatch) -> int:
    return batch.nbytes + _BYTES_PER_COLUMN * batch.num_columns
