"""Variants that Spark splits into columns, as it does by default since 4.3."""

import pytest
from pyspark.sql import types as T

import secure_bloom.spark
from secure_bloom import EncryptionConfiguration
from tests.spark.helpers import uses_spark

pytestmark = uses_spark

VariantType = getattr(T, "VariantType", None)
OBJECT = "parse_json(concat('{\"a\": ', id, ', \"b\": \"x', id, '\"}'))"


@pytest.fixture
def frame(spark):
    if VariantType is None:
        pytest.skip("this Spark has no variants")
    columns = ("id", f"{OBJECT} as v", f"array({OBJECT}) as below")
    return spark.range(6).selectExpr(*columns).coalesce(1)


def test_shredded_variants_are_refused_not_read_without_their_values(spark, frame, tmp_path):
    frame.write.parquet(str(tmp_path / "x"))  # with Spark's defaults
    if "typed_value" not in str(secure_bloom.dataset(str(tmp_path / "x")).schema):
        pytest.skip("this Spark does not shred by default")
    schema = "id bigint, v variant, below array<variant>"
    for options in ({"mergeSchema": "true"}, {"mergeSchema": "false"}, {}):
        for given in (None, schema):
            reader = spark.read.format("secure_parquet").options(**options)
            reader = reader if given is None else reader.schema(given)
            with pytest.raises(Exception, match=r"shredded|does not have this field"):
                reader.load(str(tmp_path / "x")).selectExpr("to_json(v)").collect()


def test_auto_leaves_variants_to_python_tasks(native_spark, tmp_path, keyring):
    if VariantType is None:
        pytest.skip("this Spark has no variants")
    secure_bloom.spark.register(native_spark)
    own = native_spark.range(6).selectExpr("id", f"{OBJECT} as v")
    chosen = secure_bloom.spark.write(
        own, tmp_path / "y", keys=str(keyring.path),
        encryption=EncryptionConfiguration("footer", {"pii": ["id"]}))
    assert chosen.name == "python" and "variants" in chosen.reason
    back = secure_bloom.spark.read(native_spark, tmp_path / "y", keys=str(keyring.path))
    assert {row.a for row in back.selectExpr("v:a::int as a").collect()} == set(range(6))
