"""Indexes that a job keeps current: tasks make segments of their files, the driver publishes them.

This happens after the commit point. Whatever fails here leaves files that the index does not know:
readers search them, and the next update covers them. So it is a warning, never an error.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

import numpy as np

from secure_bloom.errors import ColumnError, IndexWarning, SecureBloomError
from secure_bloom.index.column_segments import INDEXED, SegmentMaker, Segments, SentKey
from secure_bloom.index.column_update import publish_segments
from secure_bloom.index.compaction import FAN_OUT, merge_tiers, vacuum
from secure_bloom.index.file_entry import content_id, footer_digest
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.manifest import Manifest, Restamp
from secure_bloom.index.pair_store import pairs_in_memory
from secure_bloom.index.publishing import publish
from secure_bloom.index.segment_info import SegmentInfo
from secure_bloom.index.stamps import Stamp, stamp, stamps
from secure_bloom.index.table import Table
from secure_bloom.index.update import trust_again
from secure_bloom.index.written_file import WrittenFile
from secure_bloom.index.written_hashes import WrittenHashes
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.retrieval import Keys
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.storage.commit import Job
from secure_bloom.storage.local_listing import list_folder
from secure_bloom.storage.summary import StagedFile
from secure_bloom.writer import ParquetWriter

_BUDGET = 96 * 2**20  # bytes of a task for values
_FEW_FILES = 100_000  # are listed after a job in some tenths of a second, if they are local

_log = logging.getLogger("secure_bloom.index")


@dataclass
class TaskSegments:
    """What a task made.

    ``made`` has what is to be published for each column, by column and id of the index. ``stamps``
    has what was seen of each file, by path relative to the table.
    """

    made: dict[tuple[str, bytes], Segments] = field(default_factory=dict)
    stamps: dict[str, Restamp] = field(default_factory=dict)


class WrittenIndexes:
    """The indexes of a table that a job keeps current. Its pickle contains their keys.

    Parameters
    ----------
    keys : mapping of str to SentKey
        By column.
    """

    def __init__(self, keys: Mapping[str, SentKey]):
        self._keys = keys

    @classmethod
    def of(cls, job: Job, columns: Mapping[str, str | None],
           kms: CachedKms | None) -> WrittenIndexes | None:
        """Open the indexes of some columns, or create those that do not exist.

        Parameters
        ----------
        columns : mapping of str to str or None
            The master keys of the columns; None: without encryption.

        Raises
        ------
        ColumnError
            If the encryption of a column does not allow an index, or does not fit the one that
            exists.
        """
        keys = {}
        for column, master_key in columns.items():
            folder = IndexFolder(job.filesystem, job.table, column)
            try:
                keys[column] = SentKey(_opened(folder, master_key, kms))
            except ColumnError:
                raise
            except (SecureBloomError, OSError) as error:
                _warn(job, column, error)
        return cls(keys) if keys else None

    def task(self, job: Job, keys: Keys) -> TaskIndexes:
        """Return what makes the segments of a task. ``keys`` open the files that it writes."""
        return TaskIndexes(job, self._keys, keys)

    def publish(self, job: Job, tasks: Iterable[TaskSegments], kms: CachedKms | None) \
            -> list[str]:
        """Publish what the tasks of a committed job have made, and keep the index small.

        Returns the columns whose index was updated.
        """
        done, updated, exclusive = list(tasks), [], []
        for column, key in self._keys.items():
            # A stream commits with another writer, which may have opened a later index.
            made = [one.made[column, key.index_id] for one in done
                    if (column, key.index_id) in one.made]
            if not any(one.segments for one in made):
                continue
            folder = IndexFolder(job.filesystem, job.table, column)
            try:
                made = [one._replace(segments=_existing(folder, one.segments)) for one in made]
                newest = publish_segments(folder, kms, key,
                                          [*made, Segments((), _restamped(job, done))])
            except Exception as error:
                _warn(job, column, error)
                continue
            updated.append(column)
            if newest is None:
                continue
            if _may_be_trusted(newest):
                exclusive.append(column)
            if len(newest.body.segments) >= FAN_OUT:
                _merge(job, folder, kms)
        if exclusive:
            _trust_again(job, exclusive, kms)
        return updated


class TaskIndexes:
    """Makes segments of the files of a task. A context manager.

    Values are collected while files are written. Where that fails, they are read from the files.
    """

    def __init__(self, job: Job, keys: Mapping[str, SentKey], reading_keys: Keys):
        self._job, self._keys, self._reading_keys = job, keys, reading_keys
        self._makers = {column: SegmentMaker(job.filesystem, job.table, column, key, {},
                                             _BUDGET // len(keys))
                        for column, key in keys.items()}
        self._observed: dict[str, tuple[WrittenHashes, ParquetWriter]] = {}  # by path
        self._result = TaskSegments()
        self._not_indexed: set[tuple[str, str]] = set()  # columns, and why files are missing

    def observe(self, path: str, writer: ParquetWriter) -> ParquetWriter:
        """Collect the values of a new file, before anything is written; return its writer."""
        written = WrittenHashes({column: key.key for column, key in self._keys.items()}, _BUDGET)

        def add(row_group: int, column: LeafColumn, hashes: np.ndarray | None,
                range_: int) -> None:
            written.add(row_group, column, hashes, range_)
            opened = [one for one, _ in self._observed.values()]
            if sum(one.num_in_memory for one in opened) > pairs_in_memory(_BUDGET):
                max(opened, key=lambda one: one.num_in_memory).spill()

        writer.observe_hashes(self._keys, add)
        self._observed[path] = written, writer
        return writer

    def add(self, staged: StagedFile) -> None:
        """Add a file that is complete."""
        path = posixpath.join(self._job.work, staged.path)
        try:
            filesystem = self._job.filesystem
            seen = stamp(filesystem, filesystem.get_file_info(path))
            written, writer = self._observed.pop(path)
            with closing(written):
                file = WrittenFile(path, filesystem, writer.stored_footer, writer.magic,
                                   self._reading_keys)
                self._result.stamps[staged.path] = Restamp(*seen, content_id(file, seen),
                                                           footer_digest(file))
                for column in list(self._makers):
                    self._add(column, file, staged.path, seen, written)
        except Exception as error:
            for column in list(self._makers):
                self._give_up(column, error)

    def finish(self) -> TaskSegments:
        """Write the segments, and return what is to be published."""
        for column in list(self._makers):
            try:
                made = self._makers[column].write()
                self._result.made[column, self._keys[column].index_id] = made
            except Exception as error:
                self._give_up(column, error)
        for column, reason in sorted(self._not_indexed):
            _warn(self._job, column, reason)
        return self._result

    def __enter__(self) -> TaskIndexes:
        return self

    def __exit__(self, *_: object) -> None:
        for maker in self._makers.values():
            maker.close()
        for written, _writer in self._observed.values():
            written.close()

    def _add(self, column: str, file: WrittenFile, path: str, seen: Stamp,
             written: WrittenHashes) -> None:
        try:
            outcome = self._makers[column].add(file, path, seen, written)
        except Exception as error:
            self._give_up(column, error)
        else:
            if outcome != INDEXED:
                self._not_indexed.add((column, outcome))

    def _give_up(self, column: str, error: Exception) -> None:
        self._makers.pop(column).close()
        self._not_indexed.add((column, str(error)))


def _opened(folder: IndexFolder, master_key: str | None, kms: CachedKms | None) -> Manifest:
    """Return the newest manifest of an index, which is created if there is none."""
    stored = folder.newest()
    if stored is None:
        if master_key is None:
            raise ColumnError("the column is not encrypted, so anyone can learn from its index "
                              "which values exist; if that is intended, build the index first, "
                              "with encryption=None", column=folder.column)
    elif master_key is not None and not stored.is_encrypted:
        raise ColumnError("the column is encrypted, but its index is not: delete the index",
                          column=folder.column, file=folder.path)
    manifest = publish(folder, kms, lambda body: body if stored is None else None,
                       first=lambda: Manifest.new(folder.column, master_key, kms))
    assert manifest is not None  # there was one, or it was created
    return manifest


def _merge(job: Job, folder: IndexFolder, kms: CachedKms | None) -> None:
    try:
        if merge_tiers(Table(job.filesystem, job.table), folder, kms, _BUDGET):
            vacuum(folder, kms)
    except Exception as error:
        _log.warning("%s", IndexWarning(f"{folder.path}: small segments of the index could not be "
                                        f"merged, or removed: {error}"))


def _trust_again(job: Job, columns: Iterable[str], kms: CachedKms | None) -> None:
    try:
        trust_again(Table(job.filesystem, job.table), columns, kms)
    except Exception as error:
        _log.warning("%s", IndexWarning(f"{job.table}: lookups list the table until its indexes "
                                        f"are updated: {error}"))


def _may_be_trusted(manifest: Manifest) -> bool:
    """Whether it takes little time to find out that an exclusive index covers all files again."""
    body = manifest.body
    return body.is_exclusive and body.listed is not None and body.listed.files <= _FEW_FILES


def _existing(folder: IndexFolder, segments: Sequence[SegmentInfo]) -> list[SegmentInfo]:
    """Return the segments that no vacuum has deleted while the job went on."""
    found = folder.filesystem.get_file_info([folder.segment_path(one.name) for one in segments])
    return [one for one, info in zip(segments, found, strict=True) if info.size == one.size]


def _restamped(job: Job, tasks: Iterable[TaskSegments]) -> dict[str, Restamp]:
    """Return the files that a listing shows with another stamp than the tasks have seen.

    A rename changes the ctime of a local file; stores may date objects more precisely in a listing.
    """
    seen = {path: stamp for task in tasks for path, stamp in task.stamps.items()}
    folders = {posixpath.dirname(posixpath.join(job.table, path)) for path in seen}
    infos = {info.path: info for folder in folders
             for info in list_folder(job.filesystem, folder, True)}
    paths = {path: full for path in seen if (full := posixpath.join(job.table, path)) in infos}
    found = zip(paths, stamps(job.filesystem, map(infos.__getitem__, paths.values())), strict=True)
    return {path: replace(seen[path], **now._asdict()) for path, now in found
            if now != (before := seen[path].stamp) and _is_same(now, before)}


def _is_same(now: Stamp, before: Stamp) -> bool:
    """Whether a file was only renamed, or is only dated in another way."""
    return now.size == before.size and now.inode == before.inode \
        and (not now.tag or now.mtime_ns == before.mtime_ns)


def _warn(job: Job, column: str, reason: object) -> None:
    _log.warning("%s", IndexWarning(f"{job.folder}: files of this job are not in the index of "
                                    f"column {column!r}, and are searched without it: {reason}"))
