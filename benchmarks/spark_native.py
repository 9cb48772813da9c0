"""Lookups by ``secure_bloom.spark.native``, beside a KMS class in Java and the data source.

All look up the same values in the same files. The KMS class is compiled here, with javac. The
options of ``native`` are created once, whereas ``native, new options`` creates them for each lookup
and so opens all footers again. Times are CPU seconds of Python, the JVM and all other processes, to
reduce the influence of other work. ``spark_write`` compares writes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import secure_bloom.spark
from benchmarks.compare import Comparison, compare, cpu_time, table
from benchmarks.local_spark import NATIVE
from benchmarks.section import Plan, Section
from benchmarks.spark_write import PEOPLE, data_source_session, people
from secure_bloom import EncryptionConfiguration
from secure_bloom.keys import Keyring
from secure_bloom.spark import native

FILES, ROWS = 16, 1_000_000
LOOKUPS = 2
ROW_GROUP = {"parquet.block.size": str(4 * 1024 * 1024)}  # several row groups per file


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    spark = data_source_session(plan.folder)
    native.enable(spark)
    comparison = _lookups(spark, people(spark, plan.size(ROWS, 1000)), plan)
    spark.stop()
    return Section(table([comparison]), comparison.to_json())


def _lookups(spark: SparkSession, crowd: DataFrame, plan: Plan) -> Comparison:
    """Look up existing values in unsorted files: filters can skip, statistics cannot."""
    folder = plan.folder
    path, keyring = str(folder / "people"), Keyring(folder / "keyring.json")
    crowd.repartition(FILES).write.options(**_native_options(folder), **ROW_GROUP).parquet(path)
    wanted = [row.ssn for row in crowd.limit(LOOKUPS).collect()]
    known = native.read_options(path, keys=keyring)

    def looking(read: Callable[[str], DataFrame]) -> Callable[[], None]:
        def look() -> None:
            for ssn in wanted:
                assert read(ssn).count() > 0
        return look

    def natively(options: dict, ssn: str) -> DataFrame:
        return spark.read.options(**options).parquet(path).where(f"ssn = '{ssn}'")

    return compare(f"{LOOKUPS} lookups in {FILES} files, {crowd.count():,} rows", {
        "Java KMS class": looking(lambda ssn: natively(NATIVE, ssn)),
        "native": looking(lambda ssn: natively(known, ssn)),
        "native, new options": looking(
            lambda ssn: natively(native.read_options(path, keys=keyring), ssn)),
        "secure_parquet": looking(lambda ssn: secure_bloom.spark.read(
            spark, path, [("ssn", "=", ssn)], keys=str(folder / "keyring.json"))),
    }, plan.rounds, clock=cpu_time)


def _native_options(folder: Path) -> dict[str, str]:
    return native.write_options(
        encryption=EncryptionConfiguration("footer", {"pii": PEOPLE["sensitive"]}),
        bloom_filters=dict.fromkeys(PEOPLE["filters"], True), keys=Keyring(folder / "keyring.json"))
