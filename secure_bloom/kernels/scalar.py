"""The blocks of a filter and the bits of a hash in them, and the check of a single hash.

A filter is an array of shape (blocks, 8), dtype uint32: a block is 8 words of 32 bits.
Specification: parquet-format, BloomFilter.md.
"""

from __future__ import annotations

import numpy as np

SALT = np.array([0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D,
                 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], dtype=np.uint32)


def block_index(hashes: np.ndarray, num_blocks: int) -> np.ndarray:
    """Return the block of each hash: its upper 32 bits scaled to ``num_blocks``; dtype uint64."""
    return ((hashes >> np.uint64(32)) * np.uint64(num_blocks)) >> np.uint64(32)


def block_masks(hashes: np.ndarray) -> np.ndarray:
    """Return the 8 one-bit words that each hash sets in its block; shape (n, 8), dtype uint32."""
    keys = hashes.astype(np.uint32)
    return np.uint32(1) << ((keys[:, None] * SALT) >> np.uint32(27))


_SALTS = SALT.tolist()


def check_hash(words: np.ndarray, value: int) -> bool:
    """Return whether all bits of one hash are set; for a single hash faster than an array."""
    key = value & 0xFFFFFFFF
    block = words[(value >> 32) * words.shape[0] >> 32].tolist()
    return all(word >> ((key * salt & 0xFFFFFFFF) >> 27) & 1
               for word, salt in zip(block, _SALTS, strict=True))
