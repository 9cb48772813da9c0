"""The number of blocks a split-block Bloom filter needs, and its false-positive probability.

With ``ndv`` distinct values in ``z`` blocks, the number of values per block is Poisson distributed
with mean ndv / z. In a block with i values, each of the 8 words has a given bit set
with probability 1 - (1 - 1/32)^i, and a check needs all 8. The sum over i is the probability of a
false positive (Putze, Sanders, Singler: "Cache-, Hash- and Space-Efficient Bloom Filters").
It reproduces the figures listed in the Parquet specification (BloomFilter.md, "Sizing an SBBF").
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

BYTES_PER_BLOCK = 32
MIN_BLOCKS = 1
MAX_BYTES = 128 * 1024 * 1024  #: the largest bitset that Arrow C++ and parquet-java accept
MAX_BLOCKS = MAX_BYTES // BYTES_PER_BLOCK

_MAX_LOAD = 750  # above this mean load every bit is set, within double precision
_MAX_LOAD_IN_LANCE = 512
_SPREAD = 12.0  # standard deviations around the mean that the Poisson sum covers


def false_positive_probability(num_blocks: int, ndv: int) -> float:
    """Return the probability that a value that was not inserted is reported present.

    Parameters
    ----------
    num_blocks : int
        Blocks of 32 bytes.
    ndv : int
        Number of distinct values inserted.
    """
    check_num_blocks(num_blocks)
    mean = ndv / num_blocks
    if mean > _MAX_LOAD:
        return 1.0
    return min(1.0, math.fsum(weight * (1.0 - (31 / 32) ** load) ** 8
                              for load, weight in _loads(mean)))


def false_positive_deviation(num_blocks: int, ndv: int) -> float:
    """Return the standard deviation of that probability between filters of different values.

    In a block with i values a word has the fraction f of its bits set, and
    E(f^2) = E(f) / 32 + 31/32 * P(two given bits are set). The blocks are treated as independent,
    although their loads sum to ndv; the result is therefore too large, especially for very few
    blocks.

    Parameters
    ----------
    num_blocks, ndv : int
        As for :func:`false_positive_probability`.
    """
    mean = ndv / num_blocks
    if mean > _MAX_LOAD:
        return 0.0
    square = 0.0
    for load, weight in _loads(mean):
        one = 1.0 - (31 / 32) ** load
        two = 1.0 - 2.0 * (31 / 32) ** load + (30 / 32) ** load
        square += weight * (one / 32 + two * 31 / 32) ** 8
    variance = square - false_positive_probability(num_blocks, ndv) ** 2
    return math.sqrt(max(0.0, variance) / num_blocks)


def _loads(mean: float) -> Iterator[tuple[int, float]]:
    """Yield the possible numbers of values in a block, each with its probability."""
    if mean <= 0:
        return
    spread = _SPREAD * math.sqrt(mean)
    first = max(0, math.floor(mean - spread))
    last = math.ceil(mean + spread) + 20
    for load in range(first, last + 1):
        yield load, math.exp(load * math.log(mean) - mean - math.lgamma(load + 1))


@lru_cache(maxsize=256)  # row groups mostly have the same size
def num_blocks_for(ndv: int, fpp: float, *, power_of_two: bool = True,
                   max_blocks: int = MAX_BLOCKS) -> int:
    """Return the smallest number of blocks that holds ``ndv`` distinct values at ``fpp``.

    Parameters
    ----------
    ndv : int
        Number of distinct values, at least 0.
    fpp : float
        Target false-positive probability, between 0 and 1, both excluded.
    power_of_two : bool
        Round up to a power of two, which Arrow C++ requires; parquet-java reads either.
    max_blocks : int
        Upper bound; if it applies, the probability is higher than ``fpp``.
    """
    if ndv < 0:
        raise ValueError(f"ndv must not be negative, got {ndv}")
    check_fpp(fpp)
    check_num_blocks(max_blocks)
    low, high = MIN_BLOCKS, MIN_BLOCKS
    while high < max_blocks and false_positive_probability(high, ndv) > fpp:
        low, high = high + 1, high * 2
    if power_of_two:
        return min(high, 1 << (max_blocks.bit_length() - 1))
    high = min(high, max_blocks)
    while low < high:
        middle = (low + high) // 2
        if false_positive_probability(middle, ndv) > fpp:
            low = middle + 1
        else:
            high = middle
    return high


def num_blocks_in_lance(items: int, probability: float) -> int:
    """Return the number of blocks that Lance allocates for ``items`` values: a power of two.

    This is the smallest power of two that holds them at ``probability``, or 128 MiB; never with
    more than 512 values per block, which Lance treats as full.

    Parameters
    ----------
    items : int
        Number of values, at least 0.
    probability : float
        Target false-positive probability, between 0 and 1, both excluded.
    """
    num_blocks = num_blocks_for(items, probability)
    while items > _MAX_LOAD_IN_LANCE * num_blocks and num_blocks < MAX_BLOCKS:
        num_blocks *= 2
    return num_blocks


def check_num_blocks(num_blocks: int) -> None:
    """Raise ValueError unless this number of blocks is valid."""
    if not MIN_BLOCKS <= num_blocks <= MAX_BLOCKS:
        raise ValueError(f"a Bloom filter must have {MIN_BLOCKS} to {MAX_BLOCKS} blocks of "
                         f"{BYTES_PER_BLOCK} bytes, got {num_blocks}")


def check_fpp(fpp: float) -> None:
    """Raise ValueError unless a filter can be sized for this probability."""
    if not 0.0 < fpp < 1.0:
        raise ValueError(f"fpp must be between 0 and 1, both excluded, got {fpp}")
