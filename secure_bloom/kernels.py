"""Numba kernels for bulk work: XXH64 (seed 0) and split-block Bloom filter insert and check.

Importing this module imports numba, so only bulk work does (:func:`secure_bloom.sbbf.kernels_for`).
Every kernel has a twin of the same name in :mod:`secure_bloom.plain`.

Two things make them fast. A block of the filter is one vector of 8 x 32 bits, so a value costs
one load and one store; and strings are read by unaligned words of 8 and 4 bytes. Neither can be
said in Python, hence the small LLVM intrinsics at the top.

Specifications: parquet-format BloomFilter.md; the XXH64 algorithm description.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from secure_bloom.plain import SALT

_WORD = ir.IntType(32)
_BLOCK = ir.VectorType(_WORD, 8)
_UINT64 = np.uint64

_PRIME1 = np.uint64(0x9E3779B185EBCA87)
_PRIME2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME3 = np.uint64(0x165667B19E3779F9)
_PRIME4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME5 = np.uint64(0x27D4EB2F165667C5)


def _splat(values):
    return ir.Constant(_BLOCK, [ir.Constant(_WORD, int(value)) for value in values])


def _mask(builder, key):
    """IR for the block mask of a 32-bit key: word i gets the bit (key * salt[i]) >> 27."""
    undefined = ir.Constant(_BLOCK, ir.Undefined)
    lane0 = builder.insert_element(undefined, key, ir.Constant(_WORD, 0))
    keys = builder.shuffle_vector(lane0, undefined, _splat([0] * 8))
    bits = builder.lshr(builder.mul(keys, _splat(SALT)), _splat([27] * 8))
    return builder.shl(_splat([1] * 8), bits)


def _block_pointer(context, builder, array_type, array, index):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(builder.bitcast(data, _BLOCK.as_pointer()), [index])


def _load_block(builder, pointer):
    block = builder.load(pointer)
    block.align = 4  # numpy promises the alignment of a word, not of a block
    return block


@intrinsic
def _block_insert(typing_context, words, index, key):
    """words[index] |= mask(key), as one vector."""
    def generate(context, builder, signature, args):
        pointer = _block_pointer(context, builder, signature.args[0], args[0], args[1])
        block = _load_block(builder, pointer)
        store = builder.store(builder.or_(block, _mask(builder, args[2])), pointer)
        store.align = 4
        return context.get_dummy_value()
    return types.void(words, types.uint64, types.uint32), generate


@intrinsic
def _block_check(typing_context, words, index, key):
    """Whether every bit of mask(key) is set in words[index]."""
    def generate(context, builder, signature, args):
        pointer = _block_pointer(context, builder, signature.args[0], args[0], args[1])
        block = _load_block(builder, pointer)
        missing = builder.and_(builder.not_(block), _mask(builder, args[2]))
        wide = ir.IntType(256)
        none_missing = builder.icmp_unsigned(
            "==", builder.bitcast(missing, wide), ir.Constant(wide, 0))
        return none_missing
    return types.boolean(words, types.uint64, types.uint32), generate


def _unaligned_load(bits, result):
    @intrinsic
    def load(typing_context, data, position):
        def generate(context, builder, signature, args):
            base = context.make_array(signature.args[0])(context, builder, args[0]).data
            pointer = builder.bitcast(builder.gep(base, [args[1]]), ir.IntType(bits).as_pointer())
            value = builder.load(pointer)
            value.align = 1
            return value
        return result(data, types.int64), generate
    return load


_load64 = _unaligned_load(64, types.uint64)
_load32 = _unaligned_load(32, types.uint32)


@njit(inline="always")
def _rotate(value, bits):
    return (value << _UINT64(bits)) | (value >> _UINT64(64 - bits))


@njit(inline="always")
def _round(accumulator, value):
    return _rotate(accumulator + value * _PRIME2, 31) * _PRIME1


@njit(inline="always")
def _add8(state, value):
    return _rotate(state ^ _round(_UINT64(0), value), 27) * _PRIME1 + _PRIME4


@njit(inline="always")
def _add4(state, value):
    return _rotate(state ^ (_UINT64(value) * _PRIME1), 23) * _PRIME2 + _PRIME3


@njit(inline="always")
def _avalanche(state):
    state ^= state >> _UINT64(33)
    state *= _PRIME2
    state ^= state >> _UINT64(29)
    state *= _PRIME3
    return state ^ (state >> _UINT64(32))


@njit(inline="always")
def _merge(state, lane):
    return (state ^ _round(_UINT64(0), lane)) * _PRIME1 + _PRIME4


@njit(inline="always")
def _xxh64(data, start, end):
    """XXH64, seed 0, of data[start:end]."""
    position = start
    if end - start >= 32:
        lane1 = _PRIME1 + _PRIME2
        lane2 = _PRIME2
        lane3 = _UINT64(0)
        lane4 = _UINT64(0) - _PRIME1
        while position + 32 <= end:
            lane1 = _round(lane1, _load64(data, position))
            lane2 = _round(lane2, _load64(data, position + 8))
            lane3 = _round(lane3, _load64(data, position + 16))
            lane4 = _round(lane4, _load64(data, position + 24))
            position += 32
        state = (_rotate(lane1, 1) + _rotate(lane2, 7)
                 + _rotate(lane3, 12) + _rotate(lane4, 18))
        state = _merge(_merge(_merge(_merge(state, lane1), lane2), lane3), lane4)
    else:
        state = _PRIME5
    state += _UINT64(end - start)
    while position + 8 <= end:
        state = _add8(state, _load64(data, position))
        position += 8
    if position + 4 <= end:
        state = _add4(state, _load32(data, position))
        position += 4
    while position < end:
        state = _rotate(state ^ (_UINT64(data[position]) * _PRIME5), 11) * _PRIME1
        position += 1
    return _avalanche(state)


@njit(cache=True, nogil=True)
def _hash_uint32(values, out):
    for i in range(values.size):
        out[i] = _avalanche(_add4(_PRIME5 + _UINT64(4), values[i]))


@njit(cache=True, nogil=True)
def _hash_uint64(values, out):
    for i in range(values.size):
        out[i] = _avalanche(_add8(_PRIME5 + _UINT64(8), values[i]))


def hash_words(values: np.ndarray, out: np.ndarray) -> None:
    """XXH64 of each value of a uint32 or uint64 array, little-endian, into ``out`` (uint64)."""
    (_hash_uint32 if values.itemsize == 4 else _hash_uint64)(values, out)


@njit(cache=True, nogil=True)
def hash_fixed(data, width, out):
    """XXH64 of ``out.size`` values of ``width`` bytes each, back to back in ``data`` (uint8)."""
    for i in range(out.size):
        start = np.int64(i) * np.int64(width)
        out[i] = _xxh64(data, start, start + np.int64(width))


@njit(cache=True, nogil=True)
def hash_binary(offsets, data, out):
    """XXH64 of ``data[offsets[i]:offsets[i + 1]]`` for each i into ``out`` (uint64)."""
    for i in range(out.size):
        out[i] = _xxh64(data, np.int64(offsets[i]), np.int64(offsets[i + 1]))


@njit(inline="always")
def _block_index(value, num_blocks):
    return ((value >> _UINT64(32)) * num_blocks) >> _UINT64(32)


@njit(cache=True, nogil=True)
def insert_hashes(words, hashes):
    """Set the bits of each hash (uint64)."""
    num_blocks = _UINT64(words.shape[0])
    for i in range(hashes.size):
        value = hashes[i]
        _block_insert(words, _block_index(value, num_blocks), np.uint32(value))


@njit(cache=True, nogil=True)
def check_hashes(words, hashes, out):
    """Set ``out[i]`` (bool) to whether all bits of ``hashes[i]`` are set."""
    num_blocks = _UINT64(words.shape[0])
    for i in range(hashes.size):
        value = hashes[i]
        out[i] = _block_check(words, _block_index(value, num_blocks), np.uint32(value))
