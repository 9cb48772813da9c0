"""Files that repeat what the footers of a folder's data files say.

Some writers store them beside the data files: ``_metadata`` has the row groups of all files, with
their statistics, and ``_common_metadata`` the schema. Parquet libraries do without them.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

import pyarrow.fs as pa_fs

from secure_bloom.storage.table_names import is_hidden, table_of
from secure_bloom.storage.visibility import files_below

SUMMARY_NAMES = ("_metadata", "_common_metadata")


def summaries_among(paths: Iterable[str]) -> list[str]:
    """Return the summary files among files of a folder, by their paths relative to it, sorted."""
    return sorted(path for path in paths if posixpath.basename(path) in SUMMARY_NAMES
                  and not is_hidden(posixpath.dirname(path)))


def summaries_of(filesystem: pa_fs.FileSystem, path: str) -> list[str]:
    """Return the summary files that may describe a file, or files of a folder.

    They are in the folder, in folders below it, and in those above it up to the table.
    """
    found, folder = [], posixpath.dirname(path)
    if filesystem.get_file_info(path).type == pa_fs.FileType.Directory:
        found = [posixpath.join(path, one)
                 for one in summaries_among(files_below(filesystem, path))]
        folder = path.rstrip("/")
        if not _is_partition(folder):
            return found
        folder = posixpath.dirname(folder)
    folders = [folder]
    while _is_partition(folder):
        folder = posixpath.dirname(folder)
        folders.append(folder)
    above = filesystem.get_file_info([posixpath.join(one, name) for one in folders
                                      for name in SUMMARY_NAMES])
    return found + [info.path for info in above if info.is_file]


def _is_partition(folder: str) -> bool:
    """Whether a folder is part of a table above it."""
    return folder not in ("", "/") and folder != table_of(folder)
