"""A page of fingerprints: a static quotient filter whose entries have row-group numbers.

The first bits of a fingerprint give the page, the next ones the bucket in it, and the remainder is
stored. An entry is the remainder above a row-group number, in as few whole bytes as the two need.
A page, little-endian:

    n          4 bytes: number of entries
    counts     (n + buckets + 7) // 8 bytes: for each bucket as many ones as it has entries, then a
               zero; the first bit is the lowest one of the first byte
    entries    n * width bytes: remainder << group bits | row group, ascending within a bucket
"""

from __future__ import annotations

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
    narrow = entries.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :layout.width]
    return b"".join((np.array(n, "<u4").tobytes(),
                     np.packbits(bits, bitorder="little").tobytes(), narrow.tobytes()))


class Page:
    """A page that is being read. Raises FormatError if its size does not match its counts."""

    def __init__(self, content: pa.Buffer, layout: PageLayout):
        data = memoryview(content).cast("B") if content.size else memoryview(b"")
        buckets = 1 << layout.bucket_bits
        n = int.from_bytes(data[:4], "little")
        start = 4 + (n + buckets + 7) // 8
        if len(data) != start + n * layout.width:
            raise FormatError("a page of the index has an invalid size")
        bits = np.unpackbits(np.frombuffer(data, np.uint8, start - 4, 4), count=n + buckets,
                             bitorder="little")
        zeros = np.flatnonzero(bits == 0)
        if zeros.size != buckets or zeros[-1] != n + buckets - 1:
            raise FormatError("a page of the index has invalid counts")
        self._ends = zeros - np.arange(buckets)  # of the entries of each bucket
        self._entries = np.frombuffer(data, np.uint8, offset=start).reshape(n, layout.width)

    def find(self, buckets: np.ndarray, remainders: np.ndarray, group_bits: int) \
            -> tuple[np.ndarray, np.ndarray]:
        """Find fingerprints; return positions in the arguments, and row groups, of the matches.

        The arguments are uint64, a bucket and a remainder for each fingerprint.
        """
        buckets = buckets.astype(np.int64)
        starts = np.where(buckets > 0, self._ends[buckets - 1], 0)
        counts = self._ends[buckets] - starts
        probes = np.repeat(np.arange(buckets.size), counts)
        within = np.arange(probes.size) - np.repeat(np.cumsum(counts) - counts, counts)
        found = self._wide(starts[probes] + within)
        matches = np.flatnonzero(found >> np.uint64(group_bits) == remainders[probes])
        return probes[matches], found[matches] & np.uint64((1 << group_bits) - 1)

    def decode(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the buckets and the entries of all fingerprints; uint64."""
        counts = np.diff(self._ends, prepend=0)
        return np.repeat(np.arange(counts.size, dtype=np.uint64), counts), self._wide(slice(None))

    def _wide(self, places: np.ndarray | slice) -> np.ndarray:
        narrow = self._entries[places]
        wide = np.zeros((len(narrow), 8), np.uint8)
        wide[:, :narrow.shape[1]] = narrow
        return wide.view("<u8").ravel().astype(np.uint64, copy=False)
