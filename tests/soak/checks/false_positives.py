"""Filters have the false-positive rate that their size implies."""

from __future__ import annotations

import numpy as np

from secure_bloom import BloomFilterOptions, SplitBlockBloomFilter
from secure_bloom.sbbf.sizing import false_positive_deviation, false_positive_probability
from tests.soak.check import Case, Check

_PROBES = 1_000_000
_SIGMAS = 6.0  # of 10^5 cases, one in 10^4 exceeds 5 by chance


def _try(case: Case) -> None:
    distinct = int(10 ** case.random.uniform(0, 7))
    fpp = 10 ** case.random.uniform(-5, -1)
    filter_ = SplitBlockBloomFilter(BloomFilterOptions(fpp=fpp, ndv=distinct).num_blocks(0))
    hashes = case.numpy.integers(0, 2**64, distinct, np.uint64)
    filter_.insert_hashes(hashes)
    assert filter_.check_hashes(hashes).all()
    probes = case.numpy.integers(0, 2**64, _PROBES, np.uint64)
    rate = np.count_nonzero(filter_.check_hashes(probes)) / _PROBES
    expected = false_positive_probability(filter_.num_blocks, distinct)
    variance = false_positive_deviation(filter_.num_blocks, distinct) ** 2 \
        + expected * (1 - expected) / _PROBES
    difference, deviation = abs(rate - expected), variance**0.5
    assert difference <= _SIGMAS * deviation + 10 / _PROBES, \
        f"{distinct} values, {filter_.num_blocks} blocks: {rate}, not {expected}"
    assert expected <= 1.05 * fpp, f"{distinct} values: {expected}, not {fpp}"
    case.tried += 1
    case.counts["probes"] += _PROBES
    case.counts[f"{'within' if difference <= 5 * deviation else 'beyond'} 5 deviations"] += 1


CHECK = Check("false_positives", "false positives are as frequent as the size implies",
              "filters", 10_000, _try)
