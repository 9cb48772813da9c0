"""XXH64 (seed 0) for numba kernels, of one value or of many at a time (:mod:`.kernels.simd`).

Specification: the XXH64 algorithm description.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload

from secure_bloom.kernels.compiling import part_of_kernel
from secure_bloom.kernels.simd import read1, read4, read8, rotate_left

_UINT64 = np.uint64
_PRIME1 = np.uint64(0x9E3779B185EBCA87)
_PRIME2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME3 = np.uint64(0x165667B19E3779F9)
_PRIME4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME5 = np.uint64(0x27D4EB2F165667C5)


@part_of_kernel
def _round(accumulator, value):
    return rotate_left(accumulator + value * _PRIME2, 31) * _PRIME1


@part_of_kernel
def _add8(state, value):
    return rotate_left(state ^ _round(_UINT64(0), value), 27) * _PRIME1 + _PRIME4


@part_of_kernel
def _add4(state, value):
    return rotate_left(state ^ (value * _PRIME1), 23) * _PRIME2 + _PRIME3


@part_of_kernel
def _add1(state, value):
    return rotate_left(state ^ (value * _PRIME5), 11) * _PRIME1


@part_of_kernel
def _avalanche(state):
    state = (state ^ (state >> _UINT64(33))) * _PRIME2
    state = (state ^ (state >> _UINT64(29))) * _PRIME3
    return state ^ (state >> _UINT64(32))


@part_of_kernel
def _merge(state, lane):
    return (state ^ _round(_UINT64(0), lane)) * _PRIME1 + _PRIME4


@part_of_kernel
def _hash4(value):
    return _avalanche(_add4(_PRIME5 + _UINT64(4), value))


@part_of_kernel
def _hash8(value):
    return _avalanche(_add8(_PRIME5 + _UINT64(8), value))


def hash_word(array, value):
    """Return the XXH64 of a uint32 or uint64 element, which is passed widened to 64 bits."""
    raise NotImplementedError("for numba kernels only")


@overload(hash_word)
def _hash_word(array, value):
    hash_one = _hash4 if array.dtype == types.uint32 else _hash8
    return lambda array, value: hash_one(value)


@part_of_kernel
def xxh64(data, position, length):
    """Return the XXH64 of ``length`` bytes of a uint8 array, from ``position`` on.

    ``position`` may be a vector, to compute as many hashes; all inputs then have the same length.
    """
    zero = position ^ position  # of the same type
    state = zero + _PRIME5
    rest = length
    if rest >= _UINT64(32):
        lane1 = zero + (_PRIME1 + _PRIME2)
        lane2 = zero + _PRIME2
        lane3 = zero
        lane4 = zero - _PRIME1
        while rest >= _UINT64(32):
            lane1 = _round(lane1, read8(data, position))
            lane2 = _round(lane2, read8(data, position + _UINT64(8)))
            lane3 = _round(lane3, read8(data, position + _UINT64(16)))
            lane4 = _round(lane4, read8(data, position + _UINT64(24)))
            position += _UINT64(32)
            rest -= _UINT64(32)
        state = (rotate_left(lane1, 1) + rotate_left(lane2, 7)
                 + rotate_left(lane3, 12) + rotate_left(lane4, 18))
        state = _merge(_merge(_merge(_merge(state, lane1), lane2), lane3), lane4)
    state += length
    while rest >= _UINT64(8):
        state = _add8(state, read8(data, position))
        position += _UINT64(8)
        rest -= _UINT64(8)
    if rest >= _UINT64(4):
        state = _add4(state, read4(data, position))
        position += _UINT64(4)
    for k in range(rest & _UINT64(3)):
        state = _add1(state, read1(data, position + k))
    return _avalanche(state)
