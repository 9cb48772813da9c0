"""The result of an audit: findings, a record for each file and column, and totals."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from secure_bloom.display import Result, count, shown
from secure_bloom.errors import AuthenticationError, SecureBloomError
from secure_bloom.findings import CheckResult, Finding, Severity

#: the kinds of findings, with their severity (error, warning or note) and meaning
KINDS: dict[str, tuple[Severity, str]] = {
    "leak": ("error", "A plaintext Bloom filter on an encrypted column"),
    "unencrypted": ("error", "A sensitive column that is not encrypted"),
    "master-key": ("error", "A column or footer under another master key than the policy "
                            "requires"),
    "statistics": ("error", "Statistics of an encrypted column can be read without its key"),
    "metadata": ("error", "Values of an encrypted column in metadata that can be read without its "
                          "key"),
    "plaintext-footer": ("error", "A footer that is not encrypted, although the policy requires "
                                  "it"),
    "algorithm": ("error", "Pages that are not authenticated, although the policy requires it"),
    "shared-id": ("error", "Files that share a file id, so parts of them can be swapped"),
    "authentication": ("error", "Encrypted data that does not authenticate"),
    "damaged": ("error", "A file or filter that cannot be read"),
    "index": ("error", "An index without encryption of a sensitive column"),
    "log": ("error", "Values of a sensitive column, or keys, in the log of a table"),
    "leftover": ("error", "Plaintext rows in a file that readers do not see"),
    "trace": ("warning", "Bytes of a plaintext Bloom filter that no footer references"),
    "guessed": ("warning", "An unencrypted column whose filters recognize guessed values"),
    "refused": ("warning", "A filter that some readers reject or ignore"),
    "policy": ("warning", "A name in the policy that matches no column"),
    "stale-index": ("note", "An index that does not cover all files"),
}

PROTECTED, LEAKING, OPEN, NONE, UNKNOWN = "protected", "leaking", "open", "none", "unknown"
#: how a file is encrypted
NO_ENCRYPTION, SIGNED_FOOTER, ENCRYPTED_FOOTER = "none", "signed footer", "encrypted footer"
UNREADABLE, NOT_PARQUET = "unknown", "not Parquet"


def kind_of(error: SecureBloomError) -> str:
    """Return the kind of finding about something that cannot be read."""
    return "authentication" if isinstance(error, AuthenticationError) else "damaged"


def new_finding(kind: str, message: str, remedy: str, file: str, column: str | None = None,
                row_groups: tuple[int, ...] = (), evidence: tuple[str, ...] = ()) -> Finding:
    """Return a finding of one of the :data:`KINDS`."""
    return Finding(kind, KINDS[kind][0], message, file, column, row_groups, remedy, evidence)


@dataclass(slots=True, repr=False)
class ColumnAudit(Result):
    """The audit record of one column of a file.

    Attributes
    ----------
    column : str
        Dotted path.
    state : str
        ``protected``: encrypted, and so are its filters. ``leaking``: a finding about it is an
        error. ``open``: not encrypted, with plaintext filters. ``none``: not encrypted, without
        filters. ``unknown``: cannot be determined without its key.
    sensitive : bool or None
        Whether it is sensitive: by policy, or because it is encrypted, here or in another file of
        the folder. None if there is no policy, and it is not encrypted.
    encrypted : bool
        Whether all of its row groups are encrypted.
    filters : int or None
        Number of row groups with a filter; None if that is hidden.
    bytes : int or None
        Size of the filters, with their headers; None if that is hidden.
    fill : float or None
        Fraction of bits that are set: the mean over the filters that could be read.
    fpp : float or None
        Estimated false-positive probability: the mean over the same filters.
    encryption : str or None
        ``column key``, or ``footer key`` if at least one row group uses that; None unless all row
        groups are encrypted.
    plain_filters : int or None
        Number of row groups with a plaintext filter, as far as known; None if there may be some,
        but none is known.
    encrypted_row_groups : int
        Number of row groups in which it is encrypted.
    """

    column: str
    state: str = NONE
    sensitive: bool | None = None
    encrypted: bool = False
    filters: int | None = 0
    bytes: int | None = 0
    fill: float | None = None
    fpp: float | None = None
    encryption: str | None = None
    plain_filters: int | None = 0
    encrypted_row_groups: int = 0

    def _headline(self) -> str:
        return f"{shown(self.column, 60)}: {self.state}"


@dataclass(slots=True, repr=False)
class FileAudit(Result):
    """The audit record of one file.

    Attributes
    ----------
    file : str
    encryption : str
        ``none``, ``signed footer``, ``encrypted footer``; ``unknown`` if the file cannot be read;
        ``not Parquet`` if it is another kind of file, which is not audited.
    columns : list of ColumnAudit
    not_checked : list of str
        What could not be checked, and why.
    missing_keys : bool
        Whether something was not checked because of a missing key.
    rows : int or None
        Number of rows; None if that cannot be read.
    outside : bool
        Whether it is a live file of a table that is not in the audited folder.
    """

    file: str
    encryption: str = NO_ENCRYPTION
    columns: list[ColumnAudit] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)
    missing_keys: bool = False
    rows: int | None = 0
    outside: bool = False

    @property
    def is_unknown(self) -> bool:
        """Whether the file could not be looked into, so that not even its columns are known."""
        return self.rows is None and self.encryption != NOT_PARQUET

    def _headline(self) -> str:
        columns = "columns unknown" if self.rows is None else count(len(self.columns), "column")
        return f"{shown(self.file, 60)}: encryption {self.encryption}, {columns}"

    def _rows(self) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        return ("column", "state", "filters"), \
            ((column.column, column.state, column.filters) for column in self.columns)


@dataclass(slots=True, repr=False)
class ColumnTotals(Result):
    """The totals of one column over all files.

    Attributes
    ----------
    column : str
        Dotted path.
    files : int
        Number of files that have the column.
    column_key, footer_key, unencrypted : int
        Number of files in which it is encrypted with its own key, encrypted with the footer key,
        or unencrypted in at least one row group.
    plaintext_filters : int
        Number of files in which it has plaintext filters.
    errors, warnings : int
        Number of findings about it.
    unknown : int
        Number of files that may have further plaintext filters of it: these are hidden, or the file
        could not be looked into.
    """

    column: str
    files: int = 0
    column_key: int = 0
    footer_key: int = 0
    unencrypted: int = 0
    plaintext_filters: int = 0
    errors: int = 0
    warnings: int = 0
    unknown: int = 0

    def _add(self, column: ColumnAudit) -> None:
        self.files += 1
        self.column_key += column.encryption == "column key"
        self.footer_key += column.encryption == "footer key"
        self.unencrypted += column.encryption is None
        self.plaintext_filters += bool(column.plain_filters)
        self.unknown += column.filters is None


@dataclass(repr=False)
class AuditResult(CheckResult):
    """The result of :func:`secure_bloom.audit`.

    Attributes
    ----------
    path : str
    files : list of FileAudit
    findings : list of Finding
    """

    path: str
    files: list[FileAudit] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether there are files, and all of them were checked completely."""
        return bool(self.files) and not any(file.not_checked for file in self.files)

    @property
    def missing_keys(self) -> bool:
        """Whether something was not checked because a key was missing or refused."""
        return any(file.missing_keys for file in self.files)

    @property
    def unknown_files(self) -> int:
        """Number of files that could not be looked into, whether encrypted or not."""
        return sum(file.is_unknown for file in self.files)

    @property
    def not_audited_files(self) -> int:
        """Number of files that are not Parquet files, so that they were not audited."""
        return sum(file.encryption == NOT_PARQUET for file in self.files)

    @property
    def outside_files(self) -> int:
        """Number of live files of tables that are not in the audited folder."""
        return sum(file.outside for file in self.files)

    @property
    def unencrypted_files(self) -> int:
        """Number of files without any encryption."""
        return sum(file.encryption == NO_ENCRYPTION for file in self.files)

    @property
    def encrypted_files(self) -> int:
        """Number of files with an encrypted or signed footer."""
        return sum(file.encryption in (SIGNED_FOOTER, ENCRYPTED_FOOTER) for file in self.files)

    @property
    def lacks_encryption(self) -> bool:
        """Whether none of the readable files is encrypted."""
        return self.unencrypted_files > 0 and not self.encrypted_files

    @property
    def summary(self) -> str:
        """One line: whether anything is encrypted, and the number of findings."""
        found = f"{count(self.errors, 'error')}, {count(self.warnings, 'warning')}"
        found += "".join(f", {count(number, 'file')} {what}" for number, what in (
            (self.unknown_files, "unknown"), (self.not_audited_files, "not audited")) if number)
        audited = len(self.files) - self.not_audited_files
        files = count(audited, "file")
        if not self.lacks_encryption:
            return f"{self.path}: {files}, {found}"
        readable = f" ({self.unencrypted_files:,} of them can be read)" \
            if self.unencrypted_files < audited else ""
        return f"No file is encrypted: {files}{readable} in {self.path}, {found}"

    def totals(self) -> list[ColumnTotals]:
        """Totals of all columns, by descending number of errors, then in the order of the files."""
        totals: dict[str, ColumnTotals] = {}
        for file in self.files:
            for column in file.columns:
                if column.column not in totals:
                    totals[column.column] = ColumnTotals(column.column)
                totals[column.column]._add(column)
        unknown = self.unknown_files
        for total in totals.values():
            total.unknown += unknown
        for finding in self.findings:
            if finding.column in totals:
                total = totals[finding.column]
                total.errors += finding.severity == "error"
                total.warnings += finding.severity == "warning"
        return sorted(totals.values(), key=lambda total: (-total.errors, -total.warnings))

    def to_dict(self) -> dict[str, Any]:
        """The result as a dictionary for JSON."""
        return {**self._head(), **{name: [one.to_dict() for one in records]
                                  for name, records in self._records()}}

    def json_parts(self, **more: Any) -> Iterator[str]:
        """Yield the same result as pieces of JSON, which needs far less memory for many files.

        ``more`` comes first, such as where the report comes from.
        """
        yield json.dumps({**more, **self._head()}, indent=2)[:-2]
        for name, records in self._records():
            yield f',\n  "{name}": ['
            for number, record in enumerate(records):
                yield ("," if number else "") + f"\n    {json.dumps(record.to_dict())}"
            yield "]"
        yield "\n}\n"

    def _head(self) -> dict[str, Any]:
        return {
            "version": 1,
            "path": self.path,
            "ok": self.ok,
            "missing_keys": self.missing_keys,
            "encrypted_files": self.encrypted_files,
            "unencrypted_files": self.unencrypted_files,
            "unknown_files": self.unknown_files,
            "not_audited_files": self.not_audited_files,
            "outside_files": self.outside_files,
            "columns": [total.to_dict() for total in self.totals()],
        }

    def _records(self) -> tuple[tuple[str, Sequence[Result]], ...]:
        return ("findings", self.findings), ("files", self.files)

    def _headline(self) -> str:
        return self.summary

    def _rows(self) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        return TOTALS_HEADER, map(totals_row, self.totals())


TOTALS_HEADER = ("column", "files", "column key", "footer key", "not encrypted",
                 "plaintext filters", "unknown", "errors", "warnings")


def totals_row(total: ColumnTotals) -> list[str]:
    """The cells of a row below :data:`TOTALS_HEADER`."""
    filters = "?" if total.unknown and not total.plaintext_filters \
        else f"{total.plaintext_filters:,}"
    return [shown(total.column), *(f"{number:,}" for number in (
        total.files, total.column_key, total.footer_key, total.unencrypted)), filters,
        *(f"{number:,}" for number in (total.unknown, total.errors, total.warnings))]
