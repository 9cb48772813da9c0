"""Tables that programs write into the docs."""

import re
from pathlib import Path

import pytest

from tests.pages import put

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize(("page", "name"), [
    ("compatibility.md", "matrix"), ("compatibility.md", "extras"), ("compatibility.md", "weight"),
    ("reliability.md", "tried"), ("reliability.md", "coverage"), ("reliability.md", "mutants")])
def test_a_table_is_replaced_and_nothing_else_changes(tmp_path, page, name):
    text = (DOCS / page).read_text()
    (tmp_path / page).write_text(text)
    put(tmp_path / page, name, "the new\ntable")
    expected = re.sub(f"(<!-- {name} -->\n).*?(<!-- end of {name} -->)",
                      r"\1the new\ntable\n\2", text, flags=re.DOTALL)
    assert (tmp_path / page).read_text() == expected != text
