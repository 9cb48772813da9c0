"""The rows of a row group, exactly as stored."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from secure_bloom.arrow.dictionaries import (
    Stays,
    compact_dictionaries,
    is_scale,
    with_known_codes,
)
from secure_bloom.arrow.leaves import leaf_arrays
from secure_bloom.arrow.pages import column_errors, pyarrow_errors
from secure_bloom.arrow.views import filtered
from secure_bloom.errors import FormatError, UnsupportedError, error_location
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.reading.open_file import OpenFile

_BATCH_ROWS = 65_536


class RowReader:
    """Reads row groups of a file, or one of their leaf columns.

    ``stays`` says which entries of dictionaries :meth:`remaining` returns that no row has.
    """

    def __init__(self, file: OpenFile, stays: Stays = is_scale):
        self._file, self._stays = file, stays
        self._opened: dict[str, pq.ParquetFile] = {}
        self._int96 = [column for column in file.columns if column.type.physical_type == "INT96"]

    def remaining(self, row_group: int, erased: pa.BooleanArray | None) -> pa.Table:
        """Return all columns of a row group, without the erased rows.

        Raises FormatError, AuthenticationError or KeyRetrievalError if they cannot be read;
        UnsupportedError if Arrow has no type for some of their values.
        """
        unit = self._int96_unit(row_group, self._int96)
        batches, start = [], 0
        for batch in self._batches(row_group, None, unit):
            if erased is None:
                batches.append(batch)
            else:
                batches.append(filtered(batch, pc.invert(erased.slice(start, batch.num_rows))))
            start += batch.num_rows
        wanted = self._file.footer.row_group_num_rows(row_group)
        if start != wanted:
            raise FormatError(f"the row group has {wanted} rows, but {start} were read",
                              row_group=row_group)
        return compact_dictionaries(pa.Table.from_batches(batches), self._stays)

    def leaf(self, row_group: int, column: LeafColumn) -> Iterator[pa.RecordBatch]:
        """Yield batches of the top-level field of a leaf column, restricted to this leaf."""
        is_int96 = column.type.physical_type == "INT96"
        return self._batches(row_group, column,
                             self._int96_unit(row_group, [column] if is_int96 else []))

    def _batches(self, row_group: int, leaf: LeafColumn | None, unit: str) \
            -> Iterator[pa.RecordBatch]:
        leaves = None if leaf is None else [leaf.ordinal]
        where = {} if leaf is None else {"column": leaf.path}
        with error_location(row_group=row_group, **where), \
                pyarrow_errors(self._file.name, self._file.keys):
            if unit not in self._opened:
                self._opened[unit] = self._file.open_in_pyarrow(
                    pre_buffer=False, coerce_int96_timestamp_unit=unit)
            with column_errors():
                yield from map(with_known_codes, self._opened[unit].reader.iter_batches(
                    _BATCH_ROWS, row_groups=[row_group], column_indices=leaves))

    def _int96_unit(self, row_group: int, columns: list[LeafColumn]) -> str:
        """Return the unit in which Arrow can keep all timestamps of columns that store INT96.

        In nanoseconds, those before 1677 and after 2262 wrap around.
        """
        units = ["ns", "us"]
        for column in columns:
            nanos, micros, millis = (np.concatenate([np.zeros(0, np.int64), *(
                _integers(batch) for batch in self._batches(row_group, column, unit))])
                for unit in ("ns", "us", "ms"))
            is_exact = {"ns": np.array_equal(nanos // 1000, micros),
                        "us": np.array_equal(nanos, micros * 1000)}  # which wraps alike
            units = [unit for unit in units if is_exact[unit]]
            if not units or not np.array_equal(micros // 1000, millis):
                raise UnsupportedError(
                    "it has timestamps that Arrow can keep neither in nanoseconds, from 1677 to "
                    "2262, nor in microseconds; write the file again without these rows",
                    row_group=row_group, column=column.path)
        return units[0]


def _integers(batch: pa.RecordBatch) -> np.ndarray:
    [leaf] = leaf_arrays(batch.column(0))
    return np.asarray(leaf.drop_null().view(pa.int64()))
