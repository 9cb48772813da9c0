"""python -m tests.soak [--seconds N] [--processes N] [--repeat CHECK:SEED] [CHECK ...]"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.soak.checks import CHECKS
from tests.soak.report import STATE, write_page
from tests.soak.runner import CASE_SECONDS, Tried, load, run, save, try_seed

_PACKAGES = "numpy", "pyarrow", "cryptography"


def main() -> int:
    """Run the soak; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Try at random what "
                                     "must never happen.")
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=", ".join(CHECKS))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--case-seconds", type=float, default=CASE_SECONDS,
                        help="of a case that has no end of its own, such as of concurrency")
    parser.add_argument("--state", type=Path, default=STATE,
                        help="what was tried; a new run adds to it")
    parser.add_argument("--repeat", metavar="CHECK:SEED", help="try one case again")
    parser.add_argument("--docs", action="store_true", help="write docs/reliability.md")
    arguments = parser.parse_args()
    names = arguments.checks or [name for name, check in CHECKS.items() if not check.is_extra]
    if unknown := set(names) - set(CHECKS):
        parser.error(f"no such check: {', '.join(sorted(unknown))}")
    if arguments.repeat:
        name, _, seed = arguments.repeat.partition(":")
        return _repeat(name, int(seed), arguments.case_seconds)
    tried = load(arguments.state)
    start = time.monotonic()

    def tell(name: str, done: Tried) -> None:
        for failure in done.failures:
            print(f"\n{failure['error']}\nFAILED: python -m tests.soak --repeat "
                  f"{name}:{failure['seed']}", flush=True)
        if sys.stderr.isatty():
            left = max(0, arguments.seconds - (time.monotonic() - start))
            print(f"\r{left:5.0f} s left; {name}: {tried[name].tried:,} {CHECKS[name].unit}"
                  .ljust(78), end="", file=sys.stderr, flush=True)
        save(arguments.state, tried, _about())

    run(names, arguments.seconds, arguments.processes, tried, tell,
        arguments.case_seconds)
    for name in names:
        one = tried[name]
        print(f"{name}: {one.tried:,} {CHECKS[name].unit} in {one.cases:,} cases, "
              f"{len(one.failures)} failures, {dict(one.counts)}")
    if arguments.docs:
        write_page(tried, _about())
    return 1 if any(tried[name].failures for name in names) else 0


def _repeat(name: str, seed: int, case_seconds: float) -> int:
    done = try_seed(name, seed, case_seconds)
    print(f"{name}:{seed}: {done.tried:,} {CHECKS[name].unit}, {dict(done.counts)}")
    for failure in done.failures:
        print(failure["error"])
    return 1 if done.failures else 0


def _about() -> dict[str, str]:
    return {"date": datetime.now(UTC).strftime("%Y-%m-%d"), "machine": platform.machine(),
            "Python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in _PACKAGES}}


if __name__ == "__main__":
    sys.exit(main())
