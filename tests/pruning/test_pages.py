"""Which rows may match, by what is known about pages."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.pruning.pages import Spans, pages_with, searched_bytes, spans_where
from secure_bloom.pruning.predicates import Predicate
from secure_bloom.sbbf.column_type import ColumnType
from tests.support import examples


@st.composite
def truths(draw, num_rows):
    """What is known of a predicate: first rows of pages, and whether it may hold in each."""
    inner = draw(st.sets(st.integers(1, num_rows - 1), max_size=5)) if num_rows > 1 else set()
    rows = np.array([0, *sorted(inner), num_rows])
    may_hold = draw(st.lists(st.booleans(), min_size=len(rows) - 1, max_size=len(rows) - 1))
    return rows, np.array(may_hold)


@examples(100)
@given(st.data())
def test_spans_have_exactly_the_rows_that_may_match(data):
    num_rows = data.draw(st.integers(1, 30))
    alternatives = data.draw(st.lists(st.lists(
        st.none() | truths(num_rows), min_size=1, max_size=3), min_size=1, max_size=3))

    def may_hold(row, truth):
        return truth is None or truth[1][np.searchsorted(truth[0], row, "right") - 1]

    expected = [row for row in range(num_rows)
                if any(all(may_hold(row, truth) for truth in some) for some in alternatives)]
    spans = spans_where(alternatives, num_rows)
    assert spans.rows().tolist() == expected and spans.num_rows == len(expected)
    again = spans_where([[spans.as_truth(num_rows)]], num_rows)
    assert again.rows().tolist() == expected
    size = data.draw(st.integers(1, 10))
    parts = list(spans.parts(size))
    assert [row for part in parts for row in part.rows().tolist()] == expected
    assert all(part.num_rows == size for part in parts[:-1])


@examples(100)
@given(st.data())
def test_the_pages_of_spans_are_those_with_their_rows(data):
    num_rows = data.draw(st.integers(1, 30))
    first_rows, _ = data.draw(truths(num_rows))
    rows, may_hold = data.draw(truths(num_rows))
    spans = spans_where([[(rows, may_hold)]], num_rows)
    expected = {int(np.searchsorted(first_rows, row, "right")) - 1 for row in spans.rows()}
    assert set(pages_with(first_rows, spans).tolist()) == expected


def test_no_page_has_rows_of_no_span():
    none = Spans(np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert pages_with(np.array([0, 5, 9]), none).tolist() == [] and none.rows().tolist() == []


def _searched(op, value, physical, arrow_type):
    column = LeafColumn(0, "c", ("c",), ColumnType(physical, 0, arrow_type))
    return searched_bytes(Predicate("c", op, value), column)


def test_only_values_with_certain_bytes_are_searched_for():
    text = _searched("in", ["ab", "c"], "BYTE_ARRAY", pa.string())
    assert text(b"\x01\0\0\0c") and text(b"x\x02\0\0\0ab") and not text(b"\x03\0\0\0abc")
    number = _searched("=", -2, "INT64", pa.int64())
    assert number(b"\0" + (-2).to_bytes(8, "little", signed=True)) and not number(b"\xfe" * 8)
    for op, value, physical, arrow_type in (
            ("=", 0.0, "DOUBLE", pa.float64()),  # -0.0 is equal, and has other bytes
            ("=", float("nan"), "DOUBLE", pa.float64()),
            ("=", None, "INT64", pa.int64()), ("<", 3, "INT64", pa.int64()),
            ("in", [], "INT64", pa.int64()), ("in", list(range(99)), "INT64", pa.int64()),
            ("=", 1.0, "INT64", pa.int64()), ("=", True, "BOOLEAN", pa.bool_()),
            ("is null", None, "INT64", pa.int64())):
        assert _searched(op, value, physical, arrow_type) is None, (op, value)
