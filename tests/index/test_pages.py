"""Pages: what is encoded is found, and damaged pages are refused."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_bloom.errors import FormatError
from secure_bloom.index.pages import SPARE, Page, PageLayout, Pages
from secure_bloom.kernels.vectorized import encode_page
from tests.support import examples


@st.composite
def pages(draw):
    """A layout, bits of row groups, and entries as triples of bucket, remainder, row group."""
    bucket_bits, group_bits = draw(st.integers(0, 6)), draw(st.integers(1, 26))
    remainder_bits = draw(st.integers(4, 38 - bucket_bits))
    triples = st.tuples(st.integers(0, 2**bucket_bits - 1), st.integers(0, 2**remainder_bits - 1),
                        st.integers(0, 2**group_bits - 1))
    width = (remainder_bits + group_bits + 7) // 8
    return PageLayout(bucket_bits, width), group_bits, sorted(draw(st.sets(triples, max_size=60)))


def encoded(layout, group_bits, triples) -> bytes:
    buckets = np.array([bucket for bucket, _, _ in triples], np.uint64)
    entries = np.array([remainder << group_bits | group for _, remainder, group in triples],
                       np.uint64)
    return encode_page(buckets, entries, layout.width, layout.bucket_bits)


def searched(contents: list[bytes], layout) -> Pages:
    data = np.frombuffer(b"".join([*contents, b"\xff" * SPARE]), np.uint8)
    return Pages(data, np.cumsum([0, *map(len, contents)]), layout)


@st.composite
def several_pages(draw):
    """A layout of two bytes, two of whose bits are places, and the triples of some pages."""
    bucket_bits = draw(st.sampled_from([0, 1, 3, 7]))
    triples = st.tuples(st.integers(0, 2**bucket_bits - 1), st.integers(0, 2**14 - 1),
                        st.integers(0, 3))
    sizes = draw(st.lists(st.sampled_from([0, 1, 7, 70]), min_size=1, max_size=5))
    return PageLayout(bucket_bits, 2), [
        sorted(draw(st.sets(triples, min_size=min(size, 8), max_size=size))) for size in sizes]


@examples(100)
@given(several_pages())
def test_pages_that_are_searched_together_answer_for_themselves(pages):
    layout, triples = pages
    opened = searched([encoded(layout, 2, one) for one in triples], layout)
    probes = sorted({(page, *triple[:2]) for page in range(len(triples))
                     for other in triples for triple in other} | {(0, 0, 0)})
    numbers, buckets, remainders = zip(*probes, strict=True)
    at, groups = opened.find(np.array(numbers), np.array(buckets, np.uint64),
                             np.array(remainders, np.uint64), 2)
    found = [(*probes[position], group) for position, group
             in zip(at.tolist(), groups.tolist(), strict=True)]
    assert sorted(found) == [(page, *triple) for page, one in enumerate(triples) for triple in one]


@examples(200)
@given(pages())
def test_exactly_what_was_encoded_is_found(page):
    layout, group_bits, triples = page
    opened = Page(pa.py_buffer(encoded(*page)), layout)
    probes = sorted({triple[:2] for triple in triples} | {(0, 0), (2**layout.bucket_bits - 1, 3)})
    at, groups = searched([encoded(*page)], layout).find(
        np.zeros(len(probes), np.int64),
        *(np.array(column, np.uint64) for column in zip(*probes, strict=True)), group_bits)
    found = [(*probes[position], group) for position, group
             in zip(at.tolist(), groups.tolist(), strict=True)]
    assert sorted(found) == triples
    assert [(*probe, group) for probe in probes
            for group in opened.find(*probe, group_bits)] == triples
    buckets, entries = opened.decode()
    mask = (1 << group_bits) - 1
    assert [(bucket, one >> group_bits, one & mask) for bucket, one
            in zip(buckets.tolist(), entries.tolist(), strict=True)] == triples


@examples(100)
@given(pages(), st.data())
def test_changed_pages_are_refused_or_read_within_their_bounds(page, data):
    layout = page[0]
    content = bytearray(encoded(*page))
    if data.draw(st.booleans()):
        content = content[:data.draw(st.integers(0, len(content)))]
    for _ in range(data.draw(st.integers(1, 4))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    whole = encoded(*page)
    try:
        opened = Page(pa.py_buffer(bytes(content)), layout)
    except FormatError:
        with pytest.raises(FormatError):
            searched([whole, bytes(content), whole], layout)
        return
    buckets, entries = opened.decode()
    n = int.from_bytes(content[:4], "little")
    assert buckets.size == entries.size == n
    all_buckets = np.arange(2**layout.bucket_bits, dtype=np.uint64)
    at, found = searched([whole, bytes(content), whole], layout).find(
        np.ones(all_buckets.size, np.int64), all_buckets, np.zeros_like(all_buckets),
        8 * layout.width)  # so that each entry has the remainder 0
    assert at.tolist() == buckets.tolist() and found.tolist() == entries.tolist()


@pytest.mark.parametrize("opens", [lambda content, layout: Page(pa.py_buffer(content), layout),
                                   lambda content, layout: searched([content], layout)])
def test_a_page_that_claims_four_billion_entries_allocates_nothing(opens):
    with pytest.raises(FormatError, match="size"):
        opens(b"\xff\xff\xff\xff" + bytes(100), PageLayout(3, 4))


def test_an_entry_after_the_last_bucket_is_refused():
    # Of 3 bits two belong to the buckets: the last one counts an entry that no bucket has.
    content = (1).to_bytes(4, "little") + bytes([0b100]) + bytes(2)
    with pytest.raises(FormatError, match="counts"):
        Page(pa.py_buffer(content), PageLayout(1, 2))
    with pytest.raises(FormatError, match="counts"):
        searched([content, bytes([0] * 4 + [0])], PageLayout(1, 2))
