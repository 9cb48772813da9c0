"""Conditions do not show their values: tools that report errors show the objects of each frame."""

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from secure_bloom.datasets.report import ScanReport
from secure_bloom.erasing.matching import ErasedRows, ErasedValues
from secure_bloom.erasing.search import Occurrences
from secure_bloom.pruning.expression_tree import parse
from secure_bloom.pruning.operands import operand
from secure_bloom.pruning.predicates import Predicate, normalize
from secure_bloom.pruning.value_list import ValueList
from secure_bloom.spark.options.row_filters import ColumnPredicate

VALUE = "078-05-1120"

SHOWN = {
    "predicate": Predicate("ssn", "==", VALUE),
    "alternatives": normalize([("ssn", "in", [VALUE])]),
    "values": ValueList([VALUE]),
    "expression": parse(pc.field("ssn") == VALUE),
    "expression with a list": parse(pc.field("ssn").isin([VALUE])),
    "operand": operand(VALUE, pa.string()),
    "erased values": ErasedValues("ssn", VALUE),
    "erased rows": ErasedRows(pa.array([True]), Counter({VALUE: 1})),
    "occurrences": Occurrences(ScanReport(""), 1, 1, counts=Counter({VALUE: 1})),
    "predicate of Spark": ColumnPredicate(("ssn",), "==", VALUE),
}


@pytest.mark.parametrize("what", SHOWN)
def test_no_value_is_shown(what):
    assert VALUE not in repr(SHOWN[what]) and VALUE not in str(SHOWN[what])


def test_a_predicate_shows_what_is_compared():
    assert repr(Predicate("ssn", "==", VALUE)) == "<Predicate ssn == ?>"
