"""The numba kernels, their plain twins and the xxhash library give the same results."""

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh64_intdigest

from secure_bloom import kernels, plain
from tests.support import examples

BOTH = pytest.mark.parametrize("module", [plain, kernels], ids=["plain", "numba"])
RANDOM = random.Random(1)
NOISE = np.frombuffer(RANDOM.randbytes(4096), dtype=np.uint8)


def hash_binary(module, offsets, data):
    out = np.zeros(len(offsets) - 1, dtype=np.uint64)
    module.hash_binary(offsets, data, out)
    return out.tolist()


def digests(offsets, data):
    raw = data.tobytes()
    return [xxh64_intdigest(raw[a:b]) for a, b in pairwise(offsets)]


@BOTH
@pytest.mark.parametrize("alignment", range(8))
def test_every_length_at_every_alignment(module, alignment):
    for length in range(201):
        offsets = np.array([alignment, alignment + length], dtype=np.int64)
        assert hash_binary(module, offsets, NOISE) == digests(offsets, NOISE), length


@BOTH
@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("readonly", [False, True])
def test_offsets_of_both_widths(module, kind, readonly):
    offsets = np.array([0, 0, 3, 40, 40, 41, 300, 4096], dtype=kind)
    data = NOISE.copy()
    data.flags.writeable = offsets.flags.writeable = not readonly
    assert hash_binary(module, offsets, data) == digests(offsets, data)


@BOTH
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


@BOTH
def test_empty_strings_of_no_data(module):
    hashes = hash_binary(module, np.zeros(4, np.int32), np.empty(0, np.uint8))
    assert hashes == [xxh64_intdigest(b"")] * 3


@BOTH
@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 12, 16, 31, 32, 33, 63, 64, 100])
def test_values_of_fixed_width(module, width):
    out = np.zeros(len(NOISE) // width, dtype=np.uint64)
    module.hash_fixed(NOISE[:out.size * width], width, out)
    assert out.tolist() == digests(range(0, (out.size + 1) * width, width), NOISE)


@BOTH
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
    assert hash_binary(plain, offsets, data) == expected
    assert hash_binary(kernels, offsets, data) == expected


@given(st.integers(1, 300), st.lists(st.integers(0, 2**64 - 1), max_size=300),
       st.lists(st.integers(0, 2**64 - 1), max_size=30))
@examples(60)
def test_random_hashes_give_the_same_filter_and_answers(num_blocks, inserted, asked):
    inserted = np.array(inserted, dtype=np.uint64)
    asked = np.concatenate([np.array(asked, dtype=np.uint64), inserted])
    filters, answers = [], []
    for module in (plain, kernels):
        words = np.zeros((num_blocks, 8), np.uint32)
        module.insert_hashes(words, inserted)
        out = np.zeros(asked.size, bool)
        module.check_hashes(words, asked, out)
        filters.append(words.tolist())
        answers.append(out.tolist())
    assert filters[0] == filters[1]
    assert answers[0] == answers[1]
    assert all(answers[0][asked.size - inserted.size:])


@BOTH
@pytest.mark.parametrize("num_blocks", [1, 2, 3, 2**22])
@pytest.mark.parametrize("value", [0, 2**32 - 1, 2**63, 2**64 - 1])
def test_the_first_and_the_last_block_are_reached(module, num_blocks, value):
    words = np.zeros((num_blocks, 8), np.uint32)
    module.insert_hashes(words, np.array([value], np.uint64))
    block = (value >> 32) * num_blocks >> 32
    assert np.bitwise_count(words[block]).tolist() == [1] * 8
    assert np.count_nonzero(words) == 8
