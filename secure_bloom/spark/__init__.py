"""Encrypted Parquet files with encrypted Bloom filters from PySpark: ``secure_parquet``.

>>> import secure_bloom.spark
>>> secure_bloom.spark.register(spark)                                           # doctest: +SKIP
>>> (df.write.format("secure_parquet").option("keyring", "keyring.json")
...    .option("parquet.encryption.footer.key", "footer")
...    .option("parquet.encryption.column.keys", "pii: ssn")
...    .option("parquet.bloom.filter.enabled#ssn", "true")
...    .mode("append").save("people"))                                           # doctest: +SKIP
"""

from __future__ import annotations

from secure_bloom.errors import MissingExtraError
from secure_bloom.spark.commit import CommitSummary, read_summary
from secure_bloom.spark.options import locate

__all__ = ["last_commit", "register"]


def register(spark) -> None:
    """Make the format ``secure_parquet`` known to a Spark session.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        Classic or Connect. secure_bloom must be installed where its Python workers run.

    Raises
    ------
    MissingExtraError
        If PySpark is not installed, or older than 4.0.
    """
    try:
        from secure_bloom.spark.source import SecureParquet
    except ImportError as error:
        raise MissingExtraError(f"secure_parquet needs PySpark 4.0 or newer ({error}): "
                                'pip install "secure_bloom[spark]"') from error
    spark.dataSource.register(SecureParquet)


def last_commit(path, filesystem=None) -> CommitSummary:
    """What the last write to a folder published: files, rows, bytes and Bloom filters.

    Needs no Spark.

    Parameters
    ----------
    path : str or path
        The folder, as given to ``save``.
    filesystem : pyarrow.fs.FileSystem, optional

    Raises
    ------
    FileNotFoundError
        If nothing has been committed, or a commit is running.
    FormatError
        If another program made the last write.
    """
    if filesystem is None:
        filesystem, path = locate({"path": str(path)})
    return read_summary(filesystem, str(path))
