"""An operation that dies, or whose machine loses power, has happened or not, and can be run again.

What a user sees of a folder is a mapping (``look``). Before an operation it is ``old``, after it is
``new``; after a death each of its entries is one or the other.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pa_fs

import secure_bloom
from secure_bloom import EncryptionConfiguration, ParquetFile
from secure_bloom.errors import AuthenticationError, KeyNotFoundError
from secure_bloom.examples.leaking_file import leaking_file
from secure_bloom.index import Index
from secure_bloom.keys import InMemoryKms, Keyring, rotate_master_keys
from secure_bloom.storage.visibility import data_files
from tests.index.helpers import age
from tests.index.test_crashes import dies
from tests.modes import MASTER_KEYS
from tests.soak.check import Case, Check
from tests.soak.disk import record, restore

KEYS = InMemoryKms(MASTER_KEYS)
ENCRYPTION = EncryptionConfiguration("kf", {"kc1": ["ssn"]})
EXTERNAL = EncryptionConfiguration("kf", {"kc1": ["ssn"]}, internal_key_material=False)
_LOCAL = pa_fs.LocalFileSystem()
_ROWS = 10
_DEATHS, _POWER_CUTS = 5, 20  # of each case


@dataclass(frozen=True)
class Operation:
    """Something that changes a folder.

    ``make`` makes the folder, ``run`` changes it, ``look`` returns what a user sees; it raises if
    something is damaged. ``again`` tells whether it may be run again after it has happened.
    """

    make: Callable[[Path], None]
    run: Callable[[Path, pa_fs.FileSystem], Any]
    look: Callable[[Path], dict[str, object]]
    again: bool = True


def _try(case: Case) -> None:
    name = case.random.choice(list(_OPERATIONS))
    operation = _OPERATIONS[name]
    base = case.folder / "base"
    operation.make(base)
    new = case.folder / "new"
    shutil.copytree(base, new)
    operation.run(new, _LOCAL)
    outcome = _Outcome(operation, operation.look(base), operation.look(new))
    assert outcome.old != outcome.new
    case.random.choice([_die, _cut_power])(case, name, base, outcome)


@dataclass
class _Outcome:
    operation: Operation
    old: dict[str, object]
    new: dict[str, object]

    def check(self, folder: Path, *, is_over: bool) -> str:
        """Check a folder after a death, run the operation again; return what had happened."""
        found = self.operation.look(folder)
        assert found.keys() == self.old.keys(), sorted(found)
        for name, seen in found.items():
            assert seen == self.new[name] or (seen == self.old[name] and not is_over), \
                f"{name}: {seen}"
        if found != self.new or self.operation.again:
            self.operation.run(folder, _LOCAL)
            again = self.operation.look(folder)
            assert again == self.new, f"run again: {again}"
        return "done" if found == self.new else "not done" if found == self.old else "in part"


def _die(case: Case, name: str, base: Path, outcome: _Outcome) -> None:
    """Kill a fork of this process before or after a random operation on files."""
    for number in range(_DEATHS):
        folder = case.folder / str(number)
        shutil.copytree(base, folder)
        step = int(10 ** case.random.uniform(0, 2.6))
        died = dies(lambda fs, folder=folder: outcome.operation.run(folder, fs), step)
        case.counts[f"{name}: killed, {outcome.check(folder, is_over=not died)}"] += died
        case.tried += died


def _cut_power(case: Case, name: str, base: Path, outcome: _Outcome) -> None:
    """Restore what the disk may have after a part of the operation."""
    folder = case.folder / "recorded"
    shutil.copytree(base, folder)
    events = record(lambda fs: outcome.operation.run(folder, fs), folder, case.folder / "notes")
    for number in range(_POWER_CUTS):
        at = case.random.choice([len(events), case.random.randrange(len(events) + 1)])
        folder = case.folder / f"cut {number}"
        restore(base, events[:at], folder, case.random)
        try:
            seen = outcome.check(folder, is_over=at == len(events))
        except BaseException as error:
            error.add_note(f"{name}: power cut {number}, after {at} of {len(events)} operations")
            raise
        case.counts[f"{name}: power cut, {seen}"] += 1
        case.tried += 1


# --- the operations ------------------------------------------------------------------------------

def _lake(folder: Path) -> None:
    for part in range(3):
        _append(folder, part)
    age(folder)


def _append(folder: Path, part: int, filesystem: pa_fs.FileSystem | None = None, *,
            mode: str = "append") -> None:
    secure_bloom.write_dataset(_part(part), str(folder), mode=mode, bloom_filters=["ssn"],
                               encryption=ENCRYPTION, keys=KEYS, filesystem=filesystem)


def _part(part: int) -> pa.Table:
    ids = range(part * _ROWS, (part + 1) * _ROWS)
    return pa.table({"id": ids, "ssn": [f"s{number}" for number in ids]})


def _with_material_beside(folder: Path) -> None:
    folder.mkdir()
    for part in range(2):
        secure_bloom.write_table(_part(part), folder / f"{part}.parquet", encryption=EXTERNAL,
                                 keys=KEYS, bloom_filters=["ssn"])


def _rows(folder: Path) -> dict[str, object]:
    return {"rows": sorted(secure_bloom.read_table(folder, KEYS)["id"].to_pylist())}


def _erase(folder: Path, filesystem: pa_fs.FileSystem) -> None:
    result = secure_bloom.erase(str(folder), "ssn", ["s1", f"s{_ROWS}"], KEYS, max_share=1,
                                filesystem=filesystem, files_at_once=1)
    assert result.is_complete


def _attach(folder: Path, filesystem: pa_fs.FileSystem) -> None:
    result = secure_bloom.attach(str(folder), ["id"], KEYS, filesystem=filesystem,
                                 files_at_once=1)
    assert not result.failed


def _filters(folder: Path) -> dict[str, object]:
    """Return of each file its rows, and which columns have a filter."""
    found: dict[str, object] = {}
    for path in sorted(folder.glob("*.parquet")):
        with ParquetFile(path, KEYS) as file:
            try:
                filters = sorted({one.column for one in file.bloom_filters})
            except AuthenticationError:
                filters = ["a plaintext filter of an encrypted column"]
            found[path.name] = file.read()["ssn"].to_pylist(), filters
    return found


def _leaking(folder: Path) -> None:
    folder.mkdir()
    for number in range(2):
        (folder / f"{number}.parquet").write_bytes(leaking_file(
            _part(number), ["ssn"], KEYS, kms=KEYS, row_group_size=5,
            encryption=EncryptionConfiguration("kf", {"kc1": ["ssn"]}, plaintext_footer=True)))


def _seal(folder: Path, filesystem: pa_fs.FileSystem) -> None:
    result = secure_bloom.seal(str(folder), KEYS, filesystem=filesystem, files_at_once=1)
    assert not result.failed


def _rotate(folder: Path, filesystem: pa_fs.FileSystem) -> None:
    result = rotate_master_keys(str(folder), KEYS, old="kc1", new="kc2", filesystem=filesystem)
    assert not result.failed


def _opens(folder: Path) -> dict[str, object]:
    """Return of each file its rows, and which keys open it."""
    return {path.name: [_numbers(path, keys) for keys in _keys()]
            for path in sorted(folder.glob("*.parquet"))}


def _numbers(path: Path, keys: InMemoryKms) -> list[str] | None:
    try:
        with ParquetFile(path, keys) as file:
            return file.read()["ssn"].to_pylist()
    except KeyNotFoundError:
        return None


def _keys() -> list[InMemoryKms]:
    """Return clients with all keys, without the new one and without the old one."""
    return [InMemoryKms({name: key for name, key in MASTER_KEYS.items() if name != left})
            for left in ("", "kc2", "kc1")]


def _half_indexed(folder: Path) -> None:
    _lake(folder)
    last = max(folder.glob("*.parquet"))
    hidden = last.rename(folder / f".{last.name}")
    secure_bloom.index.build(folder, "ssn", KEYS)
    hidden.rename(last)


def _update(folder: Path, filesystem: pa_fs.FileSystem) -> None:
    index = Index.open(str(folder), KEYS, filesystem=filesystem)
    assert not index.update().failed
    index.compact()
    index.vacuum(0)


def _build(folder: Path, filesystem: pa_fs.FileSystem) -> None:
    assert not secure_bloom.index.build(str(folder), "ssn", KEYS, filesystem=filesystem).failed


def _covered(folder: Path) -> dict[str, object]:
    """Return how many files the index covers; look all values up."""
    values = [f"s{number}" for number in range(3 * _ROWS)]
    if not any((folder / "_index").rglob("*.manifest")):
        return {"covered": 0}
    found = Index.open(folder, KEYS).lookup("ssn", values)
    paths = [Path(path).name for path in data_files(_LOCAL, str(folder))]
    for number, groups in enumerate(found.row_groups):
        with_value = {path for path in paths if f"s{number}" in _numbers(folder / path, KEYS)}
        assert with_value <= {*groups, *found.uncovered}, f"s{number}"
    return {"covered": len(paths) - len(found.uncovered)}


def _indexed(folder: Path) -> None:
    _lake(folder)
    _build(folder, _LOCAL)


def _rotate_index(folder: Path, filesystem: pa_fs.FileSystem) -> None:
    assert not Index.open(str(folder), KEYS, filesystem=filesystem) \
        .rotate(old="kc1", new="kc2").failed


def _opens_index(folder: Path) -> dict[str, object]:
    return {"keys": [_has_index(folder, keys) for keys in _keys()]} | _covered(folder)


def _has_index(folder: Path, keys: InMemoryKms) -> bool:
    try:
        return bool(Index.open(folder, keys).lookup("ssn", ["s1"]).row_groups[0])
    except KeyNotFoundError:
        return False


def _keyring(folder: Path) -> None:
    folder.mkdir()
    ring = Keyring.create(folder / "keys.json")
    ring.add("a", b"a" * 16)
    ring.add("b", b"b" * 16)


def _change_keyring(folder: Path, filesystem: pa_fs.FileSystem) -> None:
    Keyring(folder / "keys.json").rename("a", "c")


def _names(folder: Path) -> dict[str, object]:
    path = folder / "keys.json"
    path.chmod(0o600)  # modes are not restored
    ring = Keyring(path)
    return {"keys": [(name, hashlib.sha256(ring.export(name)).hexdigest())
                     for name in ring.names()]}


_OPERATIONS: dict[str, Operation] = {
    "append": Operation(_lake, lambda folder, fs: _append(folder, 3, fs), _rows, again=False),
    "overwrite": Operation(_lake, lambda folder, fs: _append(folder, 4, fs, mode="overwrite"),
                           _rows),
    "erase": Operation(_lake, _erase, _rows),
    "erase, with an index": Operation(_indexed, _erase,
                                      lambda folder: _rows(folder) | _nothing_wrong(folder)),
    "attach": Operation(_lake, _attach, _filters),
    "seal": Operation(_leaking, _seal, _filters),
    "rotate": Operation(_lake, _rotate, _opens),
    "rotate, external": Operation(_with_material_beside, _rotate, _opens),
    "index, build": Operation(_lake, _build, _covered),
    "index, update": Operation(_half_indexed, _update, _covered),
    "index, rotate": Operation(_indexed, _rotate_index, _opens_index),
    "keyring": Operation(_keyring, _change_keyring, _names, again=False),
}


def _nothing_wrong(folder: Path) -> dict[str, object]:
    _covered(folder)
    return {}


CHECK = Check("crashes", "an operation that dies, or loses power, has happened or not, and can be "
              "run again", "deaths and power cuts", 2000, _try)
