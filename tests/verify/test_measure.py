"""Distinct values and false positives: what is counted, and what counts as chance."""

import numpy as np
import pytest

from secure_bloom.sbbf.filter import SplitBlockBloomFilter
from secure_bloom.sbbf.sizing import false_positive_deviation, false_positive_probability
from secure_bloom.verify.measure import DistinctHashes, measure_false_positives


def random_hashes(count: int, seed: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64)


def test_distinct_values_are_counted_or_estimated():
    counter, hashes = DistinctHashes(kept=1000), random_hashes(50_000)
    counter.add(hashes[:900])
    counter.add(hashes[:900])
    assert (counter.count, counter.at_most, counter.is_exact) == (900, 900, True)
    counter.add(hashes)
    counter.add(hashes[::-1])
    assert not counter.is_exact
    assert counter.count == pytest.approx(50_000, rel=0.1)
    assert 50_000 < counter.at_most < 65_000


@pytest.mark.parametrize("blocks", [1, 4, 64, 1024])
@pytest.mark.parametrize("load", [0.1, 3, 10, 40, 100])
def test_chance_is_not_reported(blocks, load):
    random = np.random.default_rng(3)
    for _ in range(20):
        filter_, distinct = SplitBlockBloomFilter(blocks), DistinctHashes()
        hashes = random.integers(0, 2**64, max(1, int(blocks * load)), dtype=np.uint64)
        filter_.insert_hashes(hashes)
        distinct.add(hashes)
        assert not measure_false_positives(filter_, distinct).beyond_chance


def test_values_that_happen_to_share_a_block_are_not_reported():
    hashes = random_hashes(20) >> np.uint64(6)  # of 64 blocks they are in the first
    filter_, distinct = SplitBlockBloomFilter(64), DistinctHashes()
    filter_.insert_hashes(hashes)
    distinct.add(hashes)
    rate = measure_false_positives(filter_, distinct)
    assert rate.measured > 1000 * rate.promised and not rate.beyond_chance
    filter_.insert_hashes(random_hashes(300))
    assert measure_false_positives(filter_, distinct).beyond_chance


def test_nothing_is_counted_as_0():
    counter = DistinctHashes()
    counter.add(random_hashes(0))
    assert (counter.count, counter.is_exact) == (0, True)
    rate = measure_false_positives(SplitBlockBloomFilter(1), counter)
    assert (rate.measured, rate.promised, rate.beyond_chance) == (0.0, 0.0, False)


def test_a_full_filter_is_no_chance():
    filter_ = SplitBlockBloomFilter.from_bitset(b"\xff" * 64)
    counter = DistinctHashes()
    counter.add(random_hashes(3))
    rate = measure_false_positives(filter_, counter)
    assert rate.measured == 1.0 and rate.beyond_chance
    assert not measure_false_positives(filter_, None).beyond_chance


@pytest.mark.parametrize(("blocks", "ndv"), [(1, 12), (8, 160), (64, 600)])
def test_the_deviation_is_at_least_that_of_real_filters(blocks, ndv):
    rates = []
    for seed in range(1000):
        filter_ = SplitBlockBloomFilter(blocks)
        filter_.insert_hashes(random_hashes(ndv, seed))
        rates.append(filter_.expected_fpp())
    assert false_positive_deviation(blocks, ndv) >= 0.9 * np.std(rates)
    if blocks > 1:
        assert false_positive_deviation(blocks, ndv) <= 3 * np.std(rates)
    assert false_positive_deviation(blocks, 10**6) == 0.0
    assert false_positive_probability(blocks, 0) == 0.0
