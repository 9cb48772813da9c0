"""What a change of encryption did, or would do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from secure_bloom.display import ChangeResult, Result, count, names, shown


@dataclass(frozen=True, slots=True, repr=False)
class ReencryptedFile(Result):
    """A file whose encryption was changed, or would be.

    Attributes
    ----------
    file : str
    new_file : str or None
        Where the new one is, if that is elsewhere.
    bytes : int
        Size of the old file.
    encrypted : dict of str to (str or None)
        The master key of each encrypted column, by dotted path, in the new file; None with the
        footer key itself.
    plaintext : tuple of str
        The columns that are open in the new file.
    old_master_keys, new_master_keys : tuple of str
        Names of the master keys of the old and of the new file.
    filters : tuple of str
        Columns that got Bloom filters.
    notes : tuple of str
        Further remarks.
    """

    file: str
    new_file: str | None
    bytes: int
    encrypted: Mapping[str, str | None]
    plaintext: tuple[str, ...]
    old_master_keys: tuple[str, ...] = ()
    new_master_keys: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def _headline(self) -> str:
        return (f"{shown(self.file, 60)}: {count(len(self.encrypted), 'column')} encrypted, "
                f"{len(self.plaintext):,} open")


@dataclass(repr=False)
class ReencryptResult(ChangeResult):
    """What :func:`encrypt`, :func:`reencrypt` or :func:`decrypt` did, or a dry run would do.

    Attributes
    ----------
    changed : list of ReencryptedFile
    unchanged, dry_run
        See :class:`ChangeResult`.
    failed : dict of str to str
        Files that could not be changed, and why. They are unmodified. Also folders of indexes that
        could not be made anew.
    unused_master_keys : list of str
        Master keys of the old files that no file has any more, as far as this operation saw:
        unless copies or other tables need them, they may be destroyed. Empty if a file failed, or
        if the old files stay.
    summaries : list of str
        Summary files (``_metadata``) that were removed.
    indexes : list of str
        Columns whose table index was brought up to date.
    out_of_reach : list of str
        What this operation cannot change.
    """

    changed: list[ReencryptedFile] = field(default_factory=list)
    unchanged: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    dry_run: bool = False
    unused_master_keys: list[str] = field(default_factory=list)
    summaries: list[str] = field(default_factory=list)
    indexes: list[str] = field(default_factory=list)
    out_of_reach: list[str] = field(default_factory=list)

    _derived = ("ok", "bytes")

    @property
    def bytes(self) -> int:
        """Size of the old files that were changed."""
        return sum(one.bytes for one in self.changed)

    def _headline(self) -> str:
        return self._counts(len(self.changed), "to change", "changed")

    def _rows(self) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        changed = ((one.file, one.bytes, names(one.encrypted), names(one.plaintext))
                   for one in self.changed)
        failed = ((file, None, message, "") for file, message in self.failed.items())
        return ("file", "bytes", "encrypted columns, or error", "open columns"), \
            chain(failed, changed)
