"""What an index answers: every zone that holds a value, and few others."""

import datetime
import decimal
import shutil
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_bloom.errors import ColumnError, FormatError, UnsupportedError
from secure_bloom.lance import BloomFilterIndex, Zone, build_index, index, row_ranges
from tests.lance.helpers import content, index_by_pylance, lance, write_dataset, write_lance_file
from tests.support import examples

ITEMS = 3
VALUES = {
    pa.int8(): st.integers(-128, 127),
    pa.uint16(): st.integers(0, 2**16 - 1),
    pa.int64(): st.integers(-2**63, 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.string(): st.text(),
    pa.large_binary(): st.binary(),
    pa.date64(): st.dates(),
    pa.time32("s"): st.integers(0, 86_399),
    pa.timestamp("s"): st.integers(-2**62, 2**62),
    pa.timestamp("us", "UTC"): st.integers(-2**62, 2**62),
}


@pytest.fixture
def place(tmp_path):
    return tmp_path / "bloomfilter.lance"


def build(place, values, arrow_type, **parameters):
    array = values if isinstance(values, pa.Array) else pa.array(values, arrow_type)
    build_index(pa.table({"v": array}), "v", place, **{"items": ITEMS, **parameters})
    return BloomFilterIndex(place, arrow_type)


@given(st.data())
@examples(150)
def test_a_value_is_never_missed(tmp_path_factory, data):
    arrow_type = data.draw(st.sampled_from(list(VALUES)))
    values = data.draw(st.lists(st.one_of(st.none(), VALUES[arrow_type]), max_size=20))
    asked = build(tmp_path_factory.mktemp("i") / "x.lance", values, arrow_type)
    array = pa.array(values, arrow_type)
    zones_of = defaultdict(set)
    for row, value in enumerate(values):
        zones_of[value].add(row // ITEMS)
    for row, scalar in enumerate(array):
        expected = zones_of[values[row]]
        for probe in (scalar, array.slice(row, 1)):
            found = asked.equals(probe) if isinstance(probe, pa.Scalar) else asked.is_in(probe)
            assert expected <= {zone.zone_start // ITEMS for zone in found}
    assert {zone.zone_start // ITEMS for zone in asked.is_null()} == zones_of[None]
    assert asked.equals(None) == asked.is_null()
    if len(array):
        assert asked.is_in(array) == asked.zones


def test_zones_say_where_they_are(place):
    asked = build(place, [1, 2, None, 4, 5, 6, 7], pa.int64())
    assert asked.zones == [Zone(0, 0, 3, True), Zone(0, 3, 3, False), Zone(0, 6, 1, False)]
    assert asked.equals(5) == [Zone(0, 3, 3, False)]
    assert asked.is_in([7, 1]) == [asked.zones[0], asked.zones[2]]
    assert asked.is_in([5, None]) == asked.zones[:2]
    assert asked.is_in([]) == []
    assert asked.equals(10**9) == []
    assert asked.fragment_ids == [0]
    assert (asked.items, asked.probability, asked.num_bytes) == (3, 0.00057, 32)
    assert asked.has_null_bitmap
    assert "3 zones" in repr(asked)


def test_row_ranges_join_zones_that_follow_each_other():
    zones = [Zone(4, 0, 10, False), Zone(1, 20, 5, True), Zone(1, 25, 5, False),
             Zone(1, 31, 2, False), Zone(1, 0, 1, False)]
    assert row_ranges(zones) == {1: [(0, 1), (20, 30), (31, 33)], 4: [(0, 10)]}
    assert row_ranges([]) == {}


@pytest.mark.parametrize(("arrow_type", "value", "probe"), [
    (pa.int8(), 5, 5), (pa.int8(), -5, np.int64(-5)), (pa.uint8(), 200, pa.scalar(200, pa.int32())),
    (pa.int16(), -300, -300), (pa.uint64(), 2**64 - 1, pa.scalar(2**64 - 1, pa.uint64())),
    (pa.float32(), 0.1, 0.1), (pa.float64(), 3.0, 3),
    (pa.float64(), 0.0, -0.0), (pa.float32(), -0.0, 0), (pa.float64(), -0.0, 0.0),
    (pa.string(), "ä", pa.scalar("ä", pa.large_string())), (pa.binary(), b"x", b"x"),
    (pa.date32(), datetime.date(1950, 3, 4), datetime.date(1950, 3, 4)),
    (pa.date64(), datetime.date(1950, 3, 4), datetime.date(1950, 3, 4)),
    (pa.date64(), datetime.date(1950, 3, 4),
     pa.scalar(datetime.date(1950, 3, 4), pa.date64())),
    (pa.time32("s"), datetime.time(3, 4, 5), datetime.time(3, 4, 5)),
    (pa.timestamp("s"), datetime.datetime(1960, 1, 2), datetime.datetime(1960, 1, 2)),
    (pa.timestamp("ns", "Asia/Tokyo"), datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC),
     datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC)),
], ids=str)
def test_a_probe_of_another_form_finds_the_value_and_not_everything(place, arrow_type, value,
                                                                    probe):
    other = {True: "other", False: None}[pa.types.is_string(arrow_type)]
    asked = build(place, [value, None, None, other], arrow_type, probability=1e-6)
    assert asked.equals(probe) == asked.zones[:1]
    assert asked.is_in([probe]) == asked.zones[:1]


@pytest.mark.parametrize(("arrow_type", "probe"), [
    (pa.int8(), 300), (pa.int64(), 5.0), (pa.int64(), decimal.Decimal(5)),
    (pa.float64(), 2**60 + 1), (pa.float64(), float("nan")),
    (pa.int32(), "5"), (pa.string(), 5), (pa.int64(), True),
    (pa.timestamp("s"), datetime.datetime(2020, 1, 1, 0, 0, 0, 5)),
    (pa.timestamp("s", "UTC"), datetime.datetime(2020, 1, 1)),
    (pa.date32(), datetime.datetime(2020, 1, 1))], ids=str)
def test_a_value_without_certain_counterpart_may_be_everywhere(place, arrow_type, probe):
    asked = build(place, pa.nulls(5, arrow_type), arrow_type)
    assert asked.equals(probe) == asked.is_in([probe]) == asked.zones
    assert len(asked.zones) == 2


def test_values_that_arrow_does_not_know_are_errors(place):
    asked = build(place, [1.0, 2.0], pa.float64())
    for values in ([2**70], [object()], [1, "a"]):
        with pytest.raises(ColumnError, match="no common Arrow type"):
            asked.is_in(values)
    with pytest.raises(TypeError, match="list"):
        asked.is_in("abc")


def test_probes_do_not_show_in_errors(place):
    asked = build(place, [1], pa.int64())
    with pytest.raises(ColumnError) as error:
        asked.is_in(["078-05-1120", 7])
    assert "078" not in str(error.value)


def test_absent_values_are_rarely_reported(place):
    rng = np.random.default_rng(1)
    asked = build(place, pa.array(rng.integers(0, 2**40, 50_000)), pa.int64(), items=1000,
                  probability=0.01)
    found = sum(len(asked.equals(int(value))) for value in rng.integers(2**41, 2**42, 400))
    assert found / (400 * len(asked.zones)) < 0.01
    assert 0.0005 < asked.expected_fpp() < 0.01


@pytest.mark.slow
def test_filters_that_do_not_fit_into_memory_are_read_again(place, monkeypatch):
    values = pa.array(np.arange(1000))
    kept = build(place, values, pa.int64())
    monkeypatch.setattr(index, "_KEPT_BYTES", 0)
    monkeypatch.setattr(index, "_BATCH_BYTES", 32 * 7)
    streamed = BloomFilterIndex(place, pa.int64())
    for value in range(0, 1200, 37):
        assert streamed.equals(value) == kept.equals(value)
    assert streamed.expected_fpp() == pytest.approx(kept.expected_fpp())


def test_too_many_zones_are_refused(place, monkeypatch):
    build(place, [1] * 30, pa.int64())
    monkeypatch.setattr(index, "_MAX_ZONES", 9)
    with pytest.raises(UnsupportedError, match="10 zones"):
        BloomFilterIndex(place)


# --- the type of the column ----------------------------------------------------------------------

def test_the_data_set_says_which_column_it_is(tmp_path):
    rows = pa.array([{"x": i} for i in range(20)], pa.struct([("x", pa.int16())]))
    dataset = write_dataset(tmp_path / "d", {"x": np.arange(20), "s": rows})
    asked = BloomFilterIndex(index_by_pylance(dataset, "s.x"))
    assert asked.column == "s.x"
    assert asked.column_type.arrow_type == pa.int16()
    assert asked.equals(7) == asked.zones
    assert asked.equals(70) == []


def test_another_type_than_that_of_the_data_set_is_refused(tmp_path):
    path = index_by_pylance(write_dataset(tmp_path / "d", {"a": np.arange(20)}), "a")
    assert BloomFilterIndex(path, pa.int64()).column == "a"
    with pytest.raises(ColumnError, match="has type int64, but value_type is int32"):
        BloomFilterIndex(path, pa.int32())


def test_without_a_type_only_nulls_are_answered(tmp_path, place):
    path = index_by_pylance(write_dataset(tmp_path / "d", {"a": [1, None]}), "a")
    shutil.copy(path, place)
    asked = BloomFilterIndex(place)
    assert asked.column is None and asked.column_type is None
    assert asked.is_null() == asked.zones == [Zone(0, 0, 2, True)]
    with pytest.raises(ColumnError, match="pass value_type"):
        asked.equals(1)
    assert BloomFilterIndex(place, pa.int64()).equals(1) == asked.zones
    with pytest.raises(ColumnError, match="does not support BLOOMFILTER indexes"):
        BloomFilterIndex(place, pa.bool_())


def test_a_data_set_that_cannot_be_read_is_an_error(tmp_path):
    path = index_by_pylance(write_dataset(tmp_path / "d", {"a": [1, 2]}), "a")
    for manifest in (tmp_path / "d" / "_versions").iterdir():
        manifest.write_bytes(b"x" * 100)
    with pytest.raises(FormatError, match="pylance cannot read"):
        BloomFilterIndex(path)
    shutil.rmtree(tmp_path / "d" / "_versions")
    assert BloomFilterIndex(path).column is None


def test_an_index_that_its_data_set_does_not_know_needs_a_type(tmp_path):
    dataset = write_dataset(tmp_path / "d", {"a": [1, 2]})
    path = index_by_pylance(dataset, "a")
    dataset.drop_index("a_idx")
    assert BloomFilterIndex(path).column is None


def test_an_index_that_its_data_set_does_not_know_rules_nothing_out(tmp_path):
    dataset = write_dataset(tmp_path / "d", {"a": [1, 2]})
    path = index_by_pylance(dataset, "a")
    assert BloomFilterIndex(path, pa.int64()).equals(10**9) == []
    dataset.create_scalar_index("a", "BLOOMFILTER", replace=True)
    asked = BloomFilterIndex(path, pa.int64())
    assert asked.equals(10**9) == asked.is_null() == asked.zones
    assert len(asked.zones) == 1 and asked.fragment_ids == []


@pytest.mark.skipif(not hasattr(lance.fragment.LanceFragment, "update_columns"),
                    reason="this pylance cannot change values in their fragment")
def test_values_that_were_changed_in_their_fragment_are_not_missed(tmp_path):
    columns = {"v": np.arange(20), "w": ["x"] * 20}
    dataset = write_dataset(tmp_path / "d", columns, rows_per_fragment=10)
    path = index_by_pylance(dataset, "v")
    asked = BloomFilterIndex(path)
    assert asked.equals(777) == asked.is_null() == []
    new = pa.table({"_rowid": pa.array(range(10), pa.uint64()), "v": [777] * 9 + [None]})
    fragment, fields = dataset.get_fragments()[0].update_columns(new, left_on="_rowid",
                                                                 right_on="_rowid")
    operation = lance.LanceOperation.Update(updated_fragments=[fragment], fields_modified=fields)
    dataset = lance.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)
    assert dataset.count_rows("v = 777") == 9
    asked = BloomFilterIndex(path)
    assert asked.equals(777) == asked.is_in([777]) == asked.is_null() == [Zone(0, 0, 10, False)]
    assert asked.fragment_ids == [1]
    assert asked.equals(15) == asked.zones


# --- against pylance's own answers ---------------------------------------------------------------

@pytest.mark.slow
def test_answers_hold_all_rows_that_pylance_finds(tmp_path):
    rng = np.random.default_rng(2)
    words = pa.array([f"w{i}" for i in rng.zipf(1.3, 5000) % 10_000])
    columns = {"v": words.take(pa.array(np.arange(5000), mask=rng.random(5000) < 0.001))}
    dataset = write_dataset(tmp_path / "d", columns, rows_per_fragment=1700)
    dataset.delete("v = 'w3'")
    path = index_by_pylance(dataset, "v", number_of_items=50, probability=0.01)
    asked = BloomFilterIndex(path)
    for word in pc.unique(words).to_pylist()[:200]:
        rows = dataset.to_table(columns=["_rowaddr"], filter=f"v = '{word}'",
                                use_scalar_index=False)["_rowaddr"].to_pylist()
        assert _all_in(rows, row_ranges(asked.equals(word)))
    nulls = dataset.to_table(columns=["_rowaddr"], filter="v IS NULL", use_scalar_index=False)
    assert nulls.num_rows and _all_in(nulls["_rowaddr"].to_pylist(), row_ranges(asked.is_null()))


def _all_in(addresses, ranges):
    return all(any(start <= address % 2**32 < stop for start, stop in ranges[address >> 32])
               for address in addresses)


@pytest.mark.parametrize("without", ["metadata", "bloomfilter_item", "not null"])
def test_variants_of_the_file_that_pylance_reads_too(tmp_path, without):
    """Missing parameters have Lance's defaults, and columns without nulls may be nullable."""
    dataset = write_dataset(tmp_path / "t.lance", {"a": [f"N{i}" for i in range(20_000)]},
                            rows_per_fragment=15_000)
    path = index_by_pylance(dataset, "a")
    rows, metadata, _ = content(path)
    metadata = {} if without == "metadata" else {
        key.decode(): value.decode() for key, value in metadata.items()
        if key.decode() not in (without, "null_bitmap")}
    if without == "not null":
        rows = pa.table(rows.columns, schema=pa.schema(
            [field.with_nullable(True) for field in rows.schema]))
    other = write_lance_file(tmp_path / "other.lance", rows, metadata)
    index = BloomFilterIndex(other, pa.string())
    assert (index.items, index.probability) == (8192, 0.00057)
    expected = BloomFilterIndex(path)
    assert [index.equals(f"N{i}") for i in (0, 17_000)] \
        == [expected.equals(f"N{i}") for i in (0, 17_000)]
