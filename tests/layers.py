"""The rooms of the package and their layers, from the table in ``docs/architecture.md``.

``python -m tests.layers`` regenerates the picture above that table.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "architecture.md"
_ROW = re.compile(r"^\| (\d+) \| `([^`]+)` \|", re.MULTILINE)
_PICTURE = re.compile(r"(?<=<!-- picture -->\n```text\n).*?(?=```\n<!-- end of picture -->)",
                      re.DOTALL)
_FOLDERS = {"secure_bloom.keys": ROOT / "keys", "secure_bloom": ROOT / "secure_bloom"}


def layers() -> dict[str, int]:
    """Map each room, such as ``spark/reading`` or ``reader.py``, to its layer; 1 is the lowest."""
    return {room.removesuffix("/"): int(layer)
            for layer, room in _ROW.findall(DOCUMENT.read_text())}


def picture() -> str:
    """Draw the layers, the highest first, each with its rooms side by side."""
    found: dict[int, list[str]] = {}
    for room, layer in layers().items():
        found.setdefault(layer, []).append(room)
    return "".join(f"{layer:>2}  {'   '.join(found[layer])}\n"
                   for layer in sorted(found, reverse=True))


def drawn() -> str:
    """Return the picture in the document."""
    return _PICTURE.search(DOCUMENT.read_text()).group()


def modules() -> dict[str, Path]:
    """Return the modules of the package by name; ``keys`` is ``secure_bloom.keys``."""
    found = {}
    for package, folder in _FOLDERS.items():
        for path in folder.rglob("*.py"):
            parts = (package, *path.relative_to(folder).with_suffix("").parts)
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def room_of(module: str, rooms: dict[str, int]) -> str | None:
    """Return the room of a module; None for the package itself."""
    parts = module.split(".")[1:]
    for size in range(len(parts), 0, -1):
        for room in ("/".join(parts[:size]), f"{'/'.join(parts[:size])}.py"):
            if room in rooms:
                return room
    return None


def imports(module: str, known: dict[str, Path]) -> Iterator[tuple[str, int]]:
    """Yield the package's modules that a module imports, with line numbers.

    Also those inside functions, and for type checkers, except of names that are only passed on.
    """
    text = known[module].read_text()
    tree = ast.parse(text)
    for_types = {node for block in ast.walk(tree) if _is_for_types(block)
                 for node in ast.walk(block)} if "TYPE_CHECKING" in text else ()
    for node in ast.walk(tree):
        if node in for_types and _is_passed_on(node):
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                target = full if full in known else node.module
                if target in known and target != module:
                    yield target, node.lineno


def _is_passed_on(node: ast.AST) -> bool:
    """Whether an import declares names that a package re-exports lazily."""
    return isinstance(node, ast.ImportFrom) \
        and all(alias.name == alias.asname for alias in node.names)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) \
        and node.test.id == "TYPE_CHECKING"


if __name__ == "__main__":
    DOCUMENT.write_text(_PICTURE.sub(lambda _: picture(), DOCUMENT.read_text()))
