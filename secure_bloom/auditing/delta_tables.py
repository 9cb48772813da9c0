"""The audit of Delta Lake tables: plaintext files beside encrypted ones, and values in the log."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from secure_bloom.auditing.audited_files import AuditedFiles
from secure_bloom.auditing.delta_log import (
    BOUNDS,
    CONDITIONS,
    LOG,
    PARTITIONS,
    TEXTS,
    LogFile,
    live_files,
    read_log_file,
)
from secure_bloom.auditing.result import NO_ENCRYPTION, FileAudit
from secure_bloom.auditing.table_audit import OTHER_PARTITIONS, AuditedTable, TableAudit
from secure_bloom.keys.retrieval import Keys
from secure_bloom.storage.many_files import each_file
from secure_bloom.storage.table_formats import is_deletion_vector
from secure_bloom.storage.table_names import is_hidden

_CHANGES = "_change_data"
_LAST = "_last_checkpoint"  # repeats actions of a checkpoint of version 2
_STAGED = "_staged_commits"  # a catalog says which of these are valid
_REWRITE = "rewrite the table with encryption, run VACUUM, and withdraw the copies of the file"
_MESSAGES = {
    BOUNDS: "the minimum and maximum of the column are in the table's log, where anyone can read "
            "them",
    PARTITIONS: "the column partitions the table, so its values are in the table's log and in the "
                "names of folders, where anyone can read them",
    CONDITIONS: "a command compared the column with values, and these are in the table's log, "
                "where anyone can read them",
    TEXTS: "the table's log has values beside the name of the column, where anyone can read them: "
           "in constraints or default values, properties, tags or parameters of commands",
}
_REMEDIES = {
    BOUNDS: "name only other columns in the table property delta.dataSkippingStatsColumns, write "
            "the rows into a new table that has it from the beginning, and delete this one with "
            "its copies",
    PARTITIONS: OTHER_PARTITIONS,
    CONDITIONS: "use MERGE with a table of such values instead of naming them; the log keeps what "
                "it has until it is cleaned up (delta.logRetentionDuration), and copies keep it "
                "longer",
    TEXTS: "drop the constraint or default value, or remove the property; the log keeps what it "
           "has until it is cleaned up (delta.logRetentionDuration), and copies keep it longer",
}


@dataclass
class DeltaTable(AuditedTable):
    """A Delta Lake table in a folder that is audited.

    Attributes
    ----------
    log : list of str
        Its log files.
    changes : list of str
        Parquet files of its change data feed, which readers of files do not see.
    """

    log: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)


def delta_tables(folder: str, found: Iterable[str]) -> list[DeltaTable]:
    """Find the tables in a folder, from the paths of all files below it, relative to it."""
    found = list(found)
    tables: dict[str, DeltaTable] = {}
    for path in found:
        root, is_log, _ = f"/{path}".partition(f"/{LOG}/")
        root = root.strip("/")
        if is_log and not (root and is_hidden(root)):
            table = tables.setdefault(root, DeltaTable(posixpath.join(folder, root).rstrip("/")))
            if _is_of_log(posixpath.basename(path)):
                table.log.append(posixpath.join(folder, path))
    for path in found:
        root, is_change, _ = f"/{path}".partition(f"/{_CHANGES}/")
        changed = tables.get(root.strip("/")) if is_change else None
        if changed is not None and path.endswith(".parquet"):
            changed.changes.append(posixpath.join(folder, path))
    return list(tables.values())


def _is_of_log(name: str) -> bool:
    hidden = name.startswith(".") and name.endswith(".crc")  # Hadoop's checksum of a file
    return not hidden and (".json" in name or name.endswith((".parquet", ".crc"))
                           or name == _LAST)


def with_changes(paths: Sequence[str], tables: Sequence[DeltaTable]) -> list[str]:
    """Return the files to audit: those of the change data feed, too, but no deletion vectors."""
    if not tables:
        return list(paths)
    return [path for path in paths
            if not (is_deletion_vector(path) and any(table.has(path) for table in tables))] \
        + [path for table in tables for path in table.changes]


class DeltaAudit(TableAudit):
    """The audit of one table."""

    _table: DeltaTable

    def __init__(self, audited: AuditedFiles, table: DeltaTable, files: Sequence[FileAudit],
                 keys: Keys, files_at_once: int | None):
        super().__init__(audited, table, LOG, files)
        self._keys, self._at_once = keys, files_at_once
        self._columns: dict[str, str] = {}  # as in LogFile

    def run(self) -> None:
        """Fill in ``found`` and ``unread``."""
        searched = set(self._sensitive)
        read = self._read_all(self._table.log, searched)
        for path in sorted(read):
            self._columns.update(read[path].columns)
        live = self._live(read)
        self._add_files(read, live)
        self._read_again(read, searched)
        self.found.sort(key=lambda finding: finding.file)  # they were read in any order
        self.unread.sort(key=lambda file: file.file)
        self._report_values(read)
        self._report_plaintext(self._role(live))

    def _read_all(self, paths: Sequence[str], columns: Iterable[str]) -> dict[str, LogFile]:
        def read(path: str) -> LogFile | None:
            return self._read(path, lambda filesystem, path: read_log_file(
                filesystem, path, self._keys, columns))

        return {path: file for path, file in each_file(read, paths, self._at_once, None)
                if file is not None}

    def _read_again(self, read: dict[str, LogFile], searched: set[str]) -> None:
        """Look for columns in texts that only the log has told of, as sensitive ones."""
        names = self._sensitive | {name for path, name in self._columns.items()
                                   if self._is_sensitive(path)}
        names -= searched
        paths = [path for path, file in read.items() if file.has_literals] if names else []
        for path, file in self._read_all(paths, names).items():
            read[path].values |= file.values
        self._sensitive |= names

    def _is_sensitive(self, column: str, *, partitions: bool = False) -> bool:
        name = self._columns.get(column, column)
        return column in self._sensitive or super()._is_sensitive(name, partitions=partitions)

    # --- values in the log -----------------------------------------------------------------------

    def _report_values(self, read: dict[str, LogFile]) -> None:
        where: dict[tuple[str, str], list[str]] = {}
        for path in sorted(self._table.log):
            for value in read[path].values if path in read else ():
                where.setdefault(value, []).append(posixpath.basename(path))
        for (what, column), names in sorted(where.items()):
            if self._is_sensitive(column, partitions=what == PARTITIONS):
                self._report(_MESSAGES[what], _REMEDIES[what], self._columns.get(column, column),
                             names)

    # --- live files ------------------------------------------------------------------------------

    def _live(self, read: dict[str, LogFile]) -> set[str] | None:
        """Return the names of the live files, if the whole log was read."""
        folders = {path: posixpath.basename(posixpath.dirname(path)) for path in self._table.log}
        if len(read) < len(self._table.log) or _STAGED in folders.values():
            return None
        return live_files({posixpath.basename(path): file for path, file in read.items()
                           if folders[path] == LOG})

    def _add_files(self, read: dict[str, LogFile], live: set[str] | None) -> None:
        """Add the live files that are not in the folder, or hidden; audit them if need be.

        If it is not known which files are live, all that the log adds may be.
        """
        names = live if live is not None else {name for file in read.values()
                                               for name in file.added}
        self._add_live(names, is_known=live is not None)

    # --- plaintext files -------------------------------------------------------------------------

    def _role(self, live: set[str] | None) -> Callable[[str], str]:
        """Return a function that says whether a data file is live, if that is known."""
        keys = {self._audited.key_of(self._table.folder, name) for name in live or ()}

        def role(path: str) -> str:
            if path in self._table.changes:
                return "a file of the change data feed"
            if live is None:
                return "a file in the folder of the table"
            return "a live file" if self._audited.key(path) in keys \
                else "a file of an older version, or of no version"
        return role

    def _report_plaintext(self, role: Callable[[str], str]) -> None:
        """Report plaintext where other files of the table are encrypted."""
        self._report_mixed("the column is encrypted in other files of the table, but not in this "
                           "one", _REWRITE, role)
        for file in self._files if self._has_encrypted_files() else ():
            if file.rows and file.encryption == NO_ENCRYPTION \
                    and not any((file.file, column.column) in self._audited.known
                                for column in file.columns):
                self._report_plaintext_file(
                    file, "other files of the table are encrypted, but not this one, "
                    f"{role(file.file)}", _REWRITE)
