"""An index says in which rows of a row group a value may be; lookups read only their pages."""

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import secure_bloom
from secure_bloom.datasets.dataset_file import OpenedFile
from secure_bloom.index import Index, build, building
from secure_bloom.index.geometry import MAX_ROW_GROUPS, Geometry, pack, place_of
from secure_bloom.index.pages import Page
from secure_bloom.keys import rotate_master_keys
from secure_bloom.parquet import row_ranges
from secure_bloom.parquet.row_ranges import ALL_PARTS, ALL_ROWS, LEAST_ROWS, NUM_PARTS
from tests.index.helpers import ENCRYPTION, KMS, age
from tests.reading.ways import by_pages, by_row_groups, with_ranges

ROWS = 6400


def _rows(seed, rows=ROWS, **columns):
    numbers = random.Random(seed).sample(range(10 * rows), rows)
    return pa.table({"ssn": [f"{seed}-{number:06}" for number in numbers],
                     "n": np.arange(rows), **columns})


def _write(path, data, **options):
    secure_bloom.write_table(data, path, **{
        "encryption": ENCRYPTION, "keys": KMS, "row_group_size": len(data) // 2,
        "data_page_size": 1000, "write_batch_size": 50, "use_dictionary": False} | options)
    age(path.parent)


@pytest.fixture
def table(tmp_path):
    with with_ranges():
        for number in range(2):
            _write(tmp_path / f"{number}.parquet", _rows(number))
            build(tmp_path, "ssn", KMS)
        yield tmp_path


def lookup(table, value, index="require"):
    """Return the rows with a value, and how many bytes of the pages were read."""
    data = secure_bloom.dataset(table, KMS, index=index)
    with by_pages():
        rows = data.to_table(filter=pc.field("ssn") == value)
    return rows.column("n").to_pylist(), data.report.by_pages.read_bytes


def check(table, *, is_shorter=True):
    for number in range(2):
        data = _rows(number)
        for place in (0, 99, ROWS // 2 - 1, ROWS // 2, ROWS - 1):
            value = data["ssn"][place].as_py()
            found, read = lookup(table, value)
            expected, read_without = lookup(table, value, "off")
            assert found == expected == [place]
            # Of the other column, both read a page; of this one, 1 of 32 parts and all 32.
            assert (read < read_without / 4) is is_shorter
    assert lookup(table, "absent")[0] == []
    assert Index.open(table, KMS).verify(None).ok


def test_a_lookup_reads_the_pages_with_the_rows_alone(table):
    check(table)


@pytest.mark.slow
def test_what_rewrites_files_or_merges_segments_keeps_the_ranges(table):
    secure_bloom.attach(table / "0.parquet", ["ssn"], KMS)
    rotate_master_keys(table, KMS, old="pii", new="new")
    index = Index.open(table, KMS)
    index.rotate(old="pii", new="new")
    age(table)
    assert index.update().restamped == 2
    check(table)
    index = Index.open(table, KMS)
    assert index.compact() == 2
    check(table)


@pytest.mark.slow
def test_a_file_with_other_rows_under_its_name_is_not_read_by_the_old_ranges(table):
    data = _rows(0)
    _write(table / "0.parquet", data.take(np.arange(ROWS)[::-1]))
    for place in (0, 99, ROWS - 1):
        assert lookup(table, data["ssn"][place].as_py())[0] == [place]
    build(table, "ssn", KMS)
    check(table)


def test_ranges_count_only_for_a_file_that_is_the_one_that_was_indexed(table, monkeypatch):
    value = _rows(0)["ssn"][99].as_py()
    monkeypatch.setattr(OpenedFile, "is_selected", lambda *_: False)
    found, read = lookup(table, value)
    assert found == [99] and read >= lookup(table, value, "off")[1]


def test_segments_without_ranges_are_read_and_merged(tmp_path):
    """Those of earlier versions, and of files with small row groups."""
    _write(tmp_path / "0.parquet", _rows(0))
    build(tmp_path, "ssn", KMS)
    with with_ranges():
        check_files = [segment.geometry.range_bits for segment
                       in Index.open(tmp_path, KMS).column("ssn").segments]
        _write(tmp_path / "1.parquet", _rows(1))
        build(tmp_path, "ssn", KMS)
        Index.open(tmp_path, KMS).compact()
        [merged] = Index.open(tmp_path, KMS).column("ssn").segments
        assert check_files == [0] and merged.geometry.range_bits >= 5
        for number, is_shorter in ((0, False), (1, True)):
            value = _rows(number)["ssn"][40].as_py()
            found, read = lookup(tmp_path, value)
            assert found == [40]
            assert (read < lookup(tmp_path, value, "off")[1] / 4) is is_shorter


def test_verify_finds_ranges_that_miss_a_row(tmp_path, monkeypatch):
    original = building.SegmentBuilder.add

    def add(self, group, hashes, range_=ALL_ROWS):
        original(self, group, hashes, 2 if range_ == NUM_PARTS + 20 else range_)

    monkeypatch.setattr(building.SegmentBuilder, "add", add)
    with with_ranges():
        _write(tmp_path / "0.parquet", _rows(0))
        build(tmp_path, "ssn", KMS)
        found = Index.open(tmp_path, KMS).verify(None).findings
    assert {(one.kind, one.row_groups) for one in found} == {("omission", (0,)), ("omission", (1,))}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["build", "write_dataset"])
def test_conditions_of_several_columns_and_values(tmp_path, way):
    """With nulls, values in several rows, lists and dictionaries, whose rows are not known."""
    choose = random.Random(5)
    data = pa.table({
        "ssn": [choose.choice([f"{choose.randrange(900)}", None, "often"]) for _ in range(ROWS)],
        "f": pa.array([choose.choice([0.0, -0.0, float("nan"), float(row // 9)])
                       for row in range(ROWS)]),
        "s": [{"x": choose.randrange(900)} if row % 7 else None for row in range(ROWS)],
        "l": [[choose.randrange(900)] if row % 3 else [] for row in range(ROWS)],
        "d": pa.array([f"{row // 40}" for row in range(ROWS)]).dictionary_encode()})
    columns = ["ssn", "f", "s.x", "l.list.element", "d"]
    with with_ranges():
        if way == "build":
            _write(tmp_path / "0.parquet", data, encryption=None, keys=None)
            build(tmp_path, columns, encryption=None)
        else:
            secure_bloom.write_dataset(
                data, tmp_path, index_columns=columns, keys=KMS, row_group_size=ROWS // 2,
                encryption=secure_bloom.EncryptionConfiguration("footer", {"pii": columns}),
                data_page_size=1000, write_batch_size=50)
        assert Index.open(tmp_path, KMS).verify(None).ok
        for _ in range(12):
            filters = [[_predicate(choose) for _ in range(choose.choice([1, 2]))]
                       for _ in range(choose.choice([1, 1, 2]))]
            with by_row_groups():
                expected = secure_bloom.read_table(tmp_path, KMS, filters=filters,
                                                   index="off")
            with by_pages():
                found = secure_bloom.read_table(tmp_path, KMS, filters=filters,
                                                index="require")
            assert repr(found.to_pylist()) == repr(expected.to_pylist()), filters


def _predicate(choose):
    number = choose.randrange(900)
    return choose.choice([
        ("ssn", "=", str(number)), ("ssn", "in", [str(number), "often"]), ("ssn", "=", "often"),
        ("f", "=", 0.0), ("f", "=", -0.0), ("f", "in", [float(number), float("nan")]),
        ("s.x", "=", number), ("d", "=", str(number % 160)), ("ssn", "in", [str(number), None]),
        ("f", ">", 600.0), ("s.x", "in", list(range(number)))])


def test_rows_of_a_large_row_group_are_in_the_smallest_ranges_and_of_a_small_one_in_no():
    for rows in (LEAST_ROWS, LEAST_ROWS + 12_345):
        found = list(row_ranges.pieces(100, rows, rows, 1000))
        assert found[0].start == 100 and found[-1].stop == rows
        assert all(one.stop == other.start for one, other in pairwise(found))
        for one in found:
            for row in (one.start, one.stop - 1):
                assert one.range == NUM_PARTS + row * NUM_PARTS // rows
    assert list(row_ranges.pieces(0, 10, LEAST_ROWS - 1, 100)) == [(ALL_ROWS, 0, 10)]
    more_than_there_are = row_ranges.pieces(0, LEAST_ROWS + 1, LEAST_ROWS, 1 << 20)
    assert [one.range for one in more_than_there_are] == [ALL_ROWS]


def test_fewer_bits_are_larger_ranges():
    ranges = np.arange(64, dtype=np.uint64)
    parts = row_ranges.parts_of(ranges)
    assert parts[0] == parts[1] == ALL_PARTS
    for bits in range(1, 7):
        less = row_ranges.narrowed(ranges, bits)
        assert less.max() < 1 << bits
        assert (row_ranges.parts_of(less) & parts == parts).all()
        assert (less[:1 << bits] == ranges[:1 << bits]).all()


@pytest.mark.parametrize("row_groups", [1, 100, 2**20, 2**21 + 1, MAX_ROW_GROUPS])
def test_pairs_keep_their_ranges_as_far_as_there_is_room(row_groups):
    geometry = Geometry.of(10**6, row_groups, has_ranges=True)
    assert geometry.place_bits <= 26 and Geometry.from_json(geometry.to_json()) == geometry
    fingerprint, group = np.array([2**63 + 2**40], np.uint64), min(row_groups, 2**20) - 1
    for range_ in range(1, 64):
        [pair] = geometry.repacked(pack(fingerprint, place_of(group, range_)))
        pages, _ = geometry.encode_pages(np.array([pair]), 0, 1)
        _, places = geometry.join(0, *Page(pa.py_buffer(pages), geometry.layout).decode())
        [found], [wide] = geometry.groups_and_ranges(places)
        parts = row_ranges.parts_of(np.array([range_, wide], np.uint64)).tolist()
        assert found == group and parts[0] & ~parts[1] == 0


def test_a_range_saves_a_byte_where_one_bit_less_is_enough():
    assert Geometry.of(2**20, 2, has_ranges=True).layout.width == Geometry.of(2**20, 2).layout.width
    assert Geometry.of(2**20, 2, has_ranges=True).range_bits == 5
    assert Geometry.of(2**20, 4, has_ranges=True).range_bits == 6


def test_merged_segments_have_ranges_if_most_rows_are_in_large_row_groups():
    assert row_ranges.are_worth_it([10**6, 10**5], [10, 10])
    assert not row_ranges.are_worth_it([10**6, 10**6 + 1], [10, 100])
    assert not row_ranges.are_worth_it([], []) and not row_ranges.are_worth_it([0], [0])
