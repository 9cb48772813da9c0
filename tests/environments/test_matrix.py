"""The cells of the matrix and the page that shows them."""

import re
import tomllib

import pytest

from tests.environments.__main__ import PAGE
from tests.environments.cells import CELLS, OLDEST
from tests.environments.interpreters import ROOT
from tests.environments.matrix import outcome, table

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def requirements():
    """Return the lower bounds of pyproject.toml, by package."""
    project = PROJECT["project"]
    lines = [*PROJECT["build-system"]["requires"], *project["dependencies"],
             *project["optional-dependencies"]["spark"]]
    found = [re.match(r"([\w-]+)>=([\d.]+)", line) for line in lines]
    return {match[1]: match[2] for match in found if match}


@pytest.mark.parametrize("package", OLDEST)
def test_the_oldest_cell_has_the_lower_bounds(package):
    bound = requirements()[package]
    assert OLDEST[package] == bound or OLDEST[package].startswith(f"{bound}.")


def test_no_lower_bound_is_left_out():
    assert requirements().keys() - {"setuptools"} == OLDEST.keys()


def test_the_oldest_cell_has_the_oldest_python():
    [oldest] = [cell for cell in CELLS if cell.name == "oldest"]
    assert PROJECT["project"]["requires-python"] == f">={oldest.python}"


@pytest.mark.parametrize(("code", "printed", "expected"), [
    (0, "...\nSKIPPED [1] 2 passed by\n1234 passed, 5 skipped, 7 deselected in 3.21s (0:00:03)\n",
     "1,234 passed, 5 skipped"),
    (1, "FAILED a.py::b - 1 error\n= 2 failed, 1234 passed, 1 error in 3.21s =\n",
     "2 failed, 1,234 passed, 1 error"),
    (2, "!! KeyboardInterrupt !!\n12 passed in 3.21s\n",
     "pytest ended with exit code 2: 12 passed"),
    (5, "9 deselected in 0.1s\n", "pytest ended with exit code 5"),
    (-9, "....", "pytest ended with exit code -9")])
def test_an_interrupted_run_has_not_passed(code, printed, expected):
    assert outcome(code, printed) == expected


def test_the_table_shows_versions_skipped_cells_and_failures():
    names = [cell.name for cell in CELLS]
    results = {names[0]: {"versions": {"Python": "3.11.7", "numpy": "2.0.0"},
                          "quick": "1,234 passed", "Spark": "5 passed"},
               names[1]: {"quick": "not tried: Python 3.11 is not installed"},
               names[2]: {"versions": {}, "quick": "3 passed", "Spark": "1 failed, 3 passed",
                          "failed": True}}
    shown = table(results)
    assert "| oldest | 3.11.7 |  | 2.0.0 |" in shown and "| 1,234 passed | 5 passed |" in shown
    assert "| not tried: Python 3.11 is not installed |  |" in shown
    assert "| 3 passed | 1 failed, 3 passed |" in shown
    assert shown.count("| not tried |") == len(CELLS) - 3
    assert "<!-- matrix -->" in PAGE.read_text()
