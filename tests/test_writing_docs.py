"""The examples of docs/writing.md run as they are, in their order."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = (Path(__file__).parent.parent / "docs" / "writing.md").read_text()


@pytest.mark.slow
def test_examples(tmp_path):
    code = "\n".join(re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True,
                          text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "pandas 2", "polars 2", "duckdb 1", "batches 4", "both 4",
        "3 files with 3 encrypted filters", "3"]
    assert {path.name for path in (tmp_path / "years").glob("year=*")} == {
        f"year={year}" for year in range(2020, 2024)}
