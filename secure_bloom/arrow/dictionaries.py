"""Dictionaries of Arrow arrays, reduced to the values that rows have.

Arrow keeps a dictionary whole when rows are filtered or sliced, and pyarrow stores it whole: a row
that is gone would leave its values behind. Ordered dictionaries are the exception. They are a
scale, such as S, M, L: the order of their entries is nowhere else, and readers merge those of
several row groups in the order in which they come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from secure_bloom.arrow.leaves import has_dictionary, leaf_arrays, replaced_dictionaries
from secure_bloom.arrow.views import filtered, without_views
from secure_bloom.errors import FormatError, error_location
from secure_bloom.sbbf.light_arrow import call

#: returns which entries of a leaf's dictionary stay, although no row may have them
Stays: TypeAlias = Callable[[pa.DictionaryArray], np.ndarray | bool]

_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)

_SPARSE = 16  # entries for each row, from which on the rows are sorted instead of marked


def is_scale(leaf: pa.DictionaryArray) -> bool:
    """Whether all entries of a leaf's dictionary stay, because they are ordered."""
    return bool(leaf.type.ordered)


def nothing(leaf: pa.DictionaryArray) -> bool:
    """Return False: no entry stays that no row has."""
    return False


def with_known_codes(rows: _Rows) -> _Rows:
    """Return rows of a file if their dictionaries have an entry for each code.

    Arrow does not check that. Using such an array may read memory out of bounds.

    Raises FormatError if an entry is missing.
    """
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if has_dictionary(field.type):
            with error_location(column=field.name):
                _check_codes(column.chunks if isinstance(rows, pa.Table) else [column])
    return rows


def _check_codes(chunks: Sequence[pa.Array]) -> None:
    for leaf in chain.from_iterable(map(_dictionary_leaves, chunks)):
        bounds = call("min_max", leaf.indices)
        least, most = bounds["min"].as_py(), bounds["max"].as_py()
        if most is not None and not 0 <= least <= most < len(leaf.dictionary):
            raise FormatError("a page has codes that are not in the dictionary of the column")


def filtered_rows(batch: pa.RecordBatch, rows: pa.BooleanArray,
                  stays: Stays = is_scale) -> pa.RecordBatch:
    """Return the rows of a batch for which a mask without nulls is true, and only their values."""
    return compact_dictionaries(filtered(batch, rows), stays)


def compact_dictionaries(rows: _Rows, stays: Stays = is_scale) -> _Rows:
    """Return the rows with dictionaries that have no other values, at every depth.

    The schema and the order of the entries are kept. Chunks of a column that had the same
    dictionary have the same one afterwards.
    """
    if not any(map(has_dictionary, rows.schema.types)):
        return rows
    if isinstance(rows, pa.RecordBatch):
        arrays = [_compacted([array], stays)[0] for array in rows.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)
    return pa.table([pa.chunked_array(_compacted(column.chunks, stays), column.type)
                     for column in rows.columns], schema=rows.schema)


def _compacted(chunks: Sequence[pa.Array], stays: Stays) -> list[pa.Array]:
    """Return the chunks of a column; those with nothing to remove are the same objects."""
    if not chunks or not has_dictionary(chunks[0].type):
        return list(chunks)
    found = [_dictionary_leaves(chunk) for chunk in chunks]
    by_leaf = [_entries_of(leaves, stays) for leaves in zip(*found, strict=True)]
    compacted = []
    for number, chunk in enumerate(chunks):
        entries = [of_chunks[number] for of_chunks in by_leaf]
        compacted.append(chunk if all(one.is_whole for one in entries) else
                         replaced_dictionaries(chunk, _replacing(iter(entries))))
    return compacted


def _replacing(entries: Iterator[_Entries]) -> Callable[[pa.DictionaryArray], pa.DictionaryArray]:
    return lambda leaf: next(entries).of(leaf)


def _dictionary_leaves(array: pa.Array) -> list[pa.DictionaryArray]:
    """Return the leaves with dictionaries, restricted to what rows have."""
    return [leaf for leaf in leaf_arrays(array) if pa.types.is_dictionary(leaf.type)]


def _entries_of(leaves: Sequence[pa.DictionaryArray], stays: Stays) -> list[_Entries]:
    """Return for each chunk of a leaf the entries that stay; chunks of one dictionary share them.
    """
    found: list[_Entries] = []
    group: list[pa.DictionaryArray] = []
    for leaf in leaves:
        if group and not _same(group[0].dictionary, leaf.dictionary):
            found += [_Entries(group, stays)] * len(group)
            group = []
        group.append(leaf)
    return found + ([_Entries(group, stays)] * len(group) if group else [])


def _same(left: pa.Array, right: pa.Array) -> bool:
    return _address(left) == _address(right) or left.equals(right)


def _address(array: pa.Array) -> object:
    return len(array), array.offset, [buffer and buffer.address for buffer in array.buffers()]


class _Entries:
    """The entries of a dictionary that stay, for leaves that share it."""

    def __init__(self, leaves: Sequence[pa.DictionaryArray], stays: Stays):
        self._size = len(leaves[0].dictionary)
        rows = sum(map(len, leaves))
        kept = stays(leaves[0])
        self._kept: np.ndarray | None = None  # their numbers; None: all
        if kept is True:
            self.is_whole = True
            return
        numbers = (leaf.indices.drop_null().to_numpy().astype(np.int64, copy=False)
                   for leaf in leaves)
        if kept is False and self._size > _SPARSE * rows:
            used = np.unique(np.concatenate([np.zeros(0, np.int64), *numbers]))
        else:
            mask = np.zeros(self._size, bool)
            for some in numbers:
                mask[some] = True
            used = np.flatnonzero(mask | kept)
        self.is_whole = len(used) == self._size
        if not self.is_whole:
            self._kept = used
            self._dictionary = _taken(leaves[0].dictionary, used)

    def of(self, leaf: pa.DictionaryArray) -> pa.DictionaryArray:
        """Return a leaf with these entries; of the other entries it has no reachable one."""
        if self._kept is None:
            return leaf
        indices = leaf.indices
        data = np.frombuffer(indices.buffers()[1] or b"", indices.type.to_pandas_dtype()) \
            [indices.offset:indices.offset + len(indices)]
        valid = np.asarray(indices.is_valid())
        old = np.where(valid, data, 0)
        # What no row has, but is in the arrays, gets any entry: keys of maps must not be null.
        if self._size > _SPARSE * len(old):
            new = np.searchsorted(self._kept, old)
        else:
            places = np.zeros(self._size, np.int64)
            places[self._kept] = np.arange(len(self._kept))
            new = places[old]
        dictionary = self._dictionary
        if not len(self._kept):
            dictionary = _zero(dictionary.type) if valid.any() else dictionary
            new = np.zeros_like(old)
        elif (new >= len(self._kept)).any():
            new[new >= len(self._kept)] = 0
        validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
        array = pa.Array.from_buffers(indices.type, len(indices), [
            validity, pa.py_buffer(new.astype(data.dtype))])
        return pa.DictionaryArray.from_arrays(array, dictionary, ordered=leaf.type.ordered,
                                              safe=False)


def _zero(value_type: pa.DataType) -> pa.Array:
    """Return an array of one value, which is zero or empty."""
    if isinstance(value_type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(value_type, _zero(value_type.storage_type))
    if value_type.num_fields:
        return pa.nulls(1, value_type)
    buffers = [pa.py_buffer(bytes(64))] * (value_type.num_buffers - 1)
    return pa.Array.from_buffers(value_type, 1, [None, *buffers])


def _taken(dictionary: pa.Array, numbers: np.ndarray) -> pa.Array:
    """Return some entries, in order."""
    if without_views(dictionary.type).equals(dictionary.type):
        wanted = pa.Array.from_buffers(pa.int64(), len(numbers), [
            None, pa.py_buffer(numbers.astype(np.int64))])
        return call("take", dictionary, wanted)
    mask = np.zeros(len(dictionary), bool)
    mask[numbers] = True
    rows = pa.Array.from_buffers(pa.bool_(), len(mask), [
        None, pa.py_buffer(np.packbits(mask, bitorder="little"))])
    return filtered(pa.RecordBatch.from_arrays([dictionary], [""]), rows).column(0)
