"""A process that lives long does not grow."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path

import pyarrow as pa
from pyarrow.parquet.encryption import EncryptionConfiguration

import secure_bloom
from secure_bloom.index import Index
from secure_bloom.keys import InMemoryKms
from tests.modes import MASTER_KEYS
from tests.soak.check import Case, Check

_OPENS = 400  # of each file that is written
_GROWTH = 24 * 2**20  # bytes; allocators keep some
_HANDLES = 8  # indexes that were opened stay open for a while


def _try(case: Case) -> None:
    """Write, open, look up and close again and again, for a while."""
    lake, kms = case.folder / "lake", InMemoryKms(MASTER_KEYS)
    deadline = time.monotonic() + case.seconds
    before, measured_at = None, time.monotonic() + case.seconds / 3
    while before is None or time.monotonic() < deadline:
        case.tried += _use_all(case, lake, kms)
        if before is None and time.monotonic() > measured_at:
            before = _used()
    memory, handles, threads = (new - old for new, old in zip(_used(), before, strict=True))
    assert memory < _GROWTH, f"{memory} bytes more"
    assert handles <= _HANDLES and threads <= 0, f"{handles} handles and {threads} threads more"


def _use_all(case: Case, lake: Path, kms: InMemoryKms) -> int:
    """Use all that a service may use; return the number of operations."""
    table = pa.table({"ssn": case.numpy.integers(0, 10**6, 200), "open": range(200)})
    secure_bloom.write_dataset(table, lake, mode="overwrite", bloom_filters=True, keys=kms,
                               encryption=EncryptionConfiguration("kf", column_keys={
                                   "kc1": ["ssn"]}))
    secure_bloom.index.build(lake, "ssn", kms)
    value = table["ssn"][0].as_py()
    [path] = lake.glob("*.parquet")
    for _ in range(_OPENS):
        with secure_bloom.ParquetFile(path, kms) as file:
            assert file.prune([("ssn", "==", value)]) == [0]
    for _ in range(_OPENS // 4):
        assert Index.open(lake, kms).lookup("ssn", [value]).row_groups[0]
    rows = secure_bloom.read_table(lake, kms, filters=[("ssn", "==", value)])
    assert rows.num_rows
    assert secure_bloom.dataset(lake, kms).count_rows() == 200
    assert secure_bloom.find(lake, "ssn", [value], kms).num_rows == rows.num_rows
    return 5 + _OPENS + _OPENS // 4


def _used() -> tuple[int, int, int]:
    gc.collect()
    with open("/proc/self/statm") as file:
        memory = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return memory, len(os.listdir("/proc/self/fd")), threading.active_count()


CHECK = Check("long_life", "memory, file handles and threads of a process do not grow",
              "operations", 10**6, _try)
