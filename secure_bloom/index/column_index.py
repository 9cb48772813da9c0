"""The index of one column, open at one version: which files it covers, and where values are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from itertools import groupby, islice, repeat
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from secure_bloom.errors import error_location
from secure_bloom.index.coverage import Coverage, ListedCoverage, Place, TrustedCoverage
from secure_bloom.index.file_entry import FileEntry
from secure_bloom.index.file_pages import FilePage
from secure_bloom.index.file_table import parsed_schema
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.manifest import Manifest
from secure_bloom.index.segment import READ_TOGETHER, Match, PageRead, Segment
from secure_bloom.index.segment_info import SegmentInfo
from secure_bloom.index.stamps import Stamp
from secure_bloom.parquet.row_ranges import ALL_ROWS, parts_of
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.sbbf.probes import ValueHashes, plain_hash, value_hashes

# Bytes of pages that are in memory together: few, for the cache of the CPU; or many requests
_CHUNK_BYTES, _STORE_CHUNK_BYTES = READ_TOGETHER, 32 * READ_TOGETHER

_FEW_HITS = 100  # of one value in a segment, for which arrays would take longer

#: hashes values for a column type
HashValues = Callable[[ColumnType], ValueHashes]

_NO_NUMBERS = np.empty(0, np.int64)
_NO_HASHES = ValueHashes(np.empty(0, np.uint64), _NO_NUMBERS, _NO_NUMBERS)


class Hits(NamedTuple):
    """Where values may be in a segment.

    ``values`` are positions of the values that were looked up; files and row groups are numbers,
    ``parts`` are those of the row groups, see :mod:`.row_ranges`. ``paths`` are those of the files;
    None of entries that cover no file. ``unanswered`` are the positions of values for which the
    segment cannot answer.
    """

    segment: int
    values: np.ndarray
    files: np.ndarray
    paths: list[str | None]
    row_groups: np.ndarray
    parts: np.ndarray
    unanswered: np.ndarray


class Found(NamedTuple):
    """A row group that may have a value; the path is None if the entry covers no file."""

    path: str | None
    place: Place
    row_group: int


class ColumnIndex:
    """The index of one column at one version.

    Parameters
    ----------
    folder : IndexFolder
    manifest : Manifest
    known : iterable of Segment
        Segments that are open already.

    Attributes
    ----------
    is_checked : bool
        Whether it was compared with files that it covers, see :func:`.check_sample`.
    """

    is_checked = False

    def __init__(self, folder: IndexFolder, manifest: Manifest,
                 known: Iterable[Segment] = ()):
        self.folder, self.manifest = folder, manifest
        infos = manifest.body.segments
        opened = {segment.info: segment for segment in known if segment.is_sound}
        new = [info for info in infos if info not in opened]
        with folder.pool() as pool:
            opened |= zip(new, map(self._open, new) if pool is None else pool.map(self._open, new),
                          strict=True)
        self.segments = [opened[info] for info in infos]

    @property
    def column(self) -> str:
        """Dotted path of the column."""
        return self.folder.column

    @property
    def is_sound(self) -> bool:
        """Whether nothing that was read of its segments was damaged."""
        return all(segment.is_sound for segment in self.segments)

    @cached_property
    def places(self) -> dict[tuple[str, Stamp], Place]:
        """Where each covered file is, by path and stamp."""
        found: dict[tuple[str, Stamp], Place] = {}
        restamped = self.manifest.body.restamped
        for number, segment in enumerate(self.segments):
            rows = segment.files.rows
            places = map(Place, repeat(number), range(len(segment.files)))
            if not restamped and not rows.has_void:  # the usual case, and faster
                found.update(zip(zip(rows.paths, rows.stamps, strict=True), places, strict=True))
                continue
            for place, path, content, stamp in zip(places, rows.paths, rows.contents, rows.stamps,
                                                   strict=True):
                if stamp.size >= 0:
                    found[path, self._newest(path, content, stamp)] = place
        return found

    def pages(self) -> Iterator[FilePage]:
        """Yield the pages of files of all segments; each call reads them again."""
        for segment in self.segments:
            yield from segment.files.all_pages()

    def entries(self, page: FilePage) -> Iterator[tuple[str, Stamp, bytes, int]]:
        """Yield path, newest stamp, content and number of row groups of each covered file."""
        columns = page.columns
        for path, stamp, content, row_groups in zip(
                page.paths, page.stamps(), columns["content"].tolist(),
                columns["row_groups"].tolist(), strict=True):
            if stamp[0] >= 0:
                yield path, self._newest(path, content, Stamp._make(stamp)), content, row_groups

    def _newest(self, path: str, content: bytes, stamp: Stamp) -> Stamp:
        """Return the newest stamp of an entry that is known."""
        again = self.manifest.body.restamped.get(path)
        return again.stamp if again is not None and again.content == content else stamp

    @cached_property
    def stamps(self) -> dict[str, Stamp] | None:
        """Stamps of the covered files by path; None if the index covers two versions of a file."""
        stamps = dict(self.places.keys())
        return stamps if len(stamps) == len(self.places) else None

    @cached_property
    def _by_path(self) -> dict[str, Place]:
        return {path: place for (path, _), place in self.places.items()}

    def coverage(self, listing: Mapping[str, Stamp]) -> ListedCoverage:
        """Return which listed files the index covers."""
        if listing is self.stamps or listing == self.stamps:  # the usual case, and faster
            return ListedCoverage(self._by_path, [])
        places = {item[0]: place for item in listing.items()
                  if (place := self.places.get(item)) is not None}
        return ListedCoverage(places, [path for path in listing if path not in places])

    def is_of(self, generation: str | None) -> bool:
        """Whether a table of this generation has the files of the last update, so no other ones.

        That is so if only jobs of ours write to the table, and none has since then.
        """
        return generation is not None and generation == self.manifest.body.generation

    def trusted(self, generation: str | None) -> TrustedCoverage | None:
        """Return which files of a table of this generation the index covers.

        None if it must be told which of them exist.
        """
        listed = self.manifest.body.listed
        return None if listed is None or not self.is_of(generation) else TrustedCoverage(
            self.segments, listed.files, self.removed, lambda: self.places)

    @cached_property
    def removed(self) -> frozenset[str]:
        """Paths of covered files that no longer existed at the last update."""
        return frozenset(self.manifest.body.removed)

    def entry(self, place: Place) -> FileEntry:
        """Return what is known of a covered file as it is now."""
        entry = self.segments[place.segment].files.entry(place.file)
        again = self.manifest.body.restamped.get(entry.path)
        if again is None or again.content != entry.content:
            return entry
        return entry._replace(**again.stamp._asdict(), footer=again.footer)

    def schema(self, place: Place) -> pa.Schema:
        """Return the schema of a covered file; equal ones are one object."""
        return self.segments[place.segment].files.schema(place.file)

    def num_row_groups(self, coverage: Coverage) -> int:
        """Return the number of row groups of all covered files."""
        if coverage.num_covered == sum(len(segment.files) for segment in self.segments):
            return sum(segment.files.num_row_groups for segment in self.segments)
        of_segments = [segment.files.rows.row_group_counts for segment in self.segments]
        return sum(of_segments[segment][file] for segment, file in coverage.places.values())

    def check_schemas(self) -> None:
        """Raise FormatError if the schema of a file is invalid; anyone may have put it there."""
        for segment in self.segments:
            with segment.location():
                for schema in segment.files.schemas:
                    parsed_schema(schema)

    @cached_property
    def only_schema(self) -> pa.Schema | None:
        """The schema of all files; None if they have several."""
        found = {schema for segment in self.segments for schema in segment.files.schemas}
        return parsed_schema(found.pop()) if len(found) == 1 else None

    def schemas(self, places: Iterable[Place]) -> list[pa.Schema]:
        """Return the schemas of many covered files."""
        of_segments = [segment.files.parsed_schemas for segment in self.segments]
        return [of_segments[segment][file] for segment, file in places]

    def find(self, values: Any) -> list[Hits]:
        """Look values up; return where they may be, for each segment."""
        return self.find_hashes(partial(value_hashes, values))

    def find_one(self, value: Any) -> list[Found] | None:
        """Look a value up without arrays, in less time.

        None if that cannot be done: the value is null or needs conversion, there are many hits, or
        the index is in a store, where requests are sent together.
        """
        if value is None or not self.folder.is_local:
            return None
        found: list[Found] = []
        for column_type, numbers in self._of_types:
            value_hash = plain_hash(value, column_type)
            if value_hash is None:
                return None
            fingerprint = self.manifest.key.fingerprint(value_hash)
            for number in numbers:
                segment = self.segments[number]
                with segment.location():
                    groups = segment.groups_of(fingerprint)
                    if len(groups) > _FEW_HITS:
                        return None
                    for group in groups:
                        file, row_group, path = segment.files.place_of(group)
                        found.append(Found(path, Place(number, file), row_group))
        return found

    def find_hashes(self, hash_values: HashValues) -> list[Hits]:
        """Look up what a function returns for the column type of each segment."""
        plans = self._plans(hash_values)
        found: list[list[Match]] = [[] for _ in plans]
        with self.folder.pool() as pool:
            for chunk in _chunks(plans, _CHUNK_BYTES if pool is None else _STORE_CHUNK_BYTES):
                requests = [(plans[number].segment, read) for number, read in chunk]
                modules = iter(list((map if pool is None else pool.map)(self._read, requests)))
                for number, of_plan in groupby(chunk, itemgetter(0)):
                    plan, reads = plans[number], [read for _, read in of_plan]
                    with plan.segment.location():
                        found[number].append(plan.segment.find(
                            plan.fingerprints, reads, list(islice(modules, len(reads)))))
            if pool is not None:
                self._read_files_of(found, pool)
        return [plan.hits(number, matches)
                for number, (plan, matches) in enumerate(zip(plans, found, strict=True))]

    def _plans(self, hash_values: HashValues) -> list[_Plan]:
        # Without pairs, no file has a value, even one that the type cannot hold.
        plans = [_Plan(segment, _NO_HASHES, _NO_HASHES.hashes, []) for segment in self.segments]
        for column_type, numbers in self._of_types:
            hashes = hash_values(column_type)
            fingerprints = self.manifest.key.fingerprints(hashes.hashes)
            for number in numbers:
                segment = self.segments[number]
                plans[number] = _Plan(segment, hashes, fingerprints, segment.reads(fingerprints))
        return plans

    @cached_property
    def _of_types(self) -> list[tuple[ColumnType, list[int]]]:
        """Numbers of the segments with pairs, by column type."""
        found: dict[ColumnType, list[int]] = {}
        for number, segment in enumerate(self.segments):
            if segment.pairs:
                found.setdefault(segment.column_type, []).append(number)
        return list(found.items())

    def _read_files_of(self, found: list[list[Match]], pool: ThreadPoolExecutor) -> None:
        """Read together the pages of files that the matches of each segment need."""
        for segment, matches in zip(self.segments, found, strict=True):
            wanted = {page for match in matches
                      for page in segment.files.pages_of(match.groups).tolist()}
            for _ in pool.map(segment.files.page, wanted):  # which keeps them
                pass

    def _read(self, request: tuple[Segment, PageRead]) -> bytes:
        segment, read = request
        with segment.location():
            return segment.read_pages(read)

    def _open(self, info: SegmentInfo) -> Segment:
        # Not a method: an open segment may be used by later versions, and must not keep this one.
        location = partial(error_location, file=self.folder.segment_path(info.name),
                           column=self.column)
        with location():
            return Segment(info, self.manifest.key.segment(bytes.fromhex(info.id)),
                           self.folder.open_segment(info), location)

    def __repr__(self) -> str:
        return (f"<ColumnIndex of {self.column!r}, version {self.manifest.version}, "
                f"{len(self.segments)} segments>")


class _Plan(NamedTuple):
    """What to look up in a segment."""

    segment: Segment
    hashes: ValueHashes
    fingerprints: np.ndarray
    reads: list[PageRead]

    def hits(self, number: int, matches: list[Match]) -> Hits:
        if not any(match.probes.size for match in matches):  # mostly, if there are many segments
            return Hits(number, _NO_NUMBERS, _NO_NUMBERS, [], _NO_NUMBERS, _NO_NUMBERS,
                        self.hashes.unknown)
        probes, groups, ranges = map(np.concatenate, zip(*matches, strict=True))
        files, row_groups, has_ranges, paths = self.segment.files.locate(groups)
        parts = parts_of(np.where(has_ranges, ranges, np.uint64(ALL_ROWS)))
        return Hits(number, self.hashes.numbers[probes], files, paths, row_groups, parts,
                    self.hashes.unknown)


def _chunks(plans: list[_Plan], most: int) -> Iterator[list[tuple[int, PageRead]]]:
    """Yield reads of about so many bytes at a time, with the numbers of their plans."""
    chunk: list[tuple[int, PageRead]] = []
    size = 0
    for number, plan in enumerate(plans):
        for read in plan.reads:
            chunk.append((number, read))
            size += read.size
            if size >= most:
                yield chunk
                chunk, size = [], 0
    if chunk:
        yield chunk
