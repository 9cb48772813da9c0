"""Take pairs that files have lost out of an index, and publish that as its next version.

This is for an index that covers all files of the table, and has entries of no other ones, but for
files that were replaced as :class:`.FileChange` says. Whatever else is the case is left to an
update and a merge of all segments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from secure_bloom.errors import SecureBloomError
from secure_bloom.index.column_index import ColumnIndex
from secure_bloom.index.column_segments import leaf_column, refusal
from secure_bloom.index.coverage import Place
from secure_bloom.index.file_change import FileChange
from secure_bloom.index.file_entry import FileEntry, footer_digest
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.geometry import place_of
from secure_bloom.index.manifest import Body, Listed
from secure_bloom.index.opened_indexes import open_column
from secure_bloom.index.publishing import discard_if_replaced, publish
from secure_bloom.index.segment import Segment
from secure_bloom.index.segment_info import SegmentInfo
from secure_bloom.index.segment_patch import patch_segment
from secure_bloom.index.stamps import Stamp
from secure_bloom.index.table import Table, TableState
from secure_bloom.keys.cache import CachedKms
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage.table_names import job_of, relative_path

#: the changed files of a segment by their numbers: new entries, and the pairs that they have lost
_Changed = dict[int, tuple[FileEntry, np.ndarray]]


def patch_index(table: Table, folder: IndexFolder, kms: CachedKms | None,
                changes: Sequence[FileChange], state: TableState) -> bool:
    """Bring an index up to date after these changes.

    Returns False if patches of pages are not enough, or fail: then the index must be updated, and
    its segments merged.
    """
    try:
        index = open_column(folder, kms)
        if index is None:
            return False
        return _Patch(table, folder, kms, index, state.listing).run(changes, state.generation)
    except (SecureBloomError, OSError):
        return False


class _Patch(NamedTuple):
    table: Table
    folder: IndexFolder
    kms: CachedKms | None
    opened: ColumnIndex
    listing: Mapping[str, Stamp]

    def run(self, changes: Sequence[FileChange], generation: str | None) -> bool:
        """Write and publish what has changed."""
        places = self._places(changes)
        if places is None:
            return False
        changed: dict[int, _Changed] = defaultdict(dict)
        for change, place in zip(changes, places, strict=True):
            found = self._changed(change, place)
            if found is None:
                return False
            changed[place.segment][place.file] = found
        self.folder.check_inside()
        new: dict[SegmentInfo, SegmentInfo] = {}
        try:
            is_done = self._write(changed, new) and self._publish(new, changes, generation)
        except (SecureBloomError, OSError):  # perhaps it is published all the same
            discard_if_replaced(self.folder, self.opened.manifest.key.index_id, new.values())
            raise
        if not is_done:
            self._discard(new)
        return is_done

    def _places(self, changes: Sequence[FileChange]) -> list[Place] | None:
        """Return the places of the changed files; None if something else has changed, too."""
        known, found = self.opened.places, list[Place]()
        old = {path: stamp for path, stamp in known if path not in self.listing}
        for change in changes:
            path = self._relative(change.old)
            if path not in old:
                return None
            place = known[path, old[path]]
            if not change.is_of(old[path], self.opened.entry(place).footer,
                                self.table.filesystem):
                return None
            found.append(place)
        uncovered = {path for path, stamp in self.listing.items() if (path, stamp) not in known}
        entries = sum(len(segment.files) for segment in self.opened.segments)
        is_all = uncovered == {self._relative(change.new) for change in changes} \
            and len({*found}) == len(uncovered) \
            and entries == len(known) == len(self.listing)
        return found if is_all else None

    def _changed(self, change: FileChange, place: Place) -> tuple[FileEntry, np.ndarray] | None:
        """Return the new entry of a file, and the pairs that its segment loses.

        None if the file is not the one that was compared, or fits the segment no longer.
        """
        segment, path = self.opened.segments[place.segment], self._relative(change.new)
        lost, stamp = change.lost.get(self.opened.column), self.listing[path]
        if lost is None or lost.index_id != self.opened.manifest.key.index_id \
                or job_of(path) is None:
            return None
        stamp.wait()
        filesystem = self.table.filesystem
        with self.table.open(path, self.kms) as file:
            entry = FileEntry.of(file, path, stamp)._replace(has_ranges=False)
            if not stamp.is_of(file.version, filesystem) \
                    or footer_digest(file) != change.new_footer \
                    or entry.row_groups != segment.files.entry(place.file).row_groups \
                    or not self._fits(file, segment):
                return None
        first = segment.files.first_group_of(place.file)
        return entry, lost.pairs + place_of(first, 0, 0)

    def _fits(self, file: OpenFile, segment: Segment) -> bool:
        """Whether a segment may cover a file."""
        column, material = leaf_column(file, self.opened.column), self.opened.manifest.material
        return column is None or (column.type == segment.column_type and refusal(
            file, column, None if material is None else material.master_key_id) is None)

    def _write(self, changed: Mapping[int, _Changed],
               new: dict[SegmentInfo, SegmentInfo]) -> bool:
        """Write the changed segments; return whether all of them can be patched."""
        for number, files in changed.items():
            segment = self.opened.segments[number]
            patched = patch_segment(self.folder, self.opened.manifest.key, segment,
                                    np.concatenate([lost for _, lost in files.values()]),
                                    {file: entry for file, (entry, _) in files.items()})
            if patched is None:
                return False
            new[segment.info] = patched
        return True

    def _publish(self, new: Mapping[SegmentInfo, SegmentInfo], changes: Iterable[FileChange],
                 generation: str | None) -> bool:
        """Publish the next version; return False if another process has published one."""
        before = self.opened.manifest.body
        old = {self._relative(change.old) for change in changes}
        body = replace(
            before.without_generation(),
            segments=tuple(new.get(info, info) for info in before.segments),
            restamped={path: one for path, one in before.restamped.items() if path not in old})
        if body.is_exclusive and generation is not None \
                and generation == self.table.generation():
            groups = sum(info.row_groups for info in body.segments)
            body = replace(body, generation=generation, 
                           listed=Listed.of(self.listing, groups).to_be_stored())

        def change(newest: Body) -> Body | None:
            return body if newest == before != body else None

        published = publish(self.folder, self.kms, change)
        return published is not None and published.body == body

    def _discard(self, new: Mapping[SegmentInfo, SegmentInfo]) -> None:
        """Delete what was written in vain."""
        for old, patched in new.items():
            for name in {*patched.file_names} - {*old.file_names}:
                with suppress(SecureBloomError, OSError):  # vacuum deletes it then
                    self.folder.delete(self.folder.segment_path(name))

    def _relative(self, path: str) -> str:
        return relative_path(path, self.table.path)
