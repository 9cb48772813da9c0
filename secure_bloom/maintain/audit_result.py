"""What an audit says: findings, and a record for each file and column."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

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


@dataclass(frozen=True)
class AuditFinding:
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


@dataclass
class ColumnAudit:
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
    """

    column: str
    state: str = NONE
    sensitive: bool = False
    encrypted: bool = False
    filters: int | None = 0
    bytes: int = 0
    fill: float | None = None
    fpp: float | None = None


@dataclass
class FileAudit:
    """One file.

    Attributes
    ----------
    file : str
    encryption : str
        ``none``, ``signed footer`` or ``encrypted footer``.
    columns : list of ColumnAudit
    not_checked : list of str
        What could not be checked, and why.
    missing_keys : bool
        Whether a key was missing for that.
    """

    file: str
    encryption: str = "none"
    columns: list[ColumnAudit] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)
    missing_keys: bool = False


@dataclass
class AuditResult:
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

    def to_dict(self) -> dict:
        """The result for JSON."""
        return {
            "version": 1,
            "path": self.path,
            "ok": self.ok,
            "missing_keys": self.missing_keys,
            "findings": [{"severity": finding.severity, **asdict(finding)}
                         for finding in self.findings],
            "files": [asdict(file) for file in self.files],
        }
