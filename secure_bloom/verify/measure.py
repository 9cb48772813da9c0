"""Measure a Bloom filter: does it hold every value of its column, how often is it wrong?

Both run in bounded memory, whatever the size of the row group: values are read in portions, and
distinct values are counted exactly up to a limit and estimated beyond it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from secure_bloom.arrow.dictionaries import compact_dictionaries, nothing, with_known_codes
from secure_bloom.arrow.leaves import leaf_arrays
from secure_bloom.arrow.pages import column_errors, pyarrow_errors
from secure_bloom.keys.retrieval import Keys, open_keys
from secure_bloom.parquet.row_ranges import Piece, pieces
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.sbbf.filter import SplitBlockBloomFilter
from secure_bloom.sbbf.hashing import hash_stored, int96_bytes
from secure_bloom.sbbf.kernel_choice import kernels_for
from secure_bloom.sbbf.sizing import false_positive_deviation, false_positive_probability

_BATCH_ROWS = 16_384
_SPARSE = 8  # entries of a dictionary for each row, from which on only those of rows are hashed
_PAGE_BUFFER = 1024 * 1024  # makes pyarrow read a column page by page, rather than whole
_KEPT = 65_536  # distinct hashes that are counted exactly
_MIN_PROBES, _MAX_PROBES = 10_000, 200_000
_EXPECTED_HITS = 1000  # false positives needed for a good measurement
_SEED = 0
_DEVIATIONS = 6.0  # a larger deviation is not explained by chance
_WORTH_SAYING = 1.5  # times the promised rate: a smaller excess is irrelevant in practice
_SLACK = 10  # hits; the normal approximation is poor for very few


# --- the values of a column, as hashes -----------------------------------------------------------

class ColumnHashes:
    """The hashes of the values of leaf columns, read by pyarrow in portions.

    ``keys`` are those that the file was opened with.
    """

    def __init__(self, file: OpenFile, keys: Keys = None):
        self._file = file
        self._keys: Keys = open_keys(keys)
        self._opened: dict[tuple[str, bool, bool], pq.ParquetFile] = {}
        self._entries: tuple[pa.Array, np.ndarray] | None = None  # of a dictionary; their hashes

    def read(self, row_group: int, column: LeafColumn) -> Iterator[tuple[int, np.ndarray]]:
        """Yield portions of a column chunk: number of rows, and hashes of the non-null values.

        Raises ColumnError or UnsupportedError if values of this type cannot be hashed, or cannot be
        read by pyarrow; FormatError or AuthenticationError if the pages cannot be read.
        """
        for piece, hashes in self._pieces(row_group, column, 0):
            yield piece.stop - piece.start, hashes

    def read_by_range(self, row_group: int, column: LeafColumn) \
            -> Iterator[tuple[int, np.ndarray]]:
        """Yield ranges of the rows of a column chunk (:mod:`.row_ranges`) with their hashes.

        Ranges may come several times, one after the other. Errors are those of :meth:`read`.
        """
        num_rows = 0 if column.is_repeated else self._file.footer.row_group_num_rows(row_group)
        for piece, hashes in self._pieces(row_group, column, num_rows):
            yield piece.range, hashes

    def _pieces(self, row_group: int, column: LeafColumn, num_rows: int) \
            -> Iterator[tuple[Piece, np.ndarray]]:
        units = ("ns", "us") if column.type.physical_type == "INT96" else ("ns",)
        as_stored = column.type.without_annotation if column.type.is_opaque else column.type
        start = 0
        for together in zip(*(self._batches(row_group, column, unit) for unit in units),
                            strict=True):
            stop = start + len(together[0])
            for piece in pieces(start, stop, num_rows, _BATCH_ROWS):
                leaves = [_leaf(batch.slice(piece.start - start, piece.stop - piece.start))
                          for batch in together]
                yield piece, _int96_hashes(*leaves) if len(leaves) > 1 \
                    else self._hashes(leaves[0], as_stored)
            start = stop

    def _hashes(self, leaf: pa.Array, as_stored: ColumnType) -> np.ndarray:
        """Return the hash of each value that is not null."""
        if not pa.types.is_dictionary(leaf.type):
            return hash_stored(leaf, as_stored)
        # Not decoded: an entry of the dictionary may be long, and the value of many rows.
        if self._entries is None or not self._entries[0].equals(leaf.dictionary):
            if len(leaf.dictionary) > _SPARSE * len(leaf):
                [leaf] = compact_dictionaries(pa.record_batch([leaf], ["leaf"]), nothing).columns
            self._entries = leaf.dictionary, hash_stored(leaf.dictionary, as_stored)
        return self._entries[1][np.from_dlpack(leaf.indices.drop_null())]  # without pandas

    def _batches(self, row_group: int, column: LeafColumn, int96_unit: str = "ns") \
            -> Iterator[pa.Array]:
        """Yield batches of the top-level field, restricted to this leaf."""
        with pyarrow_errors(self._file.name, self._keys):
            self._file.check_columns([column.path], [row_group])
            with column_errors():
                opened = self._in_pyarrow(int96_unit, not column.type.is_opaque,
                                          self._has_dictionary(row_group, column))
                for batch in opened.reader.iter_batches(
                        _BATCH_ROWS, row_groups=[row_group], column_indices=[column.ordinal],
                        use_threads=False):
                    yield with_known_codes(batch).column(0)

    def _has_dictionary(self, row_group: int, column: LeafColumn) -> bool:
        """Whether pyarrow can leave the values of a column chunk in its dictionary."""
        return column.type.physical_type == "BYTE_ARRAY" and len(column.parts) == 1 \
            and self._file.footer.row_groups[row_group][column.ordinal].is_dictionary_encoded

    def _in_pyarrow(self, int96_unit: str, with_annotations: bool, with_dictionaries: bool) \
            -> pq.ParquetFile:
        key = int96_unit, with_annotations, with_dictionaries
        if key not in self._opened:
            self._opened[key] = self._file.open_in_pyarrow(
                with_annotations=with_annotations, buffer_size=_PAGE_BUFFER, pre_buffer=False,
                coerce_int96_timestamp_unit=int96_unit, read_dictionary=[
                    leaf.path for leaf in self._file.columns
                    if with_dictionaries and leaf.type.physical_type == "BYTE_ARRAY"])
        return self._opened[key]


def _leaf(array: pa.Array) -> pa.Array:
    [leaf] = leaf_arrays(array)
    return leaf


def _int96_hashes(nanos: pa.Array, micros: pa.Array) -> np.ndarray:
    """Hashes of INT96 timestamps, including those for which pyarrow has no type.

    In nanoseconds, timestamps before 1677 and after 2262 have wrapped around; in microseconds, the
    last digits are missing. The two together determine the value.
    """
    nanos, micros = (array.drop_null().view(pa.int64()).to_numpy() for array in (nanos, micros))
    data = int96_bytes(micros, "us")
    of_day = data[:, :8].copy().view("<i8").ravel() + (nanos - micros * 1000)
    data[:, :8] = of_day.astype("<i8").view(np.uint8).reshape(-1, 8)
    out = np.empty(len(data), dtype=np.uint64)
    kernels_for(out.size).hash_fixed(data.reshape(-1), 12, out)
    return out


# --- distinct values -----------------------------------------------------------------------------

class DistinctHashes:
    """The number of distinct hashes that were added: exact up to a limit, then estimated.

    ``smallest`` are the smallest of them, sorted; all as long as the number is exact.

    Hashes are uniformly distributed, so the largest of the k smallest hashes determines an estimate
    of their total number; its relative error is 1 / sqrt(k), 0.4 %.
    """

    def __init__(self, kept: int = _KEPT):
        self._kept = kept
        self.smallest = np.empty(0, dtype=np.uint64)
        self.is_exact = True

    def add(self, hashes: np.ndarray) -> None:
        """Add these hashes to the count."""
        if not self.is_exact:
            hashes = hashes[hashes < self.smallest[-1]]
        # Not numpy.unique, which takes ten times as long.
        merged = np.sort(np.concatenate((self.smallest, hashes)))
        merged = merged[np.insert(merged[1:] != merged[:-1], 0, True)[:merged.size]]
        self.is_exact = self.is_exact and merged.size <= self._kept
        self.smallest = merged[:self._kept]

    @property
    def count(self) -> int:
        """The exact number, or the estimate."""
        if self.is_exact:
            return self.smallest.size
        return round((self._kept - 1) * 2.0**64 / float(self.smallest[-1]))

    @property
    def at_most(self) -> int:
        """A safe upper bound on the number."""
        return self.count if self.is_exact \
            else round(self.count * (1 + _DEVIATIONS / self._kept**0.5))


# --- values against their filter -----------------------------------------------------------------

@dataclass(frozen=True)
class Comparison:
    """The result of looking up the values of a column chunk in its filter.

    ``values`` is the number of non-null values, ``missing`` of those that the filter reports
    absent.
    """

    values: int
    missing: int
    distinct: DistinctHashes


def compare(portions: Iterator[tuple[int, np.ndarray]], filter_: SplitBlockBloomFilter,
            advance: Callable[[int], None] = lambda rows: None) -> Comparison:
    """Look up every value in its filter; ``advance`` is called with the rows of each portion."""
    values = missing = 0
    distinct = DistinctHashes()
    for rows, hashes in portions:
        values += hashes.size
        missing += int(np.count_nonzero(~filter_.check_hashes(hashes)))
        distinct.add(hashes)
        advance(rows)
    return Comparison(values, missing, distinct)


# --- false positives -----------------------------------------------------------------------------

@dataclass(frozen=True)
class FalsePositives:
    """How often a filter reports random hashes present, and how often it should.

    ``promised`` is the rate of a filter of this size with this many distinct values; None if their
    number is unknown. ``beyond_chance``: whether the measured rate exceeds it by more than chance
    explains.
    """

    measured: float
    promised: float | None
    beyond_chance: bool


def measure_false_positives(filter_: SplitBlockBloomFilter,
                            distinct: DistinctHashes | None) -> FalsePositives:
    """Probe a filter with random hashes from a fixed seed.

    If all values are known, a filter of them alone answers the same probes. Otherwise three sources
    of random variation are allowed for: which probes hit; how the values are distributed over the
    blocks; and the estimate of their number.
    """
    blocks = filter_.num_blocks
    promised = None if distinct is None else false_positive_probability(blocks, distinct.count)
    probes = _number_of_probes(filter_.expected_fpp() if promised is None else promised)
    hashes = np.random.default_rng(_SEED).integers(0, 2**64, probes, dtype=np.uint64)
    hits = _hits(filter_, hashes)
    if distinct is None:
        most = float(probes)
    elif distinct.is_exact:
        own = SplitBlockBloomFilter(blocks)
        own.insert_hashes(distinct.smallest)
        most = _WORTH_SAYING * _hits(own, hashes) + _SLACK
    else:
        most = _most_hits(blocks, distinct.at_most, probes)
    return FalsePositives(hits / probes, promised, hits > most)


def _hits(filter_: SplitBlockBloomFilter, hashes: np.ndarray) -> int:
    return int(np.count_nonzero(filter_.check_hashes(hashes)))


def _number_of_probes(probability: float) -> int:
    wanted = _EXPECTED_HITS / max(probability, _EXPECTED_HITS / _MAX_PROBES)
    return max(_MIN_PROBES, round(wanted))


def _most_hits(blocks: int, distinct: int, probes: int) -> float:
    probability = false_positive_probability(blocks, distinct)
    variance = false_positive_deviation(blocks, distinct) ** 2 \
        + probability * (1 - probability) / probes
    by_chance = probability + _DEVIATIONS * variance**0.5
    return probes * max(by_chance, _WORTH_SAYING * probability) + _SLACK
