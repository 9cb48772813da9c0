"""The code and the tables of docs/lance.md are right."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from secure_bloom.sbbf.sizing import false_positive_probability, num_blocks_in_lance
from tests.lance.helpers import lance

TEXT = (Path(__file__).parent.parent.parent / "docs" / "lance.md").read_text()


@pytest.mark.sweep
@pytest.mark.skipif(not hasattr(sys.modules["lance.dataset"], "IndexFile"),
                    reason="this pylance has no IndexFile, with which the docs commit an index")
def test_python(tmp_path):
    code = "\n".join(re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True,
                          text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "ScalarIndexQuery" in done.stdout
    zones = ("[Zone(fragment_id=0, zone_start=0, zone_length=2, has_null=False)]",
             "[Zone(fragment_id=1, zone_start=0, zone_length=1, has_null=True)]")
    assert f"{zones[0]}\n{zones[0]} {zones[1]}\n{{1: [(0, 1)]}}\n" in done.stdout


@pytest.mark.sweep
def test_command_line(tmp_path):
    lance.write_dataset(_flights(), str(tmp_path / "flights.lance"))
    code = re.search(r"```sh\n(.*?)```", TEXT, re.DOTALL)[1]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if shutil.which("secure-bloom", path=path) is None:
        pytest.skip("secure_bloom is not installed")
    done = subprocess.run(["bash", "-euc", code], cwd=tmp_path, capture_output=True, text=True,
                          timeout=240, env={**os.environ, "PATH": path})
    assert done.returncode == 0, done.stderr
    assert "may be in 1 of 1 zone" in done.stdout


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
