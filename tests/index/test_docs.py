"""The code of docs/table-index.md runs as it is written there, and prints what the page shows."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "docs" / "table-index.md").read_text()


@pytest.mark.sweep
def test_examples(tmp_path):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if shutil.which("secure-bloom", path=path) is None:
        pytest.skip("secure_bloom is not installed")
    outputs, of_commands, is_shown = [], [], []
    for language, code in re.findall(r"```(\w+)\n(.*?)```", TEXT, re.DOTALL):
        if language == "text":
            assert outputs[-1] == code
            is_shown[-1] = True
            continue
        command = {"sh": ["bash", "-euc"], "python": [sys.executable, "-c"]}[language]
        done = subprocess.run([*command, code], cwd=tmp_path, capture_output=True, text=True,
                              env={**os.environ, "PATH": path}, timeout=240)
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
        outputs.append(done.stdout)
        if language == "sh":
            of_commands.append(done.stdout)
        else:
            is_shown.append(not done.stdout)
    assert all(is_shown)  # what Python prints is on the page
    found, maintained, verified, rotated = of_commands
    assert "1 of 3 files may have the value; 0 not covered" in found
    assert "3 files indexed" not in maintained and "0 segments merged" in maintained
    assert "of 2 files looked up, 4 files identified: 0 findings" in verified
    assert "1 index rotated" in rotated and "not up to date" not in rotated
