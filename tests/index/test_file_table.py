"""File tables: what is stored is read, and hostile ones are refused."""

import random
import struct
import weakref
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_bloom.errors import FormatError
from secure_bloom.index import file_pages, file_table
from secure_bloom.index.file_pages import FilePage, are_normal
from secure_bloom.index.file_table import FileDirectory, FileTable
from secure_bloom.index.geometry import MAX_ROW_GROUPS
from tests.index.helpers import entry
from tests.memory import Peak


def stored(entries) -> tuple[bytes, list[bytes]]:
    """Return the directory and the pages of a table, as they are stored before they are sealed."""
    table = FileTable.of(entries)
    pages = [page.to_bytes() for page in table.all_pages()]
    return table.directory._replace(sizes=np.array([len(page) for page in pages])).to_bytes(), pages


def opened(directory: bytes, pages: list[bytes], read: list | None = None) -> FileTable:
    """Open a table; the numbers of pages that it reads are added to a list."""
    def contents(first, last):
        if read is not None:
            read.extend(range(first, last))
        return pages[first:last]

    return FileTable.stored(FileDirectory.parse(directory), contents, nullcontext)


def test_entries_are_stored_with_each_schema_once():
    entries = [entry(number, number % 3)._replace(schema=b"s" * 1000 + bytes([number % 2]),
                                                  has_ranges=number % 5 > 0)
               for number in range(300)]
    directory, pages = stored(entries)
    table = opened(directory, pages)
    assert [table.entry(number) for number in range(300)] == entries
    assert len(table.schemas) == 2
    assert table.rows.schema_ids == [number % 2 for number in range(300)]
    assert table.rows.has_ranges == [number % 5 > 0 for number in range(300)]
    assert len(pages) == 3 and len(directory) + sum(map(len, pages)) < 30_000


def test_row_groups_are_numbered_through_the_files():
    table = FileTable.of([entry(0, 2), entry(1, 0), entry(2, 3)._replace(has_ranges=False)])
    files, groups, has_ranges, paths = table.locate(np.arange(5, dtype=np.uint64))
    assert (files.tolist(), groups.tolist()) == ([0, 0, 2, 2, 2], [0, 1, 0, 1, 2])
    assert has_ranges.tolist() == [True, True, False, False, False]
    assert paths == [entry(file, 0).path for file in files.tolist()]
    with pytest.raises(FormatError, match="row group"):
        table.locate(np.array([5], np.uint64))


def test_only_the_pages_of_the_row_groups_are_read(monkeypatch):
    monkeypatch.setattr(file_table, "PAGE_FILES", 7)
    entries = [entry(number, number % 4) for number in range(500)]
    groups = [(number, group) for number in range(500) for group in range(number % 4)]
    read: list[int] = []
    table = opened(*stored(entries), read)
    rng = random.Random(5)
    for _ in range(50):
        some = rng.sample(range(len(groups)), 3)
        read.clear()
        found = table.locate(np.array(some, np.uint64))
        assert list(zip(found.files.tolist(), found.row_groups.tolist(), strict=True)) \
            == [groups[one] for one in some]
        assert found.paths == [entries[file].path for file in found.files]
        assert set(read) <= {groups[one][0] // 7 for one in some}
    assert [table.first_group_of(number) for number in range(500)] \
        == [sum(one % 4 for one in range(number)) for number in range(500)]


@pytest.mark.parametrize("changed", [
    {"row_groups": -1}, {"row_groups": 2**31 - 1}, {"rows": -1},
    *({"path": path} for path in ("", "/a", "a/", "a//b", "./a", "a/./b", "..", "a/../b", "a\0b",
                                  entry(1, 1).path))])
def test_invalid_entries_are_refused(changed):
    """Among them paths that no listing shows, and one that another file has, too."""
    directory, pages = stored([entry(0, 1)._replace(**changed), entry(1, 1)])
    with pytest.raises(FormatError, match="file table"):
        opened(directory, pages).check()


@given(st.lists(st.text("a/.\0!é", max_size=5), min_size=1, max_size=6))
def test_paths_are_refused_as_a_whole_or_read_one_by_one(paths):
    """They are checked where they are stored, one after the other without anything between."""
    page = FilePage.of([entry(0, 1)._replace(path=path) for path in paths], {entry(0, 1).schema: 0})
    try:
        found = FilePage.parse(page.to_bytes(), [b""]).paths
    except ValueError:
        assert not are_normal(paths)
    else:
        assert are_normal(paths)
        assert [found[number] for number in range(len(paths))] == list(found) == paths


def test_a_void_entry_may_have_the_path_of_another_one():
    opened(*stored([entry(0, 1).void(), entry(0, 1)])).check()


@pytest.mark.parametrize("change", [
    lambda pages: [pages[1], pages[0]], lambda pages: [pages[0], pages[0]],
    lambda pages: [stored([entry(0, 1), entry(1, 2)])[1][0], pages[1]],
    lambda pages: [stored([entry(0, 1), entry(1, 1), entry(3, 0)])[1][0], pages[1]]],
    ids=["exchanged", "repeated", "other row groups", "more files"])
def test_pages_that_do_not_fit_their_directory_are_refused(change, monkeypatch):
    monkeypatch.setattr(file_table, "PAGE_FILES", 2)
    directory, pages = stored([entry(0, 1), entry(1, 1), entry(2, 1)])
    monkeypatch.setattr(file_table, "PAGE_FILES", 10)
    with pytest.raises(FormatError, match="file table"):
        opened(directory, change(pages)).check()


def packed(data: bytes, size: int | None = None) -> bytes:
    """Return a file table with this content, which claims a size."""
    return struct.pack("<q", len(data) if size is None else size) \
        + pa.Codec("zstd").compress(data, asbytes=True)


@pytest.mark.parametrize("data", [
    b"", packed(b""), packed(struct.pack("<iii", 0, 0, 0)), packed(struct.pack("<iii", 0, 128, 0)),
    packed(struct.pack("<iii", -1, 128, 0)), packed(struct.pack("<iii", 1, 0, 0)),
    packed(struct.pack("<iii", 2**31 - 1, 1, 1)), packed(struct.pack("<iiiii", 1, 1, -1, 1, 1)),
    packed(struct.pack("<iii", 1, 1, 2**31 - 1) + bytes(100)),
    packed(struct.pack("<iiiii", 1, 1, 0, -1, 1)), packed(struct.pack("<iiiii", 1, 1, 0, 1, -1)),
    packed(bytes(100), 99), packed(bytes(100), 101), packed(bytes(100), -1),
    packed(bytes(9), 2**62)])
def test_other_content_is_refused(data):
    with pytest.raises(FormatError):
        FileDirectory.parse(data)
    directory, _ = stored([entry(0, 1)])
    with pytest.raises(FormatError):
        opened(directory, [data]).check()
    with pytest.raises(FormatError):
        FileTable.from_sbx2(data)


def test_more_row_groups_than_a_segment_may_have_are_refused():
    directory, pages = stored([entry(0, 2**26), entry(1, 1)])
    with pytest.raises(FormatError):
        opened(directory, pages)


def test_what_a_compressed_table_claims_is_not_allocated():
    """Stored bytes of a few KB may be many GB when they are decompressed."""
    limits = [(file_table.MAX_BYTES, FileDirectory.parse),
              (file_pages.MAX_FILE_PAGE, lambda data: FilePage.parse(data, [b""])),
              (file_table.MAX_BYTES, FileTable.from_sbx2)]
    for limit, parse in limits:
        bomb = packed(bytes(limit + 1))
        peak = Peak()
        for data in (bomb, bomb[8:], struct.pack("<q", 1000) + bomb[8:]):
            with pytest.raises((FormatError, ValueError, OSError)):
                parse(data)
        assert len(bomb) < 20_000 and peak.bytes() < file_table.MAX_BYTES // 4


def test_many_pages_that_are_nearly_nothing_when_stored_are_refused_early(monkeypatch):
    """Each of them may have 4 MiB, and lists of their rows take several times as much."""
    monkeypatch.setattr(file_table, "PAGE_FILES", 1000)
    monkeypatch.setattr(file_table, "MAX_BYTES", 200_000)
    parsed, original = [], file_table._parsed
    monkeypatch.setattr(file_table, "_parsed", lambda directory, number, content: parsed.append(
        number) or original(directory, number, content))
    opened(*stored([entry(number, 1) for number in range(5000)])).check()
    parsed.clear()
    with pytest.raises(FormatError, match="file table"):
        opened(*stored([entry(0, 0).void()] * 100_000)).check()
    assert len(parsed) < 5


def test_more_pages_than_a_segment_needs_are_refused():
    """A few KB may say that there are 16 million, of which readers would make large arrays."""
    number = file_table.MAX_PAGES
    for more in (0, 1):
        data = packed(struct.pack("<iii", number + more, 1, 0) + bytes(8 * (number + more)))
        if more:
            with pytest.raises(FormatError, match="file table"):
                FileDirectory.parse(data)
        else:
            assert FileDirectory.parse(data).sizes.size == number
    assert number * file_table.PAGE_FILES > MAX_ROW_GROUPS


def test_pages_are_kept_by_their_sizes(monkeypatch):
    monkeypatch.setattr(file_table, "PAGE_FILES", 1000)
    monkeypatch.setattr(file_table, "_KEPT", 300_000)
    table = opened(*stored([entry(number, 1) for number in range(20_000)]))
    seen = [weakref.ref(table.page(number)) for number in range(20)]
    kept = [page for one in seen if (page := one()) is not None]
    assert kept and sum(page.nbytes for page in kept) <= 300_000


@pytest.mark.slow
def test_changed_bytes_are_refused_or_read():
    """The file table of an index without encryption may come from anyone."""
    directory, pages = stored([entry(number, 3) for number in range(5)])
    rng = random.Random(3)
    outcomes = set()
    for number in range(1000):
        changed = [bytearray(directory), bytearray(pages[0])]
        one = changed[number % 2]
        for _ in range(rng.randint(1, 3)):
            one[rng.randrange(len(one))] = rng.choice([0, 1, 0x7f, 0x80, 0xff])
        try:
            table = opened(bytes(changed[0]), [bytes(changed[1])] * 10)
            table.check()
            outcomes.add((number % 2, len(table)))
        except FormatError:
            outcomes.add((number % 2, None))
    assert {(0, None), (1, None)} <= outcomes
