"""Rows per second of ``secure_parquet``, compared with Spark's own encrypted Parquet writer.

Both write the same rows with the same encryption, filters and compression, from the same local
Spark. Spark's writer needs a KMS class written in Java, which is compiled here with javac. More
contestants show where the time goes: ``noop`` only produces the rows, ``to Python`` also passes
them to Python tasks, which discard them. One writes with an index of a column.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

import secure_bloom.spark
from benchmarks.compare import Comparison, compare, table
from benchmarks.local_spark import NATIVE, session
from benchmarks.people import keyring
from benchmarks.section import Plan, Section

LINEITEM = {"sensitive": ["l_orderkey", "l_partkey", "l_comment"],
            "filters": ["l_orderkey", "l_partkey", "l_suppkey"], "index": "l_partkey"}
PEOPLE = {"sensitive": ["ssn", "amt"], "filters": ["id", "ssn"], "index": "ssn"}
OURS, INDEXED = "secure_parquet", "secure_parquet, index"


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


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    folder = plan.folder
    spark = data_source_session(folder)
    tpch(folder, SCALE_FACTOR * plan.scale)
    lineitem = spark.read.parquet(str(folder / "tpch" / "lineitem.parquet"))
    crowd = people(spark, plan.size(ROWS, 1000))
    comparisons = [_compare("lineitem", lineitem, LINEITEM, folder, plan.rounds),
                   _compare("people", crowd, PEOPLE, folder, plan.rounds)]
    spark.stop()
    return Section(f"{table(comparisons)}\n\n{_text(comparisons)}",
                   [c.to_json() for c in comparisons])


def _text(comparisons: list[Comparison]) -> str:
    """Say what an index costs."""
    lines = []
    for one in comparisons:
        ratios = [indexed / ours for indexed, ours
                  in zip(one.seconds[INDEXED], one.seconds[OURS], strict=True)]
        lines.append(f"- {one.work}: with an index of one column, a write takes "
                     f"{100 * statistics.median(ratios) - 100:.0f} % longer (target 8 %).")
    return "\n".join(lines)


def _compare(work: str, frame: DataFrame, plan: dict, folder: Path, rounds: int) -> Comparison:
    rows = frame.count()
    options = {"parquet.encryption.footer.key": "footer",
               "parquet.encryption.column.keys": "pii: " + ", ".join(plan["sensitive"]),
               **{f"parquet.bloom.filter.enabled#{column}": "true" for column in plan["filters"]}}
    ours = options | {"keyring": str(folder / "keyring.json")}

    def saving(format_: str, **more: str) -> Callable[[], None]:
        target = folder / "out" / format_

        def save() -> None:
            shutil.rmtree(target, ignore_errors=True)
            writer = frame.write.format(format_).options(**more)
            writer.mode("append").save(str(target))
        return save

    return compare(f"{work}, {rows:,} rows", {
        "Spark": saving("parquet", **options, **NATIVE),
        OURS: saving("secure_parquet", **ours),
        INDEXED: saving("secure_parquet", **ours, index_columns=plan["index"]),
        "to Python": saving("to_python"),
        "noop": saving("noop"),
    }, rounds)


def data_source_session(folder: Path) -> SparkSession:
    """Start a session with ``secure_parquet``, and create a keyring in the folder."""
    keyring(folder / "keyring.json")
    spark = session(folder)
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
