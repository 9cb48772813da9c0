"""The split-block Bloom filter, with compiled kernels and with numpy."""

import contextlib
import datetime
import decimal
import math
import pickle
import uuid

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh64_intdigest

from secure_bloom import SplitBlockBloomFilter
from secure_bloom.errors import ColumnError
from secure_bloom.sbbf.arrow_types import column_type_of
from secure_bloom.sbbf.sizing import MAX_BLOCKS, MAX_BYTES, false_positive_probability
from tests.cases import for_each
from tests.support import IMPLEMENTATIONS, examples, run_python, use_implementation

# BloomFilter.md, "Technical Approach"
SALTS = [0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d, 0x705495c7, 0x2df1424b, 0x9efc4947,
         0x5c6bfb31]

HASHES = st.lists(st.integers(0, 2**64 - 1), max_size=60)


@pytest.fixture(scope="module", params=IMPLEMENTATIONS, autouse=True)
def implementation(request):
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield use_implementation(monkeypatch, request.param)


def filter_of(hashes, num_blocks=1) -> SplitBlockBloomFilter:
    filter_ = SplitBlockBloomFilter(num_blocks)
    filter_.insert_hashes(hashes)
    return filter_


def typed(arrow_type, *values, num_blocks=64) -> SplitBlockBloomFilter:
    filter_ = SplitBlockBloomFilter(num_blocks, column_type=column_type_of(arrow_type))
    filter_.insert(pa.array(values, arrow_type))
    return filter_


def random_hashes(count, seed=0):
    return np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64)


# --- bits ----------------------------------------------------------------------------------------

def expected_bitset(hashes, num_blocks) -> bytes:
    """The algorithm of the specification, step by step, in plain integers."""
    words = [0] * (8 * num_blocks)
    for value in hashes:
        block = ((value >> 32) * num_blocks) >> 32
        for i, salt in enumerate(SALTS):
            words[8 * block + i] |= 1 << (((value & 0xffffffff) * salt & 0xffffffff) >> 27)
    return b"".join(word.to_bytes(4, "little") for word in words)


@given(HASHES, st.integers(1, 40))
@examples(50)
def test_bits_are_those_of_the_specification(hashes, num_blocks):
    assert bytes(filter_of(hashes, num_blocks).bitset) == expected_bitset(hashes, num_blocks)


def test_block_known_answer():
    """Key 1: each word has bit (salt >> 27)."""
    words = np.frombuffer(filter_of([1]).bitset, "<u4").tolist()
    assert words == [1 << bit for bit in (8, 8, 17, 20, 14, 5, 19, 11)]
    key = xxh64_intdigest(b"known answer")
    assert bytes(filter_of(key).bitset) == expected_bitset([key], 1)


@pytest.mark.slow
@pytest.mark.parametrize("num_blocks", [1, 2, 3, 200, 1024, MAX_BLOCKS])
def test_inserted_hashes_are_found_at_every_size(num_blocks):
    hashes = random_hashes(500)
    filter_ = filter_of(hashes, num_blocks)
    assert filter_.check_hashes(hashes).all()
    assert (filter_.num_blocks, filter_.num_bytes) == (num_blocks, 32 * num_blocks)


@pytest.mark.parametrize(("num_blocks", "per_block", "rate"),
                         [(1024, 25.6, 0.0126), (1024, 51.2, 0.18), (200, 25.6, 0.0126),
                          (3, 12.8, 0.0004), (4096, 25.6, 0.0126)])
def test_false_positive_rate_is_what_was_promised(num_blocks, per_block, rate):
    count, probes = int(num_blocks * per_block), 400_000
    filter_ = filter_of(random_hashes(count), num_blocks)
    measured = filter_.check_hashes(random_hashes(probes, seed=1)).mean()
    expected = false_positive_probability(num_blocks, count)
    assert expected == pytest.approx(rate, rel=0.05)
    few_blocks = 2 if num_blocks < 10 else 0.1
    assert measured == pytest.approx(expected, rel=few_blocks, abs=4 * math.sqrt(rate / probes))
    assert measured == pytest.approx(filter_.expected_fpp(), rel=0.1, abs=4e-4)


@pytest.mark.parametrize("hashes", [[2**63, 5], (5, 2**63), iter([5, 2**63]), np.uint64(2**63), 5,
                                    np.array([5, -1]), np.arange(20, dtype=np.uint64)[::2],
                                    np.array([[1, 2], [3, 4]], np.uint64)])
def test_hashes_come_in_many_forms(hashes):
    hashes = list(hashes) if hasattr(hashes, "__next__") else hashes
    filter_ = filter_of(hashes, 8)
    wanted = [int(h) % 2**64 for h in np.atleast_1d(np.array(hashes, dtype=object)).ravel()]
    assert bytes(filter_.bitset) == expected_bitset(wanted, 8)
    assert filter_.check_hashes(hashes).tolist() == [True] * len(wanted)


@pytest.mark.parametrize(("hashes", "error"), [([1.5], TypeError), (["a"], TypeError),
                                               (np.array([1.5]), TypeError), ([-1], OverflowError),
                                               ([2**64], OverflowError)])
def test_what_is_no_hash_is_refused(hashes, error):
    with pytest.raises(error):
        SplitBlockBloomFilter().insert_hashes(hashes)


# --- bitset, merge, fold -------------------------------------------------------------------------

@given(HASHES, st.integers(1, 20))
@examples(30)
def test_a_bitset_makes_the_same_filter_again(hashes, num_blocks):
    filter_ = filter_of(hashes, num_blocks)
    for bitset in (filter_.bitset, bytes(filter_.bitset), bytearray(filter_.bitset)):
        again = SplitBlockBloomFilter.from_bitset(bitset)
        assert again == filter_
    assert pickle.loads(pickle.dumps(filter_)) == filter_


def test_a_bitset_is_copied_in_and_read_only_out():
    source = bytearray(64)
    filter_ = SplitBlockBloomFilter.from_bitset(source)
    source[0] = 255
    filter_.insert_hashes([7])
    assert filter_ == filter_of([7], 2)
    assert filter_.bitset.readonly
    assert filter_.bitset.nbytes == 64


@pytest.mark.parametrize("size", [0, 1, 31, 33, 48, MAX_BYTES + 32])
def test_a_bitset_of_another_size_is_refused(size):
    with pytest.raises(ValueError, match="multiple of 32"):
        SplitBlockBloomFilter.from_bitset(np.empty(size, np.uint8))


@pytest.mark.parametrize("num_blocks", [0, -1, MAX_BLOCKS + 1])
def test_a_filter_of_another_size_is_refused(num_blocks):
    with pytest.raises(ValueError, match="blocks"):
        SplitBlockBloomFilter(num_blocks)


@given(HASHES, HASHES, st.integers(1, 20))
@examples(30)
def test_merge_is_the_union(left, right, num_blocks):
    merged = filter_of(left, num_blocks)
    merged.merge(filter_of(right, num_blocks))
    assert merged == filter_of(left + right, num_blocks)


def test_merge_needs_equal_size_and_type():
    with pytest.raises(ValueError, match="fold"):
        SplitBlockBloomFilter(2).merge(SplitBlockBloomFilter(4))
    with pytest.raises(ValueError, match="INT32"):
        typed(pa.int64(), 1).merge(typed(pa.int32(), 1))
    untyped = SplitBlockBloomFilter(64)
    untyped.merge(typed(pa.int32(), 1))
    assert untyped.column_type == column_type_of(pa.int32())
    assert untyped.check(1) is True


@given(HASHES, st.sampled_from([1, 2, 3, 12, 64, 200, 210]))
@examples(30)
def test_fold_is_the_filter_of_the_smaller_size(hashes, num_blocks):
    filter_ = filter_of(hashes, num_blocks)
    for divisor in (d for d in range(1, num_blocks + 1) if num_blocks % d == 0):
        assert filter_.fold(divisor) == filter_of(hashes, divisor)
    if num_blocks % 2 == 0:
        assert filter_.fold() == filter_of(hashes, num_blocks // 2)
    assert filter_ == filter_of(hashes, num_blocks)  # not changed


@pytest.mark.slow
def test_fold_of_the_largest_filter():
    hashes = random_hashes(1000)
    assert filter_of(hashes, MAX_BLOCKS).fold(64) == filter_of(hashes, 64)


def test_fold_keeps_the_type():
    folded = typed(pa.int32(), 1, 2, 3).fold(1)
    assert folded.check([1, 2, 3]).all()
    assert folded.column_type == column_type_of(pa.int32())


@pytest.mark.parametrize("num_blocks", [0, -1, -3, 5, 12, 24])
def test_fold_needs_a_divisor(num_blocks):
    with pytest.raises(ValueError, match="folded"):
        SplitBlockBloomFilter(6).fold(num_blocks)


def test_one_block_and_two_wishes_cannot_be_folded():
    with pytest.raises(ValueError, match="folded"):
        SplitBlockBloomFilter(1).fold()
    with pytest.raises(ValueError, match="not both"):
        SplitBlockBloomFilter(2).fold(1, fpp=0.1)
    with pytest.raises(ValueError, match="fpp"):
        SplitBlockBloomFilter(2).fold(fpp=1.0)


@pytest.mark.parametrize("fpp", [0.5, 0.1, 0.01, 0.001])
def test_fold_to_a_probability_is_as_small_as_can_be(fpp):
    filter_ = filter_of(random_hashes(1000), 1024)
    folded = filter_.fold(fpp=fpp)
    assert folded.expected_fpp() <= fpp < folded.fold().expected_fpp()
    assert folded == filter_.fold(folded.num_blocks)


def test_fold_to_a_probability_at_its_ends():
    assert SplitBlockBloomFilter(1024).fold(fpp=0.01).num_blocks == 1
    assert SplitBlockBloomFilter(24).fold(fpp=0.01).num_blocks == 3
    full = filter_of(random_hashes(2000), 4)
    assert full.fold(fpp=0.001) == full


def test_sized():
    assert SplitBlockBloomFilter.sized(ndv=26_214, fpp=0.0127).num_blocks == 1024
    exact = SplitBlockBloomFilter.sized(ndv=5000, fpp=0.01, power_of_two=False)
    assert false_positive_probability(exact.num_blocks, 5000) <= 0.01
    assert exact.num_blocks.bit_count() > 1


def test_expected_fpp_of_empty_and_full():
    assert SplitBlockBloomFilter(4).expected_fpp() == 0.0
    assert SplitBlockBloomFilter.from_bitset(b"\xff" * 64).expected_fpp() == 1.0
    assert SplitBlockBloomFilter.from_bitset(b"\xff" * 32 + bytes(32)).expected_fpp() == 0.5


# --- values --------------------------------------------------------------------------------------

def test_the_first_values_decide_the_type():
    filter_ = SplitBlockBloomFilter(8)
    filter_.insert(5)
    assert str(filter_.column_type) == "INT64 int64"
    assert filter_ == filter_of(xxh64_intdigest((5).to_bytes(8, "little")), 8)
    assert filter_.check(pa.array([5], pa.int32())).tolist() == [True]


def test_int32_and_int64_hash_differently():
    narrow, wide = typed(pa.int32(), 5), typed(pa.int64(), 5)
    assert narrow != wide
    for filter_ in (narrow, wide):
        for probe in (5, np.int16(5), pa.scalar(5, pa.uint64()), np.uint8(5)):
            assert filter_.check(probe) is True
        assert filter_.check(6) is False


@pytest.mark.parametrize(("arrow_type", "value", "absent"), [
    (pa.string(), "Rome", "Oslo"),
    (pa.binary(), b"Rome", b"Oslo"),
    (pa.float64(), 1.5, 2.5),
    (pa.date32(), datetime.date(2020, 2, 29), datetime.date(2020, 3, 1)),
    (pa.timestamp("us"), datetime.datetime(2020, 2, 29, 1), datetime.datetime(2020, 2, 29, 2)),
    (pa.decimal128(9, 2), decimal.Decimal("1.50"), decimal.Decimal("1.51")),
    (pa.time64("us"), datetime.time(1, 2, 3), datetime.time(1, 2, 4)),
    (pa.binary(16), uuid.UUID(int=1), uuid.UUID(int=2)),
])
def test_scalars_and_arrays_get_the_same_answers(arrow_type, value, absent):
    filter_ = SplitBlockBloomFilter(64, column_type=column_type_of(arrow_type))
    filter_.insert(value)
    assert filter_.check(value) is True
    assert filter_.check(absent) is False
    assert filter_.check([value, absent, None]).tolist() == [True, False, True]
    assert filter_.check((absent, value)).tolist() == [False, True]
    if not isinstance(value, uuid.UUID):
        array = pa.array([absent, value, None], arrow_type)
        assert filter_.check(array).tolist() == [False, True, True]
        assert filter_.check(pa.chunked_array([array, array[:1]])).tolist() \
            == [False, True, True, False]
        assert filter_.check(array[0]) is False
        assert filter_.check(array.dictionary_encode()).tolist() == [False, True, True]


@for_each("arrow_type", [
    None, pa.int8(), pa.uint8(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64(), pa.float32(),
    pa.float64(), pa.string(), pa.binary(), pa.binary(4), pa.date32(), pa.decimal128(9, 2)])
@for_each("value", [
    0, 5, -1, 127, -128, 128, 255, 256, 2**31, -2**31, 2**32 - 1, 2**63 - 1, -2**63, 2**63, 2**64,
    True, 1.5, 0.0, -0.0, float("nan"), float("inf"), "", "Rome", "naïve", "\ud800", b"", b"Rome"])
def test_a_value_alone_is_answered_as_in_company(arrow_type, value):
    """Plain values take a shorter way, without Arrow."""
    column_type = arrow_type and column_type_of(arrow_type)
    for held in ([], [value]):
        filter_ = SplitBlockBloomFilter(64, column_type=column_type)
        with contextlib.suppress(ColumnError):
            filter_.insert(held)
        if column_type is None and value is True:  # there are no filters of bool
            with pytest.raises(ColumnError):
                filter_.check(value)
        else:
            assert [filter_.check(value)] == filter_.check([value]).tolist()


def test_numpy_arrays_and_empty_input():
    filter_ = SplitBlockBloomFilter(64)
    filter_.insert(np.arange(10))
    assert filter_.check(np.arange(8, 12)).tolist() == [True, True, False, False]
    for nothing in ([], (), np.empty(0, np.int64), pa.array([], pa.int64()),
                    pa.chunked_array([], pa.int64())):
        answers = filter_.check(nothing)
        assert answers.tolist() == []
        assert answers.dtype == bool


def test_text_is_one_value():
    filter_ = typed(pa.string(), "abc")
    assert filter_.check("abc") is True
    assert filter_.check("a") is False
    assert filter_.check(bytearray(b"abc")) is True
    assert filter_.check(memoryview(b"a")) is False


def test_nulls_are_not_inserted_and_never_denied():
    filter_ = typed(pa.int64(), None, None)
    filter_.insert(None)
    filter_.insert(pa.nulls(3))
    null_in_dictionary = pa.array([None], pa.int64())
    filter_.insert(pa.DictionaryArray.from_arrays(pa.array([0, None]), null_in_dictionary))
    assert filter_ == SplitBlockBloomFilter(64)
    assert filter_.check(None) is True
    assert filter_.check([1, None]).tolist() == [False, True]


@pytest.mark.parametrize("arrow_type", [pa.float16(), pa.float32(), pa.float64()])
def test_both_zeros_and_nan(arrow_type):
    kind = arrow_type.to_pandas_dtype()
    for stored in (0.0, -0.0):
        filter_ = SplitBlockBloomFilter(64)
        filter_.insert(pa.array(np.array([stored], kind)))
        assert filter_.check(pa.array(np.array([0.0, -0.0, 1.0, np.nan], kind))).tolist() \
            == [True, True, False, True]
        assert filter_.check(-stored) is True
    empty = SplitBlockBloomFilter(1, column_type=column_type_of(arrow_type))
    assert empty.check([0.0, -0.0, float("nan")]).tolist() == [False, False, True]


@pytest.mark.parametrize("value", [5, 5.0, "Rome", b"Rome", [5, 6], np.int32(5), pa.array([5]),
                                   datetime.date(2020, 1, 1), [None, 5]], ids=range(9))
def test_a_filter_of_values_of_an_unknown_type_answers_only_hashes(value):
    """5 as INT32 is there, and no check for 5 may say that it is not."""
    filter_ = SplitBlockBloomFilter.from_bitset(typed(pa.int32(), 5).bitset)
    for use in (filter_.check, filter_.insert):
        with pytest.raises(ColumnError, match="column_type"):
            use(value)
    assert filter_ == typed(pa.int32(), 5) and filter_.column_type is None
    assert filter_.check_hashes(xxh64_intdigest((5).to_bytes(4, "little"))).all()
    assert filter_.check(None) is True


@pytest.mark.parametrize("column_type", [pa.int32(), column_type_of(pa.int32())], ids=str)
def test_the_type_of_a_bitset_is_given_by_column_or_arrow_type(column_type):
    bitset = typed(pa.int32(), 5).bitset
    filter_ = SplitBlockBloomFilter.from_bitset(bitset, column_type=column_type)
    assert filter_.check([5, 6]).tolist() == [True, False]
    for empty in (SplitBlockBloomFilter(64, column_type=column_type),
                  SplitBlockBloomFilter.sized(ndv=9, column_type=column_type)):
        assert empty.column_type == column_type_of(pa.int32())


def test_a_filter_whose_hashes_came_without_type_takes_no_values():
    filter_ = filter_of([1], 64)
    for use in (filter_.check, filter_.insert):
        with pytest.raises(ColumnError, match="unknown type"):
            use(5)


def test_filters_of_known_and_of_unknown_values_are_not_merged():
    """The merged filter would answer for the known type, and deny what the other one holds."""
    known, unknown = typed(pa.int64(), 7), SplitBlockBloomFilter.from_bitset(
        typed(pa.int32(), 5).bitset)
    for one, other in ((known, unknown), (unknown, known),
                       (SplitBlockBloomFilter(64, column_type=pa.int64()), unknown)):
        before = bytes(one.bitset)
        with pytest.raises(ValueError, match="unknown"):
            one.merge(other)
        assert bytes(one.bitset) == before
    known.merge(SplitBlockBloomFilter(64))  # empty
    assert known.check([7, 8]).tolist() == [True, False]
    unknown.merge(filter_of([1], 64))
    assert unknown.check_hashes([1]).all() and unknown.column_type is None


def test_an_empty_filter_without_type_denies_what_it_can():
    assert SplitBlockBloomFilter().check(5) is False
    assert SplitBlockBloomFilter().check(None) is True


@pytest.mark.parametrize("values", ["text", 1.5, 2**63, [1, "a"], True, -2**31 - 1])
def test_values_that_do_not_fit_cannot_be_inserted_and_are_never_denied(values):
    filter_ = SplitBlockBloomFilter(64, column_type=column_type_of(pa.int32()))
    with pytest.raises(ColumnError):
        filter_.insert(values)
    assert filter_ == SplitBlockBloomFilter(64)
    answers = filter_.check(values)
    assert answers is True if np.ndim(values) == 0 else answers[1]


def test_an_unsigned_value_does_not_wrap_around():
    with pytest.raises(ColumnError):
        typed(pa.int64(), 1).insert(pa.array([2**63], pa.uint64()))
    with pytest.raises(ColumnError):
        typed(pa.uint64(), 1).insert(-1)


@pytest.mark.parametrize("value", [object(), [[1]], 2**70, True])
def test_values_of_no_column_type_cannot_be_inserted(value):
    with pytest.raises(ColumnError):
        SplitBlockBloomFilter().insert(value)


# --- what it shows, what it imports --------------------------------------------------------------

def test_repr_shows_no_values():
    filter_ = typed(pa.string(), "secret")
    assert repr(filter_) == "<SplitBlockBloomFilter 64 blocks, 2048 bytes, BYTE_ARRAY string>"
    assert repr(SplitBlockBloomFilter(3)) == "<SplitBlockBloomFilter 3 blocks, 96 bytes>"


def test_filters_compare_by_their_bits():
    assert filter_of([1], 2) == filter_of([1], 2) != filter_of([2], 2)
    assert filter_of([1], 2) != filter_of([1], 1)
    assert filter_of([1]) != "filter"
    with pytest.raises(TypeError, match="unhashable"):
        hash(filter_of([1]))


@pytest.mark.parametrize(("code", "absent"), [
    ("import secure_bloom", ("numba", "pyspark", "pyarrow", "numpy")),
    ("import secure_bloom; secure_bloom.SplitBlockBloomFilter().check(5)",
     ("numba", "pyspark", "pandas", "pyarrow.compute")),
])
def test_imports_are_few(implementation, code, absent):
    loaded = run_python(f"import sys; {code}; print(*sys.modules)").split()
    assert "secure_bloom" in loaded
    assert not set(absent) & set(loaded)
