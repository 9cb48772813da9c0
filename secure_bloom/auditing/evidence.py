"""What an attacker can learn from a plaintext Bloom filter, demonstrated on the filter itself."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pyarrow as pa

from secure_bloom.errors import FormatError, UnsupportedError
from secure_bloom.parquet.bloom_filter import ReadsAt
from secure_bloom.parquet.header import MAX_HEADER_SIZE, decode_header, encode_header
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.sbbf.filter import SplitBlockBloomFilter
from secure_bloom.sbbf.hashing import hash_values
from secure_bloom.sbbf.parsing import parse_value

_DAYS = range(-25_567, 47_482)  #: the days of 1900 to 2099, as DATE values
_NUMBERS = range(1_000_000)
_BEYOND_CHANCE = 5  # standard deviations


def fill(filter_: SplitBlockBloomFilter) -> float:
    """The fraction of bits that are set."""
    words = np.frombuffer(filter_.bitset, dtype=np.uint64)
    return float(np.bitwise_count(words).sum()) / (64 * words.size)


def estimated_distinct(filter_: SplitBlockBloomFilter) -> int | None:
    """Estimate a filter's distinct values from the fraction of set bits; None if all are set.

    A value sets one bit of 32 in each word of its block. With n values in z blocks a bit stays 0
    with probability exp(-n / 32 z), as the block loads are Poisson distributed.
    """
    empty = 1.0 - fill(filter_)
    return None if empty <= 0 else round(-32 * filter_.num_blocks * math.log(empty))


class Evidence:
    """What the plaintext filters of a column reveal; they are examined one by one.

    ``guesses`` are values to try, as text; those that the column cannot hold are ignored.
    """

    def __init__(self, column: LeafColumn, guesses: tuple[str, ...] = ()):
        self._tried = _guesses(guesses, column.type)
        self._domain, self._domain_name = _domain(column.type)
        self._tried_hits = np.zeros(self._tried.size, dtype=bool)
        self._domain_hits = np.zeros(self._domain.size, dtype=bool)
        self._rates: list[float] = []
        self._counts: list[int | None] = []

    def add(self, filter_: SplitBlockBloomFilter) -> None:
        """Probe another filter with all guesses."""
        self._rates.append(filter_.expected_fpp())
        self._counts.append(estimated_distinct(filter_))
        self._tried_hits |= filter_.check_hashes(self._tried)
        self._domain_hits |= filter_.check_hashes(self._domain)

    def sentences(self) -> list[str]:
        """The evidence in sentences, which never contain a value."""
        if not self._rates:
            return []
        counts = [count for count in self._counts if count is not None]
        many = "many" if len(counts) < len(self._counts) else f"about {max(counts):,}"
        found = [f"the filters show that a row group has {many} distinct values, and rule out "
                 f"{1 - max(self._rates):.1%} of wrong guesses, without any key"]
        if self._tried.size:
            found.append(f"of {self._tried.size:,} guessed values, {self._tried_hits.sum():,} are "
                         "reported present")
        if self._domain.size:
            by_chance = min(1.0, sum(self._rates)) * self._domain.size
            found.append(f"all {self._domain.size:,} {self._domain_name} were tried: "
                         f"{self._domain_hits.sum():,} are reported present (by chance, about "
                         f"{by_chance:,.0f})")
        return found


class Recognition:
    """Whether the plaintext filters of an open column report more guesses than chance explains.

    Parameters
    ----------
    column : LeafColumn
    guesses : tuple of str
        Values to try, as text; those that the column cannot hold are ignored.
    """

    def __init__(self, column: LeafColumn, guesses: tuple[str, ...]):
        self._tried = _guesses(guesses, column.type)
        self._hits = np.zeros(self._tried.size, dtype=bool)
        self._correct = 1.0  # probability that every filter reports a wrong guess as absent

    def add(self, filter_: SplitBlockBloomFilter) -> None:
        """Probe another filter with all guesses."""
        self._hits |= filter_.check_hashes(self._tried)
        self._correct *= 1 - filter_.expected_fpp()

    def sentence(self) -> str | None:
        """What was recognized, without a value; None if chance explains it."""
        hits, tried, rate = int(self._hits.sum()), self._tried.size, 1 - self._correct
        by_chance = tried * rate
        if hits <= by_chance + _BEYOND_CHANCE * math.sqrt(by_chance * self._correct):
            return None
        return f"of {tried:,} values guessed, {hits:,} are reported present (by chance it would " \
               f"be about {by_chance:,.0f})"


@lru_cache(maxsize=16)  # files of one folder usually have the same columns
def _guesses(texts: tuple[str, ...], type_: ColumnType) -> np.ndarray:
    """The hashes of those guesses that a column of this type can hold."""
    scalars: list[pa.Scalar] = []
    for text in texts:
        try:
            scalars.append(parse_value(text, type_))
        except (ValueError, pa.ArrowException):
            continue
    return hash_values(pa.array(scalars, type_.arrow_type), type_)


@lru_cache(maxsize=16)
def _domain(type_: ColumnType) -> tuple[np.ndarray, str]:
    """The hashes of a set of values small enough to try in full, and its description."""
    arrow_type = type_.arrow_type
    if arrow_type == pa.date32():
        days = pa.array(_DAYS, pa.int32()).view(arrow_type)
        return hash_values(days, type_), "days from 1900 to 2099"
    if arrow_type in (pa.int8(), pa.uint8(), pa.int16(), pa.uint16()):
        info = np.iinfo(arrow_type.to_pandas_dtype())
        every = pa.array(range(info.min, info.max + 1), arrow_type)
        return hash_values(every, type_), "values of the type"
    if arrow_type in (pa.int32(), pa.int64(), pa.uint32(), pa.uint64()):
        return hash_values(pa.array(_NUMBERS, arrow_type), type_), "numbers below one million"
    return np.empty(0, np.uint64), ""


# --- filters that no footer references -----------------------------------------------------------

@dataclass
class Traces:
    """Byte ranges that look like plaintext filters: number, total size, and first offsets.

    Those at known offsets are ignored.
    """

    known: Container[int] = ()
    count: int = 0
    num_bytes: int = 0
    first: list[int] = field(default_factory=list)

    def look(self, source: ReadsAt, end: int) -> Traces:
        """Search a file; arguments as for :func:`find_plain_filters`."""
        for offset, length in find_plain_filters(source, end):
            if offset not in self.known:
                self.count += 1
                self.num_bytes += length
                if len(self.first) < _SHOWN_TRACES:
                    self.first.append(offset)
        return self

    @property
    def evidence(self) -> tuple[str, ...]:
        """Their offsets, as evidence for a finding."""
        return ("at bytes " + ", ".join(map(str, self.first)),)


_SHOWN_TRACES = 10
_ANCHOR = encode_header(32)[2:]  # what follows numBytes: algorithm, hash, compression
_PORTION = 8 * 1024 * 1024


def find_plain_filters(source: ReadsAt, end: int) -> Iterator[tuple[int, int]]:
    """Yield offset and length of what looks like a plaintext filter before the footer, at ``end``.
    """
    overlap = MAX_HEADER_SIZE
    for start in range(0, end, _PORTION):
        before = min(overlap, start)
        size = min(_PORTION + before + len(_ANCHOR) - 1, end - start + before)
        data = bytes(source.read_at(size, start - before))
        position = data.find(_ANCHOR, before)
        while position >= 0:
            found = _header_before(data, position)
            if found is not None:
                offset, length = start - before + found[0], found[1]
                if offset + length <= end:
                    yield offset, length
            position = data.find(_ANCHOR, position + 1)


def _header_before(data: bytes, position: int) -> tuple[int, int] | None:
    """The offset of the header whose last fields are at ``position``, and its filter's length."""
    header_end = position + len(_ANCHOR)
    for start in range(position - 2, max(position - 7, -1), -1):  # numBytes takes 1 to 5 bytes
        try:
            num_bytes, size = decode_header(data[start:header_end])
        except (FormatError, UnsupportedError):
            continue
        if start + size == header_end:
            return start, size + num_bytes
    return None
