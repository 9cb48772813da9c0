"""The audit of Iceberg tables: files that are not encrypted, values and keys in the metadata."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from secure_bloom.auditing.audited_files import AuditedFiles
from secure_bloom.auditing.iceberg_metadata import (
    BOUNDS,
    KEYS,
    SKETCHES,
    TEXTS,
    Definition,
    MetadataFile,
    newest,
    read_definition,
    read_mentions,
    read_metadata_file,
)
from secure_bloom.auditing.result import (
    ENCRYPTED_FOOTER,
    NO_ENCRYPTION,
    FileAudit,
)
from secure_bloom.auditing.table_audit import OTHER_PARTITIONS, AuditedTable, TableAudit
from secure_bloom.display import count
from secure_bloom.keys.iceberg import MASTER_KEY
from secure_bloom.storage.table_formats import ICEBERG_METADATA, iceberg_tables_below
from secure_bloom.storage.table_names import is_hidden

_MESSAGES = {
    BOUNDS: "the lower and upper bounds of the column are in manifests that are not encrypted",
    SKETCHES: "a statistics file that is not encrypted has hashes of the column's values, with "
              "which anyone can test which values exist",
    KEYS: "the keys of encrypted data files are in manifests that are not encrypted, so anyone who "
          "has these can read the files",
    TEXTS: "the table's metadata files have values beside the name of the column, where anyone can "
           "read them: in properties, summaries of snapshots, comments or default values",
}
_ENCRYPT = f"copy the rows into a table with {MASTER_KEY}, in a catalog that encrypts, and " \
           "delete this one with its copies"
_REMEDIES = {
    BOUNDS: _ENCRYPT,
    SKETCHES: "remove the file with the procedure expire_snapshots, withdraw its copies, and do "
              "not run compute_table_stats on this table",
    KEYS: _ENCRYPT,
    TEXTS: "remove the property, comment or default value, expire the snapshots, and delete older "
           "metadata files (write.metadata.delete-after-commit.enabled)",
}
_METADATA_FILE = ".metadata.json"


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
    found = [path for path in found if not is_hidden(path)]
    tables = {root: IcebergTable(posixpath.join(folder, root).rstrip("/"))
              for root in iceberg_tables_below(found)}
    for path in found if tables else ():
        root, is_metadata, _ = f"/{path}".rpartition(f"/{ICEBERG_METADATA}/")
        table = tables.get(root.lstrip("/")) if is_metadata else None
        if table is not None and not path.endswith(".parquet"):
            table.metadata.append(posixpath.join(folder, path))
    return list(tables.values())


class IcebergAudit(TableAudit):
    """The audit of one table."""

    def __init__(self, audited: AuditedFiles, table: IcebergTable, files: Iterable[FileAudit]):
        super().__init__(audited, table, ICEBERG_METADATA, files)
        self._metadata = table.metadata
        self._content: dict[str, MetadataFile | None] = {}
        # Iceberg encrypts all columns of a file, and hides their names from readers without keys.
        self._all_are_sensitive = any(file.encryption == ENCRYPTED_FOOTER and not file.columns
                                      for file in self._files)

    def run(self) -> None:
        """Fill in ``found`` and ``unread``."""
        path = newest(self._metadata)
        table = None if path is None else self._read(path, read_definition)
        if path is None or table is None:
            return
        self._add_files(path, table)
        self._all_are_sensitive |= table.has_master_key
        self._report_mixed("the column is encrypted in other files of the table, but not in this "
                           "one", _ENCRYPT)
        self._report_plaintext(table)
        if self._all_are_sensitive or self._sensitive or self._policy is not None:
            self._report_partitions(table)
            self._report_values(table)
            self._report_texts(table)

    # --- live files ------------------------------------------------------------------------------

    def _add_files(self, path: str, table: Definition) -> None:
        """Audit the files of the table that are hidden, and list those in other folders."""
        own = {posixpath.basename(name): name for name in self._metadata}
        self._not_in_folder(path, "manifest list", table.lists - own.keys())
        self._not_in_folder(path, "statistics file", table.statistics - own.keys())
        lists = [self._read_content(own[name]) for name in sorted(table.lists & own.keys())]
        manifests = table.manifests.union(*(one.manifests for one in lists if one is not None))
        self._not_in_folder(path, "manifest", manifests - own.keys())
        found = [self._read_content(own[name]) for name in sorted(manifests & own.keys())]
        encrypted = sum(one is not None and not one.is_known for one in (*lists, *found))
        if encrypted:
            self._not_read(path, f"which files of the table are not in this folder: "
                                 f"{count(encrypted, 'manifest or manifest list')} cannot be read, "
                                 "as in encrypted tables", missing_keys=True)
        base = f"{table.location.rstrip('/')}/" if table.location else ""
        self._add_live({name.removeprefix(base) for one in found if one is not None
                        for name in one.files})

    def _not_in_folder(self, path: str, what: str, names: Set[str]) -> None:
        if names:
            self._not_read(path, f"{count(len(names), what)} of the table: not in this folder")

    def _read_content(self, path: str) -> MetadataFile | None:
        if path not in self._content:
            self._content[path] = self._read(path, read_metadata_file)
        return self._content[path]

    # --- what the files and the metadata have in plaintext ---------------------------------------

    def _report_plaintext(self, table: Definition) -> None:
        """Report plaintext files of a table that is to be encrypted, or partly is."""
        if table.has_master_key:
            why = f"the table has the property {MASTER_KEY}, but this file is not encrypted"
        elif self._has_encrypted_files():
            why = "other files of the table are encrypted, but not this one"
        else:
            return
        for file in self._files:
            if file.rows and file.encryption == NO_ENCRYPTION:
                self._report_plaintext_file(file, why, _ENCRYPT)

    def _report_partitions(self, table: Definition) -> None:
        for name in sorted({name for id_ in table.partitions for name in table.names.get(id_, ())}):
            if self._is_sensitive(name, partitions=True):
                self._report("the column partitions the table, so its values, or what a transform "
                             "makes of them, are in the names of folders", OTHER_PARTITIONS, name)

    def _report_values(self, table: Definition) -> None:
        where: dict[tuple[str, str | None], list[str]] = {}
        for path in sorted(self._metadata):
            content = None if _METADATA_FILE in path else self._read_content(path)
            for what, id_ in () if content is None else content.values:
                names = [None] if what == KEYS else table.names.get(id_, [f"of field id {id_}"])
                for name in names:
                    where.setdefault((what, name), []).append(posixpath.basename(path))
        for (what, name), files in sorted(where.items(), key=str):
            if name is None or self._is_sensitive(name):
                self._report(_MESSAGES[what], _REMEDIES[what], name, files)

    def _report_texts(self, table: Definition) -> None:
        columns = {name for names in table.names.values() for name in names
                   if self._is_sensitive(name)}
        where: dict[str, list[str]] = {}
        for path in sorted(self._metadata) if columns else ():
            if _METADATA_FILE in path:
                found = self._read(path, lambda filesystem, path: read_mentions(
                    filesystem, path, columns))
                for name in found or ():
                    where.setdefault(name, []).append(posixpath.basename(path))
        for name, files in sorted(where.items()):
            self._report(_MESSAGES[TEXTS], _REMEDIES[TEXTS], name, files)
