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
from unittest import mock

import pyarrow as pa
import pyarrow.fs as pa_fs

import secure_bloom
from secure_bloom import EncryptionConfiguration, ParquetFile
from secure_bloom.errors import AuthenticationError, KeyNotFoundError
from secure_bloom.examples.leaking_file import leaking_file
from secure_bloom.index import Index
from secure_bloom.index.folder import IndexFolder
from secure_bloom.keys import InMemoryKms, Keyring, rotate_master_keys
from secure_bloom.storage import local_listing
from secure_bloom.storage.visibility import data_files
from tests.index.helpers import age
from tests.index.test_crashes import dies
from tests.modes import MASTER_KEYS
from tests.soak.check import Case, Check
from tests.soak.disk import record, restore

KEYS = InMemoryKms(MASTER_KEYS)
ENCRYPTION = EncryptionConfiguration("kf", {"kc1": ["ssn"]})
EXTERNAL = EncryptionConfiguration("kf", {"kc1": ["ssn"]}, internal_key_material=False)
LOCAL = pa_fs.LocalFileSystem()
_ROWS = 10
_DEATHS, _POWER_CUTS = 5, 20  # of each case


@dataclass(frozen=True)
class Operation:
    """Something that changes a folder.

    ``make`` makes the folder, ``run`` changes it, ``look`` returns what a user sees; it raises if
    something is damaged. ``again`` tells whether it may be run again after it has happened,
    ``on_stores`` whether it is tried on object stores, too.
    """

    make: Callable[[Path], None]
    run: Callable[[Path, pa_fs.FileSystem], Any]
    look: Callable[[Path, pa_fs.FileSystem], dict[str, object]]
    again: bool = True
    on_stores: bool = False


def _try(case: Case) -> None:
    name = case.random.choice(list(OPERATIONS))
    operation = OPERATIONS[name]
    base = case.folder / "base"
    # A disk that comes back has the same files. Those of a copy have other inodes, by which an
    # index would know that they are others.
    with mock.patch.object(local_listing, "_tag", lambda found: ""):
        outcome = Outcome.of(operation, base, case.folder / "new")
        case.random.choice([_die, _cut_power])(case, name, base, outcome)


@dataclass
class Outcome:
    """What a user sees before and after an operation."""

    operation: Operation
    old: dict[str, object]
    new: dict[str, object]

    @classmethod
    def of(cls, operation: Operation, base: Path, new: Path) -> Outcome:
        """Make the folder ``base``; run the operation in a copy of it."""
        operation.make(base)
        shutil.copytree(base, new)
        operation.run(new, LOCAL)
        outcome = cls(operation, operation.look(base, LOCAL), operation.look(new, LOCAL))
        assert outcome.old != outcome.new
        return outcome

    def check(self, folder: Path, filesystem: pa_fs.FileSystem, *, is_over: bool) -> str:
        """Check a folder after a fault, run the operation again; return what had happened."""
        look = self.operation.look
        found = look(folder, filesystem)
        assert found.keys() == self.old.keys(), sorted(found)
        for name, seen in found.items():
            assert seen == self.new[name] or (seen == self.old[name] and not is_over), \
                f"{name}: {seen}"
        if found != self.new or self.operation.again:
            self.operation.run(folder, filesystem)
            again = look(folder, filesystem)
            assert again == self.new, f"run again: {again}"
        return "done" if found == self.new else "not done" if found == self.old else "in part"


def _die(case: Case, name: str, base: Path, outcome: Outcome) -> None:
    """Kill a fork of this process before or after a random operation on files."""
    for number in range(_DEATHS):
        folder = case.folder / str(number)
        shutil.copytree(base, folder)
        step = int(10 ** case.random.uniform(0, 2.6))
        died = dies(lambda fs, folder=folder: outcome.operation.run(folder, fs), step)
        seen = outcome.check(folder, LOCAL, is_over=not died)
        if died:
            case.tried += 1
            case.counts[f"{name}: killed, {seen}"] += 1


def _cut_power(case: Case, name: str, base: Path, outcome: Outcome) -> None:
    """Restore what the disk may have after a part of the operation."""
    folder = case.folder / "recorded"
    shutil.copytree(base, folder)
    events = record(lambda fs: outcome.operation.run(folder, fs), folder, case.folder / "notes")
    for number in range(_POWER_CUTS):
        at = case.random.choice([len(events), case.random.randrange(len(events) + 1)])
        folder = case.folder / f"cut {number}"
        restore(base, events[:at], folder, case.random)
        try:
            seen = outcome.check(folder, LOCAL, is_over=at == len(events))
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


def _days(folder: Path) -> None:
    for day in range(3):
        _write_day(folder, day, day)
    age(folder)


def _overwrite_day(folder: Path, filesystem: pa_fs.FileSystem) -> None:
    _write_day(folder, 1, 4, filesystem)


def _write_day(folder: Path, day: int, part: int,
               filesystem: pa_fs.FileSystem | None = None) -> None:
    secure_bloom.write_dataset(_part(part).append_column("day", pa.array([day] * _ROWS)),
                               str(folder), mode="overwrite_partitions", partition_by="day",
                               encryption=ENCRYPTION, keys=KEYS, filesystem=filesystem)


def _part(part: int) -> pa.Table:
    ids = range(part * _ROWS, (part + 1) * _ROWS)
    return pa.table({"id": ids, "ssn": [f"s{number}" for number in ids]})


def _with_material_beside(folder: Path) -> None:
    folder.mkdir()
    for part in range(2):
        secure_bloom.write_table(_part(part), folder / f"{part}.parquet", encryption=EXTERNAL,
                                 keys=KEYS, bloom_filters=["ssn"])


def _rows(folder: Path, filesystem: pa_fs.FileSystem) -> dict[str, object]:
    rows = secure_bloom.read_table(str(folder), KEYS, filesystem=filesystem)
    return {"rows": sorted(rows["id"].to_pylist())}


def _check(result: Any) -> None:
    if result.failed:
        raise OSError(str(result.failed))


def _erase(folder: Path, filesystem: pa_fs.FileSystem) -> None:
    result = secure_bloom.erase(str(folder), "ssn", ["s1", f"s{_ROWS}"], KEYS, max_share=1,
                                filesystem=filesystem, files_at_once=1)
    assert result.ok


def _attach(folder: Path, filesystem: pa_fs.FileSystem) -> None:
    _check(secure_bloom.attach(str(folder), ["id"], KEYS, filesystem=filesystem,
                               files_at_once=1))


def _filters(folder: Path, filesystem: pa_fs.FileSystem) -> dict[str, object]:
    """Return of each file its rows, and which columns have a filter."""
    found: dict[str, object] = {}
    for path in _paths(folder, filesystem):
        with ParquetFile(path, KEYS, filesystem=filesystem) as file:
            try:
                filters = sorted({one.column for one in file.bloom_filters})
            except AuthenticationError:
                filters = ["a plaintext filter of an encrypted column"]
            found[Path(path).name] = file.read()["ssn"].to_pylist(), filters
    return found


def _leaking(folder: Path) -> None:
    folder.mkdir()
    for number in range(2):
        (folder / f"{number}.parquet").write_bytes(leaking_file(
            _part(number), ["ssn"], KEYS, row_group_size=5,
            encryption=EncryptionConfiguration("kf", {"kc1": ["ssn"]}, plaintext_footer=True)))


def _seal(folder: Path, filesystem: pa_fs.FileSystem) -> None:
    _check(secure_bloom.seal(str(folder), KEYS, filesystem=filesystem, files_at_once=1))


def _rotate(folder: Path, filesystem: pa_fs.FileSystem) -> None:
    _check(rotate_master_keys(str(folder), KEYS, old="kc1", new="kc2", filesystem=filesystem))


def _opens(folder: Path, filesystem: pa_fs.FileSystem) -> dict[str, object]:
    """Return of each file its rows, and which keys open it."""
    return {Path(path).name: [_numbers(path, keys, filesystem) for keys in _keys()]
            for path in _paths(folder, filesystem)}


def _paths(folder: Path, filesystem: pa_fs.FileSystem) -> list[str]:
    return data_files(filesystem, str(folder))


def _numbers(path: str, keys: InMemoryKms, filesystem: pa_fs.FileSystem) -> list[str] | None:
    try:
        with ParquetFile(path, keys, filesystem=filesystem) as file:
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
    _check(index.update())
    index.compact()
    index.vacuum(0)


def _build(folder: Path, filesystem: pa_fs.FileSystem) -> None:
    _check(secure_bloom.index.build(str(folder), "ssn", KEYS, filesystem=filesystem))


def _covered(folder: Path, filesystem: pa_fs.FileSystem) -> dict[str, object]:
    """Return how many files the index covers; look all values up."""
    values = [f"s{number}" for number in range(3 * _ROWS)]
    if IndexFolder(filesystem, str(folder), "ssn").newest() is None:
        return {"covered": 0}
    found = Index.open(str(folder), KEYS, filesystem=filesystem).lookup("ssn", values)
    stored = {Path(path).name: _numbers(path, KEYS, filesystem) or []
              for path in _paths(folder, filesystem)}
    for value, groups in zip(values, found.row_groups, strict=True):
        with_value = {name for name, rows in stored.items() if value in rows}
        assert with_value <= {*groups, *found.uncovered}, value
    return {"covered": len(stored) - len(found.uncovered)}


def _indexed(folder: Path) -> None:
    _lake(folder)
    _build(folder, LOCAL)


def _rotate_index(folder: Path, filesystem: pa_fs.FileSystem) -> None:
    index = Index.open(str(folder), KEYS, filesystem=filesystem)
    _check(index.rotate(old="kc1", new="kc2"))


def _opens_index(folder: Path, filesystem: pa_fs.FileSystem) -> dict[str, object]:
    return {"keys": [_has_index(folder, keys) for keys in _keys()]} | _covered(folder, filesystem)


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


def _names(folder: Path, filesystem: pa_fs.FileSystem) -> dict[str, object]:
    path = folder / "keys.json"
    path.chmod(0o600)  # modes are not restored
    ring = Keyring(path)
    return {"keys": [(name, hashlib.sha256(ring.export(name)).hexdigest())
                     for name in ring.names()]}


def _rows_and_index(folder: Path, filesystem: pa_fs.FileSystem) -> dict[str, object]:
    _covered(folder, filesystem)  # may cover any number of files, but must miss no value
    return _rows(folder, filesystem)


OPERATIONS: dict[str, Operation] = {
    "append": Operation(_lake, lambda folder, fs: _append(folder, 3, fs), _rows, again=False,
                        on_stores=True),
    "overwrite": Operation(_lake, lambda folder, fs: _append(folder, 4, fs, mode="overwrite"),
                           _rows, on_stores=True),
    "overwrite, partitions": Operation(_days, _overwrite_day, _rows, on_stores=True),
    "erase": Operation(_lake, _erase, _rows, on_stores=True),
    "erase, with an index": Operation(_indexed, _erase, _rows_and_index),
    "attach": Operation(_lake, _attach, _filters, on_stores=True),
    "seal": Operation(_leaking, _seal, _filters, on_stores=True),
    "rotate": Operation(_lake, _rotate, _opens, on_stores=True),
    "rotate, external": Operation(_with_material_beside, _rotate, _opens),
    "index, build": Operation(_lake, _build, _covered),
    "index, update": Operation(_half_indexed, _update, _covered),
    "index, rotate": Operation(_indexed, _rotate_index, _opens_index),
    "keyring": Operation(_keyring, _change_keyring, _names, again=False),
}

CHECK = Check("crashes", "an operation that dies, or loses power, has happened or not, and can be "
              "run again", "deaths and power cuts", 2000, _try)
