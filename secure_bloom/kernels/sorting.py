"""A numba kernel that sorts random numbers: see :mod:`secure_bloom.kernels.bulk`.

The numbers are distributed by their first bits, until a part fits the cache and has about one
number for each combination of the bits that were used. What is left out of order is then mostly
next to its place, and is moved there number by number. That would take long for numbers that have
many bits in common, so it is given up after a certain number of moves.
"""

from __future__ import annotations

import numpy as np
from numba import types

from secure_bloom.kernels.compiling import kernel, part_of_kernel
from secure_bloom.kernels.simd import numbers_at, stack_array

_UINT64 = np.uint64
_CACHED = np.uint64(1 << 16)  #: numbers of a part that fits the cache
_PART_BITS = np.uint64(12)  #: by which numbers are divided into parts, at most
_BITS = np.uint64(8)  #: by which the numbers of a part are distributed twice
_MOVES = np.uint64(8)  #: for each number, on average
_stack_of_parts = stack_array(types.uint64, 1 << int(_PART_BITS))
_stack = stack_array(types.uint64, 1 << 8)


@part_of_kernel
def _distribute(source, start, stop, target, shift, bits, places):
    """Copy numbers in the order of some bits; ``places`` then has where each group ends."""
    mask = (_UINT64(1) << bits) - _UINT64(1)
    for k in range(mask + _UINT64(1)):
        places[k] = _UINT64(0)
    for i in range(start, stop):
        places[(source[i] >> shift) & mask] += _UINT64(1)
    place = start
    for k in range(mask + _UINT64(1)):
        count = places[k]
        places[k] = place
        place += count
    for i in range(start, stop):
        value = source[i]
        k = (value >> shift) & mask
        target[places[k]] = value
        places[k] += _UINT64(1)


@part_of_kernel
def _finish(source, start, stop, target):
    """Copy numbers that are nearly in order, in order; return 1 if they are not, after all."""
    moves, limit = _UINT64(0), _MOVES * (stop - start) + _MOVES
    for i in range(start, stop):
        value, place = source[i], i
        if moves <= limit:
            while place > start and target[place - _UINT64(1)] > value:
                target[place] = target[place - _UINT64(1)]
                place -= _UINT64(1)
            moves += i - place
        target[place] = value
    return _UINT64(moves > limit)


@kernel
def distribute(values, target, ends):
    """Copy numbers (uint64) in the order of their first 8 bits; ``ends`` has where each group ends.

    Those of a group keep their order. ``ends`` (uint64) has 256 numbers.
    """
    _distribute(values, _UINT64(0), _UINT64(values.size), target, _UINT64(64) - _BITS, _BITS, ends)
    return 0


@kernel
def gather(starts, stops, target):
    """Copy numbers (uint64) from pieces of memory to an array, one after another.

    Each piece is between an address of ``starts`` and one of ``stops``, both uint64.
    """
    at = _UINT64(0)
    for piece in range(_UINT64(starts.size)):
        count = (stops[piece] - starts[piece]) >> _UINT64(3)
        source = numbers_at(starts[piece], count)
        for k in range(count):
            target[at + k] = source[k]
        at += count
    return 0


@kernel
def scatter(source, starts, stops):
    """Copy an array back to such pieces of memory, until all of its numbers are copied."""
    at, total = _UINT64(0), _UINT64(source.size)
    for piece in range(_UINT64(starts.size)):
        count = min((stops[piece] - starts[piece]) >> _UINT64(3), total - at)
        target = numbers_at(starts[piece], count)
        for k in range(count):
            target[k] = source[at + k]
        at += count
    return 0


@kernel
def sort(values, spare, first_bit):
    """Sort numbers (uint64) that have the first bits in common; return 1 if they are not sorted.

    ``spare`` is as long, and is overwritten.
    """
    count, parts, places = _UINT64(values.size), _stack_of_parts(), _stack()
    bits, top = _UINT64(0), _UINT64(64) - _UINT64(first_bit)
    while (count >> bits) > _CACHED and bits < _PART_BITS:
        bits += _UINT64(1)
    if bits == _UINT64(0):
        _distribute(values, _UINT64(0), count, spare, top - _BITS - _BITS, _BITS, places)
        _distribute(spare, _UINT64(0), count, values, top - _BITS, _BITS, places)
        return _finish(values, _UINT64(0), count, values)
    top -= bits
    _distribute(values, _UINT64(0), count, spare, top, bits, parts)
    start, unsorted = _UINT64(0), _UINT64(0)
    for part in range(_UINT64(1) << bits):
        stop = parts[part]
        _distribute(spare, start, stop, values, top - _BITS - _BITS, _BITS, places)
        _distribute(values, start, stop, spare, top - _BITS, _BITS, places)
        unsorted |= _finish(spare, start, stop, values)
        start = stop
    return unsorted
