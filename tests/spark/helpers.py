"""Helpers for the tests with a real Spark."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from secure_bloom import ParquetFile
from secure_bloom.keys.material import KeyMaterial
from secure_bloom.spark.options.conditions import NO_CONDITIONS
from secure_bloom.spark.options.options import Options

#: for modules whose tests need a Spark session, some without asking for it
uses_spark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

#: these tests run for seconds, so the JVM need not optimize fully
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

PLAINTEXT = {"plaintext": "true"}


def write(frame, folder, mode="append", **options):
    frame.write.format("secure_parquet").options(**options).mode(mode).save(str(folder))


def failure(action) -> str:
    """Return the message of the error that an action raises."""
    with pytest.raises(Exception) as caught:
        action()
    return str(caught.value)


def own_spark(program: str, *arguments, remote: bool = False, settings: Mapping[str, str] = {},
              **environment: str) -> subprocess.CompletedProcess:
    """Run a program in a process with a Spark of its own, as ``spark``; ``sys.argv`` has arguments.

    ``remote``: through Spark Connect, in a server that the process starts.
    """
    return subprocess.run(**_command(program, arguments, remote, settings, environment),
                          capture_output=True, text=True, timeout=300, check=False)


def start_spark(program: str, *arguments, log, **environment: str) -> subprocess.Popen:
    """Start such a program in a process session of its own."""
    with open(log, "w") as file:
        return subprocess.Popen(**_command(program, arguments, False, {}, environment),
                                stdout=file, stderr=file, start_new_session=True)


def _command(program, arguments, remote, settings, environment):
    all_settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1",
                    "spark.log.level": "OFF", "spark.driver.extraJavaOptions": QUICK_JVM,
                    **({} if remote else {"spark.master": "local[2]"}), **settings}
    return {"args": [sys.executable, "-c", _SESSION + program, json.dumps(all_settings),
                     "local[2]" if remote else "", *map(str, arguments)],
            "env": os.environ | {"PYSPARK_PYTHON": sys.executable,
                                 "PYTHONPATH": os.pathsep.join(sys.path)} | environment}


_SESSION = """
import json, os, sys
from pyspark.sql import SparkSession
builder, remote = SparkSession.builder, sys.argv[2]
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
del sys.argv[1:3]
spark = (builder.remote(remote) if remote else builder).getOrCreate()
"""


def refusal(schema, folder, overwrite=False, **options) -> str:
    """Return the message with which the driver refuses a write, before any task runs."""
    from secure_bloom.spark.source import SecureParquet
    with pytest.raises(Exception) as caught:
        SecureParquet({"path": str(folder), **options}).writer(schema, overwrite)
    assert visible(folder) == [] and staged(folder) == []
    return str(caught.value)


def read(spark, folder, **options):
    return spark.read.format("secure_parquet").options(**options).load(str(folder))


def rows_here(folder, schema=None, conditions=NO_CONDITIONS, **options) -> int:
    """Return how many rows a query reads; what Spark's processes do for it, this one does.

    A task that fails in Spark costs a process, and the next one imports everything again.
    """
    from secure_bloom.spark.source import SecureParquet
    source = SecureParquet({"path": str(folder), **options})
    schema = schema or source.schema()
    source.conditions = conditions
    reader = pickle.loads(pickle.dumps(source)).reader(schema)
    return sum(batch.num_rows for task in reader.partitions() for batch in reader.read(task))


def visible(folder) -> list[str]:
    """Return the names that readers see in a folder, sorted; empty if the folder does not exist."""
    if not os.path.isdir(folder):
        return []
    return sorted(name for name in os.listdir(folder) if name[0] not in "._")


def staged(folder) -> list[str]:
    """Return the files of jobs that are not, or not yet, visible."""
    return [name for _, _, names in os.walk(os.path.join(folder, "_staging")) for name in names]


def keys_of(folder, keyring) -> dict[str, str | None]:
    """Return the master key of each column: its own, that of the footer, or None."""
    found = {}
    for name in visible(folder):
        with ParquetFile(folder / name, keyring) as file:
            for chunk in file.footer.column_chunks():
                key = {None: None, "footer key": file.footer.footer_key_metadata,
                       "column key": chunk.key_metadata}[chunk.encryption]
                name = key and KeyMaterial.parse(key).master_key_id
                assert found.setdefault(chunk.column.path, name) == name
    return found


def people(spark, rows=100, start=0):
    """Return rows of ssn, city and id, in two partitions."""
    return spark.range(start, start + rows, 1, 2).selectExpr(
        "concat('ssn-', id) as ssn", "concat('city-', id % 10) as city", "id")


class Tasks:
    """A write whose tasks run in this process."""

    def __init__(self, spark, folder, options, monkeypatch):
        from secure_bloom.spark.writing import writer
        monkeypatch.setattr(writer, "task_context",
                            lambda: SimpleNamespace(partitionId=lambda: 0))
        self.frame = people(spark)
        self.writer = writer.SecureParquetWriter(Options({"path": str(folder), **options}),
                                                 self.frame.schema, False)

    def run(self):
        """Run one attempt of the only task."""
        return self.writer.write(iter(self.frame.toArrow().to_batches()))


def sent_to_tasks(monkeypatch, module, job):
    """Return what a job would send to Spark with ``module.run_tasks``: a function, and its tasks.
    """
    sent = []

    def run(spark, work, tasks):
        sent.extend((work, tasks))
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(module, "run_tasks", run)
        with pytest.raises(InterruptedError):
            job()
    return sent


@contextmanager
def settings(spark, values):
    """Change settings of a session temporarily."""
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in values:
            spark.conf.unset(name)


@contextmanager
def warnings_in_log(spark, name):
    """Collect what a logger of the driver's JVM writes, as one text that a function returns."""
    jvm = spark.sparkContext._jvm
    log4j = jvm.org.apache.logging.log4j
    writer = jvm.java.io.StringWriter()
    appender = log4j.core.appender.WriterAppender.createAppender(None, None, writer, name, False,
                                                                 True)
    appender.start()
    logger = log4j.LogManager.getLogger(name)
    log4j.core.config.Configurator.setLevel(name, log4j.Level.WARN)
    logger.addAppender(appender)
    try:
        yield writer.toString
    finally:
        logger.removeAppender(appender)
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
