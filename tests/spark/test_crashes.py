"""Killed drivers, each with its own Spark, and writing to S3."""

import contextlib
import os
import signal
import time

import pytest

from secure_bloom import ParquetFile, read_table
from secure_bloom.spark import last_commit
from secure_bloom.storage.visibility import data_files
from tests.spark.helpers import PLAINTEXT, people, read, start_spark, uses_spark, write
from tests.storage.s3 import BUCKET

pytestmark = uses_spark

# The commit runs in a Python worker of the driver; it stops before or after the commit point.
DRIVER = """
import time
from pyspark.sql import functions as F
from secure_bloom.spark import source
from secure_bloom.spark.writing import writer

folder, moment, mode = sys.argv[1:]

class Job(writer.Job):
    def _write_record(self, record):
        if moment == "before": wait()
        super()._write_record(record)
    def finish(self, record):
        if moment == "after": wait()
        super().finish(record)

def wait():
    open(os.environ["WAITS"], "w").close()
    time.sleep(240)

@F.udf("bigint")
def slowly(number):
    if moment == "task" and number == 39_999: wait()
    return number

class Writer(writer.SecureParquetWriter):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.job.__class__ = Job

class Source(source.SecureParquet):
    def writer(self, schema, overwrite):
        return Writer(self._given, schema, overwrite)

spark.dataSource.register(Source)
frame = spark.range(20_000, 40_000, 1, 2).withColumn("id", slowly("id"))
(frame.write.format("secure_parquet").option("plaintext", "true").option("row_group_size", "1000")
    .mode(mode).save(folder))
"""


def kill_driver(folder, moment, mode, tmp_path):
    """Run the driver until it waits, then kill it with all its processes."""
    waits, log = tmp_path / "waits", tmp_path / "log"
    process = start_spark(DRIVER, folder, moment, mode, log=log, WAITS=str(waits))
    try:
        end = time.time() + 240
        while not waits.exists():
            assert process.poll() is None and time.time() < end, log.read_text()
            time.sleep(0.1)
    finally:
        kill_session(process.pid)
        process.wait()


def kill_session(leader):
    """Kill a process and its children; Spark's workers are in process groups of their own."""
    for number in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(int(number)) == leader:
                os.kill(int(number), signal.SIGKILL)


@pytest.mark.sweep
@pytest.mark.parametrize("where", ["local", "s3"])
@pytest.mark.parametrize("moment, mode", [("task", "append"), ("before", "overwrite"),
                                          ("after", "overwrite")])
def test_a_driver_that_is_killed(spark, s3, tmp_path, where, moment, mode):
    if where == "local":
        folder = str(tmp_path / "t")
        filesystem, path = None, folder
    else:
        filesystem, path = s3.filesystem_of(), f"{BUCKET}/{tmp_path.name}-{moment}"
        folder = s3.uri(path.removeprefix(f"{BUCKET}/"))
    write(spark.range(10), folder, **PLAINTEXT)
    kill_driver(folder, moment, mode, tmp_path)
    expected = list(range(20_000, 40_000)) if moment == "after" else list(range(10))

    def ids():
        return sorted(read_table(path, filesystem=filesystem)["id"].to_pylist())

    assert ids() == expected
    assert read(spark, folder).count() == len(expected)
    write(spark.range(100, 105), folder, **PLAINTEXT)
    assert ids() == sorted([*expected, *range(100, 105)])
    assert last_commit(path, filesystem).rows == 5


# --- S3 ------------------------------------------------------------------------------------------

def test_write_to_s3_and_read_back(spark, s3, tmp_path, keyring, encrypted):
    name = f"{tmp_path.name}-people"
    uri, path, filesystem = s3.uri(name), f"{BUCKET}/{name}", s3.filesystem_of()
    options = encrypted | {"parquet.bloom.filter.enabled#ssn": "true",
                           "parquet.bloom.filter.enabled#city": "true"}
    write(people(spark), uri, **options)
    write(people(spark, 50, 100), uri, **options)
    assert read(spark, uri, keys=str(keyring.path)).count() == 150
    found = read_table(path, keys=keyring, filesystem=filesystem,
                       filters=[("ssn", "==", "ssn-77")])
    assert found["id"].to_pylist() == [77]
    write(people(spark, 7), uri, "overwrite", **options)
    assert read_table(path, keys=keyring, filesystem=filesystem).num_rows == 7
    summary = last_commit(uri)
    assert (summary.files, summary.rows) == (2, 7)
    assert (summary.encrypted_filters, summary.plain_filters) == (2, 2)
    files = data_files(filesystem, path)
    parsed = [ParquetFile(file, keyring, filesystem=filesystem) for file in files]
    assert summary.bytes == sum(filesystem.get_file_info(file).size for file in files)
    assert sum(info.num_bytes for file in parsed for info in file.bloom_filters) \
        < summary.filter_bytes < summary.bytes
