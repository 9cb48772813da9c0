"""What may be on the disk after a power cut: data and names that were not synced may be missing.

A recorder looks at a folder before and after each operation on files, and notes what has changed
and what was synced. From its notes follow the states of the disk at any moment: content of a file
since its last fsync is there, or missing, or zeros; each change of a name since the last fsync of
its folder is there or missing, in any combination, as long as the changes that it needs are there.
"""

from __future__ import annotations

import os
import pickle
import random
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.fs as pa_fs

from tests.index.test_crashes import Death


class Event(NamedTuple):
    """Something that happened to a path, relative to the folder.

    ``what`` is "create", "write", "sync", "rename" (to ``target``), "link" (as ``target``),
    "unlink", "mkdir" or "rmdir". ``data`` is the new content of a file, ``mtime`` its time.
    """

    what: str
    path: str
    target: str = ""
    data: bytes = b""
    mtime: int = 0


def record(operation: Callable[[pa_fs.FileSystem], None], folder: Path, notes: Path) \
        -> list[Event]:
    """Run an operation in a fork of this process; return what happened in a folder.

    ``notes`` is a file to which the fork writes them.
    """
    child = os.fork()
    if child == 0:
        try:
            recorder = _Recorder(folder)
            operation(recorder.filesystem())
            recorder.look()
            notes.write_bytes(pickle.dumps(recorder.events))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    events: list[Event] = pickle.loads(notes.read_bytes())
    return events


class _Recorder(Death):
    """Looks at a folder before and after each operation on files. Only for a fork."""

    def __init__(self, folder: Path):
        super().__init__(-1)  # never dies
        self.events: list[Event] = []
        self._folder, self._lock = folder, threading.RLock()
        self._seen = dict(_entries(folder))

    def around(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                self.look()
                result = operation(*args, **kwargs)
                self.look()
                if operation.__name__ == "fsync":
                    path = os.path.relpath(os.readlink(f"/proc/self/fd/{args[0]}"), self._folder)
                    self.events.append(Event("sync", path))
                return result
        return call

    def look(self) -> None:
        """Note what has changed since the last look."""
        old, self._seen = self._seen, dict(_entries(self._folder))
        gone = {path: entry for path, entry in old.items() if path not in self._seen}
        moved = {entry.inode: path for path, entry in gone.items() if not entry.is_folder}
        stays = {entry.inode: path for path, entry in self._seen.items() if path in old
                 and entry.inode == old[path].inode}
        for path, entry in sorted(self._seen.items()):  # folders before what is in them
            before = old.get(path)
            if before is not None and before.inode == entry.inode:
                if not entry.is_folder and before != entry:
                    self._note("write", path, entry)
            elif entry.is_folder:
                self._note("mkdir", path, entry)
            elif entry.inode in moved:
                source = moved.pop(entry.inode)
                del gone[source]
                self._note("rename", source, entry, path)
            elif entry.inode in stays:
                self._note("link", stays[entry.inode], entry, path)
            else:
                self._note("create", path, entry)
        for path, entry in sorted(gone.items(), reverse=True):
            self._note("rmdir" if entry.is_folder else "unlink", path, entry)

    def _note(self, what: str, path: str, entry: _Entry, target: str = "") -> None:
        data = (self._folder / path).read_bytes() if what in ("create", "write") else b""
        self.events.append(Event(what, path, target, data, entry.mtime))


class _Entry(NamedTuple):
    inode: int
    is_folder: bool
    size: int
    mtime: int


def _entries(folder: Path, below: str = "") -> Iterator[tuple[str, _Entry]]:
    with os.scandir(folder / below) as entries:
        for one in entries:
            path, found = os.path.join(below, one.name), one.stat(follow_symlinks=False)
            if one.is_dir():
                yield path, _Entry(found.st_ino, True, 0, 0)
                yield from _entries(folder, path)
            else:
                yield path, _Entry(found.st_ino, False, found.st_size, found.st_mtime_ns)


# --- what may be left ----------------------------------------------------------------------------

@dataclass
class _File:
    """What was written to a file, and what of it is certainly on the disk."""

    written: bytes
    mtime: int
    synced: bytes = b""


@dataclass
class _Names:
    """What exists, by path; None: a folder."""

    files: dict[str, _File | None] = field(default_factory=dict)

    def apply(self, event: Event, file: _File | None) -> None:
        """Carry out a change of names."""
        if event.what in ("create", "mkdir"):
            self.files[event.path] = file
        elif event.what in ("rename", "link"):
            self.files[event.target] = self.files[event.path]
        if event.what in ("rename", "unlink", "rmdir"):
            del self.files[event.path]


def restore(before: Path, events: list[Event], folder: Path, choose: random.Random) -> None:
    """Make a folder as it may be if the power is cut after these events.

    ``before`` is a copy of the folder as it was before them, all of it synced.
    """
    seen, lasting = _Names(), _Names()
    for path, entry in _entries(before):
        file = None if entry.is_folder else _File((before / path).read_bytes(), entry.mtime)
        if file is not None:
            file.synced = file.written
        seen.files[path] = lasting.files[path] = file
    waiting: list[tuple[Event, _File | None]] = []  # changes of names, not yet certain
    for event in events:
        if event.what == "write":
            file = seen.files[event.path]
            assert file is not None
            file.written, file.mtime = event.data, event.mtime
        elif event.what == "sync":
            file = seen.files.get(event.path)
            if file is not None:
                file.synced = file.written
            else:
                waiting = _settled(waiting, event.path, lasting)
        else:
            file = _File(event.data, event.mtime) if event.what == "create" else None
            seen.apply(event, file)
            waiting.append((event, file))
    lost: list[Event] = []
    shares = choose.choice([_in_order, _in_any_order])(len(waiting), choose)
    for (event, file), share in zip(waiting, shares, strict=True):
        if choose.random() < share and not any(_needs(event, other) for other in lost):
            lasting.apply(event, file)
        else:
            lost.append(event)
    _store(lasting, folder, choose)


def _in_order(number: int, choose: random.Random) -> list[float]:
    first = choose.randrange(number + 1)
    return [1.0] * first + [0.0] * (number - first)


def _in_any_order(number: int, choose: random.Random) -> list[float]:
    return [choose.choice([0.3, 0.7])] * number


def _settled(waiting: list[tuple[Event, _File | None]], folder: str, lasting: _Names) \
        -> list[tuple[Event, _File | None]]:
    """Make the changes in a folder certain, and those that they need; return the others."""
    certain: list[Event] = []
    for event, _ in reversed(waiting):
        if folder in _folders(event) or any(_needs(other, event) for other in certain):
            certain.append(event)
    for event, file in waiting:
        if event in certain:
            lasting.apply(event, file)
    return [one for one in waiting if one[0] not in certain]


def _needs(event: Event, earlier: Event) -> bool:
    """Whether a change of names is impossible without an earlier one."""
    mine, others = _paths(event), _paths(earlier)
    return bool(mine & others or _folders(event) & others or mine & _folders(earlier))


def _paths(event: Event) -> set[str]:
    return {event.path, event.target} - {""}


def _folders(event: Event) -> set[str]:
    return {os.path.dirname(path) or "." for path in _paths(event)}


def _store(names: _Names, folder: Path, choose: random.Random) -> None:
    folder.mkdir()
    for path, file in sorted(names.files.items()):
        where = folder / path
        if file is None:
            where.mkdir(parents=True, exist_ok=True)
            continue
        where.parent.mkdir(parents=True, exist_ok=True)
        data = file.written
        if data != file.synced:
            data = choose.choice([file.written, file.synced, bytes(len(file.written)),
                                  file.written[:choose.randrange(len(file.written) + 1)]])
        where.write_bytes(data)
        os.utime(where, ns=(file.mtime, file.mtime))
