"""Totals of the commands that show several files: attributes are those of their JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from secure_bloom.display import count
from secure_bloom.verify.findings import VerifyResult


@dataclass
class _Totals:
    """Totals of results of files, some of which are errors."""

    files: int = 0
    failed: int = 0

    def add(self, result: dict[str, Any]) -> None:
        """Add the result of a file, or its error."""
        self.files += 1
        if "error" in result:
            self.failed += 1
        else:
            self._add(result)

    def _add(self, result: dict[str, Any]) -> None:
        raise NotImplementedError


@dataclass
class InspectionTotals(_Totals):
    """Totals of :func:`secure_bloom.cli.report.inspect_file`.

    ``hidden`` counts the columns of files whose filters, if any, are hidden by a missing key.
    """

    encrypted: int = 0
    rows: int = 0
    row_groups: int = 0
    filters: int = 0
    filter_bytes: int = 0
    hidden: int = 0

    def _add(self, result: dict[str, Any]) -> None:
        self.encrypted += result["encryption"] is not None
        self.rows += result["rows"]
        self.row_groups += result["row_groups"]
        self.filters += sum(column["filters"] or 0 for column in result["columns"])
        self.filter_bytes += sum(column["filter_bytes"] or 0 for column in result["columns"])
        self.hidden += sum(column["filters"] is None for column in result["columns"])

    def __str__(self) -> str:
        unknown = f", those of {count(self.hidden, 'column')} unknown" if self.hidden else ""
        return (f"{count(self.files, 'file')}, {self.encrypted:,} encrypted, "
                f"{self.failed:,} failed: {count(self.rows, 'row')} in "
                f"{count(self.row_groups, 'row group')}, {count(self.filters, 'Bloom filter')} of "
                f"{count(self.filter_bytes, 'byte')}{unknown}")


@dataclass
class ProbeTotals(_Totals):
    """Totals of :func:`secure_bloom.cli.report.probe_file`; ``may_contain`` counts files."""

    without_column: int = 0
    may_contain: int = 0
    row_groups: int = 0
    row_groups_may_contain: int = 0

    def _add(self, result: dict[str, Any]) -> None:
        self.without_column += not result["has_column"]
        self.may_contain += result["may_contain"]
        self.row_groups += len(result["row_groups"])
        self.row_groups_may_contain += sum(
            group["may_contain"] for group in result["row_groups"])

    def __str__(self) -> str:
        where = f"may be in {self.row_groups_may_contain:,} of " \
                f"{count(self.row_groups, 'row group')}, in {self.may_contain:,} of " \
                f"{count(self.files, 'file')}"
        return f"{where} ({self.without_column:,} without the column, {self.failed:,} failed)"


@dataclass
class VerificationTotals:
    """Totals of :func:`secure_bloom.verify_file`; ``ok`` counts files without errors."""

    files: int = 0
    ok: int = 0
    not_checked: int = 0
    filters: int = 0
    errors: int = 0
    warnings: int = 0

    def add(self, result: VerifyResult) -> None:
        """Add the result of a file."""
        errors = sum(finding.severity == "error" for finding in result.findings)
        self.files += 1
        self.ok += result.ok and result.not_checked is None
        self.not_checked += result.not_checked is not None
        self.filters += len(result.filters)
        self.errors += errors
        self.warnings += len(result.findings) - errors

    def __str__(self) -> str:
        return (f"{count(self.files, 'file')}, {self.ok:,} without errors, {self.not_checked:,} "
                f"not checked: {count(self.filters, 'Bloom filter')}, "
                f"{count(self.errors, 'error')}, {count(self.warnings, 'warning')}")
