"""Offset indexes of pages that have none: made from page headers, which may lie."""

from itertools import accumulate

import pytest

from secure_bloom.crypto.aad import ModuleType
from secure_bloom.errors import AuthenticationError, FormatError, UnsupportedError
from secure_bloom.parquet import offset_index, thrift
from secure_bloom.parquet.offset_index import make_offset_index
from secure_bloom.parquet.pages import DataPage, data_pages
from secure_bloom.parquet.thrift import I32, STRUCT, Struct
from secure_bloom.storage.source import Source
from tests.page_indexes import decode_pages
from tests.parquet.test_pages import modules

_DETAILS = {0: 5, 2: 7, 3: 8}  # the field of each page type's own header


def page(kind: int, values: int | None, rows: int | None = None, body: bytes = b"body",
         claimed: int | None = None, extension: bytes = b"") -> bytes:
    """A page of version 1 (0) or 2 (3), or a dictionary (2), that is not encrypted."""
    header, details = Struct(), Struct()
    header.set_int(1, I32, kind)
    header.set_int(3, I32, len(body) if claimed is None else claimed)
    for field, number in ((1, values), (3, rows)):
        if number is not None:
            details.set_int(field, I32, number)
    header.set(_DETAILS[kind], STRUCT, thrift.encode(details))
    if extension:
        header.set_binary(32767, extension)
    return thrift.encode(header) + body


def pages_of(data: bytes, start: int = 0) -> list[DataPage]:
    return list(data_pages(Source(bytes(start) + data), (start, len(data)), None))


def encrypted(parts: list[bytes], cipher) -> bytes:
    """Data pages without dictionaries, each with an encrypted header."""
    return b"".join(cipher.encrypt(one[:-4], ModuleType.DATA_PAGE_HEADER, number) + one[-4:]
                    for number, one in enumerate(parts))


def test_offsets_sizes_and_first_rows():
    parts = [page(2, 9), page(0, 5), page(3, 7, 7, extension=b"x" * 3000), page(0, 1, body=b"")]
    index = make_offset_index(pages_of(b"".join(parts), 100), 13, is_repeated=False)
    ends = list(accumulate(map(len, parts), initial=100))
    assert [tuple(one) for one in decode_pages(index)] \
        == [(ends[1], len(parts[1]), 0), (ends[2], len(parts[2]), 5), (ends[3], len(parts[3]), 12)]


def test_rows_of_lists_are_known_if_the_pages_say_so():
    v2 = make_offset_index(pages_of(page(3, 50, 5) + page(3, 9, 4)), 9, is_repeated=True)
    assert [one.first_row for one in decode_pages(v2)] == [0, 5]
    one_page = make_offset_index(pages_of(page(0, 50)), 9, is_repeated=True)
    assert [one.first_row for one in decode_pages(one_page)] == [0]
    for data in (page(0, 50) + page(0, 9), page(3, 50, 5) + page(0, 9) + page(0, 9)):
        with pytest.raises(UnsupportedError, match="may begin within a row"):
            make_offset_index(pages_of(data), 9, is_repeated=True)


def test_pages_that_make_no_index():
    for data in (b"", page(2, 9), page(0, 0) + page(0, 9)):
        with pytest.raises(UnsupportedError):
            make_offset_index(pages_of(data), 9, is_repeated=False)


@pytest.mark.parametrize(("data", "message"), [
    (page(0, 9, claimed=5), "extends beyond"),
    (page(0, 9, claimed=-1), "extends beyond"),
    (page(0, 9, claimed=2**31 - 1), "extends beyond"),
    (page(0, None), "how many values"),
    (page(0, -9), "how many values"),
    (page(3, 9), "how many values"),
    (page(3, 9, -9), "how many values"),
    (page(0, 4) + page(2, 9) + page(0, 5), "not the first"),
    (page(0, 8), "have 8 rows, but the row group has 9"),
    (page(0, 9) + page(0, 2**31 - 1), "rows, but the row group has 9"),
    (page(3, 9, 8), "8 rows, but 9 values"),
    (page(0, 9)[:-1], "extends beyond"),
])
def test_pages_that_contradict_are_refused(data, message):
    with pytest.raises(FormatError, match=message):
        make_offset_index(pages_of(data), 9, is_repeated=False)


@pytest.mark.parametrize("where", [(-1, 4), (0, -4), (2, 100)])
def test_pages_outside_the_file_are_refused(where):
    with pytest.raises(FormatError, match=r"outside the file|the file ends"):
        list(data_pages(Source(page(0, 9)), where, None))


def test_headers_of_encrypted_pages_are_authenticated():
    cipher = modules(b"k")
    parts = [page(0, 4), page(0, 5)]
    data = encrypted(parts, cipher)
    found = list(data_pages(Source(data), (0, len(data)), cipher))
    assert [one.num_values for one in found] == [4, 5]
    assert sum(one.size for one in found) == len(data)
    first = len(encrypted(parts[:1], cipher))
    with pytest.raises(AuthenticationError):  # exchanged
        list(data_pages(Source(data[first:] + data[:first]), (0, len(data)), cipher))


@pytest.mark.slow
def test_more_pages_than_can_be_encrypted(monkeypatch):
    """Modules number pages with 15 bits; plaintext pages may be more, within a limit."""
    part = page(0, 1, body=b"")
    found = pages_of(part * 33_000)
    index = make_offset_index(found, 33_000, is_repeated=False)
    assert decode_pages(index)[-1] == (32_999 * len(part), len(part), 32_999)
    with pytest.raises(FormatError, match="page"):
        modules(b"k").aad(ModuleType.DATA_PAGE_HEADER, 1 << 15)
    monkeypatch.setattr(offset_index, "_MAX_PAGES", 32_999)
    with pytest.raises(UnsupportedError, match="too many"):
        make_offset_index(found, 33_000, is_repeated=False)


def test_bodies_are_not_read():
    read = []

    class Counting(Source):
        def read_at(self, size, position):
            read.append(size)
            return super().read_at(size, position)

    data = page(0, 9, body=bytes(50 << 20))
    assert [one.size for one in data_pages(Counting(data), (0, len(data)), None)] == [len(data)]
    assert sum(read) <= 4 << 20
