"""Pages and page indexes that are moved or replaced: what the footer says of them then."""

import itertools
import tracemalloc
import zlib
from array import array
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secure_bloom.crypto.aad import ModuleType
from secure_bloom.crypto.modules import ModuleCipher, module_length
from secure_bloom.errors import AuthenticationError, FormatError
from secure_bloom.parquet import thrift
from secure_bloom.parquet.chunk_modules import ChunkModules
from secure_bloom.parquet.page_format import PageFormat
from secure_bloom.parquet.page_index import moved_index, placed_index
from secure_bloom.parquet.pages import StoredPages, copied_pages
from secure_bloom.parquet.placing import (
    move_pages,
    replace_pages,
    set_column_index,
    set_offset_index,
    total_size,
)
from secure_bloom.parquet.tail import split_tail
from secure_bloom.parquet.thrift import I32, LIST, STRUCT, Struct
from secure_bloom.storage.source import Source
from tests.support import open_footer

TABLE = pa.table({"a": [7, 8, 7, 9] * 50})
FILE_OFFSET, COLUMN_INDEX, OFFSET_INDEX = 2, (6, 7), (4, 5)
ENCODINGS, TOTAL_SIZE, COMPRESSED_SIZE, DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE = 2, 6, 7, 9, 10, 11
STATISTICS, ENCODING_STATS = 12, 13


def chunk_of(**options):
    """Return the column chunk of a file, and the file."""
    sink = pa.BufferOutputStream()
    pq.write_table(TABLE, sink, **{"compression": "none"} | options)
    file = sink.getvalue().to_pybytes()
    return open_footer(file).row_groups[0][0], file


def pages_of(file: bytes, chunk) -> bytes:
    start, size = chunk.pages
    return file[start:start + size]


def copied(data: bytes, old=None, new=None) -> tuple[bytes, StoredPages]:
    """Return the pages of a column chunk in another encryption, and their sizes."""
    stored = StoredPages()
    source = Source(data)
    return b"".join(copied_pages(source, (0, len(data)), old, new, stored)), stored


def page(kind: int, body: bytes, claimed: int | None = None) -> bytes:
    header = Struct()
    header.set_int(1, I32, kind)
    header.set_int(3, I32, len(body) if claimed is None else claimed)
    return thrift.encode(header) + body


def offset_index(*locations: tuple[int, int]) -> bytes:
    struct, found = Struct(), []
    for offset, size in locations:
        location = Struct()
        location.set_int(1, thrift.I64, offset)
        location.set_int(2, I32, size)
        location.set_int(3, thrift.I64, 0)
        found.append(location)
    struct.set(1, LIST, found)
    return thrift.encode(struct)


def locations(data: bytes) -> list[tuple[int, int]]:
    struct, _ = thrift.decode(data, {1: [{}]})
    return [(one.get_int(1), one.get_int(2)) for one in struct.get(1)]


def test_pages_of_arrow_are_stored_as_they_are():
    chunk, file = chunk_of()
    data = pages_of(file, chunk)
    same, stored = copied(data)
    assert same == data and stored.size == len(data)
    meta = pq.ParquetFile(pa.BufferReader(file)).metadata.row_group(0).column(0)
    assert stored.dictionary_size == meta.data_page_offset - meta.dictionary_page_offset
    assert list(stored.data_sizes) == [len(data) - stored.dictionary_size]


def test_pages_are_counted_by_their_kind():
    _, stored = copied(page(2, b"dict") + page(0, b"one") + page(3, b""))
    assert stored.dictionary_size == len(page(2, b"dict"))
    assert list(stored.data_sizes) == [len(page(0, b"one")), len(page(3, b""))]


@pytest.mark.parametrize(("data", "message"), [
    (page(0, b"body", claimed=5), "extends beyond"),
    (page(0, b"body", claimed=-1), "extends beyond"),
    (thrift.encode(Struct()), "unknown type None"),
    (page(1, b"body"), "unknown type 1"),
    (page(4, b"body"), "unknown type 4"),
])
def test_malformed_pages_are_refused(data, message):
    with pytest.raises(FormatError, match=message):
        copied(data)


# --- pages that are encrypted in another way -----------------------------------------------------

def modules(key: bytes, *, by_gcm: bool = True, file_aad: bytes = b"a" * 8, row_group: int = 0) \
        -> ChunkModules:
    return ChunkModules(ModuleCipher(key * 16), file_aad, row_group, 0, by_gcm)


@pytest.mark.slow
@pytest.mark.parametrize("size", [300, 2**21])  # the larger pages are read on their own
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_are_encrypted_in_any_way_and_back(size, version):
    """Also with their checksums, which are those of the bodies as they are stored."""
    sink, values = pa.BufferOutputStream(), [None, *(bytes(size) + bytes([n]) for n in range(7))]
    pq.write_table(pa.table({"a": values}), sink, compression="none", data_page_size=100,
                   write_batch_size=3, data_page_version=version, write_page_checksum=True,
                   use_dictionary=size == 300)
    file = sink.getvalue().to_pybytes()
    data = pages_of(file, open_footer(file).row_groups[0][0])
    ways = [None, modules(b"1"), modules(b"2", row_group=1), modules(b"3", by_gcm=False),
            modules(b"3", by_gcm=False), modules(b"1"), None]
    now, before = data, None
    for old, new in itertools.pairwise(ways):
        now, stored = copied(now, old, new)
        assert stored.size == len(now) and now != before
        assert len(stored.data_sizes) > 1 and bool(stored.dictionary_size) == (size == 300)
        before = now
    assert now == data


def test_a_wrong_checksum_stays_wrong():
    header = Struct()
    for field, value in ((1, 0), (3, 4), (4, zlib.crc32(b"body") - 2**32 + 1)):
        header.set_int(field, I32, value)
    data = thrift.encode(header) + b"body"
    sealed, _ = copied(data, None, modules(b"1"))
    assert copied(sealed, modules(b"1"), None)[0] == data
    header_size = module_length(sealed)
    raw = modules(b"1").decrypt(sealed[:header_size], ModuleType.DATA_PAGE_HEADER, 0)
    stored = thrift.decode(raw, {})[0].get_int(4) % 2**32
    assert stored != zlib.crc32(sealed[header_size:])


def test_levels_that_parquet_java_does_not_encrypt_stay_as_they_are():
    old, new = modules(b"1"), modules(b"2")
    of_v2, header = Struct(), Struct()
    of_v2.set_int(5, I32, 3)
    of_v2.set_int(6, I32, 2)
    body = b"level" + old.encrypt(b"values", ModuleType.DATA_PAGE, 0)
    header.set_int(1, I32, 3)
    header.set_int(3, I32, len(body))
    header.set(8, STRUCT, of_v2)
    data = old.encrypt(thrift.encode(header), ModuleType.DATA_PAGE_HEADER, 0) + body
    again, stored = copied(data, old, new)
    assert list(stored.data_sizes) == [len(data)] and again[-len(body):].startswith(b"level")
    assert new.decrypt(again[-len(body) + 5:], ModuleType.DATA_PAGE, 0) == b"values"


@pytest.mark.parametrize("by_gcm", [True, False])
@pytest.mark.parametrize(("data", "error"), [
    (b"\xff\xff\xff\x7f" + bytes(60), AuthenticationError),  # a header of 2 GB
    (b"\x00\x00\x00\x00" + bytes(60), AuthenticationError),
    (b"\x10\x00", AuthenticationError),
    ((0, b"body", 2**31 - 1), FormatError), ((0, b"body", -1), FormatError),
    ((0, b"no module" * 9, None), AuthenticationError),
    ((2, b"dictionary under the header of a data page", None), FormatError)])
def test_encrypted_pages_that_claim_too_much_are_refused(data, error, by_gcm):
    old = modules(b"1", by_gcm=by_gcm)
    if isinstance(data, tuple):
        kind, body, claimed = data
        header = page(kind, body, claimed).removesuffix(body)
        data = old.encrypt(header, ModuleType.DATA_PAGE_HEADER, 0) + body
    with pytest.raises(error):
        copied(data, old, modules(b"2"))


def test_pages_are_copied_in_bounded_memory():
    data = page(0, bytes(2**20)) * 64
    source, stored = Source(data), StoredPages()
    tracemalloc.start()
    try:
        for _ in copied_pages(source, (0, len(data)), None, modules(b"1"), stored):
            pass
        assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    finally:
        tracemalloc.stop()
    assert len(stored.data_sizes) == 64


def test_sizes_of_pages_are_summed_once_and_not_for_each_page(monkeypatch):
    """Otherwise a column chunk of 25,000 pages takes seconds."""
    sums = Mock(return_value=1)
    monkeypatch.setattr(StoredPages, "size", property(sums))
    copied(page(2, b"dict") + page(0, b"one") * 1000)
    assert sums.call_count <= 1


# --- where pages are -----------------------------------------------------------------------------

def test_an_offset_index_follows_its_pages():
    index = offset_index((100, 10), (110, 20))
    assert locations(moved_index(index, -50)) == [(50, 10), (60, 20)]
    assert locations(placed_index(index, 7, [3, 4])) == [(7, 3), (10, 4)]


@pytest.mark.parametrize("sizes", [[3], [3, 4, 5]])
def test_an_offset_index_of_other_pages_is_refused(sizes):
    with pytest.raises(FormatError, match=f"has 2 pages, but the column chunk has {len(sizes)}"):
        placed_index(offset_index((100, 10), (110, 20)), 7, sizes)


@pytest.mark.parametrize(("set_range", "range_of", "fields"), [
    (set_column_index, "column_index", COLUMN_INDEX),
    (set_offset_index, "offset_index", OFFSET_INDEX)])
def test_the_place_of_a_page_index_is_recorded_or_removed(set_range, range_of, fields):
    chunk, _ = chunk_of(write_page_index=True)
    set_range(chunk, 1234, 56)
    assert getattr(chunk, range_of) == (1234, 56)
    set_range(chunk, 0, 0)
    assert getattr(chunk, range_of) is None
    assert not {field[0] for field in chunk.to_change().fields}.intersection(fields)


def test_pages_that_were_moved_are_found():
    chunk, _ = chunk_of()
    start, size = chunk.pages
    for meta in chunk.metadata_to_change():
        meta.set_int(INDEX_PAGE, thrift.I64, 0)  # there is none
    chunk.to_change().set_int(FILE_OFFSET, thrift.I64, start)
    before = chunk.metadata().get_int(DATA_PAGE)
    move_pages(chunk, 1000)
    assert chunk.pages == (start + 1000, size)
    assert chunk.metadata().get_int(DATA_PAGE) == before + 1000
    assert chunk.metadata().get_int(INDEX_PAGE) == 0
    assert chunk.to_change().get_int(FILE_OFFSET) == start + 1000


@pytest.mark.parametrize("has_dictionary", [True, False])
def test_pages_that_were_replaced_are_described(has_dictionary):
    chunk, _ = chunk_of(use_dictionary=True)
    new, file = chunk_of(use_dictionary=has_dictionary, compression="zstd",
                         write_statistics=False)
    _, stored = copied(pages_of(file, new))
    larger = StoredPages(stored.dictionary_size, array("q", [stored.data_sizes[0] + 28]))
    chunk.to_change().set_int(FILE_OFFSET, thrift.I64, 4)
    uncompressed = total_size(new)
    replace_pages(chunk, new, 5000, larger)
    meta = chunk.metadata()
    assert meta.get_int(COMPRESSED_SIZE) == stored.size + 28
    assert total_size(chunk) == uncompressed + 28
    assert meta.get_int(DATA_PAGE) == 5000 + stored.dictionary_size
    assert meta.get_int(DICTIONARY_PAGE) == (5000 if has_dictionary else None)
    assert meta.get(STATISTICS) is None  # those of the old pages
    assert chunk.to_change().get_int(FILE_OFFSET) == 5000
    assert chunk.pages == (5000, larger.size)
    assert PageFormat.of(chunk) == PageFormat.of(new)


def test_a_file_offset_that_was_not_stored_is_not_invented():
    chunk, _ = chunk_of()
    new, file = chunk_of()
    chunk.to_change().set_int(FILE_OFFSET, thrift.I64, 0)
    replace_pages(chunk, new, 5000, copied(pages_of(file, new))[1])
    assert chunk.to_change().get_int(FILE_OFFSET) == 0


@pytest.mark.parametrize(("kind", "is_version_2"), [(0, False), (3, True)])
def test_the_format_of_pages_is_known(kind, is_version_2):
    chunk, _ = chunk_of(use_dictionary=False, write_statistics=False)
    stats = Struct()
    for number, value in enumerate([kind, 0, 1], 1):
        stats.set_int(number, I32, value)
    for meta in chunk.metadata_to_change():  # Arrow does not tell the two kinds apart
        meta.set(ENCODING_STATS, LIST, b"\x1c" + thrift.encode(stats))
    found = PageFormat.of(chunk)
    assert (found.codec, found.has_dictionary, found.has_pages_v2) == (0, False, is_version_2)
    assert not found.has_statistics and found.encodings
    found = PageFormat.of(chunk_of(compression="zstd")[0])
    assert (found.codec, found.has_dictionary, found.has_statistics) == (6, True, True)


def test_encodings_that_are_malformed_are_refused():
    chunk, _ = chunk_of()
    for meta in chunk.metadata_to_change():
        meta.set(ENCODINGS, LIST, b"\x25\x00\xff")  # the second number does not end
    with pytest.raises(FormatError, match="truncated"):
        PageFormat.of(chunk)
    for meta in chunk.metadata_to_change():
        meta.set(ENCODINGS, STRUCT, None)
    assert PageFormat.of(chunk).encodings == frozenset()


def test_a_column_is_dictionary_encoded_if_all_of_its_data_pages_are():
    assert chunk_of()[0].is_dictionary_encoded
    assert not chunk_of(use_dictionary=False)[0].is_dictionary_encoded
    mixed, _ = chunk_of(dictionary_pagesize_limit=1, write_batch_size=1)  # falls back to plain
    assert not mixed.is_dictionary_encoded
    for meta in mixed.metadata_to_change():
        meta.remove(ENCODING_STATS)
    assert not mixed.is_dictionary_encoded  # not known


def test_a_footer_length_has_four_bytes():
    size = 1 << 24
    before, content, magic = split_tail(bytes(size + 10) + size.to_bytes(4, "little") + b"PAR1")
    assert (len(before), len(content), magic) == (10, size, b"PAR1")
