"""Dynamic partition overwrite: what is replaced are the partitions for which there are rows."""

import os
import uuid

import pytest
from pyspark.sql import functions as F

import secure_bloom.spark
from tests.spark.helpers import (
    PLAINTEXT,
    failure,
    read,
    settings,
    staged,
    uses_spark,
    write,
)

pytestmark = uses_spark

MODE = "spark.sql.sources.partitionOverwriteMode"
OPTION = "partitionOverwriteMode"
BY_DAY = {**PLAINTEXT, "partition_by": "day"}


@pytest.fixture
def days(spark, tmp_path):
    """A folder with two days, and other rows of one of them."""
    write(spark.range(4).selectExpr("id", "id % 2 as day"), tmp_path / "days", **BY_DAY)
    return tmp_path / "days", spark.range(10, 12).selectExpr("id", "0L as day")


@pytest.fixture
def table(spark):
    name = f"t_{uuid.uuid4().hex}"
    yield name
    spark.sql(f"drop table if exists {name}")


def ids(folder):
    return sorted(secure_bloom.read_table(folder, columns=["id"])["id"].to_pylist())


def ways_with_options(folder):
    return {
        "format": lambda rows: write(rows, folder, "overwrite", **BY_DAY),
        "write": lambda rows: secure_bloom.spark.write(
            rows, folder, mode="overwrite", plaintext=True, partition_by="day")}


def ways_with_table(spark, table):
    def insert_overwrite(rows):
        rows.createOrReplaceTempView("one")
        spark.sql(f"insert overwrite {table} select * from one")

    return {
        "INSERT OVERWRITE": insert_overwrite,
        "insertInto": lambda rows: rows.write.insertInto(table, overwrite=True),
        "overwritePartitions": lambda rows: rows.writeTo(table).overwritePartitions()}


@pytest.mark.parametrize("clause", ["options (plaintext 'true', partition_by 'day')",
                                    "options (plaintext 'true') partitioned by (day)"])
def test_every_way_to_write_replaces_only_partitions_in_dynamic_mode(spark, days, table, clause):
    folder, _ = days
    spark.sql(f"create table {table} (id bigint, day bigint) using secure_parquet {clause} "
              f"location '{folder}'")
    ways = ways_with_table(spark, table) | (ways_with_options(folder)
                                            if "partitioned" in clause else {})
    for number, (name, way) in enumerate(ways.items(), 10):
        with settings(spark, {MODE: "Dynamic"}):
            way(spark.range(number, number + 2, 1, 1).selectExpr("id", "0L as day"))
        assert ids(folder) == [1, 3, number, number + 1], name
    assert staged(folder) == ["generation"]


def test_the_mode_may_be_an_argument_or_an_option(spark, days):
    folder, one = days
    summary = secure_bloom.spark.write(one, folder, mode="overwrite_partitions", plaintext=True,
                                       partition_by="day")
    assert (summary.rows, ids(folder)) == (2, [1, 3, 10, 11])
    none = one.where("id < 0")
    secure_bloom.spark.write(none, folder, mode="overwrite_partitions", plaintext=True,
                             partition_by="day")
    assert ids(folder) == [1, 3, 10, 11]  # no rows, no partition
    with settings(spark, {MODE: "dynamic"}):  # the option wins, as in Spark
        write(one, folder, "overwrite", **BY_DAY, **{OPTION: "STATIC"})
        assert ids(folder) == [10, 11]
        write(one, folder, "overwrite", **PLAINTEXT)  # in Spark, too, this replaces all
        assert ids(folder) == [10, 11] and os.listdir(folder / "day=0") == []
    with pytest.raises(ValueError, match="needs partition_by"):
        secure_bloom.spark.write(one, folder, mode="overwrite_partitions", plaintext=True)
    with pytest.raises(TypeError, match="also set by an argument"):
        secure_bloom.spark.write(one, folder, mode="overwrite_partitions", plaintext=True,
                                 partition_by="day", **{OPTION: "static"})


def test_static_mode_replaces_the_table(spark, days, table):
    folder, one = days
    spark.sql(f"create table {table} using secure_parquet options (plaintext 'true', "
              f"partition_by 'day') location '{folder}'")
    ways = ways_with_table(spark, table)
    ways["overwritePartitions"](one)  # says itself what it replaces
    assert ids(folder) == [1, 3, 10, 11]
    ways["INSERT OVERWRITE"](one)
    assert ids(folder) == [10, 11]


def test_insert_overwrite_replaces_the_partition_that_it_names(spark, days, table):
    folder, one = days
    one.createOrReplaceTempView("one")
    spark.sql(f"create table {table} (id bigint, day bigint) using secure_parquet "
              f"options (plaintext 'true') partitioned by (day) location '{folder}'")
    for number, (partition, rows, left) in enumerate([
            ("partition (day = 0)", "select id from one", [1, 3, 10, 11]),
            ("partition (day = '00')", "select id + 5 from one", [1, 3, 15, 16]),
            ("partition (day = 0)", "select id from one where false", [1, 3]),
            ("partition (day = 2)", "select id from one", [1, 3, 10, 11]),
            ("partition (day = null)", "select id + 10 from one", [1, 3, 10, 11, 20, 21]),
            ("partition (day = null)", "select id + 20 from one", [1, 3, 10, 11, 30, 31]),
            ("replace where day = 1", "select id + 30, 1 from one", [10, 11, 30, 31, 40, 41])]):
        verb = "into" if "replace" in partition else "overwrite"
        with settings(spark, {MODE: "dynamic" if number % 2 else "static"}):  # both name it
            spark.sql(f"insert {verb} {table} {partition} {rows}")
        assert ids(folder) == left, number
    assert "there are rows for day=3" in failure(
        lambda: spark.sql(f"insert into {table} replace where day = 2 select id, 3 from one"))
    assert ids(folder) == [10, 11, 30, 31, 40, 41]
    for empty, left in (("overwrite {} partition (day = 1)", [10, 11, 30, 31, 40, 41]),
                        ("into {} replace where day = 1", [10, 11, 30, 31])):
        with settings(spark, {MODE: "dynamic"}):
            columns = "id, 1" if "replace" in empty else "id"
            spark.sql(f"insert {empty.format(table)} select {columns} from one where false")
        assert ids(folder) == left, empty
    assert staged(folder) == ["generation"]


def test_a_partition_that_is_named_in_part_is_an_error_with_advice(spark, tmp_path, table):
    spark.sql(f"create table {table} (id int, day date, city string) using secure_parquet "
              f"options (plaintext 'true') partitioned by (day, city) location '{tmp_path / 't'}'")
    day = "day = date'2024-01-31'"
    for partition, rows in ((f"{day}, city = 'a b'", "values (1)"),
                            (f"{day}, city = 'c'", "values (2)"),
                            (f"city = 'a b', {day}", "values (3)")):
        spark.sql(f"insert overwrite {table} partition ({partition}) {rows}")
    for partition, values in ((day, "(4, 'c')"), (f"{day}, city", "(4, 'c')")):
        assert "PARTITION (day = ..., city = ...)" in failure(lambda partition=partition,
            values=values: spark.sql(f"insert overwrite {table} partition ({partition}) "
                                     f"values {values}"))
    for condition in ("id = 1", "day > date'2024-01-01'", f"{day} or city = 'c'"):
        assert "PARTITION (day = ..., city = ...)" in failure(
            lambda condition=condition: spark.table(table).writeTo(table).overwrite(
                F.expr(condition)))
    assert ids(tmp_path / "t") == [2, 3]


def test_a_table_whose_only_partition_is_overwritten_by_no_rows_can_be_read(spark, days, table):
    folder, _ = days
    spark.sql(f"create table {table} (id bigint, day bigint) using secure_parquet "
              f"options (plaintext 'true') partitioned by (day) location '{folder}'")
    for day, left in ((0, 2), (1, 0)):
        spark.sql(f"insert overwrite {table} partition (day = {day}) select 1 where false")
        assert read(spark, folder).count() == left


def test_partitions_with_other_columns_or_other_files_are_refused(spark, days):
    folder, one = days
    (folder / "day=0" / "photo.jpg").write_bytes(b"x")
    dynamic = {**PLAINTEXT, OPTION: "dynamic"}
    assert "photo.jpg: overwrite would delete this file" in failure(
        lambda: write(one, folder, "overwrite", **dynamic, partition_by="day"))
    assert "use the same columns" in failure(lambda: write(
        one.selectExpr("*", "id as hour"), folder, "overwrite", **dynamic, partition_by="hour"))
    (folder / "day=0" / "photo.jpg").rename(folder / "day=1" / "photo.jpg")
    write(one, folder, "overwrite", **dynamic, partition_by="day")
    assert os.path.exists(folder / "day=1" / "photo.jpg")
    os.remove(folder / "day=1" / "photo.jpg")
    assert ids(folder) == [1, 3, 10, 11]


def test_the_index_covers_what_has_replaced_a_partition(spark, days, tmp_path, keyring, encrypted):
    folder = tmp_path / "people"
    options = {"keys": keyring, "partition_by": "day", "index_columns": "ssn",
               "policy": secure_bloom.Policy(footer_key="footer", columns={"ssn": "pii"})}
    for start in (0, 100):
        frame = spark.range(start, start + 4).selectExpr("concat('ssn-', id) ssn", "id % 2 day")
        summary = secure_bloom.spark.write(frame.where("day = 0" if start else "true"), folder,
                                           mode="overwrite_partitions", **options)
        assert summary.indexed_columns == ["ssn"]
    back = secure_bloom.spark.read(spark, folder, keys=keyring, index="require")
    for ssn, found in (("ssn-1", 1), ("ssn-2", 0), ("ssn-102", 1), ("ssn-101", 0)):
        assert back.where(f"ssn = '{ssn}'").count() == found
