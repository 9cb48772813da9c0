"""The streaming sink: every batch exactly once, with a real Spark."""

import os
import shutil
import time

import pytest

from secure_bloom import ParquetFile, read_table
from tests.spark.helpers import PLAINTEXT, own_spark, uses_spark, visible

pytestmark = uses_spark


@pytest.fixture
def stream(spark, tmp_path):
    return Stream(spark, tmp_path)


class Stream:
    """A query from a folder of files, one file in a batch, to a folder of encrypted ones."""

    def __init__(self, spark, folder):
        self.spark, self.folder = spark, str(folder / "out")
        self.source, self.checkpoint = str(folder / "source"), str(folder / "checkpoint")

    def add(self, *ranges):
        for start, end in ranges:
            self.spark.range(start, end, 1, 1).write.mode("append").parquet(self.source)

    def run(self, folder=None, checkpoint=None, mode="append", change=lambda frame: frame,
            **options):
        """Until there is nothing more to read."""
        frame = (self.spark.readStream.schema("id bigint").option("maxFilesPerTrigger", "1")
                 .parquet(self.source))
        query = (change(frame).writeStream.format("secure_parquet")
                 .option("checkpointLocation", checkpoint or self.checkpoint)
                 .options(**options or PLAINTEXT).queryName("q").outputMode(mode)
                 .trigger(availableNow=True).start(folder or self.folder))
        query.awaitTermination()

    def forget_last_batch(self):
        """As if the driver had died after our commit, before Spark noted the end of the batch."""
        commits = os.path.join(self.checkpoint, "commits")
        last = max(int(name) for name in os.listdir(commits) if name.isdigit())
        for name in (f"{last}", f".{last}.crc"):
            os.unlink(os.path.join(commits, name))

    def ids(self):
        return sorted(read_table(self.folder)["id"].to_pylist())


def test_every_batch_once_also_when_spark_repeats_it(stream):
    stream.add((0, 10), (10, 20))
    stream.run()
    assert stream.ids() == list(range(20))
    assert len(visible(stream.folder)) == 2
    stream.forget_last_batch()
    stream.run()
    assert stream.ids() == list(range(20))
    stream.add((20, 30))
    stream.run()
    assert stream.ids() == list(range(30))
    assert os.listdir(os.path.join(stream.folder, "_staging")) == ["generation"]


@pytest.mark.sweep
def test_a_new_checkpoint_in_the_same_place_is_another_query(stream):
    stream.add((0, 10))
    stream.run()
    shutil.rmtree(stream.checkpoint)
    stream.run()
    assert stream.ids() == sorted([*range(10)] * 2)


@pytest.mark.sweep
def test_two_queries_into_one_folder(stream, tmp_path):
    stream.add((0, 10))
    stream.run()
    stream.run(checkpoint=str(tmp_path / "other"))
    assert stream.ids() == sorted([*range(10)] * 2)


@pytest.mark.sweep
def test_complete_mode_replaces(stream):
    stream.add((0, 10), (5, 15))
    stream.run(mode="complete", change=lambda frame: frame.groupBy("id").count())
    table = read_table(stream.folder)
    assert sorted(table["id"].to_pylist()) == list(range(15))
    assert sum(table["count"].to_pylist()) == 20
    stream.forget_last_batch()
    stream.run(mode="complete", change=lambda frame: frame.groupBy("id").count())
    assert sum(read_table(stream.folder)["count"].to_pylist()) == 20


def test_encrypted(stream, keyring, encrypted):
    stream.add((0, 10))
    stream.run(change=lambda frame: frame.selectExpr("cast(id as string) ssn", "id"),
               **encrypted, **{"parquet.bloom.filter.enabled#ssn": "true"})
    [name] = visible(stream.folder)
    file = ParquetFile(f"{stream.folder}/{name}", keyring)
    assert [info.encrypted for info in file.bloom_filters] == [True]
    assert read_table(stream.folder, keys=keyring).num_rows == 10


def test_bad_options_stop_the_query(stream):
    stream.add((0, 10))
    with pytest.raises(Exception, match="option nonsense: unknown"):
        stream.run(nonsense="1", **PLAINTEXT)
    assert visible(stream.folder) == []


@pytest.mark.sweep
def test_a_continuous_trigger_notes_no_epoch_whose_rows_would_be_lost(stream):
    query = (stream.spark.readStream.format("rate").option("rowsPerSecond", "20")
             .option("numPartitions", "2").load()
             .writeStream.format("secure_parquet").options(**PLAINTEXT)
             .option("checkpointLocation", stream.checkpoint).trigger(continuous="200 milliseconds")
             .start(stream.folder))

    def epochs(kind):
        folder = os.path.join(stream.checkpoint, kind)
        return [name for name in os.listdir(folder) if name.isdigit()] \
            if os.path.isdir(folder) else []

    try:
        while len(epochs("offsets")) < 30 and not epochs("commits") and query.isActive:
            time.sleep(0.1)
        assert epochs("commits") == []
    finally:
        query.stop()
    assert visible(stream.folder) == []


@pytest.mark.sweep
def test_foreach_batch_writes_a_repeated_batch_again(stream):
    stream.add((0, 10))
    calls = []

    def put(frame, number):
        frame.write.format("secure_parquet").options(**PLAINTEXT).mode("append").save(stream.folder)
        calls.append(number)
        if len(calls) == 1:
            raise ValueError("after the write")

    def start():
        frame = stream.spark.readStream.schema("id bigint").parquet(stream.source)
        query = (frame.writeStream.option("checkpointLocation", stream.checkpoint)
                 .foreachBatch(put).trigger(availableNow=True).start())
        query.awaitTermination()

    with pytest.raises(Exception, match="after the write"):
        start()
    start()
    assert calls == [0, 0]
    assert stream.ids() == sorted([*range(10)] * 2)


@pytest.mark.sweep
def test_spark_ignores_partition_by_of_a_stream(stream):
    stream.add((0, 10))
    frame = stream.spark.readStream.schema("id bigint").parquet(stream.source)
    (frame.selectExpr("id", "id % 2 as k").writeStream.format("secure_parquet").partitionBy("k")
     .options(**PLAINTEXT).option("checkpointLocation", stream.checkpoint)
     .trigger(availableNow=True).start(stream.folder).awaitTermination())
    assert all(name.endswith(".parquet") for name in visible(stream.folder))


@pytest.mark.sweep
def test_s3(stream, s3, tmp_path):
    stream.add((0, 10), (10, 20))
    name = f"{tmp_path.name}-stream"
    for _ in range(2):
        stream.run(s3.uri(name))
        stream.forget_last_batch()
    table = read_table(f"bucket/{name}", filesystem=s3.filesystem_of())
    assert sorted(table["id"].to_pylist()) == list(range(20))


# The process dies before or after the commit point of batch 1.
DYING = """
import signal
from secure_bloom.spark import source
from secure_bloom.storage import commit
from secure_bloom.spark.writing import streaming

folder, out, checkpoint, moment = sys.argv[1:]
driver = [os.getpid(), spark.sparkContext._gateway.proc.pid]

class Job(commit.Job):
    def commit(self, files, batch=None):
        self.dies = batch.id == 1
        return super().commit(files, batch)
    def _write_record(self, record):
        if moment == "before": self.die()
        super()._write_record(record)
    def finish(self, record):
        if moment == "after": self.die()
        super().finish(record)
    def die(self):
        if self.dies:
            for process in [*driver, os.getpid()]: os.kill(process, signal.SIGKILL)

class Writer(streaming.SecureParquetStreamWriter):
    def _take_job(self, messages):
        reports = super()._take_job(messages)
        self._writer.job.__class__ = Job
        return reports

class Source(source.SecureParquet):
    def streamWriter(self, schema, overwrite):
        return Writer(self._given, schema, overwrite)

spark.dataSource.register(Source)
frame = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", "1").parquet(folder)
(frame.writeStream.format("secure_parquet").option("plaintext", "true")
    .option("checkpointLocation", checkpoint).trigger(availableNow=True).start(out)
    .awaitTermination())
"""


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.sweep
def test_a_driver_that_is_killed_in_a_commit(stream, tmp_path, moment):
    stream.add((0, 10), (10, 20), (20, 30))
    result = own_spark(DYING, stream.source, stream.folder, stream.checkpoint, moment)
    assert result.returncode == -9, result.stderr
    assert stream.ids() == list(range(10 if moment == "before" else 20))
    stream.run()
    assert stream.ids() == list(range(30))
