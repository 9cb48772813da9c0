"""The examples of docs/erase.md run as they stand there, in their order."""

import json
import re
from pathlib import Path

import pytest

from tests.doc_examples import run_examples

TEXT = (Path(__file__).parents[2] / "docs" / "erase.md").read_text()


@pytest.mark.sweep
def test_examples(tmp_path):
    finished = run_examples(TEXT, tmp_path, SECURE_BLOOM_KEYRING="keys.json")
    outputs = [done.stdout for done in finished]
    _, erased, python, report, signed, found = outputs
    in_text, of_python, of_report, of_signed = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    assert set(in_text.splitlines()) <= set(erased.splitlines())
    assert (python, report, signed) == (of_python, of_report, of_signed)
    assert found.splitlines()[-1] == "1"
    assert "2024-0078" not in (tmp_path / "report.json").read_text()
    assert "2024-0078" not in (tmp_path / "report.html").read_text()
    assert json.loads((tmp_path / "report.json").read_text())["column"] == "ssn"


def test_every_exit_code_is_explained():
    codes = re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)
    assert codes == ["0", "1", "2", "3", "4", "5"]
