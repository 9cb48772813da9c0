"""Three tiers of tests, and which tests belong to which tier.

=========  =============  ========================================================================
tier       command        tests
=========  =============  ========================================================================
``check``  make check     for the minute between two edits: only unmarked tests, and of a test
                         with many combinations of parameters only a few
``test``   make test      before every merge, and the default of pytest: all except ``build``,
                         ``sweep``, ``fetched``, ``server`` and ``soak``. CI runs the first three
                         after it.
``all``    make test-all  all
=========  =============  ========================================================================

Tests that use the fixtures of :data:`STARTED` are marked ``spark``, ``peer``, ``fetched`` or
``slow`` automatically, and all tests of some folders as :data:`_OF_FOLDERS` says. Modules that
start their own Spark, slow tests, ``build``, ``sweep`` and ``soak`` are marked by hand, and so are
other tests of peers that have to be fetched. A module is not even imported if its ``pytestmark``,
or its folder, has a mark that the tier leaves out. No test is dropped for good: what ``test``
leaves out, ``all`` runs. A test that is named on the command line (``pytest tests/x.py::test_y``)
always runs.

If several processes share the tests, they begin with the modules that took longest when ``make
durations`` wrote ``tests/durations.json``: a long one at the end would leave a process idle.

Temporary files of the tiers ``check`` and ``test`` are in memory if there is enough: where they are
synced, tests would mostly wait for the disk. ``all`` uses the disk.
"""

import atexit
import gc
import json
import math
import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.servers import chosen
from tests.sharing import begins_first

LEFT_OUT = {"check": ("spark", "peer", "slow", "build", "sweep", "fetched", "server", "soak"),
            "test": ("build", "sweep", "fetched", "server", "soak"), "all": ()}
#: fixtures that start a process -> the mark of their tests
STARTED = {"spark": "spark", "native_spark": "spark", "parquet_java": "peer", "arrow_cpp": "peer",
           "arrow_rs": "fetched", "s3": "slow", "server": "slow", "moto": "slow"}
#: parameters with which fixtures start an S3 server
STARTING = {"store": "s3", "place": "object"}
#: folder -> marks of its tests
_OF_FOLDERS = {"peers": {"peer"}, "lakehouse": {"fetched"}, "environments": {"build"},
               "release": {"build"}, "servers": {"server"}}
_OF_MODULE = re.compile(r"^pytestmark = .*", re.MULTILINE)
_MARK = re.compile(r"pytest\.mark\.(\w+)|uses_(spark)")
DURATIONS = Path(__file__).with_name("durations.json")  #: module -> seconds
_IN_MEMORY = Path("/dev/shm")
_ENOUGH = 4 << 30  # bytes; a run takes some 200 MB
_SHARE_OF_EXAMPLES = {"check": 10}
_MOST_COMBINATIONS = {"check": 2}  #: of one test's parameters; the tier tries a fixed sample
_MOST_CASES = {"check": 10}  #: of those that one test has; see tests.cases

tier = "test"  #: of this run


def sweep_where(condition: Callable[..., bool], mark: str = "sweep") -> pytest.MarkDecorator:
    """Mark some combinations of a test's parameters as ``sweep``, or ``soak``.

    Parameters
    ----------
    condition
        Called with the parameters by name, including those of fixtures.
    """
    return pytest.mark.sweep_where.with_args(condition, mark)


def number_of_examples(count: int) -> int:
    """Return how many examples a hypothesis test runs in this tier, given its full number."""
    return min(count, max(count // _SHARE_OF_EXAMPLES.get(tier, 1), 5))


def few_cases(cases: list, name: str) -> list:
    """Return those cases of the named test that the tier tries."""
    chosen = sorted(random.Random(name).sample(range(len(cases)),
                                               min(_MOST_CASES.get(tier, len(cases)), len(cases))))
    return [cases[position] for position in chosen]


def few_combinations(items: list) -> list:
    """Return the tests to run, of each at most so many combinations as the tier tries.

    Which these are depends on the names only: each process of a run must collect the same.
    """
    most = _MOST_COMBINATIONS.get(tier, len(items))
    groups: dict[str, list[int]] = {}
    for position, item in enumerate(items):
        groups.setdefault(item.nodeid.partition("[")[0], []).append(position)
    chosen = [position for name, group in groups.items()
              for position in random.Random(name).sample(group, min(most, len(group)))]
    return [items[position] for position in sorted(chosen)]


def marks_of_module(path: Path) -> set[str]:
    """Return marks that all tests of a module have, from its folder and its text."""
    text = _OF_MODULE.search(path.read_text(encoding="utf-8"))
    found = {name for groups in _MARK.findall(text[0] if text else "") for name in groups if name}
    return found | _OF_FOLDERS.get(path.parent.name, set())


def longest_first(items: list, durations: dict[str, float]) -> list:
    """Return the tests, in order of the seconds that their modules took; first new modules.

    Those that only some processes run come before all others.
    """
    def key(item) -> tuple[bool, float]:
        module = _module(item.nodeid)
        return not begins_first(module), -durations.get(module, math.inf)

    return sorted(items, key=key)


def _module(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _seconds(reports: Iterable, group: Callable[[str], str]) -> Counter[str]:
    """Return how many seconds tests took, with their fixtures, in total for each group."""
    seconds: Counter[str] = Counter()
    for report in reports:
        seconds[group(report.nodeid)] += report.duration
    return seconds


def seconds_of_folders(reports: Iterable) -> str:
    """Return the folders that took longest, as a line of text."""
    seconds = _seconds(reports, lambda name: str(Path(_module(name)).parent)).most_common(8)
    return "seconds by folder: " + ", ".join(f"{name} {spent:.0f}" for name, spent in seconds)


def record_durations(reports: Iterable, path: Path) -> None:
    """Write how long modules took; keep the others that the file names and that still exist."""
    root = path.parents[1]
    before = {name: spent for name, spent in json.loads(path.read_text()).items()
              if (root / name).exists()}
    after = before | {name: round(spent) for name, spent in _seconds(reports, _module).items()}
    path.write_text(json.dumps(after, indent=1, sort_keys=True) + "\n")


# --- hooks; conftest.py imports them -------------------------------------------------------------

def pytest_addoption(parser):
    parser.addoption("--tier", choices=LEFT_OUT, help="which tests run; test, unless named")
    parser.addoption("--server", choices=chosen.SERVERS, help="only tests of object stores or of "
                     "a KMS, and all of them with this server")
    parser.addoption("--record-durations", action="store_true",
                     help=f"write how long modules took to tests/{DURATIONS.name}")


def pytest_configure(config):
    global tier
    chosen.name = config.getoption("--server")
    named = config.args and all("::" in argument for argument in config.args)
    tier = config.getoption("--tier") or ("all" if named else "test")
    if tier != "all" and _IN_MEMORY.is_dir() and shutil.disk_usage(_IN_MEMORY).free > _ENOUGH:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_IN_MEMORY))


def pytest_collection():
    """What is collected stays: looking for garbage in it would take half of the time."""
    gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()
    atexit.register(gc.unfreeze)  # DuckDB says what has leaked


def pytest_ignore_collect(collection_path):
    """Leave out modules without a test for the tier: to import them takes longer than to test."""
    is_module = collection_path.match("test_*.py")
    return True if is_module and marks_of_module(collection_path) & _left_out() else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    kept, others = [], []
    for item in items:
        marks = _marks(item)
        for mark in sorted(marks):
            item.add_marker(mark)
        marks |= {mark.name for mark in item.iter_markers()}
        is_left_out = marks & _left_out() or (chosen.name and not chosen.needs_server(item))
        (others if is_left_out else kept).append(item)
    few = few_combinations(kept)
    others += set(kept).difference(few)
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = few
    if hasattr(config, "workerinput"):  # several processes share the tests
        items[:] = longest_first(items, json.loads(DURATIONS.read_text()))


def _left_out() -> set[str]:
    """Return the marks that this run leaves out."""
    return {*LEFT_OUT[tier]} - ({"server"} if chosen.name else set())


def _marks(item) -> set[str]:
    """Return the marks of a test that follow from its fixtures and parameters."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    found = {STARTED[name] for name in item.fixturenames if name in STARTED}
    if any(parameters.get(name) == value for name, value in STARTING.items()):
        found.add("slow")
    found |= _OF_FOLDERS.get(item.path.parent.name, set())
    for mark in item.iter_markers("sweep_where"):
        condition, name = mark.args
        if condition(**parameters):
            found.add(name)
    return found


def pytest_terminal_summary(terminalreporter, config):
    """Name what took long, and what the tier left out."""
    reports = [report for group in terminalreporter.stats.values() for report in group
               if isinstance(report, pytest.TestReport)]
    if reports:
        terminalreporter.write_line(seconds_of_folders(reports))
    if config.getoption("--record-durations"):
        record_durations(reports, DURATIONS)
    few = (f" and all but {_MOST_COMBINATIONS[tier]} combinations of a test's parameters"
           if tier in _MOST_COMBINATIONS else "")
    if LEFT_OUT[tier]:
        terminalreporter.write_line(
            f"tier {tier}: left out were tests marked {', '.join(LEFT_OUT[tier])}{few}; "
            "make test-all runs all")
