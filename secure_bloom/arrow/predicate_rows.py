"""Rows for which predicates hold, as :mod:`secure_bloom.pruning.predicates` defines operators."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa

from secure_bloom.errors import error_location
from secure_bloom.pruning.operands import (
    Operand,
    comparable,
    literals,
    operand,
    positions_of,
)
from secure_bloom.pruning.predicates import Predicate, find_field
from secure_bloom.pruning.value_list import as_value_list
from secure_bloom.sbbf import light_arrow
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.sbbf.filter import SplitBlockBloomFilter
from secure_bloom.sbbf.hashing import hash_values
from secure_bloom.sbbf.light_arrow import call

_MANY = 1000  # members from which on most values are ruled out by their hashes


class PredicateRows:
    """Finds the rows for which one of some alternatives holds.

    ``columns`` are the names of the top-level columns that the predicates need, each once. Raises
    ColumnError if a column is not in the schema, or a row can hold several values of it;
    PredicateError if a value cannot be compared with its column.
    """

    def __init__(self, alternatives: list[list[Predicate]], schema: pa.Schema):
        fields = {p.column: find_field(schema, p.column)
                  for alternative in alternatives for p in alternative}
        self.columns = list(dict.fromkeys(field.parts[0] for field in fields.values()))
        self._alternatives = [[(fields[p.column].parts, _Test(p, fields[p.column].type))
                               for p in alternative] for alternative in alternatives]

    def holds(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row whether it is one of them; never null."""
        return reduce(partial(call, "or"), (
            reduce(partial(call, "and"), (test.holds(_child(batch.column(parts[0]), parts[1:]))
                                          for parts, test in alternative))
            for alternative in self._alternatives))


def constants_in(alternatives: list[list[Predicate]], columns: Container[str],
                 partition_values: Mapping[str, pa.Scalar]) -> dict[str, pa.Scalar]:
    """Return the columns with a single value in a file that has these columns, for `remaining`.

    Those that come from its path have their value even if the file has a column of that name;
    others that it lacks are null.
    """
    missing = {p.column for alternative in alternatives for p in alternative
               if p.column not in columns}
    if not missing:
        return dict(partition_values)
    # Not pa.scalar, which would import pandas.
    return dict.fromkeys(missing, pa.nulls(1)[0]) | dict(partition_values)


def remaining(alternatives: list[list[Predicate]],
              constants: Mapping[str, pa.Scalar]) -> list[list[Predicate]]:
    """Return the alternatives that can hold when some columns have a single value.

    Predicates on these columns are omitted, because they hold there.
    """
    def holds(predicate: Predicate) -> bool:
        constant = constants[predicate.column]
        return _Test(predicate, constant.type).holds(pa.repeat(constant, 1))[0].as_py()

    return [[p for p in alternative if p.column not in constants] for alternative in alternatives
            if all(holds(p) for p in alternative if p.column in constants)]


def _child(array: pa.Array, parts: tuple[str, ...]) -> pa.Array:
    """Return a field of structs, null where its struct is null."""
    if not parts:
        return array
    import pyarrow.compute as pc
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
        of_null = light_arrow.scalar(self._holds_for_null, pa.bool_())
        if pa.types.is_dictionary(array.type):
            of_values = call("take", self.holds(array.dictionary), array.indices)
            return call("coalesce", of_values, of_null)
        if pa.types.is_null(array.type):
            return _constant(array, self._holds_for_null)
        return call("if_else", call("is_valid", array), self._of_others(comparable(array)), of_null)


# Takes comparable values. Its results for null are not used.
_Truth = Callable[[pa.Array], pa.Array]


def _bind(predicate: Predicate, arrow_type: pa.DataType) -> tuple[bool, _Truth]:
    """Return whether the predicate holds for null, and a function that tests other values."""
    op, value = predicate.op, predicate.value
    if op in ("is null", "is not null") or (op == "<=>" and value is None):
        holds_for_null = op != "is not null"
        return holds_for_null, lambda values: _constant(values, not holds_for_null)
    if op in ("in", "not in"):
        members = as_value_list(value).derived(_members_of, arrow_type)
        if op == "in":
            return False, members.are_in
        if None in value:
            return False, lambda values: _constant(values, False)
        return not value, lambda values: _inverted(members.are_in(values))
    if value is None:
        return False, lambda values: _constant(values, False)
    place = operand(value, arrow_type)
    if op in _OPPOSITES:
        return False, lambda values: _inverted(_compare(values, _OPPOSITES[op], place))
    return False, lambda values: _compare(values, op, place)


# The order is total, so each operator holds exactly where its opposite does not, even for NaN.
_OPPOSITES = {"!=": "==", ">": "<=", ">=": "<"}


def _compare(values: pa.Array, op: str, place: Operand) -> pa.Array:
    floor, is_exact = place
    if op not in ("<", "<="):
        return _Members({floor} if is_exact else ()).are_in(values)
    if floor is None:
        return _constant(values, False)
    if floor != floor:
        return _inverted(call("is_nan", values)) if op == "<" else _constant(values, True)
    literal = literals([floor], values.type)[0]
    return call("less" if op == "<" and is_exact else "less_equal", values, literal)


class _Members:
    """Values that rows are compared with for equality; ``floors`` are their positions."""

    def __init__(self, floors: Collection[Any]):
        self._numbers = [floor for floor in floors if floor == floor]
        self._has_nan = len(self._numbers) < len(floors)
        self._set: frozenset[Any] | None = None
        self._literals: pa.Array | None = None
        self._hashes: MemberHashes | None = None

    def are_in(self, values: pa.Array) -> pa.Array:
        """Return for each value whether it is one of them; they all have one type."""
        if self._literals is None:
            self._literals = _without_negative_zero(literals(self._numbers, values.type))
        values = _without_negative_zero(values)
        found = self._found(values, self._literals)
        return call("or", found, call("is_nan", values)) if self._has_nan else found

    def _found(self, values: pa.Array, members: pa.Array) -> pa.Array:
        if len(members) < _MANY or not MemberHashes.can_have(members.type):
            return self._exactly(values, members)
        if self._hashes is None:
            self._hashes = MemberHashes(members)
        found = self._hashes.may_be_in(values)
        if found.any():
            candidates = call("filter", values, light_arrow.array(found, pa.bool_()))
            found[found] = light_arrow.truth(self._exactly(candidates, members))
        return light_arrow.array(found, pa.bool_())

    def _exactly(self, values: pa.Array, members: pa.Array) -> pa.Array:
        if len(members) <= len(values):
            return light_arrow.is_in(values, members)
        if self._set is None:  # is_in would build such a set in each call
            self._set = frozenset(members.to_pylist())
        return light_arrow.array([value in self._set for value in values.to_pylist()], pa.bool_())


def _members_of(values: list[Any], arrow_type: pa.DataType) -> _Members:
    return _Members(as_value_list(values).derived(positions_of, arrow_type))


def _without_negative_zero(values: pa.Array) -> pa.Array:
    """Return 0.0 in place of -0.0, and other values as they are."""
    if not pa.types.is_floating(values.type):
        return values
    return call("add", values, light_arrow.scalar(0.0, values.type))


def _inverted(array: pa.Array) -> pa.Array:
    return call("invert", array)


def _constant(array: pa.Array, value: bool) -> pa.BooleanArray:
    return light_arrow.repeated(value, pa.bool_(), len(array))


# --- long lists -----------------------------------------------------------------------------------

_FPP = 0.001
_PHYSICAL_TYPES = {pa.int32(): "INT32", pa.uint32(): "INT32", pa.int64(): "INT64",
                   pa.uint64(): "INT64", pa.float64(): "DOUBLE", pa.binary(): "BYTE_ARRAY",
                   pa.large_binary(): "BYTE_ARRAY"}


class MemberHashes:
    """The hashes of members, as a Bloom filter in memory: where values of a long list may be.

    Arrow would build a table of the whole list for each batch. Members and values are equal exactly
    if their bytes are: there is no -0.0 or NaN among them.
    """

    def __init__(self, members: pa.Array):
        self._type = ColumnType(_PHYSICAL_TYPES[members.type], 0, members.type)
        self._filter = SplitBlockBloomFilter.sized(ndv=len(members), fpp=_FPP)
        self._filter.insert_hashes(self._hashes(members))

    @staticmethod
    def can_have(t: pa.DataType) -> bool:
        """Whether values of a type can be looked up."""
        return t in _PHYSICAL_TYPES

    def may_be_in(self, values: pa.Array) -> np.ndarray:
        """Return for each value whether it may be a member; anything for null."""
        return self._filter.check_hashes(self._hashes(values))

    def _hashes(self, values: pa.Array) -> np.ndarray:
        if values.null_count:  # what is stored in their place
            values = pa.Array.from_buffers(values.type, len(values), [None, *values.buffers()[1:]],
                                           offset=values.offset)
        return hash_values(values, self._type)
