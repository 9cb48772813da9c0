"""The kernels with numpy alone: XXH64 (seed 0), filters, and the pairs of an index.

They work where no machine code of :mod:`secure_bloom.kernels.native` can be used, and nothing has
to be loaded for them, so small work always uses them. Values are processed in blocks whose
intermediate results stay in the cache of a core. Hashes are uint64; ``words`` are the words of a
filter, shape (blocks, 8), uint32.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from xxhash import xxh64_intdigest

from secure_bloom.kernels.scalar import SALT, block_index

_U64 = np.uint64
_PRIME1, _PRIME2, _PRIME3, _PRIME4, _PRIME5 = (_U64(prime) for prime in (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5))
_LANES = tuple(_U64(lane % 2**64) for lane in (  # of values of at least 32 bytes, at the start
    int(_PRIME1) + int(_PRIME2), int(_PRIME2), 0, -int(_PRIME1)))

_CACHED = 1 << 17  #: numbers that are sorted in the cache
_FEW_RUNS = 16  #: sorted arrays up to which merging them is faster
_BLOCK = 8192  #: values per block: a block of hashes has 64 KiB
_SORTED = 1 << 17  #: strings that are sorted by length together
_FEW = 32  #: values of one length from which numpy is faster than a call of xxhash for each
_LONG = 256  #: bytes of a value from which xxhash is faster
_UNPACKED = 1 << 18  #: bytes of the largest filter that is unpacked to a byte for each bit
_WORTH_UNPACKING = 32  #: bytes of a filter per value up to which unpacking pays off


# --- hashing -------------------------------------------------------------------------------------

def hash_words(values: np.ndarray, out: np.ndarray) -> None:
    """Write the XXH64 of each uint32 or uint64 value, little-endian, to ``out`` (uint64)."""
    hash_fixed(values.view(np.uint8), values.itemsize, out)


def hash_fixed(data: np.ndarray, width: int, out: np.ndarray) -> None:
    """Write the XXH64 of each value of ``width`` bytes to ``out``.

    ``data`` (uint8) holds ``out.size`` values back to back.
    """
    if out.size < _FEW or width >= _LONG:
        raw = data.data
        for i in range(out.size):
            out[i] = xxh64_intdigest(raw[i * width:(i + 1) * width])
        return
    for first in range(0, out.size, _BLOCK):
        part = out[first:first + _BLOCK]

        def read(dtype: Any, position: int, start: int = first * width,
                 count: int = part.size) -> np.ndarray:
            return np.ndarray(count, dtype, data, start + position, width).astype(_U64)

        _hash_equal(read, width, part)


def hash_binary(offsets: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    """Write the XXH64 of ``data[offsets[i]:offsets[i + 1]]`` for each i to ``out`` (uint64).

    Raises ValueError if offsets decrease or lie outside of ``data``.
    """
    if offsets[0] < 0 or offsets[-1] > data.size or np.any(offsets[1:] < offsets[:-1]):
        raise ValueError("the offsets of strings are invalid")
    if out.size < _FEW:
        _hash_each(offsets, data, range(out.size), out)
        return
    for first in range(0, out.size, _SORTED):
        _hash_by_length(offsets[first:first + _SORTED + 1], data, out[first:first + _SORTED])


def _hash_by_length(offsets: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    begin, end = int(offsets[0]), int(offsets[-1])
    lengths = np.minimum(np.diff(offsets), _LONG).astype(np.uint16)
    counts = np.bincount(lengths)
    if counts[-1] == out.size and counts.size <= _LONG:  # all of one length
        hash_fixed(data[begin:end], counts.size - 1, out)
        return
    order, stop = np.argsort(lengths, kind="stable"), 0
    starts = offsets[:-1].astype(np.int64) - begin
    data = np.concatenate([data[begin:end], np.zeros(8, np.uint8)])
    views = {dtype: np.ndarray(data.size - 7, dtype, data, 0, 1)  # what begins at each byte
             for dtype in (np.uint8, np.uint32, _U64)}
    for length in np.flatnonzero(counts).tolist():
        places = order[stop:stop + int(counts[length])]
        stop += places.size
        if length == _LONG or places.size < _FEW + 8 * length:
            _hash_each(offsets - begin, data, places.tolist(), out)
            continue
        for first in range(0, places.size, _BLOCK):
            some = places[first:first + _BLOCK]

            def read(dtype: Any, position: int, at: np.ndarray = starts[some]) -> np.ndarray:
                return views[dtype][at + position].astype(_U64, copy=False)

            hashes = np.empty(some.size, _U64)
            _hash_equal(read, length, hashes)
            out[some] = hashes


def _hash_each(offsets: np.ndarray, data: np.ndarray, places: range | list[int],
               out: np.ndarray) -> None:
    raw = data.data
    for i in places:
        out[i] = xxh64_intdigest(raw[offsets[i]:offsets[i + 1]])


def _hash_equal(read: Callable[[Any, int], np.ndarray], length: int, out: np.ndarray) -> None:
    """Hash values of one length.

    ``read(dtype, position)`` returns the integers at a position of each value as a new array of
    uint64.
    """
    spare, position = np.empty(out.size, _U64), 0
    if length >= 32:
        lanes = [np.full(out.size, lane) for lane in _LANES]
        for position in range(0, length - 31, 32):
            for k, lane in enumerate(lanes):
                lane += np.multiply(value := read(_U64, position + 8 * k), _PRIME2, out=value)
                _rotate(lane, 31, spare)
                lane *= _PRIME1
        position += 32
        out[:] = 0
        for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True):
            turned = lane.copy()
            _rotate(turned, bits, spare)
            out += turned
        for lane in lanes:
            _mix(out, lane, spare)
            out *= _PRIME1
            out += _PRIME4
        out += _U64(length)
    else:
        out[:] = _PRIME5 + _U64(length)
    while length - position >= 8:
        _mix(out, read(_U64, position), spare)
        _turn(out, 27, _PRIME1, spare)
        out += _PRIME4
        position += 8
    if length - position >= 4:
        out ^= np.multiply(value := read(np.uint32, position), _PRIME1, out=value)
        _turn(out, 23, _PRIME2, spare)
        out += _PRIME3
        position += 4
    for last in range(position, length):
        out ^= np.multiply(value := read(np.uint8, last), _PRIME5, out=value)
        _turn(out, 11, _PRIME1, spare)
    for shift, factor in ((33, _PRIME2), (29, _PRIME3), (32, _U64(1))):
        out ^= np.right_shift(out, _U64(shift), out=spare)
        if factor != 1:
            out *= factor


def _mix(out: np.ndarray, value: np.ndarray, spare: np.ndarray) -> None:
    """Add 8 bytes of each value, or a lane, to its hash; ``value`` is overwritten."""
    value *= _PRIME2
    _turn(value, 31, _PRIME1, spare)
    out ^= value


def _turn(values: np.ndarray, bits: int, factor: np.uint64, spare: np.ndarray) -> None:
    _rotate(values, bits, spare)
    values *= factor


def _rotate(values: np.ndarray, bits: int, spare: np.ndarray) -> None:
    """Rotate to the left."""
    np.left_shift(values, _U64(bits), out=spare)
    np.right_shift(values, _U64(64 - bits), out=values)
    values |= spare


# --- sorting -------------------------------------------------------------------------------------

def sort(values: np.ndarray, first_bit: int = 0, *, runs: int = 1,
         spare: np.ndarray | None = None) -> None:
    """Sort an array (uint64) in place.

    The first ``first_bit`` bits are the same in all of its numbers. The array consists of ``runs``
    sorted arrays; 1 if none is sorted. ``spare`` is of use to compiled kernels.
    """
    if runs == 1 or runs > _FEW_RUNS:
        for start in range(0, values.size, _CACHED):
            some = values[start:start + _CACHED]
            # numpy sorts by 16 bits several times as fast
            bits = (some >> _U64(max(48 - first_bit, 0))).astype(np.uint16)
            some[:] = some[np.argsort(bits, kind="stable")]
    values.sort(kind="stable")  # which needs little time for parts that are in order


def distribute(values: np.ndarray, target: np.ndarray) -> np.ndarray:
    """See :meth:`secure_bloom.kernels.bulk.Bulk.distribute`."""
    groups = (values >> _U64(56)).astype(np.uint8)
    target[:] = values[np.argsort(groups, kind="stable")]
    return np.append(0, np.cumsum(np.bincount(groups, minlength=256)))


def gather(starts: np.ndarray, stops: np.ndarray, target: np.ndarray) -> None:
    """See :meth:`secure_bloom.kernels.bulk.Bulk.gather`."""
    np.concatenate([np.empty(0, _U64), *_pieces(starts, stops)], out=target)


def scatter(source: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> None:
    """See :meth:`secure_bloom.kernels.bulk.Bulk.scatter`."""
    at = 0
    for piece in _pieces(starts, stops):
        some = source[at:at + piece.size]
        piece[:some.size] = some
        at += some.size


def _pieces(starts: np.ndarray, stops: np.ndarray) -> Iterator[np.ndarray]:
    """Yield arrays over memory between addresses."""
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        yield np.frombuffer((ctypes.c_uint64 * (stop - start >> 3)).from_address(start), _U64)


# --- pairs of an index ---------------------------------------------------------------------------

def unite(pairs: np.ndarray, range_bits: int) -> int:
    """See :meth:`secure_bloom.kernels.bulk.Bulk.unite`."""
    again = (pairs[1:] ^ pairs[:-1]) >> _U64(range_bits) == 0
    if not again.any():
        return pairs.size
    is_first = np.append(True, ~again)
    left = pairs[is_first]
    if range_bits:
        is_alone = is_first & np.append(~again, True)
        mask, (firsts, lasts) = _U64((1 << range_bits) - 1), _ends_of_ranges(range_bits)
        ranges, starts = pairs[~is_alone] & mask, np.flatnonzero(is_first[~is_alone])
        common = np.minimum.reduceat(firsts[ranges], starts)
        last = np.maximum.reduceat(lasts[ranges], starts)
        while (differ := common != last).any():
            common[differ] >>= _U64(1)
            last[differ] >>= _U64(1)
        changed = ~is_alone[is_first]
        left[changed] = left[changed] & ~mask | common
    pairs[:left.size] = left
    return left.size


@cache
def _ends_of_ranges(range_bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and the last of the smallest ranges in each range; 0 has all of them."""
    ranges = np.maximum(np.arange(1 << range_bits), 1)
    shifts = range_bits - np.array([int(one).bit_length() for one in ranges])
    return (ranges << shifts).astype(np.uint64), ((ranges + 1 << shifts) - 1).astype(np.uint64)


def narrow(pairs: np.ndarray, spare_bits: int, range_bits: int, new_bits: int) -> None:
    """See :meth:`secure_bloom.kernels.bulk.Bulk.narrow`."""
    lengths = np.array([number.bit_length() for number in range(1 << range_bits - new_bits)], _U64)
    for start in range(0, pairs.size, _BLOCK):
        some = pairs[start:start + _BLOCK]
        places = some & _U64((1 << spare_bits) - 1)
        some ^= places
        ranges = places & _U64((1 << range_bits) - 1)
        some |= ranges >> lengths[ranges >> _U64(new_bits)]
        some |= places >> _U64(range_bits) << _U64(new_bits)


def encode_pages(pairs: np.ndarray, starts: np.ndarray, width: int, bucket_bits: int,
                 remainder_bits: int, place_bits: int, spare_bits: int) \
        -> tuple[np.ndarray, np.ndarray]:
    """See :meth:`secure_bloom.kernels.bulk.Bulk.encode_pages`."""
    slots, entries = pairs >> _U64(spare_bits), pairs & _U64((1 << place_bits) - 1)
    entries |= (slots & _U64((1 << remainder_bits) - 1)) << _U64(place_bits)
    slots >>= _U64(remainder_bits)
    slots &= _U64((1 << bucket_bits) - 1)
    pages = [encode_page(slots[start:stop], entries[start:stop], width, bucket_bits)
             for start, stop in pairwise(starts.tolist())]
    return np.frombuffer(b"".join(pages), np.uint8), np.cumsum([len(page) for page in pages])


def encode_page(buckets: np.ndarray, entries: np.ndarray, width: int, bucket_bits: int) -> bytes:
    """Return a page of an index; buckets (ascending) and entries, of ``width`` bytes, are uint64.

    See :mod:`secure_bloom.index.pages`.
    """
    n = buckets.size
    bits = np.zeros(n + (1 << bucket_bits), np.uint8)
    bits[np.arange(n) + buckets.astype(np.int64)] = 1  # after one zero for each bucket before
    narrow = np.empty(n, _narrow_type(width))
    for name in narrow.dtype.names or ():
        narrow[name] = entries >> _U64(8 * int(name))
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


# --- filters -------------------------------------------------------------------------------------

def insert_words(words: np.ndarray, values: np.ndarray) -> None:
    """Hash each value of a uint32 or uint64 array as :func:`hash_words` does, and set its bits."""
    hashes = np.empty(values.size, dtype=_U64)
    hash_words(values, hashes)
    insert_hashes(words, hashes)


def insert_hashes(words: np.ndarray, hashes: np.ndarray) -> None:
    """Set the bits of each hash (uint64)."""
    if words.nbytes <= min(_UNPACKED, _WORTH_UNPACKING * hashes.size):
        bitset = words.reshape(-1).view(np.uint8)
        bits = np.unpackbits(bitset, bitorder="little")  # a byte for each bit
        for block, keys, _ in _in_blocks(words, hashes):
            block *= 256
            for salt in SALT:
                bits[block + ((keys * salt) >> np.uint32(27))] = 1
                block += 32
        bitset[:] = np.packbits(bits, bitorder="little")
        return
    pairs = words.reshape(-1).view(_U64)
    for block, keys, _ in _in_blocks(words, hashes):
        block *= 4
        for i in range(4):
            np.bitwise_or.at(pairs, block, _pair_of_masks(keys, i))
            block += 1


def check_hashes(words: np.ndarray, hashes: np.ndarray, out: np.ndarray) -> None:
    """Set ``out[i]`` (bool) to whether all bits of ``hashes[i]`` are set."""
    flat = words.reshape(-1)
    for block, keys, first in _in_blocks(words, hashes):
        block *= 8
        found = np.ones(keys.size, np.uint32)
        for salt in SALT:
            found &= flat[block] >> ((keys * salt) >> np.uint32(27))
            block += 1
        out[first:first + keys.size] = found


def _in_blocks(words: np.ndarray, hashes: np.ndarray) \
        -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Yield the blocks (int64) and keys (uint32) of some hashes, and the number of the first."""
    for first in range(0, hashes.size, _BLOCK):
        some = hashes[first:first + _BLOCK]
        yield (block_index(some, words.shape[0]).astype(np.int64), some.astype(np.uint32), first)


def _pair_of_masks(keys: np.ndarray, i: int) -> np.ndarray:
    low, high = ((keys * salt >> np.uint32(27)).astype(_U64) for salt in SALT[2 * i:2 * i + 2])
    return (_U64(1) << low) | (_U64(2**32) << high)
