"""Registering the data source ``secure_parquet`` with a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from secure_bloom.errors import MissingExtraError
from secure_bloom.spark.options.options import SESSION_POLICY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Register the data source ``secure_parquet`` with a Spark session.

    If the session's ``spark.sql.python.filterPushdown.enabled`` is already on, this is
    :func:`enable_pushdown`. In local mode, the data source runs in the driver's Python if the
    workers' Python lacks secure_bloom; if that does not help, a warning says what to do.

    In a classic session, catalog tables of this format then receive their options, and columns
    whose metadata names a master key (``secure_bloom.key``) cannot be written by formats that do
    not encrypt: see docs/spark.md.

    If a read or a write names no keys, it uses the keys that ``SECURE_BLOOM_KEYRING`` or
    ``SECURE_BLOOM_KMS`` names in the environment of this process at the time of this call.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        Classic or Connect. secure_bloom must be installed where the session's Python workers run.

    Raises
    ------
    MissingExtraError
        If PySpark is not installed or is older than 4.0.
    """
    from secure_bloom.spark.options.kms import environment_uri
    try:
        from secure_bloom.spark import classic
        from secure_bloom.spark.engine import registered
        from secure_bloom.spark.source import SecureParquet as Source
        from secure_bloom.spark.worker_python import fitting_python
        if str(spark.conf.get(_PUSHDOWN, "false")).lower() == "true":
            from secure_bloom.spark.pushdown import SecureParquetPushdown as Source
    except ImportError as error:
        raise MissingExtraError(f"secure_parquet needs PySpark 4.0 or newer ({error}): "
                                'pip install "secure_bloom[spark]"') from error
    # Spark pickles the class now and runs it in workers, which have a different environment.
    source = type(Source.__name__, (Source,), {"environment": environment_uri(),
                                               "policy": spark.conf.get(SESSION_POLICY, None)})
    with fitting_python(spark):
        classic.register(spark, source)
    registered[spark] = source
    classic.extend(spark)


def enable_pushdown(spark: SparkSession) -> None:
    """Let DataFrames with option ``single_use`` skip what the filters of their query rule out.

    The option is needed because Spark (up to 4.3) applies the filters of one query to other
    queries on the same DataFrame, which would lose rows. :func:`.load` has no such restriction.

    Sets ``spark.sql.python.filterPushdown.enabled`` for the session, and registers a variant of the
    data source. Spark refuses to read with that variant while the setting is off: to go back,
    switch it off and call :func:`register`.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        Classic or Connect.

    Raises
    ------
    MissingExtraError
        If PySpark is not installed or is older than 4.1: older releases lack the setting.
    """
    try:
        import secure_bloom.spark.pushdown  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(f"skipping by conditions needs PySpark 4.1 or newer ({error}): "
                                'pip install "pyspark>=4.1"') from error
    spark.conf.set(_PUSHDOWN, "true")
    register(spark)
