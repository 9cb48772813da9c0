"""Files in HDFS: a name node and a data node in one process, Hadoop's mini cluster."""

import os
import subprocess
import sys

import pytest

from tests.peers.fixtures import available
from tests.peers.hdfs import MiniHdfs
from tests.spark.helpers import own_spark

pytestmark = pytest.mark.fetched

PYTHON = """
import sys
import pyarrow as pa
import secure_bloom
from secure_bloom import EncryptionConfiguration, Keyring

lake, keyring = sys.argv[1:]
keys = Keyring.create(keyring, keys=["footer", "pii"])
numbers = range(1000)
people = pa.table({"id": numbers, "ssn": [f"{n:09d}" for n in numbers],
                   "day": [n % 2 for n in numbers]})
given = {"keys": keys, "encryption": EncryptionConfiguration("footer", {"pii": ["ssn"]}),
         "bloom_filters": ["ssn"], "index_columns": ["ssn"], "partition_by": ["day"]}

def found(*numbers):
    values = [f"{number:09d}" for number in numbers]
    return secure_bloom.find(lake, "ssn", values, keys, index="require").num_rows

secure_bloom.write_dataset(people, lake, **given)
secure_bloom.write_dataset(people, lake, mode="append", **given)
assert secure_bloom.read_table(lake, keys).num_rows == 2000 and found(7, 8) == 4
secure_bloom.write_dataset(people.slice(8, 1), lake, mode="overwrite_partitions", **given)
assert secure_bloom.read_table(lake, keys).num_rows == 1001 and found(7, 8, 10) == 3
assert len(secure_bloom.attach(lake, {"id": True}, keys).changed) == 3
result = secure_bloom.erase(lake, "ssn", ["000000007"], keys)
assert (result.rows_removed, result.ok, found(7)) == (2, True, 0)
secure_bloom.write_dataset(people, lake, mode="overwrite", **given)
assert secure_bloom.read_table(lake, keys).num_rows == 1000
print("done")
"""

SPARK = """
from pyspark.sql import functions as F
import secure_bloom.spark
from secure_bloom import EncryptionConfiguration

lake, keys = sys.argv[1:]
secure_bloom.spark.register(spark)
given = {"keys": keys, "encryption": EncryptionConfiguration("footer", {"pii": ["ssn"]}),
         "bloom_filters": ["ssn"], "index_columns": ["ssn"]}
people = spark.range(0, 4000, 1, 2).select(F.format_string("%09d", "id").alias("ssn"))

def stored():
    return secure_bloom.spark.read(spark, lake, keys=keys)

assert secure_bloom.spark.write(people, lake, **given).rows == 4000
assert stored().where("ssn = '000001234'").count() == 1
if spark.version >= "4.1":
    reading = secure_bloom.spark.read_stream(spark, lake, keys=keys)
    for _ in range(2):  # the second time, there is nothing new
        (reading.writeStream.format("secure_parquet").trigger(availableNow=True)
            .option("checkpointLocation", f"{lake}-checkpoint").options(**{
                "keys": keys, "parquet.encryption.footer.key": "footer",
                "parquet.encryption.column.keys": "pii: ssn"})
            .start(f"{lake}-copy").awaitTermination())
    assert secure_bloom.spark.read(spark, f"{lake}-copy", keys=keys).count() == 4000
assert secure_bloom.spark.build_index(spark, lake, "ssn", keys=keys).unchanged == 2
assert secure_bloom.spark.erase(spark, lake, "ssn", ["000001234"], keys=keys).rows_removed == 1
assert stored().count() == 3999
spark.stop()
"""


@pytest.fixture(scope="module")
def hdfs():
    with available(MiniHdfs, is_fetched=True) as one:
        yield one


def run(program, hdfs, *arguments):
    return subprocess.run([sys.executable, "-c", program, *map(str, arguments)],
                          env=os.environ | hdfs.environment, capture_output=True, text=True)


def test_python_writes_finds_and_erases(hdfs, tmp_path):
    done = run(PYTHON, hdfs, f"{hdfs.uri}/lake", tmp_path / "keys.json")
    assert done.stdout == "done\n", done.stderr[-3000:]


def test_spark_writes_streams_and_erases(hdfs, tmp_path, keyring):
    done = own_spark(SPARK, f"{hdfs.uri}/people", keyring.path, **hdfs.environment)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_server_that_does_not_answer_is_not_an_empty_folder(hdfs):
    """For pyarrow, a file does not exist if the server cannot say anything about it."""
    program = ("import secure_bloom\ntry: secure_bloom.read_table('hdfs://localhost:1/people')\n"
               "except OSError as error: print(error)")
    done = run(program, hdfs)
    assert done.stdout.startswith("HDFS does not answer")
