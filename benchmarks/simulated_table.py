"""A table of up to a million files and its index, made without the data files.

The index has entries and fingerprints from a seed. All data files are the same small file, which is
encrypted and has no value of the indexed column. A simulated store shows it under as many names as
the table has files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs

from benchmarks.people import digits, encryption, people
from benchmarks.slow_store import SlowStore
from secure_bloom import write_table
from secure_bloom.index.building import SegmentBuilder
from secure_bloom.index.file_entry import FileEntry
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.geometry import pack, place_of
from secure_bloom.index.manifest import Body, Listed, Manifest
from secure_bloom.index.pair_sorting import DividedPairs
from secure_bloom.index.publishing import publish
from secure_bloom.index.stamps import Stamp
from secure_bloom.keys import Keyring
from secure_bloom.keys.cache import cached
from secure_bloom.parquet.row_ranges import ALL_ROWS
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.sbbf.probes import value_hashes
from secure_bloom.storage.source import Source
from secure_bloom.storage.table_names import GENERATION, STAGING

COLUMN = "ssn"
KNOWN = 10_000  # values that some file has
_TYPE = ColumnType("BYTE_ARRAY", 0, pa.string())
_DATA_FILE = "one.file"  # below the folder of the table
_TIME_NS = 1_700_000_000 * 10**9
_TOGETHER = 10_000_000  # pairs that are made together


@dataclass(frozen=True)
class SimulatedTable:
    """A folder that has all of a table but its data files.

    Attributes
    ----------
    folder : Path
    files : int
        Each has one row group.
    days : int
        Partitions that have the files; 0: the folder has them itself.
    """

    folder: Path
    files: int
    days: int = 0

    @classmethod
    def make(cls, folder: Path, files: int, pairs: int, ring: Keyring, *, days: int = 0,
             segments: int = 1) -> SimulatedTable:
        """Make the table, with an index of so many pairs."""
        table = cls(folder, files, days)
        (folder / STAGING).mkdir(parents=True)
        (folder / STAGING / GENERATION).write_text("1")
        rows = people(1)
        rows = rows.set_column(1, COLUMN, pa.nulls(1, pa.string()))
        write_table(rows, folder / _DATA_FILE, encryption=encryption(), keys=ring)
        _publish_index(table, pairs, segments, ring)
        return table

    def paths(self, first: int = 0, last: int | None = None) -> Iterator[str]:
        """Yield the paths of some files, relative to the table."""
        for number in range(first, self.files if last is None else last):
            yield self.path(number)

    def path(self, number: int) -> str:
        """Return the path of a file, relative to the table."""
        name = f"part-{number:07}.parquet"
        return f"day={number % self.days:04}/{name}" if self.days else name

    @property
    def data_file(self) -> Path:
        """The file that all data files are."""
        return self.folder / _DATA_FILE


def known_values() -> list[str]:
    """Return values that the index knows, each of one file."""
    return digits(np.random.default_rng(2).permutation(10**7)[:KNOWN]).to_pylist()


def _publish_index(table: SimulatedTable, pairs: int, segments: int, ring: Keyring) -> None:
    filesystem, kms = pa_fs.LocalFileSystem(), cached(ring)
    folder = IndexFolder(filesystem, str(table.folder), COLUMN)
    Path(folder.path).mkdir(parents=True)
    manifest, random = Manifest.new(COLUMN, "pii", kms), np.random.default_rng(1)
    bounds = np.linspace(0, table.files, segments + 1).astype(int).tolist()
    entry, infos = _entry(table, ring), []
    for number, (first, last) in enumerate(pairwise(bounds)):
        builder = SegmentBuilder(manifest.key, _TYPE)
        for path in table.paths(first, last):
            builder.add_file(entry._replace(path=path))
        hashes = value_hashes(known_values(), _TYPE).hashes[number::segments]
        left = pairs // segments - hashes.size
        while hashes.size or left > 0:
            more = min(max(left, 0), _TOGETHER)
            hashes = np.append(hashes, random.integers(0, 2**64, more, np.uint64))
            groups = random.integers(0, last - first, hashes.size, np.uint64)
            builder.add_pairs(0, [DividedPairs.of([pack(manifest.key.fingerprints(hashes),
                                                        place_of(groups, ALL_ROWS))])])
            hashes, left = hashes[:0], left - more
        infos.append(builder.write(filesystem, folder.path))
        builder.close()
    publish(folder, kms, partial(_with_all, table, tuple(infos), entry), lambda: manifest)


def _with_all(table: SimulatedTable, infos: tuple[Any, ...], entry: FileEntry, body: Body) -> Body:
    """Return the body of an index that covers the whole table, and may say so."""
    generation = hashlib.sha256((table.folder / STAGING / GENERATION).read_bytes()).hexdigest()
    folders = tuple(f"day={day:04}" for day in range(table.days)) or ("",)
    listed = Listed(table.files, table.files, table.files * entry.size, folders)
    return replace(body, segments=infos, is_exclusive=True, generation=generation, listed=listed)


def _entry(table: SimulatedTable, ring: Keyring) -> FileEntry:
    path = str(table.data_file)
    with OpenFile(Source(path, pa_fs.LocalFileSystem()), cached(ring)) as file:
        return FileEntry.of(file, "", Stamp(table.data_file.stat().st_size, _TIME_NS))


class SimulatedStore(SlowStore):
    """Shows a simulated table, whose files have the paths of a store.

    Parameters
    ----------
    table : SimulatedTable
    request : float
        Seconds that each request takes.

    Attributes
    ----------
    num_files : int
        Number of files that the store has; that of the table at first.
    """

    def __init__(self, table: SimulatedTable, request: float = 0.0) -> None:
        super().__init__(request)
        self._table, self.num_files = table, table.files
        self._size = table.data_file.stat().st_size

    def __eq__(self, other: object) -> bool:
        return self is other

    def get_type_name(self) -> str:
        """Name the filesystem as one that lists as S3 does."""
        return "s3"

    def get_file_info(self, paths: list[str]) -> list[pa_fs.FileInfo]:
        """Look files up; one request each, at the same time."""
        self.wait()
        return list(map(self._found, paths))

    def get_file_info_selector(self, selector: pa_fs.FileSelector) -> list[pa_fs.FileInfo]:
        """List a folder; 1,000 files a request, one after the other."""
        base = selector.base_dir.rstrip("/")
        found = [] if self._is_day(base) else [
            info for info in self._local.get_file_info(selector)
            if info.path != str(self._table.data_file)]
        found += self._listed(base, selector.recursive)
        for _ in range(max(1, -(-len(found) // 1000))):
            self.wait()
        return found

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open a file; each read is a request."""
        return super().open_input_file(
            str(self._table.data_file) if self._is_data(path) else path)

    def _found(self, path: str) -> pa_fs.FileInfo:
        if self._is_day(path):
            return pa_fs.FileInfo(path, pa_fs.FileType.Directory)
        return self._info(path) if self._is_data(path) else self._local.get_file_info(path)

    def _is_day(self, path: str) -> bool:
        return path.startswith(f"{self._table.folder}/day=") and not path.endswith(".parquet")

    def _is_data(self, path: str) -> bool:
        name = path.rpartition("/")[2]
        return name.startswith("part-") and int(name[5:12]) < self.num_files

    def _info(self, path: str) -> pa_fs.FileInfo:
        return pa_fs.FileInfo(path, pa_fs.FileType.File, size=self._size, mtime_ns=_TIME_NS)

    def _listed(self, base: str, is_recursive: bool) -> list[pa_fs.FileInfo]:
        root, days = str(self._table.folder), self._table.days
        if self._is_day(base):
            numbers = range(int(base.rpartition("=")[2]), self.num_files, days)
        elif base != root:
            return []
        else:
            folders = [pa_fs.FileInfo(f"{root}/day={day:04}", pa_fs.FileType.Directory)
                       for day in range(days)]
            if days and not is_recursive:
                return folders
            numbers = range(self.num_files)
        return [self._info(f"{root}/{self._table.path(number)}") for number in numbers]
