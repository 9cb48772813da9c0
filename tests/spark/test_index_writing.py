"""Writes that keep indexes current: files are covered as soon as they are committed."""

import logging
import os
import shutil

import pytest

import secure_bloom.index
import secure_bloom.spark
from secure_bloom.index import Index
from tests.index.helpers import files_with
from tests.spark.helpers import PLAINTEXT, Tasks, people, uses_spark, visible, write
from tests.spark.test_streaming import Stream

pytestmark = uses_spark


@pytest.fixture
def indexed(encrypted):
    """Options that encrypt column ssn, and keep its index current."""
    return {**encrypted, "index_columns": "ssn"}


def test_written_files_are_covered(spark, tmp_path, keyring, indexed):
    folder = tmp_path / "people"
    for start in (0, 100):
        write(people(spark, start=start), folder, **indexed)
        assert files_with(folder, keyring) == ([], [])
    for number in (0, 99, 100, 199):
        assert len(files_with(folder, keyring, f"ssn-{number}")[0]) == 1
    found = secure_bloom.spark.read(spark, folder, filters=[("ssn", "=", "ssn-150")],
                                    index="require", keys=indexed["keys"])
    assert found.collect() == [("ssn-150", "city-0", 150)] and found.rdd.getNumPartitions() == 1
    assert secure_bloom.index.build(folder, "ssn", keyring).unchanged == 4


@pytest.mark.parametrize("options", [
    {"parquet.encryption.double.wrapping": "false"}, {"partition_by": "city"},
    {"max_rows_per_file": "20"}, {"index_columns": "SSN, id", "parquet.encryption.column.keys":
                                  "pii: ssn; money: id"}])
def test_other_ways_to_write(spark, tmp_path, keyring, indexed, options):
    folder = tmp_path / "people"
    write(people(spark), folder, **{**indexed, **options})
    assert files_with(folder, keyring) == ([], [])
    assert len(files_with(folder, keyring, "ssn-42")[0]) == 1
    if "id" in options.get("index_columns", ""):
        assert files_with(folder, keyring, 42, "id") == files_with(folder, keyring, "ssn-42")


def test_a_partition_folder_belongs_to_the_index_of_its_table(spark, tmp_path, keyring, indexed):
    for day in (1, 2):
        write(people(spark, start=100 * day), tmp_path / "t" / f"day={day}", **indexed)
    assert files_with(tmp_path / "t", keyring) == ([], [])
    [found], _ = files_with(tmp_path / "t", keyring, "ssn-142")
    assert found.startswith("day=1/")
    assert not (tmp_path / "t" / "day=1" / "_index").exists()


def test_a_column_that_is_encrypted_has_no_open_index(spark, tmp_path, indexed):
    folder = tmp_path / "t"
    write(people(spark), folder, **PLAINTEXT)
    secure_bloom.spark.build_index(spark, folder, "ssn", encryption=None)
    with pytest.raises(Exception, match="delete the index"):
        write(people(spark), folder, **indexed)
    assert len(visible(folder)) == 2


@pytest.mark.sweep
def test_other_options_are_told_apart(spark, tmp_path, indexed):
    with pytest.raises(Exception, match="for reading only"):
        write(people(spark), tmp_path / "t", **indexed, index="require")
    write(people(spark), tmp_path / "t", **indexed)
    assert secure_bloom.spark.read(spark, tmp_path / "t", filters=[("ssn", "=", "ssn-1")],
                                   **indexed, index="require").count() == 1


# --- failures ------------------------------------------------------------------------------------

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
    assert files_with(tmp_path / "t", keyring, "ssn-5") == ([reported.files[0].path], [])
    assert [one.id for one in Index.open(tmp_path / "t", keyring).column("ssn").manifest.body
            .segments] == [segment_of(reported).id]
    assert segment_of(lost).name in os.listdir(tmp_path / "t" / "_index" / "ssn")


def test_an_aborted_job_publishes_nothing(spark, tmp_path, keyring, indexed, monkeypatch):
    tasks = Tasks(spark, tmp_path / "t", indexed, monkeypatch)
    tasks.writer.abort([tasks.run()])
    assert Index.open(tmp_path / "t", keyring).column("ssn").segments == []


def test_a_segment_that_a_vacuum_deleted_is_not_published(spark, tmp_path, keyring, indexed,
                                                          monkeypatch):
    tasks = Tasks(spark, tmp_path / "t", indexed, monkeypatch)
    report = tasks.run()
    Index.open(tmp_path / "t", keyring).vacuum(grace=0)
    tasks.writer.commit([report])
    assert len(files_with(tmp_path / "t", keyring)[1]) == 1


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
    assert len(files_with(tmp_path / "t", keyring)[1]) == 1


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
    assert files_with(stream.folder, keyring) == ([], [])
    for value in range(5, 10 * number, 37):
        assert len(files_with(stream.folder, keyring, f"ssn-{value}")[0]) == 1


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
    assert files_with(stream.folder, keyring) == ([], [])
