"""Three tiers of tests, and which test belongs to which.

=========  =============  ========================================================================
tier       command        tests
=========  =============  ========================================================================
``check``  make check     for the minute between two edits: none that is marked at all
``test``   make test      what decides a merge, and what pytest alone runs: all except ``sweep``
``all``    make test-all  all
=========  =============  ========================================================================

``spark`` and ``peer`` are put on tests by the fixtures that they use, ``slow`` also by hand and
``sweep`` by hand alone. A tier never drops a test for good: what ``test`` leaves out, ``all`` runs.
A test that is named on the command line (``pytest tests/x.py::test_y``) always runs.
"""

from collections import Counter
from collections.abc import Callable

import pytest

LEFT_OUT = {"check": ("spark", "peer", "slow", "sweep"), "test": ("sweep",), "all": ()}
#: fixtures that start something -> what their tests are marked with
STARTED = {"spark": "spark", "native_spark": "spark", "parquet_java": "peer", "arrow_cpp": "peer",
           "s3": "slow"}
_SHARE_OF_EXAMPLES = {"check": 5}

tier = "test"
left_out: Counter[str] = Counter()


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
    return max(count // _SHARE_OF_EXAMPLES.get(tier, 1), 5)


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
        found = [mark for mark in LEFT_OUT[tier] if item.get_closest_marker(mark)]
        left_out.update(found[:1])
        (others if found else kept).append(item)
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = kept


def _marks(item) -> set[str]:
    """What fixtures and parameters say of a test."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    found = {STARTED[name] for name in item.fixturenames if name in STARTED}
    found |= {STARTED[value] for value in [parameters.get("store")] if value in STARTED}
    if any(mark.args[0](**parameters) for mark in item.iter_markers("sweep_where")):
        found.add("sweep")
    return found


def pytest_terminal_summary(terminalreporter):
    if LEFT_OUT[tier]:
        terminalreporter.write_line(
            f"tier {tier}: left out were tests marked {', '.join(LEFT_OUT[tier])}; "
            "make test-all runs all")
