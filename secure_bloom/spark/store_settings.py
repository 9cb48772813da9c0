"""Settings of Spark's own S3 client, which the data source does not use."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
