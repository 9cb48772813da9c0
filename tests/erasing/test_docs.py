"""The examples of docs/erase.md run as they stand there, in their order."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "docs" / "erase.md").read_text()


@pytest.mark.slow
def test_examples(tmp_path):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "SECURE_BLOOM_KEYRING": "keys.json"}
    outputs = []
    for language, code in re.findall(r"```(sh|python)\n(.*?)```", TEXT, re.DOTALL):
        command = ["bash", "-euc", code] if language == "sh" else [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240,
                              env=environment)
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
        outputs.append(done.stdout)
    _, erased, python, report, found = outputs
    in_text, of_python, of_report = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    assert set(in_text.splitlines()) <= set(erased.splitlines())
    assert (python, report) == (of_python, of_report)
    assert found.splitlines()[-1] == "1"
    assert "2024-0078" not in (tmp_path / "report.json").read_text()
    assert "2024-0078" not in (tmp_path / "report.html").read_text()
    assert json.loads((tmp_path / "report.json").read_text())["column"] == "ssn"


def test_every_exit_code_is_explained():
    codes = re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)
    assert codes == ["0", "1", "2", "3", "4", "5"]
