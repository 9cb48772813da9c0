"""DataFrames written and read with arguments of Python instead of options."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from secure_bloom.encryption import as_configuration
from secure_bloom.errors import UnsupportedError
from secure_bloom.parquet.schema import is_at_or_below
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.writing import by_column
from secure_bloom.sbbf.options import BloomFilterOptions, BloomFilters
from secure_bloom.spark.options.analysed import Analysed
from secure_bloom.spark.options.kms import key_options
from secure_bloom.spark.options.options import (
    ALGORITHM,
    ANALYSED,
    BLOOM_FILTERS,
    COLUMN_KEYS,
    COMPLETE_COLUMNS,
    DOUBLE_WRAPPING,
    ENABLED,
    FOOTER_KEY,
    FORMAT,
    KEY_BITS,
    OVERWRITE_MODE,
    PARTITION_BY,
    PLAINTEXT,
    PLAINTEXT_FOOTER,
    POLICY,
    UNIFORM_KEY,
    Options,
)

if TYPE_CHECKING:
    import pyarrow.parquet.encryption as pe
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader
    from pyspark.sql.types import StructType

    from secure_bloom.encryption import EncryptionConfiguration
    from secure_bloom.keys.keyring import Keyring
    from secure_bloom.storage.files import FilePath
    from secure_bloom.storage.summary import CommitSummary

_MODES = {"error": "append", "append": "append", "overwrite": "overwrite",
          "overwrite_partitions": "overwrite"}


def write(df: DataFrame, path: FilePath, *,
          mode: Literal["error", "append", "overwrite", "overwrite_partitions"] = "error",
          keys: Keyring | FilePath | None = None, policy: Policy | FilePath | None = None,
          encryption: EncryptionConfiguration | pe.EncryptionConfiguration | None = None,
          bloom_filters: BloomFilters = None, plaintext: bool = False,
          partition_by: str | Iterable[str] = (),
          **options: bool | float | str | Sequence[str]) -> CommitSummary | None:
    """Write a DataFrame to a folder of encrypted Parquet files, as one atomic commit.

    Columns that ``df.schema`` marks as sensitive (metadata ``secure_bloom.key``) are encrypted with
    the key that their mark names, also where Spark's optimizer has lost the mark.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        Of a session with the data source registered, classic or Connect.
    path : str or path
        The folder.
    mode : {"error", "append", "overwrite", "overwrite_partitions"}
        What to do if the folder already has files. "error" checks before the job runs and before it
        commits. "overwrite_partitions" replaces the partitions for which ``df`` has rows, and so
        does "overwrite" if Spark's ``partitionOverwriteMode`` is dynamic.
    keys : str, path or Keyring, optional
        The path of a keyring, or the URI of a KMS. Of a Keyring, only the path is used. Default:
        the environment of this process when ``register`` was called.
    policy : Policy, str or path, optional
        Which columns must be encrypted; see the page "One policy for all files". A path or URI is
        read by Spark's driver, which with Spark Connect is the server. ``encryption`` may add to
        it; without ``encryption``, the policy alone decides. Default: the setting
        ``spark.datasource.secure_parquet.policy`` of the session.
    encryption : EncryptionConfiguration, optional
        The class of secure_bloom or of pyarrow. Marks add to it.
    bloom_filters : bool, iterable of str, or mapping, optional
        The leaf columns that get a filter, in the form that :func:`secure_bloom.write_table`
        accepts. Default: those of the policy and of marks.
    plaintext : bool
        Write without encryption. Refused if a column is marked, or the policy requires encryption.
    partition_by : str or iterable of str
        Top-level columns for Hive partitioning: ``["day", "country"]``, or ``"day, country"``.
    **options
        Further options of the data source; the table in the page "The Spark data source" lists
        them.

    Returns
    -------
    CommitSummary or None
        As for :func:`secure_bloom.write_dataset`. None, with a warning in the log, if Spark's
        driver could not pass it on; the rows are committed.

    Raises
    ------
    TypeError, ValueError
        If an argument is not valid.
    UnsupportedError
        If the encryption cannot be passed to Spark.
    pyspark.errors.PySparkException
        For all errors of the data source, with their message; nothing was written.

    Examples
    --------
    >>> summary = secure_bloom.spark.write(df, "/data/people",  # doctest: +SKIP
    ...                                    policy="policy.toml")
    """
    from secure_bloom.spark.schema.types import field_metadata, leaf_paths
    from secure_bloom.spark.writing.receipts import received
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(_MODES)}, not {mode!r}")
    receipt = uuid.uuid4().hex
    schema = df.schema  # as analysed: the optimizer drops some of its metadata later
    leaves = leaf_paths(schema)
    made = {**key_options(keys), **_policy(policy), **_encryption(encryption, leaves),
            **_filters(bloom_filters, leaves), **_partition_by(partition_by, schema.names),
            ANALYSED: Analysed(field_metadata(schema), mode == "error", receipt).to_json()}
    if plaintext:
        made[PLAINTEXT] = "true"
    if mode == "overwrite_partitions":
        if PARTITION_BY not in made:
            raise ValueError('mode="overwrite_partitions" needs partition_by')
        made[OVERWRITE_MODE] = "dynamic"
    given = _with(made, options)
    if mode == "overwrite" and OVERWRITE_MODE not in map(str.lower, given):
        given[OVERWRITE_MODE] = df.sparkSession.conf.get(
            "spark.sql.sources.partitionOverwriteMode", "static")
    df.write.format(FORMAT).options(**given).mode(_MODES[mode]).save(str(path))
    return received(df.sparkSession, receipt)


def read(spark: SparkSession, path: FilePath, *, keys: Keyring | FilePath | None = None,
         filters: Sequence[tuple[str, str, Any]] | None = None,
         policy: Policy | FilePath | None = None,
         **options: bool | float | str | Sequence[str]) -> DataFrame:
    """Read a folder of encrypted Parquet files as a DataFrame.

    In a classic session of Spark 4.1 or newer, the conditions of queries on the DataFrame, as in
    ``people.where("ssn = '...'")``, skip files and row groups without such rows.

    With ``filters``, they are skipped in every session, whatever is done with the DataFrame later.
    Spark compares the rows themselves, and its operators have the same meaning as on the page "Row
    filters". Only values whose type differs from the column's type follow Spark's own rules:
    it compares a BIGINT with a float as doubles, and reads '5' as a number. With ANSI mode off, it
    takes a text that is not a number for null, so ``<=>`` then finds the null rows.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        Classic or Connect, with the data source registered.
    path : str or path
        The folder, or a file.
    keys : str, path or Keyring, optional
        The path of a keyring, or the URI of a KMS, which the workers need as well. Of a Keyring,
        only the path is used. Default: the environment of this process when ``register`` was
        called.
    filters : list of tuple, optional
        ``(column, op, value)``: only rows for which all of them hold; the operators are ``=``,
        ``<=>``, ``<``, ``<=``, ``>``, ``>=``, ``in``, ``is null`` and ``is not null`` (with None).
        Timestamps need a time zone. Columns are named as in ``pyspark.sql.functions.col``: ``a.b``
        is a field of a struct, and a name that contains a dot must be in backticks.
    policy : Policy, str or path, optional
        What must be encrypted, otherwise reading fails: a policy, or the path or URI of its
        file, which Spark's driver reads.
    **options
        Further options of the data source; the table in the page "The Spark data source" lists
        them.

    Returns
    -------
    pyspark.sql.DataFrame
        Like every DataFrame, it is evaluated when an action needs its rows.

    Raises
    ------
    TypeError, ValueError
        If an argument is not valid, a predicate is malformed, or the type of its value cannot be
        passed.
    pyspark.errors.PySparkException
        For all errors of the data source, with their message.

    Examples
    --------
    >>> person = secure_bloom.spark.read(spark, "/data/people", keys="awskms:",  # doctest: +SKIP
    ...                                  filters=[("ssn", "=", "078-05-1120")])
    """
    return _read(spark.read, path, keys, filters, policy, options)


def read_stream(spark: SparkSession, path: FilePath, *, schema: StructType | str | None = None,
                keys: Keyring | FilePath | None = None,
                filters: Sequence[tuple[str, str, Any]] | None = None,
                policy: Policy | FilePath | None = None,
                **options: bool | float | str | Sequence[str]) -> DataFrame:
    """Read a folder of encrypted Parquet files as a stream: each file once, in order of commits.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        Classic or Connect, with the data source registered.
    path : str or path
        The folder.
    schema : StructType or str, optional
        The columns. Default: those of a file that is there when the query starts.
    keys : str, path or Keyring, optional
        The path of a keyring, or the URI of a KMS, which the workers need as well. Default: the
        environment of this process when ``register`` was called.
    filters : list of tuple, optional
        Only rows for which all of these hold: ``(column, op, value)``, with the operators of
        :func:`read`.
    policy : Policy, str or path, optional
        What must be encrypted in each file, otherwise the query ends: a policy, or the path or URI
        of its file, which Spark's driver reads.
    **options
        Further options of the data source, such as ``maxFilesPerTrigger``. With Spark Connect,
        ``checkpointLocation`` is needed here, too. The table in the page "The Spark data source"
        lists them.

    Returns
    -------
    pyspark.sql.DataFrame
        To be written with its ``writeStream``.

    Raises
    ------
    TypeError, ValueError
        If an argument is not valid, or a predicate is malformed.
    pyspark.errors.PySparkException
        If the schema cannot be read. Other errors of the data source end the query.

    Examples
    --------
    >>> people = secure_bloom.spark.read_stream(spark, "/data/people",  # doctest: +SKIP
    ...                                         keys="awskms:")
    """
    reader = spark.readStream
    return _read(reader if schema is None else reader.schema(schema), path, keys, filters, policy,
                 options)


def _read(reader: DataFrameReader | DataStreamReader, path: FilePath,
          keys: Keyring | FilePath | None, filters: Sequence[tuple[str, str, Any]] | None,
          policy: Policy | FilePath | None, options: Mapping[str, Any]) -> DataFrame:
    from secure_bloom.spark.options.row_filters import checked, condition, to_json
    predicates = None if filters is None else checked(filters)
    made = {**key_options(keys), **_policy(policy)}
    if predicates is not None:
        made["filters"] = to_json(predicates)
    frame = reader.format(FORMAT).options(**_with(made, options, reading=True)).load(str(path))
    return frame if predicates is None else frame.where(condition(predicates))


def _with(made: dict[str, str], options: Mapping[str, Any], *, reading: bool = False) \
        -> dict[str, Any]:
    """Add the caller's own options, lists as JSON, to those that were made from arguments."""
    for name in options:
        if name.lower() in made:
            raise TypeError(f"option {name} is also set by an argument: remove one of them")
    Options(options).check_names(reading=reading)
    return {**made, **{name: value if isinstance(value, bool | float | int | str)
                       else json.dumps(list(value)) for name, value in options.items()}}


def _policy(policy: object) -> dict[str, str]:
    if policy is None:
        return {}
    if isinstance(policy, Policy):
        return {POLICY: policy.to_toml()}
    if isinstance(policy, str | os.PathLike):
        return {POLICY: os.fsdecode(os.fspath(policy))}
    raise TypeError("policy must be a Policy or the path of its file, not "
                    f"{type(policy).__name__}")


def _partition_by(names: str | Iterable[str], columns: Sequence[str]) -> dict[str, str]:
    if isinstance(names, str) and names not in columns:
        return {PARTITION_BY: names}  # as in the option: several names, or a JSON list
    names = [names] if isinstance(names, str) else list(names)
    return {PARTITION_BY: json.dumps(names)} if names else {}


# --- encryption ----------------------------------------------------------------------------------

def _encryption(encryption: object, leaves: Sequence[str]) -> dict[str, str]:
    if encryption is None:
        return {}
    encryption = as_configuration(encryption)
    if not encryption.internal_key_material:
        raise UnsupportedError("internal_key_material=False: the key material of this format is "
                               "always in the file; leave it out")
    settings = {ALGORITHM: encryption.encryption_algorithm,
                DOUBLE_WRAPPING: str(encryption.double_wrapping).lower(),
                KEY_BITS: str(encryption.data_key_length_bits)}
    if encryption.uniform_encryption:
        return {**settings, UNIFORM_KEY: json.dumps(encryption.footer_key)}
    return {**settings, FOOTER_KEY: json.dumps(encryption.footer_key),
            PLAINTEXT_FOOTER: str(encryption.plaintext_footer).lower(),
            COMPLETE_COLUMNS: str(encryption.other_columns == "footer key").lower(),
            COLUMN_KEYS: _column_keys(encryption.column_keys or {}, leaves)}


def _column_keys(column_keys: Mapping[str, Sequence[str]], leaves: Sequence[str]) -> str:
    """Return the value of the option; the key of a column replaces that of its group."""
    keys = {path: key for key, paths in column_keys.items() for path in paths}
    found: dict[str, list[str]] = {}
    for path, key in keys.items():
        deeper = [other for other in keys if other != path and is_at_or_below(other, path)]
        own = [leaf for leaf in leaves if is_at_or_below(leaf, path)
               and not any(is_at_or_below(leaf, other) for other in deeper)]
        found.setdefault(key, []).extend(own if deeper else [path])
    return json.dumps(found)


# --- filters -------------------------------------------------------------------------------------

def _filters(bloom_filters: BloomFilters, leaves: Sequence[str]) -> dict[str, str]:
    if bloom_filters is None:
        return {}
    if bloom_filters is True:
        return {ENABLED: "true"}
    if bloom_filters is False:  # also none from a policy or a mark
        return {BLOOM_FILTERS: json.dumps(dict.fromkeys(leaves, False))}
    return {BLOOM_FILTERS: json.dumps({path: _filter(value)
                                       for path, value in by_column(bloom_filters).items()})}


def _filter(value: object) -> object:
    if isinstance(value, BloomFilterOptions):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {name: number for name, number in value.items() if number is not None}
    return value
