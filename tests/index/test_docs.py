"""The code of docs/table-index.md runs as it is written there, and prints what the page shows."""

import re
import sys
from pathlib import Path

import pytest

from tests.doc_examples import run_examples

TEXT = (Path(__file__).parents[2] / "docs" / "table-index.md").read_text()


@pytest.mark.sweep
def test_examples(tmp_path):
    finished = run_examples(TEXT, tmp_path)
    of_python = [done.stdout for done in finished if done.args[0] == sys.executable]
    of_commands = [done.stdout for done in finished if done.args[0] == "bash"]
    assert [*filter(None, of_python)] == re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    found, maintained, verified, rotated = of_commands
    assert "1 of 3 files may have the value; 0 not covered" in found
    assert "3 files indexed" not in maintained and "0 segments merged" in maintained
    assert "of 2 files looked up, 4 files identified: 0 findings" in verified
    assert "1 index rotated" in rotated and "not up to date" not in rotated
