"""Whether an index was made of the files as they are: by their footers, and master keys.

Anyone who can write to a folder can put an index there: one without encryption, one under a master
key of their own, or one of other files. So what an index says of a file counts only if the file
says the same of itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from secure_bloom.errors import NO_KEY, FileError, KeyRetrievalError, UnsupportedError
from secure_bloom.index.column_index import ColumnIndex
from secure_bloom.index.column_keys import UNENCRYPTED, master_keys
from secure_bloom.index.coverage import Coverage
from secure_bloom.index.file_entry import footer_digest
from secure_bloom.index.stamps import stamp
from secure_bloom.index.table import Table
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.environment import NoKeys
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage.versions import local_path

_SAMPLE = 3  # files that must have the column under the index's master key
_TRIES = 20  # files that are opened to find these; others may not have the column
_UNKNOWN = ""  # stands for a master key that cannot be told

#: master keys of a column; None among them: of chunks without encryption
MasterKeys = frozenset[str | None]


class Identity(NamedTuple):
    """What distinguishes a file: the digest of its footer, and the master keys of some columns.

    Of an index: which footer the file must have, and which master keys its columns may have.
    """

    footer: bytes
    master_keys: tuple[tuple[str, MasterKeys], ...]

    @classmethod
    def of(cls, file: OpenFile, columns: Iterable[str]) -> Identity:
        """Return what an open file shows."""
        return cls(footer_digest(file),
                   tuple((column, _keys_of(file, column)) for column in columns))

    def allows(self, file: Identity) -> bool:
        """Whether this is what an index says of a file."""
        found = dict(file.master_keys)
        return self.footer == file.footer and all(
            found[column] <= allowed for column, allowed in self.master_keys)

    def allows_file(self, file: OpenFile) -> bool:
        """Whether this is what an index says of an open file."""
        return self.allows(Identity.of(file, dict(self.master_keys)))


def allowed_keys(index: ColumnIndex) -> MasterKeys:
    """Return the master keys that a file may have for the column, if the index covers it."""
    material = index.manifest.material
    return frozenset({UNENCRYPTED} if material is None else {UNENCRYPTED, material.master_key_id})


def _keys_of(file: OpenFile, column: str) -> MasterKeys:
    found: set[str | None] = set()
    for leaf in file.columns:
        if leaf.path == column:
            try:
                found |= master_keys(file, leaf)
            except (UnsupportedError, KeyRetrievalError):
                found.add(_UNKNOWN)
    return frozenset(found)


def check_sample(index: ColumnIndex, coverage: Coverage, kms: CachedKms | NoKeys | None) -> None:
    """Check, with some of the files that an index covers, that it may be used for its column.

    They are opened once for each version of the index.

    Raises
    ------
    UnsupportedError
        If a file has the column under another master key, or encrypts it although the index has no
        encryption; or if none of the files can be opened to see that they do not.
    """
    if index.is_checked:
        return
    is_any = can_be_opened = False
    agreeing = 0
    for path in coverage.some_paths(_TRIES):  # their number may be a mere claim
        is_any = True
        if agreeing == _SAMPLE:
            break
        has_values = _has_values(index, path, kms)
        can_be_opened |= has_values is not None
        agreeing += bool(has_values)
    if not is_any:
        return
    if not can_be_opened and index.manifest.material is None:
        raise UnsupportedError("the index has no encryption, and none of the files can be opened "
                               "to see that they do not encrypt the column",
                               file=index.folder.path, column=index.column)
    index.is_checked = True


def _has_values(index: ColumnIndex, path: str, kms: CachedKms | NoKeys | None) -> bool | None:
    """Return whether a file has values of the column; None if it cannot be opened.

    Raises UnsupportedError if they are not under a master key that the index allows.
    """
    table = Table(index.folder.filesystem, index.folder.table)
    with suppress(FileNotFoundError, FileError, *NO_KEY), \
            table.open(path, kms) as file:
        found = _keys_of(file, index.column)
        if not found <= allowed_keys(index):
            if _is_replaced(index, table, path):
                return None
            raise UnsupportedError(_DOES_NOT_FIT, file=file.name, column=index.column)
        return bool(found)
    return None


def _is_replaced(index: ColumnIndex, table: Table, path: str) -> bool:
    """Whether a file is no longer the one that the index covers, as while keys are rotated."""
    if local_path(table.filesystem, table.path) is None:
        return False  # a store may tell another time than in its listing
    info = table.filesystem.get_file_info(table.full_path(path))
    return (path, stamp(table.filesystem, info)) not in index.places


_DOES_NOT_FIT = "this file has the column under another master key than the index that covers " \
                "it, or its index has no encryption. If keys are being rotated, rotate both; " \
                "otherwise, anyone may have made such an index: delete it, and build it again"
