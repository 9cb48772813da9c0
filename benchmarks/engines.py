"""Encrypted files asked by DuckDB, Polars and pyarrow, through our data set and through pyarrow's.

pyarrow's own data set of the same encrypted files cannot use Bloom filters; with it, an engine
decrypts and filters all row groups that statistics leave. ``lookup`` searches for one social
security number, another one in each round, in a data set that is open. ``full`` reads all rows, in
a stream. All files are in the page cache. Peak memory is that of a process that reads the stream,
minus its memory after imports.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds

import secure_bloom
from benchmarks.compare import Comparison, compare, table
from benchmarks.lookup import write_files
from benchmarks.people import keyring
from benchmarks.section import Plan, Section
from secure_bloom.keys import Keyring

SIZES = ((50, 250_000), (1000, 10_000))
COLUMNS = ["id", "ssn", "amt", "city"]


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    comparisons, memory = [], []
    for files, rows in SIZES:
        folder = plan.folder / str(files)
        folder.mkdir()
        files, rows = plan.size(files, 2), plan.size(rows, 1000)
        values = write_files(folder / "files", files, rows, keyring(folder / "keyring.json"))
        random.Random(1).shuffle(values)
        work = f"{files} files x {rows:,} rows"
        comparisons += [*_lookups(folder, values, work, plan.rounds),
                        *_full_scans(folder, work, plan.rounds)]
        peaks = {name: _peak(name, folder) for name in ("arrow_data_set", "our_data_set")}
        memory.append({"work": work, **peaks})
    lines = [f"- full, {one['work']}: {one['our_data_set'] / one['arrow_data_set']:.2f} times the "
             "peak memory of pyarrow's data set (target 1.2)." for one in memory]
    return Section(f"{table(comparisons)}\n\n" + "\n".join(lines),
                   {"times": [one.to_json() for one in comparisons], "memory": memory})


def our_data_set(folder: Path) -> ds.Dataset:
    """Open the encrypted files with secure_bloom."""
    return secure_bloom.dataset(folder / "files", Keyring(folder / "keyring.json"))


def arrow_data_set(folder: Path) -> ds.Dataset:
    """Open the encrypted files with pyarrow."""
    import pyarrow.parquet.encryption as pe

    from benchmarks.people import ArrowKms
    factory = pe.CryptoFactory(lambda _: ArrowKms(Keyring(folder / "keyring.json")))
    decryption = ds.ParquetDecryptionConfig(factory, pe.KmsConnectionConfig(),
                                            pe.DecryptionConfiguration(
                                                cache_lifetime=timedelta(days=1)))
    options = ds.ParquetFragmentScanOptions(decryption_config=decryption)
    opened = ds.dataset(folder / "files",
                        format=ds.ParquetFileFormat(default_fragment_scan_options=options))
    # DuckDB's scans hold Python's lock while they open files. A key that is not cached then would
    # wait for it for ever, since the KMS client is written in Python.
    opened.count_rows(filter=pc.field("ssn") == "")
    return opened


def _lookups(folder: Path, values: list[str], work: str, rounds: int) -> list[Comparison]:
    import polars as pl
    ours, arrows = our_data_set(folder), arrow_data_set(folder)
    frame = secure_bloom.scan(ours)
    ring = Keyring(folder / "keyring.json")
    asked = cycle(values)

    def found(count: Callable[[str], int]) -> Callable[[], None]:
        def ask() -> None:
            if not count(next(asked)):
                raise AssertionError("the number was not found")
        return ask

    def duckdb(people: ds.Dataset) -> Callable[[], None]:
        return found(lambda value: len(_duckdb(people, value)))

    return [
        compare(f"lookup, {work}", {
            "DuckDB, pyarrow's data set": duckdb(arrows), "DuckDB, our data set": duckdb(ours)},
            rounds),
        compare(f"lookup, {work}", {
            "Polars, pyarrow's data set": found(lambda value: pl.scan_pyarrow_dataset(
                arrows).filter(pl.col("ssn") == value).collect().height),
            "Polars, our scan": found(lambda value: frame.filter(
                pl.col("ssn") == value).collect().height)}, rounds),
        compare(f"lookup, {work}", {
            "read_table": found(lambda value: secure_bloom.read_table(
                folder / "files", ring, filters=[("ssn", "=", value)]).num_rows),
            "our data set, opened anew": found(lambda value: our_data_set(folder).to_table(
                filter=pc.field("ssn") == value).num_rows),
            "our data set": found(lambda value: ours.to_table(
                filter=pc.field("ssn") == value).num_rows)}, rounds)]


def _duckdb(people: ds.Dataset, value: str) -> list[Any]:
    import duckdb
    return duckdb.execute("SELECT * FROM people WHERE ssn = ?", [value]).fetchall()


def _full_scans(folder: Path, work: str, rounds: int) -> list[Comparison]:
    import polars as pl
    ours, arrows = our_data_set(folder), arrow_data_set(folder)
    plaintext = folder / "plaintext"
    plaintext.mkdir()
    for number, batch in enumerate(ours.get_fragments()):
        secure_bloom.write_table(batch.to_table(), plaintext / f"{number:05}.parquet")
    frame = secure_bloom.scan(ours)
    comparisons = [
        compare(f"full, {work}", {"pyarrow's data set": lambda: _read(arrows),
                                  "our data set": lambda: _read(ours)}, rounds),
        compare(f"full, {work}", {
            "Polars, plaintext files": lambda: pl.scan_parquet(plaintext).collect(),
            "Polars, our scan": lambda: frame.collect()}, rounds)]
    return comparisons


def _read(people: ds.Dataset) -> int:
    return sum(batch.num_rows for batch in people.to_batches(columns=COLUMNS))


def _peak(name: str, folder: Path) -> int:
    """Return the peak memory, in bytes, of a process that reads all rows as a stream.

    The process leaves without Python's finalization: a thread of pyarrow that then gives back its
    KMS client, a Python object, aborts the process.
    """
    code = (f"import os; from pathlib import Path; from benchmarks import engines\n"
            f"from benchmarks.memory import memory\n"
            f"import duckdb, polars, pyarrow.dataset\n"
            f"before = memory('VmHWM')\n"
            f"engines._read(engines.{name}(Path({str(folder)!r})))\n"
            f"print(memory('VmHWM') - before, flush=True)\nos._exit(0)")
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True,
                          cwd=Path(__file__).parent.parent)
    return max(1, int(done.stdout))  # 0 for files smaller than the imports
