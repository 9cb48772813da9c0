"""What a folder has besides the rows of its visible files: files of jobs, and names of folders."""

from __future__ import annotations

import posixpath
from collections import defaultdict

import pyarrow.fs as pa_fs

from secure_bloom.display import count, names
from secure_bloom.erasing.matching import ErasedValues
from secure_bloom.erasing.result import ErasedFile
from secure_bloom.storage.hive_partitioning import partition_values
from secure_bloom.storage.table_names import STAGING, relative_path, table_of
from secure_bloom.storage.unpublished import unpublished_files
from secure_bloom.storage.visibility import parquet_files


def unpublished(filesystem: pa_fs.FileSystem, folder: str) -> list[str]:
    """Return what is said of the files that readers do not see, and that were left alone."""
    hidden, temporary = unpublished_files(filesystem, folder)
    said = []  # without the names of folders, which may have values
    if hidden:
        said.append(f"{count(len(hidden), 'file')} of jobs that have not ended: readers do not see "
                    "them yet, and they were left alone. Run it again when these jobs have ended; "
                    f"if none is running, see which files {table_of(folder)}/{STAGING} hides")
    if temporary:
        said.append(f"{count(len(temporary), 'temporary file')} that processes are writing, or "
                    "that killed ones have left: run it again when they have ended; if none is "
                    f"running, delete {names(map(posixpath.basename, temporary))}")
    return said


def names_of_folders(filesystem: pa_fs.FileSystem, folder: str, erased: ErasedValues,
                     files: list[ErasedFile]) -> list[str]:
    """Return what is said of folders whose names have values: partition columns.

    Namely of those that have lost all their rows, and those of a value that was erased.
    """
    lost_all = {path for one in files if one.rows_removed == one.rows_before
                for path in (one.file, one.new_file)}
    below: dict[str, list[str]] = defaultdict(list)
    for path in parquet_files(filesystem, folder):
        below[posixpath.dirname(path)].append(path)
    values = {str(value) for value in erased.values}
    table, empty, named = table_of(folder), 0, 0
    for name, paths in below.items():
        found = partition_values(relative_path(f"{name}/", table))
        if not values.isdisjoint(found.values()):
            named += 1
        elif found and lost_all.issuperset(paths):
            empty += 1
    return [f"{count(number, 'folder')} of partition columns {what}: rename or delete each"
            for number, what in ((named, "with a value to erase in the name"),
                                 (empty, "without any rows left")) if number]
