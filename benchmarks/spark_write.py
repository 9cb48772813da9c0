"""Rows per second of ``secure_parquet``, compared with Spark's own encrypted Parquet writer.

Both write the same rows with the same encryption, filters and compression, from the same local
Spark. Spark's writer needs a KMS class written in Java, which is compiled here with javac.
Two more contestants show where the time goes: ``noop`` only produces the rows, ``to
Python`` also passes them to Python tasks, which discard them. One writes with an index of a column,
and one with batches that are limited by rows alone, so that Spark does not measure each row.

The first writes of the session are measured once: Spark's own, so that the JVM is warm, and then
that of ``secure_parquet``, which starts Spark's Python workers.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

import secure_bloom.spark
from benchmarks.compare import Comparison, compare, spread, table
from benchmarks.local_spark import NATIVE, session
from benchmarks.people import keyring
from benchmarks.section import Plan, Section
from secure_bloom.spark import native

LINEITEM = {"sensitive": ["l_orderkey", "l_partkey", "l_comment"],
            "filters": ["l_orderkey", "l_partkey", "l_suppkey"], "index": "l_partkey"}
PEOPLE = {"sensitive": ["ssn", "amt"], "filters": ["id", "ssn"], "index": "ssn"}
OURS, INDEXED = "secure_parquet", "secure_parquet, index"
UNMEASURED = "secure_parquet, no limit of bytes"
LIMIT, NO_LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch", str(2**31 - 1)


class ToPython(DataSource):
    """A data source that passes rows to Python tasks, which discard them."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "to_python"

    def writer(self, schema, overwrite) -> DataSourceArrowWriter:
        """See :class:`_Discard`."""
        return _Discard()


class _Discard(DataSourceArrowWriter):
    def write(self, iterator) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages) -> None:
        pass


SCALE_FACTOR, ROWS = 0.25, 2_000_000  #: of TPC-H, and of the table of people
FIRST_ROWS = 1_000_000
HANDING_TARGET, FIRST_TARGET = 1.2, 1.3


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    folder = plan.folder
    spark = data_source_session(folder)
    native.enable(spark)
    tpch(folder, SCALE_FACTOR * plan.scale)
    lineitem = spark.read.parquet(str(folder / "tpch" / "lineitem.parquet"))
    crowd = people(spark, plan.size(ROWS, 1000))
    first = _first(_contestants(people(spark, plan.size(FIRST_ROWS, 1000)), PEOPLE, folder))
    comparisons = [_compare("lineitem", lineitem, LINEITEM, folder, plan.rounds),
                   _compare("people", crowd, PEOPLE, folder, plan.rounds)]
    spark.stop()
    handing = [f"- {comparison.work}: secure_parquet takes {spread(ratios)['median']:.2f} times "
               f"as long as handing the rows to Python (target {HANDING_TARGET})."
               for comparison in comparisons if (ratios := [
                   own / peer for own, peer in zip(comparison.seconds["secure_parquet"],
                                                   comparison.seconds["to Python"], strict=True)])]
    lines = [*handing, *map(_cost, comparisons),
             f"- first write of a session, {plan.size(FIRST_ROWS, 1000):,} rows of "
             "people: Spark {:.1f} s, then secure_parquet {:.1f} s; its second write {:.1f} s "
             "(target: the first is at most {} times as long).".format(
                 *first["Spark"], *first["secure_parquet"], FIRST_TARGET)]
    return Section(table(comparisons) + "\n\n" + "\n".join(lines),
                   {"writes": [c.to_json() for c in comparisons], "first": first})


def _cost(comparison: Comparison) -> str:
    """Say what an index costs."""
    ratios = [indexed / ours for indexed, ours in zip(
        comparison.seconds[INDEXED], comparison.seconds[OURS], strict=True)]
    return (f"- {comparison.work}: with an index of one column, a write takes "
            f"{100 * statistics.median(ratios) - 100:.0f} % longer (target 8 %).")


def _first(contestants: dict[str, Callable[[], None]]) -> dict[str, list[float]]:
    """Return the times of the first writes of a session: Spark's own, then ours, twice."""
    times: dict[str, list[float]] = {"Spark": [], "secure_parquet": []}
    for name in ("Spark", "secure_parquet", "secure_parquet"):
        start = time.perf_counter()
        contestants[name]()
        times[name].append(time.perf_counter() - start)
    return times


def _compare(work: str, frame: DataFrame, plan: dict, folder: Path, rounds: int) -> Comparison:
    return compare(f"{work}, {frame.count():,} rows", _contestants(frame, plan, folder), rounds)


def _contestants(frame: DataFrame, plan: dict, folder: Path) -> dict[str, Callable[[], None]]:
    options = {"parquet.encryption.footer.key": "footer",
               "parquet.encryption.column.keys": "pii: " + ", ".join(plan["sensitive"]),
               **{f"parquet.bloom.filter.enabled#{column}": "true" for column in plan["filters"]}}
    keys = str(folder / "keyring.json")
    conf = frame.sparkSession.conf

    def without_limit(save: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            conf.set(LIMIT, NO_LIMIT)
            try:
                save()
            finally:
                conf.unset(LIMIT)
        return run

    def saving(format_: str, **more: str) -> Callable[[], None]:
        target = folder / "out" / format_

        def save() -> None:
            shutil.rmtree(target, ignore_errors=True)
            writer = frame.write.format(format_).options(**more)
            writer.mode("append").save(str(target))
        return save

    ours = saving("secure_parquet", **options, keys=keys)
    return {
        "Spark": saving("parquet", **options, **NATIVE),
        OURS: ours,
        UNMEASURED: without_limit(ours),
        INDEXED: saving("secure_parquet", **options, keys=keys, index_columns=plan["index"]),
        "to Python": saving("to_python"),
        "noop": saving("noop"),
    }


def data_source_session(folder: Path) -> SparkSession:
    """Start a session with ``secure_parquet``, and create a keyring in the folder."""
    keyring(folder / "keyring.json")
    spark = session()
    secure_bloom.spark.register(spark)
    spark.dataSource.register(ToPython)
    return spark


def tpch(folder: Path, scale: float) -> None:
    """Write TPC-H's lineitem table as a Parquet file in the folder."""
    program = Path(sys.executable).with_name("tpchgen-cli")
    subprocess.run([program, "parquet", "-s", f"{scale:g}", "--tables", "lineitem",
                    f"--output-dir={folder / 'tpch'}"], check=True, stdout=subprocess.DEVNULL)


def people(spark: SparkSession, rows: int) -> DataFrame:
    """Rows with ids, random social security numbers, amounts and cities."""
    return spark.range(rows).selectExpr(
        "id", "format_string('%09d', xxhash64(id) & 999999999) as ssn",
        "(xxhash64(id, 1) & 1048575) / 100.0D as amt",
        "concat('city ', xxhash64(id, 2) & 1023) as city")
