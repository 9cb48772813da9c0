"""The code of docs/index.md runs as it is written there, and prints what the page shows."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "docs" / "index.md").read_text()


@pytest.mark.slow
def test_examples(tmp_path):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if shutil.which("secure-bloom", path=path) is None:
        pytest.skip("secure_bloom is not installed")
    shown, outputs = [], []
    for language, code in re.findall(r"```(\w+)\n(.*?)```", TEXT, re.DOTALL):
        if language == "text":
            assert outputs[-1] == code
            shown.append(code)
            continue
        command = {"sh": ["bash", "-euc"], "python": [sys.executable, "-c"]}[language]
        done = subprocess.run([*command, code], cwd=tmp_path, capture_output=True, text=True,
                              env={**os.environ, "PATH": path}, timeout=240)
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
        outputs.append(done.stdout)
    assert len(shown) == 4
    assert "1 of 3 files may have the value; 0 not covered" in outputs[2]
    assert "3 files indexed" not in outputs[4] and "0 segments merged" in outputs[4]
    assert "1 index rotated" in outputs[5] and "not up to date" not in outputs[5]
