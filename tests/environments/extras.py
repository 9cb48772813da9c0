"""For each extra, a small program that uses it, and fails where the extra is not installed."""

#: not for users: what the project's own tests and docs need
OWN = "test", "docs"

_TABLE = """
import pyarrow as pa
import secure_bloom
people = pa.table({"id": list(range(10_000))})
key = bytes(range(16))
secure_bloom.write_table(people, "people.parquet", bloom_filters=["id"],
                         encryption=secure_bloom.UniformKey(key))
keys = secure_bloom.ExplicitKeys(key)
"""

_KMS = """
from secure_bloom.errors import KeyRetrievalError, MissingExtraError
from secure_bloom.keys import open_kms
try:
    open_kms({uri!r}).wrap_key(bytes(16), "key")
except KeyRetrievalError as error:  # the library has tried to reach it
    assert not isinstance(error, MissingExtraError), error
else:
    raise AssertionError("there is no such KMS")
"""

PROGRAMS = {
    "none": _TABLE + """
with secure_bloom.ParquetFile("people.parquet", keys) as file:
    assert file.might_contain("id", [77, 10_077]).tolist() == [[True, False]]
from secure_bloom.sbbf.kernel_choice import chosen
assert chosen().name != "numpy", chosen()
""",
    "spark": """
import pandas
import secure_bloom.spark
from pyspark.sql.datasource import DataSource
from secure_bloom.spark.source import SecureParquet
assert issubclass(SecureParquet, DataSource)
""",
    "aws": _KMS.format(uri="awskms:?region=eu-west-1&endpoint=http://127.0.0.1:9&attempts=1"),
    "azure": _KMS.format(uri="azurekeyvault:https://127.0.0.1:9?attempts=1"),
    "gcp": _KMS.format(
        uri="gcpkms:projects/p/locations/l/keyRings/r?endpoint=https://127.0.0.1:9&attempts=1"),
    "vault": _KMS.format(uri="vault:http://127.0.0.1:9/transit?attempts=1"),
    "pkcs11": _KMS.format(
        uri="pkcs11:token=x?module-path=/nonexistent.so&pin-source=file:/nonexistent"),
    "numba": """
import os
os.environ["SECURE_BLOOM_KERNELS"] = "numba"
from secure_bloom.sbbf.kernel_choice import chosen
assert chosen().name == "numba", chosen()
""" + _TABLE,
    "lance": """
import lance
import pyarrow as pa
from secure_bloom.lance import BloomFilterIndex, build_index
lance.write_dataset(pa.table({"id": list(range(10_000))}), "people.lance")
build_index("people.lance", "id", "bloomfilter.lance")
index = BloomFilterIndex("bloomfilter.lance", pa.int64())
assert index.equals(77) and not index.equals(10_077)
""",
    "polars": _TABLE + """
import polars
found = secure_bloom.scan("people.parquet", keys).filter(polars.col("id") == 77).collect()
assert found.rows() == [(77,)], found
""",
}
PROGRAMS["all"] = "\n".join(PROGRAMS[extra] for extra in ("aws", "azure", "gcp", "vault", "pkcs11",
                                                         "polars"))
#: of the programs; the credentials are used nowhere
VARIABLES = {"PYTHONDONTWRITEBYTECODE": "1", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x",
             "VAULT_TOKEN": "x"}
