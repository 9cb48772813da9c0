"""The tree of a pyarrow Expression, from the form in which pyarrow pickles it.

pyarrow has no other interface that shows it. The pickled form is an Arrow IPC file with one row:
its columns are the literals and options, with their types, and the tree is in the metadata of its
schema, as a sequence of (kind, value) such as ("call", "equal") or ("field_ref", "ssn"). The form
is undocumented. So it is tried once with a known Expression; if the result differs, every
Expression is unknown.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

if TYPE_CHECKING:
    import pyarrow.compute as pc


@dataclass(frozen=True)
class Field:
    """A column, or a field of structs."""

    path: tuple[str, ...]

    @property
    def dotted(self) -> str:
        """The names, joined by dots."""
        return ".".join(self.path)


@dataclass(frozen=True)
class Literal:
    """A value with its type."""

    value: pa.Scalar = field(repr=False)


@dataclass
class Call:
    """A call of a compute function."""

    name: str
    args: list[Node] = field(default_factory=list)
    options: dict[str, pa.Scalar] = field(default_factory=dict, repr=False)  # such as values


Node: TypeAlias = Field | Literal | Call


def parse(expression: pc.Expression) -> Node | None:
    """Return the tree of an Expression; None if it cannot be determined."""
    return _parse(expression) if _is_known_form() else None


def walk(tree: Node) -> Iterator[Node]:
    """Yield all nodes of a tree, each before its arguments."""
    rest = [tree]
    while rest:
        node = rest.pop()
        yield node
        if isinstance(node, Call):
            rest += reversed(node.args)


@cache
def _is_known_form() -> bool:
    """Whether this version of pyarrow pickles Expressions in the expected form."""
    import pyarrow.compute as pc
    known = (pc.field("a", "b") < pa.scalar(5, pa.int16())) & ~pc.is_in(
        pc.field("c"), pa.array(["x", None]), skip_nulls=True) | pc.field("d").is_null()
    match _parse(known):
        case Call("or_kleene", [
                Call("and_kleene", [
                    Call("less", [Field(("a", "b")), Literal(five)]),
                    Call("invert", [Call("is_in", [Field(("c",))], lookup)])]),
                Call("is_null", [Field(("d",))], nulls)]):
            return (five.equals(pa.scalar(5, pa.int16()))
                    and lookup["value_set"].values.equals(pa.array(["x", None]))
                    and lookup["null_matching_behavior"].as_py() == 1
                    and nulls["nan_is_null"].as_py() is False)
    return False


def _parse(expression: pc.Expression) -> Node | None:
    try:
        _, (content,) = expression.__reduce__()
        with pa.ipc.open_file(content) as file:
            row = file.get_batch(0)
        return _tree(iter(_metadata(row.schema)), row)
    except Exception:  # of whatever kind: an Expression that is not understood rules nothing out
        return None


def _tree(words: Iterator[tuple[str, str]], row: pa.RecordBatch) -> Node:
    """Build the tree, without recursion: Expressions can be nested deeply."""
    root = Call("")
    calls = [root]
    for kind, value in words:
        match kind:
            case "call":
                call = Call(value)
                calls[-1].args.append(call)
                calls.append(call)
            case "end":
                if calls.pop().name != value:
                    raise ValueError("the end of another call")
            case "literal":
                calls[-1].args.append(Literal(row.column(int(value))[0]))
            case "options":
                options = row.column(int(value))
                calls[-1].options = {part.name: options.field(place)[0]
                                     for place, part in enumerate(options.type)}
            case "field_ref":
                calls[-1].args.append(Field((value,)))
            case "nested_field_ref":
                calls[-1].args.append(Field(tuple(_names(words, int(value)))))
            case _:
                raise ValueError("unknown kind of node")
    [tree] = root.args
    if calls != [root]:
        raise ValueError("a call without an end")
    return tree


def _names(words: Iterator[tuple[str, str]], count: int) -> Iterator[str]:
    for _ in range(count):
        kind, name = next(words)
        if kind != "field_ref":
            raise ValueError("a path that is not made of names")
        yield name


class _ArrowSchema(ctypes.Structure):
    """The first members of ArrowSchema in Arrow's C data interface."""

    _fields_ = [("format", ctypes.c_char_p), ("name", ctypes.c_char_p),
                ("metadata", ctypes.c_void_p)]


def _metadata(schema: pa.Schema) -> list[tuple[str, str]]:
    """Return the metadata of a schema, in order; ``Schema.metadata`` drops repeated keys."""
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = schema.__arrow_c_schema__()  # owns the memory
    address = _ArrowSchema.from_address(pointer_of(capsule, b"arrow_schema")).metadata
    if not address:
        return []

    def number() -> int:
        nonlocal address
        found = ctypes.c_int32.from_address(address).value
        address += 4
        return found

    def text() -> str:
        nonlocal address
        size = number()
        found = ctypes.string_at(address, size)
        address += size
        return found.decode()

    return [(text(), text()) for _ in range(number())]
