"""Distinct values and false positives: what is counted, and what counts as chance."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secure_bloom.reading.open_file import OpenFile
from secure_bloom.sbbf.filter import SplitBlockBloomFilter
from secure_bloom.sbbf.hashing import hash_stored
from secure_bloom.sbbf.sizing import false_positive_deviation, false_positive_probability
from secure_bloom.verify.measure import ColumnHashes, DistinctHashes, measure_false_positives
from tests.support import run_python


def random_hashes(count: int, seed: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64)


def write(path, codes, entries, **options):
    """Write a column with a dictionary, of which rows use some entries."""
    pq.write_table(pa.table({"a": pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()),
                                                                 pa.array(entries))}), path,
                   **{"write_statistics": False, "dictionary_pagesize_limit": 1 << 30} | options)
    return OpenFile(path)


@pytest.mark.parametrize("is_dictionary_in_arrow", [True, False])
def test_a_long_entry_of_a_dictionary_is_not_decoded_for_each_row(tmp_path,
                                                                  is_dictionary_in_arrow):
    """A file of some hundred bytes would take gigabytes."""
    size, count = 32_000, 20_000
    file = write(tmp_path / "a.parquet", [0] * count, ["x" * size], compression="zstd",
                 store_schema=is_dictionary_in_arrow)
    pool, before = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        with file:
            assert sum(rows for rows, _ in ColumnHashes(file).read(0, file.columns[0])) == count
    finally:
        pa.set_memory_pool(before)
    assert 0 < pool.max_memory() < 1000 * size


@pytest.mark.parametrize("is_dictionary_in_arrow", [True, False])
@pytest.mark.parametrize("limit", [1 << 30, 1000])  # beyond which pages are plain
def test_each_value_is_hashed_in_order(tmp_path, limit, is_dictionary_in_arrow):
    codes = [7, None, 9_998, *range(40_000, 0, -3), 7]
    entries = [f"entry {number}" for number in range(100_000 if limit > 1000 else 40_001)]
    with write(tmp_path / "a.parquet", codes, entries, dictionary_pagesize_limit=limit,
               store_schema=is_dictionary_in_arrow) as file:
        [column] = file.columns
        found = np.concatenate([one for _, one in ColumnHashes(file).read(0, column)])
    values = pa.array([entries[code] for code in codes if code is not None])
    assert np.array_equal(found, hash_stored(values, column.type))


@pytest.mark.slow
def test_to_hash_a_dictionary_needs_no_pandas(tmp_path):
    """Nor does an update of an index, or attaching a filter, which wait for the import."""
    path = tmp_path / "a.parquet"
    write(path, [0, 1, 0], ["x", "y"]).close()
    code = f"""
import sys
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.verify.measure import ColumnHashes
with OpenFile({str(path)!r}) as file:
    print(sum(rows for rows, _ in ColumnHashes(file).read(0, file.columns[0])))
print("pandas" in sys.modules)
"""
    assert run_python(code).split() == ["3", "False"]


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
