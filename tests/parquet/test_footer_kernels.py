"""The compiled twins of the Thrift walker: the same answers, for good bytes and for bad ones."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thrift.Thrift import TType

from secure_bloom.errors import FormatError
from secure_bloom.parquet.compiled_footers import ROOM, CompiledFooters
from secure_bloom.parquet.thrift import I32, I64, MAX_DEPTH, STRUCT, Struct, decode, encode, tree
from tests.cases import for_each
from tests.parquet.test_thrift import AMBIGUOUS, AROUND, LAYOUTS, LEAVES, TREES, written
from tests.support import COMPILED, EACH_COMPILED, examples
from tests.support import footer_kernels as kernels_named
from tests.tiers import sweep_where

META, CRYPTO, ENCRYPTED_META = 3, 8, 9  # fields of a ColumnChunk


#: pieces of structures, right and wrong
SOUP = st.lists(st.sampled_from([
    b"\0", b"\x15\2", b"\x16\xff\xff\1", b"\x11", b"\x13\7", b"\x17" + bytes(8), b"\x18\3abc",
    b"\x18\x50", b"\x18\xff\xff\xff\xff\x0f", b"\x1c", b"\x2c", b"\x3c", b"\x19\x35\2\4\6",
    b"\x19\x28\1a\0", b"\x19\x2c", b"\x19\xfc\x20", b"\x1a\x31\1\2\1", b"\x1b\0", b"\x1b\1\x58\2",
    b"\x1b\2\xcc", b"\x1d" + bytes(16), b"\x1e", b"\x10", b"\x08\2\1a", b"\x05\x10\2",
    b"\x07" + b"\xff" * 11, b"\x08\xff", b"\x0c" + b"\xff" * 9 + b"\1", b"\xff" * 11, bytes(20)]),
    max_size=40).map(b"".join)


@pytest.fixture(params=EACH_COMPILED, scope="module")
def footers(request):
    return kernels_named(request.param)


#: what is tried with random structures; the cases below are tried with every level
other_levels_in_sweep = sweep_where(lambda footers: footers != COMPILED[0])


def outcome(data: bytes, layout, kernels=None):
    try:
        struct, end = decode(data, layout, kernels)
    except FormatError:
        return "refused"
    return encode(struct), [field[0] for field in struct.fields], end


@other_levels_in_sweep
@pytest.mark.slow
@given(TREES, LAYOUTS, st.binary(max_size=20))
@examples(150)
def test_structures_are_decoded_alike(footers, tree, layout, behind):
    data = written(tree) + behind
    assert outcome(data, layout, footers) == outcome(data, layout)


@other_levels_in_sweep
@given(TREES, LAYOUTS)
@examples(60)
def test_a_structure_cut_off_anywhere_is_refused(footers, tree, layout):
    data = written(tree)
    for size in range(len(data)):
        assert outcome(data[:size], layout, footers) == "refused"


@other_levels_in_sweep
@given(st.binary(max_size=60), LAYOUTS)
@examples(500)
def test_any_bytes_are_decoded_or_refused_alike(footers, data, layout):
    assert outcome(data, layout, footers) == outcome(data, layout)


@other_levels_in_sweep
@pytest.mark.slow
@given(SOUP, LAYOUTS)
@examples(500)
def test_pieces_of_structures_are_decoded_or_refused_alike(footers, data, layout):
    assert outcome(data, layout, footers) == outcome(data, layout)
    in_a_list = {1: [None]}
    several = b"\x19\x5c" + data
    with pytest.MonkeyPatch.context() as patch:
        by_walker = outcome(several, in_a_list)
        patch.setattr(tree, "_LARGE", 0)
        patch.setattr(tree, "compiled_footers", lambda: footers)
        assert outcome(several, in_a_list) == by_walker


@for_each("header", [b"\x02", b"\x05", b"\x07", b"\x08", b"\x09", b"\x0b", b"\x0c"])
@for_each("number", [b"", b"\xff", b"\xff" * 9, b"\xff" * 10, b"\xff" * 11 + b"\1"])
@for_each("before", [b"", b"\x1c", b"\x15\2"])
def test_a_field_id_that_is_too_long(footers, header, number, before):
    data = before + header + number
    assert outcome(data, {}, footers) == outcome(data, {}) == "refused"
    ends = np.full(2, 7, np.int64)
    footers.struct_ends(b"\0" + data, 0, ends)
    assert ends.tolist() == [1, -1]
    assert patched(footers, b"\x3c" + data, 4, 32) is None


@for_each("fields", AMBIGUOUS)
def test_ambiguous_fields_are_refused(footers, fields):
    """A structure, one in a list, the same inside of a column chunk, and a column chunk itself."""
    for layout, before, behind in AROUND.values():
        data = before + AMBIGUOUS[fields] + behind + b"\0"
        assert outcome(data, layout, footers) == "refused"
    for structure in (AMBIGUOUS[fields], b"\x1c" + AMBIGUOUS[fields] + b"\0"):
        ends = np.zeros(1, np.int64)
        footers.struct_ends(structure + b"\0", 0, ends)
        assert ends[0] == -1
        assert patched(footers, b"\x3c" + structure + b"\0\0", 4, 32) is None


@other_levels_in_sweep
@pytest.mark.slow
@given(TREES.filter(bool), st.data())
@examples(150)
def test_changed_bytes_are_decoded_or_refused_alike(footers, tree, data):
    changed = bytearray(written(tree))
    changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    assert outcome(bytes(changed), {}, footers) == outcome(bytes(changed), {})


@other_levels_in_sweep
@given(st.dictionaries(st.integers(1, 40), LEAVES, min_size=1).map(
    lambda fields: dict(sorted(fields.items()))))
@examples(100)
def test_common_structures_do_not_need_the_walker(footers, tree):
    fits = len(tree) < 32 and all(b - a <= 15 for a, b in pairwise([0, *tree]))
    count, end = footers.fields(written(tree), np.empty((32, 4), np.int64))
    assert (count, end) == ((len(tree), len(written(tree))) if fits else (-1, -1))


@other_levels_in_sweep
@given(st.lists(TREES, max_size=20), st.integers(0, 5))
@examples(60)
def test_the_ends_of_structures(footers, trees, cut):
    parts = [written(tree) for tree in trees]
    data = b"".join(parts)
    ends = np.zeros(len(parts), np.int64)
    footers.struct_ends(data, 0, ends)
    assert ends.tolist() == np.cumsum([len(part) for part in parts]).tolist()
    if 0 < cut <= len(parts[-1] if parts else b""):
        footers.struct_ends(data[:-cut], 0, ends)
        assert ends[-1] == -1


@for_each("depth", [0, 60, MAX_DEPTH, MAX_DEPTH + 1, 100_000])
@for_each("nested", [b"\x1c", b"\x19\x19", b"\x19\x1c", b"\x1b\x01\x5c\x02"])
def test_deep_values_are_refused_before_they_overflow(footers, depth, nested):
    data = nested * depth + b"\0" * (depth + 8)
    ends = np.zeros(1, np.int64)
    footers.struct_ends(data, 0, ends)
    assert outcome(data, {}, footers) == outcome(data, {})
    assert ends[0] == -1 or depth <= MAX_DEPTH


# --- where a Bloom filter is ---------------------------------------------------------------------

PLACES = st.integers(0, 2**62), st.integers(0, 2**31 - 1)
META_DATA = st.dictionaries(
    st.integers(1, 20), TREES.map(lambda tree: (TType.STRUCT, tree)) | LEAVES, max_size=8).map(
        lambda fields: dict(sorted(fields.items()))).filter(
            lambda fields: all(b - a <= 15 for a, b in pairwise([0, *fields])))


def patched(footers, chunk: bytes, offset: int, length: int) -> bytes | None:
    """The same chunk between two others, which are changed, too."""
    other = encode(Struct([[META, STRUCT, Struct()]]))
    bounds = np.cumsum([0, len(other), len(chunk), len(other)])
    room = bounds[-1] + 3 * ROOM
    out, ends = np.zeros(room + 1000, np.uint8), np.zeros(3, np.int64)
    places = np.array([[offset, length]] * 3)
    footers.with_bloom_filters(other + chunk + other, bounds, places, out, ends)
    assert not out[room:].any()
    changed = patched_by_walker(other, offset, length)
    start, end, last = ends.tolist()
    assert out[:start].tobytes() == out[max(start, end):last].tobytes() == changed
    return None if end < 0 else out[start:end].tobytes()


def patched_by_walker(chunk: bytes, offset: int, length: int) -> bytes:
    struct, _ = decode(chunk, {META: {}})
    struct.get(META).set_int(14, I64, offset)
    struct.get(META).set_int(15, I32, length)
    return encode(struct)


@other_levels_in_sweep
@given(META_DATA, st.dictionaries(st.sampled_from([1, 2, 4, 5, 6, 7, 10, 18]), LEAVES), *PLACES)
@examples(200)
def test_a_filter_is_set_as_the_walker_sets_it(footers, meta, others, offset, length):
    tree = dict(sorted({**others, META: (TType.STRUCT, meta)}.items()))
    chunk = written(tree)
    assert patched(footers, chunk, offset, length) == patched_by_walker(chunk, offset, length)
    assert patched(footers, patched(footers, chunk, 1, 2), offset, length) \
        == patched(footers, chunk, offset, length)


@other_levels_in_sweep
@given(st.lists(META_DATA, min_size=1, max_size=5), st.data())
@examples(60)
def test_chunks_without_a_place_are_copied(footers, metas, data):
    chunks = [written({META: (TType.STRUCT, meta)}) for meta in metas]
    chosen = data.draw(st.lists(st.booleans(), min_size=len(chunks), max_size=len(chunks)))
    before = b"before"
    bounds = np.cumsum([len(before), *map(len, chunks)])
    places = np.array([[4, 32] if one else [-1, 0] for one in chosen])
    out, ends = np.zeros(bounds[-1] + len(chunks) * ROOM, np.uint8), np.zeros(len(chunks), np.int64)
    footers.with_bloom_filters(before + b"".join(chunks), bounds, places, out, ends)
    expected = [patched_by_walker(chunk, 4, 32) if one else chunk
                for chunk, one in zip(chunks, chosen, strict=True)]
    assert ends.tolist() == np.cumsum([len(one) for one in expected]).tolist()
    assert out[:ends[-1]].tobytes() == b"".join(expected)


@pytest.mark.parametrize("more", [CRYPTO, ENCRYPTED_META])
def test_encrypted_columns_are_left_to_the_walker(footers, more):
    chunk = Struct([[META, STRUCT, Struct()], [more, I32, b"\2"]])
    assert patched(footers, encode(chunk), 4, 32) is None
    chunk.remove(more)
    assert patched(footers, encode(chunk), 4, 32) is not None


def test_what_is_no_column_chunk_is_left_to_the_walker(footers):
    good = encode(Struct([[META, STRUCT, Struct()]]))
    assert patched(footers, good, 4, 32) is not None
    assert patched(footers, encode(Struct()), 4, 32) is None  # without metadata
    assert patched(footers, good + b"\0", 4, 32) is None  # something behind it
    assert all(patched(footers, good[:size], 4, 32) is None for size in range(len(good)))
    assert patched(footers, b"\x0c\x06\0\0", 4, 32) is None  # a field id that is spelled out


@other_levels_in_sweep
@given(st.binary(max_size=60) | SOUP | SOUP.map(lambda soup: b"\x3c" + soup), *PLACES)
@examples(600)
def test_any_bytes_are_patched_as_the_walker_does_or_left(footers, data, offset, length):
    result = patched(footers, data, offset, length)
    if result is not None:
        assert result == patched_by_walker(data, offset, length)


# --- compiled code is never given what it must not touch ------------------------------------------

def ints(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize("position", [-1, 4])
def test_a_position_outside_of_the_data_is_refused(position):
    with pytest.raises(ValueError, match=f"position {position} of 3 bytes"):
        CompiledFooters(None).struct_ends(b"abc", position, ints(0))


@pytest.mark.parametrize("bounds", [ints(-1, 2, 3), ints(0, 2, 4), ints(0, 3, 2), ints(2, 1, 3),
                                    ints(3, 3, 2)])
def test_bounds_outside_of_the_data_or_out_of_order_are_refused(bounds):
    places, out = np.zeros((2, 2), np.int64), np.zeros(1000, np.uint8)
    with pytest.raises(ValueError, match="bounds of column chunks are invalid"):
        CompiledFooters(None).with_bloom_filters(b"abc", bounds, places, out, ints(0, 0))


def test_too_little_room_is_refused():
    bounds, places, ends = ints(1, 2, 3), np.zeros((2, 2), np.int64), ints(0, 0)
    out = np.zeros(2 * ROOM + 1, np.uint8)  # one less than needed
    with pytest.raises(ValueError, match="not enough for 2 column chunks"):
        CompiledFooters(None).with_bloom_filters(b"abc", bounds, places, out, ends)
