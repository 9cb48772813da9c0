"""Overwriting partitions: dynamic mode is refused, as the whole folder would be replaced."""

import os
import uuid

import pytest

import secure_bloom.spark
from secure_bloom.errors import UnsupportedError
from tests.spark.helpers import PLAINTEXT, read, settings, uses_spark, write

pytestmark = uses_spark

MODE = "spark.sql.sources.partitionOverwriteMode"
OPTION = "partitionOverwriteMode"
REFUSED = "dynamic overwrite is not supported"


@pytest.fixture
def days(spark, tmp_path):
    """A folder with two days, and the rows of one of them."""
    frame = spark.range(4).selectExpr("id", "id % 2 as day")
    write(frame, tmp_path / "days", **PLAINTEXT, partition_by="day")
    return tmp_path / "days", frame.where("day = 0")


def ids(spark, folder):
    return sorted(row.id for row in read(spark, folder).collect())


def test_every_way_to_write_refuses_dynamic_mode(spark, days):
    folder, one = days
    table = f"t_{uuid.uuid4().hex}"
    spark.sql(f"create table {table} using secure_parquet location '{folder}' "
              "options (plaintext 'true', partition_by 'day')")
    one.createOrReplaceTempView("one")
    other = {**PLAINTEXT, "partition_by": "day"}
    ways = {
        "format": lambda **options: write(one, folder, "overwrite", **other, **options),
        "write": lambda **options: secure_bloom.spark.write(
            one, folder, mode="overwrite", plaintext=True, partition_by="day", **options),
        "INSERT OVERWRITE": lambda: spark.sql(f"insert overwrite {table} select * from one"),
        "insertInto": lambda: one.write.insertInto(table, overwrite=True),
        "writeTo": lambda: one.writeTo(table).overwritePartitions()}
    try:
        for name, way in ways.items():
            with settings(spark, {MODE: "Dynamic"}), \
                    pytest.raises(Exception, match="dynamic overwrite"):
                way()
            assert ids(spark, folder) == [0, 1, 2, 3], name
        for name in ("format", "write"):
            with pytest.raises(Exception, match=REFUSED):
                ways[name](**{OPTION: "dynamic"})
        assert ids(spark, folder) == [0, 1, 2, 3]
        with settings(spark, {MODE: "dynamic"}):  # the option wins, as in Spark
            ways["format"](**{OPTION: "STATIC"})
            assert ids(spark, folder) == [0, 2]
            write(one, folder, "overwrite", **PLAINTEXT)  # in Spark, too, this replaces all
        ways["INSERT OVERWRITE"]()
        assert sorted(os.listdir(folder / "day=0")) and ids(spark, folder) == [0, 2]
    finally:
        spark.sql(f"drop table {table}")
        spark.catalog.dropTempView("one")


@pytest.mark.parametrize("engine", ["auto", "native"])
def test_sparks_own_writer_is_not_called(native_spark, tmp_path, keyring, engine):
    secure_bloom.spark.register(native_spark)
    frame = native_spark.range(4).selectExpr("id", "id % 2 as day")
    arguments = {"keys": str(keyring.path), "engine": engine, "partition_by": "day",
                 "encryption": secure_bloom.EncryptionConfiguration("footer", {"pii": ["id"]})}
    chosen = secure_bloom.spark.write(frame, tmp_path / "x", **arguments)
    assert chosen.name == "native"
    with settings(native_spark, {MODE: "dynamic"}), \
            pytest.raises(UnsupportedError, match=REFUSED):
        secure_bloom.spark.write(frame.where("day = 0"), tmp_path / "x", mode="overwrite",
                                 **arguments)
    assert len(os.listdir(tmp_path / "x" / "day=1")) > 0
