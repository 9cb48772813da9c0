"""python -m tests.servers [--docs] [NAME ...]: run tests with real servers, which are built first.

What is built and the results stay in ``build/servers``. ``docs/compatibility.md`` is written from
them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree

from tests.pages import put
from tests.servers.building import BUILD, NotBuilt
from tests.servers.chosen import SERVERS, load

ROOT = BUILD.parents[1]
PAGE = ROOT / "docs" / "compatibility.md"


def main() -> int:
    """Run the tests; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SERVERS))
    parser.add_argument("--docs", action="store_true", help=f"write {PAGE.name}")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - SERVERS.keys():
        parser.error(f"no such server: {', '.join(sorted(unknown))}")
    BUILD.mkdir(parents=True, exist_ok=True)
    state = BUILD / "results.json"
    results = json.loads(state.read_text()) if state.exists() else {}
    for name in arguments.names or SERVERS:
        print(f"--- {name}", flush=True)
        results[name] = tried(name)
        print(json.dumps(results[name], indent=1), flush=True)
        state.write_text(json.dumps(results, indent=1))
    if arguments.docs:
        put(PAGE, "servers", table(results))
    return 1 if any(result.get("failed") for result in results.values()) else 0


def tried(name: str) -> dict[str, Any]:
    """Build a server, and run the tests with it."""
    server = load(name)
    try:
        server.build()
    except NotBuilt as error:
        return {"version": server.version, "reason": str(error)}
    report, start = BUILD / f"{name}.xml", time.monotonic()
    report.unlink(missing_ok=True)
    subprocess.run([sys.executable, "-m", "pytest", "--server", name, "-n", "2",
                    "--dist", "loadgroup", f"--junit-xml={report}", *server.tests], cwd=ROOT)
    return {"version": server.version, "day": f"{datetime.now(UTC):%Y-%m-%d}",
            "seconds": round(time.monotonic() - start), **_counts(report)}


def _counts(report: Any) -> dict[str, int]:
    if not report.exists():
        return {"failed": 1}
    [suite] = ElementTree.parse(report).getroot().iter("testsuite")
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    skipped = int(suite.get("skipped", 0))
    return {"passed": int(suite.get("tests", 0)) - failed - skipped, "failed": failed,
            "skipped": skipped}


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return the results as a table in Markdown."""
    rows = ["| `make test-servers NAMES=` | server | run on | result |", "|---|---|---|---|"]
    for name in filter(results.__contains__, SERVERS):
        one = results[name]
        counts = ", ".join(f"{one[kind]:,} {kind}" for kind in ("passed", "failed", "skipped")
                           if one.get(kind))
        rows.append(f"| `{name}` | {one['version']} | {one.get('day', '')} | "
                    f"{counts or 'not built'} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
