"""The audit of what lakehouse tables keep beside their data files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow.fs as pa_fs

from secure_bloom.auditing.audited_files import AuditedFiles, AuditFiles
from secure_bloom.auditing.delta_tables import DeltaAudit, DeltaTable, delta_tables, with_changes
from secure_bloom.auditing.iceberg_tables import IcebergAudit, IcebergTable, iceberg_tables
from secure_bloom.auditing.plain_folder import PlainFolder
from secure_bloom.auditing.result import AuditResult, FileAudit
from secure_bloom.auditing.table_audit import AuditedTable, TableAudit
from secure_bloom.keys.retrieval import Keys
from secure_bloom.policy.policy import Policy
from secure_bloom.storage.table_formats import without_iceberg_metadata


class TablesBelow:
    """The Delta Lake and Iceberg tables in a folder that is audited."""

    def __init__(self) -> None:
        self._delta: list[DeltaTable] = []
        self._iceberg: list[IcebergTable] = []

    def find(self, folder: str, found: Iterable[str]) -> None:
        """Find them, from the paths of all files below the folder, relative to it."""
        found = list(found)
        self._delta, self._iceberg = delta_tables(folder, found), iceberg_tables(folder, found)

    def data_files(self, paths: Sequence[str]) -> list[str]:
        """Return the files to audit: those of change data feeds, too, but no metadata."""
        return with_changes(without_iceberg_metadata(paths), self._delta)

    def audit(self, filesystem: pa_fs.FileSystem, result: AuditResult, keys: Keys,
              policy: Policy | None, files_at_once: int | None, audit_files: AuditFiles) -> None:
        """Add what tables reveal to the result of the audit of the data files.

        ``audit_files`` audits further files, and adds them to the result.
        """
        files, others = _by_folder(result.files, [*(table.folder for table in self._delta),
                                                  *(table.folder for table in self._iceberg)])
        audited = AuditedFiles(filesystem, result, policy, audit_files)
        audits: list[TableAudit] = [
            *(DeltaAudit(audited, table, files[table.folder], keys, files_at_once)
              for table in self._delta),
            *(IcebergAudit(audited, table, files[table.folder]) for table in self._iceberg),
            PlainFolder(audited, AuditedTable(result.path), "", others)]
        for one in audits:
            one.run()
            result.findings += one.found
            result.files += one.unread


def _by_folder(files: Iterable[FileAudit], folders: Iterable[str]) \
        -> tuple[dict[str, list[FileAudit]], list[FileAudit]]:
    """Return the files in each folder, but not in another one of these folders below it.

    Also return the files that are in none of the folders.
    """
    found: dict[str, list[FileAudit]] = {folder: [] for folder in folders}
    inner = {folder.strip("/"): own for folder, own in found.items()}
    others = []
    for file in files:
        path = file.file.lstrip("/")  # some filesystems list t/f in folder /t
        while path:
            path = path.rpartition("/")[0]
            if path in inner:
                inner[path].append(file)
                break
        else:
            others.append(file)
    return found, others
