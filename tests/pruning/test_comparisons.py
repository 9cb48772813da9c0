"""What operators mean for null, zeros and NaN, and values that cannot be compared with a column."""

import datetime
import io
import math
import tracemalloc
import uuid
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from secure_bloom import ParquetFile, read_table, write_table
from secure_bloom.arrow.row_filter import RowFilter
from secure_bloom.errors import ColumnError, PredicateError, SecureBloomError
from secure_bloom.pruning.operands import Operand, operand
from secure_bloom.pruning.predicates import OPERATORS, normalize
from tests.arrow.test_row_filter import filterable
from tests.cases import for_each
from tests.pruning.row_domains import domains
from tests.reference import holds

NAN = math.nan
UTC = datetime.UTC
DAY, NOON = datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 12)
DOMAINS = domains()


# --- meaning -------------------------------------------------------------------------------------

def questions(op: str, asked: list[tuple]) -> list[tuple]:
    """Values to compare a column with, and the same for the reference."""
    if "null" in op:
        return [(None, None)]
    if op not in ("in", "not in"):
        return [*asked, (None, None)]
    several = [pair for pair in asked if pair[1] is not None]
    lists = [[], asked, several, several[::2], several[::3], *([pair] for pair in asked),
             *([pair, (None, None)] for pair in asked[:3])]
    return [([value for value, _ in one], [same for _, same in one]) for one in lists]


@pytest.mark.slow
@for_each("name", DOMAINS)
def test_every_comparison_finds_the_rows_of_the_reference_and_skips_none_of_them(name):
    stored, values, asked = DOMAINS[name]
    if not pa.types.is_dictionary(stored.type):
        stored, values = pa.concat_arrays([stored, pa.nulls(1, stored.type)]), [*values, None]
    table, sink = pa.table({"c": stored}), io.BytesIO()
    write_table(table, sink, bloom_filters=dict.fromkeys(filterable(table), True), row_group_size=2)
    file, [batch], alone = ParquetFile(sink.getvalue()), table.to_batches(), {}
    for op in OPERATORS:
        for value, same in questions(op, asked):
            right = [holds(one, op, same) for one in values]
            rows = RowFilter(normalize([("c", op, value)]), table.schema).holds(batch)
            assert rows.to_pylist() == right, (op, value)
            groups = {row // 2 for row, is_found in enumerate(right) if is_found}
            kept = set(file.prune([("c", op, value)]))
            assert groups <= kept, (op, value)
            if op == "==":
                alone[id(value)] = kept
            elif op == "in":
                assert kept == set().union(*(alone[id(one)] for one in value)), value


# --- mistakes ------------------------------------------------------------------------------------

COLUMNS = {
    "number": pa.array([5]), "small": pa.array([5], pa.int8()), "real": pa.array([5.0]),
    "money": pa.array([Decimal("5.00")]), "flag": pa.array([True]), "text": pa.array(["5"]),
    "view": pa.array(["5"], pa.string_view()), "raw": pa.array([b"5"]), "day": pa.array([DAY]),
    "clock": pa.array([NOON]), "instant": pa.array([NOON], pa.timestamp("us", "UTC")),
    "time": pa.array([datetime.time(1)]), "span": pa.array([datetime.timedelta(1)]),
    "id": pa.array([uuid.UUID(int=5)], pa.uuid()), "word": pa.array(["5"]).dictionary_encode(),
    "struct": pa.array([{"x": 5}]),
}
SECRET = "078-05-1120"
MISTAKES = [
    ("number", SECRET, "int64", "str"), ("number", b"5", "int64", "bytes"),
    ("number", True, "int64", "bool"), ("number", np.bool_(True), "int64", "bool"),
    ("number", [5], "int64", "list"), ("number", {"a": 5}, "int64", "dict"),
    ("number", {5}, "int64", "set"), ("number", object(), "int64", "object"),
    ("number", 5j, "int64", "complex"), ("number", DAY, "int64", "date"),
    ("number", pa.scalar([5]), "int64", "list"), ("number", np.array([5]), "int64", "ndarray"),
    ("small", SECRET, "int8", "str"), ("real", SECRET, "double", "str"),
    ("money", SECRET, "decimal128(3, 2)", "str"), ("struct.x", SECRET, "int64", "str"),
    ("flag", 1, "bool", "int"), ("flag", "true", "bool", "str"),
    ("text", 78051120, "string", "int"), ("text", 5.0, "string", "float"),
    ("text", "\ud800", "string", "str that UTF-8 cannot encode"), ("view", 5, "string_view", "int"),
    ("word", 5, "dictionary<values=string, indices=int32, ordered=0>", "int"),
    ("raw", 5, "binary", "int"), ("day", "2024-02-29", "date32[day]", "str"),
    ("day", NOON.replace(tzinfo=UTC), "date32[day]", "datetime with a time zone"),
    ("clock", NOON.replace(tzinfo=UTC), "timestamp[us]", "datetime with a time zone"),
    ("clock", "2024-02-29", "timestamp[us]", "str"), ("clock", 5, "timestamp[us]", "int"),
    ("instant", NOON, "timestamp[us, tz=UTC]", "datetime without a time zone"),
    ("instant", DAY, "timestamp[us, tz=UTC]", "date"),
    ("instant", pd.Timestamp(1), "timestamp[us, tz=UTC]", "timestamp[ns]"),
    ("instant", np.datetime64(1, "ns"), "timestamp[us, tz=UTC]", "timestamp[ns]"),
    ("time", datetime.time(1, tzinfo=UTC), "time64[us]", "time with a time zone"),
    ("time", "01:00", "time64[us]", "str"), ("span", 5, "duration[us]", "int"),
    ("id", "00000000-0000-0000-0000-000000000005", "extension<arrow.uuid>", "str"),
]


@pytest.fixture(scope="module")
def unreadable(tmp_path_factory):
    """A folder and its file, whose pages are destroyed: rows cannot have been read."""
    folder = tmp_path_factory.mktemp("mistakes")
    sink = io.BytesIO()
    write_table(pa.table(COLUMNS), sink, bloom_filters={"number": True, "text": True})
    data = sink.getvalue()
    pages = ParquetFile(data).bloom_filters[0].offset
    (folder / "x.parquet").write_bytes(data[:4] + b"\xff" * (pages - 4) + data[pages:])
    return folder


@pytest.mark.slow
@for_each("op", ["==", "<", "not in"])
@for_each(("column", "value", "type_name", "value_name"), MISTAKES)
def test_values_that_cannot_be_compared_are_told(unreadable, column, value, op, type_name,
                                                 value_name):
    predicate = (column, op, [None, value] if "in" in op else value)
    file = ParquetFile(unreadable / "x.parquet")
    others = [("number", "in", []), ("number", "==", 7)]  # with which no row group is left
    for filters in ([predicate], [*others, predicate]):
        for ask in (lambda f: file.read(filters=f), lambda f: list(file.iter_tables(filters=f)),
                    file.prune, lambda f: read_table(unreadable, filters=f),
                    lambda f: read_table(unreadable / "x.parquet", filters=f, columns=["number"])):
            with pytest.raises(PredicateError) as caught:
                ask(filters)
            error = caught.value
            assert isinstance(error, ColumnError) and isinstance(error, TypeError)
            assert error.column == column and error.file.startswith(str(unreadable))
            assert f"a value of type {value_name} cannot be compared with a column of type " \
                   f"{type_name}" in str(error)
            if isinstance(value, str | int) and len(str(value)) > 5:
                assert str(value) not in str(error) + repr(error)


def test_a_mistake_in_a_partition_column_is_told(tmp_path):
    (tmp_path / "year=2024").mkdir()
    write_table(pa.table({"a": [1]}), tmp_path / "year=2024" / "x.parquet", bloom_filters={})
    with pytest.raises(PredicateError, match=r"column year: a value of type str .*int32") as caught:
        read_table(tmp_path, filters=[("year", "==", "2024")])
    assert caught.value.file == str(tmp_path)
    assert read_table(tmp_path, filters=[("year", "<=", 2024.5)]).num_rows == 1


def test_a_mistake_in_a_column_that_some_files_lack_is_told(tmp_path):
    for name, columns in (("a", {"x": [1]}), ("b", {"x": [1], "y": [1]})):
        write_table(pa.table(columns), tmp_path / name, bloom_filters={})
    with pytest.raises(PredicateError, match="column y"):
        read_table(tmp_path, filters=[("y", "==", "1")])
    assert read_table(tmp_path, filters=[("y", "==", 1)]).num_rows == 1
    assert read_table(tmp_path, filters=[("y", "is null", None)]).num_rows == 1


@pytest.mark.parametrize("filters", [
    [("none", "==", 1)], [("none", "is null", None)], [("none", "in", [])], [("struct", "==", 1)],
    [("struct", "is null", None)], [("list", "is null", None)], [("list.list.element", "==", 1)],
    [("struct.y", "<", 1)]], ids=str)
def test_columns_that_cannot_be_compared_are_told(tmp_path, filters):
    write_table(pa.table({"struct": [{"x": 1}], "list": [[1]]}), tmp_path / "x", bloom_filters={})
    for source in (tmp_path, tmp_path / "x"):
        with pytest.raises(ColumnError) as caught:
            read_table(source, filters=filters)
        assert caught.value.column == filters[0][0]


def test_values_of_lists_can_be_asked_for_where_row_groups_are_pruned():
    sink = io.BytesIO()
    write_table(pa.table({"list": [[1], [2]]}), sink, bloom_filters={}, row_group_size=1)
    file = ParquetFile(sink.getvalue())
    assert file.prune([("list.list.element", "==", 2)]) == [1]
    with pytest.raises(PredicateError):
        file.prune([("list.list.element", "==", "2")])


def test_the_types_of_nested_columns_are_those_of_the_schema():
    """In Parquet, a duration is an integer."""
    span = datetime.timedelta(1)
    sink = io.BytesIO()
    write_table(pa.table({
        "s": [{"x": {"y": span}, "l": [span]}],
        "m": pa.array([[(1, span)]], pa.map_(pa.int8(), pa.duration("us"))),
        "id": pa.array([uuid.UUID(int=1)], pa.uuid())}), sink, bloom_filters={})
    file = ParquetFile(sink.getvalue())
    for column in ("s.x.y", "s.l.list.element", "m.key_value.value"):
        assert file.prune([(column, "==", span)]) == [0]
        with pytest.raises(PredicateError, match="duration"):
            file.prune([(column, "==", 1)])
    assert file.prune([("m.key_value.key", "==", 1)]) == [0]
    assert file.prune([("id", "!=", bytes(16))]) == [0]
    assert file.read(filters=[("s.x.y", "==", span)]).num_rows == 1


# --- places --------------------------------------------------------------------------------------

@pytest.mark.parametrize(("value", "arrow_type", "place"), [
    (5, pa.int8(), (5, True)), (5.5, pa.int8(), (5, False)), (-5.5, pa.int8(), (-6, False)),
    (300, pa.int8(), (127, False)), (-300, pa.int8(), (None, False)),
    (NAN, pa.int8(), (127, False)), (127.5, pa.int8(), (127, False)),
    (-0.5, pa.uint8(), (None, False)),
    (10**400, pa.float64(), (1.7976931348623157e308, False)),
    (-10**400, pa.float64(), (-math.inf, False)), (math.inf, pa.float64(), (math.inf, True)),
    (2**53 + 1, pa.float64(), (2.0**53, False)), (Decimal("0.1"), pa.float64(),
                                                  (math.nextafter(0.1, 0), False)),
    (Decimal("1.005"), pa.decimal128(5, 2), (100, False)), (1, pa.decimal128(5, 2), (100, True)),
    (1000, pa.decimal128(5, 2), (99_999, False)), (-1000, pa.decimal128(5, 2), (None, False)),
    (NOON, pa.date32(), (19_782, False)), (NOON, pa.timestamp("s"), (1_709_208_000, True)),
    (datetime.time(0, 0, 0, 1), pa.time32("ms"), (0, False)),
    ("ä", pa.binary(), (b"\xc3\xa4", True)),
])
def test_places_of_values(value, arrow_type, place):
    assert operand(value, arrow_type) == Operand(*place)


@pytest.mark.parametrize("exponent", [-1_000_000, 1_000_000])
@pytest.mark.parametrize("arrow_type", [pa.int64(), pa.float64(), pa.decimal128(9, 2)], ids=str)
def test_exponents_that_no_type_reaches_take_no_memory(arrow_type, exponent):
    tracemalloc.start()
    for sign in (1, -1):
        place = operand(Decimal(f"{sign}e{exponent}"), arrow_type)
        assert place == operand(Decimal(f"{sign}e{exponent // 2500}"), arrow_type)
    assert tracemalloc.get_traced_memory()[1] < 50_000
    tracemalloc.stop()


def test_the_error_crosses_process_borders():
    import pickle
    with pytest.raises(SecureBloomError) as caught:
        operand("x", pa.int8())
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is PredicateError and str(again) == str(caught.value)
