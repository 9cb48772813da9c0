"""Indexes of ours and of pylance over the same data sets are the same, byte for byte."""

import datetime
import random
import string

import numpy as np
import pyarrow as pa
import pytest
from xxhash import xxh64_intdigest

from secure_bloom.errors import ColumnError
from secure_bloom.lance import BloomFilterIndex, build, build_index
from secure_bloom.lance.layout import Parameters, column_type_of
from secure_bloom.lance.pylance import write_file
from secure_bloom.sbbf.filter import SplitBlockBloomFilter
from secure_bloom.sbbf.hashing import hash_values
from tests.lance.helpers import assert_same_index, content, index_by_pylance, lance, write_dataset

ROWS = 1500
rng = np.random.default_rng(7)


def _ints(arrow_type):
    info = np.iinfo(arrow_type.to_pandas_dtype())
    values = rng.integers(info.min, info.max, ROWS, dtype=info.dtype, endpoint=True)
    values[:3] = info.min, info.max, 0
    return pa.array(values, arrow_type)


def _floats(arrow_type):
    values = rng.normal(size=ROWS).astype(arrow_type.to_pandas_dtype())
    values[:6] = 0.0, -0.0, np.nan, np.inf, -np.inf, 1e-40
    return pa.array(values, arrow_type, from_pandas=False)


def _strings(arrow_type):
    letters = random.Random(5)
    values = ["".join(letters.choices(string.printable + "äß€😀", k=letters.randrange(70)))
              for _ in range(ROWS)]
    return pa.array(["", "x" * 10_000, *values[2:]]).cast(arrow_type)


def _times(arrow_type):
    limit = {"time32[s]": 86_400, "time32[ms]": 86_400_000, "time64[us]": 86_400 * 10**6,
             "time64[ns]": 86_400 * 10**9}.get(str(arrow_type), 2**31 - 1)
    lowest = 0 if pa.types.is_time(arrow_type) else -limit
    integers = rng.integers(lowest, limit, ROWS)
    if pa.types.is_date64(arrow_type):
        integers = integers // 50_000 * 86_400_000
    width = pa.int32() if arrow_type.bit_width == 32 else pa.int64()
    return pa.array(integers).cast(width).view(arrow_type)


TYPES = {str(t): (t, make) for make, types in [
    (_ints, [pa.int8(), pa.int16(), pa.int32(), pa.int64(),
             pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]),
    (_floats, [pa.float32(), pa.float64()]),
    (_strings, [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]),
    (_times, [pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"),
              pa.time64("ns"), *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
              pa.timestamp("us", "UTC"), pa.timestamp("ms", "America/New_York")]),
] for t in types}


def _with_nulls(array):
    """The first 150 rows and some others are null, the next 300 are not."""
    nulls = rng.random(len(array)) < 0.2
    nulls[:150], nulls[150:450] = True, False
    return _masked(array, nulls)


def _masked(array, nulls):
    return array.take(pa.array(np.arange(len(array)), mask=nulls))


@pytest.mark.parametrize("name", TYPES)
def test_every_type_with_nulls(name, tmp_path):
    arrow_type, make = TYPES[name]
    dataset = write_dataset(tmp_path / "d", {"v": _with_nulls(make(arrow_type))},
                            rows_per_fragment=700)
    theirs = index_by_pylance(dataset, "v", number_of_items=100, probability=0.01)
    assert build_index(dataset, "v", tmp_path / "ours.lance", items=100, probability=0.01) == 15
    assert_same_index(tmp_path / "ours.lance", theirs)


@pytest.mark.parametrize("arrow_type", [
    pa.bool_(), pa.float16(), pa.binary(4), pa.decimal128(9, 2), pa.duration("us"),
    pa.list_(pa.int32()), pa.struct([("x", pa.int32())])], ids=str)
def test_types_that_pylance_does_not_index_are_refused(arrow_type, tmp_path):
    dataset = write_dataset(tmp_path / "d", {"v": pa.nulls(3, arrow_type)})
    with pytest.raises(Exception, match=r"(?i)bloom filter|index"):
        dataset.create_scalar_index("v", "BLOOMFILTER")
    with pytest.raises(ColumnError, match="column v: Lance does not support BLOOMFILTER indexes"):
        build_index(dataset, "v", tmp_path / "ours.lance")
    assert not (tmp_path / "ours.lance").exists()


@pytest.mark.parametrize("arrow_type", [
    pa.bool_(), pa.float16(), pa.decimal128(9, 2), pa.duration("s"), pa.null(), pa.uuid(),
    pa.dictionary(pa.int8(), pa.string()), pa.month_day_nano_interval()], ids=str)
def test_other_types_have_no_column_type(arrow_type):
    with pytest.raises(ColumnError, match="Lance does not support BLOOMFILTER indexes"):
        column_type_of(arrow_type)


@pytest.mark.slow
@pytest.mark.parametrize(("items", "probability"), [
    (8192, 0.00057), (1, 0.5), (50, 0.999), (1000, 1e-9), (1000, 0.3), (7, 0.00001)])
def test_every_size(items, probability, tmp_path):
    dataset = write_dataset(tmp_path / "d", {"v": _ints(pa.int64())}, rows_per_fragment=400)
    theirs = index_by_pylance(dataset, "v", number_of_items=items, probability=probability)
    build_index(dataset, "v", tmp_path / "ours.lance", items=items, probability=probability)
    assert_same_index(tmp_path / "ours.lance", theirs)


def test_defaults_are_those_of_pylance(tmp_path):
    dataset = write_dataset(tmp_path / "d", {"v": pa.array(range(20_000))},
                            rows_per_fragment=15_000)
    theirs = index_by_pylance(dataset, "v")
    build_index(str(tmp_path / "d"), "v", tmp_path / "ours.lance")
    assert_same_index(tmp_path / "ours.lance", theirs)
    rows, metadata, _ = content(tmp_path / "ours.lance")
    assert rows["zone_length"].to_pylist() == [8192, 6808, 5000]
    assert metadata[b"bloomfilter_item"] == b"8192"
    assert metadata[b"bloomfilter_probability"] == b"0.00057"


def test_deleted_rows_and_fragments(tmp_path):
    dataset = write_dataset(tmp_path / "d", {"v": _with_nulls(_ints(pa.int32())),
                                             "n": np.arange(ROWS)}, rows_per_fragment=400)
    dataset.delete("n % 5 = 1 OR n < 30 OR n BETWEEN 400 AND 799 OR n > 1490")
    theirs = index_by_pylance(dataset, "v", number_of_items=64)
    build_index(dataset, "v", tmp_path / "ours.lance", items=64)
    assert_same_index(tmp_path / "ours.lance", theirs)
    assert 1 not in content(theirs)[0]["fragment_id"].to_pylist()


def test_fragments_that_were_added_updated_and_compacted(tmp_path):
    columns = {"v": _with_nulls(_ints(pa.int32())), "n": np.arange(ROWS)}
    dataset = write_dataset(tmp_path / "d", columns, rows_per_fragment=300)
    dataset.update({"v": "v + 0"}, where="n % 3 = 0")
    dataset.optimize.compact_files(target_rows_per_fragment=500)
    dataset = lance.write_dataset(pa.table(columns), str(tmp_path / "d"), mode="append",
                                  max_rows_per_file=800)
    theirs = index_by_pylance(dataset, "v", number_of_items=128)
    build_index(dataset, "v", tmp_path / "ours.lance", items=128)
    assert_same_index(tmp_path / "ours.lance", theirs)


def test_an_index_that_pylance_has_extended(tmp_path):
    columns = {"v": _with_nulls(_ints(pa.int32()))}
    dataset = write_dataset(tmp_path / "d", columns, rows_per_fragment=700)
    theirs = index_by_pylance(dataset, "v", number_of_items=100)
    dataset = lance.write_dataset(pa.table(columns), dataset.uri, mode="append",
                                  max_rows_per_file=1000)
    dataset.optimize.optimize_indices(num_indices_to_merge=1)
    [theirs] = [path for path in theirs.parent.parent.glob("*/*") if path != theirs]
    build_index(dataset, "v", tmp_path / "ours.lance", items=100)
    assert_same_index(tmp_path / "ours.lance", theirs)
    assert BloomFilterIndex(theirs).fragment_ids == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("limit", "value"), [
    ("_BATCH_ZONES", 4), ("_BATCH_BYTES", 4 * Parameters(100).num_bytes)])
def test_zones_are_written_while_rows_are_still_read(limit, value, tmp_path, monkeypatch):
    monkeypatch.setattr(build, limit, value)
    table = pa.table({"v": _with_nulls(_ints(pa.int64()))})
    dataset = write_dataset(tmp_path / "d", table)
    portions = []

    def write(path, schema, batches, last_buffer):
        write_file(path, schema, (portions.append(batch.num_rows) or batch for batch in batches),
                   last_buffer)

    monkeypatch.setattr(build, "write_file", write)
    build_index(table, "v", tmp_path / "ours.lance", items=100)
    assert portions == [4, 4, 4, 3]
    assert_same_index(tmp_path / "ours.lance",
                      index_by_pylance(dataset, "v", number_of_items=100))


def test_stable_row_ids(tmp_path):
    dataset = write_dataset(tmp_path / "d", {"v": _with_nulls(_ints(pa.int64()))},
                            rows_per_fragment=400, enable_stable_row_ids=True)
    theirs = index_by_pylance(dataset, "v", number_of_items=64)
    build_index(dataset, "v", tmp_path / "ours.lance", items=64)
    assert_same_index(tmp_path / "ours.lance", theirs)


def test_a_column_in_a_struct(tmp_path):
    inner = pa.array([None if i % 9 == 4 else {"city": f"c{i % 70}"} for i in range(ROWS)],
                     pa.struct([("city", pa.string())]))
    dataset = write_dataset(tmp_path / "d", {"address": inner})
    theirs = index_by_pylance(dataset, "address.city", number_of_items=64)
    build_index(dataset, "address.city", tmp_path / "ours.lance", items=64)
    assert_same_index(tmp_path / "ours.lance", theirs)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_null_rows_of_large_fragments(share, tmp_path):
    rows = 150_000
    nulls = np.random.default_rng(3).random(rows) < share
    dataset = write_dataset(tmp_path / "d", {"v": _masked(pa.array(np.arange(rows)), nulls)},
                            rows_per_fragment=140_000)
    theirs = index_by_pylance(dataset, "v")
    build_index(dataset, "v", tmp_path / "ours.lance")
    assert_same_index(tmp_path / "ours.lance", theirs)


def test_a_data_set_without_rows(tmp_path):
    dataset = write_dataset(tmp_path / "d", {"v": pa.array([], pa.int64())})
    assert build_index(dataset, "v", tmp_path / "ours.lance") == 0
    rows, metadata, buffers = content(tmp_path / "ours.lance")
    assert rows.num_rows == 0
    assert metadata[b"bloomfilter_item"] == b"8192"
    assert buffers == [bytes(4)]


def test_a_stream_gives_the_index_of_its_data_set(tmp_path):
    dataset = write_dataset(tmp_path / "d", {"v": _with_nulls(_ints(pa.int64()))},
                            rows_per_fragment=700)
    build_index(dataset, "v", tmp_path / "dataset.lance", items=100)
    stream = dataset.scanner(columns=["v"], with_row_address=True, scan_in_order=True,
                             batch_size=333).to_reader()
    build_index(stream, "v", tmp_path / "stream.lance", items=100)
    assert_same_index(tmp_path / "stream.lance", tmp_path / "dataset.lance")


def test_rows_without_addresses_are_those_of_fragment_0(tmp_path):
    table = pa.table({"v": pa.chunked_array([["a", None], ["b"], [], ["c", "d", None]])})
    dataset = write_dataset(tmp_path / "d", {"v": table["v"]})
    assert build_index(table, "v", tmp_path / "ours.lance", items=4) == 2
    assert_same_index(tmp_path / "ours.lance",
                      index_by_pylance(dataset, "v", number_of_items=4))


def test_views_are_hashed_as_strings(tmp_path):
    table = pa.table({"v": pa.array(["a", None, "a longer string than fits"])})
    build_index(table, "v", tmp_path / "string.lance")
    build_index(table.cast(pa.schema([("v", pa.string_view())])), "v", tmp_path / "view.lance")
    assert_same_index(tmp_path / "view.lance", tmp_path / "string.lance")


@pytest.mark.parametrize(("arrow_type", "value", "raw"), [
    (pa.int8(), -3, b"\xfd"), (pa.uint8(), 200, b"\xc8"), (pa.int16(), -3, b"\xfd\xff"),
    (pa.uint16(), 258, b"\x02\x01"), (pa.int32(), 258, b"\x02\x01\0\0"),
    (pa.date64(), datetime.date(2020, 1, 2), (18_263 * 86_400_000).to_bytes(8, "little")),
    (pa.time32("s"), datetime.time(0, 1, 2), b"\x3e\0\0\0"),
    (pa.timestamp("s"), datetime.datetime(1970, 1, 1, 0, 1, 2), b"\x3e" + bytes(7)),
    (pa.string(), "ä", b"\xc3\xa4")], ids=str)
def test_the_documented_bytes_are_hashed(arrow_type, value, raw):
    """Written out what docs/lance.md says; also that a filter finds the value by itself."""
    column_type = column_type_of(arrow_type)
    [of_lance] = hash_values(pa.array([value], arrow_type), column_type)
    assert of_lance == xxh64_intdigest(raw)
    filter_ = SplitBlockBloomFilter(1024, column_type=column_type)
    assert not filter_.check(value)
    filter_.insert(value)
    assert filter_.check(value) and filter_.check_hashes(of_lance)
