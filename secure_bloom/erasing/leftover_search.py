"""Searches the files of an erasure for values that only erased rows had."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pyarrow.fs as pa_fs

from secure_bloom.erasing.leftovers import (
    RemovedValues,
    groups_with_removed,
    removed_values,
)
from secure_bloom.erasing.matching import ErasedValues
from secure_bloom.erasing.search import Occurrences
from secure_bloom.errors import error_location
from secure_bloom.keys.retrieval import Keys
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage.versions import FileVersion, current_version
from secure_bloom.storage.visibility import parquet_files

Outcome = TypeVar("Outcome")


class LeftoverSearch:
    """Searches a file or folder; errors are those of :func:`.groups_with_removed`.

    The cost is bounded: the erased rows, and the dictionaries of all columns in files that are not
    surely ours. Rows of other row groups are read only if a dictionary has values of erased rows,
    and only until all of them have been seen.
    """

    def __init__(self, filesystem: pa_fs.FileSystem, path: str, keys: Keys, files_at_once: int):
        self._filesystem, self._path, self._keys = filesystem, path, keys
        self._files_at_once = files_at_once
        # of files without such values, which need not be searched again for the verification
        self._searched: dict[str, FileVersion] = {}

    def removed(self, erased: ErasedValues, found: Occurrences) -> RemovedValues:
        """Return the values of the rows to erase, as far as dictionaries may keep them."""
        removed = RemovedValues()
        self._searched.clear()
        if not found.found_rows:
            return removed

        def of_file(file: OpenFile, path: str) -> RemovedValues:
            groups = [group for group, rows in found.files[path].items() if rows]
            return removed_values(file, erased, groups)

        for one in self._each(of_file, list(found.files)).values():
            removed.update(one)
        return removed

    def add_to(self, found: Occurrences, removed: RemovedValues) -> None:
        """Add the row groups in which such values are left; ``removed`` are those found last."""
        def is_known(path: str) -> bool:
            version = found.ours.get(path, self._searched.get(path))
            return version is not None and version.tag is not None \
                and current_version(self._filesystem, path) == version

        def look(file: OpenFile, path: str) -> tuple[int, FileVersion | None, list[int]]:
            version, skip = file.version, found.files.get(path, ())
            groups = groups_with_removed(file, removed, skip)
            if not groups and not skip and version is not None:
                self._searched[path] = version
            return file.num_rows, version, groups

        paths = parquet_files(self._filesystem, self._path) if removed else []
        with ThreadPoolExecutor(self._files_at_once) as pool:  # in a store, it takes requests
            paths = [path for path, known in zip(paths, pool.map(is_known, paths), strict=True)
                     if not known]
        for path, (rows, version, groups) in self._each(look, paths).items():
            found.add(path, rows, version, dict.fromkeys(groups, 0))

    def _each(self, work: Callable[[OpenFile, str], Outcome], paths: list[str]) \
            -> dict[str, Outcome]:
        """Return what a function returns for each file."""
        def of_path(path: str) -> Outcome:
            with error_location(file=path), \
                    OpenFile(path, self._keys, filesystem=self._filesystem) as file, \
                    file.one_version():
                return work(file, path)

        with ThreadPoolExecutor(self._files_at_once) as pool:
            return dict(zip(paths, pool.map(of_path, paths), strict=True))
