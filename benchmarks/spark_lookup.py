"""One person in many small encrypted files: ``secure_bloom.spark.read`` beside plain Python.

The peer is ``read_table`` with the same filter, in the driver's process. ``load`` runs without and
with the index of the table. ``where`` has the filter as a condition of the query, instead of
argument ``filters``; ``where again`` uses the same DataFrame each time. ``noop`` is a Python data
source of one row, so it shows what Spark itself takes for a query that reads from Python. The first
lookup of the session, which starts Spark's Python workers, is measured once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import secure_bloom
import secure_bloom.spark
from benchmarks.compare import compare, spread, table
from benchmarks.local_spark import session
from benchmarks.people import FILTERS, encryption, keyring, people
from benchmarks.section import Plan, Section
from secure_bloom.index import build

FILES, ROWS = 1000, 2000
TARGETS = {"load": 0.7, "load, index": 0.3}  # seconds
FIRST_TARGET = 4.0
WHERE_TARGET = 1.2


class OneRow(DataSource):
    """A data source of one row, made by one Python task."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "one_row"

    def schema(self) -> str:
        """One column."""
        return "id long"

    def reader(self, schema) -> DataSourceReader:
        """See :class:`_OneRow`."""
        return _OneRow()


class _OneRow(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"id": [1]})


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    files = plan.size(FILES, 10)
    folder = plan.folder / "people"
    ring = _write(plan.folder, folder, files)
    wanted = people(ROWS, seed=files // 2)["ssn"][7].as_py()
    filters, condition = [("ssn", "=", wanted)], f"ssn = '{wanted}'"
    spark = session()
    secure_bloom.spark.register(spark)
    spark.dataSource.register(OneRow)

    def load(**options: str) -> None:
        found = secure_bloom.spark.read(spark, folder, filters=filters, keys=str(ring), **options)
        assert found.collect()

    def where(**options: str) -> None:
        everyone = secure_bloom.spark.read(spark, folder, keys=str(ring), **options)
        assert everyone.where(condition).collect()

    start = time.perf_counter()
    load(index="off")
    first = time.perf_counter() - start
    build(folder, "ssn", keys=str(ring))
    again = secure_bloom.spark.read(spark, folder, keys=str(ring), index="off")
    comparison = compare(f"one person in {files:,} files of {ROWS:,} rows", {
        "read_table": lambda: secure_bloom.read_table(folder, str(ring), filters=filters,
                                                      index="off"),
        "load": lambda: load(index="off"),
        "where": lambda: where(index="off"),
        "where again": lambda: again.where(condition).collect(),
        "load, index": lambda: load(index="require"),
        "where, index": lambda: where(index="require"),
        "noop": lambda: spark.read.format("one_row").load().collect(),
    }, plan.rounds)
    spark.stop()
    of = {name: spread(seconds)["median"] for name, seconds in comparison.seconds.items()}
    lines = [f"- {name}: {of[name]:.2f} s (target {target} s)."
             for name, target in TARGETS.items()]
    lines += [f"- {name}: {of[name] / of[peer]:.2f} times as long as {peer} (target at most "
              f"{WHERE_TARGET})." for name, peer in (("where", "load"),
                                                     ("where, index", "load, index"))]
    lines.append(f"- first lookup of the session: {first:.1f} s (target {FIRST_TARGET:g} s).")
    return Section(table([comparison]) + "\n\n" + "\n".join(lines),
                   {**comparison.to_json(), "first": first})


def _write(base: Path, folder: Path, files: int) -> Path:
    ring = keyring(base / "keyring.json")
    folder.mkdir()
    for number in range(files):
        secure_bloom.write_table(people(ROWS, seed=number), folder / f"{number:05}.parquet",
                                 bloom_filters=FILTERS, encryption=encryption(), keys=ring)
    return base / "keyring.json"
