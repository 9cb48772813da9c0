"""The audit of data-set indexes: those that leak, and those that are damaged or stale."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from secure_bloom.auditing.result import FileAudit, kind_of, new_finding
from secure_bloom.display import count
from secure_bloom.errors import FileError
from secure_bloom.findings import Finding
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.inspection import IndexInfo, inspect_index
from secure_bloom.index.table import Table
from secure_bloom.keys.cache import CachedKms
from secure_bloom.policy.policy import Policy
from secure_bloom.storage.versions import without_subtree

_ENCRYPT = "delete this folder, withdraw its copies, and build the index again when the column " \
           "is encrypted"
_BUILD = "delete this folder, and build the index again"
_UPDATE = "run secure-bloom index update"


def audit_indexes(folders: Sequence[IndexFolder], files: Sequence[FileAudit],
                  kms: CachedKms | None, policy: Policy | None) -> list[Finding]:
    """Return findings about indexes.

    Parameters
    ----------
    folders : sequence of IndexFolder
    files : sequence of FileAudit
        The audited files, which tell whether a column is sensitive.
    kms : CachedKms or None
        Opens indexes; without their keys, encrypted ones cannot be stale.
    policy : Policy or None
    """
    return [finding for folder in folders for finding in _audited(folder, files, kms, policy)]


def _audited(folder: IndexFolder, files: Sequence[FileAudit], kms: CachedKms | None,
             policy: Policy | None) -> Iterable[Finding]:
    info = inspect_index(folder, kms, Table(folder.filesystem, folder.table).listing())
    if info.is_encrypted is False and (reason := _sensitive(folder, files, policy)):
        yield new_finding("index", f"the index is not encrypted, but {reason}: anyone who has it "
                                   "can test which values exist, and in which files", _ENCRYPT,
                          folder.path, folder.column, evidence=_evidence(info))
    if isinstance(info.error, FileError):
        yield new_finding(kind_of(info.error), f"the index cannot be read: {info.error.message}",
                          _BUILD, folder.path, folder.column)
    elif info.error is not None:
        yield new_finding("stale-index", f"the index cannot be used: {info.error.message}", _BUILD,
                          folder.path, folder.column)
    elif info.uncovered:
        uncovered = count(info.uncovered, "file")
        yield new_finding("stale-index", f"the index does not cover {uncovered}, so these are "
                                         "searched without it", _UPDATE,
                          folder.path, folder.column)


def _sensitive(folder: IndexFolder, files: Iterable[FileAudit],
               policy: Policy | None) -> str | None:
    """Return why the column is sensitive; None if it is not."""
    below = folder.table.rstrip("/") + "/"
    found = [column for file in files if file.file.startswith(below)
             for column in file.columns if column.column == folder.column]
    if any(column.encryption is not None for column in found):
        return "files encrypt the column"
    path = without_subtree(folder.filesystem, folder.table)[1]
    if policy is not None and policy.for_path(path).is_sensitive(folder.column):
        return "the policy requires that the column is"
    return "the column is sensitive" if any(column.sensitive for column in found) else None


def _evidence(info: IndexInfo) -> tuple[str, ...]:
    if info.pairs is None or info.files is None:
        return ()
    return (f"{count(info.pairs, 'fingerprint')} of values in {count(info.files, 'file')} can be "
            "read without any key",)
