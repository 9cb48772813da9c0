"""Many small encrypted files: written one by one or as a data set, and searched for one value.

Each file has 2,000 rows of three columns, and one filter. pyarrow writes the same files without
filters, with one key factory for all of them. ``durable`` files are synced to the disk one by one,
which pyarrow omits; the files of a data set are synced together, before they become visible. Files
in memory have four columns and two filters. All times are CPU times.
"""

from __future__ import annotations

import io
import itertools
import random
import shutil
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle
from pathlib import Path

import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

from benchmarks.compare import Comparison, compare, table
from benchmarks.lookup import lookup, scan, write_files
from benchmarks.people import FILTERS, SENSITIVE, ArrowKms, encryption, keyring, people
from benchmarks.section import Plan, Section
from secure_bloom import write_dataset, write_table
from secure_bloom.keys import Keyring

ROWS, WRITTEN, SEARCHED = 2_000, 200, 1_000
PEER, JOB, ONE, DURABLE = ("pyarrow, no filters", "write_dataset",
                           "write_table, not durable", "write_table")
MEMORY = "write_table, to memory"
SCAN, OURS = "pyarrow, scan", "read_table"
_compare = partial(compare, clock=time.process_time)


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    written = _write(plan, plan.size(WRITTEN, 4))
    in_memory = _write_to_memory(plan, plan.size(WRITTEN, 4))
    searched = _search(plan, plan.size(SEARCHED, 4))
    lines = [f"- {one.work}: {name} takes {_cost(one, name):.2f} times as long as pyarrow "
             f"(target {target})." for one, name, target in (
                 (written, JOB, "2"), (written, ONE, "2"), (written, DURABLE, "2"),
                 (in_memory, MEMORY, "1.7"))]
    ratio = statistics.median(searched.ratios(OURS))
    lines.append(f"- {searched.work}: {ratio:.1f} times as fast as pyarrow (target 4).")
    comparisons = [written, in_memory, searched]
    return Section(f"{table(comparisons)}\n\n" + "\n".join(lines),
                   [one.to_json() for one in comparisons])


def _write(plan: Plan, files: int) -> Comparison:
    ring = keyring(plan.folder / "keyring.json")
    rows = people(ROWS).select(["id", "ssn", "amt"])
    all_rows = people(ROWS * files).select(["id", "ssn", "amt"])
    new_properties = _properties(ring)
    folders = (plan.folder / f"written-{number}" for number in itertools.count())

    def each(write) -> None:
        folder = next(folders)
        folder.mkdir()
        for number in range(files):
            write(folder / f"{number}.parquet")
        shutil.rmtree(folder)

    def theirs(path: Path) -> None:
        with pq.ParquetWriter(path, rows.schema, encryption_properties=new_properties()) as writer:
            writer.write_table(rows)

    def job() -> None:
        folder = next(folders)
        write_dataset(all_rows, folder, max_rows_per_file=ROWS, bloom_filters={"ssn": True},
                      encryption=encryption(), keys=ring)
        shutil.rmtree(folder)

    ours = partial(write_table, rows, bloom_filters={"ssn": True}, encryption=encryption(),
                   keys=ring)
    return _compare(f"write {files:,} files, CPU", {
        PEER: partial(each, theirs), JOB: job,
        ONE: partial(each, partial(ours, durable=False)), DURABLE: partial(each, ours)},
        plan.rounds)


def _write_to_memory(plan: Plan, files: int) -> Comparison:
    ring = Keyring(plan.folder / "keyring.json")
    rows, new_properties = people(ROWS), _properties(ring)

    def theirs() -> None:
        for _ in range(files):
            with pq.ParquetWriter(io.BytesIO(), rows.schema,
                                  encryption_properties=new_properties()) as writer:
                writer.write_table(rows)

    def ours() -> None:
        for _ in range(files):
            write_table(rows, io.BytesIO(), bloom_filters=FILTERS, encryption=encryption(),
                        keys=ring)

    return _compare(f"write {files:,} files to memory, 2 filters, CPU",
                    {PEER: theirs, MEMORY: ours}, plan.rounds)


def _properties(ring: Keyring) -> Callable[[], pe.FileEncryptionProperties]:
    """Return a function that makes pyarrow's encryption properties for one file."""
    factory = pe.CryptoFactory(lambda _: ArrowKms(ring))
    configuration = pe.EncryptionConfiguration("footer", column_keys={"pii": SENSITIVE})
    return lambda: factory.file_encryption_properties(pe.KmsConnectionConfig(), configuration)


def _search(plan: Plan, files: int) -> Comparison:
    ring = Keyring(plan.folder / "keyring.json")
    values = write_files(plan.folder / "files", files, ROWS, ring)
    random.Random(1).shuffle(values)
    asked = cycle(values)

    def found(search) -> None:
        if not search(plan.folder, next(asked)):
            raise AssertionError("the number was not found")

    return _compare(f"find a value in {files:,} files, CPU",
                    {SCAN: partial(found, scan), OURS: partial(found, lookup)}, plan.rounds)


def _cost(comparison: Comparison, name: str) -> float:
    return 1 / statistics.median(comparison.ratios(name))
