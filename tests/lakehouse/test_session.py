"""Spark writes and reads tables of both formats in one session."""

import pytest


@pytest.mark.parametrize(("format", "name"), [("iceberg", "iceberg.db.tried"),
                                              ("delta", "default.tried")])
def test_tables_without_keys(spark, format, name):
    spark.range(100).writeTo(name).using(format).create()
    assert spark.table(name).where("id = 7").count() == 1
    spark.sql(f"DROP TABLE {name}")
