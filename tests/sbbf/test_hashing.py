"""Hashes against the bytes that Parquet files really hold, and conversions of probe values."""

import datetime
import decimal
import io
import struct
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from xxhash import xxh64_intdigest

from secure_bloom import ParquetFile, SplitBlockBloomFilter
from secure_bloom.arrow.leaves import leaf_arrays, leaf_types
from secure_bloom.errors import ColumnError
from secure_bloom.sbbf.arrow_types import column_type_of
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.sbbf.conversion import convert_exactly
from secure_bloom.sbbf.hashing import hash_stored, hash_values
from tests.cases import for_each
from tests.support import (
    IMPLEMENTATIONS,
    arrow_file,
    examples,
    open_footer,
    plain_hashes,
    plain_values,
    use_implementation,
)

D = decimal.Decimal


@pytest.fixture(scope="module", params=IMPLEMENTATIONS, autouse=True)
def implementation(request):
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield use_implementation(monkeypatch, request.param)


# --- what a file holds ---------------------------------------------------------------------------

def check_against_file(array: pa.Array | pa.ChunkedArray, **options) -> list[ColumnType]:
    """Hash every leaf of a column and compare with what pyarrow writes; returns the types."""
    file = arrow_file(pa.table({"column": array}), **options)
    columns = open_footer(file).columns
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    leaves = [list(leaf_arrays(chunk)) for chunk in chunks]
    assert len(columns) == len(leaf_types(array.type))
    for column in columns:
        hashes = [h for chunk in leaves
                  for h in hash_stored(chunk[column.ordinal], column.type).tolist()]
        assert sorted(hashes) == plain_hashes(file, column.ordinal), column
    return [column.type for column in columns]


def ints_of(arrow_type: pa.DataType, bits: int, signed: bool = True) -> pa.Array:
    """The bounds of the integers of a width, small numbers, and a null."""
    low, high = (-2**(bits - 1), 2**(bits - 1) - 1) if signed else (0, 2**bits - 1)
    values = pa.array([low, low + 1, 5, None, 77, high], pa.int64() if signed else pa.uint64())
    return values.cast(arrow_type)


INTEGERS = {str(t): ints_of(t, t.bit_width, pa.types.is_signed_integer(t)) for t in
            (pa.int8(), pa.int16(), pa.int32(), pa.int64(),
             pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())}

FLOATS = {str(t): pa.array(np.array([0.0, -0.0, 1.5, -2, np.inf, np.nan, 1e-7],
                                    t.to_pandas_dtype()))
          for t in (pa.float16(), pa.float32(), pa.float64())}

DECIMALS = {str(t): pa.array([D("1.25"), D("-1.25"), None, D("-99.99"), D(0)], t)
            for t in (pa.decimal32(4, 2), pa.decimal32(9, 2), pa.decimal64(10, 2),
                      pa.decimal64(18, 2), pa.decimal128(5, 2), pa.decimal128(19, 2),
                      pa.decimal128(38, 30), pa.decimal256(6, 3), pa.decimal256(39, 2),
                      pa.decimal256(76, 60))}

DAYS = [0, 1, -1, 18_321, -719_162, 2_932_896]  # to the years 1 and 9999
TIMES = {
    "date32": pa.array([*DAYS, None], pa.int32()).cast(pa.date32()),
    "date64": pa.array([day * 86_400_000 for day in DAYS]).view(pa.date64()),
    "date64 with a time of the day": pa.array([1, -1, 86_399_999, -86_400_001]).view(pa.date64()),
    **{str(t): pa.array([0, 1, 86_399, None],
                        pa.int32() if t.bit_width == 32 else pa.int64()).cast(t)
       for t in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))},
    "time32 whose milliseconds wrap around": pa.array(
        [2_147_484, -2**31, None, 2**31 - 1], pa.int32()).view(pa.time32("s")),
    **{f"timestamp {unit} {zone}": pa.array([0, 1, -1, None, 86_400, 1_600_000_001, -10**9 - 1]
                                            ).cast(pa.timestamp(unit, zone))
       for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Europe/Rome")},
    **{f"duration {unit}": pa.array([0, -1, None, 10**12]).cast(pa.duration(unit))
       for unit in ("s", "ms", "us", "ns")},
}

WORDS = ["", "a", "Rome", "naïve", None, "x" * 40, "in \0 between"]
RAW = [None if word is None else word.encode() + b"\xff" for word in WORDS]
STRINGS = {
    **{str(t): pa.array(WORDS, t) for t in (pa.string(), pa.large_string(), pa.string_view())},
    **{str(t): pa.array(RAW, t) for t in (pa.binary(), pa.large_binary(), pa.binary_view())},
    "fixed binary": pa.array([b"abc", b"\0\0\0", None], pa.binary(3)),
    "uuid": pa.array([uuid.UUID(int=7).bytes, None, uuid.UUID(int=2**127).bytes], pa.uuid()),
    "json": pa.array(['{"a": 1}', None], pa.json_()),
    "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None], pa.int8())),
}

FLAT = INTEGERS | FLOATS | DECIMALS | TIMES | STRINGS


@for_each("name", FLAT)
def test_hashes_are_of_the_bytes_in_the_file(name):
    array = FLAT[name]
    check_against_file(array)
    check_against_file(array.slice(1, 3))
    check_against_file(pa.chunked_array([array[:2], array[2:]]))


@for_each("name", FLAT)
def test_filters_are_those_of_arrow_cpp(name):
    """Bit for bit: pyarrow can write filters of columns that are not encrypted."""
    array = FLAT[name]
    sink = io.BytesIO()
    pq.write_table(pa.table({"c": array}), sink, bloom_filter_options={"c": {"ndv": 20}})
    theirs = ParquetFile(sink.getvalue()).read_bloom_filter(0, "c")
    ours = SplitBlockBloomFilter(theirs.num_blocks)
    ours.insert_hashes(hash_stored(array, theirs.column_type))
    assert ours == theirs != SplitBlockBloomFilter(theirs.num_blocks)
    assert theirs.check(array).all()


@for_each("name", FLAT)
def test_default_types_are_those_of_a_file(name):
    array = FLAT[name]
    footer = open_footer(arrow_file(pa.table({"column": array[:0]})))
    stored, default = footer.columns[0].type, column_type_of(array.type)
    assert (default.physical_type, default.length) == (stored.physical_type, stored.length)


@for_each("name", [*FLOATS, *DECIMALS, *STRINGS, "int8", "uint32", "date32",
                                  "timestamp us None", "time64[us]"])
def test_dictionaries(name):
    """Each value that occurs is hashed once, whatever pyarrow can write."""
    values = FLAT[name]
    storage = values.storage if isinstance(values, pa.ExtensionArray) else values
    column_type = open_footer(arrow_file(pa.table({"column": values[:0]}))).columns[0].type
    plain_form = pa.large_binary() if "view" in name else storage.type
    occurring = storage.cast(plain_form).take(pa.array([0, 1])).drop_null()
    for indices, expected in (([1, None, 0, 1], occurring), ([None], occurring[:0])):
        encoded = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), storage)
        assert sorted(hash_stored(encoded, column_type).tolist()) \
            == plain_hashes(arrow_file(pa.table({"column": expected})))


@pytest.mark.parametrize("values", [pa.array(["a", "b", None, "a"]), pa.array([1, 2, 1], pa.int8()),
                                    pa.array([1.5, 2.5])])
def test_dictionary_columns_in_files(values):
    encoded = values.dictionary_encode()
    file = arrow_file(pa.table({"column": encoded}))
    column = open_footer(file).columns[0]
    for array in (encoded, encoded.slice(1)):
        stored = set(plain_hashes(arrow_file(pa.table({"column": array}))))
        assert set(hash_stored(array, column.type).tolist()) == stored


@pytest.mark.parametrize(("arrow_type", "physical"), [
    (pa.decimal32(9, 2), "INT32"), (pa.decimal64(18, 2), "INT64"), (pa.decimal128(5, 2), "INT32"),
    (pa.decimal128(18, 2), "INT64"), (pa.decimal256(5, 2), "INT32"),
    (pa.decimal256(12, 2), "INT64"), (pa.decimal128(19, 2), "FIXED_LEN_BYTE_ARRAY")])
def test_decimals_as_integers(arrow_type, physical):
    array = pa.array([D("1.25"), D("-1.25"), None, D("-999.99"), D(0)], arrow_type)
    [column_type] = check_against_file(array, store_decimal_as_integer=True)
    assert column_type.physical_type == physical


@for_each("name", [*INTEGERS, *TIMES])
@pytest.mark.parametrize("version", ["1.0", "2.4"])
def test_older_versions_of_the_format(name, version):
    array = FLAT[name]
    if name.startswith("timestamp ns"):  # stored as microseconds, which have to be whole
        array = pc.multiply_checked(array.view(pa.int64()), 1000).view(array.type)
    check_against_file(array, version=version)


@for_each("unit", ["s", "ms", "us", "ns"])
@for_each("zone", [None, "Europe/Rome"])
@for_each("target", ["ms", "us"])
def test_coerced_timestamps_are_cut_off_as_pyarrow_does(unit, zone, target):
    array = pa.array([0, 1, -1, 1_999_999_999, -1_999_999_999, None]).cast(
        pa.timestamp(unit, zone))
    check_against_file(array, coerce_timestamps=target, allow_truncated_timestamps=True)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_int96(unit, zone):
    beyond_int64_nanoseconds = {"s": 10**11, "ms": 10**14, "us": 10**17, "ns": 10**18}[unit]
    array = pa.array([0, 1, -1, None, 86_400, 1_600_000_001, beyond_int64_nanoseconds,
                      -beyond_int64_nanoseconds // 2]).cast(pa.timestamp(unit, zone))
    [column_type] = check_against_file(array, use_deprecated_int96_timestamps=True)
    assert column_type.physical_type == "INT96"


# --- the encodings by hand -----------------------------------------------------------------------

@for_each(("array", "encoded"), [
    (pa.array([-2], pa.int8()), struct.pack("<i", -2)),
    (pa.array([200], pa.uint8()), struct.pack("<i", 200)),
    (pa.array([2**32 - 2], pa.uint32()), struct.pack("<I", 2**32 - 2)),
    (pa.array([2**64 - 2], pa.uint64()), struct.pack("<Q", 2**64 - 2)),
    (pa.array([1.5], pa.float32()), struct.pack("<f", 1.5)),
    (pa.array([-0.0]), struct.pack("<d", -0.0)),
    (pa.array(np.array([1.5], np.float16)), struct.pack("<e", 1.5)),
    (pa.array([D("-1.50")]), (-150).to_bytes(2, "big", signed=True)),
    (pa.array([D("-1.50")], pa.decimal128(38, 2)), (-150).to_bytes(16, "big", signed=True)),
    (pa.array([D("1.50")], pa.decimal256(76, 2)), (150).to_bytes(32, "big")),
    (pa.array(["naïve"]), "naïve".encode()),
    (pa.array([b"\0\1"], pa.binary(2)), b"\0\1"),
    (pa.array([datetime.date(1970, 1, 3)]), struct.pack("<i", 2)),
    (pa.array([datetime.date(1970, 1, 3)], pa.date64()), struct.pack("<i", 2)),
    (pa.array([datetime.time(0, 0, 1)], pa.time32("s")), struct.pack("<i", 1000)),
    (pa.array([datetime.time(0, 0, 1)]), struct.pack("<q", 10**6)),
    (pa.array([1], pa.timestamp("s")), struct.pack("<q", 1000)),
    (pa.array([1], pa.timestamp("ns", "UTC")), struct.pack("<q", 1)),
    (pa.array([-3], pa.duration("s")), struct.pack("<q", -3)),
])
def test_known_encodings(array, encoded):
    assert hash_stored(array, column_type_of(array.type)).tolist() == [xxh64_intdigest(encoded)]


@pytest.mark.parametrize(("seconds", "day", "nanos"), [
    (0, 2_440_588, 0), (-1, 2_440_587, 86_399 * 10**9), (86_401, 2_440_589, 10**9),
    (95_617_584_000, 3_547_273, 0)])
def test_int96_by_hand(seconds, day, nanos):
    array = pa.array([seconds]).cast(pa.timestamp("s"))
    column_type = ColumnType("INT96", 0, pa.timestamp("ns"))
    expected = [xxh64_intdigest(struct.pack("<qi", nanos, day))]
    assert hash_stored(array, column_type).tolist() == expected
    assert hash_values(convert_exactly(array, column_type), column_type).tolist() == expected


@pytest.mark.parametrize("arrow_type", [pa.bool_(), pa.null(), pa.list_(pa.int8()),
                                        pa.struct([("a", pa.int8())]), pa.month_day_nano_interval(),
                                        pa.map_(pa.string(), pa.string())])
def test_types_without_filters(arrow_type):
    with pytest.raises(ColumnError, match="Bloom filter"):
        column_type_of(arrow_type)


def test_values_that_do_not_fit_their_column_are_no_filter():
    with pytest.raises(ColumnError, match="cannot be hashed"):
        hash_stored(pa.array([1, 2**40]), column_type_of(pa.int32()))


# --- nested --------------------------------------------------------------------------------------

def list_cases():
    lists = [[1, 2], None, [], [3, None], [4]]
    for kind in (pa.list_, pa.large_list, pa.list_view, pa.large_list_view):
        yield kind.__name__, pa.array(lists, kind(pa.int16()))
        yield f"{kind.__name__} of strings", pa.array([["a"], None, ["b", "a"]], kind(pa.string()))
    yield "fixed_size_list", pa.array([[1, 2], None, [3, None], [4, 5]], pa.list_(pa.int64(), 2))
    yield "struct", pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}, {"a": 3, "b": None}])
    yield "map", pa.array([[("k", 1), ("l", None)], None, [], [("m", 3)]],
                          pa.map_(pa.string(), pa.int32()))
    yield "deep", pa.array([{"s": [{"t": [1, None]}, None]}, None, {"s": None}, {"s": []},
                            {"s": [{"t": None}, {"t": [7, 8]}]}])
    yield "map of lists", pa.array([[("k", [D("1.5"), None])], None, [("l", None), ("m", [D(2)])]],
                                   pa.map_(pa.string(), pa.list_(pa.decimal128(9, 1))))
    yield "list of uuid", pa.ListArray.from_arrays(
        pa.array([0, 1, 1, 3], pa.int32()), STRINGS["uuid"])
    yield "list of dictionaries", pa.ListArray.from_arrays(
        pa.array([0, 1, 3], pa.int32()), pa.array(["a", "b", "c"]).dictionary_encode())


NESTED = dict(list_cases())


@for_each("name", NESTED)
def test_nested_leaves(name):
    array = NESTED[name]
    for part in (array, array.slice(1), array.slice(2, 1), array.slice(0, 0)):
        check_against_file(part)
    check_against_file(pa.chunked_array([array.slice(1), array]))


def test_views_in_a_struct():
    """Not sliced, which pyarrow does not know for views."""
    check_against_file(pa.StructArray.from_arrays(
        [STRINGS["string_view"], STRINGS["binary_view"]], ["s", "b"]))


def test_values_under_null_parents_are_left_out():
    child = pa.array([1, 2, 3], pa.int32())
    array = pa.StructArray.from_arrays([child], ["a"], mask=pa.array([False, True, False]))
    check_against_file(array)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), child,
                                     mask=pa.array([False, True, False]))
    check_against_file(lists)
    [leaf] = leaf_arrays(lists)
    assert leaf.to_pylist() == [1, 3]
    entries = pa.array([[("k", 1)], [("l", 2)], [("m", 3)]], pa.map_(pa.string(), pa.int32()))
    masked = pa.MapArray.from_buffers(entries.type, 3, [pa.py_buffer(b"\x05"),
                                                        entries.buffers()[1]],
                                      children=[entries.values])
    check_against_file(masked)
    assert [leaf.to_pylist() for leaf in leaf_arrays(masked)] == [["k", "m"], [1, 3]]


@pytest.mark.parametrize(("arrow_type", "count"), [
    (pa.int8(), 1), (pa.uuid(), 1), (pa.map_(pa.string(), pa.list_(pa.int8())), 2),
    (pa.struct([("a", pa.int8()), ("b", pa.struct([("c", pa.int8()), ("d", pa.int8())]))]), 3),
    (pa.dictionary(pa.int8(), pa.string()), 1), (pa.list_view(pa.large_list(pa.int8())), 1)])
def test_leaf_count(arrow_type, count):
    assert len(leaf_types(arrow_type)) == count


@given(st.lists(st.none() | st.lists(st.none() | st.text(max_size=5), max_size=3), max_size=8),
       st.integers(0, 3))
@examples(30)
def test_random_lists(lists, offset):
    array = pa.array(lists, pa.list_(pa.string())).slice(offset)
    file = arrow_file(pa.table({"column": array}))
    expected = [text.encode() for texts in lists[offset:] for text in texts or ()
                if text is not None]
    assert plain_values(file) == expected
    check_against_file(array)


# --- conversion of probe values ------------------------------------------------------------------

def converted(values: pa.Array, target: pa.DataType, physical: str | None = None) -> list:
    column_type = column_type_of(target)
    if physical:
        column_type = ColumnType(physical, 0, target)
    result = convert_exactly(values, column_type)
    return result.cast(target).to_pylist() if result.type != target else result.to_pylist()


@pytest.mark.parametrize("target", [pa.int8(), pa.int64(), pa.uint32()])
def test_floats_never_become_integers(target):
    assert converted(pa.array([1.0, 2.0**60]), target) == [None, None]
    assert converted(pa.array([1.0], pa.float32()), target) == [None]


def test_floats_of_other_widths():
    assert converted(pa.array([1.5, None, 0.1], pa.float64()), pa.float32()) \
        == [1.5, None, float(np.float32(0.1))]
    assert converted(pa.array([1.5, 0.1], pa.float32()), pa.float64()) \
        == [1.5, float(np.float32(0.1))]
    assert converted(pa.array(np.array([1.5], np.float16)), pa.float64()) == [1.5]
    assert converted(pa.array([1e300, 1.5]), pa.float16()) == [float("inf"), 1.5]


@pytest.mark.parametrize(("values", "target", "expected"), [
    ([D("1.50"), D("1.55")], pa.decimal128(5, 1), [D("1.5"), None]),
    ([D("1.5"), D("12345.6")], pa.decimal128(5, 2), [D("1.50"), None]),
    ([D("99999"), D("-99999"), D("100000")], pa.decimal256(5, 0), [D(99999), D(-99999), None]),
    ([1.5, 2.0], pa.decimal128(5, 1), [None, None]),
    (["1.5"], pa.decimal128(5, 1), [None]),
])
def test_decimals_where_exact(values, target, expected):
    assert converted(pa.array(values), target) == expected


@pytest.mark.parametrize("target", [pa.int32(), pa.int64(), pa.float64(), pa.string()])
def test_decimals_become_nothing_else(target):
    assert converted(pa.array([D("1.0")]), target) == [None]


@pytest.mark.parametrize("source", [pa.string(), pa.large_string(), pa.string_view(), pa.binary(),
                                    pa.large_binary(), pa.binary_view()])
@pytest.mark.parametrize("target", [pa.string(), pa.binary()])
def test_texts_and_bytes_are_the_same(source, target):
    column_type = column_type_of(target)
    array = convert_exactly(pa.array(["a", "naïve"]).cast(source), column_type)
    assert hash_values(array, column_type).tolist() \
        == [xxh64_intdigest(b"a"), xxh64_intdigest("naïve".encode())]


@pytest.mark.parametrize("source", [pa.string(), pa.binary(), pa.binary_view()])
def test_bytes_of_the_right_length_fit_a_fixed_length(source):
    assert converted(pa.array(["abc", "ab", None], pa.string()).cast(source), pa.binary(3)) \
        == [b"abc", None, None]


def test_fixed_lengths_fit_themselves_only():
    three = pa.array([b"abc"], pa.binary(3))
    assert converted(three, pa.binary(4)) == [None]
    assert converted(three, pa.string()) == [None]
    assert converted(pa.array([uuid.UUID(int=1).bytes], pa.uuid()), pa.binary(16)) \
        == [uuid.UUID(int=1).bytes]


@pytest.mark.parametrize(("source", "target", "values", "expected"), [
    (pa.timestamp("s"), pa.timestamp("us"), [1, -1, None], [10**6, -10**6, None]),
    (pa.timestamp("ns"), pa.timestamp("us"), [1000, -1000, 1, -1], [1, -1, None, None]),
    (pa.timestamp("us"), pa.timestamp("ms"), [1000, 999, 0], [1, None, 0]),
    (pa.timestamp("s"), pa.timestamp("ns"), [9_223_372_036, 9_223_372_037, -9_223_372_037],
     [9_223_372_036 * 10**9, None, None]),
    (pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Rome"), [5], [5]),
    (pa.timestamp("ms", "Asia/Tokyo"), pa.timestamp("us", "UTC"), [5], [5000]),
    (pa.timestamp("us"), pa.timestamp("us", "UTC"), [5], [None]),
    (pa.timestamp("us", "UTC"), pa.timestamp("us"), [5], [None]),
    (pa.time64("us"), pa.time32("ms"), [5000, 5001], [5, None]),
    (pa.time32("s"), pa.time64("ns"), [5], [5 * 10**9]),
    (pa.duration("s"), pa.duration("ns"), [5, 2**60], [5 * 10**9, None]),
    (pa.duration("s"), pa.timestamp("s"), [5], [None]),
    (pa.int64(), pa.timestamp("us"), [5], [None]),
    (pa.timestamp("us"), pa.int64(), [5], [None]),
])
def test_times_of_other_units(source, target, values, expected):
    narrow = pa.int32() if source.bit_width == 32 else pa.int64()
    array = pa.array(values, narrow).cast(source)
    result = convert_exactly(array, ColumnType("INT64", 0, target))
    wide = pa.int32() if target.bit_width == 32 else pa.int64()
    assert result.view(wide).to_pylist() == expected


def test_dates():
    midnight, noon = 86_400_000, 86_400_000 + 43_200_000
    dates = pa.array([midnight, noon, -midnight, -1, None]).view(pa.date64())
    assert converted(dates, pa.date32()) == [datetime.date(1970, 1, 2), None,
                                             datetime.date(1969, 12, 31), None, None]
    assert converted(pa.array([datetime.date(2020, 1, 1)]), pa.timestamp("us")) == [None]
    assert converted(pa.array([datetime.datetime(2020, 1, 1)]), pa.date32()) == [None]
    assert converted(pa.array([1], pa.int32()), pa.date32()) == [None]
    days = [datetime.date(1969, 12, 31), datetime.date(9999, 12, 31), None]
    assert converted(pa.array(days), pa.date64()) == days


def test_int96_takes_timestamps_without_zone():
    column_type = ColumnType("INT96", 0, pa.timestamp("ns"))
    for unit, value in (("s", 2), ("ms", 2000), ("us", 2 * 10**6), ("ns", 2 * 10**9)):
        array = convert_exactly(pa.array([value]).cast(pa.timestamp(unit)), column_type)
        assert hash_values(array, column_type).tolist() \
            == [xxh64_intdigest(struct.pack("<qi", 2 * 10**9, 2_440_588))]
    assert convert_exactly(pa.array([1], pa.timestamp("us", "UTC")), column_type).null_count == 1


@pytest.mark.parametrize("target", [pa.int64(), pa.float64(), pa.string(), pa.decimal128(9, 2),
                                    pa.date32(), pa.timestamp("us"), pa.binary(4)])
def test_booleans_and_nested_values_fit_nothing(target):
    assert converted(pa.array([True, False]), target) == [None, None]
    assert converted(pa.array([[1]]), target) == [None]


def test_dictionaries_are_converted_by_their_values():
    encoded = pa.array([1, 300, None, 1]).dictionary_encode()
    assert converted(encoded, pa.int8()) == [1, None, None, 1]


SOURCES = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint64())
MANTISSAS = {pa.float16(): 11, pa.float32(): 24, pa.float64(): 53}  # bits
LIMITS = [2**bits + more for bits in (7, 8, 11, 15, 16, 24, 31, 32, 53, 62, 63)
          for more in (-1, 0, 1)]


def has_integer(target: pa.DataType, value: int) -> bool:
    """Whether a type has an integer, and no other one that is stored as the same value."""
    if pa.types.is_decimal(target):
        return abs(value) < 10**(target.precision - target.scale)
    if target in MANTISSAS:
        return abs(value) < 2**MANTISSAS[target]
    limits = np.iinfo(target.to_pandas_dtype())
    return limits.min <= value <= limits.max


@given(st.lists(st.none() | st.integers(-2**63, 2**64 - 1), max_size=5))
@example([*LIMITS, 2**64 - 1, 10_000, None])
@example([-limit for limit in LIMITS])
@examples(60)
def test_an_integer_is_itself_or_unknown_everywhere(values):
    for source in SOURCES:
        held = [value for value in values if value is None or has_integer(source, value)]
        for target in (*SOURCES, *MANTISSAS, pa.uint8(), pa.uint16(), pa.uint32(),
                       pa.decimal128(20, 0), pa.decimal128(5, 2), pa.decimal256(76, 10)):
            assert converted(pa.array(held, source), target) == [
                value if value is not None and has_integer(target, value) else None
                for value in held], (source, target)
