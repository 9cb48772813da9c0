"""How the files of a job are written: its arguments, resolved against its schema."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.arrow.encrypted_columns import resolve_columns
from secure_bloom.arrow.encryption import KEYS_WITHOUT_USE, writing_kms
from secure_bloom.arrow.schema import parquet_leaves
from secure_bloom.arrow.writer_options import WriterOptions
from secure_bloom.datasets.task_files import open_checked
from secure_bloom.encryption import EncryptionConfiguration, as_configuration
from secure_bloom.errors import ColumnError, UnsupportedError
from secure_bloom.keys import KeyEncryptionKeys
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.master_key_check import MasterKeyCheck
from secure_bloom.keys.wrapping import WritingKeys, master_keys_of
from secure_bloom.parquet.schema import LeafColumn, filterable_paths, is_at_or_below
from secure_bloom.policy.environment import given_or_of_environment
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.sensitive import Sensitive, requested
from secure_bloom.policy.slips import warn_of_unused_rules
from secure_bloom.policy.writing import (
    check_encryption,
    check_file_of_folder,
    check_partition_policy,
)
from secure_bloom.sbbf.options import BloomFilterOptions, BloomFilters, normalize_options
from secure_bloom.storage.commit import Job
from secure_bloom.storage.files import FilePath, FileTarget
from secure_bloom.storage.table_names import relative_path
from secure_bloom.writer import ParquetWriter


@dataclass(frozen=True)
class JobFiles:
    """How the files of a job are written.

    ``wrapping`` is what wraps the data keys of all files: key-encryption keys with double wrapping,
    the KMS with single wrapping. ``master_keys`` is for the latter. ``kms`` is None if there is no
    encryption, or the caller has passed key-encryption keys.
    """

    job: Job
    schema: pa.Schema
    leaves: list[LeafColumn]
    partition_by: tuple[str, ...]
    policy: Policy | None
    bloom_filters: dict[str, BloomFilterOptions]
    encryption: EncryptionConfiguration | None
    wrapping: CachedKms | KeyEncryptionKeys | None
    master_keys: MasterKeyCheck | None
    kms: CachedKms | None
    writer_options: WriterOptions

    def open(self, path: str) -> ParquetWriter:
        """Open a file of the job."""
        if self.policy is not None:
            visible = self.job.path(relative_path(path, self.job.work))
            check_file_of_folder(self.policy, self.job.folder, visible, self.partition_by,
                                 self.encryption, self.leaves)
        return self.open_at(path, self.job.filesystem)

    def open_at(self, where: FileTarget,
                filesystem: pa_fs.FileSystem | None = None) -> ParquetWriter:
        """Open a file anywhere."""
        return open_checked(where, self.schema, self.master_keys, self._client,
                            bloom_filters=self.bloom_filters, encryption=self.encryption,
                            keys=self.wrapping, filesystem=filesystem, **self.writer_options)

    def _client(self) -> CachedKms:
        assert isinstance(self.wrapping, CachedKms)  # with single wrapping
        return self.wrapping


def job_files(job: Job, schema: pa.Schema, partition_by: tuple[str, ...], sensitive: Sensitive,
           bloom_filters: BloomFilters, encryption: Any, keys: WritingKeys,
           policy: Policy | FilePath | None, writer_options: WriterOptions, *,
           plaintext: bool) -> JobFiles:
    """Resolve the arguments of a write against its schema, and try them with a file in memory."""
    schema = _without_range_index(pa.schema(
        [field for field in schema if field.name not in partition_by], schema.metadata))
    leaves = parquet_leaves(schema, **writer_options)
    if encryption is not None:  # that of pyarrow is converted below, with its own checks
        _check_partition_keys(as_configuration(encryption), partition_by)
    given = given_or_of_environment(policy)
    rules = None if given is None else given.for_path(job.folder)
    if rules is not None:
        check_partition_policy(rules, partition_by)
    bloom_filters, encryption = requested(rules, sensitive, bloom_filters, encryption, leaves,
                                          plaintext=plaintext, partition_by=partition_by)
    if rules is None and encryption is None and keys is not None and not plaintext:
        raise TypeError(KEYS_WITHOUT_USE)
    keys = None if encryption is None else keys
    encryption = resolve_columns(encryption, leaves)
    if rules is not None:
        check_encryption(rules, encryption, leaves)
        warn_of_unused_rules(rules, leaves, job.folder, partition_by)
    files = JobFiles(job, schema, leaves, partition_by, given,
                   normalize_options(bloom_filters, filterable_paths(leaves)), encryption,
                   *_wrapping(encryption, keys), writer_options)
    files.open_at(pa.BufferOutputStream()).close()
    return files


def _check_partition_keys(encryption: EncryptionConfiguration,
                          partition_by: tuple[str, ...]) -> None:
    """Raise ColumnError if values that are to be encrypted would be part of folder names."""
    for name in partition_by:
        keyed = any(is_at_or_below(path, name)
                    for paths in (encryption.column_keys or {}).values() for path in paths)
        if keyed or encryption.uniform_encryption or encryption.other_columns != "plaintext":
            raise ColumnError("it is to be encrypted, but its values would be part of folder "
                              "names: partition by another column, or use column_keys without it",
                              column=name)


def _wrapping(encryption: EncryptionConfiguration | None, keys: WritingKeys) \
        -> tuple[CachedKms | KeyEncryptionKeys | None, MasterKeyCheck | None, CachedKms | None]:
    """Return what wraps the data keys of all files, a check of the master keys, and the KMS."""
    if encryption is None:
        return None, None, None
    if not encryption.internal_key_material:
        raise UnsupportedError("internal_key_material=False: the key material of a data set is "
                               "always in its files; leave it out")
    kms = writing_kms(keys, encryption)
    if isinstance(kms, KeyEncryptionKeys):
        return kms, None, None
    if encryption.double_wrapping:
        return KeyEncryptionKeys.for_encryption(encryption, kms), None, kms
    return kms, MasterKeyCheck(kms, master_keys_of(encryption)), kms


def _without_range_index(schema: pa.Schema) -> pa.Schema:
    """Return the schema without a RangeIndex of pandas, which is only stored as its bounds.

    The rows may be divided into files and change their order, so it would label other rows.
    """
    metadata = dict(schema.metadata or {})
    try:
        about = json.loads(metadata[b"pandas"])
        about["index_columns"] = [index for index in about["index_columns"]
                                  if isinstance(index, str)]
    except (KeyError, TypeError, ValueError):  # not from pandas
        return schema
    return schema.with_metadata(metadata | {b"pandas": json.dumps(about).encode()})
