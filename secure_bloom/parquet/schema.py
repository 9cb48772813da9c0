"""Leaf columns of a Parquet schema: dotted path, ordinal, and how their values are stored.

A schema is a list of SchemaElement in depth-first order (parquet.thrift). A leaf is an element
without children; its ordinal is its position among the leaves and is the column ordinal of modules
and row groups.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from secure_bloom.display import Summarized, listed, shown
from secure_bloom.errors import ColumnError, FormatError, unknown_column
from secure_bloom.parquet.thrift import I32, Layout, Struct, encode
from secure_bloom.sbbf.column_type import PHYSICAL_TYPES, ColumnType, physical_type_name

#: the parts of SchemaElement to decode: the LogicalType union with its parameters
LOGICAL_TYPE_LAYOUT: Layout = {
    5: {},
    7: {2: {1: {}, 2: {}, 3: {}}},
    8: {2: {1: {}, 2: {}, 3: {}}},
    10: {},
}
SCHEMA_ELEMENT_LAYOUT: Layout = {10: LOGICAL_TYPE_LAYOUT}

_MAX_SCHEMA_DEPTH = 200
_ROOM = 64 * 1024 * 1024  # bytes that columns may take, plus _TIMES the schema's size
_TIMES = 4
_LEAF_SIZE = 170  # bytes of a LeafColumn without its path
_REPEATED = 2  # FieldRepetitionType
_NUM_CHILDREN = 5  # SchemaElement


@dataclass(frozen=True, slots=True, repr=False)
class LeafColumn(Summarized):
    """A leaf of the schema.

    Attributes
    ----------
    ordinal : int
        Position among all leaves, from 0.
    path : str
        Dotted path, as parquet-java writes it: ``address.city``, ``tags.list.element``.
    parts : tuple of str
        The unjoined path.
    type : ColumnType
    is_repeated : bool
        Whether a row can hold several values, as in lists and maps.
    """

    ordinal: int
    path: str
    parts: tuple[str, ...]
    type: ColumnType
    is_repeated: bool = False

    def _headline(self) -> str:
        return f"{self.ordinal} {shown(self.path)}: {self.type}"


@dataclass(slots=True)
class _Group:
    """A group of the schema, with the number of its children still to come."""

    parts: tuple[str, ...]
    is_repeated: bool
    children: int


def leaf_columns(elements: Iterable[Struct], num_bytes: int = 0) -> list[LeafColumn]:
    """Return the leaf columns of a schema, in the order of their ordinals.

    ``num_bytes`` is the size of the schema in the file. Raises FormatError if the elements do not
    form a tree, or the columns would take far more memory than any schema needs: the name of a
    group is part of the path of each leaf below it.
    """
    room = _ROOM + _TIMES * num_bytes
    leaves: list[LeafColumn] = []
    elements = iter(elements)
    root = next(elements, None)
    if root is None:
        raise FormatError("the schema is empty")
    stack: list[_Group] = [_Group((), False, root.get_int(5) or 0)]
    for element in elements:
        while stack and stack[-1].children == 0:
            stack.pop()
        if not stack or len(stack) > _MAX_SCHEMA_DEPTH:
            raise FormatError("the schema elements do not form a tree")
        stack[-1].children -= 1
        parts = (*stack[-1].parts, element.get_string(4) or "")
        is_repeated = stack[-1].is_repeated or element.get_int(3) == _REPEATED
        children = element.get_int(5) or 0
        if children < 0:
            raise FormatError("a schema element has a negative number of children")
        if children or element.get(1) is None:  # a group may be empty
            stack.append(_Group(parts, is_repeated, children))
        else:
            room -= _LEAF_SIZE + 8 * len(parts)
            if room < sum(map(len, parts)) or room < sys.getsizeof(path := ".".join(parts)):
                raise FormatError("the paths of the columns are too long: "
                                  f"{len(leaves):,} of them take {_ROOM:,} bytes or more")
            room -= sys.getsizeof(path)
            leaves.append(LeafColumn(len(leaves), path, parts, column_type(element), is_repeated))
    if any(group.children for group in stack):
        raise FormatError("the schema ends before all declared children")
    return leaves


def paths_of_elements(elements: Iterable[Struct]) -> list[tuple[bytes, ...]]:
    """Return for each leaf column the SchemaElements from the root to it, as if it were alone.

    The elements must be those of which :func:`leaf_columns` has made leaves.
    """
    found: list[tuple[bytes, ...]] = []
    path: list[bytes] = []
    left: list[int] = []  # children still to come, of each group in the path
    for element in elements:
        while left and left[-1] == 0:
            path.pop()
            left.pop()
        if left:
            left[-1] -= 1
        children = element.get_int(_NUM_CHILDREN) or 0
        if children or element.get(1) is None or not left:
            element.set_int(_NUM_CHILDREN, I32, 1)
            path.append(encode(element))
            left.append(children)
        else:
            found.append((*path, encode(element)))
    return found


def named_columns(leaves: Iterable[LeafColumn], path: str) -> list[LeafColumn]:
    """Return the leaf column with this dotted path, or the leaves of the group that has it.

    Empty if there is neither.

    Raises ColumnError if the path is ambiguous, which names with dots make possible: a column
    ``st.b``, and the field ``b`` of a struct ``st``.
    """
    found: dict[tuple[str, ...], list[LeafColumn]] = {}
    for column in leaves:
        if is_at_or_below(column.path, path):
            parts = _part_with_path(column.parts, path)
            if parts is not None:
                found.setdefault(parts, []).append(column)
    if len(found) > 1:
        raise ColumnError(
            f"{len(found)} columns or groups have this path and cannot be distinguished: "
            f"{' and '.join(_in_words(parts, own[0].parts) for parts, own in found.items())}; "
            "rename one of them", column=path)
    return [column for own in found.values() for column in own]


def is_at_or_below(path: str, group: str) -> bool:
    """Whether a dotted path is this one, or that of something in the group with this path."""
    return path == group or path.startswith(f"{group}.")


def columns_by_prefix(leaves: Iterable[LeafColumn]) -> dict[str, list[LeafColumn]]:
    """Map dotted paths, and all their beginnings, to the leaf columns that have them.

    For many calls of :func:`named_columns`: it needs only the columns listed under its path.
    """
    found: dict[str, list[LeafColumn]] = {}
    for column in leaves:
        path, dot = column.path, "."
        while dot:
            found.setdefault(path, []).append(column)
            path, dot, _ = path.rpartition(".")
    return found


def paths_to(column: LeafColumn) -> Iterator[str]:
    """Yield the dotted paths of the groups around a leaf column, from the top, and its own."""
    return (".".join(column.parts[:depth]) for depth in range(1, len(column.parts) + 1))


def clear_columns(leaves: Iterable[LeafColumn]) -> dict[str, LeafColumn]:
    """Return the leaf columns whose dotted path is unique among columns and groups, by path."""
    parts: dict[str, set[tuple[str, ...]]] = {}
    found: dict[str, list[LeafColumn]] = {}
    for column in leaves:
        found.setdefault(column.path, []).append(column)
        for depth, path in enumerate(paths_to(column), 1):
            parts.setdefault(path, set()).add(column.parts[:depth])
    return {path: columns[0] for path, columns in found.items()
            if len(columns) == 1 and len(parts[path]) == 1}


def _part_with_path(parts: tuple[str, ...], path: str) -> tuple[str, ...] | None:
    """Return the column, or the group containing it, with this dotted path."""
    for depth in range(1, len(parts) + 1):
        if ".".join(parts[:depth]) == path:
            return parts[:depth]
    return None


def _in_words(parts: tuple[str, ...], leaf: tuple[str, ...]) -> str:
    kind = "column" if parts == leaf else "group"
    return f"the {kind} " + " in ".join(repr(part) for part in reversed(parts))


def filterable_paths(leaves: Iterable[LeafColumn], *, opaque: bool = False) -> list[str]:
    """Return the dotted paths of the columns that can have a filter and are unambiguous.

    ``opaque``: also a filter that is only of use to other readers.
    """
    return [path for path, column in clear_columns(leaves).items()
            if _can_have_filter(column, opaque=opaque)]


def filter_columns(leaves: list[LeafColumn], paths: Iterable[str], *, opaque: bool = False) \
        -> list[LeafColumn]:
    """Return the leaf columns with these dotted paths, each of which can have a filter.

    ``opaque`` as for :func:`filterable_paths`.
    """
    clear = clear_columns(leaves)
    return [_able(clear[path] if path in clear else find_column(leaves, path), opaque=opaque)
            for path in paths]


def _can_have_filter(column: LeafColumn, *, opaque: bool) -> bool:
    return column.type.can_be_hashed if opaque else column.type.can_have_filter


def _able(column: LeafColumn, *, opaque: bool) -> LeafColumn:
    if not _can_have_filter(column, opaque=opaque):
        raise ColumnError(f"a column of type {column.type} cannot have a Bloom filter",
                          column=column.path)
    return column


def find_column(leaves: list[LeafColumn], path: str) -> LeafColumn:
    """Return the leaf column with this dotted path."""
    named = named_columns(leaves, path)
    found = [column for column in named if column.path == path]
    if len(found) == 1:
        return found[0]
    if found:
        raise ColumnError(f"{len(found)} columns have this path", column=path)
    if named:
        below = [column.path for column in named]
        raise ColumnError(f"this is a group, not a leaf column; its leaf columns: {listed(below)}",
                          column=path)
    raise unknown_column(path, [column.path for column in leaves])


def check_names(columns: object) -> None:
    """Raise TypeError if names of columns are one string, which would be a list of letters.

    Or if one of them is no string.
    """
    if isinstance(columns, str):
        raise TypeError(f"columns must be a list of names: write [{columns!r}]")
    for name in columns if isinstance(columns, list | tuple) else ():
        if not isinstance(name, str):
            raise TypeError(f"columns must be a list of names, but it has a {type(name).__name__}")


def column_type(element: Struct) -> ColumnType:
    """Return the :class:`ColumnType` of a leaf SchemaElement."""
    physical = physical_type_name(element.get_int(1) or 0)
    length = (element.get_int(2) or 0) if physical == "FIXED_LEN_BYTE_ARRAY" else 0
    if physical == "FIXED_LEN_BYTE_ARRAY" and not 0 < length < 2**31:
        return ColumnType(physical, 0, None)  # nobody can read it; other columns are not affected
    logical = element.get(10)
    if isinstance(logical, Struct) and logical.fields:
        kind = _logical_kind(logical.fields[0])
    else:
        kind = _CONVERTED_KINDS.get(element.get_int(6), ("unknown",))
    if kind == ("decimal",):
        kind = ("decimal", *_precision_and_scale(element))
    return _column_type(physical, length, kind)


@lru_cache(maxsize=1024)  # most columns share theirs
def _column_type(physical: str, length: int, kind: tuple[Any, ...]) -> ColumnType:
    if kind[:1] == ("decimal",):
        arrow_type = _decimal_type(physical, length, *kind[1:])
    else:
        arrow_type = _STORED_AS.get((physical, kind)) or _raw_type(physical, length, kind)
    is_opaque = arrow_type is None and physical not in ("BOOLEAN", "INT96") \
        and physical in PHYSICAL_TYPES and kind not in _WITHOUT_FILTER
    return ColumnType(physical, length, arrow_type, has_order=kind != ("interval",),
                      is_opaque=is_opaque)


_LOGICAL_NAMES = {1: "text", 2: "nested", 3: "nested", 4: "text", 5: "decimal", 6: "date",
                  11: "null", 12: "text", 13: "bytes", 14: "uuid", 15: "half", 16: "nested",
                  17: "geometry", 18: "geography"}
_WITHOUT_FILTER = ("null",), ("nested",), ("geometry",), ("geography",)
_TIME_UNITS = {1: "ms", 2: "us", 3: "ns"}


def _logical_kind(field: list[Any]) -> tuple[Any, ...]:
    """Return the LogicalType union member as a key of ``_STORED_AS``."""
    field_id, _, value = field
    if field_id in (7, 8) and isinstance(value, Struct):
        unit = value.get(2)
        unit = _TIME_UNITS.get(unit.fields[0][0]) if isinstance(unit, Struct) and unit.fields \
            else None
        return ("time" if field_id == 7 else "timestamp", unit, bool(value.get_bool(1)))
    if field_id == 10 and isinstance(value, Struct):
        width = next((raw[0] for number, _, raw in value.fields if number == 1 and raw), None)
        return ("int", width, bool(value.get_bool(2)))
    return (_LOGICAL_NAMES.get(field_id, "unknown"),)


_CONVERTED_KINDS = {  # the same by ConvertedType, which is older
    None: (), 0: ("text",), 4: ("text",), 5: ("decimal",), 6: ("date",),
    7: ("time", "ms", True), 8: ("time", "us", True),
    9: ("timestamp", "ms", True), 10: ("timestamp", "us", True),
    11: ("int", 8, False), 12: ("int", 16, False), 13: ("int", 32, False), 14: ("int", 64, False),
    15: ("int", 8, True), 16: ("int", 16, True), 17: ("int", 32, True), 18: ("int", 64, True),
    19: ("text",), 20: ("bytes",), 21: ("interval",),
}


_INTS = {(8, True): pa.int8(), (16, True): pa.int16(), (32, True): pa.int32(),
         (64, True): pa.int64(), (8, False): pa.uint8(), (16, False): pa.uint16(),
         (32, False): pa.uint32(), (64, False): pa.uint64()}

_STORED_AS: dict[tuple[str, tuple[Any, ...]], pa.DataType] = {
    ("INT32", ()): pa.int32(),
    ("INT64", ()): pa.int64(),
    ("INT96", ()): pa.timestamp("ns"),
    ("FLOAT", ()): pa.float32(),
    ("DOUBLE", ()): pa.float64(),
    ("BYTE_ARRAY", ()): pa.binary(),
    ("BYTE_ARRAY", ("bytes",)): pa.binary(),
    ("BYTE_ARRAY", ("interval",)): pa.binary(),
    ("BYTE_ARRAY", ("text",)): pa.string(),
    ("INT32", ("date",)): pa.date32(),
    **{("INT32" if width < 64 else "INT64", ("int", width, signed)): type_
       for (width, signed), type_ in _INTS.items()},
    **{("INT32" if unit == "ms" else "INT64", ("time", unit, utc)):
       pa.time32(unit) if unit == "ms" else pa.time64(unit)
       for unit in ("ms", "us", "ns") for utc in (True, False)},
    **{("INT64", ("timestamp", unit, utc)): pa.timestamp(unit, "UTC" if utc else None)
       for unit in ("ms", "us", "ns") for utc in (True, False)},
}


def _raw_type(physical: str, length: int, kind: tuple[Any, ...]) -> pa.DataType | None:
    if physical != "FIXED_LEN_BYTE_ARRAY":
        return None
    if kind == ("half",):
        return pa.float16() if length == 2 else None
    return pa.binary(length) if kind in ((), ("bytes",), ("uuid",), ("interval",)) else None


def _precision_and_scale(element: Struct) -> tuple[int, int]:
    scale, precision = element.get_int(7) or 0, element.get_int(8) or 0
    logical = element.get(10)
    decimal = logical.get(5) if isinstance(logical, Struct) else None
    if isinstance(decimal, Struct):
        scale, precision = decimal.get_int(1) or 0, decimal.get_int(2) or 0
    return precision, scale


def _decimal_type(physical: str, length: int, precision: int, scale: int) -> pa.DataType | None:
    """Return a decimal type with a unique encoding; a BYTE_ARRAY decimal may be padded at will."""
    if physical not in ("INT32", "INT64", "FIXED_LEN_BYTE_ARRAY") or length > 32:
        return None
    if not (1 <= precision <= 76 and 0 <= scale <= precision):
        return None
    wide = precision > 38 or length > 16  # the Arrow value is at least as wide as the stored one
    return pa.decimal256(precision, scale) if wide else pa.decimal128(precision, scale)
