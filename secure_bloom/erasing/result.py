"""What an erasure has done, or would do: its report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from secure_bloom.datasets.report import Counts
from secure_bloom.display import Result, count, shown


@dataclass(frozen=True, repr=False)
class ErasedFile(Result):
    """A file that lost rows, or values of such rows that were left in dictionaries.

    Attributes
    ----------
    file : str
        Its path before.
    new_file : str or None
        Its path now; None in a dry run.
    rows_before, rows_removed : int
    hmac_before : str or None
        HMAC-SHA-256 of all bytes of the file before, in hexadecimal, with the key of the hashes of
        values; None in a dry run, and without such a key. Without a key, the hash would confirm a
        correct guess of an erased value.
    sha256_after : str or None
        SHA-256 of all bytes of the new file, in hexadecimal; None in a dry run.
    has_other_names : bool
        Whether the file had other names, which keep the rows: hard links, or in a folder the file
        that a symbolic link led to.
    accepts_old_pages : bool
        Whether pages of the old file would be accepted in the new one: it uses AES_GCM_CTR_V1, and
        its data keys could not be replaced.
    dictionaries : int
        Row groups without such rows that were written again because a dictionary had their values.
    """

    file: str
    new_file: str | None
    rows_before: int
    rows_removed: int
    hmac_before: str | None = None
    sha256_after: str | None = None
    has_other_names: bool = False
    accepts_old_pages: bool = False
    dictionaries: int = 0


@dataclass(frozen=True, repr=False)
class ErasedValue(Result):
    """A value that was asked for, without the value.

    Attributes
    ----------
    hash : str
        HMAC-SHA-256 of the value's text in UTF-8, in hexadecimal.
    found : int
        How often the column had it.
    """

    hash: str
    found: int


@dataclass(frozen=True, repr=False)
class Absence(Result):
    """How it was verified that the values are gone.

    Attributes
    ----------
    found_rows : int
        Rows that still have one of the values: written by others since then.
    files, row_groups : Counts
        How many were read to the last value, and how many are ruled out, by what.
    dictionaries : int
        How many dictionaries of the column were searched.
    found_dictionaries : int
        Row groups that still have values in a dictionary: written by others since then.
    """

    found_rows: int
    files: Counts
    row_groups: Counts
    dictionaries: int = 0
    found_dictionaries: int = 0

    @property
    def found(self) -> str:
        """What still has one of the values, for people; empty if nothing has."""
        return ", ".join([count(self.found_rows, "row")] * bool(self.found_rows) + [
            f"{count(self.found_dictionaries, 'row group')} (in a dictionary)"]
            * bool(self.found_dictionaries))


@dataclass(repr=False)
class EraseResult(Result):
    """What an erasure has done, or what a dry run would do.

    Attributes
    ----------
    path, column : str
    dry_run : bool
    num_files, num_rows : int
        Of the data set, before.
    files : list of ErasedFile
    values : list of ErasedValue
        In the order in which they were given, without repetitions.
    absence : Absence or None
        None in a dry run.
    indexes : list of str
        The columns of indexes that were brought up to date.
    summaries : list of str
        The summary files that were removed, or would be: ``_metadata`` and ``_common_metadata``.
    out_of_reach : list of str
        What may still have the values.
    """

    path: str
    column: str
    dry_run: bool
    num_files: int
    num_rows: int
    files: list[ErasedFile] = field(default_factory=list)
    values: list[ErasedValue] = field(default_factory=list)
    absence: Absence | None = None
    indexes: list[str] = field(default_factory=list)
    summaries: list[str] = field(default_factory=list)
    out_of_reach: list[str] = field(default_factory=list)

    _derived = ("ok", "rows_removed", "dictionaries")

    @property
    def rows_removed(self) -> int:
        """Rows that had one of the values."""
        return sum(file.rows_removed for file in self.files)

    @property
    def ok(self) -> bool:
        """Whether the values were verified to be absent, from rows and from dictionaries."""
        return self.absence is not None and not self.absence.found_rows \
            and not self.absence.found_dictionaries

    @property
    def dictionaries(self) -> int:
        """Row groups that were written again only because a dictionary had values of the rows."""
        return sum(file.dictionaries for file in self.files)

    def _headline(self) -> str:
        done = "would lose" if self.dry_run else "lost"
        return (f"{shown(self.path, 40)}: {count(len(self.files), 'file')} of {self.num_files:,} "
                f"{done} {count(self.rows_removed, 'row')} of {self.num_rows:,}"
                + ("" if self.dry_run else ", verified" if self.ok else ", not complete"))

    def _rows(self) -> tuple[Sequence[str], Iterable[Sequence[object]]]:
        return (("file", "rows before", "rows removed"),
                ((one.file, one.rows_before, one.rows_removed) for one in self.files))
