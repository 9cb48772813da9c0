"""What ``encrypt``, ``reencrypt`` and ``decrypt`` print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from secure_bloom.cli.report import render_audit_findings
from secure_bloom.cli.tables import SHOWN, and_more, by_message, render_table
from secure_bloom.display import count, names

if TYPE_CHECKING:
    from secure_bloom.auditing.result import AuditResult
    from secure_bloom.reencryption.estimate import Estimate
    from secure_bloom.reencryption.result import ReencryptedFile, ReencryptResult


@dataclass
class Done:
    """What was done or planned; of a plan, what it will cost; otherwise the audit after it."""

    result: ReencryptResult
    estimate: Estimate | None = None
    audit: AuditResult | None = None

    @property
    def ok(self) -> bool:
        """Whether no file failed, and the audit found no error."""
        return self.result.ok and (self.audit is None or self.audit.ok)

    def to_dict(self, path: str) -> dict[str, Any]:
        """The same for JSON; of the audit, only the verdict and the findings."""
        found = {"path": path, **self.result.to_dict(), "ok": self.ok}
        if self.estimate is not None:
            found["estimate"] = self.estimate.to_dict()
        if self.audit is not None:
            found["audit"] = {"ok": self.audit.ok, "summary": self.audit.summary,
                              "missing_keys": self.audit.missing_keys,
                              "findings": [one.to_dict() for one in self.audit.findings]}
        return found


def render(done: Done) -> str:
    """The plan, or what was done; then what could not be done, and what the audit found."""
    result = done.result
    will = "would be changed" if result.dry_run else "changed"
    lines = [f"{count(len(result.changed), 'file')} of {result.bytes:,} bytes {will}, "
             f"{result.unchanged:,} need no change, {len(result.failed):,} failed"]
    columns = _columns(result.changed)
    if columns:
        lines.append(render_table(["column", "becomes", "files"], islice(columns, SHOWN)))
        lines += and_more(len(columns) - SHOWN, "columns: see --json")
    lines += _derived(result)
    if done.estimate is not None:
        lines.append(_cost(done.estimate))
    lines += by_message((one.file, note) for one in result.changed for note in one.notes)
    lines += [f"out of reach: {one}" for one in result.out_of_reach]
    lines += [f"failed: {line}" for line in by_message(result.failed.items())]
    return "\n".join([*lines, *_verdict(done.audit)])


def _columns(changed: list[ReencryptedFile]) -> list[list[str]]:
    """What each column becomes, and in how many files."""
    found = Counter(chain.from_iterable(map(_of_file, changed)))
    order = {column: number for number, column in enumerate(
        dict.fromkeys(column for column, _ in found))}
    return [[column, becomes, f"{files:,}"] for (column, becomes), files in
            sorted(found.items(), key=lambda one: order[one[0][0]])]


def _of_file(one: ReencryptedFile) -> Iterator[tuple[str, str]]:
    for column, key in one.encrypted.items():
        new = ", new filter" if column in one.filters else ""
        yield column, ("footer key" if key is None else f"column key {key}") + new
    for column in one.plaintext:
        yield column, "open, new filter" if column in one.filters else "open"


def _derived(result: ReencryptResult) -> Iterator[str]:
    """What else changes, and which master keys are not needed any more."""
    if result.summaries:
        yield f"summary files {'to remove' if result.dry_run else 'removed'}: " \
              f"{names(result.summaries)}"
    if result.indexes:
        made = "to bring up to date" if result.dry_run else "brought up to date"
        yield f"indexes {made}: {names(result.indexes)}"
    if result.unused_master_keys:
        yield (f"master keys that these files do not need any more: "
               f"{names(result.unused_master_keys, 20)}; other tables and copies may need them")


def _cost(estimate: Estimate) -> str:
    return (f"it will take {_duration(estimate.seconds)}, and call the KMS about "
            f"{estimate.kms_wraps:,} times to wrap keys, and up to {estimate.kms_unwraps:,} times "
            "to unwrap keys")


def _duration(seconds: float) -> str:
    """Return an estimated duration in the largest unit of which it has at least two."""
    for length, unit in ((3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * length:
            return f"about {seconds / length:,.0f} {unit}"
    return f"about {seconds:.0f} seconds" if seconds >= 2 else "less than two seconds"


def _verdict(audit: AuditResult | None) -> list[str]:
    if audit is None:
        return []
    missing = ["audit: not everything was checked, because keys are missing"] \
        if audit.missing_keys else []
    return [f"audit: {audit.summary}", *missing, *render_audit_findings(audit.findings)]
