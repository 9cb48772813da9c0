"""Merge segments, and delete files that no manifest needs any more."""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from secure_bloom.index.building import BUDGET
from secure_bloom.index.column_index import Place, open_column
from secure_bloom.index.file_table import FileEntry, Stamp
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.geometry import MAX_PAIRS, MAX_ROW_GROUPS
from secure_bloom.index.manifest import Body
from secure_bloom.index.merging import merge
from secure_bloom.index.publishing import publish
from secure_bloom.index.segment import Segment, SegmentInfo
from secure_bloom.index.table import Table
from secure_bloom.keys.cache import CachedKms

FAN_OUT = 8  #: segments of about the same size that are merged into one
GRACE = 3600.0  #: seconds that files are kept which no manifest needs any more

#: chooses which segments to merge, as lists; each is merged into one
Choose = Callable[[list[Segment]], list[list[Segment]]]


def merge_tiers(table: Table, folder: IndexFolder, kms: CachedKms | None,
                budget: int = BUDGET) -> int:
    """Merge segments of about the same size while there are many; return how many were merged."""
    total = 0
    while merged := merge_some(table, folder, kms, _full_tiers, budget):
        total += merged
    return total


def merge_some(table: Table, folder: IndexFolder, kms: CachedKms | None, choose: Choose,
               budget: int = BUDGET) -> int:
    """Merge the segments that a function chooses; return how many were merged.

    Files that are not listed any more, or have changed, are dropped with their fingerprints.
    """
    index = open_column(table.filesystem, table.path, folder.column, kms)
    chosen = [] if index is None else choose(index.segments)
    if index is None or not chosen:
        return 0
    listing = table.listing()
    places, unknown = index.coverage(listing)
    current = {place: path for path, place in places.items()}
    numbers = {segment.info.id: number for number, segment in enumerate(index.segments)}

    def keep(segment: Segment, file: int) -> FileEntry | None:
        path = current.get(Place(numbers[segment.info.id], file))
        if path is None:
            return None
        entry = segment.files.entry(file)._replace(**listing[path]._asdict())
        again = index.manifest.body.restamped.get(path)
        is_current = again is not None and listing[path] == (again.size, again.mtime_ns)
        return entry._replace(footer=again.footer) if again is not None and is_current else entry

    replaced: dict[str, SegmentInfo | None] = {}
    for segments in chosen:
        new = None
        if any(Place(numbers[segment.info.id], file) in current
               for segment in segments for file in range(len(segment.files))):
            new = merge(folder.filesystem, folder.path, index.manifest.key, segments, keep, budget)
        replaced |= dict.fromkeys(segment.info.id for segment in segments)
        replaced[segments[0].info.id] = new
    stamps = {path: listing[path] for place, path in current.items()
              if index.segments[place.segment].info.id in replaced}

    def change(body: Body) -> Body | None:
        merged = _with_merged(body, replaced, stamps)
        # Lookups that do not list the table would miss a changed file, which has been dropped.
        return replace(merged, generation=None) if merged is not None and unknown else merged

    publish(folder, kms, change)
    return len(replaced)


def _with_merged(body: Body, replaced: dict[str, SegmentInfo | None],
                 stamps: Mapping[str, Stamp]) -> Body | None:
    """Return the body with merged segments in the place of others; None if those are gone.

    ``stamps`` are those that the new segments have for their files, which need no other ones.
    """
    if not replaced.keys() <= {info.id for info in body.segments}:
        return None  # another writer has merged them: the new segments are not needed
    segments = [replaced.get(info.id, info) for info in body.segments]
    restamped = {path: one for path, one in body.restamped.items()
                 if stamps.get(path) != (one.size, one.mtime_ns)}
    return replace(body, segments=tuple(filter(None, segments)), restamped=restamped)


def compact(table: Table, folder: IndexFolder, kms: CachedKms | None,
            budget: int = BUDGET) -> int:
    """Merge all segments of each column type, so that nothing of dropped files is left.

    Returns how many were merged. The replaced files remain until :func:`vacuum`.
    """
    index = open_column(table.filesystem, table.path, folder.column, kms)
    if index is None:
        return 0
    covered = set(index.coverage(table.listing()).places.values())
    restamped = index.manifest.body.restamped

    def choose(segments: list[Segment]) -> list[list[Segment]]:
        numbers = {segment.info.id: number for number, segment in enumerate(segments)}
        fitting = [few for some in _by_type(segments) for few in _fitting(some)]
        return [some for some in fitting if len(some) > 1 or restamped or any(
            Place(numbers[one.info.id], file) not in covered
            for one in some for file in range(len(one.files)))]

    return merge_some(table, folder, kms, choose, budget)


def vacuum(folder: IndexFolder, kms: CachedKms | None, grace: float = GRACE) -> list[str]:
    """Delete segments and manifests that the newest manifest does not need; return their names.

    Parameters
    ----------
    grace : float
        Seconds. Younger files are kept: readers may use them, or an update may be about to publish
        them.
    """
    now = folder.now_ns()
    manifest = folder.open_newest(kms)
    if manifest is None or now is None:
        return []
    needed = {info.name for info in manifest.body.segments}
    newest = folder.manifest_path(manifest.version)
    deleted = []
    for info in folder.infos():
        if info.base_name in needed or (folder.segment_path(info.base_name) >= newest \
                and info.base_name.endswith(".manifest")):
            continue
        if info.mtime_ns is not None and now - info.mtime_ns >= grace * 1e9:
            with contextlib.suppress(FileNotFoundError):
                folder.filesystem.delete_file(info.path)
            deleted.append(info.base_name)
    return deleted


def _full_tiers(segments: list[Segment]) -> list[list[Segment]]:
    tiers: dict[int, list[Segment]] = defaultdict(list)
    chosen = []
    for of_type in _by_type(segments):
        tiers = defaultdict(list)
        for segment in of_type:
            tiers[int(math.log(max(segment.pairs, 1), FAN_OUT))].append(segment)
        chosen += [few for tier in tiers.values() if len(tier) >= FAN_OUT
                   for few in _fitting(tier) if len(few) > 1]
    return chosen


def _fitting(segments: list[Segment]) -> Iterator[list[Segment]]:
    """Yield segments in groups of which each fits into one segment."""
    some: list[Segment] = []
    for segment in segments:
        if some and (sum(one.pairs for one in [*some, segment]) > MAX_PAIRS or sum(
                one.files.num_row_groups for one in [*some, segment]) > MAX_ROW_GROUPS):
            yield some
            some = []
        some.append(segment)
    if some:
        yield some


def _by_type(segments: Sequence[Segment]) -> list[list[Segment]]:
    found: dict[object, list[Segment]] = defaultdict(list)
    for segment in segments:
        found[segment.column_type].append(segment)
    return list(found.values())
