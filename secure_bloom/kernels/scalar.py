"""Plain twins of the numba kernels in :mod:`secure_bloom.kernels.bulk`: same names, same arguments.

They process scalars and small input, so that a single lookup never waits for numba, and serve as
the reference in tests of the kernels. XXH64 comes from the ``xxhash`` library (seed 0).

A filter is an array of shape (blocks, 8), dtype uint32: a block is 8 words of 32 bits.
Specification: parquet-format, BloomFilter.md.
"""

from __future__ import annotations

import numpy as np
from xxhash import xxh64_intdigest

SALT = np.array([0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D,
                 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], dtype=np.uint32)


def hash_words(values: np.ndarray, out: np.ndarray) -> None:
    """Write the XXH64 of each uint32 or uint64 value, little-endian, to ``out`` (uint64)."""
    hash_fixed(values.view(np.uint8), values.itemsize, out)


def hash_fixed(data: np.ndarray, width: int, out: np.ndarray) -> None:
    """Write the XXH64 of each value of ``width`` bytes to ``out``.

    ``data`` (uint8) holds ``out.size`` values back to back.
    """
    raw = data.tobytes()
    for i in range(out.size):
        out[i] = xxh64_intdigest(raw[i * width:(i + 1) * width])


def hash_binary(offsets: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    """Write the XXH64 of ``data[offsets[i]:offsets[i + 1]]`` for each i to ``out`` (uint64)."""
    raw = data.data
    for i in range(out.size):
        out[i] = xxh64_intdigest(raw[offsets[i]:offsets[i + 1]])


def block_index(hashes: np.ndarray, num_blocks: int) -> np.ndarray:
    """Return the block of each hash: its upper 32 bits scaled to ``num_blocks``; dtype uint64."""
    return ((hashes >> np.uint64(32)) * np.uint64(num_blocks)) >> np.uint64(32)


def block_masks(hashes: np.ndarray) -> np.ndarray:
    """Return the 8 one-bit words that each hash sets in its block; shape (n, 8), dtype uint32."""
    keys = hashes.astype(np.uint32)
    return np.uint32(1) << ((keys[:, None] * SALT) >> np.uint32(27))


def insert_words(words: np.ndarray, values: np.ndarray) -> None:
    """Hash each value of a uint32 or uint64 array as :func:`hash_words` does, and set its bits."""
    hashes = np.empty(values.size, dtype=np.uint64)
    hash_words(values, hashes)
    insert_hashes(words, hashes)


def insert_hashes(words: np.ndarray, hashes: np.ndarray) -> None:
    """Set the bits of each hash (uint64)."""
    np.bitwise_or.at(words, block_index(hashes, words.shape[0]), block_masks(hashes))


def check_hashes(words: np.ndarray, hashes: np.ndarray, out: np.ndarray) -> None:
    """Set ``out[i]`` (bool) to whether all bits of ``hashes[i]`` are set."""
    masks = block_masks(hashes)
    np.all(words[block_index(hashes, words.shape[0])] & masks == masks, axis=1, out=out)


_SALTS = SALT.tolist()


def check_hash(words: np.ndarray, value: int) -> bool:
    """Return whether all bits of one hash are set; for a single hash faster than an array."""
    key = value & 0xFFFFFFFF
    block = words[(value >> 32) * words.shape[0] >> 32].tolist()
    return all(word >> ((key * salt & 0xFFFFFFFF) >> 27) & 1
               for word, salt in zip(block, _SALTS, strict=True))
