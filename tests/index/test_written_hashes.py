"""Values that are collected while a file is written are those that are read from it."""

import datetime
import decimal
import io

import numpy as np
import pyarrow as pa
import pytest

import secure_bloom
from secure_bloom.arrow import table_filters
from secure_bloom.arrow.schema import parquet_leaves
from secure_bloom.errors import ColumnError
from secure_bloom.index import written_hashes
from secure_bloom.index.column_segments import column_hashes, leaf_column
from secure_bloom.index.geometry import pack, place_of, sorted_pairs
from secure_bloom.index.sealing import IndexKey
from secure_bloom.index.written_hashes import WrittenHashes
from secure_bloom.parquet.row_ranges import RANGE_BITS
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.reading.rows import read_rows

KEY = IndexKey(b"k" * 32, b"i" * 16)

TEXTS = ["a", None, "b", "", "a"] * 7
NUMBERS = [1, None, -5, 1, 100] * 7
TIMES = [datetime.datetime(2024, 1, 1), None, datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)]
COLUMNS = {
    "string": pa.array(TEXTS), "large string": pa.array(TEXTS, pa.large_string()),
    "view": pa.array(TEXTS).cast(pa.string_view()),
    "binary": pa.array([b"\x00", None, b"x"] * 9),
    "fixed": pa.array([b"abc", None, b"xyz"] * 9, pa.binary(3)),
    "dictionary": pa.array(TEXTS).dictionary_encode(),
    "dictionary with values that do not occur": pa.DictionaryArray.from_arrays(
        pa.array([0, 2, None, 0] * 8, pa.int8()), ["x", "unused", "y"]),
    "dictionary of integers": pa.array(NUMBERS).dictionary_encode(),
    "int8": pa.array(NUMBERS, pa.int8()), "int32": pa.array(NUMBERS, pa.int32()),
    "int64": pa.array(NUMBERS), "uint64": pa.array([0, 2**64 - 1, None], pa.uint64()),
    "double": pa.array([0.0, -0.0, float("nan"), float("inf"), None, 1.5] * 6),
    "half": pa.array(np.array([0.0, 1.5, -2], np.float16)),
    "decimal": pa.array([decimal.Decimal("1.25"), None, decimal.Decimal("-7.50")] * 9),
    "wide decimal": pa.array([decimal.Decimal(10**30), None], pa.decimal128(38, 0)),
    "date": pa.array([datetime.date(2024, 2, 29), None] * 9),
    "seconds": pa.array(TIMES, pa.timestamp("s")), "nanoseconds": pa.array(TIMES,
                                                                        pa.timestamp("ns")),
    "with a zone": pa.array(TIMES, pa.timestamp("us", "Europe/Rome")),
    "time": pa.array([datetime.time(1, 2, 3), None], pa.time64("us")),
    "nulls only": pa.array([None] * 9, pa.string()),
    "empty": pa.array([], pa.int64()),
    "list": pa.array([["a", None], [], None, ["b", "a"]] * 5),
    "struct": pa.array([{"x": 1}, None, {"x": None}, {"x": 3}] * 5),
    "map": pa.array([[("k", 1)], [], None, [("l", None)]], pa.map_(pa.string(), pa.int64())),
    "many": pa.array(np.random.default_rng(1).integers(0, 50_000, 150_000)),
}


def written(column, data, observed=None, budget=2**24, **options):
    """Write a file, and return it with what was collected of its first leaf column."""
    sink = io.BytesIO()
    with secure_bloom.ParquetWriter(sink, data.schema, **options) as writer:
        if observed is None:
            observed = [leaf.path for leaf in parquet_leaves(data.schema)
                        if leaf.path.startswith("c")]
        found = WrittenHashes(dict.fromkeys(observed, KEY), budget)
        writer.observe_hashes(observed, found.add)
        writer.write_table(data, max(data.num_rows // 3, 1))
        writer.write_table(data)
    return OpenFile(pa.py_buffer(sink.getvalue())), found, observed


def pairs_of_file(file, column):
    return in_order(pack(KEY.fingerprints(one.hashes), place_of(one.row_group, one.range))
                    for one in column_hashes(file, column))


def in_order(parts):
    return sorted_pairs([np.concatenate([np.empty(0, np.uint64), *parts])], range_bits=RANGE_BITS)


@pytest.mark.parametrize("bloom_filters", [None, True])
@pytest.mark.parametrize("name", COLUMNS)
def test_what_was_written_is_what_is_read(name, bloom_filters):
    data = pa.table({"before": pa.nulls(len(COLUMNS[name]), pa.int32()), "c": COLUMNS[name]})
    file, found, observed = written(name, data, bloom_filters=bloom_filters)
    assert observed
    for path in observed:
        column = leaf_column(file, path)
        parts = found.pairs(column)
        if not data.num_rows:
            assert parts is None  # nothing was written: the file is read, which takes no time
            continue
        assert parts is not None
        np.testing.assert_array_equal(in_order(one.pairs for one in parts),
                                      pairs_of_file(file, column))
    found.close()


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_int96_timestamps(unit):
    data = pa.table({"c": pa.array(TIMES, pa.timestamp(unit))})
    file, found, _ = written("c", data, use_deprecated_int96_timestamps=True)
    column = leaf_column(file, "c")
    parts = found.pairs(column)
    assert parts is not None
    np.testing.assert_array_equal(in_order(one.pairs for one in parts),
                                  pairs_of_file(file, column))


def test_values_that_cannot_be_hashed_do_not_stop_a_write_without_filters(monkeypatch):
    def fails(array, column_type):
        raise ColumnError("planted")

    monkeypatch.setattr(table_filters, "hash_stored", fails)
    data = pa.table({"c": [1, 2]})
    file, found, _ = written("c", data)
    assert found.pairs(leaf_column(file, "c")) is None
    assert read_rows(file).num_rows == 4
    with pytest.raises(ColumnError, match="planted"):
        written("c", data, bloom_filters=["c"])


def test_values_of_another_type_are_read_from_the_file():
    file, found, _ = written("c", pa.table({"c": [1, 2]}))
    other, _, _ = written("c", pa.table({"c": ["1"]}))
    assert found.pairs(leaf_column(other, "c")) is None
    assert found.pairs(leaf_column(file, "c")) is not None


def test_memory_is_bounded():
    values = np.arange(5000)
    file, found, _ = written("c", pa.table({"c": values}), budget=8 * 1000)
    store = found._stores["c"]
    assert len(store) == 10_000 and store.num_in_memory == 0
    column = leaf_column(file, "c")
    np.testing.assert_array_equal(in_order(one.pairs for one in found.pairs(column)),
                                  pairs_of_file(file, column))
    spill = store._spill
    found.close()
    assert spill.closed


def test_what_is_spilled_is_read_back():
    file, found, _ = written("c", pa.table({"c": np.arange(5000)}))
    assert found.num_in_memory == 10_000
    found.spill()
    assert found.num_in_memory == 0
    column = leaf_column(file, "c")
    np.testing.assert_array_equal(in_order(one.pairs for one in found.pairs(column)),
                                  pairs_of_file(file, column))
    found.close()


def test_after_an_error_the_column_is_read_from_the_file(monkeypatch):
    def fails(self, pairs):
        raise OSError("the disk is full")

    monkeypatch.setattr(written_hashes.PairStore, "add", fails)
    file, found, _ = written("c", pa.table({"c": [1, 2], "d": [3, 4]}), ["c", "d"])
    assert found.pairs(leaf_column(file, "c")) is None
    assert read_rows(file).num_rows == 4


def test_columns_must_exist_and_have_a_type_of_filters():
    with secure_bloom.ParquetWriter(io.BytesIO(), pa.schema([("c", pa.bool_())])) as writer:
        for path in ("c", "d"):
            with pytest.raises(ColumnError, match=path):
                writer.observe_hashes([path], print)
