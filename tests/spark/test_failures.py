"""Failing jobs and retried tasks, with a real Spark."""

import os
import signal
import socket
import subprocess
import sys
import time

import pyspark
import pytest
from pyspark.sql import functions as F

from secure_bloom import read_table
from secure_bloom.storage.commit import Job
from tests.spark.helpers import (
    PLAINTEXT,
    Tasks,
    own_spark,
    people,
    staged,
    uses_spark,
    visible,
    write,
)

pytestmark = uses_spark


def failing(frame):
    """The same rows, but the task of the last one fails after it has written others."""
    @F.udf("bigint")
    def fail(number):
        if number == 239:
            raise ValueError("this row is bad")
        return number

    return frame.withColumn("id", fail("id"))


def test_a_failed_job_leaves_everything_as_it_was(spark, tmp_path):
    folder = tmp_path / "people"
    bad = failing(people(spark, 240))
    for mode in ("append", "overwrite"):  # a new folder, and one with files
        before = {name: (folder / name).read_bytes() for name in visible(folder)}
        with pytest.raises(Exception, match="this row is bad"):
            write(bad, folder, mode, **PLAINTEXT, row_group_size="10")
        assert {name: (folder / name).read_bytes() for name in visible(folder)} == before
        assert (folder / "_SUCCESS").exists() == bool(before)
        if not before:
            write(people(spark, 10), folder, **PLAINTEXT)
    write(people(spark, 5, 10), folder, **PLAINTEXT)  # and the next job works
    assert read_table(folder).num_rows == 15


def test_a_commit_that_cannot_be_recorded_publishes_nothing(spark, tmp_path, encrypted,
                                                            monkeypatch):
    def full(job, record):
        raise OSError("no space left on device")

    tasks = Tasks(spark, tmp_path / "t", encrypted, monkeypatch)
    reports = [tasks.run(), tasks.run()]
    monkeypatch.setattr(Job, "_write_record", full)
    with pytest.raises(OSError, match="no space left"):
        tasks.writer.commit(reports)
    tasks.writer.abort(reports)
    assert visible(tmp_path / "t") == [] and staged(tmp_path / "t") == ["generation"]


# What fails in the first attempt of the last task, or in the commit.
DRIVER = """
import signal, time
from pyspark import TaskContext
from secure_bloom.spark import source
from secure_bloom.spark.writing import writer

folder, keyring, fault = sys.argv[1:]

class Job(writer.Job):
    def _write_record(self, record):
        raise OSError("no space left on device")

class Writer(writer.SecureParquetWriter):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        if fault == "commit":
            self.job.__class__ = Job

    def write(self, iterator):
        return super().write(self.disturbed(iterator))

    def disturbed(self, iterator):
        task = TaskContext.get()
        for number, batch in enumerate(iterator):
            if number == 2 and task.partitionId() == 1 and task.attemptNumber() == 0:
                if fault == "error": raise ValueError("the first attempt fails")
                if fault == "killed": os.kill(os.getpid(), signal.SIGKILL)
                if fault == "slow": time.sleep(240)
            yield batch

class Source(source.SecureParquet):
    def writer(self, schema, overwrite):
        return Writer(self._given, schema, overwrite)

spark.dataSource.register(Source)
frame = spark.range(0, 60_000, 1, 2).selectExpr("id", "concat('secret-', id) as ssn")
(frame.write.format("secure_parquet").option("keys", keyring).option("row_group_size", "1000")
    .option("parquet.encryption.footer.key", "footer")
    .option("parquet.encryption.column.keys", "pii: ssn")
    .option("parquet.bloom.filter.enabled#ssn", "true").mode("append").save(folder))
"""


def run_driver(folder, keyring, fault, master, **settings) -> subprocess.CompletedProcess:
    """Write 60,000 rows in two tasks with a Spark of its own."""
    return own_spark(DRIVER, folder, keyring.path, fault,
                     settings={"spark.master": master, **settings})


def assert_all_rows_once(folder, keyring):
    assert len(visible(folder)) == 2
    table = read_table(folder, keys=keyring)
    assert sorted(table["id"].to_pylist()) == list(range(60_000))
    assert set(table["ssn"].to_pylist()) == {f"secret-{i}" for i in range(60_000)}


def assert_no_plaintext(folder):
    """Of the sensitive column, in any file, visible or not."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    assert paths
    assert not [path for path in paths if b"secret-" in path.read_bytes()]


@pytest.mark.parametrize("fault", ["error", "killed"])
@pytest.mark.sweep
def test_a_task_that_is_tried_again_writes_its_rows_once(tmp_path, keyring, fault):
    # Retries are configured in the master URL, so this needs its own Spark.
    folder = tmp_path / "people"
    result = run_driver(folder, keyring, fault, "local[2,3]")
    assert result.returncode == 0, result.stderr
    assert_all_rows_once(folder, keyring)
    assert_no_plaintext(folder)


@pytest.mark.sweep
def test_a_commit_that_fails_leaves_nothing(tmp_path, keyring):
    folder = tmp_path / "people"
    result = run_driver(folder, keyring, "commit", "local[2,3]")
    assert result.returncode == 1 and "no space left" in result.stderr
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["generation"]
    assert run_driver(folder, keyring, "none", "local[2,3]").returncode == 0
    assert_all_rows_once(folder, keyring)
    assert_no_plaintext(folder)


# --- speculation ---------------------------------------------------------------------------------

@pytest.fixture
def cluster(tmp_path):
    """The address of a standalone master with two workers, which are on hosts of their own."""
    home = os.path.dirname(pyspark.__file__)
    processes = []
    env = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": home,
                        "PYTHONPATH": os.pathsep.join(sys.path),
                        "SPARK_LOCAL_DIRS": str(tmp_path / "local")}

    def start(name, *arguments):
        log = open(tmp_path / f"{len(processes)}.log", "w")  # noqa: SIM115 - closed at the end
        processes.append((subprocess.Popen(
            [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{name}", *arguments],
            env=env, stdout=log, stderr=log, start_new_session=True), log))

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    start("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
    for host in ("127.0.0.2", "127.0.0.3"):
        start("worker.Worker", "--host", host, "--webui-port", "0", "--cores", "2",
              "--memory", "1g", "--work-dir", str(tmp_path / host), url)
    try:
        yield url
    finally:
        for process, log in reversed(processes):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            log.close()


@pytest.mark.sweep
def test_a_task_that_is_also_run_elsewhere_writes_its_rows_once(tmp_path, keyring, cluster):
    folder = tmp_path / "people"
    start = time.monotonic()
    result = run_driver(folder, keyring, "slow", cluster, **{
        "spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.speculation": "true",
        "spark.speculation.interval": "200ms", "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.01", "spark.speculation.minTaskRuntime": "1s",
        "spark.speculation.efficiency.enabled": "false"})
    assert result.returncode == 0, result.stderr
    assert time.monotonic() - start < 240  # so the speculative copy won
    assert_all_rows_once(folder, keyring)
    assert_no_plaintext(folder)
