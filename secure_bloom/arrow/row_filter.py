"""Row filters applied to rows: one interface for lists of predicates and for Expressions.

pyarrow does not filter files. It would simplify a filter using row-group statistics, which do not
include NaN and in which it treats -0.0 and 0.0 as different, and it cannot compare every type.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from secure_bloom.errors import error_location
from secure_bloom.pruning.expressions import Alternatives, usable_for
from secure_bloom.pruning.operands import Operand, comparable, literals, operand
from secure_bloom.pruning.predicates import Condition, Predicate, find_field


class RowFilter(ABC):
    """A filter for rows of a schema, in either form.

    Attributes
    ----------
    columns : list of str
        The top-level columns that it needs, each once.
    alternatives : list of list of Predicate, or None
        A filter for pruning that holds for every row that this filter selects, and maybe for
        others. None: no row group can be skipped. []: no row matches.
    """

    def __init__(self, schema: pa.Schema, columns: list[str], alternatives: Alternatives):
        self._schema = schema
        self.columns = columns
        self.alternatives = alternatives

    @abstractmethod
    def holds(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row whether the filter holds; never null.

        The batch must have the ``columns``, with the types of the schema, and may have others.
        """

    def alternatives_for(self, file_schema: pa.Schema) -> Alternatives:
        """Return ``alternatives`` for a file whose columns may have other types, or be missing."""
        return usable_for(self.alternatives, self._schema, file_schema)


def row_filter(condition: Condition, schema: pa.Schema) -> RowFilter:
    """Return a filter, from :func:`.condition_of`, for rows of a schema.

    Raises ColumnError if a column is not in the schema, or a row can hold several values of it;
    PredicateError if a value cannot be compared with its column.
    """
    if isinstance(condition, list):
        return PredicateFilter(condition, schema)
    from secure_bloom.arrow.expression_filter import ExpressionFilter
    return ExpressionFilter(condition, schema)


class PredicateFilter(RowFilter):
    """A list of predicates, as :mod:`secure_bloom.pruning.predicates` defines their operators."""

    def __init__(self, alternatives: list[list[Predicate]], schema: pa.Schema):
        fields = {p.column: find_field(schema, p.column)
                  for alternative in alternatives for p in alternative}
        columns = list(dict.fromkeys(field.parts[0] for field in fields.values()))
        super().__init__(schema, columns, alternatives)
        self._tests = [[(fields[p.column].parts, _Test(p, fields[p.column].type))
                        for p in alternative] for alternative in alternatives]

    def holds(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        return reduce(pc.or_, (
            reduce(pc.and_, (test.holds(_child(batch.column(parts[0]), parts[1:]))
                             for parts, test in alternative))
            for alternative in self._tests))


def remaining(alternatives: list[list[Predicate]],
              constants: Mapping[str, pa.Scalar]) -> list[list[Predicate]]:
    """Return the alternatives that can hold when some columns have a single value.

    Predicates on these columns are omitted, because they hold there.
    """
    def holds(predicate: Predicate) -> bool:
        constant = constants[predicate.column]
        return _Test(predicate, constant.type).holds(pa.array([constant]))[0].as_py()

    return [[p for p in alternative if p.column not in constants] for alternative in alternatives
            if all(holds(p) for p in alternative if p.column in constants)]


def _child(array: pa.Array, parts: tuple[str, ...]) -> pa.Array:
    """Return a field of structs, null where its struct is null."""
    for name in parts:
        array = _storage(array)
        array = pc.struct_field(array, [array.type.get_field_index(name)])
    return array


def _storage(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array.type, pa.BaseExtensionType) else array


class _Test:
    """A predicate on a column of a given type."""

    def __init__(self, predicate: Predicate, arrow_type: pa.DataType):
        with error_location(column=predicate.column):
            self._holds_for_null, self._of_others = _bind(predicate, arrow_type)

    def holds(self, array: pa.Array) -> pa.BooleanArray:
        array = _storage(array)
        if pa.types.is_dictionary(array.type):
            return self.holds(array.dictionary).take(array.indices).fill_null(self._holds_for_null)
        if pa.types.is_null(array.type):
            return _constant(array, self._holds_for_null)
        return pc.if_else(array.is_valid(), self._of_others(comparable(array)),
                          self._holds_for_null)


# Takes comparable values. Its results for null are not used.
_Truth = Callable[[pa.Array], pa.Array]


def _bind(predicate: Predicate, arrow_type: pa.DataType) -> tuple[bool, _Truth]:
    """Return whether the predicate holds for null, and a function that tests other values."""
    op, value = predicate.op, predicate.value
    if op in ("is null", "is not null") or (op == "<=>" and value is None):
        holds_for_null = op != "is not null"
        return holds_for_null, lambda values: _constant(values, not holds_for_null)
    if op in ("in", "not in"):
        operands = [operand(one, arrow_type) for one in value if one is not None]
        if op == "in":
            return False, lambda values: _is_in(values, operands)
        if None in value:
            return False, lambda values: _constant(values, False)
        return not value, lambda values: pc.invert(_is_in(values, operands))
    if value is None:
        return False, lambda values: _constant(values, False)
    place = operand(value, arrow_type)
    if op in _OPPOSITES:
        return False, lambda values: pc.invert(_compare(values, _OPPOSITES[op], place))
    return False, lambda values: _compare(values, op, place)


# The order is total, so each operator holds exactly where its opposite does not, even for NaN.
_OPPOSITES = {"!=": "==", ">": "<=", ">=": "<"}


def _compare(values: pa.Array, op: str, place: Operand) -> pa.Array:
    floor, is_exact = place
    if op not in ("<", "<="):
        return _is_in(values, [place])
    if floor is None:
        return _constant(values, False)
    if floor != floor:
        return pc.invert(pc.is_nan(values)) if op == "<" else _constant(values, True)
    literal = literals([floor], values.type)[0]
    return pc.less(values, literal) if op == "<" and is_exact else pc.less_equal(values, literal)


def _is_in(values: pa.Array, operands: list[Operand]) -> pa.Array:
    floors = {floor for floor, is_exact in operands if is_exact}
    others = [floor for floor in floors if floor == floor]
    if pa.types.is_floating(values.type):
        values = pc.add(values, 0.0)  # -0.0 becomes 0.0, here and in the list
        others = [floor + 0.0 for floor in others if isinstance(floor, int | float)]
    found = pc.is_in(values, literals(others, values.type))
    return found if len(others) == len(floors) else pc.or_(found, pc.is_nan(values))


def _constant(array: pa.Array, value: bool) -> pa.BooleanArray:
    return pa.repeat(pa.scalar(value), len(array))
