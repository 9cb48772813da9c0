"""A page of fingerprints: a static quotient filter whose entries have places.

A place is the number of a row group, and in some segments a range of its rows below that.

The first bits of a fingerprint give the page, the next ones the bucket in it, and the remainder is
stored. An entry is the remainder above a place, in as few whole bytes as the two need.
A page, little-endian:

    n          4 bytes: number of entries
    counts     (n + buckets + 7) // 8 bytes: for each bucket as many ones as it has entries, then a
               zero; the first bit is the lowest one of the first byte
    entries    n * width bytes: remainder << place bits | place, ascending within a bucket
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from secure_bloom.errors import FormatError

SPARE = 8  #: bytes behind pages that are searched, which say nothing
_BAD_SIZE = "a page of the index has an invalid size"
_BAD_COUNTS = "a page of the index has invalid counts"
# Of each byte, the first bit being its lowest one: how many zeros it has, and where they are
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, np.newaxis], axis=1, bitorder="little")
_ZEROS = (8 - _BITS.sum(axis=1)).astype(np.uint8)
_ONES = bytes([255] * 7)
_PLACES_OF_ZEROS = np.argsort(_BITS, axis=1, kind="stable")


class PageLayout(NamedTuple):
    """How the pages of a segment are laid out: bits for the bucket, bytes of an entry."""

    bucket_bits: int
    width: int


class Page:
    """A page that is being read. Raises FormatError if its size does not match its counts."""

    def __init__(self, content: pa.Buffer, layout: PageLayout):
        data = memoryview(content).cast("B") if content.size else memoryview(b"")
        buckets = 1 << layout.bucket_bits
        n = int.from_bytes(data[:4], "little")
        start = 4 + (n + buckets + 7) // 8
        if len(data) != start + n * layout.width:
            raise FormatError(_BAD_SIZE)
        self._words = np.frombuffer(b"".join((data[4:start], _ONES[:(4 - start) % 8])), "<u8")
        self._zeros = np.cumsum(np.bitwise_count(~self._words), dtype=np.int64)  # up to each word
        if self._zeros[-1] < buckets or self._place_of_zero(buckets - 1) != n + buckets - 1:
            raise FormatError(_BAD_COUNTS)
        self._data, self._start, self._num_bits = data, start, n + buckets
        self._num_entries, self._width = n, layout.width

    def find(self, bucket: int, remainder: int, place_bits: int) -> list[int]:
        """Return the places of a fingerprint. :class:`Pages` would take several times as long."""
        zero = self._place_of_zero(bucket)  # its entries are the ones before it
        before = self._zero_before(zero, bucket)
        at, width = self._start + (before + 1 - bucket) * self._width, self._width
        stored = bytes(self._data[at:at + (zero - before - 1) * width])
        entries = (int.from_bytes(stored[start:start + width], "little")
                   for start in range(0, len(stored), width))
        mask = (1 << place_bits) - 1
        return [entry & mask for entry in entries if entry >> place_bits == remainder]

    def decode(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the buckets and the entries of all fingerprints; uint64."""
        bits = np.unpackbits(self._words.view(np.uint8), count=self._num_bits, bitorder="little")
        ones = np.flatnonzero(bits)  # each comes after one zero for each bucket before
        return (ones - np.arange(ones.size)).astype(np.uint64), self._all_wide()

    def _place_of_zero(self, number: int) -> int:
        """Return the number of the bit that is the zero of some number, from 0."""
        word = int(self._zeros.searchsorted(number + 1))  # the first one with so many up to it
        zeros = ~int(self._words[word]) & 2**64 - 1
        for _ in range(number - int(self._zeros[word]) + zeros.bit_count()):
            zeros &= zeros - 1
        return 64 * word + (zeros & -zeros).bit_length() - 1

    def _zero_before(self, zero: int, bucket: int) -> int:
        """Return the number of the bit that is the zero before that of a bucket; -1: none."""
        word, bit = divmod(zero, 64)
        zeros = ~int(self._words[word]) & (1 << bit) - 1
        if zeros or not bucket:  # mostly in the same word
            return 64 * word + zeros.bit_length() - 1 if zeros else -1
        return self._place_of_zero(bucket - 1)

    def _all_wide(self) -> np.ndarray:
        """Return all entries; uint64."""
        n, width = self._num_entries, self._width
        before = self._start + width - 8  # where 8 bytes begin that end with the first entry
        if before < 0:
            narrow = np.zeros((n, 8), np.uint8)
            narrow[:, :width] = np.frombuffer(self._data, np.uint8, n * width,
                                              self._start).reshape(n, width)
            return narrow.view("<u8").ravel().astype(np.uint64, copy=False)
        wide = np.ndarray(n, "<u8", self._data, before, (width,))
        return (wide >> np.uint64(64 - 8 * width)).astype(np.uint64, copy=False)


def by_page(pages: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Return each number of a page in an array, in order, with its positions."""
    if pages.size < 2:  # mostly
        return [(page, np.zeros(1, np.int64)) for page in pages.tolist()]
    order = np.argsort(pages, kind="stable")
    numbers, firsts = np.unique(pages[order], return_index=True)
    return list(zip(numbers.tolist(), np.split(order, firsts[1:]), strict=True))


class Pages:
    """Pages that are searched together: numpy's calls take longer than the work on one page.

    Parameters
    ----------
    data : uint8 array
        The pages, one after the other, and SPARE further bytes.
    bounds : int64 array
        Where each page begins, and the end of the last one.
    layout : PageLayout

    Raises FormatError if the size of a page does not match its counts.
    """

    def __init__(self, data: np.ndarray, bounds: np.ndarray, layout: PageLayout):
        self._data, self._width = data, layout.width
        starts, buckets = bounds[:-1] + 4, 1 << layout.bucket_bits
        if (np.diff(bounds) < 4).any():
            raise FormatError(_BAD_SIZE)
        n = (self._eight_bytes(bounds[:-1]) & np.uint64(2**32 - 1)).astype(np.int64)
        lengths = (n + buckets + 7) // 8
        self._entries = starts + lengths  # where they begin
        if (self._entries + n * layout.width != bounds[1:]).any():
            raise FormatError(_BAD_SIZE)
        self._words = _as_words(data.data, starts, lengths)
        self._zeros = np.cumsum(np.bitwise_count(~self._words), dtype=np.int64)  # up to each word
        ends = np.cumsum((lengths + 7) // 8)
        self._firsts = np.append(0, ends[:-1])  # words of each page
        self._before = np.append(0, self._zeros[ends[:-1] - 1])
        # So no page has a zero for a bucket in its padding, or in another page.
        if (self._zeros[ends - 1] - self._before < buckets).any() \
                or (self._place_of_zero(np.arange(n.size), buckets - 1) != n + buckets - 1).any():
            raise FormatError(_BAD_COUNTS)

    def find(self, pages: np.ndarray, buckets: np.ndarray, remainders: np.ndarray,
             place_bits: int) -> tuple[np.ndarray, np.ndarray]:
        """Find fingerprints; return positions in the arguments, and places, of the matches.

        Parameters
        ----------
        pages : int64 array
            For each fingerprint the position of its page among these pages.
        buckets, remainders : uint64 array
        place_bits : int
        """
        buckets = buckets.astype(np.int64)
        ends = self._place_of_zero(pages, buckets) - buckets  # of its entries
        before = np.maximum(buckets - 1, 0)
        starts = np.where(buckets > 0, self._place_of_zero(pages, before) - before, 0)
        counts = ends - starts
        probes = np.repeat(np.arange(buckets.size), counts)
        within = np.arange(probes.size) - np.repeat(np.cumsum(counts) - counts, counts)
        places = self._entries[pages[probes]] + (starts[probes] + within) * self._width
        found = self._eight_bytes(places) & np.uint64(2**(8 * self._width) - 1)
        matches = np.flatnonzero(found >> np.uint64(place_bits) == remainders[probes])
        return probes[matches], found[matches] & np.uint64((1 << place_bits) - 1)

    def _place_of_zero(self, pages: np.ndarray, numbers: np.ndarray | int) -> np.ndarray:
        """Return the number of the bit of a page that is its zero of some number, from 0."""
        wanted = self._before[pages] + numbers + 1
        word = np.searchsorted(self._zeros, wanted)  # the first one with so many zeros up to it
        octets = self._words[word][:, np.newaxis].view(np.uint8)
        zeros = np.cumsum(_ZEROS[octets], axis=1, dtype=np.int64)
        wanted -= self._zeros[word] - zeros[:, 7]  # those in words before
        octet = np.count_nonzero(zeros < wanted[:, np.newaxis], axis=1)
        rows = np.arange(octet.size)
        bits = octets[rows, octet]
        wanted -= zeros[rows, octet] - _ZEROS[bits]
        return 64 * (word - self._firsts[pages]) + 8 * octet + _PLACES_OF_ZEROS[bits, wanted - 1]

    def _eight_bytes(self, places: np.ndarray) -> np.ndarray:
        """Return the number that begins at each place; uint64."""
        whole = np.ndarray(self._data.size - 7, "<u8", self._data, 0, (1,))
        return whole[places].astype(np.uint64, copy=False)


def _as_words(data: memoryview, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return ranges of bytes as little-endian uint64, each range filled up with ones."""
    parts: list[memoryview | bytes] = []
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        parts += data[start:start + length], _ONES[:-length % 8]
    return np.frombuffer(b"".join(parts), "<u8")
