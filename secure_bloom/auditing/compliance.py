"""Whether files meet a policy: their footers are read, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow.fs as pa_fs

from secure_bloom.display import Result, count
from secure_bloom.errors import KMS_FAULTS, KeyRetrievalError, PolicyError, SecureBloomError
from secure_bloom.keys.environment import NO_KEYS
from secure_bloom.keys.retrieval import Keys, open_keys
from secure_bloom.parquet.footer import encryption_algorithm
from secure_bloom.parquet.tail import read_footer
from secure_bloom.policy.policy import Policy, as_policy
from secure_bloom.policy.slips import RuleUsage
from secure_bloom.policy.violations import UNKNOWN_KEY, Violation, violations
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage.files import FilePath, resolve
from secure_bloom.storage.hive_partitioning import partition_values
from secure_bloom.storage.many_files import each_file
from secure_bloom.storage.source import Source
from secure_bloom.storage.table_formats import is_deletion_vector, without_iceberg_metadata
from secure_bloom.storage.versions import until_unchanged
from secure_bloom.storage.visibility import parquet_files


@dataclass(slots=True, repr=False)
class FileCompliance(Result):
    """Whether a file meets a policy.

    Attributes
    ----------
    file : str
    violations : list of Violation
    not_checked : list of str
        What could not be checked, and why.
    missing_keys : bool
        Whether that is for lack of a key.
    """

    file: str
    violations: list[Violation] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)
    missing_keys: bool = False

    def _headline(self) -> str:
        unknown = ", not fully checked" if self.not_checked else ""
        return f"{self.file}: {count(len(self.violations), 'violation')}{unknown}"


def check_files(path: FilePath, policy: Policy | FilePath, keys: Keys = None, *,
                filesystem: pa_fs.FileSystem | None = None, files_at_once: int | None = None,
                advance: Callable[[float], None] | None = None,
                usage: RuleUsage | None = None) -> list[FileCompliance]:
    """Check whether a Parquet file, or the files of a folder, meet a policy.

    Arguments and errors are those of :func:`.audit.audit`. Without keys, the names of master keys
    are those that files claim. Files whose columns are known are added to ``usage``.
    """
    rules = as_policy(policy)
    usage = RuleUsage() if usage is None else usage
    filesystem, path = resolve(path, filesystem)
    paths = [one for one in without_iceberg_metadata(parquet_files(filesystem, path))
             if not is_deletion_vector(one)]
    shared = open_keys(keys)
    found = dict(each_file(lambda path: _checked(filesystem, path, shared, rules, usage), paths,
                           files_at_once, advance))
    return [found[path] for path in paths]


def _checked(filesystem: pa_fs.FileSystem, path: str, keys: Keys, policy: Policy,
             usage: RuleUsage) -> FileCompliance:
    try:
        return until_unchanged(lambda: _one_version(filesystem, path, keys, policy, usage))
    except (*KMS_FAULTS, PolicyError):
        raise
    except (SecureBloomError, OSError) as error:
        message = error.message if isinstance(error, SecureBloomError) else str(error)
        return FileCompliance(path, not_checked=[message],
                              missing_keys=isinstance(error, KeyRetrievalError))


def _one_version(filesystem: pa_fs.FileSystem, path: str, keys: Keys, policy: Policy,
                 usage: RuleUsage) -> FileCompliance:
    source, in_path = Source(path, filesystem), partition_values(path)
    with source.file, source.one_version(), _opened(source, keys) as file:
        rules = policy.for_path(file.path)
        found = violations(rules, file.footer, in_path)
        usage.add(rules, file.columns, in_path)
    unknown = [violation.message if violation.column is None
               else f"column {violation.column}: {violation.message}"
               for violation in found if violation.kind == UNKNOWN_KEY]
    return FileCompliance(path, [violation for violation in found if violation.kind != UNKNOWN_KEY],
                          unknown, bool(unknown))


def _opened(source: Source, keys: Keys) -> OpenFile:
    content, magic = read_footer(source)
    if encryption_algorithm(content, magic) is None:  # which explicit keys would refuse
        return OpenFile(source, NO_KEYS)
    try:
        return OpenFile(source, keys)
    except KMS_FAULTS:
        raise
    except KeyRetrievalError:  # a plaintext footer can be read without its key
        return OpenFile(source, NO_KEYS)


def to_dict(path: str, files: list[FileCompliance], unused_rules: list[str]) -> dict[str, Any]:
    """Return the result as a dictionary for JSON."""
    is_ok = bool(files) and not any(file.violations or file.not_checked for file in files)
    return {"path": path, "ok": is_ok,
            "unused_rules": unused_rules,
            "files": [asdict(file) for file in files]}
