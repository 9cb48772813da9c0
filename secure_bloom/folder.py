"""A folder of data files, and which of them readers may see while jobs write into it.

    <folder>/_staging/<job>/started        the job has not committed: all its files are hidden
    <folder>/_staging/<job>/pending/<file> an attempt may write <folder>/<file>: it is hidden
    <folder>/_staging/<job>/committed      of the job's files, the listed ones are visible,
                                           and the files that they replace are not

The last one is a single file, so a commit is a single step, however many files it publishes and
replaces. Files belong to a job by their names. Without a folder ``_staging`` everything is visible.
Who writes these markers, and who removes them, is in ``spark/commit.py``.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
import re
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import datetime

import pyarrow.fs as pa_fs

from secure_bloom.errors import FormatError, SecureBloomError

STAGING = "_staging"
SUCCESS = "_SUCCESS"
STARTED, PENDING, COMMITTED = "started", "pending", "committed"

_FILE_NAME = re.compile(r"part-\d+-([0-9a-f]{32})-[0-9a-f]{32}\.parquet")
_TRIES = 100


@dataclass(frozen=True)
class CommitRecord:
    """What a commit did. Paths are relative to the folder.

    Attributes
    ----------
    files : list of str
        The files of this job that are visible.
    replaced : dict of str to [int, int]
        Files that are not visible any more, with size and time: a new file of the same name is.
    summary : dict
        A CommitSummary.
    stream, batch
        The streaming query and its batch, or None.
    """

    files: list[str]
    replaced: dict[str, list] = field(default_factory=dict)
    summary: dict = field(default_factory=dict)
    stream: str | None = None
    batch: int | None = None

    def to_bytes(self) -> bytes:
        """As JSON."""
        return json.dumps({"version": 1, **asdict(self)}, indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> CommitRecord:
        """The inverse; raises FormatError unless every path stays below the folder."""
        try:
            values = json.loads(data)
            if values.pop("version") != 1:
                raise ValueError("its version is not 1")
            record = cls(**values)
            for path in [*record.files, *record.replaced]:
                if path.startswith("/") or ".." in path.split("/"):
                    raise ValueError("a path leads out of the folder")
            if record.stream is not None and not re.fullmatch(r"[\w-]+", record.stream):
                raise ValueError("its stream is not the id of a query")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise FormatError(f"this commit record cannot be understood ({error}); a newer "
                              "secure_bloom may have written it") from None
        return record


@dataclass
class JobState:
    """What ``_staging`` says about a job."""

    started: bool = False
    pending: set[str] = field(default_factory=set)
    record: CommitRecord | None = None
    newest: datetime | None = None

    def hides(self, path: str) -> bool:
        """Whether a file of this job is not to be seen."""
        if self.record is not None:
            return path not in self.record.files
        return self.started or path in self.pending


def new_name(partition: int, job: str) -> str:
    """A name for a data file that no other attempt has."""
    return f"part-{partition:05d}-{job}-{uuid.uuid4().hex}.parquet"


def job_of(path: str) -> str | None:
    """The id of the job that wrote a file, by its name."""
    match = _FILE_NAME.fullmatch(posixpath.basename(path))
    return match[1] if match else None


def data_files(filesystem: pa_fs.FileSystem, folder: str) -> list[str]:
    """The visible files below a folder, sorted."""
    return [info.path for info in visible_files(filesystem, folder).values()]


def parquet_files(filesystem: pa_fs.FileSystem, path: str) -> list[str]:
    """The visible files below a folder, or the file itself.

    Raises
    ------
    FileNotFoundError
        If there is nothing at the path.
    """
    kind = filesystem.get_file_info(path).type
    if kind == pa_fs.FileType.NotFound:
        raise FileNotFoundError(f"there is no file or folder {path}")
    return data_files(filesystem, path) if kind == pa_fs.FileType.Directory else [path]


def visible_files(filesystem: pa_fs.FileSystem, folder: str) -> dict[str, pa_fs.FileInfo]:
    """The visible files below a folder, by their paths relative to it, sorted.

    All are of one moment between two commits. Raises FileNotFoundError if there is no folder.
    """
    before = _staged(filesystem, folder)
    for _ in range(_TRIES):
        found = files_below(filesystem, folder)
        after = _staged(filesystem, folder)
        if _markers(before) == _markers(after):
            with contextlib.suppress(FileNotFoundError):  # a record has just been removed
                return _visible(found, _jobs(filesystem, after))
        before = after
        time.sleep(0.01)
    raise _busy(folder)


def _busy(folder: str) -> SecureBloomError:
    return SecureBloomError("jobs commit to this folder faster than it can be listed", file=folder)


def _visible(found, jobs) -> dict[str, pa_fs.FileInfo]:
    replaced: dict[str, list[list]] = {}
    for state in jobs.values():
        for path, which in (state.record.replaced if state.record else {}).items():
            replaced.setdefault(path, []).append(which)

    def is_visible(path, info):
        state = jobs.get(job_of(path))
        return not (_is_hidden(path) or (state is not None and state.hides(path))
                    or signature(info) in replaced.get(path, ()))

    return {path: info for path, info in sorted(found.items()) if is_visible(path, info)}


def signature(info: pa_fs.FileInfo) -> list:
    """What tells a file from a later one of the same name."""
    return [info.size, info.mtime_ns]


def read_jobs(filesystem: pa_fs.FileSystem, folder: str) -> dict[str, JobState]:
    """The jobs of which ``_staging`` holds anything, by id.

    Raises
    ------
    FormatError
        If a commit record cannot be understood.
    """
    for _ in range(_TRIES):
        with contextlib.suppress(FileNotFoundError):  # a record has just been removed
            return _jobs(filesystem, _staged(filesystem, folder))
    raise _busy(folder)


def _jobs(filesystem, staged: Mapping[str, pa_fs.FileInfo]) -> dict[str, JobState]:
    jobs: dict[str, JobState] = {}
    committed = {}
    for path, info in staged.items():
        job, _, rest = path.partition("/")
        if not rest:
            continue
        state = jobs.setdefault(job, JobState())
        if info.mtime is not None:
            state.newest = max(info.mtime, state.newest or info.mtime)
        if rest == STARTED:
            state.started = True
        elif rest == COMMITTED:
            committed[job] = info.path
        elif rest.startswith(f"{PENDING}/"):
            state.pending.add(rest.removeprefix(f"{PENDING}/"))
    for job, record in _read_records(filesystem, committed).items():
        jobs[job].record = record
    return jobs


def _read_records(filesystem, paths: Mapping[str, str]) -> dict[str, CommitRecord]:
    def read(path):
        with filesystem.open_input_stream(path) as stream:
            data = stream.read()
        try:
            return CommitRecord.from_bytes(data)
        except FormatError as error:
            error.file = path
            raise

    with ThreadPoolExecutor(8) as pool:  # on an object store each one takes a while
        return dict(zip(paths, pool.map(read, paths.values()), strict=True))


def files_below(filesystem: pa_fs.FileSystem, folder: str, *,
                allow_not_found: bool = False) -> dict[str, pa_fs.FileInfo]:
    """All files below a folder, by their paths relative to it."""
    selector = pa_fs.FileSelector(folder, recursive=True, allow_not_found=allow_not_found)
    return {relative_path(info.path, folder): info for info in filesystem.get_file_info(selector)
            if info.type == pa_fs.FileType.File}


def relative_path(path: str, folder: str) -> str:
    """The path of a file as seen from the folder."""
    return path.removeprefix(folder.rstrip("/")).lstrip("/")


def _staged(filesystem, folder: str) -> dict[str, pa_fs.FileInfo]:
    """What is in ``_staging``, and ``_SUCCESS``, which every commit writes."""
    staged = files_below(filesystem, f"{folder}/{STAGING}", allow_not_found=True)
    return staged | {SUCCESS: filesystem.get_file_info(f"{folder}/{SUCCESS}")}


def _markers(staged: Mapping[str, pa_fs.FileInfo]) -> set:
    """Changes with every commit, and with every step that changes what is visible."""
    return {path for path in staged if path.endswith((f"/{STARTED}", f"/{COMMITTED}"))} | {
        tuple(signature(staged[SUCCESS]))}


def _is_hidden(relative: str) -> bool:
    return any(part.startswith((".", "_")) and "=" not in part for part in relative.split("/"))
