"""Hive partitioning and the files of a task, without Spark."""

import datetime
import decimal
import multiprocessing

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pytest

from secure_bloom import ParquetWriter
from secure_bloom.datasets import task_files
from secure_bloom.datasets.table import read_table
from secure_bloom.datasets.task_files import TaskFiles
from secure_bloom.errors import UnsupportedError
from secure_bloom.storage.commit import Job
from secure_bloom.storage.hive_partitioning import Partitioner, escape, folder_names
from tests.spark.helpers import staged, visible


@pytest.mark.parametrize("values, expected", [
    (pa.array([True, False, None]), ["k=true", "k=false", "k=__HIVE_DEFAULT_PARTITION__"]),
    (pa.array([-128, 127], pa.int8()), ["k=-128", "k=127"]),
    (pa.array([-2 ** 63]), ["k=-9223372036854775808"]),
    (pa.array([decimal.Decimal("0"), decimal.Decimal("-1E-10")], pa.decimal128(38, 10)),
     ["k=0.0000000000", "k=-0.0000000001"]),
    (pa.array([0, -719529, -800000, 2932896, 2932897], pa.int32()).cast(pa.date32()),
     ["k=1970-01-01", "k=-0001-12-31", "k=-0221-09-04", "k=9999-12-31", "k=+10000-01-01"]),
    (pa.array(["", "a/b=c", "%2F", " ü} "]),
     ["k=__HIVE_DEFAULT_PARTITION__", "k=a%2Fb%3Dc", "k=%252F", "k= ü} "]),
])
def test_names_of_folders(values, expected):
    assert folder_names("k", values) == expected


def test_names_of_columns_are_escaped():
    assert folder_names("a=b", pa.array([1])) == ["a%3Db=1"]
    assert escape("\x01\x1f\x7f\x80") == "%01%1F%7F\x80"


@pytest.mark.parametrize("value", ["__HIVE_DEFAULT_PARTITION__", "a\0b"])
def test_values_that_no_folder_can_mean(value):
    with pytest.raises(UnsupportedError, match="column k: "):
        folder_names("k", pa.array([value]))


def test_rows_keep_their_order_in_every_folder():
    batch = pa.RecordBatch.from_pydict({
        "a": ["x", None, "x", "", "y", "x"], "n": range(6), "b": [1, 2, 1, 2, None, 2]})
    parts = {folder: part.to_pylist() for folder, part in Partitioner(("b", "a")).split(batch)}
    null = "__HIVE_DEFAULT_PARTITION__"
    assert parts == {"b=1/a=x": [{"n": 0}, {"n": 2}], f"b=2/a={null}": [{"n": 1}, {"n": 3}],
                     "b=2/a=x": [{"n": 5}], f"b={null}/a=y": [{"n": 4}]}


def test_rows_of_one_folder_are_not_copied():
    batch = pa.RecordBatch.from_pydict({"a": [1, 1], "n": [1, 2]})
    [(folder, part)] = Partitioner(("a",)).split(batch)
    assert folder == "a=1"
    assert part.column(0).buffers()[1].address == batch.column(1).buffers()[1].address
    assert list(Partitioner(()).split(batch)) == [("", batch)]
    assert list(Partitioner(("a",)).split(batch.slice(0, 0))) == []


def test_types_of_values_that_stand_beside_partitions():
    rows = [{"k": i % 2, "m": [("a", i)], "s": {"l": [i, None], "d": datetime.timedelta(i)},
             "t": datetime.time(i)} for i in range(4)]
    schema = pa.schema([("k", pa.int64()), ("m", pa.map_(pa.string(), pa.int32())),
                        ("s", pa.struct([("l", pa.list_(pa.int8())), ("d", pa.duration("us"))])),
                        ("t", pa.time64("us"))])
    batch = pa.RecordBatch.from_pylist(rows, schema)
    for folder, part in Partitioner(("k",)).split(batch):
        for row in part.to_pylist():
            assert row | {"k": int(folder[-1])} in rows
        part.validate(full=True)


# --- files of a task -----------------------------------------------------------------------------

SCHEMA = pa.schema([("n", pa.int64())])


def write(folder, batches, **options):
    """The files' paths below the folder, in the order in which they were closed."""
    job = Job(pa_fs.LocalFileSystem(), str(folder), False)
    job.start()
    with TaskFiles(job, 3, SCHEMA, lambda path: ParquetWriter(path, SCHEMA, bloom_filters={}),
                   **options) as files:
        for name, values in batches:
            files.add(name, pa.RecordBatch.from_pydict({"n": values}, SCHEMA))
        files = files.finish()
    job.commit(files)
    assert sum(file.rows for file in files) == sum(len(values) for _, values in batches)
    return [file.path for file in files]


def row_groups(folder, names):
    metadata = [pq.read_metadata(folder / name) for name in names]
    return [[m.row_group(i).num_rows for i in range(m.num_row_groups)] for m in metadata]


def test_one_file_for_each_folder(tmp_path):
    names = write(tmp_path, [("k=1", [1, 2]), ("k=2", [3]), ("k=1", [4])])
    assert [name[:14] for name in names] == ["k=1/part-00003", "k=2/part-00003"]
    assert sorted(read_table(tmp_path).to_pylist(), key=str) == [
        {"n": 1, "k": 1}, {"n": 2, "k": 1}, {"n": 3, "k": 2}, {"n": 4, "k": 1}]


@pytest.mark.parametrize("options, expected", [
    ({"row_group_size": 4}, [[4, 4, 2]]),
    ({"row_group_size": 4, "max_rows_per_file": 6}, [[4, 2], [4]]),
    ({"max_rows_per_file": 5}, [[5], [5]]),
    ({"max_rows_per_file": 1}, [[1]] * 10),
    ({"row_group_size": 2, "max_bytes_per_file": 120}, [[2, 2], [2, 2], [2]]),
    ({"max_bytes_per_file": 1}, [[10]]),
])
def test_when_row_groups_and_files_end(tmp_path, options, expected):
    names = write(tmp_path, [("", list(range(10)))], **options)
    assert row_groups(tmp_path, names) == expected
    assert sorted(read_table(tmp_path)["n"].to_pylist()) == list(range(10))


def test_a_row_group_that_is_filled_batch_by_batch(tmp_path):
    names = write(tmp_path, [("", [i]) for i in range(100)], row_group_size=70)
    assert row_groups(tmp_path, names) == [[70, 30]]


def test_small_batches_are_put_together(tmp_path):
    job = Job(pa_fs.LocalFileSystem(), str(tmp_path), False)
    job.start()
    with TaskFiles(job, 0, SCHEMA,
                   lambda path: ParquetWriter(path, SCHEMA, bloom_filters={})) as files:
        for number in range(1000):
            files.add("", pa.RecordBatch.from_pydict({"n": [number]}, SCHEMA))
        assert len(files._folders[""].waiting.batches) < 150
        assert files._waiting_bytes < 60_000
        job.commit(files.finish())
    assert read_table(tmp_path)["n"].to_pylist() == list(range(1000))


def test_when_too_much_waits_the_fullest_folder_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(task_files, "MAX_WAITING_BYTES", 10_000)
    batches = [("k=1", range(10)), ("k=2", range(700)), ("k=3", range(500)), ("k=2", range(5))]
    names = write(tmp_path, batches)
    assert [name[:3] for name in names] == ["k=2", "k=1", "k=3", "k=2"]
    assert read_table(tmp_path).num_rows == 1215


@pytest.mark.slow
def test_memory_and_open_files_stay_bounded_with_many_folders(tmp_path, monkeypatch):
    monkeypatch.setattr(task_files, "MAX_WAITING_BYTES", 6000)
    monkeypatch.setattr(task_files, "MAX_OPEN_FILES", 3)
    job = Job(pa_fs.LocalFileSystem(), str(tmp_path), False)
    job.start()
    opened = []

    def open_writer(path):
        opened.append(ParquetWriter(path, SCHEMA, bloom_filters={}))
        assert sum(writer._writer is not None for writer in opened) <= 3
        return opened[-1]

    with TaskFiles(job, 0, SCHEMA, open_writer, row_group_size=5) as files:
        for start in range(0, 900, 3):
            files.add(f"k={start % 60}", pa.RecordBatch.from_pydict(
                {"n": [start, start + 1, start + 2]}, SCHEMA))
            assert files._waiting_bytes < 6000
            assert files._waiting_bytes == sum(f.waiting.bytes for f in files._folders.values())
        job.commit(files.finish())
    assert sorted(read_table(tmp_path)["n"].to_pylist()) == list(range(900))


def test_an_exception_leaves_no_file(tmp_path):
    job = Job(pa_fs.LocalFileSystem(), str(tmp_path), False)
    job.start()
    with pytest.raises(KeyError), TaskFiles(
            job, 0, SCHEMA, lambda path: ParquetWriter(path, SCHEMA, bloom_filters={}),
            row_group_size=2) as files:
        files.add("k=1", pa.RecordBatch.from_pydict({"n": [1, 2, 3]}, SCHEMA))
        raise KeyError
    assert staged(tmp_path) == ["started"] and visible(tmp_path) == []


def test_a_fork_of_a_task_cannot_publish_its_files(tmp_path):
    job = Job(pa_fs.LocalFileSystem(), str(tmp_path), False)
    job.start()
    with TaskFiles(job, 0, SCHEMA, lambda path: ParquetWriter(path, SCHEMA),
                   row_group_size=2) as files:
        files.add("k=1", pa.RecordBatch.from_pydict({"n": [1, 2, 3]}, SCHEMA))
        before = staged(tmp_path)

        def fork():
            with pytest.raises(UnsupportedError, match="only that process can write and close"):
                files.finish()
            with pytest.raises(UnsupportedError, match="only that process can write and close"):
                files.__exit__(None, None, None)
            files.__exit__(KeyError, KeyError(), None)

        child = multiprocessing.get_context("fork").Process(target=fork)
        child.start()
        child.join(30)
        assert child.exitcode == 0 and staged(tmp_path) == before
        job.commit(files.finish())
    assert read_table(tmp_path)["n"].to_pylist() == [1, 2, 3]
