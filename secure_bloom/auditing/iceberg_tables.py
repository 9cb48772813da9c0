"""The audit of Iceberg tables: values and keys in their metadata."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow.fs as pa_fs

from secure_bloom.auditing.iceberg_metadata import (
    BOUNDS,
    KEYS,
    SKETCHES,
    Columns,
    newest,
    read_columns,
    read_values,
)
from secure_bloom.auditing.result import ENCRYPTED_FOOTER, FileAudit
from secure_bloom.auditing.table_audit import OTHER_PARTITIONS, AuditedTable, TableAudit
from secure_bloom.policy.policy import Policy
from secure_bloom.storage.table_formats import ICEBERG_METADATA, iceberg_tables_below

_MESSAGES = {
    BOUNDS: "the lower and upper bounds of the column are in manifests that are not encrypted",
    SKETCHES: "a statistics file that is not encrypted has hashes of the column's values, with "
              "which anyone can test which values exist",
    KEYS: "the keys of encrypted data files are in manifests that are not encrypted, so anyone who "
          "has these can read the files",
}
_ENCRYPT = "copy the rows into a table with encryption.key-id, in a catalog that encrypts, and " \
           "delete this one with its copies"
_REMEDIES = {
    BOUNDS: _ENCRYPT,
    SKETCHES: "remove the file with the procedure expire_snapshots, withdraw its copies, and do "
              "not run compute_table_stats on this table",
    KEYS: _ENCRYPT,
}


@dataclass
class IcebergTable(AuditedTable):
    """An Iceberg table in a folder that is audited.

    Attributes
    ----------
    metadata : list of str
        The files in its folder ``metadata``, except Parquet files.
    """

    metadata: list[str] = field(default_factory=list)


def iceberg_tables(folder: str, found: Iterable[str]) -> list[IcebergTable]:
    """Find the tables in a folder, from the paths of all files below it, relative to it."""
    found = list(found)
    tables = []
    for root in iceberg_tables_below(found):
        inside = posixpath.join(root, ICEBERG_METADATA, "")
        table = IcebergTable(posixpath.join(folder, root).rstrip("/"))
        table.metadata = [posixpath.join(folder, path) for path in found
                          if path.startswith(inside) and not path.endswith((".crc", ".parquet"))]
        tables.append(table)
    return tables


def without_metadata(paths: Sequence[str], tables: Sequence[IcebergTable]) -> list[str]:
    """Return the files that are not metadata of a table."""
    metadata = {path for table in tables for path in table.metadata}
    return [path for path in paths if path not in metadata]


class IcebergAudit(TableAudit):
    """The audit of one table."""

    def __init__(self, filesystem: pa_fs.FileSystem, table: IcebergTable,
                 files: Iterable[FileAudit], policy: Policy | None):
        super().__init__(filesystem, table, ICEBERG_METADATA, files, policy)
        self._metadata = table.metadata
        # Iceberg encrypts all columns of a file, and hides their names from readers without keys.
        self._all_are_sensitive = any(file.encryption == ENCRYPTED_FOOTER and not file.columns
                                      for file in self._files)

    def run(self) -> None:
        """Fill in ``found`` and ``unread``."""
        path = newest(self._metadata)
        if path is None or not (self._sensitive or self._all_are_sensitive or self._policy):
            return
        columns = self._read(path, read_columns)
        if columns is not None:
            self._report_partitions(columns)
            self._report_values(columns)

    def _report_partitions(self, columns: Columns) -> None:
        names = (columns.names.get(id_) for id_ in columns.partitions)
        for name in sorted(name for name in names if name is not None):
            if self._is_sensitive(name, partitions=True):
                self._report("the column partitions the table, so its values, or what a transform "
                             "makes of them, are in the names of folders", OTHER_PARTITIONS, name)

    def _report_values(self, columns: Columns) -> None:
        where: dict[tuple[str, str | None], list[str]] = {}
        for path in sorted(self._metadata):
            for what, id_ in self._read(path, read_values) or ():
                name = None if what == KEYS else columns.names.get(id_, f"of field id {id_}")
                where.setdefault((what, name), []).append(posixpath.basename(path))
        for (what, name), files in sorted(where.items(), key=str):
            if name is None or self._is_sensitive(name):
                self._report(_MESSAGES[what], _REMEDIES[what], name, files)
