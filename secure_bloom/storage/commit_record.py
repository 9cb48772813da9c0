"""What a commit did: the file ``committed`` of a job; see ``storage/visibility.py``."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import pyarrow.fs as pa_fs

from secure_bloom.errors import FormatError
from secure_bloom.storage.small_files import MAX_RECORD, check_names, check_values, parse_json
from secure_bloom.storage.table_names import is_hidden, job_of, table_of
from secure_bloom.storage.versions import FileVersion

#: lists and commas in all commit records of a table: a million replaced files
MAX_VALUES = 1_000_010, 2_000_010


@dataclass(frozen=True)
class CommitRecord:
    """Record of what a commit did. Paths are relative to the table.

    Attributes
    ----------
    files : list of str
        The visible files of this job.
    replaced : dict of str to list
        Files that are no longer visible, with their signatures.
    summary : dict
        A CommitSummary.
    stream, batch
        The streaming query and its batch, or None.
    folder : str
        The Hive folder that the job wrote to, "" for the table.
    """

    files: list[str]
    replaced: dict[str, list[Any]] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    stream: str | None = None
    batch: int | None = None
    folder: str = ""

    @cached_property
    def visible(self) -> frozenset[str]:
        """The visible files: a reader asks for each file of the job."""
        return frozenset(self.files)

    def replaces(self, path: str, info: pa_fs.FileInfo) -> bool:
        """Whether this is one of the replaced files, rather than a later file of the same name.

        Names that we create are never reused. For other files, size and time decide.
        """
        known = self.replaced.get(path)
        return known is not None and (job_of(path) is not None or known == signature(info))

    def to_bytes(self) -> bytes:
        """Return the record as JSON."""
        return json.dumps({"version": 1, **asdict(self)}, indent=1).encode()

    def is_readable(self) -> bool:
        """Whether readers accept its size."""
        data = self.to_bytes()
        try:
            check_values([data], *MAX_VALUES)
        except FormatError:
            return False
        return len(data) <= MAX_RECORD

    @classmethod
    def from_bytes(cls, data: bytes) -> CommitRecord:
        """Parse :meth:`to_bytes`; raise FormatError unless every path stays below the folder."""
        try:
            values = parse_json(data, *MAX_VALUES)
            if values.pop("version") != 1:
                raise ValueError("its version is not 1")
            record = cls(**values)
            if not (isinstance(record.files, list) and isinstance(record.replaced, dict)
                    and isinstance(record.summary, dict)):
                raise ValueError("one of its parts has another type")
            check_names([*record.files, *record.replaced, record.folder])
            if not all(map(_is_signature, record.replaced.values())):
                raise ValueError("a replaced file has no signature")
            if any(map(is_hidden, [*record.files, *record.replaced])):
                raise ValueError("a file is not a data file")
            if table_of(f"table/{record.folder}") != "table":
                raise ValueError("its folder is not a valid Hive folder")
            if record.stream is not None and not re.fullmatch(r"[\w-]+", record.stream):
                raise ValueError("its stream is not a valid query id")
            if record.batch is not None \
                    and not (type(record.batch) is int and 0 <= record.batch < 2**63):
                raise ValueError("its batch is not a valid batch number")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise FormatError(f"this commit record cannot be parsed ({error}); a newer "
                              "secure_bloom may have written it") from None
        return record


def signature(info: pa_fs.FileInfo | FileVersion) -> list[Any]:
    """Return what distinguishes a file from a later one of the same name.

    Only infos from listings may be compared, and only whole seconds of their times: stores return
    times with different precision in other responses.
    """
    return [info.size, None if info.mtime_ns is None else info.mtime_ns // 10**9]


def _is_signature(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 \
        and all(one is None or type(one) is int for one in value)
