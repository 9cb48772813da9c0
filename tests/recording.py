"""A pytest plugin for ``make coverage``: which test executes a line, and how long each test takes.

``-p tests.recording``, in a process that coverage measures.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import coverage
import pytest

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
