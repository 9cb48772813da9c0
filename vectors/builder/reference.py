"""The split-block Bloom filter a second time: plain Python, straight from the specification.

What the small cases expect comes from here, never from secure_bloom.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal, localcontext

from xxhash import xxh64_intdigest

BYTES_PER_BLOCK = 32
_SALT = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D,
         0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)


def mask(hash: int) -> list[int]:
    """The 8 words that a hash sets: one bit each, chosen by the lower half."""
    key = hash & 0xFFFFFFFF
    return [1 << ((key * salt & 0xFFFFFFFF) >> 27) for salt in _SALT]


def block_index(hash: int, num_blocks: int) -> int:
    """The block of a hash, chosen by the upper half."""
    return (hash >> 32) * num_blocks >> 32


def block_bytes(words: Iterable[int]) -> bytes:
    """A block as it is stored."""
    return b"".join(word.to_bytes(4, "little") for word in words)


def bitset(hashes: Iterable[int], num_blocks: int) -> bytes:
    """The filter of these hashes."""
    blocks = [[0] * 8 for _ in range(num_blocks)]
    for hash in hashes:
        block = blocks[block_index(hash, num_blocks)]
        for i, word in enumerate(mask(hash)):
            block[i] |= word
    return b"".join(map(block_bytes, blocks))


def check(bits: bytes, hash: int) -> bool:
    """Whether a filter may hold a hash."""
    start = block_index(hash, len(bits) // BYTES_PER_BLOCK) * BYTES_PER_BLOCK
    words = mask(hash)
    wanted = int.from_bytes(block_bytes(words), "little")
    return int.from_bytes(bits[start:start + BYTES_PER_BLOCK], "little") & wanted == wanted


def hashes(plain: Iterable[bytes | None]) -> list[int]:
    """The hashes of plain encodings, without the nulls."""
    return [xxh64_intdigest(value) for value in plain if value is not None]


def fpp(num_blocks: int, ndv: int) -> float:
    """The false-positive probability, to 9 digits; the Poisson sum with 40 digits."""
    if ndv > 1000 * num_blocks:
        return 1.0  # it differs in the 13th digit
    with localcontext() as context:
        context.prec = 40
        mean = Decimal(ndv) / num_blocks
        term, unset, total = (-mean).exp(), Decimal(1), Decimal(0)
        for load in range(int(mean) * 2 + 400):
            total += term * (1 - unset) ** 8
            term *= mean / (load + 1)
            unset *= Decimal(31) / 32  # the share of a word's bits that no value has set
        return float(f"{total:.8e}")


def blocks(ndv: int, wanted: float, *, power_of_two: bool) -> int:
    """The fewest blocks that keep a false-positive probability, up to 128 MiB."""
    limit = 2**27 // BYTES_PER_BLOCK
    high = next((1 << i for i in range(23) if fpp(1 << i, ndv) <= wanted), limit)
    if power_of_two or high == 1 or fpp(high, ndv) > wanted:
        return high
    low = high // 2  # too few
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fpp(middle, ndv) > wanted else (low, middle)
    return high


def bits_per_value(wanted: float) -> float:
    """Bits that each of many distinct values needs, as the specification's table has them."""
    return blocks(1_000_000, wanted, power_of_two=False) * 256 / 1_000_000


assert math.isclose(bits_per_value(0.01), 10.5, abs_tol=0.1)  # "Sizing an SBBF"
