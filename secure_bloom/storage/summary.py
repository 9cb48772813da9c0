"""What a job has written: its files and their totals, which are stored in ``_SUCCESS``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow.fs as pa_fs

from secure_bloom.display import Summarized, count, shown
from secure_bloom.errors import FormatError
from secure_bloom.storage.small_files import MAX_MARKER, parse_json, read_small
from secure_bloom.storage.visibility import SUCCESS


@dataclass(frozen=True)
class FilterTotals:
    """Number of filters written, and their size in bytes, including headers."""

    encrypted: int = 0
    plain: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class StagedFile:
    """A complete file that is not visible yet; its path is relative to the folder."""

    path: str
    rows: int
    size: int
    encrypted_filters: int = 0
    plain_filters: int = 0
    filter_bytes: int = 0


@dataclass(frozen=True, repr=False)
class CommitSummary(Summarized):
    """What a commit made visible.

    Attributes
    ----------
    job, time : str
        Job id, and time of the commit in ISO format, UTC.
    files, rows, bytes : int
    encrypted_filters, plain_filters, filter_bytes : int
        Bloom filters in these files, and their size.
    """

    job: str
    time: str
    files: int
    rows: int
    bytes: int
    encrypted_filters: int
    plain_filters: int
    filter_bytes: int

    def _headline(self) -> str:
        filters = count(self.encrypted_filters + self.plain_filters, "filter")
        return (f"{count(self.files, 'file')}, {count(self.rows, 'row')}, "
                f"{count(self.bytes, 'byte')}, {filters} ({self.encrypted_filters:,} encrypted), "
                f"at {shown(str(self.time), 40).replace('+00:00', 'Z')}")

    @classmethod
    def of(cls, job: str, files: list[StagedFile]) -> CommitSummary:
        """Total the files of a job that commits now."""
        def total(name: str) -> int:
            return sum(getattr(file, name) for file in files)
        return cls(job, datetime.now(UTC).isoformat(timespec="seconds"), len(files), total("rows"),
                   total("size"), total("encrypted_filters"), total("plain_filters"),
                   total("filter_bytes"))


def read_summary(filesystem: pa_fs.FileSystem, folder: str) -> CommitSummary:
    """Read the summary of the last commit to a folder from its ``_SUCCESS``.

    Raises FileNotFoundError if it does not exist: nothing was committed, or a commit is running;
    FormatError if another program wrote it.
    """
    path = f"{folder.rstrip('/')}/{SUCCESS}"
    data = read_small(filesystem, path, MAX_MARKER)
    try:
        return CommitSummary(**parse_json(data))
    except (FormatError, ValueError, TypeError, RecursionError):
        raise FormatError("this is not a secure_parquet commit summary", file=path) from None
