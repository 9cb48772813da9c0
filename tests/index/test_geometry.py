"""Which bits of a fingerprint are where: nothing is lost, and unknown lengths are refused."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_bloom.errors import FormatError, UnsupportedError
from secure_bloom.index.geometry import (
    FINGERPRINT_BITS,
    MAX_NEW_ROW_GROUPS,
    MAX_PAIRS,
    MAX_ROW_GROUPS,
    Geometry,
    pack,
    place_of,
    sorted_pairs,
    unpack,
)
from secure_bloom.index.pages import Page
from secure_bloom.parquet.row_ranges import RANGE_BITS, parts_of
from tests.support import examples

GEOMETRIES = st.builds(Geometry.of, st.integers(0, MAX_PAIRS), st.integers(0, MAX_ROW_GROUPS))


@examples(200)
@given(GEOMETRIES, st.integers(0, 2**64 - 1), st.data())
def test_a_pair_is_split_and_joined_without_loss(geometry, fingerprint, data):
    group = data.draw(st.integers(0, 2**geometry.group_bits - 1))
    fingerprints = np.array([fingerprint], np.uint64)
    pairs = pack(fingerprints, group)
    page, bucket, remainder = (int(part[0]) for part in geometry.place(fingerprints))
    pages, ends = geometry.encode_pages(pairs, page, 1)
    assert ends == [len(pages)]
    buckets, entries = Page(pa.py_buffer(pages), geometry.layout).decode()
    assert buckets.tolist() == [bucket]
    assert entries.tolist() == [remainder << geometry.group_bits | group]
    top, groups = geometry.join(page, buckets, entries)
    assert int(top[0]) == fingerprint >> 64 - FINGERPRINT_BITS
    assert [part.tolist() for part in unpack(pairs)] == [top.tolist(), groups.tolist()]
    assert geometry.layout.width * 8 >= geometry.entry_bits


def test_row_groups_of_a_new_segment_have_room_for_ranges_of_rows():
    """Where they have none, places reach into the fingerprints, and values are missed."""
    place = place_of(MAX_NEW_ROW_GROUPS - 1, (1 << RANGE_BITS) - 1)
    top, places = unpack(pack(np.zeros(1, np.uint64), place))
    assert top.tolist() == [0] and places.tolist() == [place]


@examples(100)
@given(st.integers(0, MAX_PAIRS), st.integers(0, MAX_ROW_GROUPS))
def test_all_row_groups_and_about_one_pair_a_bucket_fit(pairs, row_groups):
    geometry = Geometry.of(pairs, row_groups)
    assert row_groups <= 1 << geometry.group_bits
    slots = geometry.num_pages << geometry.bucket_bits
    assert max(pairs, 2) <= slots <= 2 * max(pairs, 2)
    assert Geometry.from_json(geometry.to_json()) == geometry


@examples(300)
@given(st.lists(st.tuples(st.integers(0, 9), st.one_of(st.integers(0, 63), st.integers(32, 63))),
                max_size=80), st.integers(1, 5), st.booleans())
def test_sorted_pairs_are_in_order_and_each_once(entries, parts, with_ranges):
    bits = RANGE_BITS if with_ranges else 0
    expected: dict[int, int] = {}
    for place, range_ in entries if with_ranges else [(place, 0) for place, _ in entries]:
        expected[place] = expected.get(place, 0) | int(parts_of(np.uint64(range_)))
    pairs = np.array([place << bits | range_ & _mask(bits) for place, range_ in entries], np.uint64)
    found = sorted_pairs(np.array_split(pairs, parts), are_sorted=False, range_bits=bits).tolist()
    assert [pair >> bits for pair in found] == sorted(expected)
    for pair in found if with_ranges else ():
        ways = [one for one in range(1, 64)
                if expected[pair >> bits] & ~int(parts_of(np.uint64(one))) == 0]
        assert int(parts_of(np.uint64(pair & _mask(bits)))) \
            == min((int(parts_of(np.uint64(one))) for one in ways), key=int.bit_count)


def _mask(bits: int) -> int:
    return (1 << bits) - 1


@pytest.mark.parametrize("many", [(MAX_PAIRS + 1, 1), (1, MAX_ROW_GROUPS + 1)])
def test_too_much_for_one_segment_is_refused(many):
    with pytest.raises(ValueError, match="too many values or row groups"):
        Geometry.of(*many)


def test_fingerprints_of_another_length_are_refused():
    for bits in (37, 39, 64, None, "38"):
        with pytest.raises(UnsupportedError, match="length"):
            Geometry.from_json(Geometry.of(10, 10).to_json() | {"fingerprint_bits": bits})


@pytest.mark.parametrize("changed", [
    {"page_bits": -1}, {"bucket_bits": 31}, {"group_bits": 0}, {"group_bits": 27},
    {"page_bits": 35}, {"page_bits": 1.0}, {"page_bits": True}, {"bucket_bits": None}])
def test_impossible_bits_are_refused(changed):
    with pytest.raises(FormatError, match="geometry"):
        Geometry.from_json(Geometry.of(10, 10).to_json() | changed)


@pytest.mark.parametrize("fields", [None, [], 5, {"fingerprint_bits": 38}])
def test_a_geometry_that_is_not_an_object_is_refused(fields):
    with pytest.raises((FormatError, UnsupportedError)):
        Geometry.from_json(fields)
