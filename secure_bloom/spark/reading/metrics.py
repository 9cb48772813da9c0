"""Metrics for the log: what a task read and skipped."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from secure_bloom.parquet.footer import Footer

logger = logging.getLogger("secure_bloom.spark")


def log(message: str, numbers: dict[str, int]) -> None:
    """Log a line at level INFO; Spark's worker logs include the numbers, in column ``context``."""
    if "PYSPARK_SPARK_SESSION_UUID" in os.environ and logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)  # the session collects worker logs, so the user wants them
    logger.info(message, extra={"context": {name: str(value) for name, value in numbers.items()}})


@dataclass
class Amount:
    """An amount of data, as files, row groups, rows and bytes."""

    files: int = 0
    row_groups: int = 0
    rows: int = 0
    bytes: int = 0

    def add(self, footer: Footer, row_groups: Iterable[int], files: int) -> None:
        """Count row groups of a file."""
        for group in row_groups:
            self.row_groups += 1
            self.rows += footer.row_group_num_rows(group)
            self.bytes += footer.row_group_num_bytes(group)
        self.files += files

    def __str__(self) -> str:
        return (f"{self.files} files, {self.row_groups} row groups, {self.rows} rows, "
                f"{self.bytes} bytes")


@dataclass
class TaskReport:
    """What was assigned to a task, and what it skipped for which reason.

    A file counts as skipped if the task read nothing of the part that was assigned to it. It counts
    as skipped by filters if they ruled out what remained after the index and statistics.
    """

    total: Amount = field(default_factory=Amount)
    by_index: Amount = field(default_factory=Amount)
    by_statistics: Amount = field(default_factory=Amount)
    by_filters: Amount = field(default_factory=Amount)
    rows_read: int = 0

    def add(self, footer: Footer, row_groups: list[int], after_index: list[int],
            after_statistics: list[int], after_filters: list[int]) -> None:
        """Count a range's row groups: all, those remaining after each step, and those to read."""
        self.total.add(footer, row_groups, 1)
        self.by_index.add(footer, set(row_groups) - set(after_index),
                          bool(row_groups) and not after_index)
        self.by_statistics.add(footer, set(after_index) - set(after_statistics),
                               bool(after_index) and not after_statistics)
        self.by_filters.add(footer, set(after_statistics) - set(after_filters),
                            bool(after_statistics) and not after_filters)

    def log(self) -> None:
        """Write the log line."""
        parts = {"total": self.total, "skipped_by_index": self.by_index,
                 "skipped_by_statistics": self.by_statistics,
                 "skipped_by_filters": self.by_filters}
        numbers = {f"{name}_{what}": value for name, amount in parts.items()
                   for what, value in vars(amount).items()}
        log(f"read {self.rows_read} rows; there were {self.total}; skipped by the index "
            f"{self.by_index}; skipped by statistics {self.by_statistics}; skipped by Bloom "
            f"filters {self.by_filters}",
            numbers | {"rows_read": self.rows_read})
