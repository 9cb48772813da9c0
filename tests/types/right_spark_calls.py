"""A Spark user's program, which mypy accepts. It is never run."""

from pathlib import Path
from typing import assert_type

from pyspark.sql import DataFrame, SparkSession

import secure_bloom.spark
from secure_bloom import BloomFilterOptions, EncryptionConfiguration, Keyring, Policy
from secure_bloom.spark import native
from secure_bloom.spark.source import SecureParquet
from secure_bloom.spark.writing.writer import SecureParquetWriter


def people(spark: SparkSession, folder: Path) -> DataFrame:
    secure_bloom.spark.register(spark)
    frame = secure_bloom.spark.read(spark, folder,
                                    filters=[("ssn", "=", "1"), ("age", "in", [1, 2])],
                                    keys="keyring.json", split_bytes=1000, mergeSchema=True)
    assert_type(frame, DataFrame)
    result = secure_bloom.spark.attach(spark, folder, {"ssn": True, "b": {"fpp": 0.1}},
                                       keys="keyring.json", dry_run=True)
    assert_type(result.failed, dict[str, str])
    assert_type(secure_bloom.spark.last_commit("people").rows, int)
    secure_bloom.spark.write(frame, folder, mode="overwrite", keys="keyring.json",
                             policy=Policy(["ssn"], footer_key="footer"), compression="zstd",
                             bloom_filters={"ssn": True}, partition_by=["age"])
    assert_type(secure_bloom.spark.read(spark, folder, keys=Path("keyring.json"),
                                        filters=[("ssn", "=", "1")]), DataFrame)
    assert_type(secure_bloom.spark.read_stream(spark, folder, schema=frame.schema,
                                               maxFilesPerTrigger=1, columns=["ssn"]),
                DataFrame)
    return frame


def sparks_own_writer(frame: DataFrame, keyring: Keyring) -> None:
    native.enable(frame.sparkSession, plaintext=True)
    native.enable(frame.sparkSession, policy="policy.toml")
    native.write_options(policy=Policy(["ssn"], footer_key="footer"), keys=keyring)
    encryption = EncryptionConfiguration("footer", {"pii": ["ssn"]})
    options = native.write_options(encryption=encryption, bloom_filters=["ssn"], keys=keyring)
    frame.write.options(**options).parquet("people")
    assert_type(native.verify("people", encryption=encryption, keys="keyring.json",
                              bloom_filters={"ssn": BloomFilterOptions(fpp=0.1)}).files, int)
    assert_type(native.read_options(["people"], keys=keyring), dict[str, str])


def data_source(frame: DataFrame) -> None:
    source = SecureParquet({"path": "people"})
    assert_type(source.writer(frame.schema, overwrite=False), SecureParquetWriter)
