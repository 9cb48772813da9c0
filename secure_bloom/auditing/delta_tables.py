"""The audit of Delta Lake tables: plaintext files beside encrypted ones, and values in the log."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow.fs as pa_fs

from secure_bloom.auditing.delta_log import (
    BOUNDS,
    CONDITIONS,
    LOG,
    PARTITIONS,
    LogFile,
    live_files,
    read_log_file,
)
from secure_bloom.auditing.result import NO_ENCRYPTION, UNREADABLE, AuditFinding, FileAudit
from secure_bloom.display import count, shown
from secure_bloom.errors import (
    KMS_FAULTS,
    AuthenticationError,
    FileError,
    KeyRetrievalError,
    SecureBloomError,
)
from secure_bloom.keys.retrieval import Keys
from secure_bloom.policy.policy import Policy
from secure_bloom.storage.many_files import each_file
from secure_bloom.storage.table_formats import is_deletion_vector
from secure_bloom.storage.versions import without_subtree
from secure_bloom.storage.visibility import is_hidden, relative_path

_CHANGES = "_change_data"
_STAGED = "_staged_commits"  # a catalog says which of these are valid
_MAX_NAMES = 6
_SAYS = {
    BOUNDS: "the minimum and maximum of the column are in the table's log, where anyone can read "
            "them",
    PARTITIONS: "the column partitions the table, so its values are in the table's log and in the "
                "names of folders, where anyone can read them",
    CONDITIONS: "a command compared the column with values, and these are in the table's log, "
                "where anyone can read them",
}
_REMEDIES = {
    BOUNDS: "name only other columns in the table property delta.dataSkippingStatsColumns, write "
            "the rows into a new table that has it from the beginning, and delete this one with "
            "its copies",
    PARTITIONS: "write the rows into a table with other partitions, and delete this one with its "
                "copies",
    CONDITIONS: "use MERGE with a table of such values instead of naming them; the log keeps what "
                "it has until it is cleaned up (delta.logRetentionDuration), and copies keep it "
                "longer",
}


@dataclass
class DeltaTable:
    """A Delta Lake table in a folder that is audited.

    Attributes
    ----------
    folder : str
    log : list of str
        Its log files.
    changes : list of str
        Parquet files of its change data feed, which readers of files do not see.
    """

    folder: str
    log: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)

    def has(self, path: str) -> bool:
        """Whether a path is below the folder of the table."""
        # Some filesystems list t/f in folder /t.
        return path.lstrip("/").startswith(f"{self.folder.strip('/')}/".lstrip("/"))


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
    return not hidden and (".json" in name or name.endswith((".parquet", ".crc")))


def with_changes(paths: Sequence[str], tables: Sequence[DeltaTable]) -> list[str]:
    """Return the files to audit: those of the change data feed, too, but no deletion vectors."""
    if not tables:
        return list(paths)
    return [path for path in paths
            if not (is_deletion_vector(path) and any(table.has(path) for table in tables))] \
        + [path for table in tables for path in table.changes]


class DeltaAudit:
    """The audit of one table, after that of its files.

    ``files`` and ``findings`` are those about its files. The results are in ``found``, and in
    ``unread`` for each file of the log that could not be read.
    """

    def __init__(self, filesystem: pa_fs.FileSystem, table: DeltaTable, files: Sequence[FileAudit],
                 findings: Iterable[AuditFinding], keys: Keys, policy: Policy | None,
                 files_at_once: int | None):
        self._filesystem, self._table, self._keys = filesystem, table, keys
        self._at_once = files_at_once
        self._files = [file for file in files if table.has(file.file)]
        self._known = {(finding.file, finding.column) for finding in findings}
        self._policy = None if policy is None else policy.for_path(
            without_subtree(filesystem, table.folder)[1])
        self._sensitive = {column.column for file in self._files for column in file.columns
                           if column.sensitive}
        self.found: list[AuditFinding] = []
        self.unread: list[FileAudit] = []

    def run(self) -> None:
        """Fill in ``found`` and ``unread``."""
        read = {path: file for path, file
                in each_file(self._read, self._table.log, self._at_once, None) if file is not None}
        self.found.sort(key=lambda finding: finding.file)  # they were read in any order
        self.unread.sort(key=lambda file: file.file)
        self._report_values(read)
        self._report_plaintext(self._life(read))

    def _read(self, path: str) -> LogFile | None:
        try:
            return read_log_file(self._filesystem, path, self._keys, self._sensitive)
        except KMS_FAULTS:
            raise
        except FileNotFoundError:
            return None  # removed by the table's own cleaning
        except FileError as error:
            kind = "authentication" if isinstance(error, AuthenticationError) else "damaged"
            self.found.append(AuditFinding(kind, f"this file of the table's log cannot be read: "
                                           f"{error.message}", "restore it", path))
            return None
        except (SecureBloomError, OSError) as error:
            self.unread.append(FileAudit(path, UNREADABLE, not_checked=[f"everything: {error}"],
                                         missing_keys=isinstance(error, KeyRetrievalError)))
            return None

    # --- values in the log -----------------------------------------------------------------------

    def _report_values(self, read: dict[str, LogFile]) -> None:
        where: dict[tuple[str, str], list[str]] = {}
        for path in sorted(self._table.log):
            for value in read[path].values if path in read else ():
                where.setdefault(value, []).append(posixpath.basename(path))
        for (what, column), names in sorted(where.items()):
            if self._is_sensitive(what, column):
                listed = ", ".join(map(shown, names[:_MAX_NAMES]))
                more = ", ..." if len(names) > _MAX_NAMES else ""
                self.found.append(AuditFinding(
                    "log", _SAYS[what], _REMEDIES[what], posixpath.join(self._table.folder, LOG),
                    column, evidence=(f"found in {count(len(names), 'file')}: {listed}{more}",)))

    def _is_sensitive(self, what: str, column: str) -> bool:
        if column in self._sensitive:
            return True
        if self._policy is None:
            return False
        if what == PARTITIONS:
            return self._policy.rule_for_partition(column) is not None
        return self._policy.is_sensitive(column)

    # --- plaintext files -------------------------------------------------------------------------

    def _life(self, read: dict[str, LogFile]) -> Callable[[str], str]:
        """Return a function that says whether a data file is live, if the whole log was read."""
        folders = {path: posixpath.basename(posixpath.dirname(path)) for path in self._table.log}
        live = None
        if len(read) == len(self._table.log) and _STAGED not in folders.values():
            live = live_files({posixpath.basename(path): file for path, file in read.items()
                               if folders[path] == LOG})

        def said(path: str) -> str:
            if path in self._table.changes:
                return "a file of the change data feed"
            if live is None:
                return "a file in the folder of the table"
            return "a live file" if relative_path(path, self._table.folder) in live \
                else "a file of an older version, or of no version"
        return said

    def _report_plaintext(self, life: Callable[[str], str]) -> None:
        """Report plaintext where other files of the table are encrypted."""
        is_encrypted = any(file.encryption not in (NO_ENCRYPTION, UNREADABLE)
                           for file in self._files)
        for file in self._files:
            if not file.rows:
                continue  # it has no values, or cannot be read
            columns = [column.column for column in file.columns
                       if column.column in self._sensitive and not column.encrypted]
            for column in columns:
                if (file.file, column) not in self._known:
                    self._report_file(file, f"the column is encrypted in other files of the "
                                            f"table, but not in this one, {life(file.file)}",
                                      column)
            if not columns and file.encryption == NO_ENCRYPTION and is_encrypted:
                self._report_file(file, "other files of the table are encrypted, but not this one, "
                                        f"{life(file.file)}")

    def _report_file(self, file: FileAudit, message: str, column: str | None = None) -> None:
        self.found.append(AuditFinding(
            "unencrypted", message, "rewrite the table with encryption, run VACUUM, and withdraw "
            f"the copies of {shown(posixpath.basename(file.file))}", file.file, column))
