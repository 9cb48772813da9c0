"""The options of a write, resolved against its schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from secure_bloom.encryption import EncryptionConfiguration
from secure_bloom.keys import KeyEncryptionKeys
from secure_bloom.keys.cache import CachedKms
from secure_bloom.sbbf.options import BloomFilterOptions
from secure_bloom.spark.options.bloom_filters import parse_bloom_filters
from secure_bloom.spark.options.columns import Columns, Path
from secure_bloom.spark.options.encryption import keys_by_column, parse_encryption
from secure_bloom.spark.options.files import AS_SPARK, parse_writer_options
from secure_bloom.spark.options.kms import kms_client, kms_uri
from secure_bloom.spark.options.options import (
    MAX_BYTES_PER_FILE,
    MAX_ROWS_PER_FILE,
    PARTITION_BY,
    ROW_GROUP_SIZE,
    UNIFORM_KEY,
    OptionError,
    Options,
)
from secure_bloom.writer import DEFAULT_ROW_GROUP_ROWS, MAX_ROW_GROUP_ROWS


@dataclass(frozen=True)
class WriteOptions:
    """The options of a write, resolved against its schema.

    Contains key names but no keys, so it can be sent to every task.

    Attributes
    ----------
    kms : str or None
        URI of the KMS.
    encryption : EncryptionConfiguration or None
        None: plaintext.
    bloom_filters : dict of str to BloomFilterOptions
        By dotted path of the leaf column.
    partition_by : tuple of str
        Top-level columns whose values become folders.
    row_group_size : int
        Rows in a row group, at most.
    max_rows_per_file, max_bytes_per_file : int or None
        When to close a file and start another; the number of bytes is approximate.
    writer : dict
        Arguments of :class:`pyarrow.parquet.ParquetWriter`.
    """

    kms: str | None = None
    encryption: EncryptionConfiguration | None = None
    bloom_filters: dict[str, BloomFilterOptions] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    row_group_size: int = DEFAULT_ROW_GROUP_ROWS
    max_rows_per_file: int | None = None
    max_bytes_per_file: int | None = None
    writer: dict[str, Any] = field(default_factory=lambda: AS_SPARK | {"compression": "snappy"})

    def key_encryption_keys(self) -> KeyEncryptionKeys | None:
        """Return the keys with which tasks wrap their data keys; None if tasks use the KMS."""
        if self.encryption is None or not self.encryption.double_wrapping:
            return None
        return KeyEncryptionKeys.for_encryption(self.encryption, self._kms_client())

    def writer_arguments(self, keks: KeyEncryptionKeys | None) -> dict[str, Any]:
        """Return keyword arguments for :class:`secure_bloom.ParquetWriter`."""
        arguments = {"bloom_filters": self.bloom_filters, **self.writer}
        if self.encryption is not None:
            arguments |= {"encryption": self.encryption,
                          "kms": self._kms_client() if keks is None else keks}
        return arguments

    def _kms_client(self) -> CachedKms:
        assert self.kms is not None  # options that encrypt name a KMS
        return kms_client(self.kms)


def parse_write_options(options: Options, schema: pa.Schema,
                        metadata: Mapping[Path, Mapping[str, Any]] | None = None) -> WriteOptions:
    """Parse and check the options of a write.

    Parameters
    ----------
    options : Options
    schema : pyarrow.Schema
        Schema of the rows to write.
    metadata : mapping of path to mapping, optional
        The Spark metadata of fields; see :mod:`secure_bloom.spark.options.columns`.

    Raises
    ------
    OptionError
        If an option is not valid. The message names the option and says what to do.
    """
    options = options.for_writing()
    columns = Columns(schema, metadata)
    encryption = parse_encryption(options, columns)
    partition_by = _partition_by(options, columns, encryption)
    in_files = Columns(
        pa.schema([column for column in schema if column.name not in partition_by]),
        {path: entries for path, entries in (metadata or {}).items()
         if path[0] not in partition_by})
    return WriteOptions(
        kms=kms_uri(options), encryption=encryption, partition_by=partition_by,
        bloom_filters=parse_bloom_filters(options, in_files),
        row_group_size=options.number(ROW_GROUP_SIZE, DEFAULT_ROW_GROUP_ROWS,
                                      most=MAX_ROW_GROUP_ROWS),
        max_rows_per_file=options.number(MAX_ROWS_PER_FILE, None),
        max_bytes_per_file=options.number(MAX_BYTES_PER_FILE, None),
        writer=parse_writer_options(options, in_files))


def _partition_by(options: Options, columns: Columns,
                  encryption: EncryptionConfiguration | None) -> tuple[str, ...]:
    """Return the partition columns. Their values are part of paths, so none may be sensitive."""
    if PARTITION_BY not in options:
        return ()
    partition_by = [columns.find_field(name, PARTITION_BY) for name in options.names(PARTITION_BY)]
    if len(set(partition_by)) < len(partition_by):
        raise OptionError("a column is listed twice", option=PARTITION_BY)
    if len(partition_by) == len(columns.schema):
        raise OptionError("no column would be left for the files: remove one",
                          option=PARTITION_BY)
    if encryption is not None and encryption.uniform_encryption:
        raise OptionError(f"{UNIFORM_KEY} encrypts every column, but the values of these columns "
                          "would be part of folder names: use column keys", option=PARTITION_BY)
    keys = keys_by_column(encryption)
    for name in partition_by:
        if name.startswith("."):
            raise OptionError(f"column {name}: readers treat folders whose names begin with a dot "
                              "as hidden; rename the column", option=PARTITION_BY)
        if name in keys:
            raise OptionError(f"column {name} is sensitive (key {keys[name]}), but its values "
                              "would be part of folder names: partition by another column",
                              option=PARTITION_BY)
    return tuple(partition_by)
