"""Indexes that Spark builds: tasks write segments, the driver publishes them."""

import os
import pickle

import pytest

import secure_bloom.spark
from secure_bloom import attach
from secure_bloom.errors import ColumnError, KeyRetrievalError
from secure_bloom.index import Index, UpdateResult
from secure_bloom.keys import Keyring
from secure_bloom.spark import indexing
from tests.index.helpers import files_with
from tests.spark.helpers import PLAINTEXT, people, sent_to_tasks, uses_spark, write

pytestmark = uses_spark


def build(spark, folder, keyring, columns="ssn", **options) -> UpdateResult:
    return secure_bloom.spark.build_index(spark, folder, columns, keys=keyring, **options)


@pytest.fixture
def folder(spark, tmp_path, encrypted):
    """Four files of ssn-0 to ssn-199, encrypted, without an index."""
    folder = tmp_path / "people"
    for start in (0, 100):
        write(people(spark, start=start), folder, **encrypted)
    return folder


def segments(folder, column="ssn") -> set[str]:
    return {name for name in os.listdir(folder / "_index" / column) if name.endswith(".seg")}


def work_of(folder, keyring, monkeypatch) -> list:
    """Return the function that would be sent to the tasks, and the files of each task."""
    return sent_to_tasks(monkeypatch, indexing, lambda: build(None, folder, keyring))


def test_tasks_build_an_index_that_python_readers_use(spark, folder, keyring):
    result = build(spark, folder, keyring)
    assert (result.indexed, result.unchanged, result.failed) == (4, 0, {})
    assert 1 < len(segments(folder)) <= 4
    for number in (0, 99, 100, 199):
        [found], uncovered = files_with(folder, keyring, f"ssn-{number}")
        assert uncovered == [] and os.path.exists(folder / found)
    assert files_with(folder, keyring, "absent") == ([], [])
    frame = secure_bloom.spark.read(spark, folder, filters=[("ssn", "=", "ssn-120")],
                                    keys=str(keyring.path), index="require")
    assert frame.collect() == [("ssn-120", "city-0", 120)]


def test_building_again_covers_new_files_only(spark, folder, keyring, encrypted):
    build(spark, folder, keyring)
    before = segments(folder)
    assert build(spark, folder, keyring).unchanged == 4
    assert segments(folder) == before
    write(people(spark, start=200), folder, **encrypted)
    result = build(spark, folder, str(keyring.path))
    assert (result.indexed, result.unchanged) == (2, 4)
    assert len(files_with(folder, keyring, "ssn-250")[0]) == 1


def test_files_that_were_rewritten_with_the_same_values_are_noted(spark, folder, keyring):
    build(spark, folder, keyring)
    before = segments(folder)
    attach(folder, ["ssn"], keyring)
    assert len(files_with(folder, keyring, "absent")[1]) == 4
    assert build(spark, folder, keyring).restamped == 4
    assert segments(folder) == before
    assert files_with(folder, keyring, "absent") == ([], [])
    assert len(files_with(folder, keyring, "ssn-5")[0]) == 1


def test_several_columns_and_an_index_without_encryption(spark, tmp_path):
    folder = tmp_path / "plain"
    write(people(spark), folder, **PLAINTEXT)
    result = build(spark, folder, None, ["ssn", "id"], encryption=None)
    assert (result.columns, result.indexed) == (["ssn", "id"], 2)
    assert files_with(folder, None, 7, "id") == files_with(folder, None, "ssn-7")
    assert len(files_with(folder, None, 7, "id")[0]) == 1
    with pytest.raises(ColumnError, match="encryption=None"):
        build(spark, folder, None, "city")
    with pytest.raises(ColumnError):
        build(spark, folder, None, "none", encryption=None)


def test_files_that_cannot_be_read_are_listed_and_searched(spark, folder, keyring):
    path = sorted(folder.glob("*.parquet"))[-1]
    data = path.read_bytes()
    path.write_bytes(data[:60] + bytes(40) + data[100:])  # in a page of ssn
    os.utime(path, ns=(10**18, 10**18))
    result = build(spark, folder, keyring)
    assert list(result.failed) == [path.name] and result.indexed == 3
    assert files_with(folder, keyring, "absent") == ([], [path.name])


def test_attempts_that_are_repeated_or_lost_are_harmless(folder, keyring, monkeypatch, spark):
    work, tasks = work_of(folder, keyring, monkeypatch)
    for task in [*tasks, tasks[0]]:
        work(task)
    lost = segments(folder)
    assert len(lost) == len(tasks) + 1
    assert len(files_with(folder, keyring, "ssn-5")[1]) == 4
    assert build(spark, folder, keyring).indexed == 4
    assert files_with(folder, keyring, "absent") == ([], [])
    assert lost <= {*Index.open(folder, keyring).vacuum(grace=0)}
    assert files_with(folder, keyring, "absent") == ([], [])
    assert len(files_with(folder, keyring, "ssn-5")[0]) == 1


def test_a_task_that_fails_in_the_middle_publishes_nothing(folder, keyring, monkeypatch):
    work, tasks = work_of(folder, keyring, monkeypatch)
    monkeypatch.setattr(indexing.SegmentMaker, "write", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        work(tasks[0])
    assert segments(folder) == set()
    assert len(files_with(folder, keyring, "ssn-5")[1]) == 4


def test_a_file_that_is_replaced_before_its_task_is_not_covered(folder, keyring, monkeypatch):
    work, tasks = work_of(folder, keyring, monkeypatch)
    path = folder / tasks[0][0].path
    os.utime(path, ns=(1, 1))
    outcomes = work(tasks[0]).outcomes
    assert outcomes[path.name] == "changed after it was listed"


def test_the_key_of_the_index_is_only_in_the_pickle(folder, keyring, monkeypatch):
    work, tasks = work_of(folder, keyring, monkeypatch)
    secret = Index.open(folder, keyring).column("ssn").manifest.key.secret
    assert secret in pickle.dumps(work)
    result = str(work(tasks[0]))
    for text in (repr(work), result):
        assert secret.hex() not in text and str(secret)[2:-1] not in text
    assert "ssn-5" not in result


def test_without_the_key_nothing_is_built(spark, folder, tmp_path):
    with pytest.raises(KeyRetrievalError):
        build(spark, folder, Keyring.create(tmp_path / "empty.json"))
    assert not (folder / "_index").exists()
