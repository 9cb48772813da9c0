"""The tour's part with Spark."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from secure_bloom import ParquetFile
from secure_bloom.cli.demo.story import Code, Story, Tour
from secure_bloom.display import count
from secure_bloom.errors import installation
from secure_bloom.examples.flights import AIRCRAFT, ROW_GROUP_ROWS
from secure_bloom.keys import Keyring
from secure_bloom.policy import Policy


def write_and_read(tour: Tour) -> None:
    """Write and read the flights in a Spark session, if Spark and Java are installed."""
    story, output = tour.story, tour.output
    if missing := _missing():
        story.say(f"Skipped: {missing}")
        return
    story.say("The policy says by name what must be encrypted. A job that does not meet it fails. "
              "The files become visible together.")
    story.say(f"Starting Spark. Its log is {output / 'spark.log'}.")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # works without an activated venv too
    with _standard_error_to(output / "spark.log"):
        session = _session()
        try:
            _job(story, session, tour.flights, output / "flights-spark", tour.keyring)
        finally:
            session.stop()


def _missing() -> str | None:
    """What has to be installed first, if anything."""
    if importlib.util.find_spec("pyspark") is None:
        return f"PySpark is not installed. Run: {installation('spark')}"
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        return "Spark needs Java 17, and java is not on the PATH. Install it, or set JAVA_HOME."
    return None


def _session() -> Any:
    from pyspark.sql import SparkSession
    return (SparkSession.builder.master("local[2]").appName("secure_bloom demo")
            .config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
            .getOrCreate())


@contextlib.contextmanager
def _standard_error_to(path: Path) -> Iterator[None]:
    """Redirect Spark's log to a file: another process writes it, and inherits the descriptor."""
    kept = os.dup(2)
    with open(path, "wb") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _job(story: Story, session: Any, flights: pa.Table, folder: Path, keyring: Keyring) -> None:
    import secure_bloom.spark
    secure_bloom.spark.register(session)
    policy = Policy(footer_key="footer", columns={"tailnum": {"key": "pii", "bloom_filter": True}})
    story.add(Code(
        'policy = Policy(footer_key="footer", columns={"tailnum": {"key": "pii", '
        '"bloom_filter": True}})\n'
        'secure_bloom.spark.write(flights, "flights-spark", keys="keyring.json", policy=policy)\n'
        'secure_bloom.spark.read(spark, "flights-spark", keys="keyring.json", policy=policy,\n'
        f'                        filters=[("tailnum", "=", "{AIRCRAFT}")])'))
    frame = session.createDataFrame(flights).repartition(4, "month")
    keys, where = str(keyring.path.absolute()), str(folder.absolute())
    secure_bloom.spark.write(frame, where, mode="overwrite", keys=keys, policy=policy,
                             row_group_size=ROW_GROUP_ROWS)
    for path in sorted(folder.glob("*.parquet")):
        with ParquetFile(path, keyring) as file:
            filters = file.bloom_filters
            story.say(f"A file of {file.num_rows:,} rows, {count(len(filters), 'filter')}, "
                      f"{sum(info.encrypted for info in filters)} of them encrypted")
    read = secure_bloom.spark.read(session, where, keys=keys, policy=policy,
                                   filters=[("tailnum", "=", AIRCRAFT)])
    for row in read.select("carrier", "flight", "origin", "dest").collect():
        story.say(f"Found by Spark: {row.carrier} {row.flight} from {row.origin} to {row.dest}")
