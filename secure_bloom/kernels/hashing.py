"""Numba kernels that hash: see :mod:`secure_bloom.kernels.bulk`.

Values of equal length are hashed many at a time (:mod:`secure_bloom.kernels.simd`): more than fit
in one register, since XXH64 is a long chain of operations and a CPU executes several chains at
once.
Strings of mixed lengths are first sorted by length, in batches that stay in the cache.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

from secure_bloom.kernels.compiling import kernel, part_of_kernel
from secure_bloom.kernels.simd import arange, loader, prefetch, stack_array, store
from secure_bloom.kernels.xxh64 import hash_word, xxh64

_UINT64 = np.uint64
WIDE = np.uint64(64)  #: integers hashed at a time
load_wide = loader(64)
_STRINGS = 16  #: strings hashed at a time
_LANES = np.uint64(_STRINGS)
_load_strings, _arange = loader(_STRINGS), arange(_STRINGS)
_LINE = np.uint64(64)  #: bytes per cache line
AHEAD = 4096  #: prefetch distance in bytes; hardware prefetching alone does not use all bandwidth

_BATCH = 4096  #: strings sorted by length together
_LONG = 256  #: strings of at least this length are hashed one by one
_stack_of_lengths = stack_array(types.uint64, _LONG + 1)
_stack_of_strings = stack_array(types.uint64, _BATCH + _STRINGS)
_FEW = 5  #: minimum number of strings of one length that is worth a vector


@kernel
def hash_words(values, out):
    """Compute the XXH64 of each element of a uint32 or uint64 array."""
    count = _UINT64(values.size)
    whole = count - count % WIDE
    for i in range(_UINT64(0), whole, WIDE):
        prefetch_ahead(values, i)
        store(out, i, hash_word(values, load_wide(values, i)))
    for i in range(whole, count):
        out[i] = hash_word(values, _UINT64(values[i]))
    return 0


@part_of_kernel
def prefetch_ahead(values, i):
    """Prefetch one batch of integers, at a distance ahead of the ones at i."""
    for k in range(_UINT64(0), WIDE, _LINE // _UINT64(8)):
        prefetch(values, i + _UINT64(AHEAD // 8) + k)


@kernel
def hash_fixed(data, width, out):
    """Compute the XXH64 of ``out.size`` values of ``width`` bytes each, stored back to back."""
    _hash_equal(data, _UINT64(0), _UINT64(width), out, _UINT64(0), _UINT64(out.size))
    return 0


@part_of_kernel
def _hash_equal(data, position, length, out, first, stop):
    """Fill ``out[first:stop]`` from values of one length, back to back from ``position`` on."""
    steps = _arange(length)
    whole = stop - (stop - first) % _LANES
    for i in range(first, whole, _LANES):
        for k in range(_UINT64(0), length * _LANES, _LINE):
            prefetch(data, position + _UINT64(AHEAD) + k)
        store(out, i, xxh64(data, steps + position, length))
        position += length * _LANES
    for i in range(whole, stop):
        out[i] = _hash_one(data, position, length)
        position += length


@kernel
def hash_binary(offsets, data, out):
    """Compute the XXH64 of ``data[offsets[i]:offsets[i + 1]]`` for each i.

    Returns 0, or -1 if offsets decrease or lie outside of ``data``; the rest is then not hashed.
    """
    ends = _stack_of_lengths()
    places = _stack_of_strings()
    starts = _stack_of_strings()
    hashes = _stack_of_strings()
    count = _UINT64(out.size)
    for first in range(_UINT64(0), count, _UINT64(_BATCH)):
        stop = min(first + _UINT64(_BATCH), count)
        if not _are_valid(offsets, first, stop, data.size):
            return -1
        length = _UINT64(offsets[first + _UINT64(1)]) - _UINT64(offsets[first])
        if _all_of(offsets, length, first, stop):
            _hash_equal(data, _UINT64(offsets[first]), length, out, first, stop)
        else:
            _sort_by_length(offsets, data, first, stop, ends, starts, places)
            _hash_sorted(offsets, data, first, stop, ends, starts, places, hashes)
            for i in range(stop - first):
                out[places[i]] = hashes[i]
    return 0


@njit(_nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)
def _hash_one(data, position, length):
    """Hash one value. Not inlined: it runs rarely, but inlining would take long to compile."""
    return xxh64(data, position, length)


@part_of_kernel
def _are_valid(offsets, first, stop, size):
    """Whether some strings lie within ``size`` bytes, one behind the other."""
    decreasing = 0
    for i in range(first, stop):
        decreasing += offsets[i + _UINT64(1)] < offsets[i]
    return decreasing == 0 and offsets[first] >= 0 and offsets[stop] <= size


@part_of_kernel
def _all_of(offsets, length, first, stop):
    """Whether all strings have this length."""
    others = 0
    for i in range(first, stop):
        others += _UINT64(offsets[i + _UINT64(1)]) - _UINT64(offsets[i]) != length
    return others == 0


@part_of_kernel
def _bucket(offsets, i):
    return min(_UINT64(offsets[i + _UINT64(1)]) - _UINT64(offsets[i]), _UINT64(_LONG))


@part_of_kernel
def _sort_by_length(offsets, data, first, stop, ends, starts, places):
    """Counting sort: starts of the strings, their places in ``out``, and the end of each length."""
    for length in range(_UINT64(_LONG + 1)):
        ends[length] = _UINT64(0)
    for i in range(first, stop):
        ends[_bucket(offsets, i)] += _UINT64(1)
    slot = _UINT64(0)
    for length in range(_UINT64(_LONG + 1)):  # first the start of each length
        slot += ends[length]
        ends[length] = slot - ends[length]
    for i in range(first, stop):
        length = _bucket(offsets, i)
        slot = ends[length]
        ends[length] = slot + _UINT64(1)
        starts[slot] = _UINT64(offsets[i])
        places[slot] = i
        for k in range(_UINT64(0), length, _LINE):
            prefetch(data, starts[slot] + _UINT64(AHEAD) + k)
    for slot in range(stop - first, stop - first + _LANES):  # the last vector reads up to here
        starts[slot] = starts[stop - first - _UINT64(1)]


@part_of_kernel
def _hash_sorted(offsets, data, first, stop, ends, starts, places, hashes):
    """Hash strings that are sorted by length, shortest first.

    The last vector of a length extends into the next lengths. This is harmless, since those
    strings are longer and are hashed again afterwards.
    """
    slot = _UINT64(0)
    for length in range(_UINT64(_LONG)):
        end = ends[length]
        if end - slot < _UINT64(_FEW):
            while slot < end:
                hashes[slot] = _hash_one(data, starts[slot], length)
                slot += _UINT64(1)
        while slot < end:
            store(hashes, slot, xxh64(data, _load_strings(starts, slot), length))
            slot += _LANES
        slot = end
    while slot < stop - first:
        i = places[slot]
        length = _UINT64(offsets[i + _UINT64(1)]) - _UINT64(offsets[i])
        hashes[slot] = _hash_one(data, starts[slot], length)
        slot += _UINT64(1)
