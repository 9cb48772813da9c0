"""The code and the tables of docs/lance.md are right."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from secure_bloom.sbbf.sizing import false_positive_probability, num_blocks_in_lance
from tests.doc_examples import run
from tests.lance.helpers import lance

TEXT = (Path(__file__).parent.parent.parent / "docs" / "lance.md").read_text()


@pytest.mark.sweep
@pytest.mark.skipif(not hasattr(sys.modules["lance.dataset"], "IndexFile"),
                    reason="this pylance has no IndexFile, with which the docs commit an index")
def test_python(tmp_path):
    code = "\n".join(re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL))
    printed = run("python", code, tmp_path).stdout
    assert "ScalarIndexQuery" in printed
    zones = ("[Zone(fragment_id=0, zone_start=0, zone_length=2, has_null=False)]",
             "[Zone(fragment_id=1, zone_start=0, zone_length=1, has_null=True)]")
    assert f"{zones[0]}\n{zones[0]} {zones[1]}\n{{1: [(0, 1)]}}\n" in printed


@pytest.mark.sweep
def test_command_line(tmp_path):
    lance.write_dataset(_flights(), str(tmp_path / "flights.lance"))
    code = re.search(r"```sh\n(.*?)```", TEXT, re.DOTALL)[1]
    assert "may be in 1 of 1 zone" in run("sh", code, tmp_path).stdout


def _flights():
    import pyarrow as pa
    return pa.table({"tail": ["N14228", None]})


def test_sizes():
    rows = re.findall(r"^\| ([\d,]+) \| ([\d.]+)[^|]*\| ([\d,]+) \| ([\d.]+) \| ([\d.]+) \|$", TEXT,
                      re.MULTILINE)
    assert len(rows) == 5
    for row in rows:
        items, asked, size, given, half = (float(cell.replace(",", "")) for cell in row)
        blocks = num_blocks_in_lance(int(items), asked)
        assert blocks * 32 == size
        for num_blocks, shown in ((blocks, given), (blocks // 2, half)):
            exact = false_positive_probability(num_blocks, int(items))
            assert float(np.format_float_positional(exact, 2, fractional=False)) == shown
