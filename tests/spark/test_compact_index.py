"""Segments that Spark merges: tasks write parts, the driver publishes them as one segment."""

import os
import pickle

import pytest

import secure_bloom.spark
from secure_bloom.errors import ChangedMeanwhileError, ColumnError, KeyRetrievalError
from secure_bloom.index import Index, compaction, geometry, merging
from secure_bloom.keys import Keyring
from secure_bloom.spark import index_merging, tasks
from tests.spark.helpers import people, sent_to_tasks, uses_spark, write

pytestmark = uses_spark

ROWS = 200


@pytest.fixture
def folder(spark, tmp_path, encrypted, keyring, monkeypatch):
    """Files of ssn-0 to ssn-399, in several segments of small pages; few pairs take a task."""
    monkeypatch.setattr(geometry, "_PAGE_BITS", 4)
    monkeypatch.setattr(merging, "_TOGETHER", 30)  # pairs of a slice
    monkeypatch.setattr(index_merging, "_TASK_PAIRS", 100)
    folder = tmp_path / "people"
    for start in (0, ROWS):
        write(people(spark, ROWS, start), folder, **encrypted)
        secure_bloom.spark.build_index(spark, folder, "ssn", keys=keyring)
    return folder


def compact(spark, folder, keyring, **options):
    return secure_bloom.spark.compact_index(spark, folder, keys=keyring, **options)


def infos(folder, keyring):
    return Index.open(folder, keyring).column("ssn").manifest.body.segments


def answers(folder, keyring):
    """Return what the index answers for values that exist, and for some that do not."""
    values = [f"ssn-{number}" for number in range(2 * ROWS + 100)]
    found = Index.open(folder, keyring).lookup("ssn", values)
    assert found.uncovered == []
    return found.row_groups


def files_of(folder):
    return set(os.listdir(folder / "_index" / "ssn"))


def test_tasks_merge_slices_and_the_answers_stay_the_same(spark, folder, keyring):
    before = answers(folder, keyring)
    assert all(before[:2 * ROWS]) and not any(before[2 * ROWS:])
    assert compact(spark, folder, keyring) > 1
    [info] = infos(folder, keyring)
    assert len(info.parts) == 4 and info.pairs == 2 * ROWS
    assert answers(folder, keyring) == before
    assert Index.open(folder, keyring).verify(sample=None).ok
    frame = secure_bloom.spark.read(spark, folder, filters=[("ssn", "=", "ssn-120")],
                                    keys=str(keyring.path), index="require")
    assert frame.collect() == [("ssn-120", "city-0", 120)]
    assert compact(spark, folder, keyring) == 0


@pytest.mark.sweep
def test_few_values_are_merged_on_the_driver(spark, folder, keyring, monkeypatch):
    monkeypatch.setattr(index_merging, "_TASK_PAIRS", ROWS + 1)
    monkeypatch.setattr(index_merging, "run_tasks", None)
    compact(spark, folder, keyring)
    [info] = infos(folder, keyring)
    assert info.parts == () and info.pairs == 2 * ROWS


@pytest.mark.sweep
def test_files_that_do_not_exist_any_more_are_dropped(spark, folder, keyring):
    gone = sorted(folder.glob("*.parquet"))[0]
    kept = [{path: groups for path, groups in found.items() if path != gone.name}
            for found in answers(folder, keyring)]
    gone.unlink()
    compact(spark, folder, keyring)
    [info] = infos(folder, keyring)
    assert info.parts and info.files == 3 and info.pairs == sum(map(len, kept)) < 2 * ROWS
    assert answers(folder, keyring) == kept


@pytest.mark.sweep
def test_building_merges_many_segments_in_tasks(spark, folder, keyring, encrypted, monkeypatch):
    monkeypatch.setattr(compaction, "FAN_OUT", 2)
    write(people(spark, 100, 1000), folder, **encrypted)
    secure_bloom.spark.build_index(spark, folder, "ssn", keys=keyring)
    assert any(info.parts for info in infos(folder, keyring))
    assert all(answers(folder, keyring)[:2 * ROWS])
    assert Index.open(folder, keyring).lookup("ssn", "ssn-1050").row_groups != [{}]


def work_of(folder, keyring, monkeypatch):
    """Return the function that would be sent to the tasks, and their number."""
    return sent_to_tasks(monkeypatch, index_merging, lambda: compact(None, folder, keyring))


def test_a_merge_that_is_killed_changes_nothing(spark, folder, keyring, monkeypatch):
    before, files = answers(folder, keyring), files_of(folder)
    work, numbers = work_of(folder, keyring, monkeypatch)
    for number in [*numbers[:-1], 0]:  # the last task never ends, and one is repeated
        work(number)
    assert len(files_of(folder) - files) == len(numbers)
    assert answers(folder, keyring) == before
    compact(spark, folder, keyring)
    assert answers(folder, keyring) == before
    Index.open(folder, keyring).vacuum(grace=0)
    [info] = infos(folder, keyring)
    assert files_of(folder) == {*info.file_names, *(
        name for name in files_of(folder) if name.endswith(".manifest"))}
    assert answers(folder, keyring) == before


@pytest.mark.sweep
def test_attempts_that_are_repeated_write_parts_of_their_own(spark, folder, keyring, monkeypatch):
    before = answers(folder, keyring)
    run = index_merging.run_tasks

    def twice(spark, work, numbers):
        attempts = [run(spark, work, numbers) for _ in range(2)]
        return [attempts[number % 2][number] for number in range(len(numbers))]

    monkeypatch.setattr(index_merging, "run_tasks", twice)
    compact(spark, folder, keyring)
    assert answers(folder, keyring) == before
    assert Index.open(folder, keyring).verify(sample=None).ok


def test_a_failing_task_changes_nothing(spark, folder, keyring):
    before, segments = answers(folder, keyring), infos(folder, keyring)
    damaged = folder / "_index" / "ssn" / segments[0].name
    data = damaged.read_bytes()
    damaged.write_bytes(data[:50] + bytes([data[50] ^ 1]) + data[51:])
    with pytest.raises(Exception, match="AuthenticationError"):
        compact(spark, folder, keyring)
    damaged.write_bytes(data)
    assert infos(folder, keyring) == segments and answers(folder, keyring) == before


@pytest.mark.sweep
def test_a_part_that_is_deleted_before_it_is_published(spark, folder, keyring, monkeypatch):
    before, segments = answers(folder, keyring), infos(folder, keyring)
    run = tasks.run_tasks

    def run_and_vacuum(spark, work, numbers):
        written = run(spark, work, numbers)
        Index.open(folder, keyring).vacuum(grace=0)
        return written

    with monkeypatch.context() as patch:
        patch.setattr(index_merging, "run_tasks", run_and_vacuum)
        with pytest.raises(ChangedMeanwhileError, match="grace"):
            compact(spark, folder, keyring)
    assert infos(folder, keyring) == segments and answers(folder, keyring) == before


@pytest.mark.sweep
def test_a_merge_beside_an_update_keeps_both(spark, folder, keyring, encrypted, monkeypatch):
    run = tasks.run_tasks

    def run_and_update(spark, work, numbers):
        written = run(spark, work, numbers)
        write(people(spark, 10, 1000), folder, **encrypted)
        Index.open(folder, keyring).update()
        return written

    before = answers(folder, keyring)
    monkeypatch.setattr(index_merging, "run_tasks", run_and_update)
    compact(spark, folder, keyring)
    assert answers(folder, keyring) == before
    assert len(infos(folder, keyring)) == 2
    assert Index.open(folder, keyring).lookup("ssn", "ssn-1005").row_groups != [{}]


def test_the_key_of_the_index_is_only_in_the_pickle(folder, keyring, monkeypatch):
    work, _ = work_of(folder, keyring, monkeypatch)
    secret = Index.open(folder, keyring).column("ssn").manifest.key.secret
    assert secret in pickle.dumps(work)
    for shown in (repr(work), repr(work(0)), str(pickle.dumps(work(1)))):
        assert secret.hex() not in shown and str(secret)[2:-1] not in shown


@pytest.mark.sweep
def test_what_cannot_be_merged(spark, folder, keyring, tmp_path):
    with pytest.raises(ColumnError, match="no index"):
        compact(spark, folder, keyring, columns="city")
    with pytest.raises(KeyRetrievalError):
        compact(spark, folder, Keyring.create(tmp_path / "empty.json"))
    with pytest.raises(FileNotFoundError):
        compact(spark, tmp_path / "none", keyring)
