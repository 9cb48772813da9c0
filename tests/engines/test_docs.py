"""The examples of docs/engines.md run as they stand there, in their order."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "engines.md").read_text()
_BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


@pytest.mark.sweep
def test_examples(tmp_path):
    (tmp_path / "people").mkdir()
    blocks = _BLOCK.findall(TEXT)
    assert len(blocks) == 7
    for code, shown in blocks:
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True,
                              text=True, timeout=240)
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
        assert done.stdout == shown, code


def test_every_engine_has_a_section():
    for name in ("DuckDB", "Polars", "DataFusion", "pandas", "Dask", "Ray"):
        assert f"\n## {name}\n" in TEXT
