"""What the audits of all table formats share: which columns are sensitive, and how to report."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow.fs as pa_fs

from secure_bloom.auditing.result import NO_ENCRYPTION, UNREADABLE, AuditFinding, FileAudit
from secure_bloom.display import count, shown
from secure_bloom.errors import (
    KMS_FAULTS,
    AuthenticationError,
    FileError,
    KeyRetrievalError,
    SecureBloomError,
)
from secure_bloom.policy.policy import Policy
from secure_bloom.storage.versions import without_subtree

_Content = TypeVar("_Content")

_MAX_NAMES = 6
#: what to do about a sensitive column that partitions a table
OTHER_PARTITIONS = "write the rows into a table with other partitions, and delete this one with " \
                   "its copies"


@dataclass
class AuditedTable:
    """A table in a folder that is audited."""

    folder: str

    def has(self, path: str) -> bool:
        """Whether a path is below the folder of the table."""
        # Some filesystems list t/f in folder /t.
        return path.lstrip("/").startswith(f"{self.folder.strip('/')}/".lstrip("/"))


class TableAudit:
    """The audit of one table, after that of its data files.

    A column is sensitive if the policy says so, or if a data file encrypts it.

    Parameters
    ----------
    filesystem : pyarrow.fs.FileSystem
    table : AuditedTable
    log : str
        The folder in the table that findings name.
    files : iterable of FileAudit
        The records of the table's files.
    policy : Policy, optional

    Attributes
    ----------
    found : list of AuditFinding
    unread : list of FileAudit
        One for each file of the log that could not be checked.
    """

    def __init__(self, filesystem: pa_fs.FileSystem, table: AuditedTable, log: str,
                 files: Iterable[FileAudit], policy: Policy | None):
        self._filesystem, self._log = filesystem, posixpath.join(table.folder, log)
        self._files = list(files)
        self._policy = None if policy is None else policy.for_path(
            without_subtree(filesystem, table.folder)[1])
        self._sensitive = {column.column for file in self._files for column in file.columns
                           if column.sensitive}
        self._all_are_sensitive = False
        self.found: list[AuditFinding] = []
        self.unread: list[FileAudit] = []

    def run(self) -> None:
        """Fill in ``found`` and ``unread``."""
        raise NotImplementedError

    def _has_encrypted_files(self) -> bool:
        return any(file.encryption not in (NO_ENCRYPTION, UNREADABLE) for file in self._files)

    def _is_sensitive(self, column: str, *, partitions: bool = False) -> bool:
        if self._all_are_sensitive or column in self._sensitive:
            return True
        if self._policy is None:
            return False
        if partitions:
            return self._policy.rule_for_partition(column) is not None
        return self._policy.is_sensitive(column)

    def _report(self, message: str, remedy: str, column: str | None,
                names: Sequence[str] = ()) -> None:
        """Report what the log reveals; ``names`` are those of the files that have it, if known."""
        listed = ", ".join(map(shown, names[:_MAX_NAMES]))
        more = ", ..." if len(names) > _MAX_NAMES else ""
        evidence = (f"found in {count(len(names), 'file')}: {listed}{more}",) if names else ()
        self.found.append(AuditFinding("log", message, remedy, self._log, column,
                                       evidence=evidence))

    def _read(self, path: str, reader: Callable[[pa_fs.FileSystem, str], _Content]) \
            -> _Content | None:
        """Read a file of the log; None if that is not possible, which is noted."""
        try:
            return reader(self._filesystem, path)
        except KMS_FAULTS:
            raise
        except FileNotFoundError:
            pass  # removed by the table's own cleaning
        except FileError as error:
            if path.endswith(".tmp"):  # it is being written, or was never finished
                self._not_read(path, f"everything: {error}")
                return None
            kind = "authentication" if isinstance(error, AuthenticationError) else "damaged"
            self.found.append(AuditFinding(kind, f"this file of the table's log cannot be read: "
                                           f"{error.message}", "restore it", path))
        except (SecureBloomError, OSError) as error:
            self._not_read(path, f"everything: {error}", isinstance(error, KeyRetrievalError))
        return None

    def _not_read(self, path: str, reason: str, missing_keys: bool = False) -> None:
        self.unread.append(FileAudit(path, UNREADABLE, not_checked=[reason],
                                     missing_keys=missing_keys))
