"""Helpers for the tests with a real Spark."""

import os
from contextlib import contextmanager

import pytest

from secure_bloom import ParquetFile
from secure_bloom.keys.material import KeyMaterial

#: for modules whose tests need a Spark session, some without asking for it
uses_spark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

#: these tests run for seconds, so the JVM need not optimize fully
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

PLAINTEXT = {"plaintext": "true"}


def write(frame, folder, mode="append", **options):
    frame.write.format("secure_parquet").options(**options).mode(mode).save(str(folder))


def read(spark, folder, **options):
    return spark.read.format("secure_parquet").options(**options).load(str(folder))


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
