"""Build a BLOOMFILTER index from the rows of a Lance data set, or from an Arrow stream."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import pairwise
from operator import index
from typing import Any

import numpy as np
import pyarrow as pa

from secure_bloom.errors import ColumnError, error_location
from secure_bloom.lance.layout import (
    DEFAULT_ITEMS,
    DEFAULT_PROBABILITY,
    MAX_ROWS,
    NULL_BITMAP,
    ROW_ADDRESS,
    SCHEMA,
    Parameters,
    Zone,
    column_type_of,
)
from secure_bloom.lance.null_rows import NullRowsBuilder
from secure_bloom.lance.pylance import field_type, is_dataset, open_dataset, scan, write_file
from secure_bloom.sbbf.filter import SplitBlockBloomFilter
from secure_bloom.storage.files import FilePath
from secure_bloom.storage.locations import is_uri

_BATCH_BYTES = 8 * 1024 * 1024  # of filters written per batch
_BATCH_ZONES = 8192

_Batches = Iterator[tuple[pa.Array, np.ndarray]]


def build_index(source: Any, column: str, path: FilePath, *, items: int = DEFAULT_ITEMS,
                probability: float = DEFAULT_PROBABILITY) -> int:
    """Write ``bloomfilter.lance``: a filter for each zone of up to ``items`` rows of a fragment.

    Memory holds some batches of rows, up to five copies of 8 MiB of filters (or of one filter, if
    it is larger), and for the null rows one bit for each row around them.

    Parameters
    ----------
    source : LanceDataset, str, path, or Arrow stream
        A data set, its path or URI; or any object that pyarrow accepts as a stream of batches
        (table, RecordBatchReader). The rows of a stream need a column ``_rowaddr`` (uint64;
        fragment id in the upper and row offset in the lower 32 bits), fragment by fragment in
        ascending order; without it, all rows belong to fragment 0.
    column : str
        A column that is not nested; in a struct, its path with dots.
    path : str or path
        A local file. It appears only when it is complete, and replaces an existing one.
    items : int
        Rows per zone, and number of values that its filter is sized for.
    probability : float
        False-positive probability of a filter with that many distinct values.

    Returns
    -------
    int
        Number of zones.

    Raises
    ------
    ColumnError
        If the column does not exist, or Lance does not have this index for its type, or
        ``_rowaddr`` is invalid.
    FileNotFoundError
        If the data set, or the folder of ``path``, does not exist.
    FormatError
        If pylance cannot open the data set.
    MissingExtraError
        If pylance is not installed.

    Examples
    --------
    >>> build_index("flights.lance", "tail", "tail.lance")  # doctest: +SKIP
    """
    if is_uri(os.fspath(path)):
        raise ValueError(f"an index must be written to a local file, not to {os.fspath(path)}")
    path = os.path.abspath(os.path.expanduser(os.fspath(path)))
    parameters = Parameters(int(index(items)), float(probability))
    of_dataset = is_dataset(source)
    if of_dataset:
        source = open_dataset(source)
    with error_location(file=source.uri if of_dataset else None, column=column):
        arrow_type, batches = (_rows_of_dataset if of_dataset else _rows_of_stream)(source, column)
        zones = _ZoneBuilder(parameters, arrow_type)
        schema = SCHEMA.with_metadata(parameters.to_metadata())
        write_file(path, schema, _written(zones, batches), (NULL_BITMAP, zones.null_rows.to_bytes))
    return zones.count


def _rows_of_dataset(dataset: Any, column: str) -> tuple[pa.DataType, _Batches]:
    """Return the type of a column, and its values with their row addresses, batch by batch."""
    arrow_type = field_type(dataset.schema, column)
    column_type_of(arrow_type)  # before rows are read
    return arrow_type, _addressed(*scan(dataset, column), 0)


def _rows_of_stream(source: Any, column: str) -> tuple[pa.DataType, _Batches]:
    """Return the same for an Arrow stream."""
    reader = pa.RecordBatchReader.from_stream(source)
    for name in (column, ROW_ADDRESS):
        if reader.schema.names.count(name) > 1:
            raise ColumnError(f"the stream has several columns {name}")
    number = reader.schema.get_field_index(column)
    if number < 0:
        field_type(reader.schema, column)  # raises with the available columns
        raise ColumnError("in a stream, the column must not be inside a struct", column=column)
    return reader.schema.field(number).type, _addressed(reader.schema, reader, number)


def _addressed(schema: pa.Schema, batches: Iterator[pa.RecordBatch], number: int) -> _Batches:
    position = schema.get_field_index(ROW_ADDRESS)
    rows = 0
    for batch in batches:
        if position < 0:
            addresses = np.arange(rows, rows + batch.num_rows, dtype=np.uint64)
            rows += batch.num_rows
            if rows > MAX_ROWS:
                raise ColumnError(f"a fragment has at most {MAX_ROWS} rows; provide {ROW_ADDRESS}")
        else:
            column = batch.column(position)
            if column.type != pa.uint64() or column.null_count:
                raise ColumnError(f"{ROW_ADDRESS} must be uint64 without nulls")
            addresses = column.to_numpy(zero_copy_only=True)
        yield batch.column(number), addresses


def _written(zones: _ZoneBuilder, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the index file as they become complete."""
    for values, addresses in batches:
        yield from zones.add(values, addresses)
    yield zones.finish()


class _ZoneBuilder:
    """Divides rows into zones and fills their filters; ``count`` is the number of complete zones.
    """

    def __init__(self, parameters: Parameters, arrow_type: pa.DataType):
        self._parameters = parameters
        self._column_type = column_type_of(arrow_type)
        self.count = 0
        self.null_rows = NullRowsBuilder()
        self._complete: list[tuple[Zone, bytes]] = []
        self._fragments: set[int] = set()
        self._last = -1  # row address
        self._rows = 0  # of the current zone
        self._start = 0  # its first row address

    def add(self, values: pa.Array, addresses: np.ndarray) -> Iterator[pa.RecordBatch]:
        """Add rows: values and as many row addresses (uint64); yield zones to write."""
        if addresses.size == 0:
            return
        fragments = addresses >> np.uint64(32)
        bounds = [0, *(np.flatnonzero(np.diff(fragments)) + 1).tolist(), addresses.size]
        ascending = (addresses[1:] > addresses[:-1]) | (fragments[1:] != fragments[:-1])
        if not ascending.all():
            raise ColumnError(f"{ROW_ADDRESS} must ascend within a fragment")
        for start, end in pairwise(bounds):
            self._enter(int(addresses[start]))
            while start < end:
                stop = min(end, start + self._parameters.items - self._rows)
                self._add_to_zone(values[start:stop], addresses[start:stop])
                start = stop
                if self._many_are_complete():
                    yield self._take()

    def finish(self) -> pa.RecordBatch:
        """Complete the last zone; return the zones that are not written yet."""
        self._end_zone()
        return self._take()

    def _many_are_complete(self) -> bool:
        zones = len(self._complete)
        return zones >= _BATCH_ZONES or zones * self._parameters.num_bytes >= _BATCH_BYTES

    def _enter(self, address: int) -> None:
        """Check that a row may come next; it starts a new fragment or continues the current one."""
        fragment = address >> 32
        if self._last >> 32 == fragment:
            if address <= self._last:
                raise ColumnError(f"{ROW_ADDRESS} must ascend within a fragment")
            return
        if fragment in self._fragments:
            raise ColumnError(f"the rows of fragment {fragment} are not contiguous")
        self._fragments.add(fragment)
        self._end_zone()

    def _add_to_zone(self, values: pa.Array, addresses: np.ndarray) -> None:
        if self._rows == 0:
            self._filter = SplitBlockBloomFilter(self._parameters.num_blocks,
                                                 column_type=self._column_type)
            self._has_null, self._start = False, int(addresses[0])
        self._filter.insert(values)
        if values.null_count:
            self._has_null = True
            nulls = addresses[values.is_null().to_numpy(zero_copy_only=False)]
            self.null_rows.add(self._start >> 32, nulls & np.uint64(MAX_ROWS - 1))
        self._rows += len(values)
        self._last = int(addresses[-1])
        if self._rows == self._parameters.items:
            self._end_zone()

    def _end_zone(self) -> None:
        if self._rows:
            zone = Zone(self._start >> 32, self._start % MAX_ROWS, self._last - self._start + 1,
                        self._has_null)
            self._complete.append((zone, bytes(self._filter.bitset)))
            self.count += 1
            self._rows = 0

    def _take(self) -> pa.RecordBatch:
        """Remove the complete zones and return them as rows of the index file."""
        rows = [(*zone, bitset) for zone, bitset in self._complete]
        self._complete = []
        columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(SCHEMA)]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
