"""Which visible files a job replaces, and whether it may."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow.fs as pa_fs

from secure_bloom.errors import ChangedMeanwhileError, CommitError, UnsupportedError
from secure_bloom.storage import inside
from secure_bloom.storage.claims import Claim, claim
from secure_bloom.storage.commit_record import signature
from secure_bloom.storage.ending import SUFFIX, EndingJob
from secure_bloom.storage.hive_partitioning import partition_of
from secure_bloom.storage.job_folder import PROCESS
from secure_bloom.storage.local_files import wait_for_rewrites
from secure_bloom.storage.processes import this_process
from secure_bloom.storage.summary import StagedFile
from secure_bloom.storage.table_formats import find_table
from secure_bloom.storage.table_names import relative_path
from secure_bloom.storage.versions import FileVersion
from secure_bloom.storage.visibility import data_files, visible_files


@dataclass(frozen=True)
class Partition:
    """A Hive partition, by its folder: ``day=2024-01-31``."""

    folder: str


#: what a job replaces: everything, nothing, the partitions for which it has rows, or this one
Overwrite = bool | Literal["partitions"] | Partition


class ReplacingJob(EndingJob):
    """A job that may replace files that are visible now."""

    def __init__(self, filesystem: pa_fs.FileSystem, folder: str, overwrite: Overwrite,
                 id: str | None = None):
        super().__init__(filesystem, folder, id)
        self.overwrite = overwrite

    def visible_files(self) -> list[str]:
        """Return the data files that readers see, sorted.

        Raises UnsupportedError if the folder belongs to a table whose log would not record what the
        job does.
        """
        if not self.exists(self.folder):
            self._check_no_table([])
            return []
        return data_files(self.filesystem, self.folder, self._check_no_table)

    def remaining_files(self) -> list[str]:
        """Return the data files that readers will still see if the job has no rows."""
        if self.overwrite is True:
            return []
        replaced = self._partitions([])
        return [path for path in self.visible_files()
                if partition_of(relative_path(path, self.table)) not in replaced]

    def _check_no_table(self, files: Iterable[str]) -> None:
        table = find_table(self.filesystem, self.folder, files)
        if table is not None:
            raise UnsupportedError(
                f"this is {table}, whose log would not include files written here, nor notice "
                "files deleted by an overwrite; write through the table, or to another folder",
                file=table.folder)

    def _check_overwritten(self, paths: Iterable[str]) -> None:
        """Check that an overwrite may delete these files."""
        for path in paths:
            if not path.endswith(SUFFIX):
                raise CommitError("overwrite would delete this file, which is not named *.parquet; "
                                  "move it away, or choose another folder", file=path)

    def _partitions(self, files: Iterable[StagedFile]) -> set[str]:
        """Return the partitions to overwrite: the one that is named, or those that have rows."""
        if isinstance(self.overwrite, bool):
            return set()
        written = {partition_of(file.path) for file in files if file.rows}
        if self.overwrite == "partitions":
            return written
        folder = posixpath.join(self.name, self.overwrite.folder)
        named = partition_of(f"{folder}/")
        if others := sorted(written - {named}):
            raise CommitError(f"only the partition {self.overwrite.folder} was to be replaced, but "
                              f"there are rows for {others[0]}, too: append these in another job",
                              file=self.folder)
        return {named}

    def _claim(self, partitions: Collection[str], replaced: Collection[str]) -> None:
        if self.overwrite is True:
            claim(self, Claim(folder=self.name))
        elif partitions or replaced:
            # Only this process will commit the job now. If it dies, its claim must not be in the
            # way of the next attempt for a day.
            if self.filesystem.type_name == "local":
                self.write_marker(PROCESS, this_process())
            claim(self, Claim(partitions=frozenset(partitions)) if partitions else Claim(
                frozenset(relative_path(path, self.table) for path in replaced)))

    def _wait_for_rewrites(self, partitions: Collection[str], replaced: Iterable[str]) -> None:
        """Let those finish that are about to rename a file, and have not seen the claim.

        A file that is renamed after its signature was read would stay, beside what replaces it.
        """
        if self.filesystem.type_name == "local":
            wait_for_rewrites({posixpath.dirname(path)
                               for path in (*replaced, *self._overwritten(partitions))})

    def _overwritten(self, partitions: Collection[str]) -> dict[str, list[Any]]:
        """Return the visible files to overwrite, with their signatures."""
        if not (partitions or self.overwrite is True) or not self.exists(self.folder):
            return {}
        visible = visible_files(self.filesystem, self.folder).values()
        found = {info.path: signature(info) for info in visible if not partitions
                 or partition_of(relative_path(info.path, self.table)) in partitions}
        self._check_overwritten(found)  # there may be more files now
        if partitions:
            self._check_partition_links(relative_path(path, self.table) for path in found)
        return found

    def _check_partition_links(self, names: Iterable[str]) -> None:
        """Check that files are not in the folder of another partition, to which a link leads."""
        for folder in set(map(posixpath.dirname, names)):
            real = inside.real_name(self.filesystem, self.table, self.path(folder))
            if partition_of(f"{real}/") != partition_of(f"{folder}/"):
                raise UnsupportedError("a link leads from here to another partition or folder, "
                                       "whose files would be replaced, too; replace the link by a "
                                       "folder with files of its own", file=self.path(folder))

    def replaced_version(self, path: str) -> FileVersion:
        """Return the version of a file that is there now, for a commit that replaces it."""
        info = self.filesystem.get_file_info(path)
        return FileVersion(info.size, info.mtime_ns)

    def _check_replaced(self, replaced: Mapping[str, FileVersion]) -> None:
        """Check that the files to replace are still those that were read.

        Signatures do not suffice for local files: a rewrite may keep their size, and nearly their
        time. Stores may round times in one of the two responses.
        """
        is_local = self.filesystem.type_name == "local"
        for info in self.filesystem.get_file_info(list(replaced)):
            known = replaced[info.path]
            if info.type != pa_fs.FileType.File or signature(info) != signature(known) \
                    or (is_local and info.mtime_ns != known.mtime_ns):
                raise ChangedMeanwhileError("the file was changed or removed in the meantime; run "
                                            "the job again", file=info.path)
