"""A process that lives long does not grow."""

from __future__ import annotations

import gc
import os
import threading

import pyarrow as pa

import secure_bloom
from tests.modes import mode
from tests.soak.check import Case, Check

_ROUNDS = 30
_GROWTH = 24 * 2**20  # bytes, after the first rounds; allocators keep some


def _try(case: Case) -> None:
    """Write, open, look up and close again and again."""
    how, path = mode("columns double gcm 128"), case.folder / "a.parquet"
    table = pa.table({"secret": case.numpy.integers(0, 10**6, 2000), "open": range(2000)})
    before = None
    for number in range(_ROUNDS):
        how.write(table, path, {"kc1": ["secret"]}, bloom_filters=True, row_group_size=500)
        with secure_bloom.ParquetFile(path, how.keys) as file:
            file.prune([("secret", "==", 7)])
        secure_bloom.read_table(case.folder, how.keys, filters=[("secret", "==", 7)])
        case.tried += 3
        if number == _ROUNDS // 3:
            before = _used()
    after = _used()
    assert before is not None
    memory, handles, threads = (new - old for new, old in zip(after, before, strict=True))
    assert memory < _GROWTH, f"{memory} bytes more"
    assert handles <= 0 and threads <= 0, f"{handles} handles and {threads} threads more"


def _used() -> tuple[int, int, int]:
    gc.collect()
    with open("/proc/self/statm") as file:
        memory = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return memory, len(os.listdir("/proc/self/fd")), threading.active_count()


CHECK = Check("long_life", "memory, file handles and threads of a process do not grow",
              "operations", 10**6, _try)
