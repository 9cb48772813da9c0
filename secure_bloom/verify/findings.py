"""What a verification of Bloom filters says: findings, and a record for each filter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from secure_bloom.display import Summarized, count, shown

#: what can be found, and how bad it is
KINDS = {
    "footer": "error",  # it cannot be read
    "authentication": "error",  # something encrypted is not what the key says
    "place": "error",  # a filter lies outside the data
    "overlap": "error",  # a filter shares bytes with pages or with another filter
    "length": "error",  # bloom_filter_length is not the length of what stands there
    "leak": "error",  # a plaintext filter on an encrypted column
    "needless-encryption": "error",  # an encrypted filter on a plaintext column
    "damaged": "error",  # a filter does not decode
    "pages": "error",  # the column's data cannot be read
    "false-negative": "error",  # a value of the column is missing in its filter
    "policy": "error",  # not encrypted as it was asked for
    "over-full": "warning",  # a filter is too small for its values
    "false-positives": "warning",  # a filter is wrong more often than its size and values explain
}


@dataclass(frozen=True, slots=True, repr=False)
class Finding(Summarized):
    """Something that is wrong with a file.

    Attributes
    ----------
    kind : str
        One of :data:`KINDS`.
    message : str
        What happened and what to do; never a key or a value.
    file : str
    row_group : int or None
    column : str or None
        Dotted path.
    """

    kind: str
    message: str
    file: str
    row_group: int | None = None
    column: str | None = None

    @property
    def severity(self) -> str:
        """``"error"`` or ``"warning"``."""
        return KINDS[self.kind]

    @property
    def text(self) -> str:
        """All of it but the file."""
        places = ([] if self.row_group is None else [f"row group {self.row_group}"]) \
            + ([] if self.column is None else [f"column {shown(self.column)}"])
        where = f"{', '.join(places)}: " if places else ""
        return f"{self.severity} ({self.kind}): {where}{self.message}"

    def __str__(self) -> str:
        return f"{self.file}: {self.text}"

    def _headline(self) -> str:
        return f"{shown(self.file, 40)}: {self.text}"


@dataclass(frozen=True, slots=True, repr=False)
class FilterCheck(Summarized):
    """What was found out about one Bloom filter.

    Attributes
    ----------
    row_group : int
    column : str
        Dotted path.
    encrypted : bool or None
        Whether the filter that stands there is; None where that cannot be told.
    num_bytes : int or None
        Bytes of the bitset.
    values : int or None
        Values of the column chunk that were looked for in the filter.
    distinct : int or None
        How many of them differ.
    distinct_is_exact : bool or None
        Whether that is counted, not estimated (to 0.4 %).
    measured_fpp, promised_fpp : float or None
        False positives among random probes, and what the filter's size promises for so many
        distinct values.
    not_checked : str or None
        Why values were not looked for; the other figures may be missing then.
    """

    row_group: int
    column: str
    encrypted: bool | None = None
    num_bytes: int | None = None
    values: int | None = None
    distinct: int | None = None
    distinct_is_exact: bool | None = None
    measured_fpp: float | None = None
    promised_fpp: float | None = None
    not_checked: str | None = None

    def _headline(self) -> str:
        what = "values not checked" if self.values is None else count(self.values, "value")
        return f"row group {self.row_group}, column {shown(self.column, 40)}: {what}"


@dataclass(frozen=True, repr=False)
class VerifyResult(Summarized):
    """What :func:`secure_bloom.verify_file` found.

    Attributes
    ----------
    file : str
    findings : tuple of Finding
    filters : tuple of FilterCheck
        One for each filter, by row group and column, and for each column chunk of which it cannot
        be known without its key whether it has one.
    not_checked : str or None
        Why nothing of the file could be checked.
    missing_keys : bool
        Whether something was not checked because a key was missing or refused.
    """

    file: str
    findings: tuple[Finding, ...] = ()
    filters: tuple[FilterCheck, ...] = ()
    not_checked: str | None = None
    missing_keys: bool = False

    @property
    def ok(self) -> bool:
        """Whether there is no error among the findings. What was not checked may be wrong yet."""
        return all(finding.severity != "error" for finding in self.findings)

    def _headline(self) -> str:
        errors = sum(finding.severity == "error" for finding in self.findings)
        what = "not checked" if self.not_checked is not None else \
            f"{count(len(self.filters), 'filter')}, {count(errors, 'error')}, " \
            f"{count(len(self.findings) - errors, 'warning')}"
        return f"{shown(str(self.file), 60)}: {what}"

    def _rows(self) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        if self.findings:
            return ("finding", "row group", "column", "what"), (
                (finding.kind, finding.row_group, finding.column, finding.message)
                for finding in self.findings)
        return ("row group", "column", "values", "not checked"), (
            (check.row_group, check.column, check.values, check.not_checked)
            for check in self.filters)

    def to_dict(self) -> dict[str, Any]:
        """The result for JSON."""
        return {
            "file": self.file,
            "ok": self.ok,
            "not_checked": self.not_checked,
            "missing_keys": self.missing_keys,
            "findings": [{"severity": finding.severity, **asdict(finding)}
                         for finding in self.findings],
            "filters": [asdict(check) for check in self.filters],
        }
