"""Verify an index: its own bytes, that it misses no value, and that files are those it covered."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from operator import attrgetter

import numpy as np

from secure_bloom.display import count
from secure_bloom.errors import FileError, FormatError, SecureBloomError, UnsupportedError
from secure_bloom.findings import CheckResult, Finding
from secure_bloom.index.column_index import ColumnIndex
from secure_bloom.index.column_segments import Portion, column_hashes, leaf_column
from secure_bloom.index.comparison import Comparison
from secure_bloom.index.coverage import Place
from secure_bloom.index.file_entry import FileEntry, content_id, footer_digest
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.geometry import MAX_GROUP_BITS, pack
from secure_bloom.index.manifest import Manifest
from secure_bloom.index.segment import Segment
from secure_bloom.index.segment_info import SegmentInfo
from secure_bloom.index.stamps import Stamp
from secure_bloom.index.table import Table
from secure_bloom.keys.cache import CachedKms
from secure_bloom.parquet.row_ranges import parts_of
from secure_bloom.storage.many_files import NO_FAULT_OF_A_FILE, Advance

SAMPLE = 20  #: files of which all values are looked up
_BATCH_BYTES = 8 * 1024 * 1024  # of pages that are read together

#: the kinds of findings
KINDS = {
    "manifest": "cannot be read: this index is not used",
    "segment": "cannot be read, or does not have what its manifest and footer say",
    "omission": "a value of a covered file is missing: lookups miss it",
    "data": "a covered file could not be read, and was not compared",
    "replaced": "a file has other bytes than when it was covered",
    "rolled-back": "a file is an older version than the index knows",
    "removed": "a covered file does not exist any more",
    "added": "a file that the index has never covered",
}


@dataclass(repr=False)
class IndexVerification(CheckResult):
    """The result of :meth:`secure_bloom.index.Index.verify`.

    Attributes
    ----------
    columns : list of str
        The indexed columns.
    findings : list of Finding
    segments, pages, pairs : int
        How many were read and are valid.
    compared : int
        Files of which all values were looked up.
    values : int
        Number of distinct values, of each row group, that were looked up.
    identified : int
        Files of which the footer was compared with the index.
    """

    columns: list[str]
    findings: list[Finding] = field(default_factory=list)
    segments: int = 0
    pages: int = 0
    pairs: int = 0
    compared: int = 0
    values: int = 0
    identified: int = 0

    _derived = ("ok",)

    def _headline(self) -> str:
        return (f"{count(self.segments, 'segment')}, {count(self.pairs, 'pair')}, "
                f"{count(self.compared, 'file')} compared, {count(len(self.findings), 'finding')}")


class ColumnVerification:
    """Verifies the index of one column; adds to a result."""

    def __init__(self, table: Table, folder: IndexFolder, kms: CachedKms | None,
                 result: IndexVerification):
        self._table, self._folder, self._kms, self._result = table, folder, kms, result

    def run(self, sample: int | None, integrity: bool, advance: Advance) -> None:
        """Verify. ``sample`` is the number of files that are compared; None: all."""
        try:
            manifest = self._folder.open_newest(self._kms)
            if manifest is None and self._folder.versions():
                raise FormatError("no manifest is complete")
        except UnsupportedError as error:  # such as one of a newer version, which says what to do
            self._report("manifest", error.message, self._folder.path)
            return
        except FileError as error:
            self._report("manifest", f"{error.message}; delete the folder of this index, and build "
                         "it again", self._folder.path)
            return
        if manifest is None:
            raise FileNotFoundError(f"there is no index of column {self._folder.column!r}")
        index = self._open_valid(manifest)
        listing = self._table.listing()
        comparison = Comparison(index, listing)
        wanted = comparison.covered()
        if sample is not None and sample < len(wanted):
            wanted = random.SystemRandom().sample(wanted, sample)
        compared = sorted(_places(index, {path: listing[path] for path in wanted}))
        identified = sorted({*listing, *comparison.removed}) if integrity else []
        total = max(1, len(compared) + len(identified))
        for number, (path, place) in enumerate(compared):
            advance(number / total)
            self._compare(index, path, listing[path], place)
        versions = _versions(index) if integrity else {}
        for number, path in enumerate(identified, len(compared)):
            advance(number / total)
            entries = sorted(map(index.entry, versions.get(path, ())), key=attrgetter("mtime_ns"))
            self._identify(path, listing.get(path), entries)
        advance(1.0)

    # --- segments --------------------------------------------------------------------------------

    def _open_valid(self, manifest: Manifest) -> ColumnIndex:
        """Return the index with its valid segments only."""
        valid = []
        for info in manifest.body.segments:
            try:
                valid.append(self._check_segment(manifest, info))
            except SecureBloomError as error:
                self._report("segment", f"{error.message}; delete this file, and update the index",
                             self._folder.segment_path(info.name))
        body = replace(manifest.body, segments=tuple(segment.info for segment in valid))
        return ColumnIndex(self._folder, manifest.next(body, manifest.version), valid)

    def _check_segment(self, manifest: Manifest, info: SegmentInfo) -> Segment:
        read_at = self._folder.open_segment(info)
        segment = Segment(info, manifest.key.segment(bytes.fromhex(info.id)), read_at)
        if read_at(0, len(segment.magic)) != segment.magic:
            raise FormatError("the segment does not begin as segments do")
        files = segment.files
        files.check()
        if (segment.pairs, len(files), files.num_row_groups) != \
                (info.pairs, info.files, info.row_groups):
            raise FormatError("the totals in the manifest are not those of the segment")
        num_pairs, last = 0, -1
        for first, end in _batches(segment):
            for top, groups, _ in segment.decode(first, end):
                files.check_groups(groups)
                pairs = pack(top << np.uint64(MAX_GROUP_BITS), groups)
                if pairs.size and (int(pairs[0]) <= last or (pairs[1:] <= pairs[:-1]).any()):
                    raise FormatError("the entries of a page are not in order")
                num_pairs, last = num_pairs + pairs.size, int(pairs[-1]) if pairs.size else last
        if num_pairs != segment.pairs:
            raise FormatError(f"the segment has {num_pairs:,} pairs, and its footer says "
                              f"{segment.pairs:,}")
        self._result.segments += 1
        self._result.pages += segment.geometry.num_pages
        self._result.pairs += num_pairs
        return segment

    # --- values ----------------------------------------------------------------------------------

    def _compare(self, index: ColumnIndex, path: str, stamp: Stamp, place: Place) -> None:
        """Look all values of a file up."""
        segment = index.segments[place.segment]
        try:
            with self._table.open(path, self._kms) as file:
                if not stamp.is_of(file.version, self._table.filesystem):
                    return
                column = leaf_column(file, self._folder.column)
                if column is not None and column.type != segment.column_type:
                    self._report("omission", "the column has another type than the segment that "
                                 "covers the file; delete the index, and build it again", path)
                    return
                with file.one_version():
                    portions = [] if column is None else column_hashes(file, column)
                    for portion in portions:
                        self._look_up(index, path, place, portion)
            self._result.compared += 1
        except NO_FAULT_OF_A_FILE:
            raise
        except FileNotFoundError:
            return  # it was removed after it was listed
        except (SecureBloomError, OSError) as error:
            self._report("data", f"the file was not compared: {_message(error)}", path)

    def _look_up(self, index: ColumnIndex, path: str, place: Place, portion: Portion) -> None:
        segment, hashes = index.segments[place.segment], np.unique(portion.hashes)
        group = segment.files.first_group_of(place.file) + portion.row_group
        parts = parts_of(np.array(portion.range, np.uint64))
        has_ranges = segment.files.entry(place.file).has_ranges
        fingerprints = index.manifest.key.fingerprints(hashes)
        found = np.zeros(hashes.size, bool)
        for read in segment.reads(fingerprints):
            match = segment.find(fingerprints, [read], [segment.read_pages(read)])
            is_here = match.groups == group
            if has_ranges:
                is_here &= parts_of(match.ranges) & parts == parts
            found[match.probes[is_here]] = True
        self._result.values += hashes.size
        missing = int(np.count_nonzero(~found))
        if missing:
            self._report("omission", f"{missing:,} of {hashes.size:,} values are missing from the "
                         "index, so lookups miss them; delete the index, and build it again",
                         path, portion.row_group)

    # --- files -----------------------------------------------------------------------------------

    def _identify(self, path: str, stamp: Stamp | None, entries: list[FileEntry]) -> None:
        """Compare a file with the versions of it that the index knows, the oldest first."""
        if stamp is None:
            self._report_removed(path)
            return
        if not entries:
            self._report("added", "the index has never covered this file; if it was added on "
                         "purpose, update the index", path)
            return
        try:
            with self._table.open(path, self._kms) as file:
                if not stamp.is_of(file.version, self._table.filesystem):
                    return
                footer, content = footer_digest(file), content_id(file, stamp)
        except NO_FAULT_OF_A_FILE:
            raise
        except FileNotFoundError:
            self._report_removed(path)
            return
        except (SecureBloomError, OSError) as error:
            self._report("data", f"the file was not identified: {_message(error)}", path)
            return
        self._result.identified += 1
        newest = entries[-1]
        known = {entry.stamp for entry in entries}
        if footer == newest.footer:
            return
        if any(footer == entry.footer or content == entry.content for entry in entries
               if entry.content != newest.content):
            self._report("rolled-back", "this is an older version of the file than the index "
                         "knows", path)
        elif content != newest.content or stamp in known:
            self._report("replaced", "the file is not the one that the index covered; if it was "
                         "replaced on purpose, update the index", path)

    # --- shared ----------------------------------------------------------------------------------

    def _report_removed(self, path: str) -> None:
        self._report("removed", "the index covers this file, but it does not exist any more; "
                     "if it was deleted on purpose, compact the index", path)

    def _report(self, kind: str, message: str, file: str, row_group: int | None = None) -> None:
        self._result.findings.append(
            Finding(kind, "error", message, file, self._folder.column,
                    () if row_group is None else (row_group,)))


def _message(error: Exception) -> str:
    return error.message if isinstance(error, SecureBloomError) else str(error)


def _batches(segment: Segment) -> Iterator[tuple[int, int]]:
    """Yield ranges of pages."""
    first, num_pages = 0, segment.geometry.num_pages
    for page in range(1, num_pages + 1):
        if page == num_pages or segment.size_of(first, page + 1) > _BATCH_BYTES:
            yield first, page
            first = page


def _places(index: ColumnIndex, wanted: dict[str, Stamp]) -> Iterator[tuple[str, Place]]:
    """Yield the paths of files with certain stamps, and where they are in the index."""
    for path, place in _all_places(index):
        if path in wanted and index.entry(place).stamp == wanted[path]:
            del wanted[path]  # two updates at once can both have added it
            yield path, place


def _versions(index: ColumnIndex) -> dict[str, list[Place]]:
    """Return where the versions are that the index knows of each file."""
    found: dict[str, list[Place]] = {}
    for path, place in _all_places(index):
        found.setdefault(path, []).append(place)
    return found


def _all_places(index: ColumnIndex) -> Iterator[tuple[str, Place]]:
    for number, segment in enumerate(index.segments):
        paths = (path for page in segment.files.all_pages() for path in page.covered_paths)
        for file, path in enumerate(paths):
            if path is not None:
                yield path, Place(number, file)


def verify_columns(table: Table, columns: list[str], kms: CachedKms | None, sample: int | None,
                   integrity: bool, advance: Advance | None) -> IndexVerification:
    """See :meth:`secure_bloom.index.Index.verify`."""
    if sample is not None and sample < 0:
        raise ValueError("sample must be a number of files, or None for all")
    result = IndexVerification(list(columns))
    tell = advance or (lambda fraction: None)
    for number, column in enumerate(columns):
        folder = IndexFolder(table.filesystem, table.path, column)
        ColumnVerification(table, folder, kms, result).run(
            sample, integrity,
            lambda fraction, done=number: tell((done + fraction) / len(columns)))  # type: ignore[misc]
    return result
