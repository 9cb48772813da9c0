"""What an index knows of a file that it covers."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from secure_bloom.index.stamps import Stamp
from secure_bloom.reading.described_file import DescribedFile

DIGEST_SIZE = 16  #: bytes


class FileEntry(NamedTuple):
    """A row of the file table of a segment.

    ``has_ranges``: whether the ranges that the segment has for the row groups of the file are true
    of its rows. Otherwise, values may be in all rows of their row groups.
    """

    path: str
    size: int
    mtime_ns: int
    tag: str
    row_groups: int
    rows: int
    content: bytes
    footer: bytes
    schema: bytes
    has_ranges: bool = True

    @classmethod
    def of(cls, file: DescribedFile, path: str, stamp: Stamp) -> FileEntry:
        """Return the entry of a file."""
        return cls(path, *stamp, file.num_row_groups, file.num_rows, content_id(file, stamp),
                   footer_digest(file), file.schema.serialize().to_pybytes())

    @property
    def stamp(self) -> Stamp:
        """Stamp of the file."""
        return Stamp(self.size, self.mtime_ns, self.tag)

    @property
    def is_void(self) -> bool:
        """Whether it covers no file."""
        return self.size < 0

    def void(self) -> FileEntry:
        """Return the entry as one that covers no file; its row groups keep their numbers."""
        return self._replace(size=-1)


def content_id(file: DescribedFile, stamp: Stamp) -> bytes:
    """Return what stays the same while keys are rotated, and filters added or removed.

    It differs between any two files that were written separately. Of an encrypted file it depends
    on aad_file_unique. Files without encryption can have different values and equal footers, so
    theirs depends on the stamp, too: such a file is read again whenever it was rewritten.
    """
    footer = file.footer
    rows = [footer.row_group_num_rows(group) for group in range(file.num_row_groups)]
    unique = footer.algorithm.aad_file_unique if footer.algorithm else b""
    return _digest((unique or footer_digest(file) + repr(tuple(stamp)).encode())
                   + repr(rows).encode())


def footer_digest(file: DescribedFile) -> bytes:
    """Return the start of the SHA-256 of the stored footer."""
    return _digest(file.stored_footer)


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:DIGEST_SIZE]
