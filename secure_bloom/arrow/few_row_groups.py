"""Rows of a few row groups, read with ``pyarrow.parquet``.

``pyarrow.dataset`` reads many row groups faster, but its import takes longer than most lookups: it
imports pandas if that is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from secure_bloom.arrow.decryption import ArrowAccess
from secure_bloom.errors import FormatError
from secure_bloom.storage.source import Source

if TYPE_CHECKING:
    import pyarrow.compute as pc

#: ``map``, or the method of a thread pool
Each: TypeAlias = Callable[..., Iterable[Any]]

#: takes a part of one file, the number of a row group and the columns to read; returns the rows
#: that match a filter, or None if all rows should be read
Matching: TypeAlias = "Callable[[FilePart, int, pa.Schema], Iterator[pa.RecordBatch] | None]"

_FEW = 4
_BATCH_ROWS = 131_072  # as in pyarrow.dataset


class FilePart:
    """Some or all (None) of the row groups of an open file, for pyarrow to read.

    ``partition`` is an expression that holds for all rows. ``constants`` are columns that are not
    in the file, and have one value in all rows. ``numbers`` are those of the row groups. Of each
    row group, ``matching`` may read only the rows that match.
    """

    def __init__(self, source: Source, access: ArrowAccess, num_row_groups: int,
                 row_groups: list[int] | None, partition: pc.Expression | None = None,
                 constants: Mapping[str, pa.Scalar] = MappingProxyType({}),
                 matching: Matching | None = None):
        self.matching, self.is_far, self.lock = matching, source.is_far, Lock()
        self.file, self._access = access.file(source), access
        self.decryption_properties = access.properties
        self.row_groups, self.partition, self.constants = row_groups, partition, constants
        self.numbers: Sequence[int] = range(num_row_groups) if row_groups is None else row_groups

    @cached_property
    def metadata(self) -> pq.FileMetaData:
        """The footer that was verified; errors as for :meth:`.ArrowAccess.metadata`."""
        return self._access.metadata()

    @cached_property
    def opened(self) -> pq.ParquetFile:
        """The file in pyarrow; errors as for :meth:`.ArrowAccess.metadata`.

        Several threads that read with it at the same time crash: hold ``lock``. Opening it may move
        the position of a Python file that another thread is reading.
        """
        return pq.ParquetFile(self.file, metadata=self.metadata, pre_buffer=True,
                              decryption_properties=self.decryption_properties)

    def each_row_group(self) -> Iterator[FilePart]:
        """Yield the row groups one by one; pyarrow opens the file only once."""
        _ = self.opened
        for number in self.numbers:
            part = copy(self)
            part.row_groups = part.numbers = [number]
            yield part

    def of_row_groups(self, numbers: list[int]) -> FilePart:
        """Return some of these row groups, of which all rows are read."""
        part = copy(self)
        part.matching = None
        if numbers != list(self.numbers):
            part.row_groups = part.numbers = numbers
        return part

    def has(self, schema: pa.Schema) -> bool:
        """Whether pyarrow reads columns with the types in a schema, by their names alone."""
        own = self.opened.schema_arrow
        return not any("." in name for name in own.names) and all(
            field.name in self.constants or (
                len(own.get_all_field_indices(field.name)) == 1
                and own.field(field.name).type.equals(field.type, check_metadata=True))
            for field in schema)

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the columns of a schema; errors are those of :meth:`row_group`."""
        names = [name for name in dict.fromkeys(schema.names) if name not in self.constants]
        # One by one: pyarrow cannot read nested dictionaries of several row groups at a time.
        for number in self.numbers:
            for batch in self.row_group(number, names, _BATCH_ROWS):
                yield pa.RecordBatch.from_arrays([
                    pa.repeat(self.constants[name], batch.num_rows) if name in self.constants
                    else batch.column(name) for name in schema.names], schema=schema)

    def row_group(self, number: int, names: list[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some columns of a row group.

        Raises FormatError if there are not as many as the footer says.
        """
        missing = self.opened.metadata.row_group(number).num_rows
        for batch in self.opened.iter_batches(batch_rows, [number], names):
            missing -= batch.num_rows
            yield batch
        if missing:  # pyarrow stops where the shortest column ends
            raise FormatError("the pages of a column do not have as many rows as the footer says",
                              row_group=number)


def batches_of_few(parts: Sequence[FilePart], schema: pa.Schema, each: Each = map) \
        -> Iterator[pa.RecordBatch] | None:
    """Return the rows of a few row groups, with the columns of a schema.

    None if there are too many row groups, or columns that a file does not have in exactly this
    form; ``pyarrow.dataset`` reads those. ``each`` is ``map``, or the method of a thread pool.
    """
    if not len(schema) or not _are_few(parts):
        return None
    if not all(each(lambda part: part.has(schema), parts)):
        return None
    return (batch for part in parts for batch in part.batches(schema))


def _are_few(parts: Sequence[FilePart]) -> bool:
    return all(part.partition is None for part in parts) \
        and sum(len(part.numbers) for part in parts) <= _FEW
