"""The options of a write, resolved against its schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from secure_bloom.arrow.row_groups import DEFAULT_ROW_GROUP_ROWS, MAX_ROW_GROUP_ROWS
from secure_bloom.encryption import EncryptionConfiguration
from secure_bloom.errors import OptionError, UnsupportedError
from secure_bloom.keys import KeyEncryptionKeys
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.master_key_check import MasterKeyCheck
from secure_bloom.keys.wrapping import master_keys_of
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.writing import check_partition_policy
from secure_bloom.sbbf.options import BloomFilterOptions
from secure_bloom.spark.options.bloom_filters import parse_bloom_filters
from secure_bloom.spark.options.columns import Columns, Path
from secure_bloom.spark.options.conditions import named_values
from secure_bloom.spark.options.encryption import keys_by_column, parse_encryption
from secure_bloom.spark.options.kms import client_or_none, kms_client, kms_uri
from secure_bloom.spark.options.options import (
    INDEX_COLUMNS,
    MAX_BYTES_PER_FILE,
    MAX_ROWS_PER_FILE,
    OVERWRITE_MODE,
    OVERWRITTEN,
    PARTITION_BY,
    ROW_GROUP_SIZE,
    SIZES,
    SWITCHES,
    SWITCHES_BY_COLUMN,
    UNIFORM_KEY,
    Options,
)
from secure_bloom.spark.options.policy import WritePolicy, parse_policy
from secure_bloom.storage.hive_partitioning import folder_names
from secure_bloom.storage.replacing import Overwrite, Partition

_COMPRESSIONS = {"snappy": "snappy", "none": "none", "uncompressed": "none", "gzip": "gzip",
                 "zstd": "zstd", "brotli": "brotli", "lz4": "lz4", "lz4_raw": "lz4"}
_ENCODINGS = ("PLAIN", "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY",
              "BYTE_STREAM_SPLIT", "RLE")
_MAX_SIZE = 2 ** 31 - 1

#: as Spark stores decimals: those of up to 18 digits as integers
AS_SPARK = {"store_decimal_as_integer": True}


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
    policy : Policy or None
        What the files must meet. Some of its rules may be for some of the files only.
    bloom_filters : dict of str to BloomFilterOptions
        By dotted path of the leaf column.
    index_columns : dict of str to str or None
        Master keys of the leaf columns whose indexes are kept current, by dotted path; None: the
        column has no encryption.
    partition_by : tuple of str
        Top-level columns whose values become folders.
    overwrite_mode : str
        "static" if an overwrite is to replace the whole folder, "dynamic" if only the partitions
        for which it has rows, "" if that is not known.
    overwritten : Partition or None
        The partition that an overwrite names, if it is to replace only that.
    row_group_size : int
        Rows in a row group, at most.
    max_rows_per_file, max_bytes_per_file : int or None
        When to close a file and start another; the number of bytes is approximate.
    writer : dict
        Arguments of :class:`pyarrow.parquet.ParquetWriter`.
    """

    kms: str | None = None
    encryption: EncryptionConfiguration | None = None
    policy: Policy | None = None
    bloom_filters: dict[str, BloomFilterOptions] = field(default_factory=dict)
    index_columns: dict[str, str | None] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    overwrite_mode: str = ""
    overwritten: Partition | None = None
    row_group_size: int = DEFAULT_ROW_GROUP_ROWS
    max_rows_per_file: int | None = None
    max_bytes_per_file: int | None = None
    writer: dict[str, Any] = field(default_factory=lambda: AS_SPARK | {"compression": "snappy"})

    def overwrites(self, folder: str) -> Overwrite:
        """Return what an overwrite of a folder replaces.

        Raises UnsupportedError if that is not known.
        """
        if self.overwritten is not None:
            return self.overwritten
        if self.partition_by and not self.overwrite_mode:
            raise UnsupportedError("with Spark Connect, the data source does not see setting "
                                   "spark.sql.sources.partitionOverwriteMode. Set option "
                                   "partitionOverwriteMode to dynamic, to replace only the "
                                   "partitions for which there are rows, or to static, to replace "
                                   "the whole folder", file=folder)
        return "partitions" if self.partition_by and self.overwrite_mode == "dynamic" else True

    def key_encryption_keys(self) -> KeyEncryptionKeys | None:
        """Return the keys with which tasks wrap their data keys; None if tasks use the KMS."""
        if self.encryption is None or not self.encryption.double_wrapping:
            return None
        return KeyEncryptionKeys.for_encryption(self.encryption, self.kms_client())

    def master_key_check(self) -> MasterKeyCheck | None:
        """Return a check of the master keys that tasks use; None if tasks do not use the KMS."""
        if self.encryption is None or self.encryption.double_wrapping:
            return None
        return MasterKeyCheck(self.kms_client(), master_keys_of(self.encryption))

    def writer_arguments(self, keks: KeyEncryptionKeys | None) -> dict[str, Any]:
        """Return keyword arguments for :class:`secure_bloom.ParquetWriter`."""
        arguments = {"bloom_filters": self.bloom_filters, **self.writer}
        if self.encryption is not None:
            arguments |= {"encryption": self.encryption,
                          "keys": self.kms_client() if keks is None else keks}
        return arguments

    def index_client(self) -> CachedKms | None:
        """Return the KMS client that opens indexes; None if no KMS was named."""
        return client_or_none(self.kms)

    def kms_client(self) -> CachedKms:
        """Return the KMS client of this process, which must have been named."""
        assert self.kms is not None  # as options that encrypt do
        return kms_client(self.kms)


def parse_write_options(options: Options, schema: pa.Schema,
                        metadata: Mapping[Path, Mapping[str, Any]] | None = None,
                        folder: str | None = None) -> WriteOptions:
    """Parse and check the options of a write of rows with this schema.

    ``metadata`` is the Spark metadata of fields; see :mod:`secure_bloom.spark.options.columns`.
    ``folder`` is the path to which the rules of the policy apply. Raises OptionError if an option
    is not valid, PolicyError if the write does not meet the policy. The message names the option,
    or column and rule, and says what to do.
    """
    options = options.for_writing()
    columns = Columns(schema, metadata)
    partition_by = _partition_by(options, columns)
    in_files = Columns(
        pa.schema([column for column in schema if column.name not in partition_by]),
        {path: entries for path, entries in (metadata or {}).items()
         if path[0] not in partition_by})
    given = parse_policy(options)
    policy = None if given is None else WritePolicy(given.for_path(folder), in_files)
    encryption = parse_encryption(options, columns, policy)
    _check_partition_by(options, partition_by, encryption)
    if policy is not None:
        check_partition_policy(policy.policy, partition_by)
    return WriteOptions(
        kms=kms_uri(options), encryption=encryption, policy=given, partition_by=partition_by,
        overwrite_mode=options.choice(OVERWRITE_MODE, ("", "static", "dynamic")),
        overwritten=_overwritten(options, schema, partition_by),
        bloom_filters=parse_bloom_filters(options, in_files, policy),
        index_columns=_index_columns(options, in_files, encryption),
        row_group_size=options.number(ROW_GROUP_SIZE, DEFAULT_ROW_GROUP_ROWS,
                                      most=MAX_ROW_GROUP_ROWS),
        max_rows_per_file=options.number(MAX_ROWS_PER_FILE, None),
        max_bytes_per_file=options.number(MAX_BYTES_PER_FILE, None),
        writer=parse_writer_options(options, in_files))


def _index_columns(options: Options, columns: Columns,
                   encryption: EncryptionConfiguration | None) -> dict[str, str | None]:
    """Return the master keys of the columns to index."""
    if INDEX_COLUMNS not in options:
        return {}
    keys, uniform = keys_by_column(encryption), None
    if encryption is not None and encryption.uniform_encryption:
        uniform = encryption.footer_key
    found: dict[str, str | None] = {}
    for name in options.names(INDEX_COLUMNS):
        leaf = columns.find_leaf(name, INDEX_COLUMNS)
        if not leaf.type.can_have_filter:
            raise OptionError(f"a column of type {leaf.type} cannot have an index",
                              option=INDEX_COLUMNS, column=leaf.path)
        found[leaf.path] = keys.get(leaf.path, uniform)
    return found


def _partition_by(options: Options, columns: Columns) -> tuple[str, ...]:
    if PARTITION_BY not in options:
        return ()
    partition_by = [columns.find_field(name, PARTITION_BY) for name in options.names(PARTITION_BY)]
    if len(set(partition_by)) < len(partition_by):
        raise OptionError("a column is listed twice", option=PARTITION_BY)
    if len(partition_by) == len(columns.schema):
        raise OptionError("no column would be left for the files: remove one", option=PARTITION_BY)
    return tuple(partition_by)


def _overwritten(options: Options, schema: pa.Schema,
                 partition_by: tuple[str, ...]) -> Partition | None:
    """Return the partition whose columns have the values in the condition of an overwrite."""
    if OVERWRITTEN not in options:
        return None
    try:
        values = named_values(options[OVERWRITTEN])
    except (ValueError, TypeError, AttributeError, KeyError, IndexError):
        raise OptionError("only secure_bloom itself sets this option: remove it",
                          option=OVERWRITTEN) from None
    if values is None or sorted(values) != sorted(partition_by):
        raise OptionError(
            "INSERT OVERWRITE must name a value for each partition column, as in PARTITION ("
            f"{', '.join(f'{name} = ...' for name in partition_by)}). To replace the partitions "
            "for which there are rows, set spark.sql.sources.partitionOverwriteMode to dynamic",
            option=OVERWRITE_MODE)
    return Partition("/".join(
        folder for name in partition_by
        for folder in folder_names(name, pa.array([values[name]], schema.field(name).type))))


def _check_partition_by(options: Options, partition_by: Sequence[str],
                        encryption: EncryptionConfiguration | None) -> None:
    """Check the partition columns. Their values are part of paths, so none may be sensitive."""
    if partition_by and UNIFORM_KEY in options:
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


# --- options for the files: pyarrow's own writer options, under pyarrow's names -------------------

def parse_writer_options(options: Options, columns: Columns) -> dict[str, Any]:
    """Return keyword arguments for :class:`pyarrow.parquet.ParquetWriter`.

    pyarrow checks whether they are compatible with each other and with the column types.

    Raises OptionError if a value is not valid for the option, or a column does not exist.
    """
    compression = options.choice("compression", tuple(_COMPRESSIONS))
    writer: dict[str, Any] = {**AS_SPARK, "compression": _COMPRESSIONS[compression]}
    writer |= {name: options.boolean(name) for name in SWITCHES if name in options}
    writer |= {name: _switch_by_column(options, name, columns)
               for name in SWITCHES_BY_COLUMN if name in options}
    writer |= {name: options.number(name, None, most=_MAX_SIZE)
               for name in SIZES if name in options}
    if "compression_level" in options:
        writer["compression_level"] = options.number("compression_level", None,
                                                     -_MAX_SIZE, _MAX_SIZE)
    if "data_page_version" in options:
        writer["data_page_version"] = options.choice("data_page_version", ("1.0", "2.0"))
    if "column_encoding" in options:
        writer["column_encoding"] = _column_encoding(options, columns)
    return writer


def _switch_by_column(options: Options, name: str, columns: Columns) -> bool | list[str]:
    """Parse ``true``, ``false``, or the columns for which the option is true."""
    if options.text(name).lower() in ("true", "false"):
        return options.boolean(name)
    return sorted({leaf.path for column in options.names(name)
                   for leaf in columns.find(column, name)})


def _column_encoding(options: Options, columns: Columns) -> str | dict[str, str]:
    """Parse one encoding for all columns, or a JSON object of encodings by column."""
    name = "column_encoding"
    if not options.text(name).startswith("{"):
        return options.choice(name, _ENCODINGS)
    encodings: dict[str, str] = {}
    form = '{"id": "DELTA_BINARY_PACKED"}'
    for column, encoding in options.json_object(name, form).items():
        if not isinstance(encoding, str):
            raise OptionError(f"it must be a JSON object such as {form}", option=name)
        for leaf in columns.find(column, name):
            if encodings.setdefault(leaf.path, encoding) != encoding:
                raise OptionError(f"column {leaf.path} has two encodings", option=name)
    return {path: Options({name: encoding}).choice(name, _ENCODINGS)
            for path, encoding in encodings.items()}
