"""What a job has written: its files and their totals, which are stored in ``_SUCCESS``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow.fs as pa_fs

from secure_bloom.display import Result, count, names, shown
from secure_bloom.errors import FormatError
from secure_bloom.storage.small_files import MAX_MARKER, parse_json, read_small
from secure_bloom.storage.table_names import SUCCESS


@dataclass(frozen=True, repr=False)
class FilterTotals(Result):
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


class ColumnsSummary(Result):
    """Base of what says which columns of written files are encrypted, and which are open."""

    __slots__ = ()
    encrypted_columns: Mapping[str, str | None] | None
    open_columns: Sequence[str] | None

    def _rows(self) -> tuple[Sequence[str], Iterable[Sequence[object]]]:
        return ("column", "protection", "master key"), [
            *((path, "encrypted", key) for path, key in (self.encrypted_columns or {}).items()),
            *((path, "open", None) for path in self.open_columns or ())]


@dataclass(frozen=True, repr=False)
class WriteSummary(ColumnsSummary):
    """What was written to a file.

    Attributes
    ----------
    file : str
        Name of the file.
    rows, row_groups, bytes : int
    encrypted_columns : dict of str to str or None
        Leaf columns that are encrypted, with their master keys. None: an explicit key.
    open_columns : list of str
        Leaf columns that everyone who has the file can read.
    encrypted_filters, plain_filters, filter_bytes : int
        Bloom filters, and their size.
    """

    file: str
    rows: int
    row_groups: int
    bytes: int
    encrypted_columns: Mapping[str, str | None]
    open_columns: Sequence[str]
    encrypted_filters: int
    plain_filters: int
    filter_bytes: int

    def _headline(self) -> str:
        filters = count(self.encrypted_filters + self.plain_filters, "filter")
        keys = [f"{path} ({key})" if key is not None else path
                for path, key in self.encrypted_columns.items()]
        return (f"{shown(self.file, 30)}: {count(self.rows, 'row')}, "
                f"{count(self.row_groups, 'row group')}, {filters}; "
                f"encrypted: {names(keys) or 'none'}; open: {names(self.open_columns) or 'none'}")


@dataclass(frozen=True, repr=False)
class CommitSummary(ColumnsSummary):
    """What a commit made visible.

    Attributes
    ----------
    job, time : str
        Job id, and time of the commit in ISO format, UTC.
    files, rows, bytes : int
    encrypted_filters, plain_filters, filter_bytes : int
        Bloom filters in these files, and their size.
    encrypted_columns, open_columns : dict, list, or None
        As in :class:`WriteSummary`. None if the summary was read from the folder.
    indexed_columns : list of str, or None
        Columns whose index this write has updated. None if the summary was read from the folder.
    """

    job: str
    time: str
    files: int
    rows: int
    bytes: int
    encrypted_filters: int
    plain_filters: int
    filter_bytes: int
    encrypted_columns: Mapping[str, str | None] | None = field(default=None, compare=False)
    open_columns: Sequence[str] | None = field(default=None, compare=False)
    indexed_columns: Sequence[str] | None = field(default=None, compare=False)

    def to_record(self) -> dict[str, Any]:
        """Return what is stored."""
        return {name: getattr(self, name) for name in self._names()
                if name not in ("encrypted_columns", "open_columns", "indexed_columns")}

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
    except (FormatError, ValueError, TypeError):
        raise FormatError("this is not a secure_parquet commit summary", file=path) from None
