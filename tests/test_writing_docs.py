"""The examples of docs/writing.md run as they are, in their order."""

import re
from pathlib import Path

import pytest

from tests.doc_examples import run

TEXT = (Path(__file__).parent.parent / "docs" / "writing.md").read_text()


@pytest.mark.slow
def test_examples(tmp_path):
    code = "\n".join(re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL))
    assert run("python", code, tmp_path).stdout.splitlines() == [
        "pandas 2", "polars 2", "duckdb 1", "batches 4", "both 4",
        "3 files with 3 encrypted filters", "3"]
    assert {path.name for path in (tmp_path / "years").glob("year=*")} == {
        f"year={year}" for year in range(2020, 2024)}
