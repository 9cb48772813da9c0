"""A file layer that records every write, fsync, rename and removal, and can stop after any of them.

What is on the disk after a power cut is worked out from the record: data that was not synced may
be there or not; what happened to names since the last fsync of their folder, too, in any prefix of
its order. So each point of the record gives several states of the disk.
"""

import contextlib
import os
from collections.abc import Iterator
from itertools import product

import secure_bloom.storage.local_files as files


class PowerCut(BaseException):
    """The power is gone: from now on no operation does anything."""


class Recorder:
    """Records the operations of secure_bloom on files of one folder.

    Parameters
    ----------
    stop_after : int, optional
        The number of operations after which the power is cut.
    """

    def __init__(self, monkeypatch, stop_after: int | None = None):
        self.operations: list[tuple] = []
        self._stop_after = stop_after
        self._names: dict[int, str] = {}
        self._real = {name: getattr(os, name)
                      for name in ("fsync", "replace", "unlink", "copy_file_range")}
        self._open_new = files._open_new
        monkeypatch.setattr(files, "_open_new", self._open)
        for name in self._real:
            monkeypatch.setattr(os, name, getattr(self, f"_{name}"))

    def _do(self, *operation) -> None:
        """Record an operation that was carried out."""
        self.operations.append(operation)
        if len(self.operations) == self._stop_after:
            raise PowerCut

    def _check_power(self) -> None:
        if self._stop_after is not None and len(self.operations) >= self._stop_after:
            raise PowerCut

    def _open(self, name: str, mode: int):
        self._check_power()
        file = self._open_new(name, mode)
        self._names[file.fileno()] = name
        self._do("create", name)
        return _File(file, self)

    def _write(self, file, data) -> int:
        self._check_power()
        written = file.write(data)
        self._do("write", file.name, bytes(data[:written]))
        return written

    def _copy_file_range(self, source, target, count, offset) -> int:
        self._check_power()
        copied = self._real["copy_file_range"](source, target, min(count, 1000), offset)
        self._do("write", self._names[target], os.pread(source, copied, offset))
        return copied

    def _fsync(self, descriptor) -> None:
        self._check_power()
        self._real["fsync"](descriptor)
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        self._do("sync folder" if os.path.isdir(name) else "sync", name)

    def _replace(self, source, target) -> None:
        self._check_power()
        self._real["replace"](source, target)
        self._do("rename", source, target)

    def _unlink(self, path) -> None:
        self._check_power()
        self._real["unlink"](path)
        self._do("unlink", path)


class _File:
    """A raw file whose writes are recorded."""

    def __init__(self, file, recorder: Recorder):
        self._file, self._recorder = file, recorder

    def write(self, data) -> int:
        return self._recorder._write(self._file, memoryview(data))

    def __getattr__(self, name: str):
        return getattr(self._file, name)


def disks(before: dict[str, bytes], operations: list[tuple]) -> Iterator[dict[str, bytes]]:
    """What may be on the disk after these operations, by path.

    Parameters
    ----------
    before : dict of str to bytes
    operations : list of tuple
        As recorded.
    """
    contents = dict(enumerate(before.values()))  # by number of a file, as written
    synced = dict(contents)
    names = dict(zip(before, contents, strict=True))  # as programs see them
    lasting, pending = dict(names), []  # as the disk has them; what happened to names since then
    for operation, path, *rest in operations:
        if operation == "create":
            names[path] = len(contents)
            contents[names[path]], synced[names[path]] = b"", b""
            pending.append((operation, path, names[path]))
        elif operation == "write":
            contents[names[path]] += rest[0]
        elif operation == "sync":
            synced[names[path]] = contents[names[path]]
        elif operation == "sync folder":
            lasting, pending = dict(names), []
        else:
            pending.append((operation, path, *rest))
            _rename(names, pending[-1])
    for prefix in range(len(pending) + 1):
        seen = dict(lasting)
        for one in pending[:prefix]:
            _rename(seen, one)
        unsynced = [n for n in set(seen.values()) if contents[n] != synced[n]]
        for choice in product(("all", "none", "half", "zeros"), repeat=len(unsynced)):
            data = dict(contents)
            for number, what in zip(unsynced, choice, strict=True):
                data[number] = _lost(synced[number], contents[number], what)
            yield {path: data[number] for path, number in seen.items()}


def _rename(names: dict[str, int], operation: tuple) -> None:
    kind, path, *rest = operation
    if kind == "create":
        names[path] = rest[0]
    elif kind == "rename":
        names[rest[0]] = names.pop(path)
    else:
        names.pop(path, None)


def _lost(synced: bytes, written: bytes, what: str) -> bytes:
    if what == "all":
        return written
    if what == "half":
        return written[:(len(synced) + len(written)) // 2]
    return synced if what == "none" else bytes(len(written))


@contextlib.contextmanager
def until_the_power_is_cut() -> Iterator[None]:
    """Swallows the power cut."""
    with contextlib.suppress(PowerCut):
        yield
