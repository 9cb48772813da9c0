"""Encrypted Parquet files with encrypted Bloom filters from PySpark: ``secure_parquet``.

>>> import secure_bloom.spark
>>> secure_bloom.spark.register(spark)                                           # doctest: +SKIP
>>> secure_bloom.spark.write(df, "people", policy="policy.toml", keys="keyring.json",
...                          mode="append")                                      # doctest: +SKIP
>>> secure_bloom.spark.read(spark, "people", policy="policy.toml", keys="keyring.json",
...                         filters=[("ssn", "=", "078-05-1120")])               # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from secure_bloom.spark.options.options import FORMAT, locate
from secure_bloom.spark.registration import enable_pushdown, register
from secure_bloom.storage.summary import CommitSummary, read_summary

if TYPE_CHECKING:
    import pyarrow.fs as pa_fs
    import pyarrow.parquet.encryption as pe
    from pyspark.sql import DataFrame, SparkSession

    from secure_bloom.encryption import EncryptionConfiguration
    from secure_bloom.erasing.result import EraseResult
    from secure_bloom.index.planning import IndexUse
    from secure_bloom.index.update import IndexEncryption, UpdateResult
    from secure_bloom.keys.keyring import Keyring
    from secure_bloom.maintain.folders import MaintainResult
    from secure_bloom.policy.policy import Policy
    from secure_bloom.sbbf.options import BloomFilters
    from secure_bloom.spark.engine import Engine, EngineName
    from secure_bloom.spark.frames import Load
    from secure_bloom.storage.files import FilePath

__all__ = ["attach", "build_index", "compact_index", "enable_pushdown", "erase", "last_commit",
           "load", "read", "register", "write"]


def write(df: DataFrame, path: FilePath, *, mode: Literal["error", "append", "overwrite"] = "error",
          keys: Keyring | FilePath | None = None, policy: Policy | FilePath | None = None,
          encryption: EncryptionConfiguration | pe.EncryptionConfiguration | None = None,
          bloom_filters: BloomFilters = None, plaintext: bool = False,
          partition_by: str | Iterable[str] = (), engine: EngineName = "auto",
          **options: bool | float | str) -> Engine:
    """Write a DataFrame to a folder of encrypted Parquet files, as one atomic commit.

    Columns that ``df.schema`` marks as sensitive (metadata ``secure_bloom.key``) are encrypted with
    the key that their mark names, also where Spark's optimizer has lost the mark.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        Of a session with the data source registered, classic or Connect.
    path : str or path
        The folder.
    mode : {"error", "append", "overwrite"}
        What to do if the folder already has files. "error" checks before the job runs and before it
        commits.
    keys : str, path or Keyring, optional
        The path of a keyring, or the URI of a KMS. Of a Keyring, only the path is used. Default:
        the environment of this process when ``register`` was called.
    policy : Policy, str or path, optional
        Which columns must be encrypted; see ``docs/policy.md``. A path is that of a file on the
        machine of Spark's driver, which with Spark Connect is the server. Without ``encryption``,
        the policy makes it; otherwise ``encryption`` may add to the policy. Default: the setting
        ``spark.datasource.secure_parquet.policy`` of the session.
    encryption : EncryptionConfiguration, optional
        The class of secure_bloom or of pyarrow. Marks add to it.
    bloom_filters : bool, iterable of str, or mapping, optional
        The leaf columns that get a filter, in the form that :func:`secure_bloom.write_table`
        accepts. Default: those of the policy and of marks.
    plaintext : bool
        Write without encryption. Refused if a column is marked, or the policy requires encryption.
    partition_by : str or iterable of str
        Top-level columns for Hive partitioning.
    engine : {"auto", "native", "python"}
        What writes the files: Spark's own Parquet writer, or Python tasks. The commit is the same.
        "auto": Spark's writer if ``native.enable`` was called and it can do all that is requested;
        see ``docs/spark.md``.
    **options
        Further options of the data source; the table in docs/spark.md lists them.

    Returns
    -------
    Engine
        Which engine wrote the files (``name``, "native" or "python"), and why (``reason``).

    Raises
    ------
    TypeError, ValueError
        If an argument is not valid.
    UnsupportedError
        If the encryption cannot be passed to Spark, or ``engine`` is "native" and Spark's writer
        cannot do what is requested.
    pyspark.errors.PySparkException
        For all errors of the data source, with their message; nothing was written.
    SecureBloomError
        The same errors, if Spark's own writer makes the files.
    """
    from secure_bloom.spark import frames
    return frames.write(df, path, mode=mode, keys=keys, policy=policy, encryption=encryption,
                        bloom_filters=bloom_filters, plaintext=plaintext,
                        partition_by=partition_by, engine=engine, options=options)


def read(spark: SparkSession, path: FilePath, *, keys: Keyring | FilePath | None = None,
         filters: Sequence[tuple[str, str, Any]] | None = None,
         policy: Policy | FilePath | None = None, engine: EngineName = "auto",
         **options: bool | float | str) -> DataFrame:
    """Read a folder of encrypted Parquet files as a DataFrame.

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
        ``(column, op, value)``: only rows for which all of them hold. Row groups without such rows
        are skipped. :func:`load` lists the operators.
    policy : Policy, str or path, optional
        What must be encrypted, otherwise reading fails: a policy, or the path of its file on the
        machine of Spark's driver.
    engine : {"auto", "native", "python"}
        What reads the files. "native": Spark's own Parquet reader, which neither checks that files
        are still those that were listed, nor uses the index; it needs ``native.enable``.
        "auto" and "python": Python tasks.
    **options
        Further options of the data source; the table in docs/spark.md lists them.

    Returns
    -------
    pyspark.sql.DataFrame

    Raises
    ------
    TypeError, ValueError
        If an argument is not valid.
    UnsupportedError
        If ``engine`` is "native", and Spark's reader cannot do what is requested.
    pyspark.errors.PySparkException
        For all errors of the data source, with their message.
    """
    from secure_bloom.spark import frames
    load = frames.loader(spark, keys=keys, policy=policy, engine=engine, options=options)
    return _load(load, path, filters)


def attach(spark: SparkSession, path: FilePath, bloom_filters: BloomFilters, *,
           keyring: str | None = None, kms: str | None = None, replace: bool = False,
           dry_run: bool = False) -> MaintainResult:
    """Add Bloom filters to all files of a folder; each file is processed by one task.

    Only the pages of these columns are read, a few at a time. Filters of encrypted columns are
    encrypted with the column's key; all others are plain. A retried task finds the filters that
    the first attempt added, and keeps them.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        Classic or Connect.
    path : str or path
        The folder, as given to ``save``; the driver and all executors must be able to access it.
    bloom_filters : bool, iterable of str, or mapping
        The leaf columns that get a filter. ``True``: every column of each file that can have one.
        A list names them by dotted path. A mapping from paths also sets the options of each:
        ``True``, BloomFilterOptions, a dict of its fields such as ``{"fpp": 0.001}``, or
        ``False``.
    keyring, kms : str, optional
        The path of a keyring that all machines have, or the URI of a KMS.
        Default: as set in the environment of this process.
    replace : bool
        Rebuild existing filters. Otherwise they are kept unchanged.
    dry_run : bool
        Only report what would be done.

    Returns
    -------
    MaintainResult
        A file that could not be changed is listed in ``failed``.

    Raises
    ------
    FileNotFoundError
        If the folder does not exist.
    UnsupportedError
        If the files belong to a table that records their sizes elsewhere.
    ColumnError
        If no file of the folder has such a column, or the column cannot have a filter in any file.
    """
    from secure_bloom.spark.maintain import attach
    return attach(spark, path, bloom_filters, keyring=keyring, kms=kms, replace=replace,
                  dry_run=dry_run)


def build_index(spark: SparkSession, path: FilePath, columns: str | Iterable[str], *,
                keys: Keyring | FilePath | None = None, encryption: IndexEncryption = "column",
                exclusive: bool = False) -> UpdateResult:
    """Build the indexes of some columns of a table, or update those that exist.

    Tasks read these columns and write segments; the driver publishes all of them together. The
    keys of the indexes are sent to the tasks as the key-encryption keys of a write are.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        Classic or Connect.
    path : str or path
        The folder of the table; the driver and all executors must be able to access it.
    columns : str or iterable of str
        Dotted paths of columns that can have a Bloom filter.
    keys : str, path or Keyring, optional
        The path of a keyring, or the URI of a KMS, which the workers need as well. Of a Keyring,
        only the path is used. Default: as set in the environment of this process.
    encryption : {"column", None}
        How a new index is encrypted, as for :func:`secure_bloom.index.build`.
    exclusive : bool
        Whether only jobs of secure_bloom add and remove files of the table, as there.

    Returns
    -------
    UpdateResult

    Raises
    ------
    ColumnError
        If no file has the column, or it cannot have a Bloom filter.
    UnsupportedError
        If the encryption does not fit: an index with encryption of an open column, or the reverse.
    KeyRetrievalError
        If a key is missing, denied or wrong, or the KMS does not respond.
    FileNotFoundError
        If the folder does not exist, or has no Parquet files.
    pyspark.errors.PySparkException
        If a task fails as a whole. Nothing is published then.
    """
    from secure_bloom.spark.indexing import build_index
    return build_index(spark, path, columns, keys=keys, encryption=encryption, exclusive=exclusive)


def compact_index(spark: SparkSession, path: FilePath,
                  columns: str | Iterable[str] | None = None, *,
                  keys: Keyring | FilePath | None = None) -> int:
    """Merge all segments of each column, without files that do not exist any more.

    This is :meth:`secure_bloom.index.Index.compact` for an index that is too large for one machine.
    Each task merges one slice of the fingerprints and writes it; the driver publishes the slices
    together, as one segment. Up to 67 million values are merged on the driver.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        Classic or Connect.
    path : str or path
        The folder of the table; the driver and all executors must be able to access it.
    columns : str or iterable of str, optional
        Dotted paths of the columns whose indexes are merged. Default: all indexed columns.
    keys : str, path or Keyring, optional
        The path of a keyring, or the URI of a KMS. Of a Keyring, only the path is used. Tasks do
        not need it: the driver sends them the keys of the indexes. Default: as set in the
        environment of this process.

    Returns
    -------
    int
        The number of segments that were merged. Their files remain until
        :meth:`secure_bloom.index.Index.vacuum`.

    Raises
    ------
    ColumnError
        If a column has no index.
    KeyRetrievalError
        If the master key of a column is missing, denied or wrong.
    AuthenticationError, FormatError
        If a manifest or the end of a segment was changed, or is damaged.
    ChangedMeanwhileError
        If another program has deleted a part before all were written.
    FileNotFoundError
        If the table has no index.
    pyspark.errors.PySparkException
        If a task fails. The index is not changed then.
    """
    from secure_bloom.spark.index_merging import compact_index
    return compact_index(spark, path, columns, keys=keys)


def erase(spark: SparkSession, path: FilePath, column: str, values: object, *,
          keys: Keyring | FilePath | None = None, dry_run: bool = False, max_share: float = 0.01,
          hash_key: bytes | None = None, index: IndexUse = "auto") -> EraseResult:
    """Erase all rows of a folder in which a column has one of some values; verify their absence.

    As :func:`secure_bloom.erase`, but tasks search the files and write those that have such rows
    again, each file in a task; the driver commits. The values are sent to the tasks.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        Classic or Connect.
    path : str or path
        The folder; the driver and all executors must be able to access it.
    column : str
        Dotted path of a leaf column.
    values : scalar, sequence, or Arrow array
        They are compared as by the operator ``in``, see ``docs/filters.md``.
    keys : str, path or Keyring, optional
        The path of a keyring, or the URI of a KMS, which the workers need as well. Of a Keyring,
        only the path is used. Default: as set in the environment of this process.
    dry_run : bool
        Report which files and how many rows would go, without changing anything.
    max_share : float
        Refuse to erase a larger share of all rows; 1 allows any.
    hash_key : bytes, optional
        Key of the hashes that stand for values in the report. Default: a random one.
    index : {"auto", "off", "require"}
        Whether to use the index of the folder; see ``docs/table-index.md``.

    Returns
    -------
    EraseResult

    Raises
    ------
    FileNotFoundError
        If the folder does not exist.
    ColumnError
        If no file has such a column, or it is in the names of folders.
    ValueError
        If there are no values, or more rows would go than ``max_share`` allows.
    UnsupportedError
        If the files belong to a table with a log.
    ChangedMeanwhileError, CommitError
        If other jobs keep changing the files.
    pyspark.errors.PySparkException
        If a task fails. Nothing has been changed then.
    """
    from secure_bloom.spark.erasing import erase
    return erase(spark, path, column, values, keys=keys, dry_run=dry_run, max_share=max_share,
                 hash_key=hash_key, index=index)


def load(spark: SparkSession, path: FilePath, filters: Sequence[tuple[str, str, Any]],
         **options: bool | float | str) -> DataFrame:
    """Load a folder as a DataFrame of the rows for which all predicates hold.

    Row groups without such rows are skipped, whatever is done with the DataFrame later; nothing
    has to be enabled. Spark compares the rows themselves, and its operators have the same meaning
    as those of ``docs/filters.md``. Only values whose type differs from the
    column's type follow Spark's own rules: it compares a BIGINT with a float as doubles, and
    reads '5' as a number. With ANSI mode off, it takes a text that is not a number for null, so
    ``<=>`` then finds the null rows.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        Classic or Connect, with the data source registered.
    path : str or path
        The folder.
    filters : list of tuple
        ``(column, op, value)``; the operators are ``=``, ``<=>``, ``<``, ``<=``, ``>``, ``>=``,
        ``in``, ``is null`` and ``is not null`` (with None). Timestamps need a time zone. Columns
        are named as in ``pyspark.sql.functions.col``: ``a.b`` is a field of a struct, and a name
        that contains a dot must be in backticks.
    **options
        Options of the data source by name, such as ``keyring``; the table in docs/spark.md lists
        them.

    Returns
    -------
    pyspark.sql.DataFrame
        Like every DataFrame, it is evaluated when an action needs its rows.

    Raises
    ------
    TypeError, ValueError
        If a predicate is malformed, or the type of its value cannot be passed.
    """
    return _load(lambda path, more: spark.read.format(FORMAT).options(**options, **more).load(path),
                 path, filters)


def _load(load: Load, path: FilePath, filters: Sequence[tuple[str, str, Any]] | None) -> DataFrame:
    if filters is None:
        return load(str(path), {})
    from secure_bloom.spark.options.row_filters import checked, condition, to_json
    predicates = checked(filters)
    return load(str(path), {"filters": to_json(predicates)}).where(condition(predicates))


def last_commit(path: FilePath, filesystem: pa_fs.FileSystem | None = None) -> CommitSummary:
    """Return what the last write to a folder published: files, rows, bytes and Bloom filters.

    Does not need Spark.

    Parameters
    ----------
    path : str or path
        The folder, as given to ``save``.
    filesystem : pyarrow.fs.FileSystem, optional

    Raises
    ------
    FileNotFoundError
        If nothing has been committed, or a commit is in progress.
    FormatError
        If the last write was made by another program.
    ChangedMeanwhileError
        If jobs commit faster than this can be read.
    """
    if filesystem is None:
        filesystem, path = locate(str(path))
    return read_summary(filesystem, str(path))
