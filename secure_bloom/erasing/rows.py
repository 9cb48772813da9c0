"""The rows of a row group, exactly as stored."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from secure_bloom.arrow.leaves import leaf_arrays
from secure_bloom.arrow.pages import pyarrow_errors
from secure_bloom.arrow.views import filtered
from secure_bloom.errors import FormatError, UnsupportedError
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.reader import ParquetFile

_BATCH_ROWS = 65_536


class RowReader:
    """Reads row groups of a file, or one of their leaf columns."""

    def __init__(self, file: ParquetFile):
        self._file = file
        self._opened: dict[str, pq.ParquetFile] = {}
        self._int96 = [column for column in file.columns if column.type.physical_type == "INT96"]

    def remaining(self, row_group: int, erased: pa.BooleanArray | None) -> pa.Table:
        """Return all columns of a row group, without the erased rows.

        Raises FormatError, AuthenticationError or KeyRetrievalError if they cannot be read;
        UnsupportedError if Arrow has no type for some of their values.
        """
        for column in self._int96:
            self._check_int96(row_group, column)
        batches, start = [], 0
        for batch in self._batches(row_group):
            if erased is None:
                batches.append(batch)
            else:
                batches.append(filtered(batch, pc.invert(erased.slice(start, batch.num_rows))))
            start += batch.num_rows
        wanted = self._file.footer.row_group_num_rows(row_group)
        if start != wanted:
            raise FormatError(f"the row group has {wanted} rows, but {start} were read",
                              row_group=row_group)
        return pa.Table.from_batches(batches)

    def leaf(self, row_group: int, column: LeafColumn) -> Iterator[pa.RecordBatch]:
        """Yield batches of the top-level field of a leaf column, restricted to this leaf."""
        return self._batches(row_group, column)

    def _batches(self, row_group: int, leaf: LeafColumn | None = None, unit: str = "ns") \
            -> Iterator[pa.RecordBatch]:
        leaves = None if leaf is None else [leaf.ordinal]
        with pyarrow_errors(self._file.name, self._file.keys):
            if unit not in self._opened:
                self._opened[unit] = self._file.open_in_pyarrow(
                    pre_buffer=False, coerce_int96_timestamp_unit=unit)
            try:
                yield from self._opened[unit].reader.iter_batches(
                    _BATCH_ROWS, row_groups=[row_group], column_indices=leaves)
            except pa.ArrowNotImplementedError as error:
                raise UnsupportedError("pyarrow cannot read this type of column",
                                       row_group=row_group) from error
            except (pa.ArrowInvalid, UnicodeDecodeError) as error:
                raise FormatError("pyarrow cannot read the pages", row_group=row_group) from error

    def _check_int96(self, row_group: int, column: LeafColumn) -> None:
        """Refuse timestamps before 1677 and after 2262: in nanoseconds they wrap around."""
        nanos, micros = (np.concatenate([
            _integers(batch) for batch in self._batches(row_group, column, unit)])
            for unit in ("ns", "us"))
        if not np.array_equal(nanos // 1000, micros):
            raise UnsupportedError("it has timestamps before 1677 or after 2262, which Arrow "
                                   "cannot keep in nanoseconds; write the file again without "
                                   "these rows", row_group=row_group, column=column.path)


def _integers(batch: pa.RecordBatch) -> np.ndarray:
    [leaf] = leaf_arrays(batch.column(0))
    return np.asarray(leaf.drop_null().view(pa.int64()))
