"""The audit of Iceberg tables: files that are not encrypted, values and keys in the metadata."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow.fs as pa_fs

from secure_bloom.auditing.iceberg_metadata import (
    BOUNDS,
    KEYS,
    SKETCHES,
    Definition,
    newest,
    read_definition,
    read_values,
)
from secure_bloom.auditing.result import (
    ENCRYPTED_FOOTER,
    NO_ENCRYPTION,
    UNREADABLE,
    AuditFinding,
    FileAudit,
)
from secure_bloom.display import count
from secure_bloom.errors import FileError, SecureBloomError
from secure_bloom.keys.iceberg import MASTER_KEY
from secure_bloom.policy.policy import Policy
from secure_bloom.storage.table_formats import ICEBERG_METADATA, iceberg_tables_below
from secure_bloom.storage.versions import without_subtree
from secure_bloom.storage.visibility import is_hidden

_Result = TypeVar("_Result")

_MAX_NAMES = 6
_SAYS = {
    BOUNDS: "the lower and upper bounds of the column are in manifests that are not encrypted",
    SKETCHES: "a statistics file that is not encrypted has hashes of the column's values, with "
              "which anyone can test which values exist",
    KEYS: "the keys of encrypted data files are in manifests that are not encrypted, so anyone who "
          "has these can read the files",
}
_ENCRYPT = f"copy the rows into a table with {MASTER_KEY}, in a catalog that encrypts, and " \
           "delete this one with its copies"
_REMEDIES = {
    BOUNDS: _ENCRYPT,
    SKETCHES: "remove the file with the procedure expire_snapshots, withdraw its copies, and do "
              "not run compute_table_stats on this table",
    KEYS: _ENCRYPT,
}


@dataclass
class IcebergTable:
    """An Iceberg table in a folder that is audited.

    Attributes
    ----------
    folder : str
    metadata : list of str
        The files in its folder ``metadata``, except Parquet files.
    """

    folder: str
    metadata: list[str] = field(default_factory=list)

    def has(self, path: str) -> bool:
        """Whether a path is below the folder of the table."""
        # Some filesystems list t/f in folder /t.
        return path.lstrip("/").startswith(f"{self.folder.strip('/')}/".lstrip("/"))


def iceberg_tables(folder: str, found: Iterable[str]) -> list[IcebergTable]:
    """Find the tables in a folder, from the paths of all files below it, relative to it."""
    found = [path for path in found if not is_hidden(path)]
    tables = []
    for root in iceberg_tables_below(found):
        inside = posixpath.join(root, ICEBERG_METADATA, "")
        table = IcebergTable(posixpath.join(folder, root).rstrip("/"))
        table.metadata = [posixpath.join(folder, path) for path in found
                          if path.startswith(inside) and not path.endswith(".parquet")]
        tables.append(table)
    return tables


class IcebergAudit:
    """The audit of one table, after that of its files.

    ``files`` are the records of its files. The results are in ``found``, and in ``unread`` for each
    file of the metadata that was not read.
    """

    def __init__(self, filesystem: pa_fs.FileSystem, table: IcebergTable,
                 files: Iterable[FileAudit], policy: Policy | None):
        self._filesystem, self._table = filesystem, table
        self._policy = None if policy is None else policy.for_path(
            without_subtree(filesystem, table.folder)[1])
        self._files = [file for file in files if table.has(file.file)]
        self._sensitive = {column.column for file in self._files for column in file.columns
                           if column.sensitive}
        #: Iceberg encrypts all columns of a file, and hides their names from readers without keys
        self._all = any(file.encryption == ENCRYPTED_FOOTER and not file.columns
                        for file in self._files)
        self.found: list[AuditFinding] = []
        self.unread: list[FileAudit] = []

    def run(self) -> None:
        """Fill in ``found`` and ``unread``."""
        path = newest(self._table.metadata)
        table = None if path is None else self._read(path, read_definition)
        if table is None:
            return
        self._all |= table.has_master_key
        self._report_plaintext(table)
        if self._all or self._sensitive or self._policy is not None:
            self._report_partitions(table)
            self._report_values(table)

    def _report_plaintext(self, table: Definition) -> None:
        """Report plaintext files of a table that is to be encrypted, or partly is."""
        if table.has_master_key:
            why = f"the table has the property {MASTER_KEY}, but this file is not encrypted"
        elif any(file.encryption not in (NO_ENCRYPTION, UNREADABLE) for file in self._files):
            why = "other files of the table are encrypted, but not this one"
        else:
            return
        self.found += [AuditFinding("unencrypted", why, _ENCRYPT, file.file)
                       for file in self._files if file.encryption == NO_ENCRYPTION]

    def _report_partitions(self, table: Definition) -> None:
        names = (table.names.get(id_) for id_ in table.partitions)
        for name in sorted(name for name in names if name is not None):
            by_policy = self._policy is not None and self._policy.rule_for_partition(name)
            if by_policy or self._all or name in self._sensitive:
                self._report("the column partitions the table, so its values, or what a transform "
                             "makes of them, are in the names of folders",
                             "write the rows into a table with other partitions, and delete this "
                             "one with its copies", name)

    def _report_values(self, table: Definition) -> None:
        where: dict[tuple[str, str | None], list[str]] = {}
        for path in sorted(self._table.metadata):
            for what, id_ in self._read(path, read_values) or ():
                name = None if what == KEYS else table.names.get(id_, f"of field id {id_}")
                where.setdefault((what, name), []).append(posixpath.basename(path))
        for (what, name), files in sorted(where.items(), key=str):
            if name is None or self._is_sensitive(name):
                listed = ", ".join(files[:_MAX_NAMES]) + ", ..." * (len(files) > _MAX_NAMES)
                self._report(_SAYS[what], _REMEDIES[what], name,
                             f"found in {count(len(files), 'file')}: {listed}")

    def _is_sensitive(self, name: str) -> bool:
        return self._all or name in self._sensitive or (
            self._policy is not None and self._policy.is_sensitive(name))

    def _report(self, message: str, remedy: str, column: str | None, *evidence: str) -> None:
        folder = posixpath.join(self._table.folder, ICEBERG_METADATA)
        self.found.append(AuditFinding("log", message, remedy, folder, column, evidence=evidence))

    def _read(self, path: str, reader: Callable[[pa_fs.FileSystem, str], _Result]) \
            -> _Result | None:
        """Read a file of the metadata; None if that is not possible, which is noted."""
        try:
            return reader(self._filesystem, path)
        except FileNotFoundError:
            pass  # removed by the table's own cleaning
        except FileError as error:
            self.found.append(AuditFinding("damaged", error.message, "restore it", path))
        except ImportError:
            self._not_read(path, "whether it has values of sensitive columns: reading manifests "
                                 "needs pyiceberg (pip install pyiceberg)")
        except (SecureBloomError, OSError) as error:
            self._not_read(path, f"everything: {error}")
        return None

    def _not_read(self, path: str, reason: str) -> None:
        self.unread.append(FileAudit(path, UNREADABLE, not_checked=[reason]))
