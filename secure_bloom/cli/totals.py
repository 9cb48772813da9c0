"""Totals of the commands that show several files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from secure_bloom.display import count
from secure_bloom.verify.findings import VerifyResult


class Totals(Counter[str]):
    """Sums of the numbers of files; their names are those of the JSON."""

    def add(self, numbers: Mapping[str, int]) -> None:
        """Add the numbers of a file."""
        for name, number in numbers.items():
            self[name] += number


def inspected(result: dict[str, Any]) -> dict[str, int]:
    """The numbers of :func:`secure_bloom.cli.report.inspect_file`, or of an error.

    ``hidden`` counts the columns whose filters, if any, are hidden by a missing key.
    """
    columns = result.get("columns", ())
    return {"files": 1, "failed": "error" in result,
            "encrypted": result.get("encryption") is not None, "rows": result.get("rows", 0),
            "row_groups": result.get("row_groups", 0),
            "filters": sum(column["filters"] or 0 for column in columns),
            "filter_bytes": sum(column["filter_bytes"] or 0 for column in columns),
            "hidden": sum(column["filters"] is None for column in columns)}


def inspection_text(totals: Totals) -> str:
    """The totals of an inspection, for people."""
    hidden = totals["hidden"]
    unknown = f", those of {count(hidden, 'column')} unknown" if hidden else ""
    return (f"{count(totals['files'], 'file')}, {totals['encrypted']:,} encrypted, "
            f"{totals['failed']:,} failed: {count(totals['rows'], 'row')} in "
            f"{count(totals['row_groups'], 'row group')}, "
            f"{count(totals['filters'], 'Bloom filter')} of "
            f"{count(totals['filter_bytes'], 'byte')}{unknown}")


def probed(result: dict[str, Any]) -> dict[str, int]:
    """The numbers of :func:`secure_bloom.cli.report.probe_file`, or of an error."""
    groups = result.get("row_groups", ())
    return {"files": 1, "failed": "error" in result,
            "without_column": not result.get("has_column", True),
            "may_contain": result.get("may_contain", False), "row_groups": len(groups),
            "row_groups_may_contain": sum(group["may_contain"] for group in groups)}


def probe_text(totals: Totals) -> str:
    """The totals of a probe, for people."""
    return (f"may be in {totals['row_groups_may_contain']:,} of "
            f"{count(totals['row_groups'], 'row group')}, in {totals['may_contain']:,} of "
            f"{count(totals['files'], 'file')} ({totals['without_column']:,} without the column, "
            f"{totals['failed']:,} failed)")


def verified(result: VerifyResult) -> dict[str, int]:
    """The numbers of :func:`secure_bloom.verify_file`; ``ok`` counts files without errors."""
    return {"files": 1, "ok": result.ok and result.not_checked is None,
            "not_checked": result.not_checked is not None, "filters": len(result.filters),
            "errors": result.errors, "warnings": result.warnings}


def verification_text(totals: Totals) -> str:
    """The totals of a verification, for people."""
    return (f"{count(totals['files'], 'file')}, {totals['ok']:,} without errors, "
            f"{totals['not_checked']:,} not checked: {count(totals['filters'], 'Bloom filter')}, "
            f"{count(totals['errors'], 'error')}, {count(totals['warnings'], 'warning')}")
