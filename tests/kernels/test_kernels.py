"""The kernels of all kinds and the xxhash library agree, bit by bit."""

import random
from itertools import groupby, pairwise, product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh64_intdigest

from secure_bloom.kernels import bulk, vectorized
from secure_bloom.kernels.scalar import block_index, block_masks, check_hash
from tests import tiers
from tests.support import COMPILED, EACH_COMPILED, examples, implementation

RANDOM = random.Random(1)
NOISE = np.frombuffer(RANDOM.randbytes(4096), dtype=np.uint8)


@pytest.fixture(params=["numpy", *EACH_COMPILED], scope="module")
def module(request):
    """Kernels of any kind."""
    return implementation(request.param).bulk


@pytest.fixture(params=EACH_COMPILED, scope="module")
def kernels(request):
    """Compiled kernels."""
    return implementation(request.param).bulk


def every_module():
    """Kernels of all kinds that this tier tries."""
    return [implementation(name).bulk for name in ("numpy", *COMPILED)
            if name != "numba" or tiers.tier != "check"]


def hash_binary(module, offsets, data):
    out = np.zeros(len(offsets) - 1, dtype=np.uint64)
    module.hash_binary(offsets, data, out)
    return out.tolist()


def digests(offsets, data):
    raw = data.tobytes()
    return [xxh64_intdigest(raw[a:b]) for a, b in pairwise(offsets)]


def test_every_length_at_every_alignment(module):
    for alignment, length in product(range(8), range(201)):
        offsets = np.array([alignment, alignment + length], dtype=np.int64)
        assert hash_binary(module, offsets, NOISE) == digests(offsets, NOISE), offsets


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("readonly", [False, True])
def test_offsets_of_both_widths(module, kind, readonly):
    offsets = np.array([0, 0, 3, 40, 40, 41, 300, 4096], dtype=kind)
    data = NOISE.copy()
    data.flags.writeable = offsets.flags.writeable = not readonly
    assert hash_binary(module, offsets, data) == digests(offsets, data)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_no_values(module, kind):
    assert hash_binary(module, np.zeros(1, kind), np.empty(0, np.uint8)) == []
    empty = np.empty(0, np.uint64)
    module.hash_fixed(np.empty(0, np.uint8), 16, empty)
    module.hash_words(np.empty(0, np.uint32), empty)
    words = np.zeros((1, 8), np.uint32)
    module.insert_hashes(words, empty)
    module.check_hashes(words, empty, np.empty(0, bool))
    assert not words.any()


def test_empty_strings_of_no_data(module):
    hashes = hash_binary(module, np.zeros(4, np.int32), np.empty(0, np.uint8))
    assert hashes == [xxh64_intdigest(b"")] * 3


def test_values_of_fixed_width(module):
    for width in (1, 2, 3, 7, 8, 12, 16, 31, 32, 33, 63, 64, 100):
        out = np.zeros(len(NOISE) // width, dtype=np.uint64)
        module.hash_fixed(NOISE[:out.size * width], width, out)
        assert out.tolist() == digests(range(0, (out.size + 1) * width, width), NOISE), width


@pytest.mark.parametrize("kind", [np.uint32, np.uint64])
def test_words(module, kind):
    values = np.concatenate([NOISE.view(kind), np.array([0, 1, np.iinfo(kind).max], kind)])
    out = np.zeros(values.size, dtype=np.uint64)
    module.hash_words(values, out)
    assert out.tolist() == [xxh64_intdigest(value.tobytes()) for value in values]


@given(st.lists(st.binary(max_size=150), max_size=20), st.integers(0, 7))
@examples(60)
def test_random_strings(values, alignment):
    data = np.frombuffer(bytes(alignment) + b"".join(values), dtype=np.uint8)
    offsets = np.cumsum([alignment, *map(len, values)], dtype=np.int64)
    expected = [xxh64_intdigest(value) for value in values]
    for module in every_module():
        assert hash_binary(module, offsets, data) == expected


@given(st.integers(1, 300), st.lists(st.integers(0, 2**64 - 1), max_size=300),
       st.lists(st.integers(0, 2**64 - 1), max_size=30))
@examples(60)
def test_random_hashes_give_the_same_filter_and_answers(num_blocks, inserted, asked):
    inserted = np.array(inserted, dtype=np.uint64)
    asked = np.concatenate([np.array(asked, dtype=np.uint64), inserted])
    filters, answers = [], []
    for module in every_module():
        words = np.zeros((num_blocks, 8), np.uint32)
        module.insert_hashes(words, inserted)
        out = np.zeros(asked.size, bool)
        module.check_hashes(words, asked, out)
        filters.append(words.tolist())
        answers.append(out.tolist())
    assert all(found == filters[0] for found in filters)
    assert all(found == answers[0] for found in answers)
    assert answers[0] == [check_hash(words, value) for value in asked.tolist()]
    assert all(answers[0][asked.size - inserted.size:])


def test_the_first_and_the_last_block_are_reached(module):
    for num_blocks, value in [*product((1, 2, 3), (0, 2**32 - 1, 2**63)),
                              *product((1, 2, 3, 2**22), (2**64 - 1,))]:
        words = np.zeros((num_blocks, 8), np.uint32)
        module.insert_hashes(words, np.array([value], np.uint64))
        block = (value >> 32) * num_blocks >> 32
        assert np.bitwise_count(words[block]).tolist() == [1] * 8, (num_blocks, value)
        assert np.count_nonzero(words) == 8, (num_blocks, value)


# --- many values: vectors, batches, look-ahead, threads ------------------------------------------

#: Around whole vectors (64) and batches (128); some batches and a rest.
COUNTS = [1, 63, 64, 65, 127, 128, 129, 256, 5000]
#: One block, an odd number, 1 MiB (the last without look-ahead), more, and no power of two.
SIZES = [1, 3, 200, 2**15, 2**15 + 1, 70_001]


def random_words(count, kind=np.uint64, seed=0):
    return np.random.default_rng(seed).integers(0, np.iinfo(kind).max, count, kind, endpoint=True)


def filter_of(module, num_blocks, method, values):
    words = np.zeros((num_blocks, 8), np.uint32)
    getattr(module, method)(words, values)
    return words


def hashed(module, values):
    out = np.zeros(values.size, np.uint64)
    module.hash_words(values, out)
    return out


def answers(module, words, asked):
    out = np.zeros(asked.size, bool)
    module.check_hashes(words, asked, out)
    return out


@pytest.fixture(params=[1, 3], ids=["one thread", "three threads"])
def threads(request, monkeypatch):
    """So many threads, and no input too small for them."""
    before = pa.cpu_count()
    pa.set_cpu_count(request.param)
    monkeypatch.setattr(bulk, "WORDS", 10)
    monkeypatch.setattr(bulk, "STRINGS", 10)
    yield request.param
    pa.set_cpu_count(before)


def test_words_of_every_count(kernels, threads):
    for count, kind in product(COUNTS, (np.uint32, np.uint64)):
        values = random_words(count, kind)
        assert np.array_equal(hashed(kernels, values), hashed(vectorized, values)), (count, kind)


def test_filters_of_every_size(kernels, threads):
    for count, num_blocks in product(COUNTS, SIZES):
        check_filter_of_size(kernels, count, num_blocks)


def check_filter_of_size(kernels, count, num_blocks):
    values = random_words(count)
    for method, inserted in (("insert_hashes", values), ("insert_words", values),
                             ("insert_words", random_words(count, np.uint32))):
        expected = filter_of(vectorized, num_blocks, method, inserted)
        found = filter_of(kernels, num_blocks, method, inserted)
        assert np.array_equal(found, expected), (count, num_blocks, method)
    asked = np.concatenate([hashed(vectorized, inserted), random_words(count, seed=1)])
    found = answers(kernels, expected, asked)
    assert found[:count].all(), (count, num_blocks)
    assert np.array_equal(found, answers(vectorized, expected, asked)), (count, num_blocks)


def test_threads_add_to_what_a_filter_holds(kernels, threads):
    first, second = random_words(1000), random_words(1000, seed=1)
    words = filter_of(kernels, 7, "insert_hashes", first)
    kernels.insert_hashes(words, second)
    both = np.concatenate([first, second])
    assert np.array_equal(words, filter_of(vectorized, 7, "insert_hashes", both))


MIXED = ([9] * 5000, [0] * 5000, [300] * 40, range(400), [*range(40)] * 250,
         [7, 7, 7, 7, 8, 9] * 900, [0, 1000, 5], [3] * 4096 + [4] * 4096, [255, 256, 257] * 30)


def test_strings_of_mixed_lengths(kernels, threads):
    for lengths, kind in product(MIXED, (np.int32, np.int64)):
        permuted = np.random.default_rng(0).permutation(np.array(lengths))
        offsets = np.cumsum([5, *permuted]).astype(kind)
        data = np.frombuffer(RANDOM.randbytes(offsets[-1]), np.uint8)
        expected, case = digests(offsets, data), (lengths[:6], kind)
        assert hash_binary(kernels, offsets, data) == expected, case
        assert hash_binary(kernels, offsets[3:], data) == expected[3:], case


@given(st.lists(st.integers(0, 70), min_size=1, max_size=12), st.integers(1, 400))
@examples(40)
def test_random_mixes_of_lengths(lengths, count):
    offsets = np.cumsum([0, *random.Random(count).choices(lengths, k=count)])
    data = np.frombuffer(random.Random(0).randbytes(offsets[-1]), np.uint8)
    for module in every_module():
        assert hash_binary(module, offsets, data) == digests(offsets, data)


def test_many_values_of_fixed_width(kernels, threads):
    for width in (1, 4, 12, 16, 33):
        data = np.frombuffer(RANDOM.randbytes(1003 * width), np.uint8)
        out = np.zeros(1003, np.uint64)
        kernels.hash_fixed(data, width, out)
        assert out.tolist() == digests(range(0, data.size + 1, width), data), width


def test_threads_can_be_switched_off(kernels, monkeypatch, threads):
    pools = []

    class Pool(bulk.ThreadPoolExecutor):
        def __init__(self, workers):
            pools.append(workers)
            super().__init__(workers)

    monkeypatch.setattr(bulk, "ThreadPoolExecutor", Pool)
    hashed(kernels, random_words(1000))
    assert pools == ([] if threads == 1 else [threads - 1])
    hashed(kernels, random_words(19))  # too few for two
    assert len(pools) < 2


def test_the_masks_of_a_hash_are_the_bits_that_it_sets():
    hashes = random_words(500)
    words = np.zeros((77, 8), np.uint32)
    np.bitwise_or.at(words, block_index(hashes, 77), block_masks(hashes))
    assert np.array_equal(words, filter_of(vectorized, 77, "insert_hashes", hashes))


@pytest.mark.parametrize("lengths", [
    [9] * 5000, [0] * 5000, [300] * 40, [40] * 9000, [*range(40)] * 250, [255, 256, 257] * 300,
    [7] * 8192 + [8] * 8193 + [3]], ids=lambda value: str(value)[:25])
def test_numpy_hashes_strings_of_any_length(lengths, monkeypatch):
    monkeypatch.setattr(vectorized, "_SORTED", 6000)
    lengths = np.random.default_rng(0).permutation(np.array(lengths))
    offsets = np.cumsum([5, *lengths])
    data = np.frombuffer(RANDOM.randbytes(offsets[-1]), np.uint8)
    assert hash_binary(vectorized, offsets, data) == digests(offsets, data)


@pytest.mark.parametrize("count", [1, 31, 32, 33, 8191, 8192, 8193, 20_000])
@pytest.mark.parametrize("kind", [np.uint32, np.uint64])
def test_numpy_hashes_words_of_every_count(kind, count):
    values = random_words(count, kind)
    assert hashed(vectorized, values).tolist() == [
        xxh64_intdigest(value.tobytes()) for value in values]


@pytest.mark.parametrize("num_blocks", [1, 3, 2**10, 2**13, 2**13 + 1])
@pytest.mark.parametrize("count", [1, 100, 9000, 300_000])
def test_numpy_fills_filters_in_each_way(num_blocks, count):
    values = random_words(count)
    words = filter_of(vectorized, num_blocks, "insert_hashes", values)
    expected = filter_of(implementation(COMPILED[0]).bulk, num_blocks, "insert_hashes", values)
    assert np.array_equal(words, expected)
    assert answers(vectorized, words, values).all()


def numbers(kind, count):
    """Return numbers to sort: random ones, or such that have many bits in common."""
    source = np.random.default_rng(count)
    anything = source.integers(0, 2**64, count, np.uint64)
    if kind == "few different":
        return anything % np.uint64(7)
    if kind == "few groups":  # of different numbers with the same first bits
        return anything % np.uint64(3) << np.uint64(61) | anything >> np.uint64(40)
    if kind == "all equal":
        return np.full(count, 2**64 - 1, np.uint64)
    return {"random": anything, "sorted": np.sort(anything),
            "descending": np.sort(anything)[::-1].copy()}[kind]


@pytest.mark.parametrize("kind", ["random", "sorted", "descending", "few different", "few groups",
                                  "all equal"])
@pytest.mark.parametrize("count", [0, 1, 2, 1023, 1024, 65_536, 65_537, 300_000])
def test_sorting(module, kind, count):
    values = numbers(kind, count)
    expected = np.sort(values)
    module.sort(values)
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("first_bit", [0, 1, 12, 24, 25, 47])
def test_sorting_numbers_whose_first_bits_are_the_same(module, first_bit):
    values = numbers("random", 70_000) >> np.uint64(first_bit)
    if first_bit:
        values |= np.uint64(2**64 - 2**(64 - first_bit))
    expected = np.sort(values)
    module.sort(values, first_bit)
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("runs", [2, 16, 17])
def test_sorting_arrays_that_are_sorted_themselves(module, runs):
    values = np.concatenate([np.sort(part) for part in np.split(numbers("random", 17 * 4096 * runs),
                                                                runs)])
    expected = np.sort(values)
    module.sort(values, runs=runs)
    np.testing.assert_array_equal(values, expected)


def test_the_kernel_says_when_it_has_given_up_and_loses_no_number(kernels):
    values = numbers("few groups", 100_000)
    expected = np.sort(values)
    assert kernels.raw.sort(values, np.empty_like(values), 0) == 1
    np.testing.assert_array_equal(np.sort(values), expected)
    values = numbers("random", 100_000)
    assert kernels.raw.sort(values, np.empty_like(values), 0) == 0


def test_what_cannot_be_sorted_is_refused(kernels):
    for values in (np.zeros(2000, np.int64), np.zeros(4000, np.uint64)[::2],
                   np.frombuffer(bytes(16_000), np.uint64)):
        with pytest.raises(ValueError, match="array"):
            kernels.sort(values)
    with pytest.raises(ValueError, match="bits"):
        kernels.sort(np.zeros(2000, np.uint64), -1)


@pytest.mark.parametrize("kind", ["random", "descending", "few groups", "all equal"])
@pytest.mark.parametrize("count", [0, 1, 70_000])
def test_numbers_are_distributed_by_their_first_bits(module, kind, count):
    values = numbers(kind, count)
    found = np.empty_like(values)
    bounds = module.distribute(values, found)
    np.testing.assert_array_equal(found, values[np.argsort(values >> np.uint64(56), kind="stable")])
    assert bounds.tolist() == [0, *np.searchsorted(
        found >> np.uint64(56), np.arange(256, dtype=np.uint64), "right").tolist()]


def test_pieces_of_memory_are_copied_to_an_array_and_back(module):
    memory = np.zeros(1000, np.uint64)
    bounds = memory.ctypes.data + 8 * np.array([0, 3, 3, 600, 999], np.uint64)
    starts, stops = bounds[[0, 3, 1, 2]], bounds[[1, 4, 2, 3]]  # in any order, one without numbers
    module.scatter(np.arange(1, 901, dtype=np.uint64), starts, stops)
    assert memory.tolist() == [1, 2, 3, *range(403, 901), *[0] * 99, *range(4, 403), 0]
    found = np.empty(999, np.uint64)
    module.gather(starts, stops, found)
    assert found.tolist() == [*range(1, 901), *[0] * 99]
    module.gather(starts[:0], stops[:0], found[:0])


def test_what_does_not_fit_into_pieces_is_refused(kernels):
    numbers = np.zeros(10, np.uint64)
    bounds = numbers.ctypes.data + 8 * np.arange(2, dtype=np.uint64)
    with pytest.raises(ValueError, match="array"):
        kernels.gather(bounds[:1], bounds[1:], numbers)
    with pytest.raises(ValueError, match="more than the pieces"):
        kernels.scatter(numbers, bounds[:1], bounds[1:])


def common_range(*ranges):
    """Return the smallest range around others; the halves of range r are 2 r and 2 r + 1."""
    first, *others = (max(one, 1) for one in ranges)
    for other in others:
        while first != other:
            first, other = min(first, other), max(first, other) >> 1
    return first


@examples(200)
@given(st.lists(st.integers(0, 700), max_size=60), st.integers(0, 6))
def test_pairs_that_differ_in_their_ranges_become_one(values, range_bits):
    values.sort()
    groups = groupby(values, lambda value: value >> range_bits)
    expected = []
    for first, group in groups:
        ranges = [value % (1 << range_bits) for value in group]
        expected.append((first << range_bits) + (
            common_range(*ranges) if len(ranges) > 1 and range_bits else ranges[0]))
    for module in every_module():
        pairs = np.array(values, np.uint64)
        left = module.unite(pairs, range_bits)
        assert pairs[:left].tolist() == expected


@pytest.mark.parametrize("new_bits", range(7))
def test_ranges_with_fewer_bits_are_the_smallest_around_them(new_bits):
    def narrowed(range_):
        while range_ >= 1 << new_bits:
            range_ >>= 1
        return range_

    numbers = [(top << 26) + (place << 6)  # with 64 ranges each, more than a kernel takes at once
               for top in (*range(7), 2**38 - 1) for place in (0, 5, 2**20 - 1)]
    expected = [(one >> 26 << 26) + ((one % 2**26 >> 6) << new_bits) + narrowed(range_)
                for one in numbers for range_ in range(64)]
    for module in every_module():
        pairs = np.array([one + range_ for one in numbers for range_ in range(64)], np.uint64)
        module.narrow(pairs, 26, 6, new_bits)
        assert pairs.tolist() == expected


@pytest.mark.parametrize(("width", "bits"), [
    (1, (0, 4, 4, 26)), (3, (13, 18, 6, 26)), (5, (3, 30, 10, 26)), (8, (1, 37, 26, 26))])
def test_pages_of_an_index_are_those_of_numpy(kernels, width, bits):
    bucket_bits, remainder_bits, place_bits, spare = bits
    page_bits = 64 - bucket_bits - remainder_bits - spare
    anything = np.random.default_rng(1).integers(0, 2**63, 5000, np.uint64) * np.uint64(2)
    pairs = np.sort(anything & ~np.uint64((1 << spare) - (1 << place_bits)))
    numbers = np.arange(1, min(1 << page_bits, 300), dtype=np.uint64)
    starts = np.concatenate([[0], np.searchsorted(pairs, numbers << np.uint64(64 - page_bits)),
                             [pairs.size]])
    found, ends = kernels.encode_pages(pairs, starts, width, *bits)
    expected, expected_ends = vectorized.encode_pages(pairs, starts, width, *bits)
    assert found.tobytes() == expected.tobytes() and ends.tolist() == expected_ends.tolist()


def test_pages_that_cannot_be_encoded_are_refused(kernels):
    pairs = np.arange(10, dtype=np.uint64)
    for starts, width in [([0, 11], 3), ([1, 10], 3), ([0, 7, 5, 10], 3), ([0, 10], 9),
                          ([0, 10], 0)]:
        with pytest.raises(ValueError, match="pages"):
            kernels.encode_pages(pairs, np.array(starts), width, 1, 4, 4, 26)
    with pytest.raises(ValueError, match="array"):
        kernels.unite(np.zeros(20, np.uint64)[::2], 6)
