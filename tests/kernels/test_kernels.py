"""The numba kernels, their plain twins and the xxhash library give the same results."""

import random
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh64_intdigest

import secure_bloom
from secure_bloom.kernels import bulk as kernels
from secure_bloom.kernels import scalar as plain
from secure_bloom.kernels.compiling import KERNELS
from secure_bloom.parquet import footer_kernels
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
    assert answers[0] == [plain.check_hash(words, value) for value in asked.tolist()]
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
    monkeypatch.setattr(kernels, "WORDS", 10)
    monkeypatch.setattr(kernels, "STRINGS", 10)
    yield request.param
    pa.set_cpu_count(before)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("kind", [np.uint32, np.uint64])
def test_words_of_every_count(count, kind, threads):
    values = random_words(count, kind)
    assert np.array_equal(hashed(kernels, values), hashed(plain, values))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("num_blocks", SIZES)
def test_filters_of_every_size(count, num_blocks, threads):
    values = random_words(count)
    for method, inserted in (("insert_hashes", values), ("insert_words", values),
                             ("insert_words", random_words(count, np.uint32))):
        expected = filter_of(plain, num_blocks, method, inserted)
        assert np.array_equal(filter_of(kernels, num_blocks, method, inserted), expected)
    asked = np.concatenate([hashed(plain, inserted), random_words(count, seed=1)])
    found = answers(kernels, expected, asked)
    assert found[:count].all()
    assert np.array_equal(found, answers(plain, expected, asked))


def test_threads_add_to_what_a_filter_holds(threads):
    first, second = random_words(1000), random_words(1000, seed=1)
    words = filter_of(kernels, 7, "insert_hashes", first)
    kernels.insert_hashes(words, second)
    both = np.concatenate([first, second])
    assert np.array_equal(words, filter_of(plain, 7, "insert_hashes", both))


@pytest.mark.parametrize("lengths", [
    [9] * 5000, [0] * 5000, [300] * 40, range(400), [*range(40)] * 250, [7, 7, 7, 7, 8, 9] * 900,
    [0, 1000, 5], [3] * 4096 + [4] * 4096, [255, 256, 257] * 30], ids=lambda value: str(value)[:25])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_strings_of_mixed_lengths(lengths, kind, threads):
    lengths = np.random.default_rng(0).permutation(np.array(lengths))
    offsets = np.cumsum([5, *lengths]).astype(kind)
    data = np.frombuffer(RANDOM.randbytes(offsets[-1]), np.uint8)
    assert hash_binary(kernels, offsets, data) == digests(offsets, data)
    assert hash_binary(kernels, offsets[3:], data) == digests(offsets[3:], data)


@given(st.lists(st.integers(0, 70), min_size=1, max_size=12), st.integers(1, 400))
@examples(40)
def test_random_mixes_of_lengths(lengths, count):
    offsets = np.cumsum([0, *random.Random(count).choices(lengths, k=count)])
    data = np.frombuffer(random.Random(0).randbytes(offsets[-1]), np.uint8)
    assert hash_binary(kernels, offsets, data) == digests(offsets, data)


@pytest.mark.parametrize("width", [1, 4, 12, 16, 33])
def test_many_values_of_fixed_width(width, threads):
    data = np.frombuffer(RANDOM.randbytes(1003 * width), np.uint8)
    out = np.zeros(1003, np.uint64)
    kernels.hash_fixed(data, width, out)
    assert out.tolist() == digests(range(0, data.size + 1, width), data)


def test_threads_can_be_switched_off(monkeypatch, threads):
    pools = []

    class Pool(kernels.ThreadPoolExecutor):
        def __init__(self, workers):
            pools.append(workers)
            super().__init__(workers)

    monkeypatch.setattr(kernels, "ThreadPoolExecutor", Pool)
    hashed(kernels, random_words(1000))
    assert pools == ([] if threads == 1 else [threads - 1])
    hashed(kernels, random_words(19))  # too few for two
    assert len(pools) < 2


def test_kernels_release_the_gil():
    assert len(KERNELS) == 8 and footer_kernels.struct_ends in KERNELS
    assert all(kernel.targetoptions["nogil"] for kernel in KERNELS)


# --- where compiled kernels are kept -------------------------------------------------------------

@pytest.mark.slow
@pytest.mark.parametrize(("environment", "kept"), [
    ({"XDG_CACHE_HOME": "home/cache"}, "home/cache/numba"),
    ({"NUMBA_CACHE_DIR": "chosen"}, "chosen"),
    ({"XDG_CACHE_HOME": "file/cache"}, None)])
def test_kernels_of_a_package_that_is_read_only(tmp_path, environment, kept):
    """A file in place of ``__pycache__`` stands for a folder that cannot be written to."""
    (tmp_path / "file").touch()
    package = Path(shutil.copytree(Path(secure_bloom.__file__).parent, tmp_path / "secure_bloom",
                                   ignore=shutil.ignore_patterns("__pycache__")))
    for folder in (package, package / "kernels"):
        (folder / "__pycache__").touch()
    code = ("import numpy as np; from secure_bloom.kernels import bulk as kernels, compiling\n"
            "kernels.hash_words(np.array([7], np.uint64), out := np.zeros(1, np.uint64))\n"
            "print(out[0], compiling.KERNELS[0].stats.cache_path)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          cwd=tmp_path, env={name: str(tmp_path / value)
                                             for name, value in environment.items()})
    digest, folder = done.stdout.strip().split(" ", 1)
    assert int(digest) == xxh64_intdigest((7).to_bytes(8, "little"))
    if kept is None:
        assert folder == "None"
    else:
        assert Path(folder).is_relative_to(tmp_path / kept)
        assert list(Path(folder).glob("*.nbc"))
