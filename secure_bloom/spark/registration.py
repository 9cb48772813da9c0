"""Registering the data source ``secure_parquet`` with a session."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from secure_bloom.errors import needs_extra
from secure_bloom.spark.options.options import SESSION_POLICY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Register the data source ``secure_parquet`` with a Spark session.

    In local mode, the data source runs in the driver's Python if the workers' Python lacks
    secure_bloom; if that does not help, a warning says what to do.

    In a classic session, the conditions of queries then skip what cannot match, catalog tables of
    this format receive their options, and columns whose metadata names a master key
    (``secure_bloom.key``) cannot be written by formats that do not encrypt: see the page "The Spark
    data source".

    If the session has settings for S3 that the data source does not use, a warning is logged.

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

    Examples
    --------
    >>> secure_bloom.spark.register(spark)  # doctest: +SKIP
    """
    from secure_bloom.spark.options.kms import environment_uri
    from secure_bloom.spark.options.policy import environment_text
    with needs_extra("secure_parquet needs PySpark 4.0 or newer", "spark"):
        from secure_bloom.spark import classic
        from secure_bloom.spark.source import SecureParquet as Source
        from secure_bloom.spark.worker_python import fitting_python
    # Spark pickles the class now and runs it in workers, which have a different environment.
    source = type(Source.__name__, (Source,), {"environment": environment_uri(),
                                               "policy": spark.conf.get(SESSION_POLICY, None)
                                               or environment_text()})
    with fitting_python(spark):
        classic.register(spark, source)
    classic.extend(spark)
    warn_of_unused_settings(spark)


_PREFIX = "spark.hadoop.fs.s3a."
_IN_ENVIRONMENT = "{} in the environment of driver and workers"
#: what to set instead; never the value, which may be a secret
_INSTEAD = {
    "access.key": _IN_ENVIRONMENT.format("AWS_ACCESS_KEY_ID"),
    "secret.key": _IN_ENVIRONMENT.format("AWS_SECRET_ACCESS_KEY"),
    "session.token": _IN_ENVIRONMENT.format("AWS_SESSION_TOKEN"),
    "aws.credentials.provider": "a role of the machine, or " + _IN_ENVIRONMENT.format(
        "AWS_PROFILE"),
    "assumed.role.arn": _IN_ENVIRONMENT.format("AWS_PROFILE"),
    "endpoint": "s3a://bucket/folder?endpoint_override=host:port in the path",
    "endpoint.region": "s3a://bucket/folder?region=name in the path",
    "connection.ssl.enabled": "s3a://bucket/folder?scheme=http in the path",
}
_log = logging.getLogger("secure_bloom.spark")


def warn_of_unused_settings(spark: SparkSession) -> None:
    """Log which settings for S3 of the session have no effect, and what to set instead.

    Spark's Python workers do not receive them.
    """
    unused = [f"{_PREFIX}{name} (set {instead})" for name, instead in _INSTEAD.items()
              if spark.conf.get(_PREFIX + name, None)]
    if unused:
        _log.warning("secure_parquet opens S3 without Spark, and does not use these settings of "
                     "the session: %s", "; ".join(unused))
