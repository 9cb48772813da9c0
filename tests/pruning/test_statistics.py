"""Statistics of row groups: what they rule out, and that they never rule out a row."""

import datetime
import io
import math
import random
import struct
from decimal import Decimal, localcontext

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import secure_bloom
from secure_bloom import ParquetFile
from secure_bloom.parquet import thrift
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.sbbf.conversion import convert_exactly
from tests.cases import for_each
from tests.reference import holds
from tests.support import MODES, encrypted_arrow_file, encryptions, open_footer

UTC = datetime.UTC


def opened(array, rows=2, mode="plain", **options) -> ParquetFile:
    encryption, kms, keys = encryptions("c")[mode]
    table = pa.table({"c": array})
    file, _ = encrypted_arrow_file(table, encryption, kms, row_group_size=rows, **options)
    return ParquetFile(file, keys)


INTS = [1, 5, None, 7, None, None, -3, 0]


@pytest.mark.parametrize("mode", MODES)
@for_each(("predicate", "row_groups"), [
    (("c", "==", 5), [0]), (("c", "==", 3), [0]), (("c", "==", 6), []), (("c", "==", -1), [3]),
    (("c", "in", [7, 0]), [1, 3]), (("c", "in", []), []), (("c", "in", [None]), []),
    (("c", "<", 1), [3]), (("c", "<=", 1), [0, 3]), (("c", ">", 5), [1]), (("c", ">=", 5), [0, 1]),
    (("c", "is null", None), [1, 2]), (("c", "<=>", None), [1, 2]), (("c", "<=>", 7), [1]),
    (("c", "is not null", None), [0, 1, 3]), (("c", "!=", 7), [0, 1, 3]),
    (("c", "not in", [7]), [0, 1, 3]), (("c", "==", None), []), (("c", "<", 10**30), [0, 1, 3]),
    (("c", "not in", []), [0, 1, 2, 3]), (("c", "not in", [7, None]), []),
    (("c", "<", None), []), (("c", "!=", None), []),
])
def test_row_groups(mode, predicate, row_groups):
    assert opened(pa.array(INTS), mode=mode).prune([predicate]) == row_groups


@pytest.mark.parametrize(("op", "day"), [("<", 2**31 + 5), ("<=", 2**31), (">", -2**31 - 5)])
def test_a_day_that_no_column_can_hold_is_still_before_or_after_all_others(op, day):
    days = opened(pa.array([datetime.date(2024, 1, 1)]))
    probe = pa.scalar(day * 86_400_000, pa.int64()).cast(pa.date64())
    assert days.prune([("c", op, probe)]) == [0]
    assert days.read(filters=[("c", op, probe)]).num_rows == 1


def test_without_the_key_of_a_column_nothing_is_ruled_out():
    encryption, kms, _ = encryptions("c")["plaintext footer"]
    file, _ = encrypted_arrow_file(pa.table({"c": [1]}), encryption, kms)
    assert ParquetFile(file).prune([("c", ">", 5)]) == [0]


def test_without_statistics_nothing_is_ruled_out():
    assert opened(pa.array(INTS), write_statistics=False).prune([("c", ">", 50)]) == [0, 1, 2, 3]


def test_lists_and_structs():
    table = pa.table({"l": [[1, 2], [], None], "s": [{"x": 5}, None, {"x": None}]})
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=1)
    file = ParquetFile(sink.getvalue())
    assert file.prune([("l.list.element", "==", 2)]) == [0]
    assert file.prune([("l.list.element", "is null", None)]) == [0, 1, 2]
    assert file.prune([("s.x", "is null", None)]) == [0, 1, 2]
    assert file.prune([("s.x", "is not null", None)]) == [0]


def test_nulls_of_structs_that_arrow_forgets_to_count():
    """It writes 0 for a dictionary without nulls, whatever the structs around it are."""
    words = pa.array(["a", "b"]).dictionary_encode()
    structs = pa.StructArray.from_arrays([words], ["x"], mask=pa.array([False, True]))
    sink = io.BytesIO()
    pq.write_table(pa.table({"s": structs}), sink)
    column = pq.read_metadata(io.BytesIO(sink.getvalue())).row_group(0).column(0)
    assert column.statistics.null_count == 0
    file = ParquetFile(sink.getvalue())
    for filters in ([("s.x", "is null", None)], [("s.x", "<=>", None)], [("s.x", "not in", [])]):
        assert None in file.read(filters=filters)["s"].to_pylist()


@pytest.mark.parametrize(("op", "value", "row_groups"), [
    ("==", True, [0, 1]), ("==", False, [1, 2]), ("<", True, [1, 2]), (">", False, [0, 1]),
    ("<", False, []), ("in", [True], [0, 1]), ("<=>", False, [1, 2]), ("is null", None, [2, 3]),
    ("not in", [True], [0, 1, 2])])
def test_booleans(op, value, row_groups):
    file = opened(pa.array([True, True, True, False, False, None, None, None]))
    assert file.prune([("c", op, value)]) == row_groups


def test_nan_is_greater_than_every_number():
    file = opened(pa.array([1.0, math.nan]))
    assert file.prune([("c", ">", 5.0)]) == file.prune([("c", ">=", math.nan)]) == [0]
    assert file.prune([("c", "==", math.nan)]) == file.prune([("c", "<", math.nan)]) == [0]
    assert file.prune([("c", "<", 1.0)]) == [0]  # strict only as far as rounding allows
    assert file.prune([("c", "<", 0.5)]) == file.prune([("c", "==", 5.0)]) == []


def test_a_probe_that_was_rounded_to_a_narrower_float():
    for text in ("0.1", "0.3", "1e-50", "3.4e38"):
        stored = pa.scalar(float(text), pa.float32()).as_py()
        file = opened(pa.array([stored], pa.float32()))
        for op in ("<", "<=", ">", ">="):
            assert file.prune([("c", op, float(text))]) == [0]


@pytest.mark.parametrize("bits", [128, 256])
def test_a_number_with_too_many_digits_for_a_decimal_rules_out_nothing_that_matches(bits, tmp_path):
    """Arrow multiplies 2**40 by 10**30, and wraps around without an error."""
    type_ = pa.decimal128(38, 30) if bits == 128 else pa.decimal256(76, 68)
    row = Decimal("99999999")
    secure_bloom.write_table(pa.table({"d": pa.array([row], type_)}), tmp_path / "a.parquet")
    for value in (2**40, -(2**40), Decimal(2**40), 2**62, -(2**62), Decimal("1E+37")):
        for op in ("<", "<=", ">", ">=", "=", "!="):
            found = secure_bloom.read_table(tmp_path / "a.parquet", filters=[("d", op, value)])
            assert found.num_rows == holds(row, op, value), (op, value)


def test_integers_and_decimals_are_converted_to_decimals_exactly_or_not_at_all():
    draw = random.Random(7)
    with localcontext() as context:
        context.prec = 200
        for _ in range(2000):
            precision = draw.randrange(1, 39)
            type_ = pa.decimal128(precision, draw.randrange(precision + 1))
            value = draw.randrange(-2**63, 2**63) >> draw.randrange(60)
            if draw.random() < 0.5:
                value = Decimal(value).scaleb(-draw.randrange(30))
            unscaled = Decimal(value).scaleb(type_.scale)
            fits = unscaled % 1 == 0 and abs(unscaled) < 10**precision
            [found] = convert_exactly(pa.array([value]), ColumnType(
                "FIXED_LEN_BYTE_ARRAY", 16, type_)).to_pylist()
            assert found == (value if fits else None), (value, type_)


def test_bounds_of_a_type_without_an_order_rule_out_nothing():
    """Writers that store bounds of INTERVAL compare months as numbers, or bytes."""
    months = [struct.pack("<iii", number, 0, 0) for number in (1, 256)]
    sink = io.BytesIO()
    pq.write_table(pa.table({"c": pa.array(months, pa.binary(12))}), sink, store_schema=False)
    assert ParquetFile(sink.getvalue()).prune([("c", "==", bytes(12))]) == []
    footer = open_footer(sink.getvalue())
    elements = list(thrift.each(footer._file_meta, 2, {}))
    elements[1].set_int(6, thrift.I32, 21)  # converted type INTERVAL
    footer._file_meta.set(2, thrift.LIST, elements)
    [chunk] = footer.column_chunks()
    bounds = thrift.Struct()
    bounds.set_binary(5, months[1])
    bounds.set_binary(6, months[0])
    chunk.metadata().set(12, thrift.STRUCT, thrift.encode(bounds))
    chunk.to_change()
    file = ParquetFile(sink.getvalue()[:footer.start] + footer.to_bytes())
    for op in ("==", "<=>", "<=", ">="):
        assert file.read(filters=[("c", op, months[0])]).num_rows >= 1
    assert file.prune([("c", "is null", None)]) == [0]  # the count was not stored
    assert file.columns[0].type.can_have_filter
