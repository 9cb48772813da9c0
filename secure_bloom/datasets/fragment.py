"""A file of a data set, with the row groups that a filter has left, for engines that read files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from secure_bloom.datasets.dataset_file import DatasetFile
from secure_bloom.datasets.scanner import Columns, Scanner, View
from secure_bloom.display import Summarized, count, shown
from secure_bloom.pruning.predicates import Filters

if TYPE_CHECKING:
    import pyarrow.compute as pc


class Fragment(Summarized):
    """A file of a data set; it has the methods of :class:`pyarrow.dataset.Fragment`.

    It can be pickled and read in another process: it carries its keys as the data set does.

    Attributes
    ----------
    path : str
    row_groups : list of int or None
        The row groups that are read; None: all.
    """

    def __init__(self, view: View, file: DatasetFile):
        self._view, self._file = view, file
        self.path, self.row_groups = file.path, file.row_groups

    @property
    def physical_schema(self) -> pa.Schema:
        """Schema of the file itself."""
        return self._file.schema

    @property
    def partition_expression(self) -> pc.Expression:
        """What holds for all rows because of the path."""
        import pyarrow.compute as pc
        return pc.scalar(True) if self._file.partition is None else self._file.partition

    def scanner(self, schema: pa.Schema | None = None, columns: Columns = None,
                filter: Filters | None = None, **options: Any) -> Scanner:
        """Return a scanner of the rows, by default with the schema of the data set."""
        view = self._view if schema is None else self._view._replace(schema=schema)
        return Scanner(view, [self._file], columns, filter, options)

    def to_table(self, schema: pa.Schema | None = None, **options: Any) -> pa.Table:
        """Return the rows as a table; see :meth:`scanner`."""
        return self.scanner(schema, **options).to_table()

    def to_batches(self, schema: pa.Schema | None = None,
                   **options: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows as record batches; see :meth:`scanner`."""
        return self.scanner(schema, **options).to_batches()

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """Return the first rows; see :meth:`scanner`."""
        return self.scanner(**options).head(num_rows)

    def count_rows(self, filter: Filters | None = None, **options: Any) -> int:
        """Return the number of rows for which a filter holds."""
        return self.scanner(None, [], filter, **options).count_rows()

    def _headline(self) -> str:
        groups = "all row groups" if self.row_groups is None \
            else count(len(self.row_groups), "row group")
        return f"{shown(self.path, 80)}: {groups}"
