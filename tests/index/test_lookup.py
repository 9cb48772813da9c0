"""Lookups of every type that filters take never miss a value, and say what they cannot answer."""

import datetime
import decimal
import itertools
import math
import shutil
import uuid

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import secure_bloom
from secure_bloom.errors import ColumnError
from secure_bloom.index import Index, build
from secure_bloom.index.planning import FolderIndexes
from secure_bloom.index.table import Table
from secure_bloom.keys.cache import cached
from secure_bloom.pruning.predicates import Predicate
from tests.index.helpers import KMS, segments_of, write
from tests.support import examples

LOCAL = pa_fs.LocalFileSystem()
UTC = datetime.UTC
DAY = datetime.date(2024, 2, 29)
NOW = datetime.datetime(2024, 2, 29, 12, 30, 1, 5000)

#: name -> (values with a null, a value of the same type that is absent)
TYPES = {
    "int8": (pa.array([1, -128, None, 127], pa.int8()), 5),
    "uint32": (pa.array([1, 2**32 - 1, None], pa.uint32()), 5),
    "int64": (pa.array([-2**63, 0, None, 2**63 - 1]), 5),
    "uint64": (pa.array([0, 2**64 - 1, None], pa.uint64()), 5),
    "float": (pa.array([1.5, -0.0, None, math.inf], pa.float32()), 2.5),
    "double": (pa.array([1.5, 0.0, None, -math.inf]), 2.5),
    "string": (pa.array(["a", "", None, "ä" * 100]), "b"),
    "large string": (pa.array(["a", "", None], pa.large_string()), "b"),
    "binary": (pa.array([b"a", b"", None, bytes(100)]), b"b"),
    "fixed": (pa.array([b"ab", b"\0\0", None], pa.binary(2)), b"bc"),
    "uuid": (pa.array([uuid.UUID(int=5).bytes, None], pa.uuid()), uuid.UUID(int=6)),
    "decimal": (pa.array([decimal.Decimal("1.20"), decimal.Decimal("-0.01"), None],
                         pa.decimal128(9, 2)), decimal.Decimal("1.21")),
    "large decimal": (pa.array([decimal.Decimal(10**30), None], pa.decimal128(38, 0)),
                      decimal.Decimal(5)),
    "date": (pa.array([DAY, None]), datetime.date(2024, 3, 1)),
    "time": (pa.array([datetime.time(1, 2, 3, 4), None]), datetime.time(1)),
    "timestamp ms": (pa.array([NOW, None], pa.timestamp("ms")), datetime.datetime(2020, 1, 1)),
    "timestamp us": (pa.array([NOW, None], pa.timestamp("us", "UTC")),
                     datetime.datetime(2020, 1, 1, tzinfo=UTC)),
    "timestamp ns": (pa.array([NOW, None], pa.timestamp("ns")), datetime.datetime(2020, 1, 1)),
    "duration": (pa.array([datetime.timedelta(1), None]), datetime.timedelta(2)),
    "dictionary": (pa.array(["a", "b", None, "a"]).dictionary_encode(), "c"),
}
#: filters, too, answer "perhaps" for some of these values
UNCERTAIN = {"uint64", "duration"}


def lookup(folder, column, values):
    return Index.open(folder, KMS).lookup(column, values)


@pytest.mark.parametrize("name", TYPES)
def test_every_type(tmp_path, name):
    values, absent = TYPES[name]
    write(tmp_path / "a.parquet", values, rows=1, column="v", encryption=None)
    write(tmp_path / "b.parquet", values.slice(0, 1), column="v", encryption=None)
    result = build(tmp_path, "v", KMS, encryption=None)
    assert (result.indexed, result.uncovered, result.failed) == (2, {}, {})
    plain = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    for number, value in enumerate(plain):
        found = lookup(tmp_path, "v", [value.as_py()]).row_groups[0]
        if value.as_py() is None:
            assert found == {"a.parquet": list(range(len(values))), "b.parquet": [0]}
        else:
            same = [place for place, other in enumerate(plain) if other.equals(value)]
            if name in UNCERTAIN:
                assert set(same) <= set(found["a.parquet"])
                continue
            assert found["a.parquet"] == same
            assert ("b.parquet" in found) == (0 in same), number
    if name not in UNCERTAIN:
        assert lookup(tmp_path, "v", [absent]).row_groups == [{}]
    together = lookup(tmp_path, "v", plain)  # as one Arrow array
    for one, value in zip(together.row_groups, plain, strict=True):
        assert one == lookup(tmp_path, "v", [value]).row_groups[0]


@examples(30)
@given(st.lists(st.lists(st.integers(-2**63, 2**63 - 1) | st.none(), max_size=20), min_size=1,
                max_size=4), st.lists(st.integers(-5, 2**64), max_size=5))
def test_integers_of_any_files(tmp_path_factory, files, others):
    folder = tmp_path_factory.mktemp("t")
    for number, values in enumerate(files):
        write(folder / f"{number}.parquet", pa.array(values, pa.int64()), rows=3, column="v",
              encryption=None)
    build(folder, "v", KMS, encryption=None)
    probes = [*(value for values in files for value in values), *others]
    found = lookup(folder, "v", probes).row_groups
    for probe, one in zip(probes, found, strict=True):
        stored = {(f"{number}.parquet", place // 3) for number, values in enumerate(files)
                  for place, value in enumerate(values) if value == probe}
        assert stored <= {(path, group) for path, groups in one.items() for group in groups}
        if probe is not None and -2**63 <= probe < 2**63:
            assert len(stored) == sum(map(len, one.values()))


@pytest.mark.parametrize("few", [2, 100])
def test_one_value_is_found_as_many_are(tmp_path, monkeypatch, few):
    """Also in files of several types, in many row groups, and not in removed files."""
    monkeypatch.setattr("secure_bloom.index.column_index._FEW_HITS", few)
    files = [["a", "b", "a", None], ["b"] * 9, [b"a", b"\xff"], ["gone", "a"]]
    for number, values in enumerate(files):
        write(tmp_path / f"{number}.parquet", values, rows=1, column="v", encryption=None)
        build(tmp_path, "v", KMS, encryption=None)
    (tmp_path / "3.parquet").unlink()
    index = Index.open(tmp_path, KMS)
    column = index.column("v")
    assert len(column.segments) > 1
    for value in ["a", "b", "gone", "", b"a", b"\xff", 1, 0.0, None, "\ud800"]:
        together = index.lookup("v", [value, value]).row_groups
        assert 2 * index.lookup("v", value).row_groups == together, value
        is_plain = value in ("a", "b", "gone", "", b"a", b"\xff")
        is_frequent = few == 2 and value == "b"
        assert (column.find_one(value) is None) == (not is_plain or is_frequent), value


def test_zeros_are_equal_and_nan_may_be_anywhere(tmp_path):
    for number, value in enumerate([0.0, -0.0, math.nan, 1.0]):
        write(tmp_path / f"{number}.parquet", [value], column="v", encryption=None)
    build(tmp_path, "v", KMS, encryption=None)
    both = {"0.parquet": [0], "1.parquet": [0]}
    everywhere = {f"{number}.parquet": [0] for number in range(4)}
    found = lookup(tmp_path, "v", [0.0, -0.0, math.nan, 1.0, None]).row_groups
    assert found == [both, both, everywhere, {"3.parquet": [0]}, everywhere]
    for value in (0.0, math.nan, None):
        assert lookup(tmp_path, "v", value).row_groups == \
            [both if value == 0 else everywhere]


def test_int96_timestamps_of_all_times(tmp_path):
    stored = [datetime.datetime(1500, 1, 1), NOW, datetime.datetime(9999, 12, 31)]
    pq.write_table(pa.table({"v": pa.array(stored, pa.timestamp("us"))}), tmp_path / "a.parquet",
                   use_deprecated_int96_timestamps=True, row_group_size=1)
    build(tmp_path, "v", KMS, encryption=None)
    found = lookup(tmp_path, "v", pa.array([*stored, datetime.datetime(2000, 1, 1)]))
    assert found.row_groups == [*({"a.parquet": [place]} for place in range(3)), {}]


def test_nested_columns_and_columns_with_dots(tmp_path):
    table = pa.table({"s": [{"x": [1, 2], "y": "a"}, {"x": [], "y": None}, {"x": [3], "y": "b"}],
                      "m": pa.array([[("k", 1)], [], [("l", 2)]],
                                    pa.map_(pa.string(), pa.int64()))})
    secure_bloom.write_table(table, tmp_path / "a.parquet", row_group_size=1)
    columns = {"s.x.list.element": [2, 3], "s.y": ["a", "b"], "m.key_value.key": ["k", "l"]}
    build(tmp_path, columns, KMS, encryption=None)
    for column, [first, last] in columns.items():
        found = lookup(tmp_path, column, [first, last, "zz" if first in "ak" else 99] if
                       isinstance(first, str) else [first, last, 99]).row_groups
        assert found == [{"a.parquet": [0]}, {"a.parquet": [2]}, {}], column
    assert sorted(Index.open(tmp_path, KMS).columns) == sorted(columns)


def test_empty_files_and_row_groups_are_covered(tmp_path):
    write(tmp_path / "empty.parquet", pa.array([], pa.string()))
    write(tmp_path / "nulls.parquet", pa.array([None, None], pa.string()), rows=1)
    write(tmp_path / "one.parquet", ["a"])
    assert build(tmp_path, "ssn", KMS).indexed == 3
    found = lookup(tmp_path, "ssn", ["a", "b"])
    assert (found.row_groups, found.uncovered) == ([{"one.parquet": [0]}, {}], [])


@pytest.mark.parametrize("null", [
    None, pa.scalar(None, pa.string()), [pa.scalar(None, pa.string())], pa.array([None]),
    pa.DictionaryArray.from_arrays([0], pa.array([None], pa.string())), [np.datetime64("NaT")],
    pd.Series([pd.NA])], ids=lambda null: type(null).__name__)
def test_nulls_of_any_kind_may_be_in_files_without_other_values(tmp_path, null):
    write(tmp_path / "nulls.parquet", pa.array([None, None], pa.string()), rows=1)
    build(tmp_path, "ssn", KMS)
    assert lookup(tmp_path, "ssn", null).row_groups == [{"nulls.parquet": [0, 1]}]


def test_files_without_the_column_and_with_another_type(tmp_path):
    write(tmp_path / "int.parquet", [1, 2], column="v", encryption=None)
    write(tmp_path / "int32.parquet", pa.array([2, 3], pa.int32()), column="v", encryption=None)
    write(tmp_path / "text.parquet", ["2", "x"], column="v", encryption=None)
    write(tmp_path / "other.parquet", [2], column="w", encryption=None)
    assert build(tmp_path, "v", KMS, encryption=None).indexed == 4
    assert len(segments_of(tmp_path, "v")) == 4
    found = lookup(tmp_path, "v", [2, 3, "x"]).row_groups
    certain = [{"int.parquet", "int32.parquet"}, {"int32.parquet"}, {"text.parquet"}]
    for one, paths in zip(found, certain, strict=True):
        assert paths <= one.keys()
    assert not any("other.parquet" in one for one in found)  # which has no value at all
    assert "int.parquet" not in found[1] and "text.parquet" in found[0]  # "perhaps": not comparable


def test_a_column_that_cannot_have_a_filter_is_refused(tmp_path):
    write(tmp_path / "a.parquet", [True, False], column="v", encryption=None)
    with pytest.raises(ColumnError):
        build(tmp_path, "v", KMS, encryption=None)
    assert not (tmp_path / "_index").exists()


def test_hive_partitions(tmp_path):
    for day in (1, 2):
        write(tmp_path / f"day={day}" / "name=a%2Fb" / "x.parquet", [f"v{day}"])
    build(tmp_path, "ssn", KMS)
    found = lookup(tmp_path, "ssn", ["v1", "v2", "v3"]).row_groups
    assert found == [{"day=1/name=a%2Fb/x.parquet": [0]}, {"day=2/name=a%2Fb/x.parquet": [0]}, {}]
    with pytest.raises(ValueError, match="partition"):
        Index.open(tmp_path / "day=1", KMS)


def test_values_in_any_form(tmp_path):
    write(tmp_path / "a.parquet", [1, 2, 3], rows=1, column="v", encryption=None)
    build(tmp_path, "v", KMS, encryption=None)
    hit, miss = {"a.parquet": [1]}, {}
    import pandas as pd
    for values in ([2, 9], (2, 9), np.array([2, 9]), pa.array([2, 9]), iter([2, 9]),
                   pa.chunked_array([[2], [9]]), pd.Series([2, 9], index=[5, 6]),
                   {2: 0, 9: 0}.keys(), pa.array([2, 9]).dictionary_encode()):
        assert lookup(tmp_path, "v", values).row_groups == [hit, miss], type(values)
    for value in (2, np.int8(2), pa.scalar(2), np.array(2), pd.Series([2], index=[7]), {2}):
        assert lookup(tmp_path, "v", value).row_groups == [hit], type(value)
    for nothing in ([], pa.array([], pa.int64()), np.array([], np.int64)):
        assert lookup(tmp_path, "v", nothing).row_groups == []


def test_what_cannot_be_converted_may_be_anywhere(tmp_path):
    write(tmp_path / "a.parquet", [1, 2], rows=1, column="v", encryption=None)
    build(tmp_path, "v", KMS, encryption=None)
    for value in (1.0, "1", object(), decimal.Decimal("1.5"), [1], [1, 2], 2**70):
        for values in ([value], [value, 2]):
            assert lookup(tmp_path, "v", values).row_groups[0] == {"a.parquet": [0, 1]}, value
    nothing = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([1, None], pa.int64()))
    assert lookup(tmp_path, "v", nothing).row_groups == [{"a.parquet": [0]}, {"a.parquet": [0, 1]}]


def test_a_batch_larger_than_a_chunk_of_pages(tmp_path, monkeypatch):
    from secure_bloom.index import column_index
    monkeypatch.setattr(column_index, "_CHUNK_BYTES", 1)
    values = [f"{number:05}" for number in range(30_000)]
    write(tmp_path / "a.parquet", values, rows=10_000)
    build(tmp_path, "ssn", KMS)
    found = lookup(tmp_path, "ssn", values[::100])
    assert found.row_groups == [{"a.parquet": [place // 10_000]} for place in range(0, 30_000, 100)]


def test_the_representation_names_no_value(tmp_path):
    write(tmp_path / "a.parquet", ["078-05-1120"])
    build(tmp_path, "ssn", KMS)
    found = lookup(tmp_path, "ssn", ["078-05-1120", None])
    assert "078" not in repr(found) and "078" not in repr(Index.open(tmp_path, KMS))
    assert repr(found) == "<Lookup 1 of 1 file may have one of 2 values, 0 not covered>"


@pytest.mark.slow
def test_many_present_values_over_many_files(tmp_path):
    check_many(tmp_path, files=60, values=400)


@pytest.mark.soak
def test_10_million_present_values_over_10000_files(tmp_path):
    check_many(tmp_path, files=10_000, values=1000)


def check_many(folder, files, values):
    def stored(number):
        return pa.array(range(number * values, (number + 1) * values), pa.int64())

    def check(count):
        index = Index.open(folder, KMS)
        for number in range(count):
            found = index.lookup("ssn", stored(number))
            path, half = f"{number:05}.parquet", values // 2
            if path in found.uncovered:
                continue
            for place, one in enumerate(found.row_groups):
                assert place // half in one.get(path, ()), (number, place)
        return found

    def add(first, end):
        for number in range(first, end):
            write(folder / f"{number:05}.parquet", stored(number), rows=values // 2)

    parts = [files * part // 5 for part in range(6)]
    for first, end in itertools.pairwise(parts):
        add(first, end)
        build(folder, "ssn", KMS, budget=2**20)
    assert check(files).uncovered == []
    index = Index.open(folder, KMS)
    assert index.compact() == 5
    assert check(files).uncovered == []
    index.vacuum(0)
    assert len(segments_of(folder)) == 1
    absent = index.lookup("ssn", pa.array(range(-1000, 0), pa.int64()))
    assert sum(map(len, absent.row_groups)) < 3  # about D * 1000 / 2**38 false row groups


def test_the_paths_of_a_partition_are_those_of_the_table(tmp_path):
    for part in "ab":
        write(tmp_path / f"part={part}" / "x.parquet", [part])
    table = Table(LOCAL, str(tmp_path))
    assert {*table.listing()} == {"part=a/x.parquet", "part=b/x.parquet"}
    assert {*table.listing(str(tmp_path / "part=a"))} == {"part=a/x.parquet"}


def test_an_index_says_nothing_of_files_whose_values_cannot_be_compared(tmp_path):
    write(tmp_path / "x.parquet", ["a"])
    build(tmp_path, "ssn", KMS)
    listed = FolderIndexes.find(LOCAL, str(tmp_path), cached(KMS), "auto").listed()
    absent, types = [[Predicate("ssn", "==", "b")]], []
    path = str(tmp_path / "x.parquet")
    assert listed.select(absent) == {path: {}}
    assert listed.select(absent, is_comparable=lambda type_: types.append(type_)) == {}
    assert [type_.physical_type for type_ in types] == ["BYTE_ARRAY"]
    assert listed.select(absent, is_comparable=lambda type_: True) == {path: {}}


def test_pages_are_read_once_and_belong_to_one_open_segment(tmp_path):
    """Also if another index, with other values, takes the place of the first one."""
    for values in (["a", "b"], ["c"]):
        write(tmp_path / "0.parquet", values, column="v", encryption=None)
        build(tmp_path, "v", KMS, encryption=None)
        index = Index.open(tmp_path, KMS)
        [segment] = index.column("v").segments
        reads, stored = [], segment._stored
        segment._stored = lambda *place, reads=reads, stored=stored: \
            reads.append(place) or stored(*place)
        found = [bool(index.lookup("v", value).row_groups[0]) for value in 2 * ["a", "b", "c"]]
        assert found == 2 * [value in values for value in ("a", "b", "c")]
        assert len(reads) == 1
        shutil.rmtree(tmp_path / "_index")
