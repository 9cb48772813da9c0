"""Long lists of values: as right as short ones, and prepared once."""

import datetime as dt
import math
import pickle
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import secure_bloom
from secure_bloom.arrow.row_filter import RowFilter
from secure_bloom.errors import PredicateError
from secure_bloom.parquet.chunk_states import RawStatistics
from secure_bloom.pruning import statistics
from secure_bloom.pruning.predicates import Predicate, normalize
from secure_bloom.pruning.value_list import ValueList
from secure_bloom.sbbf import probes

DAY = dt.date(2020, 1, 1)
ROWS = {
    "text": pa.array(["a", "b", None, ""]),
    "view": pa.array(["a", "b", None, ""], pa.string_view()),
    "bytes": pa.array([b"a", b"\xff", None, b""]),
    "int32": pa.array([1, -2, None, 7], pa.int32()),
    "uint64": pa.array([1, 2**64 - 1, None, 0], pa.uint64()),
    "double": pa.array([0.0, -0.0, None, math.nan]),
    "float": pa.array([0.5, 0.1, None, math.inf], pa.float32()),
    "decimal": pa.array([Decimal("1.50"), Decimal("-2.25"), None, Decimal("0.00")]),
    "date": pa.array([DAY, DAY + dt.timedelta(1), None, dt.date(1960, 1, 1)]),
    "time": pa.array([dt.datetime(2020, 1, 1), None, dt.datetime(1960, 1, 1, 1), None]),
    "dictionary": pa.array(["a", "b", None, "a"]).dictionary_encode(),
}
EXTRA = {  # values that no row has, more than there are rows
    "text": [f"x{i}" for i in range(50)], "bytes": [f"x{i}".encode() for i in range(50)],
    "int32": [*range(100, 150), 2**40], "uint64": list(range(100, 150)),
    "double": [1000.5 + i for i in range(50)], "float": [1000.5 + i for i in range(50)],
    "decimal": [Decimal(i) for i in range(100, 150)],
    "date": [DAY + dt.timedelta(100 + i) for i in range(50)],
    "time": [dt.datetime(2021, 1, 1, microsecond=i) for i in range(50)],
}


def extra(name: str) -> list:
    return EXTRA["text" if name in ("view", "dictionary") else name]


@pytest.mark.parametrize("op", ["in", "not in"])
@pytest.mark.parametrize("name", ROWS)
def test_long_lists_select_the_rows_that_single_values_select(name, op):
    rows = ROWS[name]
    batch, schema = pa.record_batch({"a": rows}), pa.schema([("a", rows.type)])
    for wanted in rows.to_pylist():
        if wanted is None:
            continue
        expected = RowFilter(normalize([("a", "==", wanted)]), schema).holds(batch)
        if op == "not in":
            expected = pc.and_(pc.invert(expected), rows.is_valid())
        found = RowFilter(normalize([("a", op, [*extra(name), wanted])]), schema).holds(batch)
        assert found.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("values", [["a", 5], [*["a"] * 20, 5.5], ["\ud800"] * 20])
def test_a_value_that_cannot_be_compared_is_found_in_a_long_list(values):
    with pytest.raises(PredicateError):
        RowFilter(normalize([("a", "in", values)]), pa.schema([("a", pa.string())]))


@pytest.mark.parametrize("name", [name for name in ROWS if name not in ("view", "dictionary")])
def test_statistics_rule_out_the_same_with_one_list_as_value_by_value(name, tmp_path):
    values = [value for value in ROWS[name].to_pylist() if value is not None] + extra(name)[:20]
    secure_bloom.write_table(pa.table({"a": ROWS[name]}), tmp_path / "a.parquet", bloom_filters={})
    with secure_bloom.ParquetFile(tmp_path / "a.parquet") as file:
        [column] = file.columns
        stored = file.footer.row_groups[0][0].statistics
    for some in (values, values[3:], extra(name)):
        for limits in (stored, replace(stored, minimum=None), replace(stored, maximum=None),
                       replace(stored, minimum=stored.maximum)):
            one_by_one = any(statistics.may_hold(Predicate("a", "==", value), limits, column)
                             for value in some)
            assert statistics.may_hold(Predicate("a", "in", ValueList(some)), limits,
                                       column) is one_by_one


def test_unknown_statistics_rule_nothing_out(tmp_path):
    secure_bloom.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet", bloom_filters={})
    with secure_bloom.ParquetFile(tmp_path / "a.parquet") as file:
        [column] = file.columns
    nothing = RawStatistics(num_values=5)
    for values in (range(100), [*range(100), 0.5]):
        assert statistics.may_hold(Predicate("a", "in", ValueList(values)), nothing, column)


def test_values_are_hashed_once_for_all_row_groups(tmp_path, monkeypatch):
    table = pa.table({"a": np.arange(1000)})
    secure_bloom.write_table(table, tmp_path / "a.parquet", row_group_size=100, bloom_filters=True)
    hashed = []
    real = probes.hash_values
    monkeypatch.setattr(probes, "hash_values", lambda array, t: hashed.append(len(array)) or real(
        array, t))
    with secure_bloom.ParquetFile(tmp_path / "a.parquet") as file:
        answers = file.might_contain("a", table["a"])
    assert hashed == [1000] and answers.shape == (10, 1000)
    assert all(answers[number // 100, number] for number in range(1000))


def test_a_value_list_is_derived_from_once_and_pickled_without_what_was_derived():
    values, calls = ValueList([3, 1, 2]), []

    def total(values, factor):
        calls.append(factor)
        return sum(values) * factor

    assert [values.derived(total, factor) for factor in (1, 2, 1, 2)] == [6, 12, 6, 12]
    assert calls == [1, 2]
    assert pickle.loads(pickle.dumps(values)) == [3, 1, 2]
    assert len(pickle.dumps(values)) < 200
