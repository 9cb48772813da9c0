"""The files below a folder of a store, of which several folders are listed at the same time.

A store returns some 1,000 files a request, and says only then where the next request goes on. So a
million files take 1,000 requests one after the other, unless folders are listed by themselves.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.fs as pa_fs

from secure_bloom.storage.hive_partitioning import column_of
from secure_bloom.storage.table_names import relative_paths
from secure_bloom.storage.versions import without_subtree

if TYPE_CHECKING:
    from secure_bloom.storage.hive_partitioning import PartitionChoice

#: lists all files below a folder without regard to folders, in as few requests as there can be
_FLAT = "s3"
# pyarrow lists the folders that these have files in. Of Google Cloud Storage it does not, and the
# filesystems of fsspec differ.
_WITH_FOLDERS = (_FLAT, "abfs", "hdfs")
_AT_ONCE = 16  # requests
_FILES = 1000  # that a request lists


def by_folders(filesystem: pa_fs.FileSystem, folder: str, allow_not_found: bool,
               skipped: Collection[str] = (), partitions: PartitionChoice | None = None) \
        -> list[pa_fs.FileInfo]:
    """Return the files below a folder of a store; list the folders in it at the same time.

    That takes one round of requests more. So where a store lists all files without regard to
    folders, and the first folders show that they have few files, the whole is listed instead.
    ``skipped`` are names of folders in it that need not be listed. Partitions that ``partitions``
    does not enter are not listed, unless a whole is.
    """
    kind = without_subtree(filesystem, folder)[0].type_name.removeprefix("py::")
    whole = partial(recursively, filesystem, folder, allow_not_found)
    if kind not in _WITH_FOLDERS:
        return whole()
    levels = _Levels(filesystem, folder, allow_not_found, skipped, partitions)
    files: list[pa_fs.FileInfo] = []
    folders = [folder]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in range(levels.num_levels()):
            shown = list(pool.map(levels.look, folders))
            if not all(one.is_regular for one in shown):
                return whole()
            above, earlier = folders, files
            files = files + [info for one in shown for info in one.files]
            num_folders = sum(len(one.folders) for one in shown)
            folders = levels.entered([path for one in shown for path in one.folders])
        first = list(pool.map(levels.below, folders[:_AT_ONCE]))
        rest = folders[_AT_ONCE:]
        if rest and kind == _FLAT and not _are_large(first, len(folders), num_folders, len(above)):
            first, rest, files = [], above, earlier
        for below_one in (*first, *pool.map(levels.below, rest)):
            files += below_one
    return files


class _Shown(NamedTuple):
    """The files in a folder, and the paths of the folders in it.

    Not ``is_regular``: there are keys such as t//file, which have no folder.
    """

    files: list[pa_fs.FileInfo]
    folders: list[str]
    is_regular: bool = True


class _Levels:
    """The folders of a store, level by level. Each folder is listed once."""

    def __init__(self, filesystem: pa_fs.FileSystem, root: str, allow_not_found: bool,
                 skipped: Collection[str], partitions: PartitionChoice | None):
        self._filesystem, self._root, self._allow_not_found = filesystem, root, allow_not_found
        self._skipped, self._partitions = skipped, partitions
        self._looked: dict[str, _Shown] = {}

    def entered(self, paths: list[str]) -> list[str]:
        """Return the folders to list."""
        return paths if self._partitions is None else list(
            compress(paths, self._partitions.enters(relative_paths(paths, self._root))))

    def num_levels(self) -> int:
        """Return how many levels to list, at least one, by the first partitions that are entered.

        Below, no more folders can be left out, unless partitions have different columns.
        """
        if self._partitions is None:
            return 1
        left, found, depth, path = set(self._partitions.columns), 1, 0, self._root
        while left and path:
            partitions = {one: column for one in self.look(path).folders
                          if (column := column_of(one)) is not None}
            depth += 1
            if not left.isdisjoint(partitions.values()):
                found = depth
                left.difference_update(partitions.values())
            path = next(iter(self.entered(list(partitions))), "")
        return found

    def look(self, path: str) -> _Shown:
        """Return what is in a folder. It may be gone when it is listed, like any file."""
        if path not in self._looked:
            is_root = path == self._root
            infos = _listed(self._filesystem, path, self._allow_not_found or not is_root,
                            recursive=False)
            self._looked[path] = self._shown(infos, path, self._skipped if is_root else ())
        return self._looked[path]

    def below(self, path: str) -> list[pa_fs.FileInfo]:
        """Return all files below a folder."""
        known = self._looked.get(path)
        if known is not None and known.is_regular and not known.folders and path != self._root:
            return known.files
        return recursively(self._filesystem, path,
                           self._allow_not_found or path != self._root)

    @staticmethod
    def _shown(infos: list[pa_fs.FileInfo], path: str, skipped: Collection[str]) -> _Shown:
        names = relative_paths([info.path for info in infos], path)
        if any(not name or "/" in name for name in names):
            return _Shown([], [], is_regular=False)
        found = _Shown([], [])
        for info, name in zip(infos, names, strict=True):
            entry = info.type  # which takes as long as all else
            if entry == pa_fs.FileType.File:
                found.files.append(info)
            elif entry == pa_fs.FileType.Directory and name not in skipped:
                found.folders.append(info.path)
        return found


def _are_large(some: list[list[pa_fs.FileInfo]], num_listed: int, num_folders: int,
               num_above: int) -> bool:
    """Whether it takes fewer rounds of requests to list such folders by themselves.

    Rather than the folders above, in which they are a part of all folders.
    """
    files = sum(map(len, some)) / len(some) / _FILES  # requests for a folder
    at_once = min(num_above, _AT_ONCE)
    return num_listed * max(1.0, files) / _AT_ONCE < max(num_folders * files, num_above) / at_once


def recursively(filesystem: pa_fs.FileSystem, folder: str, allow_not_found: bool) \
        -> list[pa_fs.FileInfo]:
    """Return the files below a folder of a store, from one request after the other."""
    infos = _listed(filesystem, folder, allow_not_found, recursive=True)
    return [info for info in infos if info.is_file]


def _listed(filesystem: pa_fs.FileSystem, folder: str, allow_not_found: bool,
            recursive: bool) -> list[pa_fs.FileInfo]:
    return filesystem.get_file_info(
        pa_fs.FileSelector(folder, recursive=recursive, allow_not_found=allow_not_found))
