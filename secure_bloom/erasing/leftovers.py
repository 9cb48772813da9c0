"""Values of erased rows that are left in dictionaries, although no row has them.

Some writers store a dictionary whole in each row group, with values that rows of other row groups
or files have. Where such a row is erased, its values must go there, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow as pa
import pyarrow.compute as pc

from secure_bloom.arrow.leaves import leaf_arrays, leaf_types
from secure_bloom.arrow.views import filtered
from secure_bloom.erasing.dictionary_pages import arrow_type, dictionary_values, with_arrow_type
from secure_bloom.erasing.matching import ErasedValues
from secure_bloom.erasing.rows import RowReader
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.sbbf.arrow_types import is_text_or_bytes, used_dictionary_values


class RemovedValues:
    """The distinct values that erased rows had, by column."""

    def __init__(self) -> None:
        self._values: dict[str, list[pa.Array]] = {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def __contains__(self, column: str) -> bool:
        return column in self._values

    def __repr__(self) -> str:
        return f"<RemovedValues of {len(self._values):,} columns>"

    def add(self, column: str, values: pa.Array) -> None:
        """Add values of a column."""
        known = self._values.setdefault(column, [])
        for number, other in enumerate(known):
            if other.type.equals(values.type):
                known[number] = pc.unique(pa.concat_arrays([other, values]))
                return
        known.append(pc.unique(values))

    def update(self, other: RemovedValues) -> None:
        """Add all values of another object."""
        for column, arrays in other._values.items():
            for values in arrays:
                self.add(column, values)

    def as_bytes(self, column: str) -> list[bytes] | None:
        """Return the values of a column if all of them are text or bytes, else None."""
        known = self._values.get(column, [])
        if not all(pa.types.is_large_binary(values.type) for values in known):
            return None
        return [value for values in known for value in values.to_pylist()]

    def among(self, column: str, values: pa.Array) -> pa.Array:
        """Return which of these values erased rows had; all, if their types cannot be compared."""
        found = None
        for known in self._values.get(column, ()):
            try:
                same = known if known.type.equals(values.type) else known.cast(values.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                return values
            here = pc.is_in(values, same)
            found = here if found is None else pc.or_(found, here)
        return values.slice(0, 0) if found is None else values.filter(found)


def erased_in_dictionaries(file: OpenFile, erased: ErasedValues, skip: Collection[int]) \
        -> tuple[list[int], int]:
    """Return the row groups in whose dictionary the erased column has a value to erase.

    Also how many dictionaries were read. Row groups to ``skip`` are written again anyway. Errors
    are those of :func:`.dictionary_values`.
    """
    found: list[int] = []
    num_read, leaf = 0, erased.leaf(file)
    if leaf is None or file.footer.is_surely_ours:
        return found, num_read
    as_bytes = erased.as_bytes
    for number in range(file.num_row_groups):
        if number in skip:
            continue
        arrays = dictionary_values(file, file.footer.row_groups[number][leaf.ordinal], as_bytes)
        num_read += arrays is not None
        if any(erased.are_in(values).true_count for values in arrays or ()):
            found.append(number)
    return found, num_read


def columns_to_search(file: OpenFile) -> list[LeafColumn]:
    """Return the columns whose dictionaries are searched for values that no row has.

    All, unless the file is surely ours, except scales, which are kept.
    """
    if file.footer.is_surely_ours:
        return []
    return [leaf for leaf in file.columns if not _is_scale(file, leaf)]


def _is_scale(file: OpenFile, leaf: LeafColumn) -> bool:
    """Whether a column has ordered dictionaries."""
    t = leaf_types(pa.struct(file.schema))[leaf.ordinal]
    return pa.types.is_dictionary(t) and t.ordered


def removed_values(file: OpenFile, erased: ErasedValues, row_groups: Iterable[int]) \
        -> RemovedValues:
    """Return the values that the rows to erase have in all columns.

    Errors are those of :meth:`.RowReader.leaf`.
    """
    removed, reader = RemovedValues(), RowReader(file)
    for group in row_groups:
        rows = erased.in_group_of(file, group).rows
        for column in file.columns:
            start = 0
            for batch in reader.leaf(group, column):
                gone = filtered(batch, rows.slice(start, batch.num_rows))
                removed.add(column.path, _values_of(file, column, gone))
                start += batch.num_rows
    return removed


def groups_with_removed(file: OpenFile, removed: RemovedValues, skip: Collection[int]) \
        -> list[int]:
    """Return the row groups whose dictionaries have values of erased rows that no row uses.

    Errors are those of :func:`.dictionary_values` and :meth:`.RowReader.leaf`.
    """
    columns = [column for column in columns_to_search(file) if column.path in removed]
    reader = RowReader(file)
    return [number for number in range(file.num_row_groups) if number not in skip
            and any(_has_unused(file, reader, number, column, removed) for column in columns)]


def _has_unused(file: OpenFile, reader: RowReader, group: int, column: LeafColumn,
                removed: RemovedValues) -> bool:
    arrays = dictionary_values(file, file.footer.row_groups[group][column.ordinal],
                               removed.as_bytes(column.path))
    left = [removed.among(column.path, _comparable(values)) for values in arrays or ()]
    if not left or not all(map(len, left)):  # each has the whole dictionary
        return False
    for batch in reader.leaf(group, column):  # mostly, the first rows have all of them
        used = _values_of(file, column, batch)
        left = [_others(values, used) for values in left]
        if not all(map(len, left)):
            return False
    return True


def _others(values: pa.Array, used: pa.Array) -> pa.Array:
    """Return the values that are not used; all, if their types cannot be compared."""
    used = with_arrow_type(used, values.type)
    if not used.type.equals(values.type):
        return values
    return values.filter(pc.invert(pc.is_in(values, used)))


def _values_of(file: OpenFile, column: LeafColumn, batch: pa.RecordBatch) -> pa.Array:
    """Return the distinct values of a leaf column, which the batch is restricted to."""
    [leaf] = leaf_arrays(batch.column(0))
    values = with_arrow_type(used_dictionary_values(leaf), arrow_type(file, column))
    return pc.unique(_comparable(values).drop_null())


def _comparable(values: pa.Array) -> pa.Array:
    """Return text as bytes, which are compared alike, and numbers of which Arrow has no sets."""
    t = values.type
    if is_text_or_bytes(t):
        return values.cast(pa.large_binary())
    if pa.types.is_float16(t):
        return values.view(pa.int16())
    if pa.types.is_decimal32(t) or pa.types.is_decimal64(t):
        return values.view(pa.int32() if t.bit_width == 32 else pa.int64())
    return values
