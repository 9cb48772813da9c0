"""Long lists of values: as right as short ones, and prepared once."""

import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import secure_bloom
from secure_bloom.arrow.row_filter import RowFilter
from secure_bloom.errors import PredicateError
from secure_bloom.parquet.chunk_states import RawStatistics
from secure_bloom.pruning import statistics
from secure_bloom.pruning.predicates import Predicate, normalize
from secure_bloom.pruning.value_list import ValueList
from secure_bloom.sbbf import probes


@pytest.mark.parametrize("values", [["a", 5], [*["a"] * 20, 5.5], ["\ud800"] * 20])
def test_a_value_that_cannot_be_compared_is_found_in_a_long_list(values):
    with pytest.raises(PredicateError):
        RowFilter(normalize([("a", "in", values)]), pa.schema([("a", pa.string())]))


@pytest.mark.parametrize(("rows", "others"), [
    ([1, -2, None, 7], range(100, 120)), (["a", "b", None, ""], [f"x{i}" for i in range(20)])])
def test_statistics_rule_out_the_same_with_one_list_as_value_by_value(tmp_path, rows, others):
    values = [*filter(None, rows), *others]
    secure_bloom.write_table(pa.table({"a": rows}), tmp_path / "a.parquet", bloom_filters={})
    with secure_bloom.ParquetFile(tmp_path / "a.parquet") as file:
        [column] = file.columns
        stored = file.footer.row_groups[0][0].statistics
    for some in (values, values[3:], others):
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
