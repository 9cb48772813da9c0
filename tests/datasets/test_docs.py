"""The code of docs/datasets.md runs as it is written there, and prints what the page shows."""

import re
from pathlib import Path

import pytest

from tests.doc_examples import run_examples

TEXT = (Path(__file__).parents[2] / "docs" / "datasets.md").read_text()


@pytest.mark.sweep
def test_examples(tmp_path):
    shown = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    for done, output in zip(run_examples(TEXT, tmp_path, PYTHONUTF8="1"), shown, strict=True):
        without_sizes = [re.sub(r"\d[\d,]+", "N", text) for text in (done.stdout, output)]
        assert without_sizes[0].endswith(without_sizes[1])
