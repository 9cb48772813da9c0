"""Row filters: their form, and which row groups survive."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from secure_bloom.arrow.row_filter import RowFilter
from secure_bloom.pruning.predicates import OPERATORS, Predicate, normalize
from secure_bloom.pruning.row_groups import after_filters

# --- form ----------------------------------------------------------------------------------------

@pytest.mark.parametrize(("filters", "expected"), [
    ([("a", "==", 1)], [[("a", "==", 1)]]),
    ((("a", "=", 1),), [[("a", "=", 1)]]),
    ([("a", ">", 1), ("b.c", "!=", None)], [[("a", ">", 1), ("b.c", "!=", None)]]),
    ([[("a", "==", 1)], [("b", "in", {2})]], [[("a", "==", 1)], [("b", "in", [2])]]),
    ([[["a", "==", 1]]], [[("a", "==", 1)]]),
    ([("a", "not in", (x for x in "xy"))], [[("a", "not in", ["x", "y"])]]),
    ([("a", "in", [])], [[("a", "in", [])]]),
])
def test_filters_are_normalized(filters, expected):
    assert normalize(filters) == [[Predicate(*part) for part in parts] for parts in expected]


@pytest.mark.parametrize(("filters", "error"), [
    ([], TypeError), (None, TypeError), ("a == 1", TypeError), (("a", "==", 1), TypeError),
    (pc.field("a") == 1, TypeError), ([("a", "==")], TypeError), ([(1, "==", 1)], TypeError),
    ([("a", "==", 1), "b"], TypeError), ([[("a", "==", 1)], [("b",)]], TypeError),
    ([("a", "is null", 1)], ValueError), ([("a", "===", 1)], ValueError),
    ([("a", "like", "x")], ValueError),
    ([("a", "in", "text")], TypeError), ([("a", "in", b"raw")], TypeError),
    ([("a", "in", 5)], TypeError), ([("a", "not in", None)], TypeError), ([[]], TypeError),
    ([[("a", "==", 1)], []], TypeError),
], ids=range(18))
def test_what_is_no_filter_is_refused(filters, error):
    with pytest.raises(error):
        normalize(filters)


def test_a_value_in_the_place_of_the_operator_is_not_shown():
    with pytest.raises(ValueError, match="operator must be one of") as raised:
        normalize([("ssn", "078-05-1120", "==")])
    assert "078" not in str(raised.value)


@pytest.mark.parametrize("op", OPERATORS)
def test_only_equality_has_probes(op):
    value = [1, 2] if "in" in op else 1
    expected = {"=": [1], "==": [1], "<=>": [1], "in": [1, 2]}.get(op)
    assert Predicate("a", "<=>", None).candidates is None
    assert Predicate("a", op, value).candidates == expected


# --- row groups ----------------------------------------------------------------------------------

CONTENT = [{"a": {1, 2}, "b": {"x"}}, {"a": {2, 3}, "b": {"y"}}, {"a": set(), "b": {"x", "y"}}]


def surviving(alternatives, num_row_groups: int, might_contain) -> list[int]:
    """The row groups that filters leave of all."""
    possible = [list(range(num_row_groups)) for _ in alternatives]
    left = after_filters(alternatives, possible,
                         lambda column, values, _: dict(enumerate(might_contain(column, values))))
    return sorted(set().union(*left))


def survivors(filters) -> tuple[list[int], list[str]]:
    """Row groups by filters that are always right, and the columns that were asked for."""
    asked = []

    def might_contain(column, values):
        asked.append(column)
        return np.array([[value is None or value in group[column] for value in values]
                         for group in CONTENT])

    return surviving(normalize(filters), len(CONTENT), might_contain), asked


@pytest.mark.parametrize(("filters", "expected"), [
    ([("a", "==", 1)], [0]),
    ([("a", "=", 2)], [0, 1]),
    ([("a", "==", 9)], []),
    ([("a", "==", None)], []),
    ([("a", "in", [1, 3])], [0, 1]),
    ([("a", "in", [9, None])], []),
    ([("a", "in", [])], []),
    ([("a", "not in", [1, 2])], [0, 1, 2]),
    ([("a", "==", 2), ("b", "==", "y")], [1]),
    ([("a", "==", 2), ("a", "==", 3)], [1]),
    ([("a", "==", 2), ("b", ">", "y")], [0, 1]),
    ([("a", "in", []), ("b", "==", "x")], []),
    ([[("a", "==", 1)], [("b", "==", "y")]], [0, 1, 2]),
    ([[("a", "==", 1)], [("a", "==", 3)]], [0, 1]),
    ([[("a", "==", 9)], [("a", "!=", 3)]], [0, 1, 2]),
    ([[("a", "in", [])], [("a", "in", [9, 3]), ("b", "==", "y")]], [1]),
    ([[("a", "<", 1)]], [0, 1, 2]),
])
def test_surviving_row_groups(filters, expected):
    assert survivors(filters)[0] == expected


def test_every_column_is_asked_for_once():
    _, asked = survivors([[("a", "==", 1), ("b", "==", "x")], [("a", "in", [2, 3])],
                          [("b", ">", "x"), ("a", "==", 9)]])
    assert sorted(asked) == ["a", "b"]
    assert survivors([("a", ">", 1), ("b", "in", [])])[1] == []


def test_row_groups_without_a_filter_are_kept():
    left = after_filters(normalize([("a", "==", 9), ("b", "==", "x")]), [[0, 1, 2]],
                         lambda column, values, groups: {1: [False]} if column == "a" else {})
    assert left == [[0, 2]]


def test_filters_are_asked_only_about_the_row_groups_that_are_left():
    asked = []

    def might_contain(column, values, groups):
        asked.append((column, groups))
        return {}

    after_filters(normalize([[("a", "==", 1)], [("a", "==", 2), ("b", "==", "x")],
                             [("b", "==", "y")]]), [[4, 0], [2], []], might_contain)
    assert asked == [("a", [0, 2, 4]), ("b", [2])]


# --- rows ----------------------------------------------------------------------------------------

def one_batch(table: pa.Table) -> pa.RecordBatch:
    arrays = [column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)


TABLE = pa.table({"a": [1, 2, 3, None], "s": [{"x": "u"}, {"x": "v"}, None, {"x": None}],
                  "d.t": [1, 1, 2, 2]})


@pytest.mark.parametrize(("filters", "rows"), [
    ([("s.x", "==", "v")], [2]), ([("s.x", "==", pa.scalar(None, pa.large_string()))], []),
    ([("s.x", "in", ["v", pa.scalar(None, pa.large_string())])], [2]),
    ([("s.x", "is null", None)], [3, None]), ([("d.t", "==", 2)], [3, None]),
    ([[("a", "==", 1)], [("a", "==", 3)]], [1, 3]),
])
def test_rows_are_selected(filters, rows):
    """Typed nulls of another width than the column's crash pyarrow 26 if they reach it."""
    row_filter = RowFilter(normalize(filters), TABLE.schema)
    selected = TABLE.filter(row_filter.holds(one_batch(TABLE)))
    assert selected["a"].to_pylist() == rows
