"""Writes of ``secure_bloom.spark.write`` whose files Spark's own Parquet writer makes.

Spark writes into the staging folder of a job, which readers do not see. Then the driver opens the
files, checks that they are encrypted as requested, and publishes them as one commit, exactly as it
publishes the files of Python tasks. So the folder, the options and the commits are the same,
whichever engine writes.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from secure_bloom.errors import SecureBloomError, error_location
from secure_bloom.reader import ParquetFile
from secure_bloom.spark import native
from secure_bloom.spark.engine import (
    Engine,
    EngineName,
    ImpossibleError,
    check_session,
    source_options,
)
from secure_bloom.spark.options.analysed import parse_analysed
from secure_bloom.spark.options.options import (
    ANALYSED,
    BLOOM_FILTERS,
    ENABLED,
    ENCRYPTION,
    FPP,
    KEYRING,
    KMS,
    MAX_ROWS_PER_FILE,
    NDV,
    OTHER_NAMES,
    OVERWRITE_MODE,
    PARTITION_BY,
    POLICY,
    Options,
    locate,
)
from secure_bloom.spark.options.options import MAX_BYTES as FILTER_BYTES
from secure_bloom.spark.options.write import WriteOptions, parse_write_options
from secure_bloom.spark.schema.types import field_metadata, stored_schema
from secure_bloom.spark.writing.writer import SecureParquetWriter, TaskCommit
from secure_bloom.storage.hive_partitioning import NULL, NULL_IS_RESERVED
from secure_bloom.storage.summary import FilterTotals, StagedFile
from secure_bloom.storage.versions import without_subtree
from secure_bloom.storage.visibility import files_below, is_hidden

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SESSION_POLICY = "spark.secure_bloom.native.policy"
_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
#: settings with which Spark's writer stores what Python tasks store; unset, it does
_AS_OURS = {"spark.sql.parquet.writeLegacyFormat": ("false",),
            "spark.sql.parquet.datetimeRebaseModeInWrite": ("CORRECTED", "EXCEPTION")}
_POSSIBLE = frozenset(("path", KEYRING, KMS, POLICY, *ENCRYPTION, ENABLED, FPP, NDV, FILTER_BYTES,
                       BLOOM_FILTERS, ANALYSED, PARTITION_BY, OVERWRITE_MODE, "compression",
                       MAX_ROWS_PER_FILE))
_COMPRESSIONS = {"lz4": "lz4_raw"}  # where Spark's name differs
_FILES = "native"  # folder below the staging folder of the job, to which Spark writes


def write(df: DataFrame, path: str, given: Mapping[str, Any], overwrite: bool,
          engine: EngineName) -> Engine:
    """Write with Spark's own writer if it can do everything that is requested.

    Returns the engine to use; if it is "python", nothing was written.

    Raises
    ------
    UnsupportedError
        If ``engine`` is "native", and Spark's writer cannot do what is asked.
    """
    if engine == "python":
        return Engine("python", "as requested")
    try:
        options = _checked(df, path, given, is_requested=engine == "native")
    except ImpossibleError as reason:
        if engine == "native":
            raise reason.as_requested() from None
        return Engine("python", str(reason))
    _write(df, options, overwrite)
    return Engine("native", "as requested" if engine == "native" else
                  "native.enable was called, and Spark's writer can do all that is requested")


# --- whether Spark's writer can do all that is requested -----------------------------------------

def _checked(df: DataFrame, path: str, given: Mapping[str, Any], *,
             is_requested: bool) -> Options:
    """Return the options of the write.

    If Spark's writer is requested, filters and timestamps may be as Spark writes them. Raises
    ImpossibleError if Spark's writer cannot do the write.
    """
    spark = df.sparkSession
    check_session(spark)
    if spark.conf.get(_SESSION_POLICY, None) is not None:
        raise ImpossibleError("the session has a policy of native.enable, whose rules for folders "
                              "would apply to the staging folder")
    options = source_options(spark, path, given)
    for name in options:
        base = name.partition("#")[0]
        if OTHER_NAMES.get(base, base) not in _POSSIBLE:
            raise ImpossibleError(f"only Python tasks support option {name}")
    try:
        asked = _parsed(df, options)
    except (SecureBloomError, OSError) as error:
        if is_requested:
            raise
        raise ImpossibleError("the data source reports what is wrong") from error
    if locate(path)[0].type_name != "local":
        raise ImpossibleError("on object stores and HDFS, Python tasks write")
    if asked.encryption is None:
        raise ImpossibleError("the write is without encryption")
    if not asked.encryption.double_wrapping:
        raise ImpossibleError("with single wrapping, tasks need a KMS client in Python")
    if not is_requested:
        _check_kept(df, asked)
    return options


def _parsed(df: DataFrame, options: Options) -> WriteOptions:
    path = without_subtree(*locate(options.get("path")))[1]
    metadata = parse_analysed(options).with_metadata(field_metadata(df.schema))
    with error_location(file=path):
        return parse_write_options(options, stored_schema(df.schema), metadata, path)


def _check_kept(df: DataFrame, asked: WriteOptions) -> None:
    if asked.bloom_filters:
        column = next(iter(asked.bloom_filters))
        raise ImpossibleError(f"column {column} is to have a Bloom filter, and Spark's writer "
                              "leaves out the filters of row groups whose values are all in a "
                              "dictionary")
    conf = df.sparkSession.conf
    for name, same in _AS_OURS.items():
        if conf.get(name, None) not in (None, *same):
            raise ImpossibleError(f"with this setting of {name}, Spark's writer stores other types "
                                  "or values")
    if '"variant"' in df.schema.json():
        raise ImpossibleError("Spark's writer splits variants into columns, which only Spark's "
                              "reader puts together")
    if '"timestamp"' in df.schema.json() and conf.get(_TIMESTAMPS, None) != "TIMESTAMP_MICROS":
        raise ImpossibleError(f"{_TIMESTAMPS} is not TIMESTAMP_MICROS, so Spark's writer would "
                              "store timestamps as INT96")


# --- the job -------------------------------------------------------------------------------------

def _write(df: DataFrame, options: Options, overwrite: bool) -> None:
    writer = SecureParquetWriter(options, df.schema, overwrite)
    try:
        _run(df, writer)
        staged = list(_staged(writer))
        writer.job.sync_written(file.path for file in staged)
        writer.commit([TaskCommit(staged)])
    except BaseException:
        writer.abort([])
        raise


def _run(df: DataFrame, writer: SecureParquetWriter) -> None:
    """Let Spark write below the staging folder of the job."""
    asked = writer.options
    sealed = native.write_options(encryption=asked.encryption, bloom_filters=asked.bloom_filters,
                                  keys=writer.key_encryption_keys)
    compression = str(asked.writer["compression"])
    native_writer = _without_null_names(df, asked.partition_by).write.options(**sealed).option(
        "compression", _COMPRESSIONS.get(compression, compression))
    if asked.max_rows_per_file is not None:
        native_writer = native_writer.option("maxRecordsPerFile", asked.max_rows_per_file)
    if asked.partition_by:
        native_writer = native_writer.partitionBy(*asked.partition_by)
    folder = without_subtree(writer.job.filesystem, _folder(writer))[1]
    native_writer.parquet(f"file://{folder}")


def _without_null_names(df: DataFrame, partition_by: Iterable[str]) -> DataFrame:
    """Make the job fail, as Python tasks do, where Spark would write a value that reads as null."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType
    for name in partition_by:
        if isinstance(df.schema[name].dataType, StringType):
            column = F.col("`" + name.replace("`", "``") + "`")
            df = df.withColumn(name, F.when(column == NULL, F.raise_error(
                f"column {name}: {NULL_IS_RESERVED}")).otherwise(column))
    return df


def _folder(writer: SecureParquetWriter) -> str:
    return posixpath.join(writer.job.staging, _FILES)


def _staged(writer: SecureParquetWriter) -> Iterator[StagedFile]:
    """Check the files that Spark wrote, and name them as the job does."""
    job, asked, keys = writer.job, writer.options, writer.reading_keys()
    found = {name: info for name, info in
             sorted(files_below(job.filesystem, _folder(writer), allow_not_found=True).items())
             if not is_hidden(name)}
    for folder in {posixpath.dirname(info.path) for info in found.values()}:
        job.check_inside(folder)  # else files that Spark has not written would be moved
    if found:
        native.verify(_folder(writer), encryption=asked.encryption,
                      bloom_filters=asked.bloom_filters, keys=keys, filesystem=job.filesystem)
    for number, (name, info) in enumerate(found.items()):
        with ParquetFile(info.path, keys, filesystem=job.filesystem) as file:
            rows, filters = file.num_rows, _filters(file)
        if not rows:
            continue
        path = job.new_file(number, posixpath.dirname(name))
        writer.check_path(path)
        job.filesystem.move(info.path, path)
        yield job.staged(path, rows, filters)


def _filters(file: ParquetFile) -> FilterTotals:
    encrypted = plain = size = 0
    for chunk in file.footer.column_chunks():
        if (place := chunk.bloom_filter) is not None:
            encrypted += chunk.encryption is not None
            plain += chunk.encryption is None
            size += place[1] or 0
    return FilterTotals(encrypted, plain, size)
