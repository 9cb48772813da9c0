"""Summary files beside the data files, which may have values of erased rows in statistics."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow.fs as pa_fs

from secure_bloom.erasing.user_metadata import metadata_with_values
from secure_bloom.errors import SecureBloomError
from secure_bloom.keys.environment import NO_KEYS
from secure_bloom.parquet.tail import MAGICS
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage.inside import check_inside, delete_file
from secure_bloom.storage.local_files import remove_checksum
from secure_bloom.storage.source import Source
from secure_bloom.storage.summary_files import summaries_of
from secure_bloom.storage.table_names import table_of
from secure_bloom.storage.versions import local_path


class Summaries(NamedTuple):
    """Summary files that may have values of rows, and what is said of those that are left."""

    paths: list[str]
    left: list[str]


def find_summaries(filesystem: pa_fs.FileSystem, path: str) -> Summaries:
    """Return the summary files of a file or folder that may have values of rows.

    One that has only a schema has none. It stays.
    """
    return _with_values(filesystem, _tables(filesystem, path))


def _with_values(filesystem: pa_fs.FileSystem, paths: Iterable[str]) -> Summaries:
    found = Summaries([], [])
    for one in paths:
        if not _is_parquet(filesystem, one):
            found.left.append(f"{one} is named like a summary file, but is not a Parquet file: it "
                              "was not searched")
        elif _may_have_values(filesystem, one):
            found.paths.append(one)
    return found


def remove_summaries(filesystem: pa_fs.FileSystem, path: str) -> Summaries:
    """Remove these files; readers find what they say in the data files.

    Raises UnsupportedError, and removes none, if a link leads to one outside of the table.
    """
    tables = _tables(filesystem, path)
    found = _with_values(filesystem, tables)
    removed = Summaries([], found.left)
    for one in found.paths:
        check_inside(filesystem, tables[one], posixpath.dirname(one))
    for one in found.paths:
        if _has_other_names(filesystem, one):
            removed.left.append(f"{one} has other names (links), which keep what it says")
        try:
            if filesystem.type_name == "local":
                remove_checksum(one)
            delete_file(filesystem, tables[one], one)
            removed.paths.append(one)
        except PermissionError as error:
            removed.left.append(f"{one} may have values, but cannot be removed: {error.strerror}")
    return removed


def _tables(filesystem: pa_fs.FileSystem, path: str) -> dict[str, str]:
    """Return the files with the names of summaries of a file or folder, each with its table."""
    return {one: table for each, table in _names(filesystem, path).items()
            for one in summaries_of(filesystem, each)}


def _names(filesystem: pa_fs.FileSystem, path: str) -> dict[str, str]:
    """Return the path and, if it is a link to a file, where the file is; each with its table."""
    if filesystem.get_file_info(path).type == pa_fs.FileType.Directory:
        return {path: table_of(path)}
    own = local_path(filesystem, path)
    names = [path, os.path.realpath(own)] if own is not None and os.path.islink(own) else [path]
    return {one: table_of(posixpath.dirname(one)) for one in names}


def _is_parquet(filesystem: pa_fs.FileSystem, path: str) -> bool:
    try:
        source = Source(path, filesystem)
        with source.file:
            return bytes(source.read_tail(4)) in MAGICS
    except (SecureBloomError, OSError):
        return False


def _has_other_names(filesystem: pa_fs.FileSystem, path: str) -> bool:
    own = local_path(filesystem, path)
    return own is not None and (os.path.islink(own) or os.lstat(own).st_nlink > 1)


def _may_have_values(filesystem: pa_fs.FileSystem, path: str) -> bool:
    try:
        with OpenFile(path, NO_KEYS, filesystem=filesystem) as file:
            return bool(file.num_row_groups) or file.footer.may_have_extensions \
                or bool(metadata_with_values(file.schema))
    except SecureBloomError:  # it has row groups of other files, is encrypted, or is damaged
        return True
