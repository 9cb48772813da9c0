"""The code of docs/datasets.md runs as it is written there, and prints what the page shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "docs" / "datasets.md").read_text()


@pytest.mark.sweep
def test_examples(tmp_path):
    blocks = re.findall(r"```(python|text)\n(.*?)```", TEXT, re.DOTALL)
    programs = [code for language, code in blocks if language == "python"]
    shown = [text for language, text in blocks if language == "text"]
    for program, output in zip(programs, shown, strict=True):
        done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, text=True,
                              capture_output=True, env={**os.environ, "PYTHONUTF8": "1"})
        assert done.returncode == 0, done.stderr
        without_sizes = [re.sub(r"\d[\d,]+", "N", text) for text in (done.stdout, output)]
        assert without_sizes[0].endswith(without_sizes[1])
