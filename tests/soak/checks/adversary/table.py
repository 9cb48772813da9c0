"""The table of a game: written by its owner, with all its old versions."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple
from unittest import mock

import pyarrow as pa

import secure_bloom
from secure_bloom.errors import SecureBloomError
from secure_bloom.index import Index, update
from secure_bloom.keys import InMemoryKms, rotate_master_keys

MASTER_KEYS = {"kf": b"f" * 16, "pii": b"p" * 16, "pii-2": b"q" * 16, "other": b"o" * 16}
OWNER = InMemoryKms(MASTER_KEYS)  #: also the keys of readers
PLAYER = InMemoryKms({"other": MASTER_KEYS["other"]})
PERSONS = [f"078-05-{number:02}" for number in range(12)]  #: values of ssn
STRANGER = "999-99-99"  #: a value that no row has

#: a row as it is protected: ssn and balance, of which no two rows have the same
Row = tuple[str, int]
Groups = tuple[tuple[Row, ...], ...]


class Stored(NamedTuple):
    """A file as its owner left it."""

    data: bytes
    mode: int
    identity: tuple[int, ...]


def identity_of(found: os.stat_result) -> tuple[int, ...]:
    """Return what changes with any change of a file."""
    return found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, \
        found.st_nlink


def tree(folder: Path) -> dict[str, os.stat_result]:
    """Return everything below a folder, by its relative path; links are not followed."""
    found: dict[str, os.stat_result] = {}

    def walk(path: str, prefix: str) -> None:
        for entry in os.scandir(path):
            found[prefix + entry.name] = entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                walk(entry.path, f"{prefix}{entry.name}/")

    walk(str(folder), "")
    return found


@dataclass
class Table:
    """A small table, and all that its owner has ever written to it.

    Attributes
    ----------
    folder : Path
    master_key : str
        Of ssn and balance now.
    archive : dict of str to list of bytes
        All versions of each file of the folder, by relative path, the oldest first.
    versions : dict of bytes to Groups
        Rows of each data file that the owner has written, by the digest of its content.
    """

    folder: Path
    random: random.Random
    is_indexed: bool = True
    partition_by: tuple[str, ...] = ()
    master_key: str = "pii"
    archive: dict[str, list[bytes]] = field(default_factory=dict)
    versions: dict[bytes, Groups] = field(default_factory=dict)
    files: dict[str, Stored] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)
    _options: dict[str, Any] = field(default_factory=dict)
    _next: int = 1000

    @classmethod
    def write(cls, folder: Path, choose: random.Random, operations: Iterable[str] | None = None,
              *, is_indexed: bool | None = None, is_partitioned: bool | None = None,
              **options: Any) -> Table:
        """Write a table with a history; what is not given is random."""
        if is_indexed is None:
            is_indexed = choose.random() < 0.85
        if is_partitioned is None:
            is_partitioned = choose.random() < 0.2
        table = cls(folder, choose, is_indexed, ("day",) if is_partitioned else ())
        table._options = {"compression": choose.choice(["none", "none", "zstd"]),
                          "bloom_filters": {"ssn": {"max_bytes": 64}},
                          "write_page_index": choose.random() < 0.2,
                          "is_signed": choose.random() < 0.25,
                          "double_wrapping": choose.random() < 0.5,
                          "internal_key_material": choose.random() < 0.5,
                          "has_plaintext": choose.random() < 0.4,
                          "is_job": bool(table.partition_by) or choose.random() < 0.7, **options}
        if operations is None:
            later = [name for name in OPERATIONS if name != "append"]
            operations = ["append"] * choose.choice([1, 1, 2]) + [
                choose.choice([*later, "erase", "append"]) for _ in range(choose.randrange(1, 4))]
        with settled_at_once():
            for name in operations:
                try:
                    OPERATIONS[name](table)
                except SecureBloomError as error:  # such as a rotation of signed footers
                    table.history.append(f"{name}: {type(error).__name__}")
                else:
                    table.history.append(name)
                table.keep()
        return table

    @property
    def order(self) -> list[str]:
        """Relative paths of the owner's files, in an order that the seed determines."""
        return [path for path in self.archive if path in self.files]

    def keep(self) -> None:
        """Remember the files as they are."""
        found = {path: info for path, info in tree(self.folder).items()
                 if stat.S_ISREG(info.st_mode)}
        new = [path for path in found if path not in self.archive]
        for path in sorted(new, key=lambda path: (os.path.dirname(path), path[-4:],
                                                  found[path].st_mtime_ns, found[path].st_size)):
            self.archive[path] = []
        self.files = {path: stored for path, stored in self.files.items() if path in found}
        for path, info in found.items():
            stored = self.files.get(path)
            if stored is not None and stored.identity == identity_of(info):
                continue
            data = (self.folder / path).read_bytes()
            self.files[path] = Stored(data, info.st_mode, identity_of(info))
            if data not in self.archive[path]:
                self.archive[path].append(data)
                if path.endswith(".parquet"):
                    self._keep_version(path, data)

    def _keep_version(self, path: str, data: bytes) -> None:
        with secure_bloom.ParquetFile(self.folder / path, OWNER) as file:
            self.versions[digest(data)] = groups_of(file)

    def restore(self) -> None:
        """Undo what a player has done; the index then covers all files again."""
        changed = False
        found = tree(self.folder)
        for path, info in sorted(found.items(), key=lambda item: -len(item[0])):
            stored = self.files.get(path)
            if stat.S_ISDIR(info.st_mode):
                if not any(other.startswith(f"{path}/") for other in self.files):
                    shutil.rmtree(self.folder / path, ignore_errors=True)
                    changed = True
            elif stored is None or stored.identity != identity_of(info):
                os.unlink(self.folder / path)
                changed = True
        for path, stored in self.files.items():
            target = self.folder / path
            if not target.exists():
                changed = True
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(stored.data)
                os.utime(target, ns=(stored.identity[3], stored.identity[3]))
        if changed:
            self.update()
            self.keep()

    # --- what the owner does ---------------------------------------------------------------------

    def append(self, mode: Literal["append", "overwrite"] = "append") -> None:
        """Add the files of a job, or a file."""
        options = dict(self._options)
        data = self._rows(options.pop("has_plaintext"))
        is_job, internal = options.pop("is_job"), options.pop("internal_key_material")
        columns = {self.master_key: ["ssn", "balance"], "other": ["note"]}
        if not self._options["has_plaintext"]:
            columns["kf"] = ["city"]
        options["encryption"] = secure_bloom.EncryptionConfiguration(
            "kf", columns, plaintext_footer=options.pop("is_signed"),
            double_wrapping=options.pop("double_wrapping"),
            # A file with material beside it cannot be replaced.
            internal_key_material=is_job or internal or mode == "overwrite")
        options.setdefault("row_group_size", self.random.choice([1, 2, 4, 8, 100]))
        rows = options.pop("max_rows_per_file", self.random.choice([8, 16, 100]))
        if is_job:
            secure_bloom.write_dataset(
                data, self.folder, mode=mode, index_columns=["ssn"] if self.is_indexed else (),
                partition_by=self.partition_by, keys=OWNER,
                max_rows_per_file=rows, **options)
            return
        number = 1 if mode == "overwrite" else len(self.files)
        self.folder.mkdir(exist_ok=True)
        secure_bloom.write_table(data, self.folder / f"f{number}.parquet", keys=OWNER, **options)
        if self.is_indexed:
            secure_bloom.index.build(self.folder, "ssn", OWNER)

    def _rows(self, has_plaintext: bool) -> pa.Table:
        size = self.random.choice([4, 8, 16])
        start, self._next = self._next, self._next + size
        ssn = [self.random.choice(PERSONS) for _ in range(size)]
        return pa.table({
            "ssn": ssn, "balance": range(start, start + size),
            "note": [f"note {number}" for number in range(size)],
            "city": ["Rome", "Oslo"] * (size // 2),
            **({"day": [self.random.choice([1, 2]) for _ in range(size)]}
               if self.partition_by else {})})

    def overwrite(self) -> None:
        """Replace all files by a new job's."""
        self.append("overwrite")

    def erase(self) -> None:
        """Erase a person who has rows."""
        persons = sorted({row[0] for groups in self.rows_now() for rows in groups for row in rows})
        if len(persons) > 1:
            secure_bloom.erase(self.folder, "ssn", [self.random.choice(persons)], OWNER,
                               max_share=1)

    def rows_now(self) -> list[Groups]:
        """Return the rows of all data files."""
        return [self.versions[digest(stored.data)]
                for path, stored in self.files.items() if path.endswith(".parquet")]

    def attach(self) -> None:
        """Replace the filters."""
        secure_bloom.attach(self.folder, {"ssn": {"max_bytes": 64}, "balance": {"max_bytes": 64}},
                            OWNER, replace=True)
        self.update()

    def strip(self) -> None:
        """Remove the filters."""
        secure_bloom.strip(self.folder, OWNER, columns=["ssn"])
        self.update()

    def seal(self) -> None:
        """Seal filters, which changes nothing here."""
        secure_bloom.seal(self.folder, OWNER)
        self.update()

    def rotate(self) -> None:
        """Rotate the master key of ssn."""
        new = "pii-2" if self.master_key == "pii" else "pii"
        rotate_master_keys(self.folder, OWNER, old=self.master_key, new=new)
        if self.is_indexed:
            Index.open(self.folder, OWNER).rotate(old=self.master_key, new=new)
        self.master_key = new
        self.update()

    def compact(self) -> None:
        """Merge the segments of the index."""
        if self.is_indexed:
            Index.open(self.folder, OWNER).compact()

    def vacuum(self) -> None:
        """Delete what the index does not need."""
        if self.is_indexed:
            Index.open(self.folder, OWNER).vacuum(0)

    def update(self) -> None:
        """Let the index cover all files."""
        if self.is_indexed:
            with settled_at_once():
                Index.open(self.folder, OWNER).update()


OPERATIONS: dict[str, Callable[[Table], None]] = {
    function.__name__: function for function in (
        Table.append, Table.overwrite, Table.erase, Table.attach, Table.strip, Table.seal,
        Table.rotate, Table.compact, Table.vacuum)}


def settled_at_once() -> Any:
    """Let indexes cover files that have just changed, as if two seconds had passed."""
    return mock.patch.object(update, "_SETTLED_NS", 0)


def digest(data: bytes) -> bytes:
    """Return the digest by which contents are known."""
    return hashlib.sha256(data).digest()


def groups_of(file: secure_bloom.ParquetFile) -> Groups:
    """Read the rows of each row group, without any filter."""
    return tuple(map(rows_of, file.iter_tables(["ssn", "balance"])))


def rows_of(table: pa.Table) -> tuple[Row, ...]:
    """Return the rows of a table as they are protected."""
    return tuple(zip(table["ssn"].to_pylist(), table["balance"].to_pylist(), strict=True))
