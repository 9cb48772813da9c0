"""A pytest plugin for ``make coverage``: which test executes a line, and how long each test takes.

``-p tests.recording``, in a process that coverage measures. ``python -m tests.recording JSON``
writes the figures into ``docs/reliability.md``.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import coverage
import pytest

from tests.pages import put

_PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
_passed: dict[str, float] = {}
_failed: set[str] = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    measured = coverage.Coverage.current()
    if measured is not None:
        measured.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        if measured is not None:
            measured.switch_context("")


def pytest_runtest_logreport(report):
    _passed[report.nodeid] = _passed.get(report.nodeid, 0.0) + report.duration
    if not report.passed:
        _failed.add(report.nodeid)


def pytest_sessionfinish(session):
    """Write the seconds of each test that passed; with xdist, the main process knows all tests."""
    folder = os.environ.get("COVERAGE_FOLDER")
    if folder and not hasattr(session.config, "workerinput"):
        Path(folder, "seconds.json").write_text(json.dumps({
            test: round(seconds, 3) for test, seconds in _passed.items() if test not in _failed}))


def table(report: dict[str, Any]) -> str:
    """Return the figures of a report of coverage as Markdown, by room."""
    rooms: dict[str, Counter[str]] = {}
    for file, one in report["files"].items():
        rooms.setdefault(file.split("/")[1], Counter()).update(
            {name: one["summary"][name] for name in
             ("num_statements", "covered_lines", "num_branches", "covered_branches")})
    rows = [*((f"`{room}`", counts) for room, counts in sorted(rooms.items())),
            ("all", sum(rooms.values(), Counter()))]
    return "\n".join([
        "| room | statements | executed | branches | executed |", "|---|---|---|---|---|",
        *(f"| {room} | {counts['num_statements']:,} | "
          f"{100 * counts['covered_lines'] / max(counts['num_statements'], 1):.2f}% | "
          f"{counts['num_branches']:,} | "
          f"{100 * counts['covered_branches'] / max(counts['num_branches'], 1):.2f}% |"
          for room, counts in rows)])


if __name__ == "__main__":
    put(_PAGE, "coverage", table(json.loads(Path(sys.argv[1]).read_text())))
