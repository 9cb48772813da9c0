"""``readStream`` of a folder, with a real Spark."""

import os
import signal
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import secure_bloom.spark
from secure_bloom import Policy, attach, erase, read_table
from tests.spark.helpers import (
    PLAINTEXT,
    keys_of,
    own_spark,
    people,
    settings,
    uses_spark,
    visible,
    write,
)

pytestmark = uses_spark


class Query:
    """A query that collects the ids of each batch, until there is nothing more to read."""

    def __init__(self, spark, folder):
        self.spark = spark
        self.folder, self.checkpoint = str(folder / "t"), str(folder / "cp")

    def run(self, frame=None, fails=None, **options):
        got = []

        def keep(batch, number):
            got.append(sorted(row["id"] for row in batch.collect()))
            if number == fails:
                raise ValueError("this batch fails")

        frame = frame or secure_bloom.spark.read_stream(self.spark, self.folder, **options)
        (frame.writeStream.foreachBatch(keep).option("checkpointLocation", self.checkpoint)
         .trigger(availableNow=True).start().awaitTermination())
        return got


def of_docs(query, target, keyring):
    """Return the example of the documentation, which waits for the query."""
    text = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    code = text.partition("### Reading a folder as a stream")[2].split("```")[1]
    for name, value in {"python\n": "", "/data/people-checkpoint": query.checkpoint,
                        "/data/people-copy": target, "/data/people": query.folder,
                        "/etc/keys/keyring.json": keyring.path}.items():
        code = code.replace(name, str(value))
    return code.rstrip().removesuffix(")") + ".awaitTermination())"


@pytest.fixture
def query(spark, tmp_path):
    return Query(spark, tmp_path)


def test_each_file_once(spark, query, keyring, encrypted):
    """Files of several writers, in several runs; one of them dies after a batch."""
    write(people(spark, 10).coalesce(1), query.folder, **encrypted)
    keys = {"keys": keyring, "schema": "id bigint"}
    spark.range(10, 20, 1, 1).write.mode("append").parquet(query.folder)
    assert query.run(**keys, maxFilesPerTrigger=1) == [list(range(10)), list(range(10, 20))]
    assert query.run(**keys) == []
    pq.write_table(pa.table({"id": [20]}), f"{query.folder}/arrow.parquet")
    with pytest.raises(Exception, match="this batch fails"):
        query.run(**keys, fails=2)
    write(people(spark, 10, 30).coalesce(1), query.folder, **encrypted)
    for name in visible(query.folder):
        attach(f"{query.folder}/{name}", {"id": True}, keys=keyring)
    erase(query.folder, "id", [5, 20, 35], keys=keyring, max_share=1)
    assert query.run(**keys) == [[], [30, 31, 32, 33, 34, 36, 37, 38, 39]]
    assert query.run(**keys, filters=[("id", "=", 3)]) == []


def test_a_running_query(spark, query, keyring, encrypted):
    """It waits for files, and does not see those of a job that has not committed."""
    write(people(spark, 10), query.folder, **encrypted)
    arrived = threading.Semaphore(0)
    got = []

    def keep(batch, number):
        got.append(sorted(row["ssn"] for row in batch.where("id % 5 = 0").collect()))
        arrived.release()

    frame = secure_bloom.spark.read_stream(spark, query.folder, schema=people(spark).schema,
                                           keys=keyring, filters=[("id", "<", 100)])
    running = (frame.writeStream.foreachBatch(keep).option("checkpointLocation", query.checkpoint)
               .start())
    try:
        assert arrived.acquire(timeout=300)
        write(people(spark, 10, start=100), query.folder, **encrypted)  # which filters rule out
        assert arrived.acquire(timeout=300)
        write(people(spark, 10, start=10), query.folder, **encrypted)
        assert arrived.acquire(timeout=300)
    finally:
        running.stop()
    assert got == [["ssn-0", "ssn-5"], [], ["ssn-10", "ssn-15"]]


@pytest.mark.sweep
def test_into_another_folder_with_marks_and_the_policy_of_the_session(spark, query, tmp_path,
                                                                       keyring):
    policy = Policy(footer_key="footer", columns={"ssn": "pii"})
    with settings(spark, {"spark.datasource.secure_parquet.policy": policy.to_toml()}):
        secure_bloom.spark.write(people(spark, 10), query.folder, keys=keyring)
        target, code = str(tmp_path / "copy"), of_docs(query, tmp_path / "copy", keyring)

        def run():
            exec(code, {"secure_bloom": secure_bloom, "spark": spark, "policy": policy,
                        "options": {"keys": str(keyring.path)}})

        run()
        assert keys_of(tmp_path / "copy", keyring)["ssn"] == "pii"
        assert sorted(read_table(target, keys=keyring)["id"].to_pylist()) == list(range(10))
        pq.write_table(pa.table({"ssn": ["planted"], "city": [""], "id": [1]}),
                       f"{query.folder}/planted.parquet")
        with pytest.raises(Exception, match=r"planted.parquet") as caught:
            run()
    assert "Traceback" not in str(caught.value)


@pytest.mark.sweep
def test_errors_in_the_words_of_the_data_source(query):
    write(query.spark.range(3), query.folder, **PLAINTEXT)
    with pytest.raises(Exception, match="option maxfilespertrigger: it must be") as caught:
        query.run(maxFilesPerTrigger="many", schema="id bigint")
    assert "Traceback" not in str(caught.value)
    with pytest.raises(Exception, match="did you mean maxfilespertrigger"):
        query.run(query.spark.readStream.format("secure_parquet").option("maxFilesPerTriger", "1")
                  .schema("id bigint").load(query.folder))


@pytest.mark.sweep
def test_a_table_of_the_catalog(spark, query):
    write(spark.range(3), query.folder, **PLAINTEXT)
    spark.sql(f"CREATE TABLE streamed (id bigint) USING secure_parquet LOCATION '{query.folder}'")
    try:
        assert query.run(spark.readStream.table("streamed")) == [[0, 1, 2]]
        assert query.run() == []
    finally:
        spark.sql("DROP TABLE streamed")


# --- processes that die --------------------------------------------------------------------------

DYING = """
import signal
from secure_bloom.spark.reading import seen_files, stream
from secure_bloom.spark import source

folder, out, checkpoint, moment, number = sys.argv[1:]
driver = [os.getpid(), spark.sparkContext._gateway.proc.pid]

def die(now, batch):
    if (now, batch) == (moment, int(number)):
        for process in [*driver, os.getpid()]: os.kill(process, signal.SIGKILL)

class Log(seen_files.SeenFiles):
    def add(self, start, files, listed):
        end = super().add(start, files, listed)
        die("noted", start.batches)
        return end

class Reader(stream.SecureParquetStreamReader):
    def _seen_files(self):
        log = super()._seen_files()
        log.__class__ = Log
        return log
    def partitions(self, start, end):
        die("planned", start["batches"])
        return super().partitions(start, end)
    def commit(self, end):
        die("committed", end["batches"])

class Source(source.SecureParquet):
    def streamReader(self, schema):
        reader = super().streamReader(schema)
        reader.__class__ = Reader
        return reader

spark.dataSource.register(Source)
(spark.readStream.format("secure_parquet").option("maxFilesPerTrigger", "1")
    .option("checkpointLocation", checkpoint).load(folder)
    .writeStream.format("secure_parquet").option("plaintext", "true")
    .option("checkpointLocation", checkpoint).trigger(availableNow=True).start(out)
    .awaitTermination())
"""


@pytest.mark.sweep
@pytest.mark.parametrize(("moment", "number"), [("noted", 0), ("noted", 1), ("planned", 0),
                                                ("planned", 1), ("committed", 1)])
def test_a_driver_that_is_killed(query, tmp_path, moment, number):
    for start in range(4):
        write(query.spark.range(start, start + 1), query.folder, **PLAINTEXT)
    out = str(tmp_path / "out")
    arguments = query.folder, out, query.checkpoint
    assert own_spark(DYING, *arguments, moment, number).returncode == -signal.SIGKILL
    write(query.spark.range(4, 5), query.folder, **PLAINTEXT)
    result = own_spark(DYING, *arguments, "", 0)
    assert result.returncode == 0, result.stderr
    assert sorted(read_table(out)["id"].to_pylist()) == list(range(5))
    assert len(os.listdir(f"{query.checkpoint}/commits")) == 2 * 5
