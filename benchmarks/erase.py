"""Erase one person from a folder of encrypted files with an index.

Compared with rewriting the one file that has the person, which pyarrow reads and ``write_table``
writes without them, and with Spark's own reader and writer, which read and write the whole folder.
``erase`` also finds the file, reads the footers of all others, forgets the person in the index, and
verifies that they are gone. ``found in the files``: it prunes all files twice instead of asking the
index. ``files of others``: files that were in plaintext first, so that nobody knows who has written
them, and all of their dictionaries are searched. Most files are hard links to a few, which changes
nothing for any contestant.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute as pc

import secure_bloom
from benchmarks.compare import Comparison, compare, table
from benchmarks.local_spark import NATIVE, session
from benchmarks.lookup import write_files
from benchmarks.people import FILTERS, SENSITIVE, encryption, keyring
from benchmarks.section import Plan, Section
from secure_bloom.keys import Keyring

FILES, ROWS, DISTINCT = 1_000, 20_000, 20
ONE_FILE, SPARK = "rewriting the one file", "Spark, whole folder"
WITH, WITHOUT = "erase, found by the index", "erase, found in the files"
OTHERS = "erase, files of others"
TARGETS = {ONE_FILE: 1 / 3, SPARK: 100}  #: how many times as fast as this


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    files, rows = plan.size(FILES, 10), plan.size(ROWS, 500)
    ring = keyring(plan.folder / "keyring.json")
    folder = plan.folder / "files"
    rounds = plan.rounds + 1
    others = plan.folder / "others"
    values = iter(_write(folder, files, rows, 3 * rounds + 2, ring))
    of_others = iter(_write(others, files, rows, rounds, ring, of_others=True))
    time.sleep(2)  # files that are younger are not indexed yet
    for one in (folder, others):
        secure_bloom.index.build(one, "ssn", ring)
    work = f"one person in {files:,} files x {rows:,} rows"
    comparisons = [compare(work, {
        ONE_FILE: lambda: _rewrite(plan.folder, ring),
        WITH: lambda: _erase(folder, values, ring, "require"),
        WITHOUT: lambda: _erase(folder, values, ring, "off"),
        OTHERS: lambda: _erase(others, of_others, ring, "require")}, plan.rounds)]
    spark = session()
    try:
        comparisons.append(compare(work, {
            SPARK: lambda: _by_spark(spark, folder),
            WITH: lambda: _erase(folder, values, ring, "require")}, 1))
    finally:
        spark.stop()
    return Section("\n".join([table(comparisons), "", *map(_target, comparisons)]),
                   [one.to_json() for one in comparisons])


def _write(folder: Path, files: int, rows: int, own: int, ring: Keyring, *,
           of_others: bool = False) -> list[str]:
    """Write the files, of which some are their own; return a number from each of these."""
    written = folder.with_name(f"written-{folder.name}")
    values = write_files(written, own + DISTINCT, rows, ring)
    if of_others:
        secure_bloom.decrypt(written, ring, plaintext=True)
        secure_bloom.encrypt(written, ring, encryption=encryption())
    folder.mkdir()
    for number in range(files):
        source = number if number < own else own + number % DISTINCT
        os.link(written / f"{source:05}.parquet", folder / f"{number:05}.parquet")
    for number in range(own):
        (written / f"{number:05}.parquet").unlink()
    return values[:own]


def _erase(folder: Path, values: Iterator[str], ring: Keyring, index: str) -> None:
    result = secure_bloom.erase(folder, "ssn", next(values), ring, index=index)
    if not result.ok or len(result.files) != 1:
        raise RuntimeError(f"nothing was erased: {result}")


def _rewrite(folder: Path, ring: Keyring) -> None:
    source = next((folder / "written-files").iterdir())
    rows = secure_bloom.read_table(source, ring)
    kept = rows.filter(pc.not_equal(rows["ssn"], rows["ssn"][len(rows) // 2]))
    secure_bloom.write_table(kept, folder / "rewritten.parquet", bloom_filters=FILTERS,
                             encryption=encryption(), keys=ring)


def _by_spark(spark, folder: Path) -> None:
    target = folder.with_name("by-spark")
    shutil.rmtree(target, ignore_errors=True)
    writer = spark.read.options(**NATIVE).parquet(str(folder)).where("ssn <> '000'").write
    writer.options(**NATIVE).options(**{
        "parquet.encryption.footer.key": "footer",
        "parquet.encryption.column.keys": f"pii:{','.join(SENSITIVE)}",
        **{f"parquet.bloom.filter.enabled#{name}": "true" for name in FILTERS},
    }).parquet(str(target))


def _target(comparison: Comparison) -> str:
    ratio, target = statistics.median(comparison.ratios(WITH)), TARGETS[comparison.peer]
    if target < 1:
        return f"- {1 / ratio:.1f} times the time of {comparison.peer} (target {1 / target:.0f})."
    return f"- {ratio:.0f} times as fast as {comparison.peer} (target {target})."
