"""Indexes of columns that this process keeps open, and how the newest version is opened."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from secure_bloom.errors import AuthenticationError, ChangedMeanwhileError, FormatError
from secure_bloom.index.column_index import ColumnIndex
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.manifest import StoredManifest
from secure_bloom.keys.cache import LIFETIME, CachedKms
from secure_bloom.storage.cache import Cache

_Result = TypeVar("_Result")


class _Opened(NamedTuple):
    """An index, the manifest from which it was opened, and the digest of its key."""

    column_index: ColumnIndex
    stored: StoredManifest
    key_digest: bytes


# Each has its segments open. They are kept without use as long as keys are cached.
_opened: Cache[_Opened] = Cache(16, LIFETIME)


def open_column(folder: IndexFolder, kms: CachedKms | None) -> ColumnIndex | None:
    """Open the newest version of an index; None if there is none.

    Versions and segments that this process has open are used again, if the key is still available.
    """
    return with_newest(partial(_open_newest, folder, kms))


def opened_before(folder: IndexFolder) -> ColumnIndex | None:
    """Return an index as this process opened it last; None if it is no longer open."""
    known = _opened_before(folder)
    return None if known is None else known.column_index


def with_newest(use: Callable[[], _Result]) -> _Result:
    """Call a function that opens an index, and again if a segment may be another one now.

    The segments of an older version may be deleted while a reader uses it. One that was damaged may
    have been repaired since this process opened it.
    """
    try:
        return use()
    except (ChangedMeanwhileError, AuthenticationError, FormatError):
        return use()


def _open_newest(folder: IndexFolder, kms: CachedKms | None) -> ColumnIndex | None:
    known = _opened_before(folder)
    stored = folder.newest(None if known is None else known.stored)
    if stored is None:
        if versions := folder.versions():
            raise FormatError("no manifest of the index is complete; build it again",
                              file=folder.manifest_path(versions[-1]), column=folder.column)
        return None
    # The key must still be available.
    if known is not None and known.stored is stored and known.column_index.is_sound \
            and folder.key_digest(stored, kms) == known.key_digest:
        return known.column_index
    manifest, key_digest = folder.opened(stored, kms), folder.key_digest(stored, kms)
    if known is not None and known.column_index.manifest.key != manifest.key:
        known = None
    found = ColumnIndex(folder, manifest, () if known is None else known.column_index.segments)
    _opened.put(folder.place, _Opened(found, stored, key_digest))
    return found


def _opened_before(folder: IndexFolder) -> _Opened | None:
    known = _opened.get(folder.place)
    if known is None or not known.column_index.folder.filesystem.equals(folder.filesystem):
        return None
    return known
