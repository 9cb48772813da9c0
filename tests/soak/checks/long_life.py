"""A process that lives long does not grow."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path

import pyarrow as pa

import secure_bloom
from secure_bloom import EncryptionConfiguration
from secure_bloom.arrow.encryption import FileEncryption
from secure_bloom.arrow.keys import PlaceholderKeys
from secure_bloom.index import Index
from secure_bloom.keys import InMemoryKms
from secure_bloom.keys.material import KeyMaterial
from secure_bloom.storage.table_names import material_path
from tests.modes import MASTER_KEYS
from tests.soak.check import Case, Check

_OPENS = 400  # of each file that is written
_GROWTH = 24 * 2**20  # bytes; allocators keep some
_HOLDERS = (PlaceholderKeys, FileEncryption, KeyMaterial)
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
    memory, handles, threads, holders = (
        new - old for new, old in zip(_used(), before, strict=True))
    assert memory < _GROWTH, f"{memory} bytes more"
    assert handles <= _HANDLES and threads <= 0, f"{handles} handles and {threads} threads more"
    assert holders <= 0, f"{holders} objects more that hold the keys of a file"


def _use_all(case: Case, lake: Path, kms: InMemoryKms) -> int:
    """Use all that a service may use; return the number of operations."""
    table = pa.table({"ssn": case.numpy.integers(0, 10**6, 200), "open": range(200)})
    secure_bloom.write_dataset(table, lake, mode="overwrite", bloom_filters=True, keys=kms,
                               encryption=EncryptionConfiguration("kf", column_keys={
                                   "kc1": ["ssn"]}))
    secure_bloom.index.build(lake, "ssn", kms)
    apart = case.folder / "apart.parquet"
    apart.unlink(missing_ok=True)
    Path(material_path(str(apart))).unlink(missing_ok=True)
    secure_bloom.write_table(table, apart, keys=kms, encryption=EncryptionConfiguration(
        "kf", column_keys={"kc1": ["ssn"]}, internal_key_material=False))
    assert secure_bloom.ParquetFile(apart, kms).read().num_rows == 200  # nobody closes it
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
    return 7 + _OPENS + _OPENS // 4


def _used() -> tuple[int, int, int, int]:
    """Memory, file handles, threads, and objects that hold keys of a file."""
    gc.collect()
    with open("/proc/self/statm") as file:
        memory = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    holders = sum(isinstance(one, _HOLDERS) for one in gc.get_objects())
    return memory, len(os.listdir("/proc/self/fd")), threading.active_count(), holders


CHECK = Check("long_life", "memory, file handles, threads and held keys of a process do not grow",
              "operations", 10**6, _try)
