"""The split-block Bloom filter (SBBF) of Parquet: BloomFilter.md, "Technical Approach".

A filter is a sequence of blocks of 256 bits, each of 8 words of 32 bits. The upper half of a
64-bit hash selects the block, the lower half sets one bit in each of its words. On disk the words
are stored consecutively, little-endian.

A filter holds hashes; :meth:`SplitBlockBloomFilter.insert` and ``check`` take values and hash them
as a Parquet column of their type does (:mod:`secure_bloom.sbbf.hashing`). A filter therefore
records the type of its values: INT32 5 and INT64 5 hash differently, and a check with the wrong
type would miss.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Any

import numpy as np
import pyarrow as pa

from secure_bloom.display import Summarized
from secure_bloom.kernels.scalar import check_hash
from secure_bloom.sbbf.arrow_types import column_type_of
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.sbbf.hashing import insert_values
from secure_bloom.sbbf.kernel_choice import kernels_for
from secure_bloom.sbbf.sizing import (
    BYTES_PER_BLOCK,
    MAX_BYTES,
    check_fpp,
    check_num_blocks,
    num_blocks_for,
)

WORDS_PER_BLOCK = 8
_CACHE_LINE = 64
_WORD = np.dtype("<u4")


class SplitBlockBloomFilter(Summarized):
    """A split-block Bloom filter.

    Parameters
    ----------
    num_blocks : int
        Number of 32-byte blocks, 1 to 4,194,304 (128 MiB). The specification allows any; Arrow
        C++ reads powers of two only.
    column_type : ColumnType or pyarrow.DataType, optional
        How values are stored: the type of a file's column, or an Arrow type with its default
        storage. By default, the first Arrow array or value inserted determines the type.
    """

    def __init__(self, num_blocks: int = 1, *, column_type: ColumnType | pa.DataType | None = None):
        check_num_blocks(num_blocks)
        self._words = _no_bits(num_blocks)
        self.column_type: ColumnType | None = column_type_of(column_type) \
            if isinstance(column_type, pa.DataType) else column_type

    @classmethod
    def sized(cls, *, ndv: int, fpp: float = 0.01, power_of_two: bool = True,
              column_type: ColumnType | pa.DataType | None = None) -> SplitBlockBloomFilter:
        """Create an empty filter for ``ndv`` distinct values at false-positive probability ``fpp``.

        Parameters
        ----------
        ndv : int
            Expected number of distinct values.
        fpp : float
            Target false-positive probability, between 0 and 1, both excluded.
        power_of_two : bool
            Round the number of blocks up to a power of two (default), which every reader accepts.
        column_type : ColumnType or pyarrow.DataType, optional
            As for the constructor.
        """
        return cls(num_blocks_for(ndv, fpp, power_of_two=power_of_two), column_type=column_type)

    @classmethod
    def from_bitset(cls, bitset: bytes | bytearray | memoryview, *,
                    column_type: ColumnType | pa.DataType | None = None) -> SplitBlockBloomFilter:
        """Create a filter from a copy of a bitset.

        Parameters
        ----------
        bitset : bytes-like
            A multiple of 32 bytes, 32 bytes to 128 MiB: little-endian words, block by block.
        column_type : ColumnType or pyarrow.DataType, optional
            How the values in it are stored. Without it, only hashes can be inserted and checked.

        Raises
        ------
        ValueError
            If the length is invalid.
        """
        size = memoryview(bitset).nbytes
        if size % BYTES_PER_BLOCK or not 0 < size <= MAX_BYTES:
            raise ValueError(f"the size of a bitset must be a multiple of {BYTES_PER_BLOCK} "
                             f"bytes, up to {MAX_BYTES}; got {size}")
        filter_ = cls(size // BYTES_PER_BLOCK, column_type=column_type)
        filter_._words.reshape(-1)[:] = np.frombuffer(bitset, dtype=_WORD)
        return filter_

    @classmethod
    def _over(cls, bitset: pa.Buffer, column_type: ColumnType | None) -> SplitBlockBloomFilter:
        """Create a filter over a buffer without copying it; nothing else may use the buffer."""
        filter_ = cls.__new__(cls)
        filter_.column_type = column_type
        filter_._words = np.frombuffer(bitset, dtype=_WORD).reshape(-1, WORDS_PER_BLOCK)
        return filter_

    @property
    def num_blocks(self) -> int:
        """Number of 32-byte blocks."""
        return self._words.shape[0]

    @property
    def num_bytes(self) -> int:
        """Size of the bitset in bytes."""
        return self._words.nbytes

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been inserted yet."""
        return not self._words.any()

    @property
    def bitset(self) -> memoryview:
        """The bitset as Parquet stores it: little-endian words; read-only, not copied."""
        return memoryview(self._words.data).cast("B").toreadonly()

    def insert(self, values: object) -> None:
        """Insert one value or many; nulls are skipped.

        Parameters
        ----------
        values : scalar, sequence, numpy array, pyarrow Array, ChunkedArray or Scalar
            Python integers count as INT64, floats as DOUBLE, unless the filter has a type.

        Raises
        ------
        ColumnError
            If a value cannot be stored in a column of the filter's type, or the filter holds
            hashes of values whose type it does not know.
        """
        from secure_bloom.sbbf.probes import insertable
        for array, column_type in insertable(self, values):
            insert_values(self._words, array, column_type)

    def check(self, values: object) -> Any:
        """Check whether values may have been inserted.

        Parameters
        ----------
        values : scalar, sequence, numpy array, pyarrow Array, ChunkedArray or Scalar

        Returns
        -------
        bool for a scalar, else bool array of the same length
            False: certainly not inserted. True: possibly inserted, or the filter cannot tell, as
            for None, NaN and values whose type does not fit.

        Raises
        ------
        ColumnError
            If the filter holds hashes of values whose type it does not know.
        """
        from secure_bloom.sbbf.probes import check_values
        return check_values(self, values)

    def insert_hashes(self, hashes: np.ndarray | int) -> None:
        """Insert XXH64 hashes: an array of uint64, or a single int."""
        hashes = _as_hashes(hashes)
        kernels_for(hashes.size).insert_hashes(self._words, hashes)

    def check_hashes(self, hashes: np.ndarray | int) -> np.ndarray:
        """Check whether each hash may have been inserted; takes uint64, returns a bool array."""
        hashes = _as_hashes(hashes)
        out = np.empty(hashes.size, dtype=bool)
        kernels_for(hashes.size).check_hashes(self._words, hashes, out)
        return out

    def check_hash(self, value: int) -> bool:
        """Check whether one XXH64 hash may have been inserted."""
        return check_hash(self._words, value)

    def merge(self, other: SplitBlockBloomFilter) -> None:
        """Add everything that ``other`` holds.

        Raises
        ------
        ValueError
            If the filters differ in size (:meth:`fold` the larger one first) or in type, including
            when only one of them knows the type of the values that it holds.
        """
        if other.num_blocks != self.num_blocks:
            raise ValueError(f"cannot merge a filter of {other.num_blocks} blocks into one of "
                             f"{self.num_blocks}; fold the larger one first")
        differ = self.column_type != other.column_type
        if differ and not any(one.column_type is None and one.is_empty for one in (self, other)):
            raise ValueError(f"cannot merge a filter of {other.column_type or 'unknown'} values "
                             f"into one of {self.column_type or 'unknown'} values")
        self.column_type = self.column_type or other.column_type
        np.bitwise_or(self._words, other._words, out=self._words)

    def fold(self, num_blocks: int | None = None, *, fpp: float | None = None) \
            -> SplitBlockBloomFilter:
        """Return a smaller filter, identical to one built at that size over the same values.

        The block of a hash h is floor(h * z / 2^32), so in a filter of z / k blocks the values of
        k adjacent blocks share one.

        Parameters
        ----------
        num_blocks : int, optional
            Blocks of the result, a divisor of this filter's. Default: half.
        fpp : float, optional
            Alternatively: halve as long as the expected false-positive probability is at most this.

        Raises
        ------
        ValueError
            If ``num_blocks`` is not a divisor, or both arguments are passed.
        """
        if fpp is not None:
            if num_blocks is not None:
                raise ValueError("specify num_blocks or fpp, not both")
            return self._fold_to(fpp)
        num_blocks = self.num_blocks // 2 if num_blocks is None else num_blocks
        if num_blocks < 1 or self.num_blocks % num_blocks:
            raise ValueError(f"{self.num_blocks} blocks cannot be folded to {num_blocks}")
        folded = type(self)(num_blocks, column_type=self.column_type)
        groups = self._words.reshape(num_blocks, -1, WORDS_PER_BLOCK)
        for member in range(groups.shape[1]):  # numpy's reduce is slow along such a short axis
            np.bitwise_or(folded._words, groups[:, member], out=folded._words)
        return folded

    def _fold_to(self, fpp: float) -> SplitBlockBloomFilter:
        check_fpp(fpp)
        words = self._words
        while len(words) % 2 == 0:
            smaller = words[0::2] | words[1::2]
            if _expected_fpp(smaller) > fpp:
                break
            words = smaller
        if words is self._words:
            return self
        folded = type(self)(len(words), column_type=self.column_type)
        folded._words[:] = words
        return folded

    def expected_fpp(self) -> float:
        """Return the probability of a false positive for a random value, from the bits set.

        A false positive needs, in one block, the bit of each word: the mean over the blocks of the
        product of the fill ratios of the 8 words.
        """
        return _expected_fpp(self._words)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SplitBlockBloomFilter):
            return NotImplemented
        return np.array_equal(self._words, other._words)

    __hash__ = None  # type: ignore[assignment]  # filters change

    def _headline(self) -> str:
        kind = f", {self.column_type}" if self.column_type else ""
        return f"{self.num_blocks} blocks, {self.num_bytes} bytes{kind}"


def _expected_fpp(words: np.ndarray) -> float:
    """See :meth:`SplitBlockBloomFilter.expected_fpp`."""
    ones = np.bitwise_count(words)
    product = np.ones(len(words))  # of integers up to 32^8, so exact
    for word in range(WORDS_PER_BLOCK):
        product *= ones[:, word]
    return float(product.mean()) / 32.0**WORDS_PER_BLOCK


def _no_bits(num_blocks: int) -> np.ndarray:
    """Return the words of an empty filter, aligned so that no block spans two cache lines."""
    room = np.zeros(num_blocks * BYTES_PER_BLOCK + _CACHE_LINE, dtype=np.uint8)
    start = -room.__array_interface__["data"][0] % _CACHE_LINE
    words = room[start:start + num_blocks * BYTES_PER_BLOCK].view(_WORD)
    return words.reshape(num_blocks, WORDS_PER_BLOCK)


def _as_hashes(hashes: int | Iterable[int] | np.ndarray) -> np.ndarray:
    if isinstance(hashes, int | np.integer):
        hashes = [hashes]
    if not isinstance(hashes, np.ndarray):
        hashes = np.array([index(value) for value in hashes], dtype=np.uint64)
    elif hashes.dtype.kind not in "iu":
        raise TypeError(f"hashes must be uint64, got {hashes.dtype}")
    return np.ascontiguousarray(hashes, dtype=np.uint64).ravel()
