"""Which rows have one of the values to erase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from secure_bloom.arrow.char_columns import padded
from secure_bloom.arrow.dictionaries import is_scale
from secure_bloom.arrow.leaves import is_list, leaf_arrays
from secure_bloom.arrow.row_filter import RowFilter
from secure_bloom.arrow.views import filtered
from secure_bloom.display import listed
from secure_bloom.erasing.rows import RowReader
from secure_bloom.errors import ChangedMeanwhileError, ColumnError, PredicateError
from secure_bloom.parquet.schema import LeafColumn, named_columns
from secure_bloom.pruning.operands import operand
from secure_bloom.pruning.predicates import Predicate
from secure_bloom.pruning.value_list import ValueList
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.sbbf.arrow_types import is_text_or_bytes
from secure_bloom.sbbf.probes import is_scalar
from secure_bloom.sbbf.scalars import plain_values


@dataclass(frozen=True, slots=True)
class ErasedRows:
    """The rows of a row group to erase."""

    rows: pa.BooleanArray
    found: Counter[Any] = field(repr=False)


class ErasedValues:
    """The values to erase, and the column that has them.

    Parameters
    ----------
    column : str
        Dotted path of a leaf column, or of a list of values.
    values : scalar, sequence, or Arrow array
        Nulls are not found.
    char_lengths : collection of int
        The lengths n if the column is CHAR(n) of Spark: then trailing spaces do not matter.

    Attributes
    ----------
    values : list
        Distinct, without nulls, in the given order.
    """

    def __init__(self, column: str, values: object, char_lengths: Collection[int] = ()):
        wanted: Any = [values] if is_scalar(values) else values
        self.column, self.char_lengths = column, frozenset(char_lengths)
        self.values = [value for value in dict.fromkeys(plain_values(wanted)) if value is not None]
        if not self.values:
            raise ValueError("there are no values to erase")
        if any(value != value for value in self.values):
            raise ValueError("NaN cannot be erased: no value equals it")
        self._stands_for: dict[Any, list[Any]] = {}
        for value in self.values:
            for stored in (value, *padded(value, char_lengths)):
                self._stands_for.setdefault(stored, []).append(value)
        self._list = ValueList(self._stands_for)

    def __repr__(self) -> str:
        return f"<ErasedValues of {self.column}: {len(self.values):,}>"

    def in_char(self, lengths: Collection[int]) -> ErasedValues:
        """Return the same values for a column that is CHAR(n) of these lengths n as well."""
        return ErasedValues(self.column, self.values, self.char_lengths.union(lengths))

    def condition(self) -> list[list[Predicate]]:
        """Return the condition of the rows to erase, as a filter."""
        return [[Predicate(self.column, "in", self._list)]]

    @property
    def as_bytes(self) -> list[bytes] | None:
        """The values that a column of text or bytes may have; None if others may equal it."""
        found = [value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
                 for value in self._stands_for]
        return found if all(isinstance(value, bytes) for value in found) else None

    def leaf(self, file: OpenFile) -> LeafColumn | None:
        """Return the leaf column of a file that has the values; None if it lacks that column.

        Raises ColumnError if it is a group of several.
        """
        found = named_columns(file.columns, self.column)
        if len(found) > 1:
            raise ColumnError("this is a group of several columns; name one of them: "
                              + listed(leaf.path for leaf in found), column=self.column)
        return found[0] if found else None

    def in_row_group(self, reader: RowReader, row_group: int, leaf: LeafColumn) -> ErasedRows:
        """Find the rows of a row group; errors are those of :meth:`.RowReader.leaf`."""
        parts, found = [], Counter[Any]()
        for batch in reader.leaf(row_group, leaf):
            rows = self._in(batch.column(0), batch.schema.field(0), found)
            parts.append(pa.array(rows))
        return ErasedRows(pa.concat_arrays([pa.array([], pa.bool_()), *parts]), found)

    def in_group_of(self, file: OpenFile, row_group: int) -> ErasedRows:
        """Find the rows of a row group: none in a file without the column.

        Raises ChangedMeanwhileError if the file has no such row group: another version had it.
        """
        if row_group >= file.num_row_groups:
            raise ChangedMeanwhileError("the file was replaced by one with fewer row groups while "
                                        "it was being searched; try again", file=file.name)
        leaf = self.leaf(file)
        if leaf is not None:
            return self.in_row_group(RowReader(file), row_group, leaf)
        num_rows = file.footer.row_group_num_rows(row_group)
        return ErasedRows(pa.array(np.zeros(num_rows, bool)), Counter())

    def are_in(self, values: pa.Array) -> pa.BooleanArray:
        """Return for each value of an array without nesting whether it is to be erased."""
        batch = pa.record_batch([values], [self.column])
        return RowFilter(self.condition(), batch.schema).holds(batch)

    def stays(self, leaf: pa.DictionaryArray) -> np.ndarray | bool:
        """Return which entries of a dictionary stay, although no row may have them.

        A scale loses only what is erased, so that it is the same in all row groups.
        """
        if not is_scale(leaf):
            return False
        try:
            erased = np.asarray(self.are_in(leaf.dictionary))
        except PredicateError:  # another column, of another type
            return True
        return ~erased if erased.any() else True

    def _in(self, array: pa.Array, field: pa.Field, found: Counter[Any]) -> np.ndarray:
        """Return for each element whether it is or has a value to erase; count these values.

        The array is restricted to one leaf, so every struct has one field, and maps are lists.
        """
        if is_list(field.type):
            if not (pa.types.is_list(field.type) or pa.types.is_large_list(field.type)):
                array = array.cast(pa.large_list(field.type.value_field))  # views, fixed sizes
            below = self._in(array.flatten(), field.type.value_field, found)
            rows = np.zeros(len(array), bool)
            rows[np.asarray(pc.list_parent_indices(array))[below]] = True
            return rows
        if pa.types.is_struct(field.type):
            return self._in(array.flatten()[0], field.type.field(0), found)
        holds = self.are_in(array)
        if holds.true_count:
            batch = pa.record_batch([array], [self.column])
            self._count(filtered(batch, holds).column(0), found)
        return np.asarray(holds)

    def _count(self, matching: pa.Array, found: Counter[Any]) -> None:
        """Count the values that equal these, which may be of other types."""
        [matching] = leaf_arrays(matching)
        if pa.types.is_dictionary(matching.type):
            matching = matching.dictionary_decode()
        if is_text_or_bytes(matching.type):
            matching = matching.cast(pa.large_binary())  # text may not be valid UTF-8
        values = self._list.derived(_by_position, matching.type)
        for value, times in Counter(plain_values(matching)).items():
            for stored in values[operand(value, matching.type).floor]:
                for one in self._stands_for[stored]:
                    found[one] += times


def _by_position(values: ValueList, arrow_type: pa.DataType) -> dict[Any, list[Any]]:
    """Return the values by the only value of a type that they equal."""
    found: dict[Any, list[Any]] = {}
    for value in values:
        place = operand(value, arrow_type)
        if place.is_exact:
            found.setdefault(place.floor, []).append(value)
    return found
