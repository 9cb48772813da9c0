"""The player, who may change everything in the folder, but has only keys of other columns."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import stat
from pathlib import Path

from tests.soak.checks.adversary.judge import Judge
from tests.soak.checks.adversary.table import Table, tree

_MOST = 4 << 20  # bytes of a file that the player reads


class Player:
    """What moves are made of.

    Attributes
    ----------
    table : Table
    judge : Judge
        Is told what the player writes under keys of his own.
    random : random.Random
    outside : Path
        A folder of the player.
    """

    def __init__(self, table: Table, judge: Judge, outside: Path, choose: random.Random):
        self.table, self.judge, self.outside, self.random = table, judge, outside, choose
        self.folder = table.folder
        outside.mkdir(exist_ok=True)

    # --- choices ---------------------------------------------------------------------------------

    def files(self, *suffixes: str) -> list[str]:
        """Return regular files, in an order that the seed determines."""
        order = {path: number for number, path in enumerate(self.table.archive)}
        return sorted((path for path, info in tree(self.folder).items()
                       if stat.S_ISREG(info.st_mode) and path.endswith(suffixes or "")),
                      key=lambda path: (order.get(path, len(order)), path))

    def data(self) -> list[str]:
        """Return the data files."""
        return self.files(".parquet")

    def any_file(self) -> str:
        """Return a file, most often of data or of the index."""
        found = self.data() if self.random.random() < 0.5 else self.files()
        return self.random.choice(found)

    def old(self, path: str) -> bytes:
        """Return some version of a file."""
        versions = self.table.archive.get(path) or [self.read(path)]
        return self.random.choice(versions)

    def any_old(self, suffix: str = ".parquet") -> bytes:
        """Return some version of some file of the owner."""
        return self.random.choice([data for path, versions in self.table.archive.items()
                                   if path.endswith(suffix) for data in versions])

    def name_beside(self, path: str) -> str:
        """Return another name in the folder of a file."""
        names = ["x.parquet", "y.parquet", "_h.parquet", ".h.parquet", "X.parquet", "a b.parquet",
                 "n\n.parquet", "part-00000-" + "a" * 32 + "-" + "b" * 32 + ".parquet",
                 os.path.basename(path).upper()]
        folders = ["", "", "", "sub", "_h", ".h", "day=1", "day=x", "DAY=1", "city=Evil",
                   "ssn=078-05-01", "SSN=1", "balance=7", "note=x", "_staging", "_index/ssn", "="]
        return os.path.join(os.path.dirname(path), self.random.choice(folders),
                            self.random.choice(names))

    # --- changes ---------------------------------------------------------------------------------

    def read(self, path: str) -> bytes:
        """Return a regular file; nothing of another one."""
        full = self.folder / path
        with contextlib.suppress(OSError):
            found = os.lstat(full)
            if stat.S_ISREG(found.st_mode) and found.st_size <= _MOST:
                return full.read_bytes()
        return b""

    def time(self, path: str) -> int | None:
        """Return the time of a file."""
        with contextlib.suppress(OSError):
            return os.lstat(self.folder / path).st_mtime_ns
        return None

    def write(self, path: str, data: bytes, time: int | None = None) -> None:
        """Write a file, in place or as a new one, and set its time."""
        full = self.make_room(path)
        with contextlib.suppress(OSError):
            found = os.lstat(full)
            if stat.S_ISREG(found.st_mode) and self.random.random() < 0.5:
                with open(full, "r+b") as file:
                    file.write(data)
                    file.truncate()
                self.set_time(path, time)
                return
        self.remove(path)
        full.write_bytes(data)
        self.set_time(path, time)

    def set_time(self, path: str, time: int | None) -> None:
        """Set the time of a file."""
        if time is not None:
            os.utime(self.folder / path, ns=(time, time), follow_symlinks=False)

    def make_room(self, path: str) -> Path:
        """Make the folder of a path, also where a file is in the way."""
        full = self.folder / path
        for parent in reversed(full.relative_to(self.folder).parents):
            above = self.folder / parent
            if above.is_symlink() or (above.exists() and not above.is_dir()):
                above.unlink()
            above.mkdir(exist_ok=True)
        return full

    def remove(self, path: str) -> None:
        """Remove whatever is at a path."""
        full = self.folder / path
        with contextlib.suppress(FileNotFoundError):
            if full.is_dir() and not full.is_symlink():
                shutil.rmtree(full)
            else:
                full.unlink()
