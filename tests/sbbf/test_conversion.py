"""Probe values that are converted to the type of a column: exactly, or not at all."""

import decimal

import numpy as np
import pyarrow as pa
import pytest

from secure_bloom.errors import UnsupportedError
from secure_bloom.sbbf.arrow_types import column_type_of
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.sbbf.conversion import convert_exactly
from secure_bloom.sbbf.options import BloomFilterOptions, normalize_options
from secure_bloom.sbbf.probes import as_arrays, value_hashes
from secure_bloom.sbbf.sizing import false_positive_deviation

DATE64 = ColumnType("INT64", 0, pa.date64())  # Lance stores it as it is
MILLIS_PER_DAY = 86_400_000


def test_days_become_milliseconds_and_back():
    days = pa.array([-1, 0, 1, None, 18_263], pa.int32()).view(pa.date32())
    millis = pa.array([None if day is None else day * MILLIS_PER_DAY
                       for day in (-1, 0, 1, None, 18_263)], pa.int64()).view(pa.date64())
    assert convert_exactly(days, DATE64).equals(millis)
    assert convert_exactly(millis, column_type_of(pa.date32())).equals(days)


@pytest.mark.parametrize(("unit", "source", "target"), [
    (MILLIS_PER_DAY, pa.date64(), pa.date32()), (1_000, pa.time64("us"), pa.time32("ms"))])
def test_days_and_times_that_32_bits_cannot_hold_are_unknown(unit, source, target):
    values = pa.array([unit * number for number in (-2**31 - 1, 2**31)]).view(source)
    assert convert_exactly(values, column_type_of(target)).null_count == 2


@pytest.mark.parametrize(("array", "target"), [
    (pa.array([1], pa.int32()), pa.string()),
    (pa.array(["1"]), pa.int64()),
])
def test_values_of_another_kind_are_unknown(array, target):
    assert convert_exactly(array, column_type_of(target)).to_pylist() == [None]


def test_decimals_with_more_digits_than_arrow_has_are_unknown():
    wide = pa.array([decimal.Decimal(1)], pa.decimal256(76, 0))
    assert convert_exactly(wide, column_type_of(pa.decimal256(40, 30))).to_pylist() == [None]


# --- values as they are passed -------------------------------------------------------------------

def test_arrays_of_a_kind_that_arrow_refuses_are_taken():
    [found] = as_arrays(np.array(7))
    assert found.to_pylist() == [7]
    [found] = as_arrays(np.array([1, 2], ">i4"))
    assert found.to_pylist() == [1, 2]


# --- options -------------------------------------------------------------------------------------

def test_all_columns_can_be_chosen_only_where_they_are_known():
    assert normalize_options(True, ["a"]) == {"a": BloomFilterOptions()}
    with pytest.raises(UnsupportedError, match="name them"):
        normalize_options(True, None)


def test_an_overfull_filter_does_not_vary():
    assert false_positive_deviation(1, 10**9) == 0.0 < false_positive_deviation(10, 100)


# --- hashes with the positions of their values ---------------------------------------------------

INT64, DOUBLE = column_type_of(pa.int64()), column_type_of(pa.float64())


def positions(values, column_type):
    found = value_hashes(values, column_type)
    return dict(zip(found.hashes.tolist(), found.numbers.tolist(), strict=True)), \
        found.unknown.tolist()


def hash_of(value, column_type) -> int:
    [only] = value_hashes(value, column_type).hashes.tolist()
    return only


@pytest.mark.parametrize("chunks", [[[1, 2, 3]], [[1], [2, 3]], [[1], [], [2], [3]], [[]], []])
def test_values_in_several_arrays_keep_their_positions(chunks):
    values = pa.chunked_array(chunks, pa.int64())
    expected = {hash_of(value, INT64): place for place, value in enumerate(values.to_pylist())}
    assert positions(values, INT64) == (expected, [])


def test_a_zero_has_the_hashes_of_both_zeros():
    found = value_hashes(pa.array([1.0, 0.0, 2.0, -0.0]), DOUBLE)
    assert set(found.numbers.tolist()) == {0, 1, 2, 3} and not found.unknown.size
    of_first, of_second = (set(found.hashes[found.numbers == place].tolist()) for place in (1, 3))
    assert of_first == of_second and len(of_first) == 2


def test_values_without_an_answer_are_unknown_at_their_positions():
    values = pa.chunked_array([[1.0, float("nan")], [float("nan"), 2.0]])
    found, unknown = positions(values, DOUBLE)
    assert found == {hash_of(1.0, DOUBLE): 0, hash_of(2.0, DOUBLE): 3} and unknown == [1, 2]
