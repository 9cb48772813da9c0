"""What an audit says: findings, a record for each file and column, and totals."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from secure_bloom.display import Summarized, count, shown

#: what can be found: how bad it is, and what it means
KINDS = {
    "leak": ("error", "A plaintext Bloom filter on an encrypted column"),
    "unencrypted": ("error", "A sensitive column that is not encrypted"),
    "statistics": ("error", "Least and greatest values of an encrypted column can be read"),
    "plaintext-footer": ("error", "A footer that is not encrypted, though the policy demands it"),
    "shared-id": ("error", "Files that share a file id, so that parts of them can be exchanged"),
    "authentication": ("error", "Something encrypted does not authenticate"),
    "damaged": ("error", "A file or filter that cannot be read"),
    "trace": ("warning", "Bytes of a plaintext Bloom filter that no footer names"),
    "refused": ("warning", "A filter that some readers refuse or ignore"),
    "policy": ("warning", "A name in the policy that matches no column"),
}

PROTECTED, LEAKING, OPEN, NONE, UNKNOWN = "protected", "leaking", "open", "none", "unknown"
#: the encryption of files
NO_ENCRYPTION, SIGNED_FOOTER, ENCRYPTED_FOOTER = "none", "signed footer", "encrypted footer"
UNREADABLE = "unknown"


@dataclass(frozen=True, slots=True, repr=False)
class AuditFinding(Summarized):
    """Something that is wrong with a file.

    Attributes
    ----------
    kind : str
        One of :data:`KINDS`.
    message : str
        What is wrong; never a key or a value.
    remedy : str
        What to do about it.
    file : str
    column : str or None
        Dotted path.
    row_groups : tuple of int
    evidence : tuple of str
        What shows it.
    """

    kind: str
    message: str
    remedy: str
    file: str
    column: str | None = None
    row_groups: tuple[int, ...] = ()
    evidence: tuple[str, ...] = ()

    @property
    def severity(self) -> str:
        """``"error"`` or ``"warning"``."""
        return KINDS[self.kind][0]

    def _headline(self) -> str:
        column = f", column {shown(self.column, 40)}" if self.column is not None else ""
        return f"{self.severity} ({self.kind}): {shown(self.file, 60)}{column}"


@dataclass(slots=True, repr=False)
class ColumnAudit(Summarized):
    """One column of a file.

    Attributes
    ----------
    column : str
        Dotted path.
    state : str
        ``protected``: encrypted, and so are its filters. ``leaking``: there is an error about it.
        ``open``: not sensitive, with plaintext filters. ``none``: not sensitive, without filters.
        ``unknown``: it cannot be known without its key.
    sensitive, encrypted : bool
        By policy, or because it is encrypted; and whether it is.
    filters : int or None
        Row groups that have one; None where that is hidden.
    bytes : int
        Of the filters, with their headers.
    fill : float or None
        Share of bits that are set: the mean of the filters that could be read.
    fpp : float or None
        Estimated false-positive probability: the mean.
    encryption : str or None
        ``column key``, or ``footer key`` where one row group or more have that; None unless all
        row groups are encrypted.
    plain_filters : int
        Row groups with a filter in plaintext.
    """

    column: str
    state: str = NONE
    sensitive: bool = False
    encrypted: bool = False
    filters: int | None = 0
    bytes: int = 0
    fill: float | None = None
    fpp: float | None = None
    encryption: str | None = None
    plain_filters: int = 0

    def _headline(self) -> str:
        return f"{shown(self.column, 60)}: {self.state}"


@dataclass(slots=True, repr=False)
class FileAudit(Summarized):
    """One file.

    Attributes
    ----------
    file : str
    encryption : str
        ``none``, ``signed footer``, ``encrypted footer``; ``unknown`` where the file cannot be
        read.
    columns : list of ColumnAudit
    not_checked : list of str
        What could not be checked, and why.
    missing_keys : bool
        Whether a key was missing for that.
    """

    file: str
    encryption: str = NO_ENCRYPTION
    columns: list[ColumnAudit] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)
    missing_keys: bool = False

    def _headline(self) -> str:
        return f"{shown(self.file, 60)}: encryption {self.encryption}, " \
               f"{count(len(self.columns), 'column')}"

    def _rows(self) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        return ("column", "state", "filters"), \
            ((column.column, column.state, column.filters) for column in self.columns)


@dataclass(slots=True)
class ColumnTotals:
    """One column in all files.

    Attributes
    ----------
    column : str
        Dotted path.
    files : int
        That have it.
    column_key, footer_key, unencrypted : int
        Files in which it is encrypted with a key of its own, with the footer key, or not in all
        row groups.
    plaintext_filters : int
        Files in which it has filters in plaintext.
    errors, warnings : int
        Findings about it.
    """

    column: str
    files: int = 0
    column_key: int = 0
    footer_key: int = 0
    unencrypted: int = 0
    plaintext_filters: int = 0
    errors: int = 0
    warnings: int = 0

    def _add(self, column: ColumnAudit) -> None:
        self.files += 1
        self.column_key += column.encryption == "column key"
        self.footer_key += column.encryption == "footer key"
        self.unencrypted += column.encryption is None
        self.plaintext_filters += column.plain_filters > 0


@dataclass(repr=False)
class AuditResult(Summarized):
    """What :func:`secure_bloom.audit` found.

    Attributes
    ----------
    path : str
    files : list of FileAudit
    findings : list of AuditFinding
    """

    path: str
    files: list[FileAudit] = field(default_factory=list)
    findings: list[AuditFinding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether there is no error among the findings. What was not checked may be wrong yet."""
        return all(finding.severity != "error" for finding in self.findings)

    @property
    def complete(self) -> bool:
        """Whether there are files, and everything about them was checked."""
        return bool(self.files) and not any(file.not_checked for file in self.files)

    @property
    def missing_keys(self) -> bool:
        """Whether something was not checked because a key was missing or refused."""
        return any(file.missing_keys for file in self.files)

    @property
    def unencrypted_files(self) -> int:
        """Files without any encryption."""
        return sum(file.encryption == NO_ENCRYPTION for file in self.files)

    @property
    def encrypted_files(self) -> int:
        """Files with an encrypted or signed footer."""
        return sum(file.encryption in (SIGNED_FOOTER, ENCRYPTED_FOOTER) for file in self.files)

    @property
    def lacks_encryption(self) -> bool:
        """Whether no file is encrypted, of those that can be read."""
        return self.unencrypted_files > 0 and not self.encrypted_files

    @property
    def summary(self) -> str:
        """One line: whether anything is encrypted, and how much was found."""
        severities = Counter(finding.severity for finding in self.findings)
        found = f"{count(severities['error'], 'error')}, {count(severities['warning'], 'warning')}"
        files = count(len(self.files), "file")
        if not self.lacks_encryption:
            return f"{self.path}: {files}, {found}"
        readable = f" ({self.unencrypted_files:,} of them can be read)" \
            if self.unencrypted_files < len(self.files) else ""
        return f"No file is encrypted: {files}{readable} in {self.path}, {found}"

    def totals(self) -> list[ColumnTotals]:
        """Totals of all columns: first those with most errors, then in the order of the files."""
        totals: dict[str, ColumnTotals] = {}
        for file in self.files:
            for column in file.columns:
                if column.column not in totals:
                    totals[column.column] = ColumnTotals(column.column)
                totals[column.column]._add(column)
        for finding in self.findings:
            if finding.column in totals:
                total = totals[finding.column]
                total.errors += finding.severity == "error"
                total.warnings += finding.severity == "warning"
        return sorted(totals.values(), key=lambda total: (-total.errors, -total.warnings))

    def to_dict(self) -> dict[str, Any]:
        """The result for JSON."""
        return {**self._head(), "findings": list(map(_finding_dict, self.findings)),
                "files": list(map(asdict, self.files))}

    def json_parts(self) -> Iterator[str]:
        """The same as pieces of one JSON text: for many files it takes far less memory."""
        yield json.dumps(self._head(), indent=2)[:-2]
        for name, records in (("findings", map(_finding_dict, self.findings)),
                              ("files", map(asdict, self.files))):
            yield f',\n  "{name}": ['
            for number, record in enumerate(records):
                yield ("," if number else "") + f"\n    {json.dumps(record)}"
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
            "columns": list(map(asdict, self.totals())),
        }

    def _headline(self) -> str:
        return self.summary

    def _rows(self) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        return TOTALS_HEADER, map(totals_row, self.totals())


TOTALS_HEADER = ("column", "files", "column key", "footer key", "not encrypted",
                 "plaintext filters", "errors", "warnings")


def totals_row(total: ColumnTotals) -> list[str]:
    """The cells below :data:`TOTALS_HEADER`: in how many files."""
    return [shown(total.column), *(f"{number:,}" for number in (
        total.files, total.column_key, total.footer_key, total.unencrypted,
        total.plaintext_filters, total.errors, total.warnings))]


def _finding_dict(finding: AuditFinding) -> dict[str, Any]:
    return {"severity": finding.severity, **asdict(finding)}
