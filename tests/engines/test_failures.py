"""Scans that fail end with a clear error in the engine."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from secure_bloom.errors import FormatError
from tests.engines.failing_scans import ENGINES, FAULTS, SECONDS
from tests.tiers import sweep_where

ROOT = Path(__file__).parents[2]


def run(engine: str, fault: str, runs: int) -> None:
    """Run scans in a process of their own, which ends itself if a scan hangs."""
    seed = str(random.randrange(2**32))
    print(f"{engine}, {fault}: seed {seed}")
    done = subprocess.run(
        [sys.executable, "-m", "tests.engines.failing_scans", engine, fault, seed, str(runs)],
        cwd=ROOT, capture_output=True, text=True, timeout=SECONDS * (runs + 1))
    assert done.returncode == 0, done.stdout + done.stderr[-8000:]
    succeeded, failed = map(int, done.stdout.split())
    assert succeeded + failed == runs
    assert failed == runs if fault == "kms" else failed > 0


@pytest.mark.slow
@sweep_where(lambda engine, fault:
             (list(ENGINES).index(engine) + list(FAULTS).index(fault)) % len(ENGINES))
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_failing_scan_ends_with_a_clear_error(engine, fault):
    run(engine, fault, 5 if fault == "kms" else 12)


def test_the_short_form_of_an_error_says_where():
    """DataFusion shows it."""
    error = FormatError("the footer is not valid", file="a.parquet", row_group=1, column="x")
    assert repr(error) == "FormatError('file a.parquet, row group 1, column x: " \
                          "the footer is not valid')"
