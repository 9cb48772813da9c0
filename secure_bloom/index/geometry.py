"""Which bits of a fingerprint are the page, the bucket and the remainder in a segment.

Fingerprints have the same length in all segments of an index, whatever their sizes. So segments can
be merged without the values: bits that a small segment stores are page and bucket in a large one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from secure_bloom.errors import FormatError, UnsupportedError
from secure_bloom.index.pages import PageLayout
from secure_bloom.parquet.row_ranges import ALL_ROWS, RANGE_BITS, narrowed
from secure_bloom.sbbf.kernel_choice import kernels_for

FINGERPRINT_BITS = 38  #: D pairs of value and row group give D / 2**38 false row groups a lookup
MAX_GROUP_BITS = 64 - FINGERPRINT_BITS
MAX_ROW_GROUPS = 1 << MAX_GROUP_BITS  #: of one segment
MAX_NEW_ROW_GROUPS = MAX_ROW_GROUPS >> RANGE_BITS  #: of one segment that is not merged from others
MAX_PAIRS = 1 << (FINGERPRINT_BITS - 4)  #: of one segment
CACHED_PAIRS = 1 << 15  #: pairs that fit the cache of a processor while they are sorted
_PAGE_BITS = 13  # a page has at most 2**13 buckets, with 1/2 to 1 entry each

_Bits = TypeVar("_Bits", int, np.ndarray)


@dataclass(frozen=True)
class Geometry:
    """The bits of page, bucket and row group; the other bits of a fingerprint are the remainder.

    ``range_bits`` are those of the range of rows that has the value; 0: that is not known.
    """

    page_bits: int
    bucket_bits: int
    group_bits: int
    range_bits: int = 0

    @classmethod
    def of(cls, pairs: int, row_groups: int, *, has_ranges: bool = False) -> Geometry:
        """Return the geometry for a segment with at most so many pairs, and row groups.

        Raises ValueError if one segment cannot hold them.
        """
        if pairs > MAX_PAIRS or row_groups > MAX_ROW_GROUPS:
            raise ValueError("too many values or row groups for one segment of an index")
        total = max(1, (max(pairs, 1) - 1).bit_length())
        bucket_bits = min(total, _PAGE_BITS)
        found = cls(total - bucket_bits, bucket_bits,
                    max(1, (max(row_groups, 1) - 1).bit_length()))
        return replace(found, range_bits=found._range_bits()) if has_ranges else found

    def _range_bits(self) -> int:
        """Return how many bits of a range there is room for: one less if that saves a byte."""
        spare = -self.entry_bits % 8
        bits = min(RANGE_BITS - (spare == RANGE_BITS - 1), MAX_GROUP_BITS - self.group_bits)
        return bits if bits > 1 else 0

    @classmethod
    def from_json(cls, fields: Any) -> Geometry:
        """Parse :meth:`to_json`.

        Raises
        ------
        UnsupportedError
            If fingerprints have another length: they would be misread as absent.
        FormatError
            If the numbers of bits are invalid.
        """
        try:
            if fields["fingerprint_bits"] != FINGERPRINT_BITS:
                raise UnsupportedError("this segment of the index has fingerprints of another "
                                       "length; a newer secure_bloom may have written it")
            if not fields.keys() <= {"fingerprint_bits", *asdict(cls(0, 0, 0))}:
                raise UnsupportedError("the geometry of a segment has unknown fields; a newer "
                                       "secure_bloom may have written it")
            found = cls(fields["page_bits"], fields["bucket_bits"], fields["group_bits"],
                        fields.get("range_bits", 0))
        except (TypeError, KeyError, AttributeError):
            raise FormatError("the geometry of a segment is invalid") from None
        bits = asdict(found).values()
        if any(type(one) is not int or one < 0 for one in bits) or found.remainder_bits < 4 \
                or found.bucket_bits > 30 or found.group_bits < 1 or found.range_bits > RANGE_BITS \
                or found.place_bits > MAX_GROUP_BITS:
            raise FormatError("the geometry of a segment is invalid")
        return found

    def to_json(self) -> dict[str, int]:
        """Return what the footer of a segment records."""
        fields = {"fingerprint_bits": FINGERPRINT_BITS, **asdict(self)}
        if not self.range_bits:  # readers without support for ranges refuse the field
            del fields["range_bits"]
        return fields

    @property
    def num_pages(self) -> int:
        """Number of pages."""
        return 1 << self.page_bits

    @cached_property
    def remainder_bits(self) -> int:
        """Bits of a fingerprint that entries store."""
        return FINGERPRINT_BITS - self.page_bits - self.bucket_bits

    @cached_property
    def place_bits(self) -> int:
        """Bits of a place: row group and range."""
        return self.group_bits + self.range_bits

    @property
    def entry_bits(self) -> int:
        """Bits of an entry: remainder and place."""
        return self.remainder_bits + self.place_bits

    @cached_property
    def layout(self) -> PageLayout:
        """The layout of pages."""
        return PageLayout(self.bucket_bits, (self.entry_bits + 7) // 8)

    def place(self, fingerprints: _Bits) -> tuple[_Bits, _Bits, _Bits]:
        """Return page, bucket and remainder of a fingerprint, or of many; then all are uint64."""
        top = fingerprints >> 64 - FINGERPRINT_BITS
        slots = top >> self.remainder_bits
        return (slots >> self.bucket_bits, slots & (1 << self.bucket_bits) - 1,
                top & (1 << self.remainder_bits) - 1)

    def join(self, page: int, buckets: np.ndarray, entries: np.ndarray) \
            -> tuple[np.ndarray, np.ndarray]:
        """Return fingerprints (their bits lowest) and places of a decoded page; uint64."""
        slots = np.uint64(page << self.bucket_bits) | buckets
        top = slots << np.uint64(self.remainder_bits) | entries >> np.uint64(self.place_bits)
        return top, entries & _mask(self.place_bits)

    def groups_and_ranges(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the row groups and ranges of places; uint64."""
        if not self.range_bits:
            return places, np.full_like(places, ALL_ROWS)
        return places >> np.uint64(self.range_bits), places & _mask(self.range_bits)

    def repacked(self, pairs: np.ndarray) -> np.ndarray:
        """Return pairs whose ranges have RANGE_BITS with as many as this geometry has, in place."""
        if self.range_bits < RANGE_BITS:
            kernels_for(pairs.size).narrow(pairs, MAX_GROUP_BITS, RANGE_BITS, self.range_bits)
        return pairs

    def encode_pages(self, pairs: np.ndarray, first: int, count: int) \
            -> tuple[memoryview, list[int]]:
        """Return successive pages, which have these pairs, and where each of them ends."""
        numbers = np.arange(first + 1, first + count, dtype=np.uint64)
        starts = np.searchsorted(pairs, numbers << np.uint64(64 - self.page_bits))
        pages, ends = kernels_for(pairs.size).encode_pages(
            pairs, np.concatenate([[0], starts, [pairs.size]]), self.layout.width,
            self.bucket_bits, self.remainder_bits, self.place_bits, MAX_GROUP_BITS)
        return pages.data, ends.tolist()


def place_of(groups: np.ndarray | int, ranges: np.ndarray | int,
             range_bits: int = RANGE_BITS) -> np.ndarray:
    """Return places: row groups, and ranges of their rows as far as so many bits tell."""
    if not range_bits:
        return np.asarray(groups, np.uint64)
    return np.asarray(groups, np.uint64) << np.uint64(range_bits) \
        | narrowed(np.asarray(ranges, np.uint64), range_bits)


def pack(fingerprints: np.ndarray, places: np.ndarray | int) -> np.ndarray:
    """Return pairs as uint64, which sort by fingerprint, then by place.

    The first 38 bits are those of the fingerprints (uint64, their bits highest), which become the
    pairs: fresh memory takes more time.
    """
    fingerprints &= ~_mask(MAX_GROUP_BITS)
    fingerprints |= np.asarray(places, np.uint64)
    return fingerprints


def unpack(pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return fingerprints (their bits lowest) and places of such pairs."""
    return pairs >> np.uint64(MAX_GROUP_BITS), pairs & _mask(MAX_GROUP_BITS)


def sorted_pairs(parts: list[np.ndarray], first_bit: int = 0, *, are_sorted: bool = True,
                 range_bits: int = 0) -> np.ndarray:
    """Return pairs in order, each fingerprint once for a row group.

    Parameters
    ----------
    first_bit : int
        Number of leading bits that all pairs have in common.
    are_sorted : bool
        Whether several parts are in order themselves, which makes it faster.
    range_bits : int
        Bits of a range in the pairs. Pairs that differ in it alone become one, with the smallest
        range around all of them.
    """
    pairs = np.concatenate(parts) if parts else np.empty(0, np.uint64)
    kernels = kernels_for(pairs.size)
    kernels.sort(pairs, first_bit, runs=len(parts) if are_sorted else 1)
    return pairs[:kernels.unite(pairs, range_bits)]


def _mask(bits: int) -> np.uint64:
    return np.uint64((1 << bits) - 1)
