"""Three tiers of tests, and which test belongs to which.

=========  =============  ========================================================================
tier       command        tests
=========  =============  ========================================================================
``check``  make check     for the minute between two edits: none that is marked at all
``test``   make test      what decides a merge, and what pytest alone runs: all except ``sweep``
``all``    make test-all  all
=========  =============  ========================================================================

``spark``, ``peer`` and ``slow`` are put on tests that use the fixtures of :data:`STARTED`, ``peer``
on all in ``tests/peers``; modules with a Spark of their own, slow tests and ``sweep`` are marked by
hand. A tier never drops a test for good: what ``test`` leaves out, ``all`` runs.
A test that is named on the command line (``pytest tests/x.py::test_y``) always runs.
"""

from collections.abc import Callable

import pytest

LEFT_OUT = {"check": ("spark", "peer", "slow", "sweep"), "test": ("sweep",), "all": ()}
#: fixtures that start something -> what their tests are marked with
STARTED = {"spark": "spark", "native_spark": "spark", "parquet_java": "peer", "arrow_cpp": "peer",
           "s3": "slow", "moto": "slow"}
#: parameters of fixtures with which these start an S3 server
STARTING = {"store": "s3", "place": "object"}
_SHARE_OF_EXAMPLES = {"check": 5}

tier = "test"  #: of this run


def sweep_where(condition: Callable[..., bool]) -> pytest.MarkDecorator:
    """Marks some combinations of a test's parameters as ``sweep``.

    Parameters
    ----------
    condition
        Called with the parameters by name, those of fixtures too.
    """
    return pytest.mark.sweep_where.with_args(condition)


def number_of_examples(count: int) -> int:
    """How many examples a hypothesis test tries that is worth so many."""
    return min(count, max(count // _SHARE_OF_EXAMPLES.get(tier, 1), 5))


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
        if "spark" in item.fixturenames and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("spark"))  # one session for all
        is_left_out = any(item.get_closest_marker(mark) for mark in LEFT_OUT[tier])
        (others if is_left_out else kept).append(item)
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = kept


def _marks(item) -> set[str]:
    """What fixtures and parameters say of a test."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    found = {STARTED[name] for name in item.fixturenames if name in STARTED}
    if any(parameters.get(name) == value for name, value in STARTING.items()):
        found.add("slow")
    if item.path.parent.name == "peers":
        found.add("peer")
    if any(mark.args[0](**parameters) for mark in item.iter_markers("sweep_where")):
        found.add("sweep")
    return found


def pytest_terminal_summary(terminalreporter):
    """After the list of what was skipped and why, which ``-ra`` in pyproject.toml asks for."""
    if LEFT_OUT[tier]:
        terminalreporter.write_line(
            f"tier {tier}: left out were tests marked {', '.join(LEFT_OUT[tier])}; "
            "make test-all runs all")
