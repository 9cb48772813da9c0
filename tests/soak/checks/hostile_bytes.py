"""Hostile bytes give typed errors: no crash, no hang, no memory that they claim."""

from __future__ import annotations

import time
import tracemalloc

from tests.memory import Peak
from tests.soak.check import Case, Check
from tests.soak.generators import damaged, small_file
from tests.soak.hostile_inputs import HostileInput, in_files, in_memory

_IN_MEMORY, _IN_FILES = 20_000, 100  # inputs of each case
_TRACED = 20  # of one input in so many, what is allocated is traced, also if it is not touched
_SECONDS = 20.0  # a bound against hangs, not a measurement: machines are busy
_MEMORY = 64 * 2**20


def _try(case: Case) -> None:
    data, mode, _ = small_file(case)
    for inputs, number in ((in_memory(data), _IN_MEMORY),
                           (in_files(data, mode, case.folder), _IN_FILES)):
        kinds = list(inputs.items())
        for _ in range(number):
            kind, one = case.random.choice(kinds)
            outcome = _outcome(kind, one, damaged(case, one.valid),
                               is_traced=case.random.randrange(_TRACED) == 0)
            case.counts[f"{kind}: {outcome}"] += 1
            case.tried += 1


def _outcome(kind: str, one: HostileInput, hostile: bytes, *, is_traced: bool) -> str:
    start, used = time.monotonic(), Peak()
    if is_traced:
        tracemalloc.start()
    try:
        one.read(hostile)
        outcome = "accepted"
    except one.errors as error:
        outcome = type(error).__name__
    finally:
        traced = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert time.monotonic() - start < _SECONDS, f"{kind} took too long"
    peak = max(traced, used.bytes())
    assert peak < _MEMORY + 4 * len(hostile), f"{kind} took {peak} bytes"
    return outcome


CHECK = Check("hostile_bytes", "hostile bytes give a typed error, and take neither time nor memory",
              "inputs", 10**7, _try)
