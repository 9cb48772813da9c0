"""The benchmarks run, at a size that says nothing about speed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WITHOUT_SPARK = ("costs", "kernels", "write", "filter_sizes", "footers", "startup", "memory",
                 "growth", "encrypt_memory", "engines", "index", "index_write",
                 "index_growth", "index_erase")


@pytest.mark.sweep
@pytest.mark.parametrize("name", WITHOUT_SPARK)
def test_benchmark(tmp_path, name):
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "benchmarks", name, "--scale", "0.001", "--rounds", "1",
               "--json", str(report)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "|---|" in done.stdout
    written = json.loads(report.read_text())
    assert written["machine"]["CPU"] and written["sections"][name]["data"]
    if name == "kernels":
        data = written["sections"][name]["data"]
        assert data["bandwidth"]["read"] > 0
        assert all(set(result["ratios"]) == {"Arrow C++", "parquet-java"}
                   for result in data["results"])


def test_the_page_has_a_place_for_each_benchmark():
    from benchmarks.__main__ import NAMES, PAGE
    page = PAGE.read_text()
    for name in (*NAMES, "machine"):
        assert page.count(f"<!-- {name} -->") == page.count(f"<!-- end of {name} -->") == 1
