"""Hostile bytes that coverage guides, by atheris, which must be installed: pip install atheris."""

from __future__ import annotations

import subprocess
import sys

from tests.soak.check import Case, Check
from tests.soak.generators import small_file
from tests.soak.hostile_inputs import in_memory

_RUNS = 20_000


def _try(case: Case) -> None:
    """Let another process try inputs of one kind."""
    kind = case.random.choice(list(in_memory(small_file(case)[0])))
    found = case.folder / "found"
    found.mkdir()
    done = subprocess.run([sys.executable, "-m", "tests.soak.guided", kind, str(_RUNS),
                           str(case.random.randrange(1, 2**31)), str(found)],
                          capture_output=True, text=True)
    assert done.returncode == 0, f"{kind}: {done.stdout[-3000:]}\n{done.stderr[-5000:]}"
    case.tried += _RUNS
    case.counts[f"{kind}: {_RUNS:,} inputs"] += 1


CHECK = Check("guided", "hostile bytes that reach new branches give a typed error", "inputs", 10**6,
              _try, is_extra=True)
