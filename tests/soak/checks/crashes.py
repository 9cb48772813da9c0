"""An operation that dies at any moment has happened or not, and can be run again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pa_fs
from pyarrow.parquet.encryption import EncryptionConfiguration

import secure_bloom
from secure_bloom.keys import InMemoryKms
from tests.index.test_crashes import dies
from tests.modes import MASTER_KEYS
from tests.soak.check import Case, Check

KEYS = InMemoryKms(MASTER_KEYS)
ENCRYPTION = EncryptionConfiguration("kf", column_keys={"kc1": ["ssn"]})


def _try(case: Case) -> None:
    """Run an operation in a fork that dies at a random step, then check, and run it again."""
    folder = case.folder / "lake"
    rows = case.random.choice([5, 40])
    for part in range(3):
        _append(folder, range(part * rows, (part + 1) * rows))
    name = case.random.choice(list(_OPERATIONS))
    operation, outcomes = _OPERATIONS[name]
    before, after = (set(found) for found in outcomes(rows))
    step = int(10 ** case.random.uniform(0, 2.6))
    died = dies(lambda filesystem: operation(folder, rows, filesystem), step)
    found = _ids(folder)
    assert len(found) == len(set(found)), "rows are there twice"
    assert set(found) in ((after,) if not died else (before, after)), f"{len(found)} rows"
    if died and set(found) == before:
        operation(folder, rows, pa_fs.LocalFileSystem())
    assert sorted(_ids(folder)) == sorted(after)
    case.tried += 1
    case.counts[f"{name}: {'died' if died else 'survived'}"] += 1


def _ids(folder: Path) -> list[int]:
    return secure_bloom.read_table(folder, KEYS)["id"].to_pylist()


def _append(folder: Path, ids: range, filesystem: pa_fs.FileSystem | None = None) -> None:
    rows = pa.table({"id": ids, "ssn": [f"s{number}" for number in ids]})
    secure_bloom.write_dataset(rows, str(folder), mode="append", bloom_filters=["ssn"],
                               encryption=ENCRYPTION, keys=KEYS, filesystem=filesystem)


def _erase(folder: Path, rows: int, filesystem: pa_fs.FileSystem) -> None:
    secure_bloom.erase(str(folder), "ssn", ["s1", f"s{rows}"], KEYS, max_share=1,
                       filesystem=filesystem, files_at_once=1)


def _attach(folder: Path, rows: int, filesystem: pa_fs.FileSystem) -> None:
    secure_bloom.attach(str(folder), ["id"], KEYS, filesystem=filesystem, files_at_once=1)


_OPERATIONS: dict[str, tuple[Callable, Callable]] = {
    "append": (lambda folder, rows, fs: _append(folder, range(3 * rows, 4 * rows), fs),
               lambda rows: (range(3 * rows), range(4 * rows))),
    "erase": (_erase, lambda rows: (range(3 * rows), set(range(3 * rows)) - {1, rows})),
    "attach": (_attach, lambda rows: (range(3 * rows), range(3 * rows))),
}

CHECK = Check("crashes", "an operation that dies has happened or not, and can be run again",
              "deaths", 2000, _try)
