"""Finds indexes: folders in ``_index`` with a manifest. Anything else there is ignored."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from urllib.parse import unquote

import pyarrow.fs as pa_fs

from secure_bloom.errors import FormatError
from secure_bloom.index.folder import MANIFEST, IndexFolder, folder_name
from secure_bloom.storage.files import FilePath, resolve
from secure_bloom.storage.local_listing import list_folder, with_valid_names
from secure_bloom.storage.store_listing import recursively
from secure_bloom.storage.table_names import INDEX, is_hidden, relative_path
from secure_bloom.storage.versions import without_subtree
from secure_bloom.storage.visibility import files_below

_PATH = re.compile(rf"(?:(.*)/)?{INDEX}/([^/]+)/\d{{12}}{re.escape(MANIFEST)}", re.DOTALL)


def indexed_columns(filesystem: pa_fs.FileSystem, table: str) -> list[str]:
    """Return the columns that have an index, sorted."""
    path = posixpath.join(table, INDEX)
    is_local = without_subtree(filesystem, path)[0].type_name == "local"
    try:
        found = list_folder(filesystem, path, True) if is_local \
            else recursively(filesystem, path, True)
    except (FormatError, OSError):
        if filesystem.get_file_info(path).type == pa_fs.FileType.Directory:
            raise
        return []  # what is there is a file, or a link to itself
    found = with_valid_names(found)
    if not is_local:
        paths = [posixpath.join(INDEX, relative_path(info.path, path)) for info in found]
        return [folder.column for folder in index_folders(filesystem, table, paths)]
    columns = [unquote(info.base_name) for info in found if info.type == pa_fs.FileType.Directory
               and folder_name(unquote(info.base_name)) == info.base_name]
    return sorted(column for column in columns if _may_exist(IndexFolder(filesystem, table,
                                                                         column)))


def _may_exist(folder: IndexFolder) -> bool:
    """Whether there is a manifest, or the folder cannot be listed: opening the index says why."""
    try:
        return bool(folder.versions())
    except OSError:
        return True


def index_folders(filesystem: pa_fs.FileSystem, folder: str,
                  paths: Iterable[str]) -> list[IndexFolder]:
    """Return the indexes of all tables at or below a folder, sorted.

    ``paths`` are the paths of all files below the folder, relative to it.
    """
    found = set()
    manifests = (path for path in paths if path.endswith(MANIFEST))
    for match in filter(None, map(_PATH.fullmatch, manifests)):
        table, column = match[1] or "", unquote(match[2])
        if folder_name(column) == match[2] and not is_hidden(table):
            found.add((table, column))
    return [IndexFolder(filesystem, posixpath.join(folder, table).rstrip("/") or "/", column)
            for table, column in sorted(found)]


def find_indexes(path: FilePath) -> list[IndexFolder]:
    """Return the indexes of all tables at or below a folder, sorted; none for a file."""
    filesystem, folder = resolve(path)
    if filesystem.get_file_info(folder).type != pa_fs.FileType.Directory:
        return []
    return index_folders(filesystem, folder, files_below(filesystem, folder))
