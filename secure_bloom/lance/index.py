"""Read a BLOOMFILTER index, check it, and query it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from secure_bloom.display import Summarized
from secure_bloom.errors import ColumnError, FormatError, UnsupportedError, error_location
from secure_bloom.kernels.scalar import block_index, block_masks
from secure_bloom.lance.layout import (
    MAX_ROWS,
    NULL_BITMAP,
    SCHEMA,
    Parameters,
    Zone,
    column_type_of,
)
from secure_bloom.lance.null_rows import read_null_rows
from secure_bloom.lance.pylance import Indexed, LanceFile, find_indexed
from secure_bloom.sbbf.arrow_types import storage_array
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.sbbf.conversion import convert_exactly
from secure_bloom.sbbf.filter import WORDS_PER_BLOCK, SplitBlockBloomFilter
from secure_bloom.sbbf.hashing import hash_values
from secure_bloom.sbbf.probes import as_arrays, known_values, zero_hashes
from secure_bloom.storage.files import FilePath

_MAX_ZONES = 2**24
_BATCH_BYTES = 8 * 1024 * 1024  # of filters read per batch
_KEPT_BYTES = 256 * 1024 * 1024  # of filters kept in memory; larger ones are read by each query


class BloomFilterIndex(Summarized):
    """A BLOOMFILTER index of a Lance data set, written by any implementation.

    The file is read and checked once. Each query returns the zones that may contain a matching row;
    all other zones certainly contain none. The index does not cover fragments without zones, such
    as those that were added later: their rows have to be read anyway. Values that were updated in
    place are detected only if the file is in the folder ``_indices`` of its data set, in the state
    of the data set when the index was opened: zones of such fragments are in every result. If the
    data set no longer has this index, or does not have it yet, these are all zones.

    Parameters
    ----------
    path : str or path
        A local ``bloomfilter.lance``.
    value_type : pyarrow.DataType, optional
        The type of the column, which the file does not record. Default: that of the data set, if
        the file is in its folder ``_indices``. Without either, only :meth:`is_null` is available.

    Attributes
    ----------
    path : str
    items : int
        Number of values that each filter is sized for.
    probability : float
        False-positive probability of a filter with that many distinct values.
    num_bytes : int
        Size of each filter.
    column : str or None
        The indexed column, if known from the data set.
    column_type : ColumnType or None
        How its values are hashed.
    has_null_bitmap : bool
        Whether the index also lists each null row; indexes by older versions of pylance do not.

    Raises
    ------
    OSError
        If the file does not exist.
    FormatError
        If it is not a valid Lance file or BLOOMFILTER index, or is inconsistent.
    ColumnError
        If Lance does not have this index for ``value_type``, or the data set has another type.
    MissingExtraError
        If pylance is not installed.
    """

    def __init__(self, path: FilePath, value_type: pa.DataType | None = None):
        self.path = os.path.abspath(os.path.expanduser(os.fspath(path)))
        with error_location(file=self.path):
            indexed = find_indexed(self.path)
            self.column = indexed.column if indexed else None
            self.column_type = _column_type(indexed, value_type)
            self._file = LanceFile(self.path)
            _check_schema(self._file.schema)
            parameters = Parameters.from_metadata(self._file.schema.metadata)
            self.items, self.probability = parameters.items, parameters.probability
            self.num_bytes = parameters.num_bytes
            self._kept: list[np.ndarray] | None = None
            self._fragment, self._start, self._length, self._has_null = self._read()
            self.has_null_bitmap = self._check_null_bitmap()
            self._stale = np.zeros(self._fragment.size, dtype=bool) if indexed is None else \
                ~np.isin(self._fragment, list(indexed.fragment_ids))

    def _read(self) -> list[np.ndarray]:
        """Read fragment ids, first rows, lengths (int64) and ``has_null`` (bool) of all zones."""
        if self._file.num_rows > _MAX_ZONES:
            raise UnsupportedError(f"the index has {self._file.num_rows} zones; at most "
                                   f"{_MAX_ZONES} are supported")
        keep = self._file.num_rows * self.num_bytes <= _KEPT_BYTES
        kept = []
        parts: list[list[np.ndarray]] = [[*[np.empty(0, np.int64)] * 3, np.empty(0, bool)]]
        for columns, words in self._batches():
            parts.append(columns)
            if keep:
                kept.append(words)
        self._kept = kept if keep else None
        zones = [np.concatenate(column) for column in zip(*parts, strict=True)]
        if zones[0].size != self._file.num_rows:
            raise FormatError(f"the index has {zones[0].size} zones, not {self._file.num_rows}")
        _check_zones(*zones[:3])
        return zones

    def _batches(self) -> Iterator[tuple[list[np.ndarray], np.ndarray]]:
        """Yield the four columns of some zones, and their filters as words (zones, blocks, 8)."""
        position = 0
        for batch in self._file.batches(max(1, min(65_536, _BATCH_BYTES // self.num_bytes))):
            yield (_zone_columns(batch, position),
                   _words(batch.column("bloom_filter_data"), self.num_bytes, position))
            position += batch.num_rows

    def _check_null_bitmap(self) -> bool:
        number = (self._file.schema.metadata or {}).get(NULL_BITMAP.encode())
        if number is None:
            return False
        if not (number.isdigit() and len(number) < 10):
            raise FormatError(f"{NULL_BITMAP} in the schema's metadata is not a valid number")
        buffer = self._file.global_buffer(int(number))
        starts, lasts = _spans(*(column[self._has_null] for column in
                                 (self._fragment, self._start, self._length)))
        for fragment_id, first, last in read_null_rows(buffer):
            address = np.uint64(fragment_id * MAX_ROWS)
            first, last = address + first.astype(np.uint64), address + last.astype(np.uint64)
            before = np.searchsorted(starts, first, side="right")  # spans that do not start later
            if not before.all() or (last > lasts[before - 1]).any():
                raise FormatError(f"{NULL_BITMAP} lists rows of fragment {fragment_id} that are "
                                  "in no zone with has_null; rebuild the index")
        return True

    @cached_property
    def zones(self) -> list[Zone]:
        """All zones, in the order of the file."""
        return self._zones(np.ones(self._fragment.size, dtype=bool))

    @property
    def fragment_ids(self) -> list[int]:
        """The fragments that the index covers, ascending."""
        return np.unique(self._fragment[~self._stale]).tolist()

    def _zones(self, which: np.ndarray) -> list[Zone]:
        columns = (self._fragment, self._start, self._length, self._has_null)
        return list(map(Zone, *(column[which].tolist() for column in columns)))

    def is_null(self) -> list[Zone]:
        """Return the zones that may contain a null."""
        return self._zones(self._has_null | self._stale)

    def equals(self, value: object) -> list[Zone]:
        """Return the zones that may contain a value.

        Parameters
        ----------
        value : scalar or pyarrow.Scalar
            None queries nulls, as in Lance. NaN, and a value that has no definite counterpart in
            the column's type, may be in any zone. For 0.0 or -0.0, both are queried.

        Returns
        -------
        list of Zone

        Raises
        ------
        ColumnError
            If the type of the column is unknown, or Arrow does not support the value.
        """
        return self._ask([value])

    def is_in(self, values: Iterable[Any]) -> list[Zone]:
        """Return the zones that may contain any of the values; see :meth:`equals`.

        Parameters
        ----------
        values : sequence, numpy array, pyarrow Array or ChunkedArray
            Values of one type.
        """
        if isinstance(values, str | bytes):
            raise TypeError("values must be a list of values, not one")
        return self._ask(values)

    def _ask(self, values: object) -> list[Zone]:
        with error_location(file=self.path, column=self.column):
            if self.column_type is None:
                raise ColumnError("the column type is unknown, because the index is not part of a "
                                  "data set: pass value_type")
            hashes, or_null = _hashes_of(values, self.column_type)
            found = np.ones(self._fragment.size, dtype=bool) if hashes is None \
                else self._check_hashes(hashes)
        return self._zones(found | self._stale | (self._has_null & or_null))

    def _check_hashes(self, hashes: np.ndarray) -> np.ndarray:
        """Return for each zone whether it may contain one of the values (bool)."""
        if hashes.size == 0:
            return np.zeros(self._fragment.size, dtype=bool)
        batches = self._kept if self._kept is not None else self._read_again()
        return np.concatenate([np.empty(0, bool), *(_any_hit(words, hashes) for words in batches)])

    def _read_again(self) -> Iterator[np.ndarray]:
        position = 0
        for columns, words in self._batches():
            these = slice(position, position + len(words))
            known = (self._fragment, self._start, self._length, self._has_null)
            if not all(np.array_equal(old[these], new)
                       for old, new in zip(known, columns, strict=True)):
                raise FormatError("the file has changed since it was opened")
            yield words
            position += len(words)
        if position != self._fragment.size:
            raise FormatError("the file has changed since it was opened")

    def expected_fpp(self) -> float:
        """Return the mean false-positive probability of the filters, from the bits that are set."""
        batches = self._kept if self._kept is not None else self._read_again()
        rates = [SplitBlockBloomFilter.from_bitset(words).expected_fpp()
                 for batch in batches for words in batch]
        return float(np.mean(rates)) if rates else 0.0

    def _headline(self) -> str:
        return (f"{self._fragment.size} zones, filters of {self.num_bytes} bytes, "
                f"{self.column_type or 'unknown type'}")


def row_ranges(zones: Iterable[Zone]) -> dict[int, list[tuple[int, int]]]:
    """Return the rows of some zones.

    Returns
    -------
    dict
        For each fragment id, ascending, half-open ranges (start, stop) of row offsets, ascending.
        Adjacent zones share a range. Deleted rows count.

    Examples
    --------
    >>> row_ranges(BloomFilterIndex("tail.lance").equals("N14228"))  # doctest: +SKIP
    """
    ranges: dict[int, list[tuple[int, int]]] = {}
    for fragment_id, start, length, _ in sorted(zones):
        of_fragment = ranges.setdefault(fragment_id, [])
        stop = start + length
        if of_fragment and of_fragment[-1][1] == start:
            start, _ = of_fragment.pop()
        of_fragment.append((start, stop))
    return ranges


def _column_type(indexed: Indexed | None, value_type: pa.DataType | None) -> ColumnType | None:
    """Return the type of the column, from the data set or from the caller."""
    given = None if value_type is None else column_type_of(value_type)
    if indexed is None or indexed.arrow_type is None:
        return given
    known = column_type_of(indexed.arrow_type)
    if given not in (None, known):
        raise ColumnError(f"the data set has type {indexed.arrow_type}, but value_type is "
                          f"{value_type}", column=indexed.column)
    return known


def _check_schema(schema: pa.Schema) -> None:
    if [(field.name, field.type) for field in schema] \
            != [(field.name, field.type) for field in SCHEMA]:  # nulls are looked for in the data
        found = ", ".join(f"{field.name} {field.type}{'' if field.nullable else ' not null'}"
                          for field in list(schema)[:10])
        raise FormatError(f"this is not a BLOOMFILTER index; its columns are: {found}")


def _refuse(wrong: np.ndarray, message: str, position: int = 0) -> None:
    """Raise FormatError if a zone is invalid (bool for each); numbering starts at ``position``."""
    if wrong.any():
        raise FormatError(f"zone {position + int(wrong.argmax())} {message}")


def _zone_columns(batch: pa.RecordBatch, position: int) -> list[np.ndarray]:
    for column in batch.columns:
        if column.null_count:
            _refuse(column.is_null().to_numpy(zero_copy_only=False),
                    "has a null in a column that cannot have nulls", position)
    numbers = [batch.column(i).to_numpy(zero_copy_only=False) for i in range(3)]
    for numbers_of_column, name in zip(numbers, SCHEMA.names[:3], strict=True):
        _refuse(numbers_of_column > MAX_ROWS, f"has a {name} that is too large", position)
    return [*(column.astype(np.int64) for column in numbers),
            batch.column(3).to_numpy(zero_copy_only=False)]


def _words(bitsets: pa.BinaryArray, num_bytes: int, position: int) -> np.ndarray:
    """Return the filters of some zones; shape (zones, blocks, 8), uint32."""
    count = len(bitsets)
    _, offsets, data = bitsets.buffers()
    offsets = np.frombuffer(offsets, dtype=np.int32)[bitsets.offset:bitsets.offset + count + 1]
    _refuse(np.diff(offsets) != num_bytes, "has a bitset of another size than the "
            f"{num_bytes} bytes that the metadata specifies; rebuild the index", position)
    raw = np.frombuffer(data, dtype=np.uint8)[offsets[0]:offsets[-1]]
    return raw.view("<u4").reshape(count, -1, WORDS_PER_BLOCK)


def _check_zones(fragment: np.ndarray, start: np.ndarray, length: np.ndarray) -> None:
    _refuse((fragment >= MAX_ROWS) | (start + length > MAX_ROWS), "reaches beyond the end of its "
            "fragment, as written by pylance 1.0; rebuild the index")
    _refuse(length == 0, "has no rows")
    order = np.lexsort((start, fragment))
    fragment, start, stop = fragment[order], start[order], (start + length)[order]
    overlap = (fragment[1:] == fragment[:-1]) & (start[1:] < stop[:-1])
    if overlap.any():
        at = int(overlap.argmax())
        raise FormatError(f"zones {order[at]} and {order[at + 1]}, of fragment {fragment[at]}, "
                          "overlap; rebuild the index")


def _spans(fragment: np.ndarray, start: np.ndarray, length: np.ndarray) \
        -> tuple[np.ndarray, np.ndarray]:
    """Return first and last row addresses (uint64) of disjoint zones; adjacent ones are merged."""
    starts = fragment.astype(np.uint64) * np.uint64(MAX_ROWS) + start.astype(np.uint64)
    lasts = np.sort(starts + (length - 1).astype(np.uint64))
    starts.sort()
    apart = lasts[:-1] + np.uint64(1) != starts[1:]
    edges = np.ones(starts.size + 1, dtype=bool)
    edges[1:-1] = apart
    return starts[edges[:-1]], lasts[edges[1:]]


def _hashes_of(values: object, column_type: ColumnType) -> tuple[np.ndarray | None, bool]:
    """Return the hashes to query (None: the values may be anywhere), and whether nulls match.

    Values are converted to the type of the column as in :mod:`secure_bloom.sbbf.probes`.
    """
    hashes, or_null = [np.empty(0, dtype=np.uint64)], False
    for array in as_arrays(values, strict=True):
        array = storage_array(array)
        or_null = or_null or array.null_count > 0
        converted = convert_exactly(array.drop_null(), column_type)
        known = known_values(converted)
        if known is not None and not known.all():
            return None, or_null
        _, of_zeros = zero_hashes(converted, column_type)
        hashes += [hash_values(converted, column_type), of_zeros]
    return np.concatenate(hashes), or_null


def _any_hit(words: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """Return for each filter (words: filters, blocks, 8) whether any hash may be in it; bool."""
    found = np.zeros(len(words), dtype=bool)
    blocks = block_index(hashes, words.shape[1])
    for block, mask in zip(blocks.tolist(), block_masks(hashes), strict=True):
        found |= ((words[:, block] & mask) == mask).all(axis=1)
    return found
