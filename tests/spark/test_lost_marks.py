"""Marks that Spark loses on the way to a writer. The table in docs/spark.md names these tests."""

import pytest
from pyspark.sql import functions as F

import secure_bloom.spark
from secure_bloom import EncryptionConfiguration
from secure_bloom.policy import Policy
from tests.spark.helpers import PLAINTEXT, keys_of, people, read, staged, uses_spark, visible, write

pytestmark = uses_spark

MARK = {"secure_bloom.key": "pii"}
BY_NAME = Policy(footer_key="footer", columns={"*ssn*": "pii"})
OTHERS = EncryptionConfiguration("footer", {"money": ["id"]})


def marked(frame):
    """Compute ssn and mark it in the same query."""
    return frame.withColumn("ssn", F.concat("ssn", F.lit("x"))).withMetadata("ssn", MARK)


#: name: what a query does, and the path of the column whose mark is lost
LOST = {
    "dropDuplicates": (lambda frame, ssn: frame.dropDuplicates(["id"]), "ssn"),
    "dropDuplicates and orderBy":
        (lambda frame, ssn: frame.dropDuplicates(["id"]).orderBy("city"), "ssn"),
    "struct": (lambda frame, ssn: frame.select("id", F.struct("ssn").alias("s")), "s.ssn"),
    "array of structs": (lambda frame, ssn: frame.select(
        "id", F.array(F.struct("ssn")).alias("s")), "s.list.element.ssn"),
    "map": (lambda frame, ssn: frame.select(
        "id", F.create_map("city", F.struct("ssn")).alias("s")), "s.key_value.value.ssn"),
    "withField": (lambda frame, ssn: frame.select("id", F.struct("ssn").alias("s")).withColumn(
        "s", F.col("s").withField("more", F.lit(1))), "s.ssn"),
    "coalesce": (lambda frame, ssn: frame.select("id", F.coalesce(
        F.struct("ssn"), F.struct("ssn")).alias("s")), "s.ssn"),
    "when": (lambda frame, ssn: frame.select("id", F.when(
        F.col("id") > 1, F.struct("ssn")).otherwise(F.struct("ssn")).alias("s")), "s.ssn"),
}


@pytest.fixture(params=LOST)
def lost(request, spark):
    """A DataFrame whose schema shows a mark that does not arrive at the writer."""
    query, path = LOST[request.param]
    return query(marked(people(spark, 4)), "ssn"), path


def test_write_encrypts_what_the_schema_of_the_dataframe_marks(lost, tmp_path, keyring):
    frame, path = lost
    secure_bloom.spark.write(frame, tmp_path / "t", keys=keyring, encryption=OTHERS)
    found = keys_of(tmp_path / "t", keyring)
    assert found[path] == "pii" and found["id"] == "money"


def test_write_refuses_plaintext_of_what_the_schema_of_the_dataframe_marks(lost, tmp_path):
    frame, path = lost
    with pytest.raises(Exception, match=f"contradicts metadata .* of column {path}"):
        secure_bloom.spark.write(frame, tmp_path / "t", plaintext=True)
    assert visible(tmp_path / "t") == [] == staged(tmp_path / "t")


def test_options_alone_do_not_notice_a_lost_mark(lost, tmp_path, keyring):
    """What is documented as not detected: if this fails, Spark keeps marks, so change the table."""
    frame, path = lost
    write(frame, tmp_path / "t", **PLAINTEXT)
    assert keys_of(tmp_path / "t", keyring)[path] is None


def test_a_policy_encrypts_by_name_also_without_a_mark(lost, tmp_path, keyring):
    frame, path = lost
    keys = {"keyring": str(keyring.path), "policy": BY_NAME.to_toml()}
    write(frame, tmp_path / "t", **keys)
    assert keys_of(tmp_path / "t", keyring)[path] == "pii"
    with pytest.raises(Exception, match=f"column {path}: it would be written in plaintext"):
        write(frame, tmp_path / "u", **keys, **PLAINTEXT)
    assert visible(tmp_path / "u") == []


@pytest.mark.parametrize("derive", [
    lambda frame: frame.selectExpr("upper(ssn) as ssn", "id"),
    lambda frame: frame.withMetadata("ssn", {}).union(frame),
    lambda frame: frame.groupBy("id").agg(F.max("ssn").alias("ssn"))],
    ids=["expression", "second side of a union", "aggregate"])
def test_what_the_schema_of_the_dataframe_does_not_show(spark, tmp_path, keyring, derive):
    """Only a policy knows the column."""
    frame = derive(people(spark, 4).withMetadata("ssn", MARK))
    secure_bloom.spark.write(frame, tmp_path / "t", plaintext=True)
    secure_bloom.spark.write(frame, tmp_path / "u", keys=keyring, policy=BY_NAME)
    assert keys_of(tmp_path / "u", keyring)["ssn"] == "pii"
    with pytest.raises(Exception, match="column ssn: it would be written in plaintext"):
        secure_bloom.spark.write(frame, tmp_path / "v", plaintext=True, policy=BY_NAME)


def test_a_column_under_another_name_is_outside_the_reach_of_a_policy(spark, tmp_path):
    frame = people(spark, 4).selectExpr("upper(ssn) as number")
    secure_bloom.spark.write(frame, tmp_path / "t", plaintext=True, policy=BY_NAME)
    assert read(spark, tmp_path / "t", policy=BY_NAME.to_toml()).count() == 4


def test_marks_of_partition_columns(spark, tmp_path, keyring):
    frame = marked(people(spark, 4)).dropDuplicates(["id"])
    with pytest.raises(Exception, match="column ssn is sensitive"):
        secure_bloom.spark.write(frame, tmp_path / "t", keys=keyring, encryption=OTHERS,
                                 partition_by="ssn")
    assert visible(tmp_path / "t") == []
