"""The log of a stream that reads a folder: which files belong to which batch, and all seen so far.

Spark keeps one position for each batch in the checkpoint. It only names an entry of this log, so it
stays small. An entry is a file that is never changed. It names the files of its batch, and the
entry before it. So after a crash, a batch has the same files again, and an entry that Spark has not
noted is part of no position.

    <stream>/<number>-<id>.json    the files of a batch
    <stream>/<number>-<id>.seen    every hundredth entry: identities of all files seen so far

A file is known by its name, and by the name of which it is a new version: see
:func:`.storage.table_names.lineage`. Times of files decide nothing here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import posixpath
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow.fs as pa_fs

from secure_bloom.errors import FormatError, UnsupportedError
from secure_bloom.storage.files import make_folder, write_file
from secure_bloom.storage.local_listing import list_folder
from secure_bloom.storage.small_files import MAX_RECORD, check_names, parse_json, read_constant
from secure_bloom.storage.table_names import lineage

MAX_FILES = 100_000  #: of one batch

_SNAPSHOT_EVERY = 100  # entries; Spark keeps the positions of 100 batches
_KEPT = 2 * _SNAPSHOT_EVERY  # entries before a snapshot
_GONE_FOR = 7 * 24  # hours after which a file that is no longer there is forgotten
_DIGEST, _HOUR = 16, 4  # bytes
_MAX_SNAPSHOT = 2**30  # bytes, of 50 million files
_ENTRY = re.compile(r"[0-9a-f]{32}/(\d{12})-[0-9a-f]{32}")


class Position(NamedTuple):
    """What Spark stores: the number of batches so far, and the entry of the last one."""

    batches: int = 0
    entry: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as Spark stores it."""
        return self._asdict()

    @classmethod
    def from_json(cls, value: Any) -> Position:
        """Parse :meth:`to_json`; raise FormatError if it is something else."""
        found = value if isinstance(value, dict) else {}
        batches, entry = found.get("batches"), found.get("entry")
        match = _ENTRY.fullmatch(entry) if isinstance(entry, str) else None
        if match is not None and type(batches) is int and int(match[1]) == batches > 0:
            return cls(batches, match[0])
        if (batches, entry) == cls():
            return cls()
        raise FormatError("the checkpoint of the query has a position of another data source, or "
                          "of a newer secure_bloom: use a new checkpoint")


class _Entry(NamedTuple):
    """The files of a batch, relative to the folder, the entry before, and whether all are listed.
    """

    previous: Position
    files: list[str]
    has_snapshot: bool


def identity(path: str) -> bytes:
    """Return what a file, by its path in the folder, has in common with its later versions."""
    own = posixpath.join(posixpath.dirname(path), lineage(path))
    return hashlib.blake2b(own.encode("utf-8", "surrogateescape"), digest_size=_DIGEST).digest()


class SeenFiles:
    """The log of the streams of a query, in a folder of its checkpoint."""

    def __init__(self, filesystem: pa_fs.FileSystem, folder: str):
        self._filesystem, self._folder = filesystem, folder
        self._last: Position | None = None
        self._seen: dict[bytes, int] = {}  # up to there, with the hour when each was listed last

    def seen(self, position: Position) -> Mapping[bytes, int]:
        """Return the identities of all files up to a position. The result is not to be changed.

        Raises FormatError if a part of the log is missing or damaged.
        """
        if position != self._last:
            self._last = None  # also if the next line fails
            self._seen, self._last = self._load(position), position
        return self._seen

    def add(self, start: Position, files: Sequence[str], listed: Mapping[bytes, Any]) -> Position:
        """Write the files of the batch after a position, and return the position after it.

        ``listed`` are the identities of all files that are in the folder now.

        Raises UnsupportedError if a file has a name that the log cannot have.
        """
        self.seen(start)
        try:
            check_names(files)
        except ValueError as error:
            raise UnsupportedError(f"an object has a name that no file has ({error}): remove it",
                                   file=self._folder) from None
        self._last, now = None, _hour()  # until the entry is complete
        stream = posixpath.dirname(start.entry) or uuid.uuid4().hex
        number = start.batches + 1
        end = Position(number, f"{stream}/{number:012d}-{uuid.uuid4().hex}")
        self._seen.update(dict.fromkeys(map(identity, files), now))
        make_folder(self._filesystem, self._path(stream))
        has_snapshot = number % _SNAPSHOT_EVERY == 0
        if has_snapshot:
            self._write_snapshot(end, listed, now)
        content = {"version": 1, "previous": start.to_json(), "files": list(files),
                   "has_snapshot": has_snapshot}
        write_file(self._filesystem, self._path(f"{end.entry}.json"),
                   json.dumps(content, indent=0).encode(), follow=False)
        self._last = end
        if has_snapshot:
            self._forget(stream, number - _KEPT)
        return end

    def between(self, start: Position, end: Position) -> list[str]:
        """Return the files of the batches after a position, up to another one."""
        found: list[list[str]] = []
        position = end
        while position.batches > start.batches:
            entry = self._read(position)
            found.append(entry.files)
            position = entry.previous
        if position != start:
            raise FormatError("the positions in the checkpoint do not belong to the same stream: "
                              "use a new checkpoint", file=self._folder)
        return [name for files in reversed(found) for name in files]

    def _load(self, position: Position) -> dict[bytes, int]:
        now = _hour()
        seen: dict[bytes, int] = {}
        while position.batches:
            entry = self._read(position)
            if entry.has_snapshot:
                return {**self._read_snapshot(position), **seen}
            seen.update(dict.fromkeys(map(identity, entry.files), now))
            position = entry.previous
        return seen

    def _read(self, position: Position) -> _Entry:
        path = self._path(f"{position.entry}.json")
        data = self._read_file(path, MAX_RECORD)
        try:
            values = parse_json(data)
            if values.pop("version") != 1:
                raise ValueError("its version is not 1")
            entry = _Entry(Position.from_json(values.pop("previous")), **values)
            check_names(entry.files)
            if entry.previous.batches != position.batches - 1 or len(entry.files) > MAX_FILES \
                    or (type(entry.files), type(entry.has_snapshot)) != (list, bool):
                raise ValueError("a value does not fit")
        except (ValueError, TypeError, KeyError, AttributeError, FormatError) as error:
            raise FormatError(f"this is not a valid entry of a stream ({error}); a newer "
                              "secure_bloom may have written it", file=path) from None
        return entry

    def _read_file(self, path: str, limit: int) -> bytes:
        try:
            return read_constant(self._filesystem, path, limit)
        except FileNotFoundError:
            raise FormatError("this part of the checkpoint is missing, so it is not known which "
                              "files the query has read. If the checkpoint was moved, set option "
                              "checkpointLocation to where it is now; otherwise, use a new "
                              "checkpoint, with which all files are read", file=path) from None

    def _write_snapshot(self, position: Position, listed: Mapping[bytes, Any], now: int) -> None:
        self._seen = {one: now if one in listed else hour for one, hour in self._seen.items()
                      if one in listed or hour > now - _GONE_FOR}
        data = b"".join(one + hour.to_bytes(_HOUR, "big") for one, hour in self._seen.items())
        write_file(self._filesystem, self._path(f"{position.entry}.seen"), data, follow=False)

    def _read_snapshot(self, position: Position) -> dict[bytes, int]:
        path, size = self._path(f"{position.entry}.seen"), _DIGEST + _HOUR
        data = self._read_file(path, _MAX_SNAPSHOT)
        if len(data) % size:
            raise FormatError("it is incomplete: restore the checkpoint", file=path)
        return {data[at:at + _DIGEST]: int.from_bytes(data[at + _DIGEST:at + size], "big")
                for at in range(0, len(data), size)}

    def _forget(self, stream: str, before: int) -> None:
        """Remove entries that no position in the checkpoint needs."""
        with contextlib.suppress(OSError, FormatError, UnsupportedError):
            for path in self._old(stream, before):
                self._filesystem.delete_file(path)

    def _old(self, stream: str, before: int) -> Iterator[str]:
        for info in list_folder(self._filesystem, self._path(stream), True):
            match = _ENTRY.fullmatch(f"{stream}/{posixpath.splitext(info.base_name)[0]}")
            if match and int(match[1]) < before:
                yield info.path

    def _path(self, name: str) -> str:
        return posixpath.join(self._folder, name)


def _hour() -> int:
    return int(time.time()) // 3600
