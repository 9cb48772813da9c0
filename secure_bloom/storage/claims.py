"""Claims of jobs that are about to replace files, so that no two of them replace the same ones.

A job that replaces visible files writes a claim, and then reads the claims of other jobs. So of two
jobs at least one finds the claim of the other, and gives up. A claim is removed with the job, after
the files that it replaced. Jobs that overwrite do not exclude each other.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import pyarrow.fs as pa_fs

from secure_bloom.errors import ChangedMeanwhileError, FormatError
from secure_bloom.storage.job_folder import REPLACING, JobFolder
from secure_bloom.storage.small_files import (
    MAX_RECORD,
    check_names,
    check_total,
    parse_json,
    read_small,
)
from secure_bloom.storage.visibility import (
    COMMITTED,
    MAX_VALUES,
    STAGING,
    STARTED,
    files_below,
    read_jobs,
    relative_path,
    table_of,
)

_TAKEN = "another job replaces the same files, or died while it did; run the job again"


@dataclass(frozen=True)
class Claim:
    """What a job is about to replace: files, or all files below a folder, relative to the table."""

    files: frozenset[str] = frozenset()
    folder: str | None = None

    def has(self, name: str) -> bool:
        """Whether a file is claimed."""
        return name in self.files or (
            self.folder is not None and (not self.folder or name.startswith(f"{self.folder}/")))

    def to_bytes(self) -> bytes:
        """Return the claim as JSON."""
        return json.dumps({"files": sorted(self.files), "folder": self.folder}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Claim:
        """Parse :meth:`to_bytes`; raises FormatError."""
        try:
            values = parse_json(data, *MAX_VALUES)
            files, folder = values["files"], values["folder"]
            if not isinstance(files, list):
                raise ValueError("its files are not a list")
            check_names(files if folder is None else [*files, folder])
            return cls(frozenset(files), folder)
        except (ValueError, TypeError, KeyError, RecursionError):
            raise FormatError("this is not a valid claim of a job") from None


def claim_files(job: JobFolder, names: Collection[str]) -> None:
    """Claim files, by their paths relative to the table.

    Raises ChangedMeanwhileError if another job has claimed one of them.
    """
    _write(job, Claim(frozenset(names)))
    if any(claim.has(name) for claim in _claims(job.filesystem, job.table, job.id)
           for name in names):
        raise ChangedMeanwhileError(_TAKEN, file=job.folder)


def claim_folder(job: JobFolder) -> None:
    """Claim all files below the folder of a job.

    Raises ChangedMeanwhileError if another job has claimed single ones of them.
    """
    own = Claim(folder=job.name)
    _write(job, own)
    if any(own.has(name) for claim in _claims(job.filesystem, job.table, job.id)
           for name in claim.files):
        raise ChangedMeanwhileError(_TAKEN, file=job.folder)


def is_being_replaced(filesystem: pa_fs.FileSystem, path: str) -> bool:
    """Whether a job is about to replace this file, or has done so and not deleted it yet."""
    table = table_of(posixpath.dirname(path))
    name = relative_path(path, table)
    return any(claim.has(name) for claim in _claims(filesystem, table)) \
        or any(state.record is not None and name in state.record.replaced
               for state in read_jobs(filesystem, table).values())


def _write(job: JobFolder, claim: Claim) -> None:
    job.write_file(f"{job.staging}/{REPLACING}", claim.to_bytes())


def _claims(filesystem: pa_fs.FileSystem, table: str, own: str = "") -> Iterator[Claim]:
    """Yield the claims of other jobs that have not ended."""
    staging = posixpath.join(table, STAGING)
    staged = files_below(filesystem, staging, allow_not_found=True)
    claims = []
    for path, info in staged.items():
        job, _, marker = path.partition("/")
        has_ended = staged.keys().isdisjoint((f"{job}/{STARTED}", f"{job}/{COMMITTED}"))
        if marker == REPLACING and job != own and not has_ended:
            claims.append(info)
    check_total([info.size for info in claims], MAX_RECORD, staging)
    for info in claims:
        with contextlib.suppress(FileNotFoundError):  # the job has just ended
            yield Claim.from_bytes(read_small(filesystem, info.path, MAX_RECORD))
