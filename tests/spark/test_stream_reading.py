"""A folder read as a stream: each file once, whatever happens to it; without Spark's engine."""

import json
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from secure_bloom import Policy, attach, encrypt, erase, write_dataset
from secure_bloom.errors import (
    AuthenticationError,
    ChangedMeanwhileError,
    CommitError,
    FormatError,
    OptionError,
    UnsupportedError,
)
from secure_bloom.keys import rotate_master_keys
from secure_bloom.spark.reading import seen_files
from secure_bloom.spark.source import SecureParquet

ID = StructType([StructField("id", LongType())])


class Query:
    """What Spark does with a source: ask for positions, store them, plan and read batches."""

    def __init__(self, folder, checkpoint, schema=ID, **options):
        self.options = {"path": str(folder), "checkpointlocation": str(checkpoint), **options}
        self.schema, self.positions = schema, []
        self.start()

    def start(self, available_now=False):
        """Start, or start again after the process was killed."""
        source = SecureParquet(self.options)
        self.reader = source.streamReader(self.schema)
        self.positions = self.positions or [stored(self.reader.initialOffset())]
        if available_now:
            self.reader.prepareForTriggerAvailableNow()

    def next(self):
        """Return the rows of the next batch; None if there is none."""
        position = stored(self.reader.latestOffset(self.positions[-1],
                                                   self.reader.getDefaultReadLimit()))
        if position == self.positions[-1]:
            return None
        self.positions.append(position)
        return self.repeat()

    def repeat(self, number=-1):
        """Return the rows of a batch that was planned before."""
        tasks = self.reader.partitions(self.positions[number - 1], self.positions[number])
        return read(self.reader, tasks)

    def rest(self):
        return list(iter(self.next, None))


def read(reader, tasks):
    return sorted(row for task in tasks for batch in reader.read(task)
                  for row in batch.column("id").to_pylist())


def stored(position):
    return json.loads(json.dumps(position))


def add(folder, *ids, **options):
    """Add a file, as one commit."""
    return write_dataset(pa.table({"id": list(ids)}), folder, mode="append", **options).files


@pytest.fixture
def table(tmp_path):
    add(tmp_path / "t", 1)
    return tmp_path / "t"


@pytest.fixture
def query(table, tmp_path):
    return Query(table, tmp_path / "cp", maxfilespertrigger="1")


def files(folder):
    return sorted(path for path in folder.rglob("*.parquet") if "_staging" not in path.parts)


def test_commits_in_order_each_file_once(table, query):
    for number in range(2, 12):
        add(table, number)
    assert query.rest() == [[number] for number in range(1, 12)]
    add(table, 12)
    query.start()  # with nothing in memory
    assert query.rest() == [[12]]
    query.options["maxfilespertrigger"] = "3"
    for number in range(20, 25):
        add(table, number)
    query.start(available_now=True)
    add(table, 99)  # later than the query
    assert query.rest() == [[20, 21, 22], [23, 24]]


def test_a_repeated_batch_has_the_same_files(table, query):
    add(table, 2)
    assert [query.next(), query.next()] == [[1], [2]]
    add(table, 3)
    query.start()
    assert [query.repeat(), query.repeat(-2)] == [[2], [1]]
    query.positions.pop()  # Spark did not store it
    query.start()
    assert query.rest() == [[2], [3]]


def test_files_of_one_commit_stay_together(tmp_path):
    folder = tmp_path / "t"
    for start in (0, 100, 200):
        write_dataset(pa.table({"id": range(start, start + 50)}), folder, mode="append",
                      max_rows_per_file=10)
    query = Query(folder, tmp_path / "cp", maxfilespertrigger="5")
    assert query.rest() == [list(range(start, start + 50)) for start in (0, 100, 200)]


def test_times_of_files_do_not_matter(table, query):
    """Such as of files that were written elsewhere, long ago, and arrive late."""
    assert query.rest() == [[1]]
    path = table / "late.parquet"
    pq.write_table(pa.table({"id": [2]}), path)
    os.utime(path, (0, 0))
    os.utime(files(table)[-1], (2**33, 2**33))
    assert query.rest() == [[2]]


def test_replaced_files_are_not_delivered_again(table, query, tmp_path):
    pq.write_table(pa.table({"id": [2, 3]}), table / "other.parquet")
    assert sorted(query.rest()) == [[1], [2, 3]]
    for path in files(table):
        attach(path, {"id": True})
    assert query.rest() == []
    for erased in (1, 3, 2):  # one of them twice, and all of its rows
        names = set(files(table))
        erase(table, "id", [erased], keys=None, max_share=1)
        assert set(files(table)) != names
    add(table, 4)
    query.start()
    assert query.rest() == [[4]]


def test_existing_files_that_are_encrypted_and_rotated(table, query, keyring):
    assert query.rest() == [[1]]
    policy = Policy(footer_key="footer", columns={"id": "pii"})
    for number, change in enumerate([
            lambda: encrypt(table, policy=policy, keys=keyring),
            lambda: rotate_master_keys(table, keyring, old="pii", new="money")], start=2):
        change()
        query.options["keys"] = str(keyring.path)
        query.start()
        assert query.rest() == []
        add(table, number, keys=keyring, policy=policy)
        assert query.rest() == [[number]]


@pytest.mark.parametrize("restarted", [False, True])
def test_files_that_are_replaced_before_they_are_read(table, query, restarted):
    add(table, 2, 3, 4)
    query.options["maxfilespertrigger"] = "2"
    query.start()
    query.positions.append(stored(query.reader.latestOffset(query.positions[0],
                                                            query.reader.getDefaultReadLimit())))
    tasks = query.reader.partitions(*query.positions)
    erase(table, "id", [3], keys=None, max_share=1)
    for path in files(table):
        attach(path, {"id": True})
    if restarted:
        query.start()
        tasks = query.reader.partitions(*query.positions)
    assert read(query.reader, tasks) == [1, 2, 4]
    assert query.rest() == []


def test_a_file_of_several_tasks_is_of_one_version(tmp_path):
    folder = tmp_path / "t"
    write_dataset(pa.table({"id": range(1000)}), folder, row_group_size=100)
    query = Query(folder, tmp_path / "cp", split_bytes="1k", open_cost_bytes="0")
    query.positions.append(stored(query.reader.latestOffset()))
    tasks = query.reader.partitions(*query.positions)
    assert len(tasks) > 1
    assert read(query.reader, tasks) == list(range(1000))
    attach(files(folder)[0], {"id": True})
    with pytest.raises(ChangedMeanwhileError, match="start the query again"):
        read(query.reader, tasks)
    query.start()
    assert query.repeat() == list(range(1000))


def test_a_file_that_is_gone(table, query):
    add(table, 2)
    query.options["maxfilespertrigger"] = "9"
    query.start()
    position = query.reader.latestOffset(query.positions[0], query.reader.getDefaultReadLimit())
    query.positions.append(stored(position))
    tasks = query.reader.partitions(*query.positions)
    os.unlink(files(table)[0])
    gone = "was removed before the query had read it.*ignoreMissingFiles"
    with pytest.raises(ChangedMeanwhileError, match=gone):
        read(query.reader, tasks)
    query.start()
    with pytest.raises(ChangedMeanwhileError, match=gone):
        query.repeat()
    query.options["ignoremissingfiles"] = "true"
    query.start()
    assert len(read(query.reader, tasks)) == 2 - 1
    assert len(query.repeat()) == 1
    os.unlink(files(table)[0])
    query.start()
    assert query.repeat() == []
    assert query.rest() == []


def test_a_copy_that_claims_to_be_another_version(table, query):
    [path] = files(table)
    job, number = path.stem.split("-")[2:]
    copy = path.with_name(f"part-00007-{job[::-1]}-{number[:16]}{number[:16]}.parquet")
    copy.write_bytes(path.read_bytes())
    with pytest.raises(UnsupportedError, match="one of them is a copy"):
        query.next()
    copy.rename(table / "copy.parquet")
    assert query.rest() == [[1], [1]]


def test_partitions_with_the_same_names_in_each(tmp_path):
    for day in "12":
        folder = tmp_path / "t" / f"day={day}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"id": [int(day)]}), folder / "data.parquet")
    schema = StructType([*ID, StructField("day", StringType())])
    query = Query(tmp_path / "t", tmp_path / "cp", schema, filters='[["day", "=", "2"]]')
    assert query.rest() == [[2]]


def test_a_policy_refuses_planted_files(tmp_path, keyring):
    policy = Policy(footer_key="footer", columns={"id": "pii"})
    add(tmp_path / "t", 1, policy=policy, keys=keyring)
    query = Query(tmp_path / "t", tmp_path / "cp", keys=str(keyring.path), policy=policy.to_toml())
    assert query.rest() == [[1]]
    for name in ("id", "other"):  # the second one lacks what the policy is about
        pq.write_table(pa.table({name: [2]}), tmp_path / "t" / "planted.parquet")
        query.start()
        with pytest.raises(AuthenticationError, match=r"planted\.parquet"):
            query.next()
        query.positions.pop()
    os.unlink(tmp_path / "t" / "planted.parquet")
    add(tmp_path / "t", 3, policy=policy, keys=keyring)
    assert query.rest() == [[3]]


def test_a_stream_that_runs_beyond_the_day_of_a_policy(tmp_path, keyring, monkeypatch):
    """It was planned when files without encryption were accepted."""
    policy = Policy(footer_key="footer", columns={"id": "pii"}, accept_plaintext_until=date.max)
    add(tmp_path / "t", 1, policy=policy, keys=keyring)
    query = Query(tmp_path / "t", tmp_path / "cp", keys=str(keyring.path), policy=policy.to_toml())
    assert query.next() == [1]
    pq.write_table(pa.table({"other": [2]}), tmp_path / "t" / "plaintext.parquet")
    assert query.next() == [None]
    pq.write_table(pa.table({"other": [3]}), tmp_path / "t" / "planted.parquet")
    monkeypatch.setattr(Policy, "accepts_plaintext", lambda policy: False)
    with pytest.raises(AuthenticationError, match=r"planted\.parquet"):
        query.next()


# --- the log -------------------------------------------------------------------------------------

@pytest.mark.slow
def test_a_long_log_stays_small(table, query, monkeypatch):
    monkeypatch.setattr(seen_files, "_SNAPSHOT_EVERY", 3)
    monkeypatch.setattr(seen_files, "_KEPT", 6)
    got = query.rest()
    for number in range(2, 24):
        add(table, number)
        if random.Random(number).random() < .5:
            query.start()
        got += query.rest()
        if number in (7, 8):
            erase(table, "id", [2, number], keys=None, max_share=1)
    assert got == [[number] for number in range(1, 24)]
    log = [path for path in (table.parent / "cp").rglob("*") if path.is_file()]
    assert len(log) <= 6 + 3 + 1 + 4
    assert query.repeat(-4) == [20]
    assert len(json.dumps(query.positions[-1])) < 150
    os.unlink(min(path for path in log if path.suffix == ".seen"))


def test_files_that_are_gone_are_forgotten_later(table, query, monkeypatch):
    monkeypatch.setattr(seen_files, "_SNAPSHOT_EVERY", 2)
    [path] = files(table)
    kept = path.read_bytes()
    assert query.rest() == [[1]]
    path.unlink()
    add(table, 2)
    assert query.rest() == [[2]]  # with a snapshot
    path.write_bytes(kept)
    query.start()
    assert query.rest() == []
    path.unlink()
    later = time.time() + 8 * 24 * 3600
    monkeypatch.setattr(seen_files.time, "time", lambda: later)
    for number in (3, 4):
        add(table, number)
        query.rest()
    path.write_bytes(kept)
    assert query.rest() == [[1]]


@pytest.mark.parametrize("damage", [os.unlink, lambda path: path.write_bytes(b"{}"),
                                    lambda path: path.write_text(path.read_text().replace(
                                        '"files": [', '"files": ["../x",')),
                                    lambda path: path.write_text('{"version": 1, "files": "ab", '
                                        '"previous": {"batches": 0, "entry": ""}, '
                                        '"has_snapshot": false}'),
                                    lambda path: path.write_text(path.read_text().replace(
                                        '"batches": 0', '"batches": 1'))])
def test_a_damaged_log_is_an_error(table, query, damage):
    assert query.rest() == [[1]]
    [path] = (table.parent / "cp").rglob("*.json")
    damage(path)
    query.start()
    with pytest.raises(FormatError, match=r"entry of a stream|part of the checkpoint is missing"):
        query.next()
    with pytest.raises(FormatError, match=r"entry of a stream|part of the checkpoint is missing"):
        query.repeat()


@pytest.mark.parametrize("position", [{}, {"batches": 1, "entry": "../../x"}, {"logOffset": 3},
                                      {"batches": 0, "entry": "x"}, {"batches": "0", "entry": ""},
                                      3])
def test_positions_of_another_source(query, position):
    with pytest.raises(FormatError, match="use a new checkpoint"):
        query.reader.latestOffset(position, query.reader.getDefaultReadLimit())


# --- errors --------------------------------------------------------------------------------------

def test_errors_of_a_start(table, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        Query(tmp_path / "none", tmp_path / "cp").next()
    with pytest.raises(OptionError, match="nonsense: unknown"):
        Query(table, tmp_path / "cp", nonsense="1")
    with pytest.raises(OptionError, match="maxfilespertrigger: it must be a whole number"):
        Query(table, tmp_path / "cp", maxfilespertrigger="0")
    with pytest.raises(OptionError, match="checkpointLocation: Spark does not say"):
        Query(table, "")
    with pytest.raises(OptionError, match=r"checkpointlocation: .*dbfs"):
        Query(table, "dbfs:/cp")
    with pytest.raises(UnsupportedError, match="this is a file"):
        Query(files(table)[0], tmp_path / "cp")


def test_a_pipe_in_the_place_of_a_file(table, query):
    assert query.rest() == [[1]]
    os.mkfifo(table / "pipe.parquet")
    assert query.rest() == []
    add(table, 2)
    query.positions.append(stored(query.reader.latestOffset(
        query.positions[-1], query.reader.getDefaultReadLimit())))
    tasks = query.reader.partitions(*query.positions[-2:])
    new = max(files(table), key=os.path.getmtime)
    new.unlink()
    os.mkfifo(new)
    with pytest.raises((ChangedMeanwhileError, UnsupportedError)):
        read(query.reader, tasks)


# --- everything at once --------------------------------------------------------------------------

@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(3))
def test_a_query_that_dies_while_files_are_added_and_replaced(table, query, monkeypatch, seed):
    monkeypatch.setattr(seen_files, "_SNAPSHOT_EVERY", 5)
    monkeypatch.setattr(seen_files, "_KEPT", 10)
    chance, erased, got, is_planned = random.Random(seed), set(), [], False
    query.options["maxfilespertrigger"] = str(chance.randint(1, 5))
    query.start()

    def write():
        for start in range(2, 122, 4):
            add(table, *range(start, start + 4), max_rows_per_file=2)

    def replace():
        for value in range(5, 100, 10):
            with suppress(ChangedMeanwhileError, FileNotFoundError, CommitError):
                for path in chance.choices(files(table), k=3):
                    attach(path, {"id": {"fpp": chance.choice([0.01, 0.1])}})
            with suppress(ChangedMeanwhileError, CommitError):
                erase(table, "id", [value], keys=None, max_share=1)
                erased.add(value)

    with ThreadPoolExecutor() as pool:
        changes = [pool.submit(write), pool.submit(replace)]
        while True:
            is_last = all(change.done() for change in changes)
            if chance.random() < 0.3:
                query.start()
            if not is_planned:
                limit = query.reader.getDefaultReadLimit()
                position = stored(query.reader.latestOffset(query.positions[-1], limit))
                if position == query.positions[-1]:
                    if is_last:
                        break
                    continue
                if chance.random() < 0.3:  # Spark has not stored it
                    continue
                query.positions.append(position)
                is_planned = True
            rows = query.repeat()
            if chance.random() < 0.7:  # otherwise, it died before the sink had them
                got += rows
                is_planned = False
        for change in changes:
            change.result()
    assert len(got) == len(set(got))
    assert set(range(1, 122)) - erased <= set(got)


@pytest.mark.sweep
def test_an_object_store_with_the_checkpoint(s3, tmp_path):
    name, filesystem = tmp_path.name, s3.filesystem_of()
    query = Query(s3.uri(name), s3.uri(f"{name}-cp"), maxfilespertrigger="2")
    for number in range(4):
        write_dataset(pa.table({"id": [number, 100]}), f"bucket/{name}", filesystem=filesystem,
                      mode="append")
    rows = [*query.next()]
    erase(f"bucket/{name}", "id", [100], keys=None, filesystem=filesystem, max_share=1)
    query.start()
    rows += [row for batch in query.rest() for row in batch]
    assert sorted(rows) == [0, 1, 2, 3, 100, 100]
