"""Writes that keep indexes current: files are covered as soon as they are committed."""

import logging
import os
import shutil
from types import SimpleNamespace

import pytest

import secure_bloom.index
import secure_bloom.spark
from secure_bloom import read_table
from secure_bloom.index import Index
from secure_bloom.index import writing as indexing
from secure_bloom.index.stamps import Stamp
from secure_bloom.spark.options.options import Options
from secure_bloom.spark.writing import writer as writer_module
from secure_bloom.spark.writing.writer import SecureParquetWriter
from tests.spark.helpers import PLAINTEXT, people, uses_spark, visible, write
from tests.spark.test_streaming import Stream
from tests.storage.s3 import BUCKET

pytestmark = uses_spark


@pytest.fixture
def indexed(encrypted):
    """Options that encrypt column ssn, and keep its index current."""
    return {**encrypted, "index_columns": "ssn"}


def known(folder, keyring, value="absent", column="ssn") -> tuple[list[str], list[str]]:
    """Return the files that may have a value, and those that the index does not cover."""
    found = Index.open(folder, keyring).lookup(column, value)
    return list(found.row_groups[0]), found.uncovered


def test_written_files_are_covered(spark, tmp_path, keyring, indexed):
    folder = tmp_path / "people"
    for start in (0, 100):
        write(people(spark, start=start), folder, **indexed)
        assert known(folder, keyring) == ([], [])
    for number in (0, 99, 100, 199):
        assert len(known(folder, keyring, f"ssn-{number}")[0]) == 1
    found = secure_bloom.spark.load(spark, folder, [("ssn", "=", "ssn-150")], index="require",
                                    keyring=indexed["keyring"])
    assert found.collect() == [("ssn-150", "city-0", 150)] and found.rdd.getNumPartitions() == 1
    assert secure_bloom.index.build(folder, "ssn", keyring).unchanged == 4


def test_files_that_an_overwrite_replaces_are_not_found(spark, tmp_path, keyring, indexed):
    folder = tmp_path / "people"
    write(people(spark), folder, **indexed)
    write(people(spark, start=100), folder, "overwrite", **indexed)
    assert known(folder, keyring, "ssn-5") == ([], [])
    assert len(known(folder, keyring, "ssn-105")[0]) == 1


@pytest.mark.parametrize("options", [
    {"parquet.encryption.double.wrapping": "false"}, {"partition_by": "city"},
    {"max_rows_per_file": "20"}, {"index_columns": "SSN, id", "parquet.encryption.column.keys":
                                  "pii: ssn; money: id"}])
def test_other_ways_to_write(spark, tmp_path, keyring, indexed, options):
    folder = tmp_path / "people"
    write(people(spark), folder, **{**indexed, **options})
    assert known(folder, keyring) == ([], [])
    assert len(known(folder, keyring, "ssn-42")[0]) == 1
    if "id" in options.get("index_columns", ""):
        assert known(folder, keyring, 42, "id") == known(folder, keyring, "ssn-42")


def test_an_object_store(spark, s3, tmp_path, keyring, indexed):
    uri, path, filesystem = s3.uri(tmp_path.name), f"{BUCKET}/{tmp_path.name}", s3.filesystem_of()
    for start in (0, 100):
        write(people(spark, start=start), uri, **indexed)
    index = Index.open(path, keyring, filesystem=filesystem)
    assert index.lookup("ssn", "absent").uncovered == []
    frames = [secure_bloom.spark.load(spark, uri, [("ssn", "=", "ssn-150")], index=use,
                                      keyring=indexed["keyring"]) for use in ("require", "off")]
    assert frames[0].collect() == frames[1].collect() == [("ssn-150", "city-0", 150)]
    assert frames[0].rdd.getNumPartitions() == 1 < frames[1].rdd.getNumPartitions()


def test_one_key_for_everything(spark, tmp_path, keyring):
    write(people(spark), tmp_path / "t", keyring=keyring.path, index_columns="city",
          **{"parquet.encryption.uniform.key": "pii"})
    assert known(tmp_path / "t", keyring, "city-5", "city")[1] == []
    assert Index.open(tmp_path / "t", keyring).column("city").manifest.material.master_key_id \
        == "pii"


def test_a_partition_folder_belongs_to_the_index_of_its_table(spark, tmp_path, keyring, indexed):
    for day in (1, 2):
        write(people(spark, start=100 * day), tmp_path / "t" / f"day={day}", **indexed)
    assert known(tmp_path / "t", keyring) == ([], [])
    [found], _ = known(tmp_path / "t", keyring, "ssn-142")
    assert found.startswith("day=1/")
    assert not (tmp_path / "t" / "day=1" / "_index").exists()


def test_an_index_without_encryption_is_kept_but_not_created(spark, tmp_path):
    folder = tmp_path / "t"
    with pytest.raises(Exception, match="build the index first"):
        write(people(spark), folder, index_columns="id", **PLAINTEXT)
    assert visible(folder) == []
    write(people(spark), folder, **PLAINTEXT)
    secure_bloom.spark.build_index(spark, folder, "id", encryption=None)
    write(people(spark, start=100), folder, index_columns="id", **PLAINTEXT)
    assert known(folder, None, 150, "id")[1] == []


def test_a_column_that_is_encrypted_has_no_open_index(spark, tmp_path, indexed):
    folder = tmp_path / "t"
    write(people(spark), folder, **PLAINTEXT)
    secure_bloom.spark.build_index(spark, folder, "ssn", encryption=None)
    with pytest.raises(Exception, match="delete the index"):
        write(people(spark), folder, **indexed)
    assert len(visible(folder)) == 2


@pytest.mark.parametrize(("columns", "message"), [
    ("none", "there is no column 'none'"), ("ssn, ssn", "listed twice"), ("flag", "cannot have")])
def test_columns_that_cannot_be_indexed(spark, tmp_path, encrypted, columns, message):
    frame = people(spark).selectExpr("*", "id = 1 as flag")
    with pytest.raises(Exception, match=message):
        write(frame, tmp_path / "t", **encrypted, index_columns=columns)


def test_other_options_are_told_apart(spark, tmp_path, indexed):
    with pytest.raises(Exception, match="for reading only"):
        write(people(spark), tmp_path / "t", **indexed, index="require")
    write(people(spark), tmp_path / "t", **indexed)
    assert secure_bloom.spark.load(spark, tmp_path / "t", [("ssn", "=", "ssn-1")], **indexed,
                                   index="require").count() == 1


# --- failures ------------------------------------------------------------------------------------

class Tasks:
    """A write whose tasks run in this process."""

    def __init__(self, spark, folder, options, monkeypatch):
        monkeypatch.setattr(writer_module, "task_context",
                            lambda: SimpleNamespace(partitionId=lambda: 0))
        self.frame = people(spark)
        self.writer = SecureParquetWriter(Options({"path": str(folder), **options}),
                                          self.frame.schema, False)

    def run(self):
        """Run one attempt of the only task."""
        return self.writer.write(iter(self.frame.toArrow().to_batches()))


def segment_of(report):
    """Return the only segment that a task has written."""
    [made] = report.index.made.values()
    [segment] = made.segments
    return segment


def test_attempts_that_are_lost_or_repeated_publish_nothing(spark, tmp_path, keyring, indexed,
                                                            monkeypatch):
    tasks = Tasks(spark, tmp_path / "t", indexed, monkeypatch)
    lost, reported = tasks.run(), tasks.run()
    tasks.writer.commit([reported])
    assert known(tmp_path / "t", keyring, "ssn-5") == ([reported.files[0].path], [])
    assert [one.id for one in Index.open(tmp_path / "t", keyring).column("ssn").manifest.body
            .segments] == [segment_of(reported).id]
    assert segment_of(lost).name in os.listdir(tmp_path / "t" / "_index" / "ssn")


def test_a_store_whose_listings_date_objects_more_precisely(spark, s3, tmp_path, keyring, indexed,
                                                            monkeypatch):
    tasks = Tasks(spark, s3.uri(tmp_path.name), indexed, monkeypatch)
    with monkeypatch.context() as in_tasks:
        in_tasks.setattr(Stamp, "of", classmethod(
            lambda cls, info: cls(info.size, info.mtime_ns - 1)))
        report = tasks.run()
    tasks.writer.commit([report])
    index = Index.open(f"{BUCKET}/{tmp_path.name}", keyring, filesystem=s3.filesystem_of())
    assert index.lookup("ssn", "absent").uncovered == []
    assert len(index.lookup("ssn", "ssn-5").row_groups[0]) == 1


def test_an_aborted_job_publishes_nothing(spark, tmp_path, keyring, indexed, monkeypatch):
    tasks = Tasks(spark, tmp_path / "t", indexed, monkeypatch)
    tasks.writer.abort([tasks.run()])
    assert Index.open(tmp_path / "t", keyring).column("ssn").segments == []


@pytest.mark.parametrize(("where", "name"), [
    (indexing.SegmentMaker, "add"), (indexing.SegmentMaker, "write"),
    (indexing, "publish_segments"), (indexing, "_restamped"), (indexing, "merge_tiers")])
def test_whatever_fails_the_job_is_committed(spark, tmp_path, keyring, indexed, monkeypatch, caplog,
                                             where, name):
    def fails(*args, **options):
        raise ZeroDivisionError("planted")

    tasks = Tasks(spark, tmp_path / "t", indexed, monkeypatch)
    monkeypatch.setattr(where, name, fails)
    tasks.writer.commit([tasks.run()])
    assert ("could not be merged" if name == "merge_tiers" else "searched without it: planted") \
        in caplog.text
    monkeypatch.undo()
    assert len(read_table(tmp_path / "t", keyring, filters=[("ssn", "=", "ssn-5")])) == 1
    assert secure_bloom.index.build(tmp_path / "t", "ssn", keyring).failed == {}
    assert known(tmp_path / "t", keyring) == ([], [])


def test_a_segment_that_a_vacuum_deleted_is_not_published(spark, tmp_path, keyring, indexed,
                                                          monkeypatch):
    tasks = Tasks(spark, tmp_path / "t", indexed, monkeypatch)
    report = tasks.run()
    Index.open(tmp_path / "t", keyring).vacuum(grace=0)
    tasks.writer.commit([report])
    assert len(known(tmp_path / "t", keyring)[1]) == 1


@pytest.mark.parametrize("commits_elsewhere", [False, True])
def test_an_index_that_was_built_again_does_not_get_segments_of_the_old_one(
        spark, tmp_path, keyring, indexed, monkeypatch, caplog, commits_elsewhere):
    tasks = Tasks(spark, tmp_path / "t", indexed, monkeypatch)
    report = tasks.run()
    shutil.rmtree(tmp_path / "t" / "_index")
    other = Tasks(spark, tmp_path / "t", indexed, monkeypatch)
    if commits_elsewhere:  # as a stream does
        other.writer.job = tasks.writer.job
        other.writer.commit([report])
    else:
        tasks.writer.commit([report])
        assert "deleted and built again" in caplog.text
    assert Index.open(tmp_path / "t", keyring).column("ssn").segments == []
    assert len(known(tmp_path / "t", keyring)[1]) == 1


def test_a_damaged_index_does_not_stop_writes(spark, tmp_path, keyring, indexed, monkeypatch,
                                              caplog):
    tasks = Tasks(spark, tmp_path / "t", indexed, monkeypatch)
    tasks.writer.commit([tasks.run()])
    manifest = max((tmp_path / "t" / "_index" / "ssn").glob("*.manifest"))
    manifest.write_text('{"format": "SBX9"}')
    tasks = Tasks(spark, tmp_path / "t", indexed, monkeypatch)
    assert "unknown format" in caplog.text
    tasks.writer.commit([tasks.run()])
    assert len(read_table(tmp_path / "t", keyring, index="off")) == 200


def test_no_key_is_in_reports_or_logs(spark, tmp_path, keyring, indexed, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    tasks = Tasks(spark, tmp_path / "t", indexed, monkeypatch)
    report = tasks.run()
    tasks.writer.commit([report])
    secret = Index.open(tmp_path / "t", keyring).column("ssn").manifest.key.secret
    text = f"{report} {vars(tasks.writer)} {caplog.text}"
    assert secret.hex() not in text and str(secret)[2:-1] not in text and "ssn-5" not in text


# --- streams -------------------------------------------------------------------------------------

def check_many_batches(stream, keyring, indexed, number):
    stream.add(*((10 * start, 10 * start + 10) for start in range(number)))
    stream.run(change=lambda frame: frame.selectExpr("id", "concat('ssn-', id) as ssn"), **indexed)
    assert len(visible(stream.folder)) == number
    index = Index.open(stream.folder, keyring).column("ssn")
    tiers = [(segment.info.pairs.bit_length() - 1) // 3 for segment in index.segments]
    assert len(tiers) <= 14 and max(map(tiers.count, tiers)) <= 7
    assert known(stream.folder, keyring) == ([], [])
    for value in range(5, 10 * number, 37):
        assert len(known(stream.folder, keyring, f"ssn-{value}")[0]) == 1


def test_small_batches_leave_few_segments(spark, tmp_path, keyring, indexed):
    check_many_batches(Stream(spark, tmp_path), keyring, indexed, 10)


@pytest.mark.sweep
def test_200_small_batches_leave_few_segments(spark, tmp_path, keyring, indexed):
    check_many_batches(Stream(spark, tmp_path), keyring, indexed, 200)


def test_a_batch_that_spark_repeats_is_not_published_twice(spark, tmp_path, keyring, indexed):
    stream = Stream(spark, tmp_path)
    stream.add((0, 10))
    change = {"change": lambda frame: frame.selectExpr("id", "concat('ssn-', id) as ssn")}
    stream.run(**change, **indexed)
    segments = Index.open(stream.folder, keyring).column("ssn").manifest.body.segments
    stream.forget_last_batch()
    stream.run(**change, **indexed)
    assert Index.open(stream.folder, keyring).column("ssn").manifest.body.segments == segments
    assert known(stream.folder, keyring) == ([], [])
