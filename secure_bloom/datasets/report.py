"""What a scan has read, and what it has skipped for which reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from secure_bloom.display import Result, count
from secure_bloom.pruning.predicates import Predicate
from secure_bloom.reading.page_reads import PageReads

_WIDTH = 100  # characters of the picture
_MOST_PICTURED = 100_000  # row groups that are skipped together; their number may be a mere claim
READ, PARTITIONS, STATISTICS, BLOOM_FILTERS, INDEX = range(5)
_NAMES = ("read", "partitions", "statistics", "bloom_filters", "index")
_REASONS = ("read", "skipped by partition", "skipped by statistics", "skipped by Bloom filters",
            "skipped by the index")
_MARKS = "█p·-i"


@dataclass(repr=False)
class Counts(Result):
    """Files, row groups or bytes of a scan: how many were read, or skipped for which reason.

    Bytes count stored pages. If an index has ruled out a file, they are estimated from
    its size.

    Attributes
    ----------
    read : int
        Not skipped.
    partitions, statistics, bloom_filters, index : int
        Skipped for this reason.
    """

    read: int = 0
    partitions: int = 0
    statistics: int = 0
    bloom_filters: int = 0
    index: int = 0

    @property
    def total(self) -> int:
        """Everything that the scan has considered."""
        return self.read + self.skipped

    @property
    def skipped(self) -> int:
        """Not read, for any reason."""
        return self.partitions + self.statistics + self.bloom_filters + self.index

    def add(self, outcome: int, number: int = 1) -> None:
        """Count something that was read, or skipped."""
        name = _NAMES[outcome]
        setattr(self, name, getattr(self, name) + number)


@dataclass(repr=False)
class ScanReport(Result):
    """What a scan has read, and what it has skipped for which reason. ``print`` it for a picture.

    While a scan is running, it covers the files that have been considered so far.

    Attributes
    ----------
    condition : str
        What row groups were checked for, without the values: ``ssn == ?``. It may be weaker than
        the filter, because row groups are only skipped if a filter certainly does not hold there.
    files, row_groups, bytes : Counts
        How many were read, or skipped for which reason.
    by_pages : PageReads
        Of the row groups that were read: those of which only some pages were needed. In a report
        of ``explain``: what is needed at least.
    """

    condition: str
    files: Counts = field(default_factory=Counts)
    row_groups: Counts = field(default_factory=Counts)
    bytes: Counts = field(default_factory=Counts)
    by_pages: PageReads = field(default_factory=PageReads)
    _outcomes: bytearray = field(default_factory=bytearray)

    def add_file(self, outcomes: Iterable[int], sizes: Iterable[int]) -> None:
        """Count a file: the outcome of each row group, and its stored bytes."""
        outcomes = bytearray(outcomes)
        for outcome, size in zip(outcomes, sizes, strict=True):
            self.row_groups.add(outcome)
            self.bytes.add(outcome, size)
        # The last reason is the one that has ruled out the rest of the file.
        self.files.add(READ if not outcomes or READ in outcomes else max(outcomes))
        self._outcomes += outcomes

    def add_skipped(self, outcome: int, files: int, row_groups: int, size: int) -> None:
        """Count files of which all row groups are skipped for one reason; size in bytes."""
        self.files.add(outcome, files)
        self.row_groups.add(outcome, row_groups)
        self.bytes.add(outcome, size)
        self._outcomes += bytes([outcome]) * min(row_groups, _MOST_PICTURED)

    def add(self, other: ScanReport) -> None:
        """Add what another scan has read and skipped, of other files."""
        for counts, more in ((self.files, other.files), (self.row_groups, other.row_groups),
                             (self.bytes, other.bytes)):
            for outcome, name in enumerate(_NAMES):
                counts.add(outcome, getattr(more, name))
        self.by_pages.add(other.by_pages)
        self._outcomes += other._outcomes

    @property
    def picture(self) -> str:
        """One character for each row group, or for several if there are many."""
        step = -(-len(self._outcomes) // _WIDTH) or 1
        parts = (self._outcomes[start:start + step]
                 for start in range(0, len(self._outcomes), step))
        return "".join(_MARKS[READ if READ in part else max(part)] for part in parts)

    def __str__(self) -> str:
        lines = [f"condition   {self.condition}", f"row groups  {self.picture}"]
        lines.append("            " + "  ".join(
            f"{mark} {reason}" for mark, reason in zip(_MARKS, self._reasons, strict=False)))
        header, rows = self._rows()
        lines += [f"{row[0]:<12}" + ", ".join(
            f"{number:,} {what}" for number, what in zip(row[1:], header[1:], strict=True))
            for row in rows]
        if self.by_pages.row_groups:
            lines.append(f"{'by pages':<12}{self.by_pages}")
        return "\n".join(lines)

    def _headline(self) -> str:
        return (f"{self.condition}: {self.row_groups.read:,} of "
                f"{count(self.row_groups.total, 'row group')} read, in {self.files.read:,} of "
                f"{count(self.files.total, 'file')}")

    def _rows(self) -> tuple[Sequence[str], Iterable[Sequence[object]]]:
        names = _NAMES[:len(self._reasons)]
        return ("", *self._reasons), ((what, *(getattr(counts, name) for name in names))
                                      for what, counts in (("files", self.files),
                                                           ("row groups", self.row_groups),
                                                           ("bytes", self.bytes)))

    @property
    def _reasons(self) -> tuple[str, ...]:
        """The reasons to show: most data sets have no index."""
        return _REASONS if self.row_groups.index else _REASONS[:INDEX]


def describe(alternatives: list[list[Predicate]] | None) -> str:
    """Describe a condition without its values."""
    if alternatives is None:
        return "none"
    if not alternatives:
        return "no row can match"
    return " or ".join(" and ".join(map(_describe, parts)) for parts in alternatives)


def _describe(predicate: Predicate) -> str:
    column, op, value = predicate
    if op in ("is null", "is not null"):
        return f"{column} {op}"
    return f"{column} {op} ({count(len(value), 'value')})" if op in ("in", "not in") \
        else f"{column} {op} ?"
