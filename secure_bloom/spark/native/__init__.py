"""Spark's own Parquet writer and reader, with keys from a Python KMS client.

>>> from secure_bloom.spark import native
>>> native.enable(spark)                                                         # doctest: +SKIP
>>> options = native.write_options(encryption=encryption, bloom_filters={"ssn": True},
...                                keys=keyring)                                 # doctest: +SKIP
>>> df.write.options(**options).partitionBy("day").parquet("people")             # doctest: +SKIP
>>> native.verify("people", encryption=encryption, bloom_filters={"ssn": True},
...               keys=keyring)                                                  # doctest: +SKIP
>>> options = native.read_options("people", keyring)                             # doctest: +SKIP
>>> spark.read.options(**options).parquet("people")                              # doctest: +SKIP
"""

from __future__ import annotations

from secure_bloom.spark.native.application import enable
from secure_bloom.spark.native.reading import read_options
from secure_bloom.spark.native.verifying import Verification, verify
from secure_bloom.spark.native.writing import write_options

__all__ = ["Verification", "enable", "read_options", "verify", "write_options"]
