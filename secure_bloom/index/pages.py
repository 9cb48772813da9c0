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

from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from secure_bloom.errors import FormatError


class PageLayout(NamedTuple):
    """How the pages of a segment are laid out: bits for the bucket, bytes of an entry."""

    bucket_bits: int
    width: int


def encode(buckets: np.ndarray, entries: np.ndarray, layout: PageLayout) -> bytes:
    """Return a page of n entries; buckets (ascending) and entries are uint64."""
    n = buckets.size
    bits = np.zeros(n + (1 << layout.bucket_bits), np.uint8)
    bits[np.arange(n) + buckets.astype(np.int64)] = 1  # after one zero for each bucket before
    narrow = np.empty(n, _narrow_type(layout.width))
    for name in narrow.dtype.names or ():
        narrow[name] = entries >> np.uint64(8 * int(name))
    return b"".join((np.array(n, "<u4").tobytes(),
                     np.packbits(bits, bitorder="little").tobytes(), narrow.tobytes()))


@cache
def _narrow_type(width: int) -> np.dtype[np.void]:
    """Return so many bytes as numbers of 4, 2 and 1 bytes, which are copied faster than bytes.

    Their names are where they begin.
    """
    sizes = [4] * (width // 4) + [size for size in (2, 1) if width & size]
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    return np.dtype([(str(start), f"<u{size}") for start, size in zip(starts, sizes, strict=True)])


class Page:
    """A page that is being read. Raises FormatError if its size does not match its counts."""

    def __init__(self, content: pa.Buffer, layout: PageLayout):
        data = memoryview(content).cast("B") if content.size else memoryview(b"")
        buckets = 1 << layout.bucket_bits
        n = int.from_bytes(data[:4], "little")
        start = 4 + (n + buckets + 7) // 8
        if len(data) != start + n * layout.width:
            raise FormatError("a page of the index has an invalid size")
        self._bits = np.unpackbits(np.frombuffer(data, np.uint8, start - 4, 4), count=n + buckets,
                                   bitorder="little").view(bool)
        zeros = np.flatnonzero(~self._bits)
        if zeros.size != buckets or zeros[-1] != n + buckets - 1:
            raise FormatError("a page of the index has invalid counts")
        self._ends = zeros - np.arange(buckets)  # of the entries of each bucket
        self._data, self._start = data, start
        self._entries = np.frombuffer(data, np.uint8, offset=start).reshape(n, layout.width)

    def find(self, buckets: np.ndarray, remainders: np.ndarray, place_bits: int) \
            -> tuple[np.ndarray, np.ndarray]:
        """Find fingerprints; return positions in the arguments, and places, of the matches.

        The arguments are uint64, a bucket and a remainder for each fingerprint.
        """
        buckets = buckets.astype(np.int64)
        starts = np.where(buckets > 0, self._ends[buckets - 1], 0)
        counts = self._ends[buckets] - starts
        probes = np.repeat(np.arange(buckets.size), counts)
        within = np.arange(probes.size) - np.repeat(np.cumsum(counts) - counts, counts)
        found = self._wide(starts[probes] + within)
        matches = np.flatnonzero(found >> np.uint64(place_bits) == remainders[probes])
        return probes[matches], found[matches] & np.uint64((1 << place_bits) - 1)

    def decode(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the buckets and the entries of all fingerprints; uint64."""
        ones = np.flatnonzero(self._bits)  # each comes after one zero for each bucket before
        return (ones - np.arange(ones.size)).astype(np.uint64), self._all_wide()

    def _all_wide(self) -> np.ndarray:
        """Return all entries; uint64."""
        n, width = self._entries.shape
        before = self._start + width - 8  # where 8 bytes begin that end with the first entry
        if before < 0:
            return self._wide(np.arange(n))
        wide = np.ndarray(n, "<u8", self._data, before, (width,))
        return (wide >> np.uint64(64 - 8 * width)).astype(np.uint64, copy=False)

    def _wide(self, places: np.ndarray) -> np.ndarray:
        narrow = self._entries[places]
        wide = np.zeros((len(narrow), 8), np.uint8)
        wide[:, :narrow.shape[1]] = narrow
        return wide.view("<u8").ravel().astype(np.uint64, copy=False)


def by_page(pages: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Return each number of a page in an array, in order, with its positions."""
    if pages.size < 2:  # mostly
        return [(page, np.zeros(1, np.int64)) for page in pages.tolist()]
    order = np.argsort(pages, kind="stable")
    numbers, firsts = np.unique(pages[order], return_index=True)
    return list(zip(numbers.tolist(), np.split(order, firsts[1:]), strict=True))
