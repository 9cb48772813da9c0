"""The files below a folder of a store, of which several folders are listed at the same time.

A store returns some 1,000 files a request, and says only then where the next request goes on. So a
million files take 1,000 requests one after the other, unless folders are listed by themselves.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow.fs as pa_fs

from secure_bloom.storage.table_names import relative_paths
from secure_bloom.storage.versions import without_subtree

#: lists all files below a folder without regard to folders, in as few requests as there can be
_FLAT = "s3"
# pyarrow lists the folders that these have files in. Of Google Cloud Storage it does not, and the
# filesystems of fsspec differ.
_WITH_FOLDERS = (_FLAT, "abfs", "hdfs")
_AT_ONCE = 16  # requests
_FILES = 1000  # that a request lists


def by_folders(filesystem: pa_fs.FileSystem, folder: str, allow_not_found: bool,
               skipped: Collection[str] = ()) -> list[pa_fs.FileInfo]:
    """Return the files below a folder of a store; list the folders in it at the same time.

    That takes one round of requests more. So where a store lists all files without regard to
    folders, and the first folders show that they have few files, the whole is listed instead.
    ``skipped`` are names of folders in it that need not be listed.
    """
    kind = without_subtree(filesystem, folder)[0].type_name.removeprefix("py::")
    whole = partial(recursively, filesystem, folder, allow_not_found)
    if kind not in _WITH_FOLDERS:
        return whole()
    infos = _listed(filesystem, folder, allow_not_found, recursive=False)
    names = relative_paths([info.path for info in infos], folder)
    if any(not name or "/" in name for name in names):  # keys such as t//file have no folder
        return whole()
    found, folders = [], []
    for info, name in zip(infos, names, strict=True):
        entry = info.type  # which takes as long as all else
        if entry == pa_fs.FileType.File:
            found.append(info)
        elif entry == pa_fs.FileType.Directory and name not in skipped:
            folders.append(info.path)
    # A folder may be gone when it is listed, like any file.
    below = partial(recursively, filesystem, allow_not_found=True)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        first = list(pool.map(below, folders[:_AT_ONCE]))
        rest = folders[_AT_ONCE:]
        if rest and kind == _FLAT and not _are_large(first):
            return whole()
        for below_one in (*first, *pool.map(below, rest)):
            found += below_one
    return found


def _are_large(some: list[list[pa_fs.FileInfo]]) -> bool:
    """Whether it takes fewer rounds of requests to list such folders by themselves."""
    files = sum(map(len, some)) / len(some)
    return max(1.0, files / _FILES) / _AT_ONCE < files / _FILES


def recursively(filesystem: pa_fs.FileSystem, folder: str, allow_not_found: bool) \
        -> list[pa_fs.FileInfo]:
    """Return the files below a folder of a store, from one request after the other."""
    infos = _listed(filesystem, folder, allow_not_found, recursive=True)
    return [info for info in infos if info.is_file]


def _listed(filesystem: pa_fs.FileSystem, folder: str, allow_not_found: bool,
            recursive: bool) -> list[pa_fs.FileInfo]:
    return filesystem.get_file_info(
        pa_fs.FileSelector(folder, recursive=recursive, allow_not_found=allow_not_found))
