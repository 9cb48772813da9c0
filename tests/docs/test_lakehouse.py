"""docs/lakehouse.md: each line of its table names a test."""

import re

import pytest

from tests.docs.pages import ROOT

TEXT = (ROOT / "docs" / "lakehouse.md").read_text()
TESTS = set(re.findall(r"^def (test_\w+)\(", "\n".join(
    path.read_text() for path in (ROOT / "tests" / "lakehouse").glob("test_*.py")), re.MULTILINE))
LINES = re.findall(r"^\| (?:Iceberg|Delta Lake) \|.*\|$", TEXT, re.MULTILINE)


@pytest.mark.parametrize("line", LINES)
def test_each_line_names_a_test_that_exists(line):
    _, result, tests = (cell.strip() for cell in line.strip("|").rsplit("|", 2))
    assert re.match(r"works|refused|leaks|cannot", result)
    assert set(re.findall(r"`(test_\w+)`", tests)) & TESTS


def test_every_named_test_exists():
    assert set(re.findall(r"`(test_\w+)`", TEXT)) - TESTS == set()
