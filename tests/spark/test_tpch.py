"""Real tables: point queries on encrypted TPC-H data, against plain Spark on the source."""

import random
import subprocess
import sys
from collections.abc import Callable
from functools import reduce
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import secure_bloom.spark
from tests.spark.helpers import uses_spark, write

pytestmark = uses_spark

# Columns of the point queries, and whether they are sensitive.
ASKED = {"customer": {"c_phone": True, "c_name": True, "c_address": True, "c_custkey": False},
         "lineitem": {"l_orderkey": False, "l_shipdate": False, "l_comment": True}}


@pytest.fixture(scope="module")
def tpch(tmp_path_factory) -> Path:
    """The tables of scale factor 0.01, as tpchgen-cli writes them."""
    folder = tmp_path_factory.mktemp("tpch")
    program = Path(sys.executable).with_name("tpchgen-cli")
    subprocess.run([program, "parquet", "-s", "0.01", "--tables", ",".join(ASKED),
                    f"--output-dir={folder}"], check=True, stdout=subprocess.DEVNULL)
    return folder


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.sweep
def test_point_queries_find_what_plain_spark_finds(spark, tpch, keyring, tmp_path, name):
    source = spark.read.parquet(str(tpch / f"{name}.parquet"))
    columns = ASKED[name]
    sensitive = ", ".join(column for column, is_sensitive in columns.items() if is_sensitive)
    folder = tmp_path / name
    write(source.repartition(3), folder, keys=str(keyring.path), row_group_size="5000",
          **{"parquet.encryption.footer.key": "footer",
             "parquet.encryption.column.keys": f"pii: {sensitive}"},
          **{f"parquet.bloom.filter.enabled#{column}": "true" for column in columns})

    def encrypted(column: str, value) -> DataFrame:
        return secure_bloom.spark.read(spark, str(folder), filters=[(column, "=", value)],
                                       keys=str(keyring.path))

    def plain(column: str, value) -> DataFrame:
        return source.where(F.col(column) == F.lit(value))

    queries = [query for column in columns for query in point_queries(tpch, name, column)]
    assert len(queries) >= 100
    for start in range(0, len(queries), 25):
        some = queries[start:start + 25]
        assert answers(encrypted, some) == answers(plain, some)


def point_queries(tpch: Path, name: str, column: str) -> list[tuple[str, object]]:
    """Values that are there, and some that are not."""
    values = pq.read_table(tpch / f"{name}.parquet", columns=[column])[column].to_pylist()
    chosen = random.Random(f"{name} {column}").sample(values, 30)
    absent = {str: lambda value: f"{value}?", int: lambda value: -1 - value}
    change = absent.get(type(chosen[0]))
    return [(column, value) for value in chosen] \
        + [(column, change(value)) for value in chosen[:8] if change]


def answers(query: Callable[..., DataFrame], queries: list[tuple[str, object]]) -> list[str]:
    """The rows of all queries, with the number of the query; one job for all."""
    frames = [query(*asked).withColumn("query", F.lit(number))
              for number, asked in enumerate(queries)]
    return sorted(map(str, reduce(DataFrame.unionAll, frames).collect()))
