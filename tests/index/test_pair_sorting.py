"""Pairs that are sorted in slices, by several threads, are those that are sorted at once."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from secure_bloom.index import pair_sorting
from secure_bloom.index.geometry import sorted_pairs
from secure_bloom.index.pair_sorting import DividedPairs, SortedPairs
from secure_bloom.parquet.row_ranges import RANGE_BITS

SIZES = 0, 1, 70_000, *[50] * 300, 150_000, 33_000  # of the arrays


def arrays(kind):
    source = np.random.default_rng(1)
    for size in SIZES:
        values = source.integers(0, 2**64, size, np.uint64)
        if kind == "few":  # each with several ranges
            values = values % np.uint64(500 << RANGE_BITS) << np.uint64(48) >> np.uint64(1)
            values |= source.integers(1, 64, size, np.uint64)
        elif kind == "in one slice":
            values >>= np.uint64(9)
        yield values


@pytest.mark.parametrize("range_bits", [0, RANGE_BITS])
@pytest.mark.parametrize("kind", ["random", "few", "in one slice"])
def test_slices_are_those_of_all_pairs_in_order(kind, range_bits):
    expected = sorted_pairs(list(arrays(kind)), are_sorted=False, range_bits=range_bits)
    parts = [DividedPairs.of([one]) for one in arrays(kind)]
    found = SortedPairs.of(parts, range_bits)
    assert parts == [] and found.size == expected.size and len(found.sizes) > 1
    for slice_bits in (0, 1, found.bits, found.bits + 3, 12):
        slices = list(found.slices(slice_bits))
        assert len(slices) == 1 << slice_bits
        np.testing.assert_array_equal(np.concatenate(slices), expected)
        for number, one in enumerate(slices if slice_bits else ()):
            assert (one >> np.uint64(64 - slice_bits) == number).all()


def test_a_thread_may_begin_with_a_slice_without_pairs(monkeypatch):
    """Which thread sorts a slice depends on their speed: here each has a new one."""
    class Pool(ThreadPoolExecutor):
        def map(self, call, some):
            for one in some:
                with ThreadPoolExecutor(1) as fresh:
                    yield fresh.submit(call, one).result()

    monkeypatch.setattr(pair_sorting, "ThreadPoolExecutor", Pool)
    expected = np.sort(np.concatenate(list(arrays("in one slice"))))
    parts = [DividedPairs.of([one]) for one in arrays("in one slice")]
    np.testing.assert_array_equal(np.concatenate(list(SortedPairs.of(parts, 0).arrays())), expected)


def test_few_pairs_are_sorted_at_once():
    few = [DividedPairs.of([np.array(one, np.uint64)]) for one in ([3], [1, 3])]
    found = SortedPairs.of(few, 0)
    assert found.bits == 0 and [one.tolist() for one in found.arrays()] == [[1, 3]]
    assert SortedPairs.of([], RANGE_BITS).size == 0
    assert [one.size for one in SortedPairs.of([], RANGE_BITS).slices(2)] == [0] * 4
