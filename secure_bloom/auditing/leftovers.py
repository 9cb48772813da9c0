"""The audit of files that no reader sees, but that writers left or have not published yet.

Readers ignore them, but a copy of the folder includes them. Only files that begin as a Parquet file
are reported, because markers, checksums and logs have similar names.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable

import pyarrow.fs as pa_fs

from secure_bloom.auditing.result import ENCRYPTED_FOOTER, SIGNED_FOOTER, AuditResult, new_finding
from secure_bloom.errors import FileError, SecureBloomError
from secure_bloom.findings import Finding
from secure_bloom.parquet.footer import encryption_algorithm
from secure_bloom.parquet.tail import MAGIC, read_footer
from secure_bloom.policy.policy import Policy
from secure_bloom.storage.local_files import is_temporary
from secure_bloom.storage.many_files import each_file
from secure_bloom.storage.source import Source
from secure_bloom.storage.table_names import STAGING, is_hidden, job_of, relative_path

#: folders in which Spark, Hadoop and Hive write files before they publish them
_OF_COMMITTERS = ("_temporary", ".spark-staging", ".hive-staging")
_DELETE = "delete it, unless a job is still writing it, and withdraw its copies"


def leftovers_among(found: Iterable[str], visible: Collection[str], folder: str) -> list[str]:
    """Return those of the files below a folder, by relative paths, that may have hidden rows.

    ``visible`` are the paths of the files that readers see.
    """
    seen = {relative_path(path, folder) for path in visible}
    return [posixpath.join(folder, path) for path in found
            if path not in seen and (not is_hidden(path) or _is_known(path))]


def _is_known(path: str) -> bool:
    *folders, name = path.split("/")
    return is_temporary(name) or (STAGING in folders and job_of(name) is not None) \
        or any(one.startswith(_OF_COMMITTERS) for one in folders)


def audit_leftovers(filesystem: pa_fs.FileSystem, paths: list[str], result: AuditResult,
                    policy: Policy | None, files_at_once: int | None) -> list[Finding]:
    """Return findings about those that may have rows in plaintext.

    There are none if no file that readers see is encrypted, or has a sensitive column.
    """
    if not _has_secrets(result, policy):
        return []
    reasons = dict(each_file(lambda path: _reason(filesystem, path), paths, files_at_once, None))
    return [new_finding("leftover", f"readers ignore this file, which a job left behind, or has "
                                    f"not published or deleted yet, but {reasons[path]}", _DELETE,
                        path)
            for path in paths if reasons[path] is not None]


def _has_secrets(result: AuditResult, policy: Policy | None) -> bool:
    if not result.files:
        return policy is not None
    return any(file.encryption in (ENCRYPTED_FOOTER, SIGNED_FOOTER)
               or any(column.sensitive for column in file.columns) for file in result.files)


def _reason(filesystem: pa_fs.FileSystem, path: str) -> str | None:
    """Return why a file may have rows in plaintext; None if it has not."""
    try:
        source = Source(path, filesystem)
        with source.file:
            if source.read_at(len(MAGIC), 0) != MAGIC:
                return None
            try:
                is_encrypted = encryption_algorithm(*read_footer(source)) is not None
            except FileError:
                return "its rows may be in plaintext: it has no footer"
            return None if is_encrypted else "its rows are not encrypted"
    except FileNotFoundError:  # it has just been removed or published
        return None
    except (SecureBloomError, OSError) as error:
        return f"it cannot be read: {error}"
