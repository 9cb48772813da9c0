"""The files that an audit has audited, by the names that logs of tables have for them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TypeAlias

import pyarrow.fs as pa_fs

from secure_bloom.auditing.result import AuditResult, FileAudit
from secure_bloom.findings import Finding
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.violations import UNENCRYPTED
from secure_bloom.storage.table_names import relative_path
from secure_bloom.storage.versions import without_subtree

AuditFiles: TypeAlias = Callable[[Sequence[str]], list[FileAudit]]

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)(?://([^/]*))?(/.*)?", re.DOTALL)
_STORES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gcs", "gcs": "gcs", "abfs": "abfs",
           "abfss": "abfs"}  # by scheme, the type of the filesystem


class AuditedFiles:
    """The audited files of a folder, and a way to audit further ones.

    Parameters
    ----------
    filesystem : pyarrow.fs.FileSystem
    result : AuditResult
        The result of the files of the folder.
    policy : Policy, optional
    audit_files : callable
        Audits files, and adds them to the result.

    Attributes
    ----------
    known : set of tuple
        The files and columns that are already reported as not encrypted.
    """

    def __init__(self, filesystem: pa_fs.FileSystem, result: AuditResult, policy: Policy | None,
                 audit_files: AuditFiles):
        self.filesystem, self.policy = filesystem, policy
        self._result, self._audit_files = result, audit_files
        self.known: set[tuple[str, str | None]] = set()
        self._note(result.findings)

    def audit(self, keys: Sequence[str]) -> list[FileAudit]:
        """Audit further files, by keys of :meth:`key_of`."""
        number = len(self._result.findings)
        files = self._audit_files([posixpath.join(self._result.path, key) for key in keys])
        self._note(self._result.findings[number:])
        self.by_key.update(zip(keys, files, strict=True))
        return files

    @cached_property
    def by_key(self) -> dict[str, FileAudit]:
        """The audited files, by their paths relative to the audited folder."""
        return {self.key(file.file): file for file in self._result.files}

    def key(self, path: str) -> str:
        """Return the path of an audited file relative to the audited folder."""
        return relative_path(path, self._result.path)

    def existing(self, keys: Sequence[str]) -> list[str]:
        """Return those keys that are regular files now."""
        found = self.filesystem.get_file_info([posixpath.join(self._result.path, key)
                                               for key in keys])
        return [key for key, info in zip(keys, found, strict=True) if info.is_file]

    def key_of(self, folder: str, name: str) -> str | None:
        """Return the path of a file relative to the audited folder; None if it is not below it.

        Parameters
        ----------
        folder : str
            The folder of the table.
        name : str
            The path in the log, which may be relative to that folder, absolute, or a URI.
        """
        base, own = without_subtree(self.filesystem, folder)
        path = _path_in(base, name)
        if path is None or "\0" in path:
            return None
        root = without_subtree(self.filesystem, self._result.path)[1]
        full = posixpath.normpath(posixpath.join(own, path)).lstrip("/")
        above = posixpath.normpath(root).lstrip("/") if root.strip("/") else ""
        if full.split("/")[0] == ".." or not f"/{full}".startswith(f"/{above}/".replace("//", "/")):
            return None
        return full[len(above):].lstrip("/")

    def _note(self, findings: Iterable[Finding]) -> None:
        self.known.update((finding.file, finding.column) for finding in findings
                          if finding.kind == UNENCRYPTED)


def _path_in(filesystem: pa_fs.FileSystem, name: str) -> str | None:
    """Return the path of a file in a filesystem; None if it is in another one."""
    uri = _URI.fullmatch(name)
    if uri is None:
        return name
    scheme, host, path = uri[1].lower(), uri[2] or "", uri[3] or ""
    if scheme == "file":
        return path if filesystem.type_name == "local" and host in ("", "localhost") else None
    if _STORES.get(scheme) != filesystem.type_name:
        return None
    return "/" + host.partition("@")[0] + path
