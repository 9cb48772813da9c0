"""The examples of docs/data-subject-request.md run as they stand there, in their order."""

import json
import re
from pathlib import Path

import pytest

from tests.doc_examples import run_examples

TEXT = (Path(__file__).parent.parent / "docs" / "data-subject-request.md").read_text()


@pytest.mark.sweep
@pytest.mark.slow
def test_examples(tmp_path):
    finished = run_examples(TEXT, tmp_path, SECURE_BLOOM_KEYRING="keys.json")
    outputs = [done.stdout for done in finished]
    errors = [done.stderr for done in finished]
    _, found, handed_over, proven, _, absent, python = outputs
    shown = [line.replace(str(tmp_path), "…").split() for line in found.splitlines()]
    [example] = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    for line in example.splitlines()[2:]:
        assert line.split() in shown
    assert '"078-05-1120","Ada"' in handed_over
    assert errors[2].count("is not encrypted") == 2
    assert proven.splitlines()[0] == "3 rows; 3 files, 1 ruled out without reading"
    assert absent == "0\n"
    assert python.splitlines() == ["3 []", "country=it 0 None", "orders 0 lamp", "orders 0 pen"]
    assert json.loads((tmp_path / "verified.json").read_text())["totals"]["ok"] == 3
    assert (tmp_path / "person.csv").stat().st_mode & 0o777 == 0o600


def test_every_exit_code_is_explained():
    codes = re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)
    assert codes == ["0", "1", "2", "3", "4", "5"]
