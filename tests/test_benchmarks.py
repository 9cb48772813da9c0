"""The benchmarks run, at a size that says nothing about speed."""

import json
import subprocess
import sys
from pathlib import Path


def test_kernels(tmp_path):
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "benchmarks.kernels", "--rows", "2000", "--rounds", "2",
               "--json", str(report)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300,
                          cwd=Path(__file__).parent.parent)
    assert done.returncode == 0, done.stderr
    assert "| hash int64 |" in done.stdout and "GB/s" in done.stdout
    written = json.loads(report.read_text())
    assert written["machine"]["cpu"] and written["bandwidth"]["read"] > 0
    for result in written["results"]:
        assert set(result["ratios"]) == {"Arrow C++", "parquet-java"}
        assert len(result["seconds"]["secure_bloom"]["cpu"]) == 2
