"""python -m tests.mutation [--seconds N] [--room ROOM] [--again] [--docs]"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.mutation.covering import Covering
from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.report import ROOMS, Tried, explanation, load, summary, write_page
from tests.mutation.runner import Workplace

ROOT = Path(__file__).parents[2]
COVERAGE = ROOT / "build" / "coverage"
#: numba compiles it when the package is built; its tests compare it with the code in Python
_COMPILED = "secure_bloom/parquet/footer_kernels.py"


def main() -> int:
    """Try mutants until the time is up; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--room", choices=ROOMS, action="append", help="only mutants of this room")
    parser.add_argument("--file", help="only mutants of this file")
    parser.add_argument("--seed", type=int, default=0, help="determines the order")
    parser.add_argument("--tests", type=float, default=60,
                        help="seconds of tests that a mutant must survive")
    parser.add_argument("--again", action="store_true", help="try survivors again")
    parser.add_argument("--state", type=Path, default=ROOT / "build" / "mutation.json",
                        help="what was tried; a new run adds to it")
    parser.add_argument("--docs", action="store_true", help="write docs/reliability.md")
    arguments = parser.parse_args()
    tried = load(arguments.state)
    every = _in_order(arguments.seed)
    mutants = [(key, mutant) for key, mutant in every
               if mutant.file.split("/")[1] in (arguments.room or ROOMS)
               and arguments.file in (None, mutant.file)]
    todo = [(key, mutant) for key, mutant in mutants
            if (key in tried and tried[key].outcome == "survived" and not explanation(tried[key])
                if arguments.again else key not in tried)]
    _run(todo, tried, arguments)
    existing = Counter(mutant.file.split("/")[1] for _, mutant in every)
    print("\n".join(summary(tried, existing)))
    if arguments.docs:
        write_page(tried, existing)
    return 0


def _in_order(seed: int) -> list[tuple[str, Mutant]]:
    """Return all mutants with their keys, in an order that the seed determines."""
    found = []
    for room in ROOMS:
        for path in sorted((ROOT / "secure_bloom" / room).rglob("*.py")):
            file = str(path.relative_to(ROOT))
            if file != _COMPILED:
                source = path.read_text()
                found += [(_key(mutant, source), mutant) for mutant in mutants_of(file, source)]
    random.Random(seed).shuffle(found)
    return found


def _key(mutant: Mutant, source: str) -> str:
    """Return a name that remains when other modules change."""
    one = f"{mutant.file}:{mutant.start}:{mutant.end}:{mutant.operator}:{mutant.after}:{source}"
    return hashlib.sha256(one.encode()).hexdigest()[:16]


def _run(todo: list[tuple[str, Mutant]], tried: dict[str, Tried],
         arguments: argparse.Namespace) -> None:
    deadline = time.monotonic() + arguments.seconds
    if not todo:
        return
    covering = Covering(COVERAGE, ROOT)
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        workplace = Workplace(ROOT, Path(folder), "--tier", "test", "-n", "0")
        for number, (key, mutant) in enumerate(todo):
            if time.monotonic() > deadline:
                return
            tests = covering.tests(mutant.file, mutant.line, arguments.tests)
            done = workplace.try_mutant(mutant, tests, 3 * arguments.tests)
            line = (ROOT / mutant.file).read_text().splitlines()[mutant.line - 1].strip()
            tried[key] = Tried(mutant.file, mutant.line, line, mutant.operator, mutant.before,
                               mutant.after, done.outcome, done.test, len(tests), done.seconds)
            print(f"{number + 1}/{len(todo)} {done.outcome} {done.seconds} s: {tried[key].text()}"
                  f" [{done.test or len(tests)}]", flush=True)
            _save(arguments.state, tried)


def _save(path: Path, tried: dict[str, Tried]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps({key: vars(one) for key, one in tried.items()}, indent=1))
    new.replace(path)


if __name__ == "__main__":
    sys.exit(main())
