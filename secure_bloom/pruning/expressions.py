"""What a pyarrow Expression says about row groups: a weaker filter, for pruning only.

The filter is true for every row for which Arrow, in memory, evaluates the Expression to true. Parts
that are not understood are treated as true, so they rule nothing out. The predicates are exact
(:mod:`secure_bloom.pruning.predicates`), and Arrow first casts both sides to a common type. So a
comparison is used only if that cast keeps all values; :func:`.exact_values` lists these cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from secure_bloom.pruning.exact_values import exact_values, keeps_values, kind_of, rounds_set
from secure_bloom.pruning.expression_tree import Call, Field, Literal, Node, parse, walk
from secure_bloom.pruning.predicates import Condition, Predicate, fields_at
from secure_bloom.pruning.value_list import ValueList
from secure_bloom.sbbf.arrow_types import plain_type

if TYPE_CHECKING:
    import pyarrow.compute as pc

#: alternatives, each a list of predicates; None: nothing is known, []: no row matches
Alternatives: TypeAlias = list[list[Predicate]] | None

_MOST_ALTERNATIVES = 64
_LONGEST_PRODUCT = 1000  # values, beyond twice the number in the operands of an "and"
_DEEPEST = 100  # nested levels that are understood; chains of "and", or of "or", are one level


def alternatives_in(tree: Node | None, schema: pa.Schema) -> Alternatives:
    """Return a filter that holds for every row that an Expression selects.

    Parameters
    ----------
    tree : Node or None
        As :func:`.parse` returns it for the Expression.
    schema : pyarrow.Schema
        The columns, with the types in which Arrow will compare them.

    Returns
    -------
    list of list of Predicate, or None
        None: nothing is known, so nothing can be skipped. []: no row matches. Never raises an error
        because of the Expression.
    """
    try:
        return None if tree is None else _Reading(schema).where(tree, True, _DEEPEST)
    except Exception:  # pruning is optional, and other versions of Arrow may have other options
        return None


def is_exactly_in(tree: Node | None, schema: pa.Schema) -> bool:
    """Whether :func:`alternatives_in` holds for no other rows than those that are selected.

    It tells for values in a list that have the type of the column, integers or bytes: of floats,
    Arrow compares -0.0 and NaN in another way.
    """
    match tree:
        case Call("is_in", [Field((name,))], options) if schema.get_field_index(name) >= 0:
            t = schema.field(name).type
            return options["value_set"].values.type.equals(t) and kind_of(t) in ("integer", "bytes")
    return False


def file_pruning(condition: Condition | None, partition_schema: pa.Schema) \
        -> Callable[[pa.Schema], Alternatives]:
    """Return a function from the schema of a file to the filter that the file is pruned with.

    For the files of a table in which a column has the same type in all files. Columns that a file
    lacks are null; those in ``partition_schema`` come from its path.
    """
    if condition is None or isinstance(condition, list):
        return lambda file_schema: condition
    tree = parse(condition)
    names = columns_in(tree) or []

    @lru_cache(maxsize=8)  # the files of a folder mostly have the same schema
    def alternatives(file_schema: pa.Schema) -> Alternatives:
        fields = [field for field in file_schema if field.name not in partition_schema.names]
        present = {field.name for field in fields}.union(partition_schema.names)
        lacking = [pa.field(name, pa.null()) for name in names if name not in present]
        return alternatives_in(tree, pa.schema([*fields, *partition_schema, *lacking]))

    return alternatives


def columns_of(expression: pc.Expression) -> list[str] | None:
    """Return the names of the top-level columns that an Expression uses, each once.

    None if they cannot be determined, for example because columns are given by position.
    """
    return columns_in(parse(expression))


def columns_in(tree: Node | None) -> list[str] | None:
    """Return the same for a tree, None if it is unknown."""
    if tree is None:
        return None
    return list(dict.fromkeys(node.path[0] for node in walk(tree) if isinstance(node, Field)))


def usable_for(alternatives: Alternatives, schema: pa.Schema, file_schema: pa.Schema) \
        -> Alternatives:
    """Weaken a filter for the columns of ``schema`` to one that a file can be pruned with.

    A predicate is omitted if the column has a type in the file from which Arrow's cast to the
    type in ``schema`` could change values without an error.
    """
    if alternatives is None or file_schema.equals(schema):
        return alternatives

    def is_usable(column: str) -> bool:
        found = list(fields_at(file_schema, column))
        wanted = list(fields_at(schema, column))
        if not found or not wanted:  # null in the whole file; or a partition column
            return True
        return len(found) == len(wanted) == 1 and found[0].parts == wanted[0].parts \
            and keeps_values(plain_type(found[0].type), plain_type(wanted[0].type))

    usable = {column: is_usable(column) for column in {
        p.column for alternative in alternatives for p in alternative}}
    return _known([[p for p in alternative if usable[p.column]] for alternative in alternatives])


class RowGroupFilter:
    """A filter that only skips row groups.

    Attributes
    ----------
    columns : list of str
        The top-level columns that rows are compared by, each once.
    alternatives : list of list of Predicate, or None
        None: no row group can be skipped. []: no row matches.
    """

    def __init__(self, columns: list[str], alternatives: Alternatives, schema: pa.Schema):
        self.columns, self.alternatives, self._schema = columns, alternatives, schema

    def alternatives_for(self, file_schema: pa.Schema) -> Alternatives:
        """Return ``alternatives`` for a file whose columns may have other types, or be missing."""
        return usable_for(self.alternatives, self._schema, file_schema)


def _known(alternatives: list[list[Predicate]]) -> Alternatives:
    return alternatives if all(alternatives) else None


# --- meaning -------------------------------------------------------------------------------------

_COMPARISONS = {"equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">",
                "greater_equal": ">="}
_SWAPPED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPPOSITES = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_CONNECTIVES = {"and": "and", "and_kleene": "and", "or": "or", "or_kleene": "or"}
_MATCH_NULLS, *_ = _NULL_BEHAVIORS = range(4)  # in Arrow; only the first can match null


class _Reading:
    """Finds where an Expression on columns of a schema is true, or where it is false."""

    def __init__(self, schema: pa.Schema):
        self._schema = schema

    def where(self, node: Node, truth: bool, depth: int) -> Alternatives:
        """Return a filter for the rows where a node has a truth value; null is neither."""
        if depth == 0:
            return None
        if isinstance(node, Literal):
            value = node.value
            if not value.is_valid:
                return []
            return [] if pa.types.is_boolean(value.type) and value.as_py() is not truth else None
        if isinstance(node, Field):
            return self._compare(node, "==", pa.scalar(truth))
        name, args = node.name, node.args
        if name in _CONNECTIVES:
            parts = [self.where(part, truth, depth - 1) for part in _operands(node)]
            return _all(parts) if (_CONNECTIVES[name] == "and") is truth else _any(parts)
        if name == "invert" and len(args) == 1:
            return self.where(args[0], not truth, depth - 1)
        if name == "if_else" and len(args) == 3:
            condition, yes, no = args
            # Half the depth, because the condition is visited twice.
            return _any([_all([self.where(condition, holds, depth // 2),
                               self.where(branch, truth, depth // 2)])
                         for holds, branch in ((True, yes), (False, no))])
        return self._leaf(node, truth)

    def _leaf(self, node: Call, truth: bool) -> Alternatives:
        match node.name, node.args:
            case ("is_null" | "is_valid"), (Field() as field,):
                return self._is_null(field, node, truth is (node.name == "is_null"))
            case "is_in", (Field() as field,) if truth:
                return self._is_in(field, node.options)
            case name, (Field() as field, Literal(literal)) if name in _COMPARISONS:
                op = _COMPARISONS[name]
            case name, (Literal(literal), Field() as field) if name in _COMPARISONS:
                op = _SWAPPED[_COMPARISONS[name]]
            case _:
                return None
        if truth:
            return self._compare(field, op, literal)
        t = self._type_of(field)
        if op not in ("==", "!=") and (t is None or pa.types.is_floating(plain_type(t))):
            return None  # every comparison with NaN is false in Arrow
        return self._compare(field, _OPPOSITES[op], literal)

    def _compare(self, field: Field, op: str, literal: pa.Scalar) -> Alternatives:
        if not literal.is_valid:
            return []
        t = self._type_of(field)
        if t is None or kind_of(literal.type) is None:
            return None
        values = exact_values(pa.array([literal], literal.type), t)
        if values is None or (op == "!=" and values[0] != values[0]):  # NaN != NaN in Arrow
            return None
        return [[Predicate(field.dotted, op, values[0])]]

    def _is_in(self, field: Field, options: dict[str, pa.Scalar]) -> Alternatives:
        items, on_null = options["value_set"].values, options["null_matching_behavior"].as_py()
        t = self._type_of(field)
        if t is None or on_null not in _NULL_BEHAVIORS or (
                kind_of(items.type) is None and items.type not in (pa.null(), t)):
            return None  # such as UUIDs: a number that cannot be one becomes null, and matches null
        alternatives = []
        if items.null_count < len(items):
            if kind_of(items.type) is None or rounds_set(items.type, plain_type(t)):
                return None
            if (values := exact_values(items.drop_null(), t)) is None:
                return None
            alternatives.append([Predicate(field.dotted, "in", ValueList(values))])
        if on_null == _MATCH_NULLS and items.null_count:
            alternatives.append([Predicate(field.dotted, "is null", None)])
        return alternatives

    def _is_null(self, field: Field, node: Call, truth: bool) -> Alternatives:
        t = self._type_of(field)
        if t is None:
            return None
        if truth and node.name == "is_null" and pa.types.is_floating(plain_type(t)) \
                and node.options["nan_is_null"].as_py():
            return None
        return [[Predicate(field.dotted, "is null" if truth else "is not null", None)]]

    def _type_of(self, field: Field) -> pa.DataType | None:
        """Return the type of a column of values, maybe in structs; None if it is unclear."""
        found = list(fields_at(self._schema, field.dotted))
        if len(found) != 1 or found[0].parts != field.path or pa.types.is_nested(
                plain_type(found[0].type)):
            return None
        return found[0].type


def _operands(node: Call) -> Iterator[Node]:
    """Yield the operands of a chain of "and", or of "or", which may be long."""
    kind = _CONNECTIVES[node.name]
    rest: list[Node] = [node]
    while rest:
        part = rest.pop()
        if isinstance(part, Call) and _CONNECTIVES.get(part.name) == kind:
            rest += reversed(part.args)
        else:
            yield part


def _any(parts: Iterable[Alternatives]) -> Alternatives:
    """Return a filter that holds where one of some filters holds."""
    equal: dict[str, list[Any]] = {}
    others = []
    for part in parts:
        if part is None:
            return None
        for alternative in part:
            if len(alternative) == 1 and alternative[0].op in ("==", "in"):
                equal.setdefault(alternative[0].column, []).extend(alternative[0].candidates or ())
            else:
                others.append(alternative)
    found = others + [[Predicate(column, "==", values[0]) if len(values) == 1 else
                       Predicate(column, "in", ValueList(values))]
                      for column, values in equal.items()]
    return found if len(found) <= _MOST_ALTERNATIVES else None


def _all(parts: Iterable[Alternatives]) -> Alternatives:
    """Return a filter that holds where all of some filters hold, or a weaker one if it is long."""
    known = sorted((part for part in parts if part is not None), key=len)
    if not known:
        return None
    longest = _LONGEST_PRODUCT + 2 * sum(map(_size, known))
    found = known[0]
    for part in known[1:]:
        size = len(part) * _size(found) + len(found) * _size(part)
        if len(found) * len(part) <= _MOST_ALTERNATIVES and size <= longest:
            found = [one + other for one in found for other in part]
    return found


def _size(alternatives: list[list[Predicate]]) -> int:
    """Return the number of values."""
    return sum(len(p.value) if p.op == "in" else 1 for alternative in alternatives
               for p in alternative)
