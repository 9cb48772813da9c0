"""python -m release [--skip STEP ...]: check and build a release, and publish nothing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from release import artifacts, building, readiness
from release.candidate import Candidate, NotReady

ROOT = Path(__file__).parents[1]
#: in their order; each returns what it has found or made
STEPS: dict[str, Callable[[Candidate], str]] = {
    "changelog": readiness.changelog, "tree": readiness.tree, "tests": readiness.tests,
    "docs": readiness.docs, "build": building.build, "check": artifacts.check,
    "sbom": artifacts.sbom, "checksums": artifacts.checksums}


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Run all steps, also after one has failed; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("--skip", nargs="*", default=[], metavar="STEP", choices=STEPS,
                        help=", ".join(STEPS))
    skipped = parser.parse_args(arguments).skip
    candidate = Candidate(root, root / "dist")
    outcomes, failed = {name: "skipped" for name in skipped}, []
    for name, step in STEPS.items():
        if name in skipped:
            continue
        print(f"--- {name}", flush=True)
        try:
            outcomes[name] = step(candidate)
        except NotReady as error:
            outcomes[name] = f"FAILED: {error}"
            failed.append(name)
    print(f"\nsecure_bloom {candidate.version}")
    for name in STEPS:
        print(f"{name:<10} {outcomes[name]}")
    if failed or skipped:
        print(f"\nnot ready to be released: {', '.join([*failed, *skipped])}")
    else:
        print(f"\nready; what is left to do:\n{artifacts.next_commands(candidate)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
