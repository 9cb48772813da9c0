"""A Spark user's mistakes, each of which mypy reports in its line. It is never run."""

from pyspark.sql import SparkSession

import secure_bloom.spark
from secure_bloom import EncryptionConfiguration, UniformKey
from secure_bloom.spark import native
from secure_bloom.spark.source import SecureParquet

spark = SparkSession.builder.getOrCreate()
encryption = EncryptionConfiguration("footer", {"pii": ["ssn"]})

secure_bloom.spark.register()  # error: call-arg
secure_bloom.spark.register("local")  # error: arg-type
secure_bloom.spark.enable_pushdown(spark)  # error: attr-defined
secure_bloom.spark.read("people", filters=[("ssn", "=", 1)])  # error: call-arg, arg-type
secure_bloom.spark.read(spark, "people", filters="ssn = 1")  # error: arg-type
secure_bloom.spark.read(spark, "people", filters=[("ssn", 1)])  # error: list-item
secure_bloom.spark.read(spark, "people", columns=[3])  # error: list-item
rows: list[str] = secure_bloom.spark.read(spark, "people")  # error: assignment
secure_bloom.spark.load(spark, "people")  # error: attr-defined
secure_bloom.spark.attach(spark)  # error: call-arg
secure_bloom.spark.attach(spark, "people", ["ssn"], keyring="keyring.json")  # error: call-arg
secure_bloom.spark.attach(spark, "people", {3: True})  # error: dict-item
secure_bloom.spark.last_commit(3)  # error: arg-type
print(secure_bloom.spark.last_commit("people").row)  # error: attr-defined
native.enable(spark, plaintext="no")  # error: arg-type
native.write_options(encryption=UniformKey(b""), keys="keyring.json")  # error: arg-type
native.read_options(3, keys="keyring.json")  # error: arg-type
SecureParquet("people")  # error: arg-type
