"""Files that arrive or are replaced after a query is planned and before its tasks have ended."""

import io
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T

from secure_bloom.errors import ChangedMeanwhileError
from secure_bloom.spark.options.options import Options
from secure_bloom.spark.reading import folder as folder_module
from secure_bloom.spark.reading.folder import Folder
from secure_bloom.spark.reading.reader import SecureParquetReader
from secure_bloom.storage.files import write_file
from tests.spark.helpers import PLAINTEXT, people, read, uses_spark, write
from tests.storage.s3 import BUCKET
from tests.storage.stores import Faults

pytestmark = uses_spark


def put(path, ids) -> None:
    pq.write_table(pa.table({"id": ids}), f"{path}.new", row_group_size=2)
    os.replace(f"{path}.new", path)


def planned(path, **options) -> tuple[SecureParquetReader, list]:
    folder = Folder(Options({"path": str(path), **options}))
    reader = SecureParquetReader(folder, folder.schema(), True)
    return reader, reader.partitions()


def rows(reader, tasks) -> list[int]:
    return [number for task in tasks for batch in reader.read(task)
            for number in batch["id"].to_pylist()]


@pytest.mark.parametrize("path", ["", "a.parquet"])
def test_a_task_refuses_another_version_than_was_planned(tmp_path, path):
    put(tmp_path / "a.parquet", [1, 2, 3, 4])
    reader, tasks = planned(tmp_path / path)
    assert rows(reader, tasks) == [1, 2, 3, 4]
    size = os.path.getsize(tmp_path / "a.parquet")
    put(tmp_path / "a.parquet", [3, 4, 1, 2])
    assert os.path.getsize(tmp_path / "a.parquet") == size
    with pytest.raises(ChangedMeanwhileError, match="run the query again") as raised:
        rows(reader, tasks)
    assert raised.value.file == str(tmp_path / "a.parquet")
    assert rows(*planned(tmp_path / path)) == [3, 4, 1, 2]


def test_a_file_from_before_1970_is_not_taken_for_one_that_has_changed(tmp_path):
    put(tmp_path / "a.parquet", [1])
    os.utime(tmp_path / "a.parquet", (-5, -5))
    reader, tasks = planned(tmp_path)
    assert rows(reader, tasks) == [1]
    os.utime(tmp_path / "a.parquet", (-6, -6))
    with pytest.raises(ChangedMeanwhileError):
        rows(reader, tasks)


def test_a_task_refuses_a_file_that_is_gone(tmp_path):
    put(tmp_path / "a.parquet", [1])
    reader, tasks = planned(tmp_path)
    os.unlink(tmp_path / "a.parquet")
    with pytest.raises(ChangedMeanwhileError, match="removed since the query was planned"):
        rows(reader, tasks)


def test_tasks_of_one_file_never_mix_two_versions(tmp_path):
    put(tmp_path / "a.parquet", list(range(800)))
    reader, tasks = planned(tmp_path, split_bytes="10k")
    assert len(tasks) > 2
    first = rows(reader, tasks[:1])
    put(tmp_path / "a.parquet", list(reversed(range(800))))
    assert len(set(first)) == len(first) > 0
    for task in tasks[1:]:
        with pytest.raises(ChangedMeanwhileError):
            rows(reader, [task])


def test_a_task_that_has_opened_a_file_reads_it_to_the_end(tmp_path):
    put(tmp_path / "a.parquet", list(range(25_000)))
    reader, [task] = planned(tmp_path)
    batches = reader.read(task)
    found = next(batches)["id"].to_pylist()
    put(tmp_path / "a.parquet", [0])
    assert found + [number for batch in batches
                    for number in batch["id"].to_pylist()] == list(range(25_000))


def test_an_object_is_what_its_listing_said_until_it_changes(s3, tmp_path, monkeypatch):
    filesystem, path = s3.filesystem_of(), f"{BUCKET}/{tmp_path.name}/a.parquet"
    put(tmp_path / "a.parquet", [1, 2, 3, 4])
    write_file(filesystem, path, (tmp_path / "a.parquet").read_bytes())
    monkeypatch.setattr(folder_module, "locate",
                        lambda path: (filesystem, path))
    for where in (path, os.path.dirname(path)):
        reader, tasks = planned(where)
        assert rows(reader, tasks) == [1, 2, 3, 4]
    put(tmp_path / "a.parquet", [1, 2, 3, 4, 5])
    write_file(filesystem, path, (tmp_path / "a.parquet").read_bytes())
    with pytest.raises(ChangedMeanwhileError):
        rows(reader, tasks)


# --- jobs that commit during a query -------------------------------------------------------------

OLD, NEW = [[1, 2], [3, 4]], [[5, 6], [7, 8]]  # the rows of the files
ALL_OLD, ALL_NEW = [1, 2, 3, 4], [5, 6, 7, 8]


def staged(store, files, overwrite):
    """A job that has written its files and is ready to commit, and what to commit."""
    job, parts = store.job(overwrite), []
    for number, ids in enumerate(files):
        sink = io.BytesIO()
        pq.write_table(pa.table({"id": ids}), sink, row_group_size=1)
        path = job.new_file(number)
        write_file(job.filesystem, path, sink.getvalue())
        parts.append(job.staged(path, len(ids)))
    return job, parts


def commit(store, files, overwrite=False):
    job, parts = staged(store, files, overwrite)
    job.commit(parts)


@pytest.fixture
def table(store, monkeypatch):
    """A folder of two files that a job has committed; each file is a task of its own."""
    monkeypatch.setattr(folder_module, "locate", lambda path: (store.filesystem, path))
    commit(store, OLD)
    return store


def planned_apart(store):
    reader, tasks = planned(store.folder, min_partitions="2", open_cost_bytes="1")
    assert 2 <= len(tasks) < 10
    return reader, tasks


def outcome(plan) -> str:
    """The rows of a planned query, or how it failed."""
    try:
        return str(sorted(rows(*plan())))
    except ChangedMeanwhileError:
        return "changed"
    except Exception as error:
        return repr(error)


def test_files_that_arrive_after_the_planning_are_not_read(table):
    reader, tasks = planned_apart(table)
    commit(table, NEW)
    running, _ = staged(table, [[9]], False)
    assert sorted(rows(reader, tasks)) == ALL_OLD
    assert sorted(rows(*planned_apart(table))) == ALL_OLD + ALL_NEW
    running.abort()


def test_an_overwrite_after_the_planning_is_an_error(table):
    reader, tasks = planned_apart(table)
    begun = rows(reader, tasks[:1])
    commit(table, NEW, overwrite=True)
    assert set(begun) <= set(ALL_OLD)
    for task in tasks:
        with pytest.raises(ChangedMeanwhileError, match="removed since the query was planned"):
            rows(reader, [task])
    assert sorted(rows(*planned_apart(table))) == ALL_NEW


def test_a_task_that_reads_during_an_overwrite_has_all_old_rows_or_fails(table):
    reader, tasks = planned(table.folder, min_partitions="1")
    reader_of_two = [batch for task in tasks for batch in reader.read(task)]
    assert len(reader_of_two) == 2  # one of each file
    batches = (batch for task in tasks for batch in reader.read(task))
    found = next(batches)["id"].to_pylist()
    commit(table, NEW, overwrite=True)
    with pytest.raises(ChangedMeanwhileError):
        for batch in batches:
            found += batch["id"].to_pylist()
    assert set(found) <= set(ALL_OLD)


def test_a_query_at_any_step_of_an_overwrite_has_all_old_rows_or_all_new_ones_or_fails(
        local, monkeypatch):
    monkeypatch.setattr(folder_module, "locate", lambda path: (local.filesystem, path))
    commit(local, OLD)
    before, outcomes = planned_apart(local), set()

    def look():
        # Noted, not asserted: a commit survives what goes wrong after its commit point.
        outcomes.add(("earlier", outcome(lambda: before)))
        outcomes.add(("now", outcome(lambda: planned_apart(local))))

    job, parts = staged(local, NEW, overwrite=True)
    faults = Faults(watch=look)
    with monkeypatch.context() as patch:
        job.filesystem = local.with_faults(faults, patch)
        job.commit(parts)
    look()
    assert faults.count > 10
    assert outcomes - {("now", "changed")} == {
        ("earlier", str(ALL_OLD)), ("earlier", "changed"),
        ("now", str(ALL_OLD)), ("now", str(ALL_NEW))}


@pytest.mark.parametrize("merge", ["true", "false"])
def test_the_schema_is_of_files_that_are_there(tmp_path, monkeypatch, merge):
    """A file of the listing is gone, or is another one, when its footer is read."""
    for name in "ab":
        pq.write_table(pa.table({"old": [1]}), tmp_path / f"{name}.parquet")
    listings = []

    class ChangingFolder(Folder):
        def list(self):
            listings.append(found := super().list())
            if len(listings) == 1:
                os.unlink(tmp_path / "a.parquet")
            if len(listings) == 2:
                pq.write_table(pa.table({"new": ["x"]}), tmp_path / "new")
                os.replace(tmp_path / "new", tmp_path / "b.parquet")
            return found

    schema = ChangingFolder(Options({"path": str(tmp_path), "mergeschema": merge})).schema()
    assert schema == T.StructType([T.StructField("new", T.StringType())]) and len(listings) == 3


def test_spark_shows_why_and_reads_again(spark, tmp_path):
    """A file that changes just after the planning, in the driver, where the tasks are pickled."""
    write(people(spark), tmp_path / "t", **PLAINTEXT)
    frame = read(spark, tmp_path / "t")
    assert frame.count() == 100
    [*_, last] = sorted((tmp_path / "t").glob("*.parquet"))
    pq.write_table(pq.read_table(last)[:1], tmp_path / "new")
    planned = frame._jdf.queryExecution().executedPlan()  # plans the tasks
    planned.execute()
    os.replace(tmp_path / "new", last)
    with pytest.raises(Exception, match="run the query again"):
        frame._jdf.collectToPython()
    assert read(spark, tmp_path / "t").count() < 100


@pytest.mark.sweep
def test_spark_reads_the_files_that_were_planned(spark, tmp_path):
    """An append and an overwrite after the planning: all old rows, and an error."""
    write(people(spark), tmp_path / "t", **PLAINTEXT)
    old = sorted(read(spark, tmp_path / "t").collect())
    frame = read(spark, tmp_path / "t")
    frame._jdf.queryExecution().executedPlan().execute()  # plans the tasks
    write(people(spark, start=500), tmp_path / "t", **PLAINTEXT)
    assert sorted(frame.collect()) == old
    assert read(spark, tmp_path / "t").count() == 200
    write(people(spark, start=900), tmp_path / "t", mode="overwrite", **PLAINTEXT)
    with pytest.raises(Exception, match="run the query again"):
        frame._jdf.collectToPython()
    assert read(spark, tmp_path / "t").count() == 100
