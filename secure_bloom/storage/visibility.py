"""A folder of data files, and which of them readers may see while jobs write into it.

Jobs leave markers in ``_staging`` of the table. The table is the folder itself or, with Hive
partitioning such as ``t/day=1``, the folder above, ``t``. So all readers and writers of ``t``, or
of a part of it, use the same markers. Paths in markers are relative to the table.

    _staging/<job>/started         the job has not ended: all its files are hidden
    _staging/<job>/pending/<file>  an attempt may write <file>: it is hidden
    _staging/<job>/committed       of the job's files, only the listed ones are visible, and the
                                   files that they replace are not; this overrides the markers above
    _staging/generation            its content changes with every job that added or removed files

A commit writes ``committed``, a single file. It is therefore atomic, however many files it
publishes and replaces. A file's name identifies the job it belongs to. A job without any of the
markers was committed long ago, or the folder is a copy: its files are visible. The protocol by
which the markers are written and removed is described in ``storage/commit.py``.
"""

from __future__ import annotations

import contextlib
import posixpath
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.fs as pa_fs

from secure_bloom.errors import SecureBloomError, error_location
from secure_bloom.storage.commit_record import MAX_VALUES, CommitRecord
from secure_bloom.storage.inside import table_and_name
from secure_bloom.storage.local_listing import walk
from secure_bloom.storage.small_files import (
    MAX_MARKER,
    MAX_RECORD,
    check_size,
    check_total,
    check_values,
    read_constant,
    read_small,
)
from secure_bloom.storage.store_listing import by_folders, recursively
from secure_bloom.storage.table_names import (
    GENERATION,
    INDEX,
    STAGING,
    is_hidden,
    is_job_id,
    job_of,
    relative_path,
    relative_paths,
)
from secure_bloom.storage.versions import local_path, without_subtree

if TYPE_CHECKING:
    from secure_bloom.storage.hive_partitioning import PartitionChoice

STARTED, PENDING, COMMITTED, GIVEN_UP = "started", "pending", "committed", "given_up"

_TRIES = 100

Check = Callable[[Iterable[str]], None]


@dataclass
class JobState:
    """State of a job, as recorded in ``_staging``."""

    started: bool = False
    given_up: bool = False
    pending: set[str] = field(default_factory=set)
    record: CommitRecord | None = None
    newest: datetime | None = None

    def hides(self, path: str) -> bool:
        """Whether a file of this job is hidden from readers."""
        if self.record is not None:
            return path not in self.record.visible
        return self.started or path in self.pending


def data_files(filesystem: pa_fs.FileSystem, folder: str, check: Check | None = None,
               partitions: PartitionChoice | None = None) -> list[str]:
    """Return the visible files below a folder, sorted; see :func:`visible_files`."""
    found = visible_files(filesystem, folder, check, partitions=partitions)
    return [info.path for info in found.values()]


def parquet_files(filesystem: pa_fs.FileSystem, path: str,
                  check: Check | None = None) -> list[str]:
    """Return the visible files below a folder, or the file itself.

    For ``check``, see :func:`visible_files`, with ``is_complete``; it is not called for a file.

    Raises FileNotFoundError if nothing exists at the path.
    """
    kind = filesystem.get_file_info(path).type
    if kind == pa_fs.FileType.NotFound:
        raise FileNotFoundError(f"there is no file or folder {path}")
    if kind != pa_fs.FileType.Directory:
        return [path]
    found = visible_files(filesystem, path, check, is_complete=check is not None)
    return [info.path for info in found.values()]


class _Staging(NamedTuple):
    """What ``_staging`` of a table has."""

    generation: bytes | None
    files: dict[str, pa_fs.FileInfo]

    def is_same(self, later: _Staging) -> bool:
        """Whether generation and markers are the same later."""
        return self.generation == later.generation \
            and _markers(self.files) == _markers(later.files)


def visible_files(filesystem: pa_fs.FileSystem, folder: str, check: Check | None = None, *,
                  is_complete: bool = False, partitions: PartitionChoice | None = None) \
        -> dict[str, pa_fs.FileInfo]:
    """Return the visible files below a folder, by their paths relative to it, sorted.

    The result is a consistent snapshot, taken between two commits.

    ``check`` is called with the relative paths of all files below the folder, including hidden
    ones; it may raise. This saves the caller another listing. Of stores, these may lack those in
    ``_staging`` and ``_index`` directly below the folder, unless ``is_complete``. With
    ``partitions``, files in partitions that are not entered may be left out, also for ``check``.

    Raises FileNotFoundError if the folder does not exist; SecureBloomError if jobs write into a
    table that is only a part of this folder.
    """
    folder = folder.rstrip("/") or "/"
    base, where = filesystem, folder
    if local_path(filesystem, folder) is not None:
        base, where = without_subtree(filesystem, folder)
    own = table_and_name(base, where)
    places = {"": own}  # of the folder itself, and of links that lead out of the table
    for _ in range(_TRIES):
        tables = {table for table, _ in places.values()}
        # In this order: what a job does before the first step is seen in the listing, what it does
        # after the last step is not, and what it does in between changes one of the other results.
        before = {table: _Staging(generation=_generation(base, table),
                                  files=staged_files(base, table)) for table in tables}
        links: list[str] = []
        found = files_below(filesystem, folder, allow_not_found=True, is_complete=is_complete,
                            links=links, partitions=partitions)
        after = {table: _Staging(files=staged_files(base, table),
                                 generation=_generation(base, table)) for table in tables}
        places = {"": own, **_linked(base, where, links, own[0])}
        if tables.issuperset(table for table, _ in places.values()) \
                and all(before[table].is_same(after[table]) for table in tables):
            _check_found(filesystem, found, folder)
            if check is not None:
                check(found)
            with contextlib.suppress(FileNotFoundError):  # a record has just been removed
                # Pending files of both: a listed file may since be gone, with its marker.
                jobs = {table: _jobs(base, before[table].files | after[table].files, table)
                        for table in tables}
                return _visible(found, jobs, places)
        time.sleep(0.01)
    raise _busy(folder)


def _linked(filesystem: pa_fs.FileSystem, folder: str, links: list[str], own: str) \
        -> dict[str, tuple[str, str]]:
    """Return the table and the path in it of what links lead to, if it is not in the own table."""
    names = ((relative_path(link, folder), link) for link in links)
    found = {name: table_and_name(filesystem, link, own) for name, link in names
             if not is_hidden(name)}
    return {name: place for name, place in found.items() if place[0] != own}


def _busy(folder: str) -> SecureBloomError:
    return SecureBloomError("jobs commit to this folder faster than it can be listed; try again",
                            file=folder)


def _check_found(filesystem: pa_fs.FileSystem, found: Mapping[str, pa_fs.FileInfo],
                 folder: str) -> None:
    if not found and filesystem.get_file_info(folder).type == pa_fs.FileType.NotFound:
        raise FileNotFoundError(f"there is no folder {folder}")
    staging = f"/{STAGING}/"
    for path in found:
        if staging not in path:  # as nearly all
            continue
        table, _, marker = path.partition(staging)
        if "/" in marker and not is_hidden(table):
            raise SecureBloomError("this is a separate table, and a job is writing to it or left "
                                   "something there; read it by its own path, or wait until the "
                                   "next job there ends", file=f"{folder}/{table}")


def _visible(found: Mapping[str, pa_fs.FileInfo], jobs: Mapping[str, Mapping[str, JobState]],
             places: Mapping[str, tuple[str, str]]) -> dict[str, pa_fs.FileInfo]:
    kept = sorted([path for path in found if not is_hidden(path)])
    if not any(jobs.values()):
        return {path: found[path] for path in kept}
    replacing: dict[tuple[str, str], list[CommitRecord]] = {}
    for table, states in jobs.items():
        folders = tuple(posixpath.join(name, "") for one, name in places.values() if one == table)
        for state in states.values():
            if state.record is not None:
                for path in state.record.replaced:
                    if path.startswith(folders):
                        replacing.setdefault((table, path), []).append(state.record)

    def is_hidden_as(one: tuple[str, str], info: pa_fs.FileInfo) -> bool:
        table, name = one
        job = job_of(name)
        state = None if job is None else jobs[table].get(job)
        return (state is not None and state.hides(name)) \
            or any(record.replaces(name, info) for record in replacing.get(one, ()))

    return {path: found[path] for path in kept
            if not any(is_hidden_as(one, found[path]) for one in _names(path, places))}


def _names(path: str, places: Mapping[str, tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the name of a file in the table, and in that to which the last link on its way leads.

    Jobs of both may have written it: a folder is moved to another disk, for example.
    """
    ways = [""]
    if len(places) > 1:  # there are links, which is rare
        place = posixpath.dirname(path)
        while place not in places:
            place = posixpath.dirname(place)
        ways = [place, ""] if place else ways
    return [(places[way][0], posixpath.join(places[way][1], path[len(way):].lstrip("/")))
            for way in ways]


def read_jobs(filesystem: pa_fs.FileSystem, table: str) -> dict[str, JobState]:
    """Return the jobs that have anything in ``_staging``, by id.

    Raises FormatError if a commit record cannot be understood.
    """
    for _ in range(_TRIES):
        with contextlib.suppress(FileNotFoundError):  # a record has just been removed
            return _jobs(filesystem, staged_files(filesystem, table), table)
    raise _busy(table)


def _jobs(filesystem: pa_fs.FileSystem, staged: Mapping[str, pa_fs.FileInfo], table: str) \
        -> dict[str, JobState]:
    jobs: dict[str, JobState] = {}
    committed = {}
    for path, info in staged.items():
        job, _, rest = path.partition("/")
        if not rest or not is_job_id(job):
            continue
        state = jobs.setdefault(job, JobState())
        if info.mtime is not None:
            state.newest = max(info.mtime, state.newest or info.mtime)
        if rest == STARTED:
            state.started = True
        elif rest == GIVEN_UP:
            state.given_up = True
        elif rest == COMMITTED:
            committed[job] = info
        elif rest.startswith(f"{PENDING}/"):
            state.pending.add(rest.removeprefix(f"{PENDING}/"))
    records = _read_records(filesystem, list(committed.values()), posixpath.join(table, STAGING))
    for job, record in zip(committed, records, strict=True):
        jobs[job].record = record
    return jobs


def _read_records(filesystem: pa_fs.FileSystem, infos: list[pa_fs.FileInfo], staging: str) \
        -> list[CommitRecord]:
    """Read commit records, which anyone may have written; what all of them take is bounded."""
    def read(info: pa_fs.FileInfo) -> bytes:
        return _read_marker(filesystem, info.path, MAX_RECORD if info.size is None else info.size)

    def parsed(data: bytes, info: pa_fs.FileInfo) -> CommitRecord:
        with error_location(file=info.path):
            return CommitRecord.from_bytes(data)

    if not infos:
        return []
    check_total([info.size for info in infos], MAX_RECORD, staging)
    if len(infos) == 1:
        texts = [read(infos[0])]  # a thread would take longer than to read a local record
    else:
        with ThreadPoolExecutor(8) as pool:  # each request to an object store is slow
            texts = list(pool.map(read, infos))
    with error_location(file=staging if len(infos) > 1 else infos[0].path):
        check_values(texts, *MAX_VALUES)
    return list(map(parsed, texts, infos))


def files_below(filesystem: pa_fs.FileSystem, folder: str, *, allow_not_found: bool = False,
                is_complete: bool = True, links: list[str] | None = None,
                partitions: PartitionChoice | None = None) -> dict[str, pa_fs.FileInfo]:
    """Return all files below a folder, by their paths relative to it.

    For ``links``, see :func:`.walk`.

    Unless ``is_complete``, files in ``_staging`` and ``_index`` may be left out; and in a store,
    partitions are listed at the same time. Those that ``partitions`` does not enter are then left
    out, except where a whole listing is faster.

    Raises
    ------
    UnsupportedError
        If links between local folders form a circle, or too many lead to the same folders, or the
        name of a file is not valid UTF-8.
    """
    prefix = folder.rstrip("/") + "/"
    start = len(prefix)
    if filesystem.type_name == "local":
        return {info.path[start:]: info
                for info in walk(filesystem, folder.rstrip("/") or "/", allow_not_found, links,
                                 partitions)}
    base, below = without_subtree(filesystem, folder)
    if type(base) is pa_fs.LocalFileSystem:  # pyarrow would follow links that form a circle
        return _below_subtree(base, below, prefix, allow_not_found, links, partitions)
    found = recursively(filesystem, folder, allow_not_found) if is_complete \
        else by_folders(filesystem, folder, allow_not_found, (STAGING, INDEX), partitions)
    return dict(zip(relative_paths([info.path for info in found], folder), found, strict=True))


def _below_subtree(base: pa_fs.FileSystem, folder: str, prefix: str, allow_not_found: bool,
                   links: list[str] | None, partitions: PartitionChoice | None) \
        -> dict[str, pa_fs.FileInfo]:
    """Do the same in a part of a local filesystem, where the folder has another path."""
    found = {}
    for info in walk(base, folder.rstrip("/") or "/", allow_not_found, links, partitions):
        name = relative_path(info.path, folder)
        info.path = f"{prefix}{name}".lstrip("/")
        found[name] = info
    return found


def staged_files(filesystem: pa_fs.FileSystem, table: str) -> dict[str, pa_fs.FileInfo]:
    """Return the files in ``_staging`` of a table, by their paths relative to it."""
    return files_below(filesystem, posixpath.join(table, STAGING), allow_not_found=True)


def _generation(filesystem: pa_fs.FileSystem, table: str) -> bytes | None:
    # The content, not the mtime: times may be whole seconds, in which much can happen.
    try:
        return _read_marker(filesystem, posixpath.join(table, STAGING, GENERATION), MAX_MARKER)
    except FileNotFoundError:
        return None


def _read_marker(filesystem: pa_fs.FileSystem, path: str, limit: int) -> bytes:
    """Read a marker of at most so many bytes; it is never replaced by one of another length.

    Raises
    ------
    FileNotFoundError
        Also if the marker is removed while it is read.
    FormatError
        If it is larger, or not a regular file.
    """
    if local_path(filesystem, path) is not None:
        return read_constant(filesystem, path, limit)
    with filesystem.open_input_stream(path) as stream:  # one request
        try:
            data = stream.read(limit + 1)
        except OSError:  # an object store fails like this if the marker was removed after opening
            return read_small(filesystem, path, limit)
    check_size(len(data), limit, path)
    return data


def _markers(staged: Mapping[str, pa_fs.FileInfo]) -> set[str]:
    """Return the markers that change what is visible, except those of single files."""
    return {path for path in staged if path.endswith((f"/{STARTED}", f"/{COMMITTED}"))}


