"""Marks that Spark loses on the way to a writer. The table in docs/spark.md names these tests."""

from contextlib import contextmanager

import pytest
from pyspark.sql import functions as F

import secure_bloom.spark
from secure_bloom import EncryptionConfiguration
from secure_bloom.policy import Policy
from secure_bloom.spark import native
from tests.spark.helpers import (
    PLAINTEXT,
    QUICK_JVM,
    keys_of,
    own_spark,
    people,
    read,
    staged,
    uses_spark,
    visible,
    write,
)
from tests.tiers import sweep_where

pytestmark = uses_spark

MARK = {"secure_bloom.key": "pii"}
BY_NAME = Policy(footer_key="footer", columns={"*ssn*": "pii"})
OTHERS = EncryptionConfiguration("footer", {"money": ["id"]})


def marked(frame):
    """Compute ssn and mark it in the same query."""
    return frame.withColumn("ssn", F.concat("ssn", F.lit("x"))).withMetadata("ssn", MARK)


#: name: what a query does, and the path of the column whose mark is lost
LOST = {
    "dropDuplicates": (lambda frame: frame.dropDuplicates(["id"]), "ssn"),
    "dropDuplicates and orderBy":
        (lambda frame: frame.dropDuplicates(["id"]).orderBy("city"), "ssn"),
    "struct": (lambda frame: frame.select("id", F.struct("ssn").alias("s")), "s.ssn"),
    "array of structs": (lambda frame: frame.select(
        "id", F.array(F.struct("ssn")).alias("s")), "s.list.element.ssn"),
    "map": (lambda frame: frame.select(
        "id", F.create_map("city", F.struct("ssn")).alias("s")), "s.key_value.value.ssn"),
    "withField": (lambda frame: frame.select("id", F.struct("ssn").alias("s")).withColumn(
        "s", F.col("s").withField("more", F.lit(1))), "s.ssn"),
    "coalesce": (lambda frame: frame.select("id", F.coalesce(
        F.struct("ssn"), F.struct("ssn")).alias("s")), "s.ssn"),
    "when": (lambda frame: frame.select("id", F.when(
        F.col("id") > 1, F.struct("ssn")).otherwise(F.struct("ssn")).alias("s")), "s.ssn"),
}


#: those in which the column is somewhere else in the file
PLACES = ("dropDuplicates", "struct", "array of structs", "map")


@pytest.fixture(params=LOST)
def lost(request, spark):
    """A DataFrame whose schema shows a mark that does not arrive at the writer."""
    query, path = LOST[request.param]
    return query(marked(people(spark, 4))), path


@sweep_where(lambda lost: lost not in PLACES[:2])
def test_write_encrypts_what_the_schema_of_the_dataframe_marks(lost, tmp_path, keyring):
    frame, path = lost
    secure_bloom.spark.write(frame, tmp_path / "t", keys=keyring, encryption=OTHERS)
    found = keys_of(tmp_path / "t", keyring)
    assert found[path] == "pii" and found["id"] == "money"


@sweep_where(lambda lost: lost != "struct")
@pytest.mark.parametrize("lost", PLACES, indirect=True)
def test_write_refuses_plaintext_of_what_the_schema_of_the_dataframe_marks(lost, tmp_path):
    frame, path = lost
    with pytest.raises(Exception, match=f"contradicts metadata .* of column {path}"):
        secure_bloom.spark.write(frame, tmp_path / "t", plaintext=True)
    assert visible(tmp_path / "t") == [] == staged(tmp_path / "t")


@pytest.mark.sweep
def test_options_alone_do_not_notice_a_lost_mark(lost, tmp_path, keyring):
    """What is documented as not detected: if this fails, Spark keeps marks, so change the table."""
    frame, path = lost
    write(frame, tmp_path / "t", **PLAINTEXT)
    assert keys_of(tmp_path / "t", keyring)[path] is None


@sweep_where(lambda lost: lost != "struct")
@pytest.mark.parametrize("lost", PLACES, indirect=True)
def test_a_policy_encrypts_by_name_also_without_a_mark(lost, tmp_path, keyring):
    frame, path = lost
    keys = {"keys": str(keyring.path), "policy": BY_NAME.to_toml()}
    write(frame, tmp_path / "t", **keys)
    assert keys_of(tmp_path / "t", keyring)[path] == "pii"
    with pytest.raises(Exception, match=f"column {path}: it would be written in plaintext"):
        write(frame, tmp_path / "u", **keys, **PLAINTEXT)
    assert visible(tmp_path / "u") == []


@pytest.mark.sweep
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


@pytest.mark.sweep
def test_a_column_under_another_name_is_outside_the_reach_of_a_policy(spark, tmp_path):
    frame = people(spark, 4).selectExpr("upper(ssn) as number")
    secure_bloom.spark.write(frame, tmp_path / "t", plaintext=True, policy=BY_NAME)
    assert read(spark, tmp_path / "t", policy=BY_NAME.to_toml()).count() == 4


@pytest.mark.sweep
def test_marks_of_partition_columns(spark, tmp_path, keyring):
    frame = marked(people(spark, 4)).dropDuplicates(["id"])
    with pytest.raises(Exception, match="column ssn is sensitive"):
        secure_bloom.spark.write(frame, tmp_path / "t", keys=keyring, encryption=OTHERS,
                                 partition_by="ssn")
    with pytest.raises(Exception, match="column ssn: its values would be part of folder names"):
        write(frame, tmp_path / "t", **PLAINTEXT, partition_by="ssn", policy=BY_NAME.to_toml())
    assert visible(tmp_path / "t") == []
    write(frame, tmp_path / "t", **PLAINTEXT, partition_by="ssn")  # not detected
    assert visible(tmp_path / "t")[0] == "ssn=ssn-0x"


# --- Spark's own writer --------------------------------------------------------------------------

REFUSED = r"column (\w+\.)*ssn would be written in plaintext; it must be encrypted by the policy"


@contextmanager
def policy_of(session):
    native.enable(session, policy=BY_NAME)
    try:
        yield
    finally:
        session.conf.unset("spark.secure_bloom.native.policy")


@sweep_where(lambda name: name != "struct")
@pytest.mark.parametrize("name", PLACES)
def test_native_plaintext_of_a_lost_mark(native_spark, tmp_path, name):
    """Not detected by marks; refused by name."""
    frame = LOST[name][0](marked(people(native_spark, 4)))
    frame.write.options(**PLAINTEXT).parquet(f"{tmp_path}/t")
    with policy_of(native_spark), pytest.raises(Exception, match=REFUSED):
        frame.write.options(**PLAINTEXT).parquet(f"{tmp_path}/u")
    assert visible(tmp_path / "u") == []


def test_native_marks_of_partition_columns(native_spark, tmp_path):
    """Not detected by marks; refused by name."""
    frame = marked(people(native_spark, 4)).dropDuplicates(["id"])
    with policy_of(native_spark), pytest.raises(Exception, match="part of folder names"):
        frame.write.options(**PLAINTEXT).partitionBy("ssn").parquet(f"{tmp_path}/t")
    assert visible(tmp_path / "t") == []
    frame.write.options(**PLAINTEXT).partitionBy("ssn").parquet(f"{tmp_path}/t", mode="append")
    assert visible(tmp_path / "t")[0] == "ssn=ssn-0x"


@sweep_where(lambda how: how != "insertInto")
@pytest.mark.parametrize("how", [
    "insert into lost select * from people", "insert into lost by name select * from people",
    "insert overwrite lost select * from people", "insertInto", "saveAsTable"])
def test_native_inserts_into_a_table_without_marks(native_spark, tmp_path, how):
    """Not detected by marks; refused by name."""
    frame = people(native_spark, 4).withMetadata("ssn", MARK)
    frame.createOrReplaceTempView("people")
    native_spark.sql("create table lost (ssn string, city string, id bigint) using parquet "
                     f"options (plaintext 'true') location '{tmp_path}/lost'")

    def insert():
        match how:
            case "insertInto":
                frame.write.insertInto("lost")
            case "saveAsTable":
                frame.write.mode("append").saveAsTable("lost")
            case _:
                native_spark.sql(how)

    try:
        with policy_of(native_spark), pytest.raises(Exception, match=REFUSED):
            insert()
        assert visible(tmp_path / "lost") == []
        insert()
        assert visible(tmp_path / "lost")
    finally:
        native_spark.sql("drop table lost")


HIVE = """
from secure_bloom.policy import Policy
from secure_bloom.spark import native

folder = sys.argv[1]
native.enable(spark)
spark.conf.set("plaintext", "true")
(spark.range(4).selectExpr("concat('ssn-', id) as ssn", "id")
    .withMetadata("ssn", {"secure_bloom.key": "pii"}).createOrReplaceTempView("people"))
spark.sql("create table u (ssn string, id bigint) stored as parquet")
for number in range(2):
    for statement in (
            f"create table t{number} stored as parquet as select * from people",
            f"insert overwrite local directory '{folder}/out{number}' stored as parquet "
            "select * from people", "insert into u select * from people"):
        try:
            spark.sql(statement)
        except Exception as error:
            print("refused" if "the policy's rule 'Ssn' in sensitive" in str(error) else error)
        else:
            print("written")
    native.enable(spark, policy=Policy(["Ssn"]))
"""


@pytest.mark.sweep
def test_writers_of_hive(tmp_path):
    """Not detected by marks; refused by name."""
    result = own_spark(HIVE, tmp_path, settings={
        "spark.sql.catalogImplementation": "hive", "spark.master": "local[1]",
        "spark.driver.extraJavaOptions": f"{QUICK_JVM} -Dderby.system.home={tmp_path}",
        "spark.sql.warehouse.dir": f"{tmp_path}/warehouse",
        "spark.hadoop.javax.jdo.option.ConnectionURL":
            f"jdbc:derby:{tmp_path}/metastore;create=true",
        **{f"spark.sql.hive.convertMetastore{setting}": "false"
           for setting in ("Parquet", "Ctas", "InsertDir")}})
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["written"] * 3 + ["refused"] * 3
