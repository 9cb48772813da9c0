"""How much was read by pages."""

from __future__ import annotations

from dataclasses import dataclass

from secure_bloom.display import Result, count


@dataclass(repr=False)
class PageReads(Result):
    """Row groups that were read by pages.

    Attributes
    ----------
    row_groups : int
        How many.
    stored_bytes, read_bytes : int
        The stored bytes of the columns' pages, and how many bytes were read: pages, page indexes,
        and what lies between them.
    pages, read_pages : int
        The data pages of columns that have a page index and are not small, and how many of them
        were read.
    is_expected : bool
        Whether nothing has been read, but this is what must be read at least, if all columns are
        wanted. ``pages`` are then those of the columns in the filter.
    """

    row_groups: int = 0
    stored_bytes: int = 0
    read_bytes: int = 0
    pages: int = 0
    read_pages: int = 0
    is_expected: bool = False

    def add(self, other: PageReads) -> None:
        """Add what another scan has read."""
        self.row_groups += other.row_groups
        self.stored_bytes += other.stored_bytes
        self.read_bytes += other.read_bytes
        self.pages += other.pages
        self.read_pages += other.read_pages
        self.is_expected |= other.is_expected

    def __str__(self) -> str:
        row_groups, of_pages = count(self.row_groups, "row group"), f"{count(self.pages, 'page')}"
        if self.is_expected:
            return (f"{row_groups}: {self.read_pages:,} of {of_pages} to search, at least "
                    f"{self.read_bytes:,} of {self.stored_bytes:,} bytes")
        return (f"{row_groups}: {self.read_pages:,} of {of_pages} read, {self.read_bytes:,} of "
                f"{self.stored_bytes:,} bytes")
