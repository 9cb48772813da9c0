"""Three tiers of tests, and which tests belong to which tier.

=========  =============  ========================================================================
tier       command        tests
=========  =============  ========================================================================
``check``  make check     for the minute between two edits: only unmarked tests, and of a test
                         with many combinations of parameters only a few
``test``   make test      before every merge, and the default of pytest: all except ``sweep``,
                         ``fetched`` and ``soak``. CI runs the first two after it.
``all``    make test-all  all
=========  =============  ========================================================================

Tests that use the fixtures of :data:`STARTED` are marked ``spark``, ``peer``, ``fetched`` or
``slow`` automatically, all tests in ``tests/peers`` are marked ``peer``, and those in
``tests/lakehouse`` ``fetched``. Modules that start their own Spark, slow tests, ``sweep`` and
``soak`` are marked by hand, and so are other tests of peers that have to be fetched. No test is
dropped for good: what ``test`` leaves out, ``all`` runs. A test that is named on the command line
(``pytest tests/x.py::test_y``) always runs.
"""

import random
from collections.abc import Callable

import pytest

LEFT_OUT = {"check": ("spark", "peer", "slow", "sweep", "fetched", "soak"),
            "test": ("sweep", "fetched", "soak"), "all": ()}
#: fixtures that start a process -> the mark of their tests
STARTED = {"spark": "spark", "native_spark": "spark", "parquet_java": "peer", "arrow_cpp": "peer",
           "arrow_rs": "fetched", "s3": "slow", "server": "slow", "moto": "slow"}
#: parameters with which fixtures start an S3 server
STARTING = {"store": "s3", "place": "object"}
_OF_FOLDERS = {"peers": {"peer"}, "lakehouse": {"fetched"}}  # folder -> marks of its tests
_SHARE_OF_EXAMPLES = {"check": 5}
_MOST_COMBINATIONS = {"check": 6}  #: of one test's parameters; the tier tries a fixed sample

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


# --- hooks; conftest.py imports them -------------------------------------------------------------

def pytest_addoption(parser):
    parser.addoption("--tier", choices=LEFT_OUT, help="which tests run; test, unless named")


def pytest_configure(config):
    global tier
    named = config.args and all("::" in argument for argument in config.args)
    tier = config.getoption("--tier") or ("all" if named else "test")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    kept, others = [], []
    for item in items:
        for mark in sorted(_marks(item)):
            item.add_marker(mark)
        if "spark" in item.fixturenames:  # a module's tests share a process, and its session
            item.add_marker(pytest.mark.xdist_group(f"spark {item.path.stem}"))
        is_left_out = any(item.get_closest_marker(mark) for mark in LEFT_OUT[tier])
        (others if is_left_out else kept).append(item)
    few = few_combinations(kept)
    others += set(kept).difference(few)
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = few


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


def pytest_terminal_summary(terminalreporter):
    """Name what the tier left out, after the list of skipped tests (``-ra`` in pyproject.toml)."""
    few = (f" and all but {_MOST_COMBINATIONS[tier]} combinations of a test's parameters"
           if tier in _MOST_COMBINATIONS else "")
    if LEFT_OUT[tier]:
        terminalreporter.write_line(
            f"tier {tier}: left out were tests marked {', '.join(LEFT_OUT[tier])}{few}; "
            "make test-all runs all")
