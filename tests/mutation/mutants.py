"""Which small faults can be put into a module: found in its syntax tree, applied to its text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
                ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
                ast.In: ast.NotIn, ast.NotIn: ast.In}
_ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult,
               ast.Div: ast.Mult, ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift,
               ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
               ast.BitXor: ast.BitAnd, ast.Pow: ast.Mult}


@dataclass(frozen=True)
class Mutant:
    """A small fault.

    Attributes
    ----------
    file : str
        Path from the root of the source tree.
    line : int
    start, end : int
        The part of the module's UTF-8 bytes that is replaced.
    operator, before, after : str
    """

    file: str
    line: int
    start: int
    end: int
    operator: str
    before: str
    after: str

    def applied_to(self, source: str) -> str:
        """Return the module with the fault."""
        data = source.encode()
        return (data[:self.start] + self.after.encode() + data[self.end:]).decode()


def mutants_of(file: str, source: str) -> list[Mutant]:
    """Return all mutants of a module, in the order of their lines."""
    tree = ast.parse(source)
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = set()
    for node in _executed(tree):
        for old, operator, new in _changes(node):
            after = new if isinstance(new, str) else f"({ast.unparse(new)})"
            start = starts[old.lineno - 1] + old.col_offset
            end = starts[old.end_lineno - 1] + old.end_col_offset
            before = source.encode()[start:end].decode()
            found.add(Mutant(file, old.lineno, start, end, operator, before, after))
    return sorted(found, key=lambda one: (one.start, one.end, one.operator, one.after))


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that have an effect: not annotations, f-strings, and texts of errors."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_comment"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_without_effect(child):
                yield from _executed(child)


def _is_without_effect(node: ast.AST) -> bool:
    if isinstance(node, (ast.JoinedStr, ast.Import, ast.ImportFrom)):
        return True
    if isinstance(node, ast.If):  # imports for type checkers
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    if isinstance(node, ast.BinOp):  # texts in parts
        return any(isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant)
                   and isinstance(side.value, str)) for side in (node.left, node.right))
    return False


def _changes(node: ast.AST) -> Iterator[tuple[ast.AST, str, ast.AST | str]]:
    """Yield what is replaced: an old node, an operator, and the new node or its text."""
    if isinstance(node, (ast.If, ast.While)) and not isinstance(
            node.test, (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Constant)):
        yield node.test, "condition", ast.UnaryOp(ast.Not(), node.test)
    for operator, new in _replacements(node):
        yield node, operator, new


def _replacements(node: ast.AST) -> Iterator[tuple[str, ast.AST | str]]:
    """Yield operators and what they put in place of a whole node."""
    if isinstance(node, ast.Compare):
        for place, one in enumerate(node.ops):
            operators = [*node.ops]
            operators[place] = _COMPARISONS[type(one)]()
            yield "comparison", ast.Compare(node.left, operators, node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        yield "arithmetic", ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "boolean", ast.BoolOp(other, node.values)
        for place in range(len(node.values)):
            rest = node.values[:place] + node.values[place + 1:]
            yield "operand", rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield "sign", node.operand
    elif isinstance(node, ast.IfExp):
        yield "condition", ast.IfExp(node.test, node.orelse, node.body)
    elif isinstance(node, ast.Constant):
        yield from _constants(node.value)
    elif isinstance(node, ast.Return) and not _is_none(node.value):
        yield "return", "return None"
    elif isinstance(node, (ast.Raise, ast.AugAssign, ast.Continue)) or _is_call(node):
        yield "deletion", "pass"
    elif isinstance(node, ast.Break):
        yield "deletion", "continue"


def _constants(value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, bool):
        yield "constant", repr(not value)
    elif isinstance(value, int):
        yield "constant", repr(value + 1)
    elif isinstance(value, bytes):
        yield "constant", repr(value + b"x")


def _is_call(node: ast.AST) -> bool:
    """Return whether a statement is a call, or such: not a docstring, not a yield."""
    return isinstance(node, ast.Expr) and not isinstance(node.value, (ast.Constant, ast.Yield))


def _is_none(node: ast.expr | None) -> bool:
    return node is None or (isinstance(node, ast.Constant) and node.value is None)
