"""numba kernels for the pairs of an index: see :mod:`secure_bloom.kernels.bulk`.

A pair is a number of 64 bits: a fingerprint, and below it a place. The last bits of a place may be
a range of rows: 1 is all rows, and the halves of range r are 2 r and 2 r + 1.
"""

from __future__ import annotations

import numpy as np

from secure_bloom.kernels.compiling import kernel
from secure_bloom.kernels.simd import write8

_UINT64 = np.uint64
_ONE = np.uint64(1)
_BYTE = np.uint64(255)
_CACHED = np.uint64(1 << 10)  #: pairs that stay in the cache for several passes


@kernel
def unite(pairs, range_bits):
    """Make one of successive pairs that differ in their ranges alone; return how many are left.

    Its range is the smallest one around theirs. ``pairs`` (uint64) are in order, and those that are
    left are at the start then.
    """
    if pairs.size == 0:
        return 0
    bits, left = _UINT64(range_bits), _UINT64(0)
    mask = (_ONE << bits) - _ONE
    current = pairs[0]
    for i in range(_ONE, _UINT64(pairs.size)):
        pair = pairs[i]
        if (pair ^ current) >> bits:
            pairs[left] = current
            left += _ONE
            current = pair
        elif mask:
            one, other = max(current & mask, _ONE), max(pair & mask, _ONE)
            while one != other:
                if one > other:
                    one >>= _ONE
                else:
                    other >>= _ONE
            current = (current & ~mask) | one
    pairs[left] = current
    return left + _ONE


@kernel
def narrow(pairs, spare_bits, range_bits, new_bits):
    """Give the ranges of pairs (uint64) fewer bits: each becomes the smallest range around it.

    The last ``spare_bits`` of a pair are a number above the range.
    """
    spare, bits, new = _UINT64(spare_bits), _UINT64(range_bits), _UINT64(new_bits)
    spares, ranges = (_ONE << spare) - _ONE, (_ONE << bits) - _ONE
    for start in range(_UINT64(0), _UINT64(pairs.size), _CACHED):
        stop = min(start + _CACHED, _UINT64(pairs.size))
        for _ in range(bits - new):  # LLVM vectorizes loops without branches
            for i in range(start, stop):
                wide = pairs[i] & ranges
                pairs[i] = (pairs[i] ^ wide) | (wide >> min(wide >> new, _ONE))
        for i in range(start, stop):
            pair = pairs[i]
            pairs[i] = (pair & ~spares) | (((pair & spares) >> bits) << new) | (pair & ranges)
    return 0


@kernel
def encode_pages(pairs, starts, out, ends, width, bucket_bits, remainder_bits, place_bits,
                 spare_bits):
    """Encode pages of an index.

    Page k has ``pairs[starts[k]:starts[k + 1]]``, in order, and ends at ``ends[k]`` (int64) of
    ``out`` (uint8), which has 8 bytes more than the pages. A pair has the numbers of its page,
    bucket and remainder, then ``spare_bits``, the last ``place_bits`` of which are the place. An
    entry has ``width`` bytes, up to 8.
    """
    spare, place, remainder = _UINT64(spare_bits), _UINT64(place_bits), _UINT64(remainder_bits)
    places = (_ONE << place) - _ONE
    remainders = (_ONE << remainder) - _ONE
    buckets = (_ONE << _UINT64(bucket_bits)) - _ONE
    at, size = _UINT64(0), _UINT64(width)
    for page in range(_UINT64(ends.size)):
        start, stop = _UINT64(starts[page]), _UINT64(starts[page + _ONE])
        count = stop - start
        for k in range(_UINT64(4)):
            out[at + k] = (count >> (k << _UINT64(3))) & _BYTE
        counts = at + _UINT64(4)
        entries = counts + ((count + buckets + _UINT64(8)) >> _UINT64(3))
        for k in range(counts, entries):
            out[k] = 0
        at = entries
        for i in range(start, stop):
            top = pairs[i] >> spare
            bit = i - start + ((top >> remainder) & buckets)
            out[counts + (bit >> _UINT64(3))] |= _ONE << (bit & _UINT64(7))
            write8(out, at, ((top & remainders) << place) | (pairs[i] & places))
            at += size
        ends[page] = at
    return 0
