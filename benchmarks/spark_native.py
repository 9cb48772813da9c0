"""``secure_bloom.spark.native`` compared with a KMS class in Java and with the data source.

All write the same rows with the same encryption, filters and compression, from the same local
Spark, and look up the same values in the same files. The KMS class is compiled here, with javac.
``native`` creates its options for each write. For lookups they are created once in advance, whereas
``native, new options`` creates them for each lookup and so opens all footers again. Times are CPU
seconds of Python, the JVM and all other processes, to reduce the influence of other work.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import secure_bloom.spark
from benchmarks.compare import Comparison, compare, cpu_time, table
from benchmarks.local_spark import NATIVE
from benchmarks.section import Plan, Section
from benchmarks.spark_write import (
    LINEITEM,
    PEOPLE,
    ROWS,
    SCALE_FACTOR,
    data_source_session,
    people,
    tpch,
)
from secure_bloom import EncryptionConfiguration
from secure_bloom.keys import Keyring
from secure_bloom.spark import native

FILES = 16
LOOKUPS = 4
ROW_GROUP = {"parquet.block.size": str(4 * 1024 * 1024)}  # several row groups per file


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    folder = plan.folder
    spark = data_source_session(folder)
    native.enable(spark)
    tpch(folder, SCALE_FACTOR * plan.scale)
    lineitem = spark.read.parquet(str(folder / "tpch" / "lineitem.parquet"))
    crowd = people(spark, plan.size(ROWS, 1000))
    how = {"rounds": plan.rounds, "clock": cpu_time}
    comparisons = [_writes("lineitem", lineitem, LINEITEM, folder, how),
                   _writes("people", crowd, PEOPLE, folder, how),
                   _lookups(spark, crowd, folder, how)]
    spark.stop()
    return Section(table(comparisons), [c.to_json() for c in comparisons])


def _writes(work: str, frame: DataFrame, plan: dict, folder: Path, how: dict) -> Comparison:
    return compare(f"write {work}, {frame.count():,} rows", {
        "Java KMS class": _saving(frame, "parquet", folder, lambda: _java_options(plan, folder)),
        "native": _saving(frame, "parquet", folder, lambda: _native_options(plan, folder)),
        "secure_parquet": _saving(frame, "secure_parquet", folder,
                                  lambda: _data_source_options(plan, folder)),
    }, **how)


def _saving(frame: DataFrame, format_: str, folder: Path,
            options: Callable[[], dict]) -> Callable[[], None]:
    target = folder / "out"

    def save() -> None:
        shutil.rmtree(target, ignore_errors=True)
        frame.write.format(format_).options(**options()).mode("append").save(str(target))
    return save


def _lookups(spark: SparkSession, crowd: DataFrame, folder: Path, how: dict) -> Comparison:
    """Look up existing values in unsorted files: filters can skip, statistics cannot."""
    path, keyring = str(folder / "people"), Keyring(folder / "keyring.json")
    crowd.repartition(FILES).write.options(**_native_options(PEOPLE, folder), **ROW_GROUP).parquet(
        path)
    wanted = [row.ssn for row in crowd.limit(LOOKUPS).collect()]
    known = native.read_options(path, kms=keyring)

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
            lambda ssn: natively(native.read_options(path, kms=keyring), ssn)),
        "secure_parquet": looking(lambda ssn: secure_bloom.spark.load(
            spark, path, [("ssn", "=", ssn)], keyring=str(folder / "keyring.json"))),
    }, **how)


def _native_options(plan: dict, folder: Path) -> dict[str, str]:
    return native.write_options(
        encryption=EncryptionConfiguration("footer", {"pii": plan["sensitive"]}),
        bloom_filters=dict.fromkeys(plan["filters"], True), kms=Keyring(folder / "keyring.json"))


def _java_options(plan: dict, folder: Path) -> dict[str, str]:
    filters = {name: value for name, value in _native_options(plan, folder).items()
               if name.startswith("parquet.bloom.filter")}
    return _policy(plan) | filters | NATIVE


def _data_source_options(plan: dict, folder: Path) -> dict[str, str]:
    filters = {f"parquet.bloom.filter.enabled#{column}": "true" for column in plan["filters"]}
    return _policy(plan) | filters | {"keyring": str(folder / "keyring.json")}


def _policy(plan: dict) -> dict[str, str]:
    return {"parquet.encryption.footer.key": "footer",
            "parquet.encryption.column.keys": "pii: " + ", ".join(plan["sensitive"])}
