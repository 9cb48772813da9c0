"""Which batches of streaming queries have been committed to a folder: ``_streams/<query>/<batch>``.

Each batch has one file, and only the highest number counts, so writing an older batch again has no
effect.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from secure_bloom.storage.commit_record import CommitRecord
from secure_bloom.storage.job_folder import JobFolder
from secure_bloom.storage.visibility import files_below, read_jobs

STREAMS = "_streams"


@dataclass(frozen=True)
class Batch:
    """A batch of a streaming query, identified by the query's id; it is committed only once."""

    stream: str
    id: int


def is_committed(folder: JobFolder, batch: Batch) -> bool:
    """Whether this batch, or a later one of the query, has been committed."""
    # In this order: the file for a batch is written before its commit record is removed.
    records = [state.record for state in read_jobs(folder.filesystem, folder.table).values()]
    done = [record.batch for record in records
            if record and record.batch is not None
            and (record.stream, record.folder) == (batch.stream, folder.name)]
    return max(done + _numbers(folder, batch.stream), default=-1) >= batch.id


def note_batch(folder: JobFolder, record: CommitRecord) -> None:
    """Store the batch of a record, if it has one, so that the record can be removed."""
    if record.stream is None or record.batch is None:
        return
    folder.make_folder(_path(folder, record.stream))
    folder.write_file(f"{_path(folder, record.stream)}/{record.batch}")
    for number in _numbers(folder, record.stream):
        if number < record.batch:
            folder.delete_file(f"{_path(folder, record.stream)}/{number}")


def _path(folder: JobFolder, stream: str) -> str:
    return posixpath.join(folder.folder, STREAMS, stream)


def _numbers(folder: JobFolder, stream: str) -> list[int]:
    names = files_below(folder.filesystem, _path(folder, stream), allow_not_found=True)
    return [int(name) for name in names if re.fullmatch(r"\d+", name)]
