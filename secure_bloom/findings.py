"""What a check of files found: problems, each with its place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from secure_bloom.display import Result, names, shown, shown_path

Severity = Literal["error", "warning", "note"]
_NUMBERS = 3  # of row groups, in one line


@dataclass(frozen=True, slots=True, repr=False)
class Finding(Result):
    """A problem that an audit or a verification found.

    Attributes
    ----------
    kind : str
        Short name of the kind of problem.
    severity : {"error", "warning", "note"}
    message : str
        What is wrong; never a key or a value.
    file : str
        The file, or the folder of an index or of a table's log.
    column : str or None
        Dotted path.
    row_groups : tuple of int
        Where it was found, if it does not concern the whole file or column.
    remedy : str
        What to do about it; empty if ``message`` says so.
    evidence : tuple of str
        What demonstrates the problem.
    """

    kind: str
    severity: Severity
    message: str
    file: str
    column: str | None = None
    row_groups: tuple[int, ...] = ()
    remedy: str = ""
    evidence: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The finding in one line, without the file name."""
        groups = f"row group{'s' if len(self.row_groups) > 1 else ''} {_numbers(self)}"
        places = ([groups] if self.row_groups else []) \
            + ([] if self.column is None else [f"column {shown(self.column)}"])
        where = f"{', '.join(places)}: " if places else ""
        return f"{self.severity} ({self.kind}): {where}{self.message}"

    def __str__(self) -> str:
        return f"{shown_path(self.file)}: {self.text}"

    def _headline(self) -> str:
        return f"{shown(self.file, 40)}: {self.text}"


def _numbers(finding: Finding) -> str:
    return names(map(str, finding.row_groups), _NUMBERS)


class CheckResult(Result):
    """Base of results with findings."""

    __slots__ = ()
    findings: Sequence[Finding]

    @property
    def ok(self) -> bool:
        """Whether no finding is an error. Whatever was not checked may still be wrong."""
        return not self.errors

    @property
    def errors(self) -> int:
        """Number of findings that are errors."""
        return sum(finding.severity == "error" for finding in self.findings)

    @property
    def warnings(self) -> int:
        """Number of findings that are warnings."""
        return sum(finding.severity == "warning" for finding in self.findings)

    def _rows(self) -> tuple[Sequence[str], Iterable[Sequence[object]]]:
        return ("finding", "file", "row groups", "column", "what"), (
            (one.kind, one.file, _numbers(one), one.column, one.message)
            for one in self.findings)
