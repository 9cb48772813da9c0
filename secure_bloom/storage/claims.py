"""Claims of jobs that are about to replace files, so that no two of them replace the same ones.

A job that replaces visible files writes a claim, and then reads the claims of other jobs. So of two
jobs at least one finds the claim of the other, and gives up. A claim is removed with the job, after
the files that it replaced. Jobs that overwrite whole folders do not exclude each other.
"""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import pyarrow.fs as pa_fs

from secure_bloom.errors import ChangedMeanwhileError, FormatError, error_location
from secure_bloom.storage.commit_record import MAX_VALUES
from secure_bloom.storage.hive_partitioning import partition_of
from secure_bloom.storage.job_folder import REPLACING, JobFolder
from secure_bloom.storage.small_files import (
    MAX_RECORD,
    check_names,
    check_total,
    parse_json,
    read_small,
)
from secure_bloom.storage.table_names import STAGING, is_job_id, relative_path, table_of
from secure_bloom.storage.visibility import COMMITTED, STARTED, files_below, read_jobs

_TAKEN = ("another job replaces the same files or partitions, or died while it did; run the job "
          "again")


@dataclass(frozen=True)
class Claim:
    """What a job is about to replace: files, all files below a folder, or those of partitions.

    Files and folder are relative to the table; for partitions, see :func:`.partition_of`.
    """

    files: frozenset[str] = frozenset()
    folder: str | None = None
    partitions: frozenset[str] = frozenset()

    def has(self, name: str) -> bool:
        """Whether a file is claimed."""
        return name in self.files or _is_below(self.folder, name) \
            or (bool(self.partitions) and partition_of(name) in self.partitions)

    def excludes(self, other: Claim) -> bool:
        """Whether not both jobs may commit."""
        return any(map(self.has, other.files)) or any(map(other.has, self.files)) \
            or not self.partitions.isdisjoint(other.partitions) \
            or self._has_partition_of(other) or other._has_partition_of(self)

    def _has_partition_of(self, other: Claim) -> bool:
        """Whether the folder of this claim has one of the other's partitions."""
        folder = None if self.folder is None else partition_of(f"{self.folder}/")
        return any(_is_below(folder, f"{one}/") for one in other.partitions)

    def to_bytes(self) -> bytes:
        """Return the claim as JSON."""
        return json.dumps({name: sorted(value) if isinstance(value, frozenset) else value
                           for name, value in asdict(self).items()}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Claim:
        """Parse :meth:`to_bytes`; raises FormatError."""
        try:
            values = parse_json(data, *MAX_VALUES)
            files, folder, partitions = values["files"], values["folder"], values["partitions"]
            if not (isinstance(files, list) and isinstance(partitions, list)):
                raise ValueError("its files or partitions are not a list")
            check_names([*files, *partitions, *([] if folder is None else [folder])])
            return cls(frozenset(files), folder, frozenset(partitions))
        except (ValueError, TypeError, KeyError):
            raise FormatError("this is not a valid claim of a job") from None


def claim(job: JobFolder, own: Claim) -> None:
    """Claim what a job is about to replace.

    Raises ChangedMeanwhileError if another job has claimed any of it. Claims of whole folders do
    not exclude each other.
    """
    job.write_file(f"{job.staging}/{REPLACING}", own.to_bytes())
    if any(own.excludes(other) for other in _claims(job.filesystem, job.table, job.id)):
        raise ChangedMeanwhileError(_TAKEN, file=job.folder)


def is_being_replaced(filesystem: pa_fs.FileSystem, path: str, table: str | None = None) -> bool:
    """Whether a job is about to replace this file, or has done so and not deleted it yet.

    ``table`` is one whose jobs may do that besides those of the table of the file: it has the file
    in a folder that is not a partition. Without links, as the path. On a local filesystem, so may
    jobs of all tables above.
    """
    own = table_of(posixpath.dirname(path))
    return any(_is_replaced_by(filesystem, one, relative_path(path, one))
               for one in dict.fromkeys((own, table or own, *_tables_above(filesystem, own))))


def _tables_above(filesystem: pa_fs.FileSystem, folder: str) -> Iterator[str]:
    """Yield the folders above a local one that jobs write into."""
    while filesystem.type_name == "local" and (above := posixpath.dirname(folder)) != folder:
        folder = above
        if os.access(posixpath.join(folder, STAGING), os.R_OK | os.X_OK):
            yield folder


def _is_replaced_by(filesystem: pa_fs.FileSystem, table: str, name: str) -> bool:
    return any(one.has(name) for one in _claims(filesystem, table)) \
        or any(state.record is not None and name in state.record.replaced
               for state in read_jobs(filesystem, table).values())


def _is_below(folder: str | None, name: str) -> bool:
    return folder is not None and (not folder or name.startswith(f"{folder}/"))


def _claims(filesystem: pa_fs.FileSystem, table: str, own: str = "") -> Iterator[Claim]:
    """Yield the claims of other jobs that have not ended."""
    staging = posixpath.join(table, STAGING)
    staged = files_below(filesystem, staging, allow_not_found=True)
    claims = []
    for path, info in staged.items():
        job, _, marker = path.partition("/")
        has_ended = staged.keys().isdisjoint((f"{job}/{STARTED}", f"{job}/{COMMITTED}"))
        # Of another folder, no job would remove a claim, and it would be in the way for ever.
        if marker == REPLACING and is_job_id(job) and job != own and not has_ended:
            claims.append(info)
    check_total([info.size for info in claims], MAX_RECORD, staging)
    for info in claims:
        with contextlib.suppress(FileNotFoundError):  # the job has just ended
            data = read_small(filesystem, info.path, MAX_RECORD)
            with error_location(file=info.path):
                found = Claim.from_bytes(data)
            yield found
