"""A point lookup in a folder of encrypted files: one social security number among all rows.

The number is in one file, a different one in each round. ``warm`` is a process that has done a
lookup before, ``cold`` a new one: Python with its imports, or Spark with its session. Spark needs a
KMS class written in Java, which is compiled here. All files are in the page cache.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.compare import Comparison, compare, table
from benchmarks.people import FILTERS, encryption, keyring, people
from benchmarks.section import Plan, Section
from secure_bloom import read_table, write_table
from secure_bloom.keys import Keyring

if TYPE_CHECKING:  # imported lazily, because cold processes import this module
    from pyspark.sql import SparkSession

FILES, ROWS = 100, 1_000_000
OURS, SPARK, SCAN = "secure_bloom", "Spark, native", "pyarrow, scan"
TARGETS = {SPARK: 5, SCAN: 50}


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    from benchmarks.local_spark import session
    ring = keyring(plan.folder / "keyring.json")
    files, rows = plan.size(FILES, 2), plan.size(ROWS, 1000)
    values = write_files(plan.folder / "files", files, rows, ring)
    random.Random(1).shuffle(values)
    work = f"{files} files x {rows:,} rows"
    spark = session()
    warm = compare(f"warm, {work}", {
        name: partial(_ask, function, plan.folder, cycle(values)) for name, function in
        ((SCAN, scan), (SPARK, partial(_ask_spark, spark)), (OURS, lookup))}, plan.rounds)
    spark.stop()
    cold = compare(f"cold, {work}", {
        name: partial(_process, function, plan.folder, cycle(values))
        for name, function in ((SCAN, "scan"), (SPARK, "spark_lookup"), (OURS, "lookup"))},
        max(1, min(3, plan.rounds)))
    lines = [f"- {c.work}: {_times(c, peer):.1f} times as fast as {peer} (target {target})."
             for c in (warm, cold) for peer, target in TARGETS.items()]
    return Section(f"{table([warm, cold])}\n\n" + "\n".join(lines),
                   [warm.to_json(), cold.to_json()])


def write_files(folder: Path, files: int, rows: int, ring: Keyring) -> list[str]:
    """Write the files; return one number from each of them."""
    folder.mkdir()
    values = []
    for number in range(files):
        part = people(rows, seed=number)
        write_table(part, folder / f"{number:05}.parquet", bloom_filters=FILTERS,
                    encryption=encryption(), keys=ring, durable=False)
        values.append(part["ssn"][rows // 2].as_py())
    return values


def lookup(folder: Path, value: str) -> int:
    """Count the rows with a number, using secure_bloom."""
    ring = Keyring(folder / "keyring.json")
    return read_table(folder / "files", keys=ring, filters=[("ssn", "=", value)]).num_rows


def scan(folder: Path, value: str) -> int:
    """Do the same with pyarrow, which cannot use the filters."""
    import pyarrow.compute as pc
    import pyarrow.dataset as ds
    import pyarrow.parquet.encryption as pe

    from benchmarks.people import ArrowKms
    ring = Keyring(folder / "keyring.json")
    factory = pe.CryptoFactory(lambda _: ArrowKms(ring))
    decryption = ds.ParquetDecryptionConfig(factory, pe.KmsConnectionConfig(),
                                            pe.DecryptionConfiguration())
    options = ds.ParquetFragmentScanOptions(decryption_config=decryption)
    format_ = ds.ParquetFileFormat(default_fragment_scan_options=options)
    files = ds.dataset(folder / "files", format=format_)
    return files.to_table(filter=pc.field("ssn") == value).num_rows


def spark_lookup(folder: Path, value: str) -> int:
    """Do the same with Spark, including its start and shutdown."""
    from benchmarks.local_spark import session
    spark = session()
    found = _ask_spark(spark, folder, value)
    spark.stop()
    return found


def _ask_spark(spark: SparkSession, folder: Path, value: str) -> int:
    from benchmarks.local_spark import NATIVE
    files = spark.read.options(**NATIVE).parquet(str(folder / "files"))
    return len(files.where(files.ssn == value).collect())


def _ask(function: Callable[[Path, str], int], folder: Path, values: Iterator[str]) -> None:
    if not function(folder, next(values)):
        raise AssertionError("the number was not found")


def _process(function: str, folder: Path, values: Iterator[str]) -> None:
    value = next(values)
    code = (f"from pathlib import Path; from benchmarks.lookup import {function}; "
            f"assert {function}(Path({str(folder)!r}), {value!r})")
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", code], text=True,
                          capture_output=True, cwd=Path(__file__).parent.parent)
    if done.returncode:
        raise RuntimeError(f"{function} in a process of its own ended with {done.returncode}:\n"
                           + done.stderr)


def _times(comparison: Comparison, peer: str) -> float:
    return statistics.median(theirs / ours for theirs, ours in
                             zip(comparison.seconds[peer], comparison.seconds[OURS], strict=True))
