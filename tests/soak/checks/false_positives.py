"""Filters have the false-positive rate that their size implies."""

from __future__ import annotations

import math

import numpy as np

from secure_bloom import BloomFilterOptions, SplitBlockBloomFilter
from secure_bloom.sbbf.sizing import false_positive_deviation, false_positive_probability
from tests.soak.check import Case, Check

_PROBES = 1_000_000
_BLOCKS = 4_000  # together: one block of a small filter may have far more values than the others
_SIGMAS = 6.0  # of 10^5 cases, one in 10^4 exceeds 5 by chance


def _try(case: Case) -> None:
    """Measure a filter, or the mean of small ones of the same size."""
    distinct = int(10 ** case.random.uniform(0, 7))
    fpp = 10 ** case.random.uniform(-5, -1)
    num_blocks = BloomFilterOptions(fpp=fpp, ndv=distinct).num_blocks(0)
    filters = -(-_BLOCKS // num_blocks)
    hits = sum(_hits(case, num_blocks, distinct, _PROBES // filters) for _ in range(filters))
    probes = filters * (_PROBES // filters)
    rate, expected = hits / probes, _probability(num_blocks, distinct)
    deviation = (false_positive_deviation(num_blocks, distinct) ** 2 / filters
                 + expected * (1 - expected) / probes) ** 0.5
    difference = abs(rate - expected)
    assert difference <= _SIGMAS * deviation + 10 / probes, \
        f"{distinct} values, {num_blocks} blocks: {rate}, not {expected}"
    stated = false_positive_probability(num_blocks, distinct)
    assert expected * (1 - 1e-6) <= stated <= 1.05 * fpp, f"{distinct} values: {stated}, not {fpp}"
    case.tried += 1
    case.counts["filters"] += filters
    case.counts["probes"] += probes
    case.counts[f"{'within' if difference <= 5 * deviation else 'beyond'} 5 deviations"] += 1


def _probability(num_blocks: int, distinct: int) -> float:
    """Return it from the binomial distribution of the values over the blocks.

    What is stated approximates that by Poisson's, and is a little larger for few blocks.
    """
    mean = distinct / num_blocks
    spread = 12 * mean**0.5 + 20
    loads = range(max(0, int(mean - spread)), min(distinct, int(mean + spread)) + 1)
    return math.fsum(_binomial(distinct, load, 1 / num_blocks) * (1 - (31 / 32) ** load) ** 8
                     for load in loads)


def _binomial(n: int, k: int, p: float) -> float:
    if p == 1:
        return float(k == n)
    return math.exp(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
                    + k * math.log(p) + (n - k) * math.log1p(-p))


def _hits(case: Case, num_blocks: int, distinct: int, probes: int) -> int:
    filter_ = SplitBlockBloomFilter(num_blocks)
    hashes = case.numpy.integers(0, 2**64, distinct, np.uint64)
    filter_.insert_hashes(hashes)
    assert filter_.check_hashes(hashes).all()
    return np.count_nonzero(filter_.check_hashes(case.numpy.integers(0, 2**64, probes, np.uint64)))


CHECK = Check("false_positives", "false positives are as frequent as the size implies",
              "rates", 10_000, _try)
