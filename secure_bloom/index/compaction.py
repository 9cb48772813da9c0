"""Merge segments, and delete files that no manifest needs any more."""

from __future__ import annotations

import math
import posixpath
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace

from secure_bloom.index.building import BUDGET
from secure_bloom.index.column_index import ColumnIndex
from secure_bloom.index.coverage import Place
from secure_bloom.index.file_entry import FileEntry
from secure_bloom.index.folder import MANIFEST, IndexFolder
from secure_bloom.index.geometry import MAX_PAIRS, MAX_ROW_GROUPS
from secure_bloom.index.manifest import Body, Restamp
from secure_bloom.index.merging import Keep, merge
from secure_bloom.index.opened_indexes import open_column
from secure_bloom.index.publishing import discard_if_replaced, publish
from secure_bloom.index.segment import Segment
from secure_bloom.index.segment_info import SegmentInfo
from secure_bloom.index.table import Table
from secure_bloom.keys.cache import CachedKms
from secure_bloom.sbbf.column_type import ColumnType

FAN_OUT = 8  #: segments of about the same size that are merged into one
GRACE = 3600.0  #: seconds that files are kept which no manifest needs any more

#: chooses which segments of an index to merge, as lists; each is merged into one
Choose = Callable[[ColumnIndex], list[list[Segment]]]

#: merges segments of an index into one, with the files that are kept, and some bytes of memory
Merge = Callable[[ColumnIndex, Sequence[Segment], Keep, int], SegmentInfo]


def merge_here(index: ColumnIndex, segments: Sequence[Segment], keep: Keep,
               budget: int) -> SegmentInfo:
    """Merge segments of an index in this process."""
    return merge(index.folder.filesystem, index.folder.path, index.manifest.key, segments, keep,
                 budget)


def merge_tiers(table: Table, folder: IndexFolder, kms: CachedKms | None,
                budget: int = BUDGET, merge: Merge = merge_here) -> int:
    """Merge segments of about the same size while there are many; return how many were merged."""
    total = 0
    while merged := merge_some(table, folder, kms, _full_tiers, budget, merge):
        total += merged
    return total


def merge_some(table: Table, folder: IndexFolder, kms: CachedKms | None, choose: Choose,
               budget: int = BUDGET, merge: Merge = merge_here) -> int:
    """Merge the segments that a function chooses; return how many were merged.

    Files that are not listed any more, or have changed, are dropped with their fingerprints.
    """
    index = open_column(folder, kms)
    chosen = [] if index is None else choose(index)
    if index is None or not chosen:
        return 0
    listing = table.listing()
    coverage = index.coverage(listing)
    folder.check_inside()
    current = {place: path for path, place in coverage.places.items()}
    numbers = {segment.info.name: number for number, segment in enumerate(index.segments)}

    def keep(segment: Segment, file: int) -> FileEntry | None:
        path = current.get(Place(numbers[segment.info.name], file))
        if path is None:
            return None
        entry = segment.files.entry(file)._replace(**listing[path]._asdict())
        again = index.manifest.body.restamped.get(path)
        if again is not None and listing[path] == again.stamp:
            entry = entry._replace(footer=again.footer)
        return entry

    replaced: dict[str, SegmentInfo | None] = {}
    for segments in chosen:
        new = None
        if any(Place(numbers[segment.info.name], file) in current
               for segment in segments for file in range(len(segment.files))):
            new = merge(index, segments, keep, budget)
        replaced |= dict.fromkeys(segment.info.name for segment in segments)
        replaced[segments[0].info.name] = new
    in_others = {path for place, path in current.items()
                 if index.segments[place.segment].info.name not in replaced}
    unneeded = {path: one for path, one in index.manifest.body.restamped.items()
                if path not in in_others}

    def change(body: Body) -> Body | None:
        merged = _with_merged(body, replaced, unneeded)
        # Lookups that do not list the table would miss a changed file, which has been dropped.
        return merged.without_generation() if merged is not None and coverage.uncovered \
            else merged

    try:
        publish(folder, kms, change)
    finally:
        discard_if_replaced(folder, index.manifest.key.index_id, filter(None, replaced.values()))
    return len(replaced)


def _with_merged(body: Body, replaced: dict[str, SegmentInfo | None],
                 unneeded: Mapping[str, Restamp]) -> Body | None:
    """Return the body with merged segments in the place of others; None if those are gone.

    ``unneeded`` are restamps of files that are in no other segment. If another writer has
    published a newer one for such a file, that is kept.
    """
    if not replaced.keys() <= {info.name for info in body.segments}:
        return None  # another writer has changed them: the new segments are not needed
    segments = [replaced.get(info.name, info) for info in body.segments]
    restamped = {path: one for path, one in body.restamped.items()
                 if unneeded.get(path) != one}
    return replace(body, segments=tuple(filter(None, segments)), restamped=restamped)


def compact(table: Table, folder: IndexFolder, kms: CachedKms | None,
            budget: int = BUDGET, merge: Merge = merge_here) -> int:
    """Merge all segments of each column type, so that nothing of dropped files is left.

    Returns how many were merged. The replaced files remain until :func:`vacuum`.
    """
    def choose(index: ColumnIndex) -> list[list[Segment]]:
        covered = set(index.coverage(table.listing()).places.values())
        stale = {segment.info.name for number, segment in enumerate(index.segments)
                 if any(Place(number, file) not in covered for file in range(len(segment.files)))}
        is_restamped = bool(index.manifest.body.restamped)
        return [together for of_type in _by_type(index.segments) for together in _fitting(of_type)
                if len(together) > 1 or is_restamped or together[0].info.name in stale]

    return merge_some(table, folder, kms, choose, budget, merge)


def vacuum(folder: IndexFolder, kms: CachedKms | None, grace: float = GRACE,
           published: Container[str] = ()) -> list[str]:
    """Delete segments and manifests that the newest manifest does not need; return their names.

    Files with names that this library does not make are left alone.

    Parameters
    ----------
    grace : float
        Seconds. Younger files are kept: readers may use them, or an update may be about to publish
        them.
    published : container of str
        Names of files of segments that were in a manifest, so no update is about to publish them.
        They are deleted at any age.
    """
    if not grace >= 0:  # all files would be old enough
        raise ValueError(f"grace must be a number of seconds, at least 0, not {grace}")
    now = folder.now_ns()
    manifest = folder.open_newest(kms)
    if manifest is None or now is None:
        return []
    segments = manifest.body.file_names
    newest = posixpath.basename(folder.manifest_path(manifest.version))
    deleted = []
    # Manifests last: they tell a later call which segments were published.
    for info in sorted(folder.own_infos(), key=lambda info: info.base_name.endswith(MANIFEST)):
        name = info.base_name
        # Later manifests are kept, too: they are torn, or another process has just published them.
        is_needed = name in segments or (name.endswith(MANIFEST) and name >= newest)
        # Stores may date a file by milliseconds in a list, by seconds alone: no age is negative.
        is_young = info.mtime_ns is None or max(0, now - info.mtime_ns) < grace * 1e9
        if is_needed or (is_young and name not in published):
            continue
        folder.delete(info.path)
        deleted.append(name)
    return deleted


def unpublished(folder: IndexFolder, kms: CachedKms | None) -> list[str]:
    """Return the names of files of segments that the newest manifest does not have.

    After :func:`vacuum`, processes are about to publish them, or killed ones have left them.
    """
    infos = [info for info in folder.own_infos() if folder.is_of_segment(info)]
    manifest = folder.open_newest(kms)  # later than the list: one may just have been published
    needed = set() if manifest is None else manifest.body.file_names
    return [info.base_name for info in infos if info.base_name not in needed]


def _full_tiers(index: ColumnIndex) -> list[list[Segment]]:
    """Return the segments of about the same size, where there are many."""
    tiers: dict[tuple[ColumnType, int], list[Segment]] = defaultdict(list)
    for segment in index.segments:
        tier = int(math.log(max(segment.pairs, 1), FAN_OUT))
        tiers[segment.column_type, tier].append(segment)
    return [together for alike in tiers.values() if len(alike) >= FAN_OUT
            for together in _fitting(alike) if len(together) > 1]


def _fitting(segments: list[Segment]) -> Iterator[list[Segment]]:
    """Yield segments, at least one, in groups of which each fits into one segment."""
    together: list[Segment] = []
    pairs = row_groups = 0
    for segment in segments:
        pairs += segment.pairs
        row_groups += segment.files.num_row_groups
        if together and (pairs > MAX_PAIRS or row_groups > MAX_ROW_GROUPS):
            yield together
            together = []
            pairs, row_groups = segment.pairs, segment.files.num_row_groups
        together.append(segment)
    yield together


def _by_type(segments: Sequence[Segment]) -> list[list[Segment]]:
    found: dict[ColumnType, list[Segment]] = defaultdict(list)
    for segment in segments:
        found[segment.column_type].append(segment)
    return list(found.values())
