"""Jobs that fail, and tasks that are tried again, with a real Spark."""

import os
import subprocess
import sys

import pytest
from pyspark.sql import functions as F

from secure_bloom import read_table
from tests.spark.helpers import PLAINTEXT, QUICK_JVM, people, read, uses_spark, visible, write

pytestmark = uses_spark


def failing(frame):
    """The same rows, but the task of the last one fails after it has written others."""
    @F.udf("bigint")
    def fail(number):
        if number == 23_999:
            raise ValueError("this row is bad")
        return number

    return frame.withColumn("id", fail("id"))


def test_a_failed_job_leaves_nothing_visible(spark, tmp_path):
    folder = tmp_path / "people"
    with pytest.raises(Exception, match="this row is bad"):
        write(failing(people(spark, 24_000)), folder, **PLAINTEXT, row_group_size="1000")
    assert visible(folder) == []
    assert not (folder / "_SUCCESS").exists()


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_failed_job_leaves_old_data_as_it_was(spark, tmp_path, mode):
    write(people(spark, 10), tmp_path, **PLAINTEXT)
    before = {name: (tmp_path / name).read_bytes() for name in visible(tmp_path)}
    with pytest.raises(Exception, match="this row is bad"):
        write(failing(people(spark, 24_000)), tmp_path, mode, **PLAINTEXT)
    assert {name: (tmp_path / name).read_bytes() for name in visible(tmp_path)} == before
    assert (tmp_path / "_SUCCESS").exists()
    write(people(spark, 5, 10), tmp_path, **PLAINTEXT)  # and the next job works
    assert read(spark, tmp_path).count() == 15


RETRY = """
import sys
from pyspark import TaskContext
from pyspark.sql import SparkSession, functions as F
import secure_bloom.spark

folder = sys.argv[1]
spark = (SparkSession.builder.master("local[2,3]").config("spark.ui.enabled", "false")
         .config("spark.driver.host", "127.0.0.1").config("spark.log.level", "OFF")
         .config("spark.driver.extraJavaOptions", sys.argv[2]).getOrCreate())
secure_bloom.spark.register(spark)

@F.udf("bigint")
def fail_once(number):
    if number in (11_999, 23_999) and TaskContext.get().attemptNumber() == 0:
        raise ValueError("the first attempt fails at its last row")
    return number

frame = spark.range(0, 24_000, 1, 2).withColumn("id", fail_once("id"))
(frame.write.format("secure_parquet").option("plaintext", "true").option("row_group_size", "1000")
    .mode("append").save(folder))
"""


def test_a_task_that_is_tried_again_writes_its_rows_once(tmp_path):
    # Retries are a property of the master, so this needs a Spark of its own.
    result = subprocess.run([sys.executable, "-c", RETRY, str(tmp_path), QUICK_JVM],
                            capture_output=True, text=True, timeout=300,
                            env=os.environ | {"PYSPARK_PYTHON": sys.executable})
    assert result.returncode == 0, result.stderr
    assert len(visible(tmp_path)) == 2
    assert sorted(read_table(tmp_path)["id"].to_pylist()) == list(range(24_000))
