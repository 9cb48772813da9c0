"""What the audits of all table formats share: which columns are sensitive, and how to report."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import pyarrow.fs as pa_fs

from secure_bloom.auditing.audited_files import AuditedFiles
from secure_bloom.auditing.result import (
    ENCRYPTED_FOOTER,
    LEAKING,
    SIGNED_FOOTER,
    UNREADABLE,
    ColumnAudit,
    FileAudit,
    kind_of,
    new_finding,
)
from secure_bloom.display import count, shown
from secure_bloom.errors import (
    KMS_FAULTS,
    FileError,
    KeyRetrievalError,
    SecureBloomError,
)
from secure_bloom.findings import Finding
from secure_bloom.policy.rules import folded
from secure_bloom.policy.violations import UNENCRYPTED
from secure_bloom.storage.table_names import is_hidden
from secure_bloom.storage.versions import without_subtree

_Content = TypeVar("_Content")

_OUTSIDE = "this live file of the table is not in the audited folder: audit its own folder, too"
_PERHAPS_OUTSIDE = "this file, which may be live, is not in the audited folder: audit its own " \
                   "folder, too"
_LOST = "this live file of the table does not exist, or is not a regular file"
_MAX_NAMES = 6
_MAX_PATH = 1000  # characters
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
    audited : AuditedFiles
    table : AuditedTable
    log : str
        The folder in the table that findings name.
    files : iterable of FileAudit
        The records of the table's files.

    Attributes
    ----------
    found : list of Finding
    unread : list of FileAudit
        One for each file of the log, and each live file, that could not be checked.
    """

    def __init__(self, audited: AuditedFiles, table: AuditedTable, log: str,
                 files: Iterable[FileAudit]):
        self._audited, self._table = audited, table
        self._filesystem = audited.filesystem
        self._log = posixpath.join(table.folder, log)
        self._files = list(files)
        self._policy = None if audited.policy is None else audited.policy.for_path(
            without_subtree(audited.filesystem, table.folder)[1])
        self._all_are_sensitive = False
        self.found: list[Finding] = []
        self.unread: list[FileAudit] = []

    def run(self) -> None:
        """Fill in ``found`` and ``unread``."""
        raise NotImplementedError

    @cached_property
    def _sensitive(self) -> set[str]:
        return {column.column for columns in self._distinct_columns() for column in columns
                if column.sensitive}

    @cached_property
    def _encrypted(self) -> set[str]:
        """The columns that a file encrypts, at least in part."""
        return {folded(column.column) for columns in self._distinct_columns()
                for column in columns if column.encrypted_row_groups}

    def _distinct_columns(self) -> Iterable[list[ColumnAudit]]:
        """Return the columns of all files; most files share them with others."""
        return {id(file.columns): file.columns for file in self._files}.values()

    def _report_mixed(self, message: str, remedy: str,
                      role: Callable[[str], str] | None = None) -> None:
        """Report columns that a file with rows does not encrypt, although another file does.

        ``role`` says what a file is; its answer is added to the message.
        """
        plain = {id(columns): [column.column for column in columns if not column.encrypted
                               and folded(column.column) in self._encrypted]
                 for columns in self._distinct_columns()}
        leaking: dict[tuple[int, tuple[str, ...]], list[ColumnAudit]] = {}
        distinct = list(self._distinct_columns())  # keeps their ids from being used again
        for file in self._files if distinct else ():
            if not file.rows or not plain[id(file.columns)]:
                continue
            names = tuple(name for name in plain[id(file.columns)]
                          if not self._may_be_open(file.file, name))
            for name in names:
                if (file.file, name) not in self._audited.known:
                    text = message if role is None else f"{message}, {role(file.file)}"
                    self._report_plaintext_file(file, text, remedy, name)
            key = id(file.columns), names
            if key not in leaking:
                leaking[key] = [replace(column, state=LEAKING, sensitive=True)
                                if column.column in names else column for column in file.columns]
            file.columns = leaking[key]

    def _report_plaintext_file(self, file: FileAudit, message: str, remedy: str,
                               column: str | None = None) -> None:
        self._audited.known.add((file.file, column))
        self.found.append(new_finding(UNENCRYPTED, message, remedy, file.file, column))

    def _may_be_open(self, path: str, column: str) -> bool:
        """Whether a rule of the policy says that the column may be in plaintext."""
        if self._audited.policy is None:
            return False
        found = self._audited.policy.for_path(
            without_subtree(self._filesystem, path)[1]).column(column)
        return not found.encrypted and found.rule is not None

    def _has_encrypted_files(self) -> bool:
        return any(file.encryption in (SIGNED_FOOTER, ENCRYPTED_FOOTER) for file in self._files)

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
        self.found.append(new_finding("log", message, remedy, self._log, column,
                                      evidence=evidence))

    def _add_live(self, names: Iterable[str], *, is_known: bool = True) -> None:
        """Add the live files that are not in the folder, or hidden; audit them if need be.

        Parameters
        ----------
        names : iterable of str
            As in the log.
        is_known : bool
            Whether they are live; otherwise they may be.
        """
        own, hidden = {id(file) for file in self._files}, []
        for name in sorted(names):
            key = self._audited.key_of(self._table.folder, name)
            file = None if key is None else self._audited.by_key.get(key)
            if key is None:
                self._not_here(name, _OUTSIDE if is_known else _PERHAPS_OUTSIDE)
            elif file is None:  # if it is not hidden, it did not exist when the folder was listed
                if is_known or is_hidden(key):
                    hidden.append(key)
            elif id(file) not in own:
                self._files.append(file)
        exist = self._audited.existing(hidden)
        self._files += self._audited.audit(exist)
        if is_known:
            for key in sorted(set(hidden) - set(exist)):
                self._not_here(posixpath.join(self._table.folder, key), _LOST)
        for derived in ("_sensitive", "_encrypted"):
            vars(self).pop(derived, None)  # they are derived from the files

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
            self.found.append(new_finding(
                kind_of(error), f"this file of the table's log cannot be read: {error.message}",
                "restore it", path))
        except (SecureBloomError, OSError) as error:
            self._not_read(path, f"everything: {error}", isinstance(error, KeyRetrievalError))
        return None

    def _not_read(self, path: str, reason: str, missing_keys: bool = False) -> None:
        self.unread.append(FileAudit(path, UNREADABLE, not_checked=[reason], rows=None,
                                     missing_keys=missing_keys))

    def _not_here(self, name: str, reason: str) -> None:
        """Note a live file that was not audited, by its name in the log."""
        self.unread.append(FileAudit(shown(name, _MAX_PATH), UNREADABLE, not_checked=[reason],
                                     rows=None, outside=True))
