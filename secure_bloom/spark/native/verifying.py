"""Verify after a write by Spark that files are encrypted as requested. Does not need Spark."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow.fs as pa_fs

from secure_bloom.arguments import checks_arguments
from secure_bloom.crypto.modules import ModuleCipher
from secure_bloom.display import Result
from secure_bloom.encryption import EncryptionConfiguration
from secure_bloom.errors import (
    EncryptionMismatchError,
    FileError,
    KeyRetrievalError,
    UnsupportedError,
    error_location,
)
from secure_bloom.findings import Finding
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.kms import KeyUnwrapper
from secure_bloom.keys.material import find_material
from secure_bloom.keys.retrieval import open_client
from secure_bloom.parquet.bloom_filter import ENCRYPTED, PLAIN, Disjoint, detect_filter, read_filter
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.redaction import has_readable_bounds
from secure_bloom.parquet.schema import is_at_or_below
from secure_bloom.policy.policy import Policy, as_policy
from secure_bloom.policy.slips import RuleUsage, warn_of
from secure_bloom.policy.violations import violations
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.sbbf.options import BloomFilterOptions, BloomFilters, normalize_options
from secure_bloom.spark.native.writing import checked_encryption
from secure_bloom.spark.options.encryption import keys_by_column
from secure_bloom.spark.options.options import without_file_scheme
from secure_bloom.storage.files import FilePath, resolve
from secure_bloom.storage.hive_partitioning import partition_values
from secure_bloom.storage.summary_files import SUMMARY_NAMES
from secure_bloom.storage.table_formats import is_deletion_vector
from secure_bloom.storage.table_names import is_hidden
from secure_bloom.storage.versions import without_subtree
from secure_bloom.storage.visibility import files_below
from secure_bloom.verify.findings import new_finding

_FILES_AT_ONCE = 8


@dataclass(frozen=True, repr=False)
class Verification(Result):
    """What :func:`verify` has checked, if there are no findings.

    Attributes
    ----------
    files, row_groups : int
    encrypted_filters, plain_filters : int
    without_filter : int
        Column chunks for which a filter was requested, but that have none because all their values
        are in a dictionary; Spark's writer omits the filter in this case.
    """

    files: int = 0
    row_groups: int = 0
    encrypted_filters: int = 0
    plain_filters: int = 0
    without_filter: int = 0


@checks_arguments
def verify(path: FilePath, *, encryption: EncryptionConfiguration | None = None,
           bloom_filters: BloomFilters = None, keys: KeyUnwrapper | FilePath | None = None,
           policy: Policy | FilePath | None = None, filesystem: pa_fs.FileSystem | None = None) \
        -> Verification:
    """Check in the files themselves that they are encrypted as requested.

    Options that did not reach Spark's writer leave no trace except plaintext files. So call this
    after a write, with the arguments of :func:`write_options`. It reads all footers and filters. It
    checks that columns with a key are encrypted with that master key and do not have statistics
    outside their encrypted metadata, that footers are encrypted as requested, that a filter is
    encrypted exactly when its column is, and that the requested filters exist. Values are not read:
    use :func:`secure_bloom.verify_file`.

    Parameters
    ----------
    path : str or path
        The folder, or a file. Every file in it that Spark shows must be as requested, including
        older files, and files of unfinished jobs of ``secure_parquet``, which only Spark's own
        reader shows.
    encryption : EncryptionConfiguration, optional
        What must be encrypted, and with which master keys.
    bloom_filters : iterable of str, or mapping, optional
        The leaf columns that must have a filter, in the form that :func:`write_options` accepts.
    keys : KmsClient, KeyEncryptionKeys, path of a keyring, or URI of a KMS, optional
        It must be able to unwrap; KeyEncryptionKeys unwrap what was written with them. Default: the
        KMS of the environment.
    policy : Policy, str or path, optional
        What must be encrypted, by name; see the page "One policy for all files". Without
        ``encryption``, files of which it requires nothing may be in plaintext.
    filesystem : pyarrow.fs.FileSystem, optional
        Default: local, or by URI.

    Warns
    -----
    PolicyWarning
        If rules of the policy match no column of any file.

    Raises
    ------
    EncryptionMismatchError
        If a file is not as requested; the attribute ``findings`` lists all findings.
    KeyRetrievalError
        If a key cannot be obtained.
    FileNotFoundError
        If there are no files.

    Examples
    --------
    >>> native.verify("/data/people", policy="policy.toml")  # doctest: +SKIP
    """
    rules = as_policy(policy)
    if encryption is not None or rules is None:
        encryption = checked_encryption(encryption)
    filters = normalize_options(bloom_filters)
    filesystem, path = resolve(without_file_scheme(str(path)), filesystem)
    files, findings = [path], []
    if filesystem.get_file_info(path).type != pa_fs.FileType.File:
        found = files_below(filesystem, path)
        files = [info.path for name, info in sorted(found.items())
                 if not is_hidden(name) and not is_deletion_vector(name)]
        findings = _summaries(info.path for info in found.values())
    if not files:
        raise FileNotFoundError(f"there are no files in {path}")
    usage = RuleUsage()
    check = partial(_check_file, encryption, rules, filters, open_client(keys),
                    filesystem, usage)
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        checks = list(pool.map(check, files))
    findings += [finding for one in checks for finding in one.findings]
    if findings:
        raise EncryptionMismatchError(findings, len(files))
    if rules is not None:
        warn_of(usage.unused(rules.for_path(without_subtree(filesystem, path)[1])), path)
    return Verification(len(files), *(sum(getattr(one, name) for one in checks) for name in (
        "row_groups", "encrypted_filters", "plain_filters", "without_filter")))


def _summaries(paths: Iterable[str]) -> list[Finding]:
    """Report summary files, which repeat schema and statistics of encrypted files in plaintext."""
    return [new_finding("policy", "this summary file repeats footers of other files in plaintext: "
                        "remove it", path)
            for path in sorted(paths) if posixpath.basename(path) in SUMMARY_NAMES]


def _check_file(encryption: EncryptionConfiguration | None, policy: Policy | None,
                filters: Mapping[str, BloomFilterOptions], kms: CachedKms,
                filesystem: pa_fs.FileSystem, usage: RuleUsage, path: str) -> _FileCheck:
    if policy is not None:
        policy = policy.for_path(without_subtree(filesystem, path)[1])
    check = _FileCheck(encryption, policy, filters, path)
    try:
        with error_location(file=path), OpenFile(path, kms, filesystem=filesystem) as file, \
                file.one_version():
            check.run(file, file.read_key_material)
            if policy is not None:
                usage.add(policy, file.columns, partition_values(path))
    except FileError as error:
        check.report(f"it cannot be read: {error.message}", row_group=error.row_group,
                     column=error.column)
    return check


class _FileCheck:
    """The comparison of one file with what was requested."""

    def __init__(self, encryption: EncryptionConfiguration | None, policy: Policy | None,
                 filters: Mapping[str, BloomFilterOptions], name: str):
        self._encryption, self._policy = encryption, policy
        self._filters, self._name = filters, name
        self._keys = keys_by_column(encryption)
        self.findings: list[Finding] = []
        self.row_groups = self.encrypted_filters = self.plain_filters = self.without_filter = 0

    def report(self, message: str, **place: Any) -> None:
        """Add a finding."""
        self.findings.append(new_finding("policy", message, self._name, **place))

    def run(self, file: OpenFile, read_external: Callable[[], Mapping[str, str]]) -> None:
        """Compare footer, columns and filters."""
        self._read_external = read_external
        for found in () if self._policy is None else violations(
                self._policy, file.footer, partition_values(self._name)):
            self.report(found.message, column=found.column,
                        row_group=next(iter(found.row_groups), None))
        if self._encryption is not None and not file.footer.is_encrypted:
            self.report("nothing in this file is encrypted: the options did not reach Spark's "
                        "writer, or another write created the file. Remove it, and write it again")
            return
        if self._encryption is not None:
            self._check_footer(file, self._encryption)
        paths = [column.path for column in file.columns]
        for path in self._keys:
            if not any(is_at_or_below(own, path) for own in paths):
                self.report("it should be encrypted, but is not in this file", column=path)
        for path in self._filters.keys() - set(paths):
            self.report("it should have a Bloom filter, but is not in this file", column=path)
        self.row_groups = file.num_row_groups
        disjoint = Disjoint(file.footer.start)
        for chunk in file.footer.column_chunks():
            if self._encryption is not None:
                self._check_column(chunk, self._encryption)
            self._check_bounds(chunk)
            self._check_filter(file, chunk, disjoint)

    def _check_footer(self, file: OpenFile, asked: EncryptionConfiguration) -> None:
        footer = file.footer
        if footer.has_encrypted_footer == asked.plaintext_footer:
            self.report("its footer is " + ("plaintext, not encrypted" if asked.plaintext_footer
                        is False else "encrypted, not plaintext") + " as requested")
        name = footer.algorithm.name if footer.algorithm is not None else "none"
        if name != asked.encryption_algorithm:
            self.report(f"its algorithm is {name}, "
                        f"not {asked.encryption_algorithm}")
        self._check_key(footer.footer_key_metadata, asked.footer_key, "its footer")
        self._check_key_length(footer.crypto.footer_cipher, asked, "its footer")

    def _check_key(self, key_metadata: bytes | None, asked: str, what: str, **place: Any) -> None:
        try:
            found = find_material(key_metadata or b"", self._read_external).master_key_id
        except KeyRetrievalError as error:
            self.report(f"{what} does not have a key from a KMS: {error.message}", **place)
            return
        if found != asked:
            self.report(f"{what} is encrypted with master key {found!r}, not {asked!r}", **place)

    def _check_key_length(self, cipher: ModuleCipher, encryption: EncryptionConfiguration,
                          what: str, **place: Any) -> None:
        asked = encryption.data_key_length_bits
        if cipher.key_bits != asked:
            self.report(f"{what} is encrypted with a key of {cipher.key_bits} bits, not {asked}",
                        **place)

    def _check_column(self, chunk: ColumnChunk, encryption: EncryptionConfiguration) -> None:
        if encryption.uniform_encryption:
            if chunk.encryption != "footer key":
                self.report("the column is not encrypted with the footer key", **chunk.place)
            return
        asked = next((key for path, key in self._keys.items()
                      if is_at_or_below(chunk.column.path, path)), None)
        if asked is None:
            return
        if chunk.encryption != "column key":
            self.report("the column is not encrypted" if chunk.encryption is None else
                        "the column is encrypted with the footer key, not its own", **chunk.place)
            return
        self._check_key(chunk.key_metadata, asked, "the column", **chunk.place)
        cipher = chunk.cipher  # its key must be available
        assert cipher is not None
        self._check_key_length(cipher, encryption, "the column", **chunk.place)

    def _check_bounds(self, chunk: ColumnChunk) -> None:
        if has_readable_bounds(chunk):  # parquet-java leaves the size statistics in every file
            self.report("minimum and maximum of the encrypted column can be read without its key: "
                        "withdraw the file, and rewrite it", **chunk.place)

    def _check_filter(self, file: OpenFile, chunk: ColumnChunk, disjoint: Disjoint) -> None:
        where = chunk.bloom_filter
        if where is None:
            if chunk.column.path in self._filters:
                if chunk.is_dictionary_encoded:
                    self.without_filter += 1
                else:
                    self.report("there is no Bloom filter", **chunk.place)
            return
        expected = PLAIN if chunk.encryption is None else ENCRYPTED
        try:
            kind = detect_filter(file, where[0], file.footer.start).kind
            if kind == expected:  # a bitset in plaintext may follow an encrypted header
                read_filter(file, chunk, file.footer.start, disjoint)
        except UnsupportedError as error:
            self.report(f"the filter cannot be read: {error.message}", **chunk.place)
            return
        if kind == expected:
            self.encrypted_filters += kind == ENCRYPTED
            self.plain_filters += kind == PLAIN
        else:
            self.report(f"the filter is {kind}, its column {'' if chunk.encryption else 'not '}"
                        "encrypted: withdraw the file, and rewrite it", **chunk.place)
