"""Numba kernels that insert into and query a filter: see :mod:`secure_bloom.kernels.bulk`.

A block is one vector of 8 words of 32 bits, so a value costs one load and one store. Values are
processed in small batches: hashes and blocks of the next batch are computed first, and its blocks
are prefetched while the current batch is processed. Even in a filter far larger than the cache,
many blocks are therefore in flight at once.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from secure_bloom.kernels.compiling import kernel, part_of_kernel
from secure_bloom.kernels.hashing import WIDE, load_wide, prefetch_ahead
from secure_bloom.kernels.scalar import SALT
from secure_bloom.kernels.simd import (
    Vector,
    broadcast,
    constant,
    pointer_to,
    prefetch,
    stack_array,
    store,
    vector_type,
)
from secure_bloom.kernels.xxh64 import hash_word

_UINT64 = np.uint64
_BATCH = np.uint64(128)
_WORDS = 8  #: words per block
_BLOCK = Vector(types.uint32, _WORDS)
_stack = stack_array(types.uint64, 2 * 128)  #: for two batches
_NEAR = 2**18  #: words of a filter (1 MiB) up to which prefetching does not pay off


# --- one block -----------------------------------------------------------------------------------

def _mask(builder, key):
    """Return LLVM code for the block mask of a key: word i gets the bit (key * salt[i]) >> 27."""
    product = builder.mul(broadcast(builder, key, _BLOCK), constant(_BLOCK, SALT))
    bits = builder.lshr(product, constant(_BLOCK, [27] * _WORDS))
    return builder.shl(constant(_BLOCK, [1] * _WORDS), bits)


@intrinsic
def _block_insert(typing_context, words, index, key):
    """Set the bits of a key (uint32) in the block that begins at a word."""
    def generate(context, builder, signature, args):
        pointer = pointer_to(context, builder, words, *args[:2], vector_type(_BLOCK))
        block = builder.load(pointer, align=4)
        builder.store(builder.or_(block, _mask(builder, args[2])), pointer, align=4)
        return context.get_dummy_value()
    return types.void(words, types.uint64, types.uint32), generate


@intrinsic
def _block_check(typing_context, words, index, key):
    """Check whether a key's bits (uint32) are set in the block that begins at a word."""
    def generate(context, builder, signature, args):
        pointer = pointer_to(context, builder, words, *args[:2], vector_type(_BLOCK))
        block = builder.load(pointer, align=4)
        missing = builder.and_(builder.not_(block), _mask(builder, args[2]))
        whole = ir.IntType(32 * _WORDS)
        return builder.icmp_unsigned("==", builder.bitcast(missing, whole), ir.Constant(whole, 0))
    return types.boolean(words, types.uint64, types.uint32), generate


# --- bulk ----------------------------------------------------------------------------------------

@part_of_kernel
def _first_word(value, num_blocks):
    """Return the first word of a hash's block; ``num_blocks`` has fewer than 32 bits."""
    return (((value >> _UINT64(32)) * num_blocks) >> _UINT64(32)) * _UINT64(_WORDS)


@part_of_kernel
def _prepare(values, hashed, start, num_blocks, hashes, blocks, base):
    """Hash the batch at ``start``; hashes and first words of blocks are written at ``base``.

    ``hashed`` means that the values are already hashes. Returns the size of the batch.
    """
    count = min(_BATCH, _UINT64(values.size) - start)
    whole = count - count % WIDE
    for i in range(_UINT64(0), whole, WIDE):
        prefetch_ahead(values, start + i)
        value = load_wide(values, start + i)
        if not hashed:
            value = hash_word(values, value)
        store(hashes, base + i, value)
        store(blocks, base + i, _first_word(value, num_blocks))
    for i in range(whole, count):
        one = _UINT64(values[start + i])
        if not hashed:
            one = hash_word(values, one)
        hashes[base + i] = one
        blocks[base + i] = _first_word(one, num_blocks)
    return count


@part_of_kernel
def _insert_batch(words, hashes, blocks, base, count, following, far):
    for i in range(count):
        if far:
            prefetch(words, blocks[following + i])
        _block_insert(words, blocks[base + i], np.uint32(hashes[base + i]))


@part_of_kernel
def _check_batch(words, hashes, blocks, base, count, following, far, out, start):
    for i in range(count):
        if far:
            prefetch(words, blocks[following + i])
        out[start + i] = _block_check(words, blocks[base + i], np.uint32(hashes[base + i]))


@kernel
def insert(words, values, hashed):
    """Insert values (uint32, uint64), or hashes if ``hashed`` is set, into a filter."""
    num_blocks, size = _UINT64(np.uint32(words.shape[0])), _UINT64(values.size)
    hashes, blocks = _stack(), _stack()
    for i in range(2 * _BATCH):
        blocks[i] = _UINT64(0)  # prefetched beyond the last batch
    base = _UINT64(0)
    if words.size <= _NEAR:
        for start in range(_UINT64(0), size, _BATCH):
            count = _prepare(values, hashed, start, num_blocks, hashes, blocks, base)
            _insert_batch(words, hashes, blocks, base, count, base, False)
        return 0
    count = _prepare(values, hashed, _UINT64(0), num_blocks, hashes, blocks, base)
    for start in range(_UINT64(0), size, _BATCH):
        following = _BATCH - base
        coming = _prepare(values, hashed, start + count, num_blocks, hashes, blocks, following)
        _insert_batch(words, hashes, blocks, base, count, following, True)
        base, count = following, coming
    return 0


@kernel
def check(words, asked, out):
    """Set ``out[i]`` (bool) to whether the bits of hash i are set in a filter."""
    num_blocks, size = _UINT64(np.uint32(words.shape[0])), _UINT64(asked.size)
    hashes, blocks = _stack(), _stack()
    for i in range(2 * _BATCH):
        blocks[i] = _UINT64(0)  # prefetched beyond the last batch
    base = _UINT64(0)
    if words.size <= _NEAR:
        for start in range(_UINT64(0), size, _BATCH):
            count = _prepare(asked, True, start, num_blocks, hashes, blocks, base)
            _check_batch(words, hashes, blocks, base, count, base, False, out, start)
        return 0
    count = _prepare(asked, True, _UINT64(0), num_blocks, hashes, blocks, base)
    for start in range(_UINT64(0), size, _BATCH):
        following = _BATCH - base
        coming = _prepare(asked, True, start + count, num_blocks, hashes, blocks, following)
        _check_batch(words, hashes, blocks, base, count, following, True, out, start)
        base, count = following, coming
    return 0
