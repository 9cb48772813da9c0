"""Where pages are, and what the page index says about them."""

import io
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_bloom.errors import FormatError
from secure_bloom.parquet import page_index, thrift
from secure_bloom.parquet.page_index import (
    DataPages,
    _locations,
    read_bounds,
    read_data_pages,
)
from secure_bloom.parquet.single_pages import ChunkPages, _first_level_is_zero
from secure_bloom.parquet.thrift import Struct
from secure_bloom.reading.open_file import OpenFile

INT64 = st.integers(-2**63, 2**63 - 1)


@given(st.lists(INT64))
def test_integers_are_decoded_as_one_by_one(values):
    encoded = bytes([min(len(values), 15) << 4 | thrift.I64])
    encoded += thrift.encode_varint(len(values)) if len(values) >= 15 else b""
    encoded += b"".join(map(thrift.encode_int, values))
    assert thrift.decode_integers(encoded).tolist() == values


@pytest.mark.parametrize("raw", [b"", b"\x26\x02", b"\x16\x80", b"\x16" + b"\xff" * 10 + b"\x01",
                                 b"\x15\x02\x02", b"\x18\x02"])
def test_malformed_integers_are_refused(raw):
    with pytest.raises(FormatError):
        thrift.decode_integers(raw)


@given(st.lists(st.tuples(INT64, st.integers(-2**31, 2**31 - 1), INT64), max_size=40),
       st.booleans())
def test_locations_are_decoded_as_structures(places, has_more):
    locations = []
    for place in places:
        location = Struct()
        for field_id, (type_, value) in enumerate(
                zip((thrift.I64, thrift.I32, thrift.I64), place, strict=True), 1):
            location.set_int(field_id, type_, value)
        if has_more:  # a field that only newer writers know
            location.set_int(9, thrift.I64, 5)
        locations.append(location)
    raw = thrift.encode(Struct([[1, thrift.LIST, locations]]))
    assert [tuple(one) for one in _locations(raw).tolist()] == places


def _file(**options):
    table = pa.table({"k": np.arange(5000), "w": [[one] * (one % 3) for one in range(5000)]})
    sink = io.BytesIO()
    pq.write_table(table, sink, write_page_index=True, data_page_size=1000, write_batch_size=100,
                   use_dictionary=False, **options)
    return OpenFile(sink.getvalue())


def test_pages_and_bounds_of_a_file():
    file = _file()
    numbers, lists = file.footer.row_groups[0]
    pages = read_data_pages(file.source, numbers, 5000)
    assert len(pages) > 10 and pages.first_rows[-1] == 5000 and pages.dictionary is None
    bounds = read_bounds(file.source, numbers, pages)
    for page, found in enumerate(bounds):
        first = int(pages.first_rows[page])
        assert found.minimum == first.to_bytes(8, "little") and found.null_count == 0
        assert found.num_values == pages.num_rows(page)
    assert read_bounds(file.source, lists, read_data_pages(file.source, lists, 5000)) is None


def test_an_index_that_contradicts_the_footer_is_not_used():
    file = _file()
    chunk = file.footer.row_groups[0][0]
    start, length = chunk.offset_index
    good = file.read_at(length, start)

    locations = []

    def table(change):
        locations[:] = thrift.each(thrift.decode(good, {})[0], 1, {})
        change(locations)
        changed = thrift.encode(Struct([[1, thrift.LIST, list(locations)]]))
        with mock.patch.object(page_index, "_read", lambda *_: changed):
            return read_data_pages(file.source, chunk, 5000)

    def moved(field_id, by, page=3):
        def change(found):
            type_ = thrift.I32 if field_id == 2 else thrift.I64
            found[page].set_int(field_id, type_, found[page].get_int(field_id) + by)
        return change

    assert len(table(lambda found: None)) == len(locations)
    for name, change in {
            "hole": moved(1, 1), "overlap": moved(2, 1), "shorter": moved(2, -1, -1),
            "rows beyond": moved(3, 10**6), "rows that go back": moved(3, -10**4),
            "begins late": moved(3, 1, 0), "negative": moved(2, -10**6),
            "order": lambda found: found.reverse(), "lost page": lambda found: found.pop(),
            "none": lambda found: found.clear(),
            "twice": lambda found: found.append(found[-1])}.items():
        assert table(change) is None, name


def test_bounds_without_a_defined_order_are_not_used():
    file = _file()
    numbers = file.footer.row_groups[0][0]
    pages = read_data_pages(file.source, numbers, 5000)
    assert read_bounds(file.source, numbers, pages) is not None
    with mock.patch.object(type(numbers), "has_defined_order", False):
        assert read_bounds(file.source, numbers, pages) is None


@pytest.mark.parametrize(("levels", "is_zero"), [
    (b"\x02\x00", True), (b"\x02\x01", False),  # a run of one level
    (b"\x80\x01\x00\x02\x01", True), (b"\x80\x01\x01\x02\x00", False),  # of 64 levels
    (b"\x03\xfe", True), (b"\x03\x01", False), (b"\x81\x01\x01", False),  # packed bits
    (b"", False), (b"\x02", False), (b"\xff" * 9, False)])
def test_the_first_level_tells_whether_a_page_begins_with_a_row(levels, is_zero):
    assert _first_level_is_zero(levels) == is_zero


class _Changed:
    """A file of which some bytes are others."""

    def __init__(self, file, where, content):
        self._file, self._start, self._content = file, where[0], content

    def read_at(self, nbytes, offset, /):
        return self._content if offset == self._start else self._file.read_at(nbytes, offset)


def test_an_index_that_cannot_be_read_is_an_error_or_none(monkeypatch):
    file = _file()
    chunk = file.footer.row_groups[0][0]
    pages = read_data_pages(file.source, chunk, 5000)
    less = DataPages(pages.offsets[:-1], pages.sizes[:-1], pages.first_rows, None)
    broken = _Changed(file, chunk.column_index, b"\0".ljust(chunk.column_index[1]))
    for source, some, message in ((broken, pages, "incomplete"),
                                  (file.source, less, "another number of pages")):
        with pytest.raises(FormatError, match=message) as caught:
            read_bounds(source, chunk, some)
        assert (caught.value.row_group, caught.value.column) == (0, "k")
    empty = b"\x29\x06\0".ljust(chunk.offset_index[1], b"\0")  # without locations
    assert read_data_pages(_Changed(file, chunk.offset_index, empty), chunk, 5000) is None
    with pytest.raises(FormatError, match="beyond the end"):
        read_data_pages(_Changed(file, chunk.offset_index, b"\0"), chunk, 5000)
    monkeypatch.setattr(page_index, "_MAX_INDEX", 10)
    with pytest.raises(FormatError, match="claims"):
        read_data_pages(file.source, chunk, 5000)


def test_a_page_that_is_not_as_the_index_says_is_an_error():
    file = _file(compression="snappy", data_page_version="2.0")
    chunk, lists = file.footer.row_groups[0]
    pages = read_data_pages(file.source, chunk, 5000)
    start, length = pages.place(1)

    def read(message, sizes=pages.sizes, first_rows=pages.first_rows, source=file.source):
        with pytest.raises(FormatError, match=message) as caught:
            found = ChunkPages(chunk, DataPages(pages.offsets, sizes, first_rows, None))
            found.values(found.read(source, 1))
        assert (caught.value.row_group, caught.value.column) == (0, "k")

    first_rows, sizes = pages.first_rows.copy(), pages.sizes.copy()
    first_rows[2] += 1
    sizes[1] -= 1
    read("another number of rows", first_rows=first_rows)
    read("another size", sizes)
    stored = file.read_at(length, start)
    header, end = thrift.decode(stored, {8: {}})
    broken = stored[:end] + b"\xff" * (length - end)
    read("cannot be decompressed", source=_Changed(file, (start, length), broken))
    header.remove(8)  # DataPageHeaderV2
    less = thrift.encode(header) + stored[end:]
    sizes[1] = len(less)
    read("incomplete", sizes, source=_Changed(file, (start, length), less))
    header.set_int(1, thrift.I32, 2)  # a dictionary page
    of_dictionary = thrift.encode(header) + stored[end:]
    sizes[1] = len(of_dictionary)
    read("of another type", sizes,
         source=_Changed(file, (start, length), of_dictionary))
    places = read_data_pages(file.source, lists, 5000)
    within = file.read_at(*reversed(places.place(0)))
    header, end = thrift.decode(within, {8: {}})
    levels = header.get(8).get_int(6)
    inner = within[:end] + b"\x03\xff" + within[end + 2:]  # its first levels are 1
    assert levels > 2
    with pytest.raises(FormatError, match="begins within a row"):
        ChunkPages(lists, places).read(_Changed(file, places.place(0), inner), 0)


@pytest.mark.parametrize("codec", ["snappy", "gzip", "brotli", "zstd", "lz4"])
def test_pages_of_each_codec_are_decompressed_and_others_left_to_arrow(codec):
    def first_page(file):
        chunk = file.footer.row_groups[0][0]
        if file is of_hadoop:
            chunk.metadata().set_int(4, thrift.I32, 5)  # the codec LZ4, which has two framings
        pages = ChunkPages(chunk, read_data_pages(file.source, chunk, 5000))
        return pages.values(pages.read(file.source, 0))

    of_hadoop = _file(compression=codec)
    assert first_page(_file(compression=codec)) == first_page(_file(compression="none"))
    assert first_page(of_hadoop) is None


def test_without_an_offset_index_the_places_of_pages_are_not_known():
    sink = io.BytesIO()
    pq.write_table(pa.table({"k": [1]}), sink)
    file = OpenFile(sink.getvalue())
    assert read_data_pages(file.source, file.footer.row_groups[0][0], 1) is None


def test_bounds_that_are_no_binaries_are_refused():
    with pytest.raises(FormatError, match="another type"):
        thrift.decode_binaries(b"\x15\x02")
