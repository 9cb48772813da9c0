"""The audit of what lakehouse tables keep beside their data files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow.fs as pa_fs

from secure_bloom.auditing.delta_tables import DeltaAudit, DeltaTable, delta_tables, with_changes
from secure_bloom.auditing.iceberg_tables import IcebergAudit, IcebergTable, iceberg_tables
from secure_bloom.auditing.result import AuditResult
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
              policy: Policy | None, files_at_once: int | None) -> None:
        """Add what logs and metadata reveal to the result of the audit of the data files."""
        audits: list[DeltaAudit | IcebergAudit] = [
            *(DeltaAudit(filesystem, table, result.files, result.findings, keys, policy,
                         files_at_once) for table in self._delta),
            *(IcebergAudit(filesystem, table, result.files, policy) for table in self._iceberg)]
        for one in audits:
            one.run()
            result.findings += one.found
            result.files += one.unread
