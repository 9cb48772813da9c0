"""Which tests execute a line, from the data of ``make coverage``."""

from __future__ import annotations

import ast
import json
from collections import defaultdict
from pathlib import Path

from coverage import CoverageData

_EACH = 6  # combinations of a test's parameters that are tried at first,
_QUICK = 0.01  # and all that take no more than these seconds


class Covering:
    """The tests of each line, the most promising ones first.

    Parameters
    ----------
    folder : Path
        Has the files ``.coverage`` and ``seconds.json``, the tests that passed.
    root : Path
        Of the source tree.
    """

    def __init__(self, folder: Path, root: Path):
        self._root = root
        self._seconds: dict[str, float] = json.loads((folder / "seconds.json").read_text())
        self._data = CoverageData(str(folder / ".coverage"))
        self._data.read()
        self._lines: dict[str, dict[int, list[str]]] = {}

    def tests(self, file: str, line: int, seconds: float) -> list[str]:
        """Return tests that together take about so many seconds.

        A line that an import executes has the tests of the whole module: its effects last.
        """
        lines = self._lines.get(file)
        if lines is None:
            lines = self._data.contexts_by_lineno(str(self._root / file))
            self._lines[file] = lines
        found = {test for test in lines.get(line, ()) if test}
        if not found or not _is_in_function((self._root / file).read_text(), line):
            found = {test for tests in lines.values() for test in tests if test}
        if not found:  # a module of constants
            room = f"tests/{Path(file).parts[1]}/"
            found = {test for test in self._seconds if test.startswith(room)}
        chosen: list[str] = []
        for test in self._by_promise(file, found & self._seconds.keys()):
            seconds -= self._seconds[test]
            if chosen and seconds < 0:
                break
            chosen.append(test)
        return chosen

    def _by_promise(self, file: str, tests: set[str]) -> list[str]:
        """Return tests ordered: first some combinations of each, of the same room, quick ones."""
        room = Path(file).parts[1]
        groups: dict[str, list[str]] = defaultdict(list)
        for test in sorted(tests, key=lambda test: (self._seconds[test], test)):
            groups[test.partition("[")[0]].append(test)
        ranked = [(place >= _EACH and self._seconds[test] > _QUICK,
                   not test.startswith(f"tests/{room}/"), self._seconds[test], test)
                  for group in groups.values() for place, test in enumerate(group)]
        return [test for *_, test in sorted(ranked)]


def _is_in_function(source: str, line: int) -> bool:
    """Whether a call executes a line, rather than the import of its module."""
    return any(node.body[0].lineno <= line <= (node.end_lineno or line)
               for node in ast.walk(ast.parse(source))
               if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
