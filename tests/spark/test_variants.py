"""Variants that Spark splits into columns, as it does by default since 4.3."""

import pytest
from pyspark.sql import types as T

import secure_bloom.spark
from secure_bloom.spark import native
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


@pytest.mark.sweep
def test_shredded_variants_are_refused_not_read_without_their_values(spark, frame, tmp_path):
    frame.write.parquet(str(tmp_path / "x"))  # with Spark's defaults
    if "typed_value" not in str(secure_bloom.dataset(str(tmp_path / "x")).schema):
        pytest.skip("this Spark does not shred by default")
    schema = "id bigint, v variant, below array<variant>"
    for options in ({"mergeSchema": "true"}, {"mergeSchema": "false"}, {}):
        for given in (None, schema):
            reader = spark.read.format("secure_parquet").options(**options)
            reader = reader if given is None else reader.schema(given)
            with pytest.raises(Exception, match=r"native\.read_options|does not have this "
                                                "field"):
                reader.load(str(tmp_path / "x")).selectExpr("to_json(v)").collect()


def test_variants_that_we_write_are_read(spark, frame, tmp_path):
    secure_bloom.spark.write(frame, tmp_path / "y", plaintext=True)
    back = secure_bloom.spark.read(spark, tmp_path / "y")
    assert {row.a for row in back.selectExpr("v:a::int as a").collect()} == set(range(6))


@pytest.mark.sweep
def test_shredded_variants_are_read_as_the_error_says(native_spark, frame, tmp_path, keyring):
    session = native_spark
    encryption = secure_bloom.EncryptionConfiguration("footer", {"pii": ["id"]})
    own = session.range(6).selectExpr("id", f"{OBJECT} as v")
    own.write.options(**native.write_options(encryption=encryption, keys=keyring)).parquet(
        str(tmp_path / "z"))
    options = native.read_options(str(tmp_path / "z"), keyring)
    back = session.read.options(**options).parquet(str(tmp_path / "z"))
    assert {row.a for row in back.selectExpr("v:a::int as a").collect()} == set(range(6))
