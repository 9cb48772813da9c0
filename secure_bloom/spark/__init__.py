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

__all__ = ["register"]


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
