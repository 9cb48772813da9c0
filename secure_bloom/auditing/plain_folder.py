"""The audit of a folder of files without a log, which readers take for one table."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote

from secure_bloom.auditing.result import ENCRYPTED_FOOTER, NO_ENCRYPTION, new_finding
from secure_bloom.auditing.table_audit import OTHER_PARTITIONS, TableAudit
from secure_bloom.display import count
from secure_bloom.policy.rules import folded
from secure_bloom.policy.violations import UNENCRYPTED
from secure_bloom.storage.table_names import relative_path, table_of
from secure_bloom.storage.versions import without_subtree


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
