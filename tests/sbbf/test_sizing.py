"""Sizes against the figures of the specification, and against the sum that defines them."""

from decimal import Decimal
from math import exp, factorial, lgamma, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_bloom.sbbf.sizing import (
    MAX_BLOCKS,
    false_positive_probability,
    num_blocks_for,
    num_blocks_in_lance,
)
from tests.support import examples


@pytest.mark.parametrize(("ndv", "percent", "digits"),
                         [(26_214, 1.26, 2), (52_428, 18, 0), (13_107, 0.04, 2)])
def test_probabilities_of_the_specification_for_1024_blocks(ndv, percent, digits):
    assert round(100 * false_positive_probability(1024, ndv), digits) == percent


@pytest.mark.parametrize(("fpp", "bits"),
                         [(0.1, 6.0), (0.01, 10.5), (0.001, 16.9), (0.0001, 26.4), (0.00001, 41)])
def test_bits_per_value_of_the_specification(fpp, bits):
    ndv = 1_000_000
    got = num_blocks_for(ndv, fpp, power_of_two=False) * 256 / ndv
    assert got == pytest.approx(bits, rel=0.01)


@pytest.mark.parametrize(("blocks", "ndv"), [(1, 1), (1, 40), (2, 3), (3, 50), (100, 3)])
def test_probability_is_the_sum_over_poisson_loads(blocks, ndv):
    mean = Decimal(ndv) / blocks
    total = sum(mean**load / factorial(load) * (1 - (Decimal(31) / 32)**load)**8
                for load in range(1, 200)) * (-mean).exp()
    assert false_positive_probability(blocks, ndv) == pytest.approx(float(total), rel=1e-9)


def test_probability_at_its_ends():
    assert false_positive_probability(1, 0) == 0.0
    assert false_positive_probability(1, 10**9) == 1.0
    assert false_positive_probability(1, 750) == pytest.approx(1.0, abs=1e-8)
    assert 0 < false_positive_probability(MAX_BLOCKS, 1) < 1e-11


@given(st.integers(1, 10**7), st.floats(1e-6, 0.9))
@examples(40)
def test_the_exact_number_of_blocks_is_the_smallest(ndv, fpp):
    blocks = num_blocks_for(ndv, fpp, power_of_two=False)
    assert false_positive_probability(blocks, ndv) <= fpp or blocks == MAX_BLOCKS
    assert blocks == 1 or false_positive_probability(blocks - 1, ndv) > fpp


@given(st.integers(0, 10**7), st.floats(1e-6, 0.9))
@examples(40)
def test_powers_of_two_are_rounded_up_from_the_exact_number(ndv, fpp):
    exact = num_blocks_for(ndv, fpp, power_of_two=False)
    assert num_blocks_for(ndv, fpp) == 1 << (exact - 1).bit_length()


@pytest.mark.parametrize(("power_of_two", "max_blocks", "expected"),
                         [(True, 1, 1), (True, 200, 128), (True, 256, 256), (False, 200, 200),
                          (True, MAX_BLOCKS, MAX_BLOCKS), (False, MAX_BLOCKS, MAX_BLOCKS)])
def test_the_upper_bound_holds(power_of_two, max_blocks, expected):
    assert num_blocks_for(10**9, 0.001, power_of_two=power_of_two,
                          max_blocks=max_blocks) == expected


def test_no_values_need_one_block():
    assert num_blocks_for(0, 0.01) == num_blocks_for(1, 0.01) == 1


@pytest.mark.parametrize("fpp", [0, 1, -0.1, 1.5, float("nan")])
def test_impossible_probabilities_are_refused(fpp):
    with pytest.raises(ValueError, match="fpp"):
        num_blocks_for(10, fpp)


# --- Lance ---------------------------------------------------------------------------------------

@pytest.mark.parametrize(("items", "probability", "num_bytes"), [
    (8192, 0.00057, 32_768),  # its defaults
    (1, 0.5, 32), (10**9, 0.001, 2**27)])  # its smallest and its largest filter
def test_sizes_that_lance_documents(items, probability, num_bytes):
    assert num_blocks_in_lance(items, probability) * 32 == num_bytes


def _log2_bytes_in_lance(items, probability):
    """As Lance's documentation has it: the smallest log2 of bytes, by 750 terms of the sum."""
    for log2_bytes in range(5, 27):
        bits = 8.0 * 2**log2_bytes
        mean = 256 * items / bits
        total = sum(exp(i * log(mean) - mean - lgamma(i + 1) + 8 * log(1 - (31 / 32)**i))
                    for i in range(1, 750))
        if items <= 2 * bits and min(1.0, total) <= probability:
            return log2_bytes
    return 27


@given(st.integers(1, 10**8), st.one_of(st.floats(1e-12, 0.999), st.floats(1, 12).map(
    lambda nines: 1 - 10**-nines)))
@examples(30)
def test_sizes_are_those_of_lances_algorithm(items, probability):
    assert num_blocks_in_lance(items, probability) * 32 == 2**_log2_bytes_in_lance(items,
                                                                                   probability)


def test_impossible_counts_are_refused():
    with pytest.raises(ValueError, match="ndv"):
        num_blocks_for(-1, 0.01)
    for blocks in (0, -1, MAX_BLOCKS + 1):
        with pytest.raises(ValueError, match="blocks"):
            false_positive_probability(blocks, 1)
        with pytest.raises(ValueError, match="blocks"):
            num_blocks_for(1, 0.01, max_blocks=blocks)
