"""python -m tests.environments [--docs] [NAME ...]: only the standard library is needed.

A name is a cell, which has exact versions of Python and packages and runs the quick tests and some
with Spark; or an extra of the package, which is installed in a bare environment and used; or
``wheels``, for which platforms the extras' packages have wheels; or ``weight``; or a group of
these. The results are in ``build/environments``. ``docs/compatibility.md`` is written from them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tests.environments import matrix, packages
from tests.environments.cells import CELLS
from tests.environments.interpreters import BUILD, ROOT
from tests.pages import put

PAGE = ROOT / "docs" / "compatibility.md"
#: name -> what tries it, given the results until then
ATTEMPTS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    **{cell.name: partial(matrix.tried, cell) for cell in CELLS},
    **{extra: partial(packages.tried, extra) for extra in packages.extras()},
    "wheels": packages.without_wheels, "weight": packages.weight}
GROUPS = {"cells": [cell.name for cell in CELLS],
          "extras": [*packages.extras(), "wheels", "weight"]}


def main() -> int:
    """Try environments; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.environments", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join([*GROUPS, *ATTEMPTS]))
    parser.add_argument("--docs", action="store_true", help=f"write {PAGE.name}")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - ATTEMPTS.keys() - GROUPS.keys():
        parser.error(f"no such environment: {', '.join(sorted(unknown))}")
    BUILD.mkdir(parents=True, exist_ok=True)
    state = BUILD / "results.json"
    results = json.loads(state.read_text()) if state.exists() else {}
    for name in (one for named in arguments.names or GROUPS for one in GROUPS.get(named, [named])):
        print(f"{name}: to {BUILD}", flush=True)
        results[name] = ATTEMPTS[name](results)
        print(json.dumps(results[name], indent=1), flush=True)
        state.write_text(json.dumps(results, indent=1))
    if arguments.docs:
        for mark, text in parts_of_page(results):
            put(PAGE, mark, text)
    return 1 if any(map(failed, results.values())) else 0


def parts_of_page(results: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Return what the page shows of results, by the names of its parts."""
    yield "matrix", matrix.table(results)
    if any(extra in results for extra in packages.extras()):
        yield "extras", packages.table(results)
    if "weight" in results:
        yield "weight", packages.weight_text(results["weight"])


def failed(result: dict[str, Any]) -> bool:
    """Return whether an attempt has failed, for one of its Pythons at least."""
    return "failed" in result or any("failed" in part for part in result.values()
                                     if isinstance(part, dict))


if __name__ == "__main__":
    sys.exit(main())
