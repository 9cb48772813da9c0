"""Null rows in the format that pylance adds to an index: ``null_bitmap``.

The buffer, all little-endian: number of fragments (uint32); for each, by id: fragment id (uint32),
size of its bitmap in bytes (uint32; 0: the whole fragment), a 32-bit Roaring bitmap of row offsets
in the portable format (RoaringFormatSpec). In that format, rows with the same upper 16 bits form a
container; up to 4,096 rows are stored as sorted uint16, more as 65,536 bits, or either as runs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from secure_bloom.errors import FormatError

_COOKIE, _COOKIE_WITH_RUNS = 12346, 12347
_MAX_ARRAY = 4096  # more rows than this in a container are written as bits
_CONTAINER_ROWS = 65_536
_MAX_CONTAINERS = 65_536
_WITHOUT_OFFSETS = 4  # a bitmap that may have runs has no offsets for fewer containers


class NullRowsBuilder:
    """Collects null rows in at most 1 bit per row of the data set, and 16 per null row."""

    def __init__(self) -> None:
        self._fragments: dict[int, list[tuple[int, int, bytes]]] = {}
        self._open: tuple[int, int] | None = None  # fragment and container being filled
        self._rows: list[np.ndarray] = []

    def add(self, fragment_id: int, rows: np.ndarray) -> None:
        """Add null rows of a fragment: offsets (integers) that ascend, within and between calls.

        The rows of a fragment must be added together, not interleaved with those of others.
        """
        keys = rows >> 16
        bounds = [0, *(np.flatnonzero(np.diff(keys)) + 1), rows.size]
        for start, end in pairwise(bounds):
            if start < end:
                self._add_to_container(fragment_id, int(keys[start]), rows[start:end])

    def _add_to_container(self, fragment_id: int, key: int, rows: np.ndarray) -> None:
        if self._open != (fragment_id, key):
            self._close()
            self._open = fragment_id, key
        self._rows.append((rows & 0xFFFF).astype("<u2"))

    def _close(self) -> None:
        if self._open is None:
            return
        fragment_id, key = self._open
        rows = np.concatenate(self._rows)
        self._fragments.setdefault(fragment_id, []).append((key, rows.size, _container(rows)))
        self._open, self._rows = None, []

    def to_bytes(self) -> bytes:
        """Return the buffer in the format that pylance writes."""
        self._close()
        parts = [struct.pack("<I", len(self._fragments))]
        for fragment_id, containers in sorted(self._fragments.items()):
            bitmap = _bitmap(containers)
            parts += [struct.pack("<II", fragment_id, len(bitmap)), bitmap]
        return b"".join(parts)


def _container(rows: np.ndarray) -> bytes:
    if rows.size <= _MAX_ARRAY:
        return rows.tobytes()
    bits = np.zeros(_CONTAINER_ROWS, dtype=np.uint8)
    bits[rows] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def _bitmap(containers: list[tuple[int, int, bytes]]) -> bytes:
    position = 8 + 8 * len(containers)
    heads, offsets = [], []
    for key, count, data in containers:
        heads.append(struct.pack("<HH", key, count - 1))
        offsets.append(struct.pack("<I", position))
        position += len(data)
    return b"".join([struct.pack("<II", _COOKIE, len(containers)), *heads, *offsets,
                     *(data for _, _, data in containers)])


# --- reading -------------------------------------------------------------------------------------

def read_null_rows(buffer: bytes) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Read the null rows in a buffer, container by container.

    Yields
    ------
    fragment_id : int
    first, last : int64 arrays of the same length
        Ranges of rows, both ends included. A fragment that is entirely null is one range up to the
        largest possible row.

    Raises
    ------
    FormatError
        If the buffer is truncated or inconsistent.
    """
    reader = _Reader(buffer)
    previous = -1
    for _ in range(reader.number("<I")):
        fragment_id, size = reader.number("<I"), reader.number("<I")
        if fragment_id <= previous:
            raise FormatError("null_bitmap: the fragments are not in order")
        previous = fragment_id
        if size == 0:
            yield fragment_id, np.array([0]), np.array([2**32 - 1])
        else:
            for first, last in _containers(_Reader(reader.take(size))):
                yield fragment_id, first, last
    reader.expect_end()


class _Reader:
    """Reads bytes from a buffer, never beyond its end."""

    def __init__(self, buffer: Any):
        self._rest = memoryview(buffer)

    def take(self, size: int) -> memoryview:
        if size > len(self._rest):
            raise FormatError("null_bitmap is truncated; rebuild the index")
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def number(self, kind: str) -> int:
        return struct.unpack(kind, self.take(struct.calcsize(kind)))[0]

    def numbers(self, count: int) -> np.ndarray:
        """Read 16-bit numbers, as int64."""
        return np.frombuffer(self.take(2 * count), dtype="<u2").astype(np.int64)

    def expect_end(self) -> None:
        if len(self._rest):
            raise FormatError("null_bitmap: there are bytes after its end")


def _containers(reader: _Reader) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    cookie = reader.number("<I")
    with_runs = cookie & 0xFFFF == _COOKIE_WITH_RUNS
    count = (cookie >> 16) + 1 if with_runs else reader.number("<I")
    if (not with_runs and cookie != _COOKIE) or count > _MAX_CONTAINERS:
        raise FormatError("null_bitmap: this is not a valid Roaring bitmap")
    is_run = np.zeros(count, dtype=bool)
    if with_runs:
        flags = np.frombuffer(reader.take((count + 7) // 8), dtype=np.uint8)
        is_run = np.unpackbits(flags, count=count, bitorder="little").astype(bool)
    keys, sizes = reader.numbers(2 * count).reshape(count, 2).T
    if (np.diff(keys) <= 0).any():
        raise FormatError("null_bitmap: the containers are not in order")
    if not with_runs or count >= _WITHOUT_OFFSETS:
        reader.take(4 * count)  # offsets, not needed: the containers are contiguous
    for key, size, run in zip(keys.tolist(), (sizes + 1).tolist(), is_run, strict=True):
        first, last = _container_rows(reader, size, run)
        yield first + (key << 16), last + (key << 16)
    reader.expect_end()


def _container_rows(reader: _Reader, size: int, run: bool) -> tuple[np.ndarray, np.ndarray]:
    """Read the ranges of rows in one container, both ends included."""
    if run:
        first, more = reader.numbers(2 * reader.number("<H")).reshape(-1, 2).T
        first, last = first, first + more
    elif size <= _MAX_ARRAY:
        first = last = reader.numbers(size)
    else:
        bits = np.frombuffer(reader.take(_CONTAINER_ROWS // 8), dtype=np.uint8)
        first = last = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
    if (first[1:] <= last[:-1]).any() or (last >= _CONTAINER_ROWS).any():
        raise FormatError("null_bitmap: the rows are not in order")
    return first, last
