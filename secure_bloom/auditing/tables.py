"""The audit of what lakehouse tables keep beside their data files."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from urllib.parse import unquote

import pyarrow.fs as pa_fs

from secure_bloom.auditing.audited_files import AuditedFiles, AuditFiles
from secure_bloom.auditing.delta_tables import DeltaAudit, DeltaTable, delta_tables, with_changes
from secure_bloom.auditing.iceberg_tables import IcebergAudit, IcebergTable, iceberg_tables
from secure_bloom.auditing.result import (
    ENCRYPTED_FOOTER,
    NO_ENCRYPTION,
    AuditResult,
    FileAudit,
    new_finding,
)
from secure_bloom.auditing.table_audit import OTHER_PARTITIONS, AuditedTable, TableAudit
from secure_bloom.display import count
from secure_bloom.keys.retrieval import Keys
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.rules import folded
from secure_bloom.policy.violations import UNENCRYPTED
from secure_bloom.storage.table_formats import without_iceberg_metadata
from secure_bloom.storage.table_names import relative_path, table_of
from secure_bloom.storage.versions import without_subtree


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


class PlainFolder(TableAudit):
    """The audit of the files that are in no lakehouse table.

    A column counts as the same in all files that have its dotted path, regardless of case.
    """

    def run(self) -> None:
        """Fill in ``found``."""
        self._report_mixed("the column is encrypted in other files of the folder, but not in this "
                           "one", "write the file again with encryption, and withdraw its copies")
        self._note_hidden_columns()
        self._report_partitions()

    def _note_hidden_columns(self) -> None:
        hidden = sum(file.is_unknown and file.encryption == ENCRYPTED_FOOTER
                     for file in self._files)
        if not hidden:
            return
        for file in self._files:
            if file.encryption == NO_ENCRYPTION and file.rows:
                file.not_checked.append("whether other files encrypt columns that are not "
                                        f"encrypted here: the footers of {count(hidden, 'file')} "
                                        "are encrypted")

    def _report_partitions(self) -> None:
        """Report sensitive columns whose values are in names of folders."""
        folders: dict[str, int] = {}
        for file in self._files:
            folder = posixpath.dirname(file.file)
            folders[folder] = folders.get(folder, 0) + 1
        root, found = table_of(self._table.folder), dict[str, int]()
        for folder, number in folders.items():
            parts = relative_path(folder, root).split("/")
            for name in {unquote(part.partition("=")[0]) for part in parts if "=" in part[1:]}:
                if self._is_sensitive_at(folder, name):
                    found[name] = found.get(name, 0) + number
        for name, number in sorted(found.items()):
            self.found.append(new_finding(
                UNENCRYPTED, "the column is sensitive, but its values are in the names of folders, "
                "where anyone can read them", OTHER_PARTITIONS, self._table.folder, name,
                evidence=(f"found in the paths of {count(number, 'file')}",)))

    def _is_sensitive_at(self, folder: str, name: str) -> bool:
        own = folded(name)
        if any(column == own or column.startswith(f"{own}.") for column in self._encrypted):
            return True
        policy = self._audited.policy
        return policy is not None and policy.for_path(
            without_subtree(self._filesystem, folder)[1]).rule_for_partition(name) is not None
