"""What killed processes have left of local files that they were writing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Collection, Iterable

import pyarrow.fs as pa_fs

from secure_bloom.errors import UnsupportedError
from secure_bloom.storage.cache import Cache
from secure_bloom.storage.inside import check_below
from secure_bloom.storage.local_files import temporary_stem, temporary_target
from secure_bloom.storage.local_listing import real_places

_NAMES_PER_FILE = 10  # a folder of 1,000 names is listed again after 100 files were asked for
_MAX_AGE = 60.0  # seconds
_MAX_REMEMBERED = 10_000  # folders and temporary files


def remove_leftovers_of(filesystem: pa_fs.FileSystem, where: str, paths: Iterable[str], *,
                        all_of_them: bool = True) -> None:
    """Remove what killed processes have left of rewrites of these files, if they are local.

    ``where`` is the folder below which they were found; nothing outside of its table is removed.
    See :func:`remove_leftovers` for ``all_of_them``.
    """
    if filesystem.type_name != "local":
        return
    paths = list(paths)
    folders: dict[str, dict[str, str]] = {}
    for path, (folder, name) in zip(paths, real_places(paths), strict=True):
        folders.setdefault(folder, {})[name] = path
    for folder, names in folders.items():
        with contextlib.suppress(UnsupportedError, OSError):  # leftovers are harmless
            check_below(filesystem, where, next(iter(names.values())))
            remove_leftovers(folder, names, all_of_them=all_of_them)


def remove_leftovers(folder: str, names: Collection[str], *, all_of_them: bool = True) -> None:
    """Remove temporary files that dead processes have left in a local folder.

    ``names`` are those of the files that they would have become. Without ``all_of_them``, those
    that were left within the last minute may stay, so that the folder is not listed for each file.
    """
    listing = None if all_of_them else _LISTINGS.get(folder)
    if listing is None or listing.is_used_up(len(names)):
        listing = _Listing(folder)
        _LISTINGS.put(folder, listing, 1 + len(listing.temporary))
    for stem in set(map(temporary_stem, names)):
        for name in listing.temporary.get(stem, ()):
            _remove(os.path.join(folder, name))


class _Listing:
    """The temporary files of a folder, by the stems of their names.

    Changing the files of a folder one by one would take quadratic time if each were a reason to
    list it.
    """

    def __init__(self, folder: str):
        self._asked, self._listed = 0, time.monotonic()
        self.temporary: dict[str, list[str]] = {}
        names = os.listdir(folder)
        self._size = len(names)
        for name in names:
            if name.endswith(".tmp") and (stem := temporary_target(name)) is not None:
                self.temporary.setdefault(stem, []).append(name)

    def is_used_up(self, number: int) -> bool:
        """Count files that are asked for, and return whether to list the folder again."""
        self._asked += number
        return self._asked * _NAMES_PER_FILE > self._size \
            or time.monotonic() - self._listed > _MAX_AGE


_LISTINGS: Cache[_Listing] = Cache(_MAX_REMEMBERED)


def _remove(path: str) -> None:
    """Remove a regular file whose writer is dead."""
    with contextlib.suppress(OSError), open(path, "r+b", opener=_without_waiting) as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its writer is alive
            os.unlink(path)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
