"""The result of verifying Bloom filters: findings, and a record for each filter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from secure_bloom.display import Result, count, shown
from secure_bloom.findings import CheckResult, Finding, Severity

#: the kinds of findings, with their severity
KINDS: dict[str, Severity] = {
    "footer": "error",  # it cannot be read
    "authentication": "error",  # encrypted data does not authenticate under its key
    "place": "error",  # a filter is outside the data
    "overlap": "error",  # a filter shares bytes with pages or with another filter
    "length": "error",  # bloom_filter_length is not the length of the stored filter
    "leak": "error",  # a plaintext filter on an encrypted column
    "needless-encryption": "error",  # an encrypted filter on a plaintext column
    "damaged": "error",  # a filter cannot be decoded
    "pages": "error",  # the column's data cannot be read
    "false-negative": "error",  # a value of the column is missing from its filter
    "policy": "error",  # not encrypted as required
    "over-full": "warning",  # a filter is too small for its values
    "false-positives": "warning",  # more of them than the filter's size and values explain
}


def new_finding(kind: str, message: str, file: str, row_group: int | None = None,
                column: str | None = None) -> Finding:
    """Return a finding of one of the :data:`KINDS`."""
    return Finding(kind, KINDS[kind], message, file, column,
                   () if row_group is None else (row_group,))


@dataclass(frozen=True, slots=True, repr=False)
class FilterCheck(Result):
    """The results of checking one Bloom filter.

    Attributes
    ----------
    row_group : int
    column : str
        Dotted path.
    encrypted : bool or None
        Whether the stored filter is encrypted; None if that cannot be determined.
    num_bytes : int or None
        Size of the bitset in bytes.
    values : int or None
        Number of values of the column chunk that were looked up in the filter.
    distinct : int or None
        Number of distinct values among them.
    distinct_is_exact : bool or None
        Whether ``distinct`` is an exact count, rather than an estimate (to 0.4 %).
    measured_fpp, promised_fpp : float or None
        Share of false positives among random probes, and the rate that the filter's size promises
        for this number of distinct values.
    not_checked : str or None
        Why values were not looked up; the other figures may then be missing.
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
class VerifyResult(CheckResult):
    """The result of :func:`secure_bloom.verify_file`.

    Attributes
    ----------
    file : str
    findings : tuple of Finding
    filters : tuple of FilterCheck
        One for each filter, by row group and column, and one for each column chunk that may have a
        filter, if that cannot be determined without its key.
    not_checked : str or None
        Why the file could not be checked at all.
    missing_keys : bool
        Whether something was not checked because a key was missing or refused.
    """

    file: str
    findings: tuple[Finding, ...] = ()
    filters: tuple[FilterCheck, ...] = ()
    not_checked: str | None = None
    missing_keys: bool = False
    _is_required: bool = False  # that something is encrypted

    _derived = ("ok",)

    @property
    def ok(self) -> bool:
        """Whether no finding is an error. Whatever was not checked may still be wrong.

        False if encryption was required, and the file could not be checked.
        """
        return super().ok and not (self._is_required and self.not_checked is not None)

    def _headline(self) -> str:
        what = "not checked" if self.not_checked is not None else \
            f"{count(len(self.filters), 'filter')}, {count(self.errors, 'error')}, " \
            f"{count(self.warnings, 'warning')}"
        return f"{shown(str(self.file), 60)}: {what}"

    def _rows(self) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        if self.findings:
            return super()._rows()
        return ("row group", "column", "values", "not checked"), (
            (check.row_group, check.column, check.values, check.not_checked)
            for check in self.filters)
