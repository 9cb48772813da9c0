"""Find leaks: audit a file, or all files of a folder."""

from __future__ import annotations

import os
import posixpath
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple
from hashlib import sha256
from typing import Any

import pyarrow.fs as pa_fs

from secure_bloom.auditing.evidence import Traces
from secure_bloom.auditing.file import OpenFileAudit
from secure_bloom.auditing.indexes import audit_indexes
from secure_bloom.auditing.leftovers import audit_leftovers, leftovers_among
from secure_bloom.auditing.result import (
    ENCRYPTED_FOOTER,
    NOT_PARQUET,
    UNREADABLE,
    AuditResult,
    ColumnAudit,
    FileAudit,
    kind_of,
    new_finding,
)
from secure_bloom.auditing.tables import TablesBelow
from secure_bloom.display import shown_path
from secure_bloom.errors import (
    KMS_FAULTS,
    FileError,
    KeyRetrievalError,
    PolicyError,
    SecureBloomError,
)
from secure_bloom.findings import Finding
from secure_bloom.index.finding import index_folders
from secure_bloom.index.folder import IndexFolder
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.environment import NO_KEYS
from secure_bloom.keys.retrieval import Keys, open_keys
from secure_bloom.parquet.footer import encryption_algorithm
from secure_bloom.parquet.tail import MAGIC_ENCRYPTED, MAGICS, TAIL_SIZE, read_footer
from secure_bloom.policy.environment import given_or_of_environment
from secure_bloom.policy.policy import Policy
from secure_bloom.progress import shown_progress
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage.files import FilePath, resolve
from secure_bloom.storage.hive_partitioning import partition_values
from secure_bloom.storage.many_files import each_file
from secure_bloom.storage.source import Source
from secure_bloom.storage.summary_files import summaries_among
from secure_bloom.storage.versions import until_unchanged, without_subtree
from secure_bloom.storage.visibility import parquet_files

_MAX_SHARED = 10_000


def audit(source: FilePath, keys: Keys = None, *,
          policy: Policy | str | os.PathLike[str] | None = None, guesses: Iterable[str] = (),
          scan: bool = False, filesystem: pa_fs.FileSystem | None = None,
          files_at_once: int | None = None, advance: Callable[[float], None] | None = None,
          progress: bool | None = None) -> AuditResult:
    """Find what Bloom filters, metadata, indexes and logs reveal. Changes nothing.

    Parameters
    ----------
    source : str or path
        A Parquet file from any writer, or a folder of Parquet files, with their summaries
        (``_metadata``). In folders of Delta Lake and Iceberg tables, all files are audited, live or
        not, and the log or metadata.
    keys : KmsClient or ExplicitKeys, optional
        To audit encrypted parts as well. Without keys, the audit sees what an attacker sees.
    policy : Policy, str or path, optional
        Which columns must be encrypted, and under which master keys; see the page "One policy for
        all files". Default: every encrypted column counts as sensitive. Without keys, the audit
        relies on the names of master keys that the files claim.
    guesses : iterable of str
        Values to try on plaintext filters, as an attacker would; only the number of hits is
        reported. If the filters of a column that is not encrypted recognize them, it may be a
        renamed or copied sensitive column.
    scan : bool
        Search every byte for plaintext filters that no footer references, and for those of files
        with an encrypted footer whose key is not available.
    filesystem : pyarrow.fs.FileSystem, optional
        Default: the local file system, or the one that a URI names.
    files_at_once : int, optional
        Default: one per core.
    advance : callable, optional
        Called with the completed fraction, 0 to 1.
    progress : bool, optional
        Whether to show the progress on standard error. Default: if it takes more than two seconds,
        in a terminal or a notebook, and without ``advance``.

    Raises
    ------
    FileNotFoundError
        If the file or folder does not exist.
    PolicyError
        If the policy is not valid, or has two rules for a column that contradict each other.
    KmsUnavailableError, KeyringError
        If the KMS does not respond, or the keyring cannot be read.
    TypeError
        If ``guesses`` is one text, or has anything but text.

    Examples
    --------
    >>> secure_bloom.audit("lake/", policy="policy.toml").summary  # doctest: +SKIP
    """
    policy, guesses = given_or_of_environment(policy), _texts(guesses)
    filesystem, path = resolve(source, filesystem)
    indexes: list[IndexFolder] = []
    tables, summaries, everything = TablesBelow(), list[str](), list[str]()

    def note(found: Iterable[str]) -> None:
        found = list(found)
        everything[:] = found
        indexes[:] = index_folders(filesystem, path, found)
        tables.find(path, found)
        summaries[:] = [posixpath.join(path, one) for one in summaries_among(found)]

    paths = tables.data_files(parquet_files(filesystem, path, note))
    keys = open_keys(keys)
    auditing = _Auditing(filesystem, keys, policy, guesses, scan)
    result, shared = AuditResult(path), _Shared()

    def audit_files(paths: Sequence[str], advance: Callable[[float], None] | None = None) \
            -> list[FileAudit]:
        files, findings = {}, {}
        for path_of, (file, found) in each_file(auditing.file, paths, files_at_once, advance):
            files[path_of] = shared.file(file)
            if found:
                findings[path_of] = found
        result.findings += [finding for one in paths for finding in findings.get(one, ())]
        result.files += [files[one] for one in paths]
        return [files[one] for one in paths]

    with shown_progress("audit", progress, advance) as advance:
        audit_files([*paths, *summaries], advance)
    tables.audit(filesystem, result, keys, policy, files_at_once, audit_files)
    result.findings += auditing.shared_ids()
    result.findings += audit_indexes(indexes, result.files,
                                     keys if isinstance(keys, CachedKms) else None, policy)
    leftovers = leftovers_among(everything, [file.file for file in result.files], path)
    result.findings += audit_leftovers(filesystem, leftovers, result, policy, files_at_once)
    if policy is not None:
        result.findings += _without_match(policy, result, filesystem)
    return result


def _texts(guesses: Iterable[str]) -> tuple[str, ...]:
    texts = tuple(guesses)
    if isinstance(guesses, str) or not all(isinstance(text, str) for text in texts):
        raise TypeError("guesses must be a list of texts; write numbers and dates as text")
    return texts


class _AnyFile(OpenFile):
    """A file, which may be a summary of other files: its statistics may leak as theirs do."""

    def _check_has_rows(self) -> None:
        pass


class _Shared:
    """The parts that the records of many files share, so that a million records fit in memory."""

    def __init__(self) -> None:
        self._columns: dict[tuple[Any, ...], list[ColumnAudit]] = {}
        self._texts: dict[str, str] = {}

    def file(self, file: FileAudit) -> FileAudit:
        """Return the record, sharing its parts with an equal earlier record."""
        key = tuple(map(astuple, file.columns))
        if key in self._columns or len(self._columns) < _MAX_SHARED:
            file.columns = self._columns.setdefault(key, file.columns)
        if len(self._texts) < _MAX_SHARED:
            file.not_checked = [self._texts.setdefault(text, text) for text in file.not_checked]
        return file


class _Auditing:
    """The audit of several files."""

    def __init__(self, filesystem: pa_fs.FileSystem, keys: Keys, policy: Policy | None,
                 guesses: tuple[str, ...], scan: bool):
        self._filesystem, self._keys = filesystem, keys
        self._policy, self._guesses, self._scan = policy, guesses, scan
        self._ids: dict[str, tuple[bytes, bytes]] = {}  # by path: file id, digest of the footer

    def file(self, path: str) -> tuple[FileAudit, list[Finding]]:
        try:
            return until_unchanged(lambda: self._one_version(path))
        except (*KMS_FAULTS, PolicyError):
            raise
        except FileError as error:
            return FileAudit(path, UNREADABLE, rows=None,
                             not_checked=["the whole file: it cannot be read"]), \
                [new_finding(kind_of(error), error.message, "replace the file with a good copy",
                             path)]
        except (SecureBloomError, OSError) as error:
            return FileAudit(path, UNREADABLE, rows=None, not_checked=[f"everything: {error}"],
                             missing_keys=isinstance(error, KeyRetrievalError)), []

    def _one_version(self, path: str) -> tuple[FileAudit, list[Finding]]:
        """Audit one version of the file, which must not be replaced during the audit."""
        source = Source(path, self._filesystem)
        with source.file, source.one_version():
            found = self._audited(path, source)
            source.check_name()  # the file was opened more than once
            return found

    def _audited(self, path: str, source: Source) -> tuple[FileAudit, list[Finding]]:
        if (reason := _other_format(path, source)) is not None:
            return FileAudit(path, NOT_PARQUET, rows=None, not_checked=[reason]), []
        magic, is_encrypted = self._note_id(path, source)
        try:  # a plaintext file needs no keys, and explicit ones would refuse it
            return self._open(path, self._keys if is_encrypted else None)
        except KMS_FAULTS:
            raise
        except KeyRetrievalError as error:
            if magic == MAGIC_ENCRYPTED:
                return self._closed(path, source, error)
            result, findings = self._open(path, NO_KEYS)  # only its signature needs the key
            result.not_checked.append(f"everything that needs keys: {error.message}")
            return result, findings

    def _open(self, path: str, keys: Keys) -> tuple[FileAudit, list[Finding]]:
        with _AnyFile(path, keys, filesystem=self._filesystem) as file:
            policy = None if self._policy is None else self._policy.for_path(file.path)
            audit = OpenFileAudit(file, policy, self._guesses, self._scan)
            audit.run()
            return audit.result, audit.findings

    def _note_id(self, path: str, source: Source) -> tuple[bytes, bool]:
        """Record the id of a file, if any; return its magic, and whether it has an id."""
        self._ids.pop(path, None)  # recorded for another version
        content, magic = read_footer(source)
        algorithm = encryption_algorithm(content, magic)
        if algorithm is not None:
            self._ids[path] = algorithm.aad_file_unique, sha256(content).digest()
        return magic, algorithm is not None

    def _closed(self, path: str, source: Source, error: KeyRetrievalError) \
            -> tuple[FileAudit, list[Finding]]:
        """Audit a file with an encrypted footer whose key is not available."""
        result = FileAudit(path, ENCRYPTED_FOOTER, missing_keys=True, rows=None,
                           not_checked=[f"everything except its file id: {error.message}"])
        if not self._scan:
            result.not_checked.append("whether it contains plaintext filters: the bytes were not "
                                      "searched")
            return result, []
        content, _ = read_footer(source)
        found = Traces().look(source, source.size - TAIL_SIZE - len(content))
        if not found.count:
            return result, []
        return result, [new_finding(
            "trace", f"{found.count:,} plaintext Bloom filters were found in the file, of "
            f"{found.num_bytes:,} bytes; only its encrypted footer says which columns they belong "
            "to",
            "audit it with its keys: they are leaks unless their columns are unencrypted", path,
            evidence=found.evidence)]

    def shared_ids(self) -> list[Finding]:
        """Find files with the same id that are not copies of each other."""
        findings = []
        by_id: dict[bytes, dict[str, bytes]] = defaultdict(dict)
        for path, (file_id, digest) in self._ids.items():
            by_id[file_id][path] = digest
        for files in by_id.values():
            if len(set(files.values())) < 2:
                continue
            names = sorted(files)
            findings += [new_finding(
                "shared-id", "the file has the same file id as "
                + ", ".join(shown_path(other) for other in names[:6] if other != name)
                + (", ..." if len(names) > 6 else "")
                + ": if they share keys too, parts of one can be put into another without "
                  "detection",
                "rewrite the files, each with its own encryption properties", name)
                for name in names]
        return findings


def _other_format(path: str, source: Source) -> str | None:
    """Return why this is not a Parquet file; None if it is, or is a part or a ruin of one."""
    if bytes(source.read_tail(4)) in MAGICS:  # read first: it is read anyway
        return None
    if bytes(source.read_at(4, 0)) in MAGICS:
        return None
    if not source.size:
        return "it is empty"
    in_spite = ", in spite of its name" if path.endswith(".parquet") else ""
    return f"it is not a Parquet file{in_spite}"


def _without_match(policy: Policy, result: AuditResult,
                   filesystem: pa_fs.FileSystem) -> list[Finding]:
    columns: dict[Policy, set[str]] = {}  # by the policy for the paths of the files
    for file in result.files:
        if file.columns:
            own = policy.for_path(without_subtree(filesystem, file.file)[1])
            columns.setdefault(own, set()).update(
                partition_values(file.file), (column.column for column in file.columns))
    missing = {own: own.without_match(found) for own, found in columns.items()}
    matched = {name for own, names in missing.items()
               for name in set(own.without_match(())) - set(names)}
    return [new_finding("policy", f"{name!r} is sensitive according to the policy, but matches "
                                   "no column in any readable file",
                        "correct the policy if the name is misspelt", result.path)
            for name in dict.fromkeys(name for names in missing.values() for name in names)
            if name not in matched]
