"""Erasures beside other jobs: no row is lost, none is doubled, and erased rows stay away."""

import threading
import uuid
from pathlib import Path

import pytest

import secure_bloom
from secure_bloom import ParquetFile, erase, read_table, verify_file
from secure_bloom.errors import ChangedMeanwhileError, CommitError
from secure_bloom.storage.commit import Job
from secure_bloom.storage.visibility import data_files
from tests.erasing.helpers import ENCRYPTION, KMS, filters, people, rows, ssn, write_people
from tests.index.helpers import LOCAL
from tests.storage.stores import Acts, local_store

pytestmark = pytest.mark.slow

OLD = list(range(1, 25))


@pytest.fixture
def scene(tmp_path, monkeypatch):
    """Make tables: a file of ours, and two foreign ones."""
    def make():
        folder = tmp_path / uuid.uuid4().hex
        append(folder, range(1, 9))
        write_people(folder / "a.parquet", range(9, 17))
        write_people(folder / "b.parquet", range(17, 25))
        return folder
    return make


def append(folder, numbers, mode="append"):
    secure_bloom.write_dataset(people(*numbers), folder, encryption=ENCRYPTION, keys=KMS, mode=mode)


def contents(folder) -> dict[str, bytes]:
    return {path: Path(path).read_bytes() for path in data_files(LOCAL, str(folder))}


def run(folder, numbers, filesystem=LOCAL):
    return erase(str(folder), "ssn", list(map(ssn, numbers)), KMS, max_share=1,
                 filesystem=filesystem, files_at_once=1)


def other_values(folder):
    run(folder, [2, 18])
    return [2, 18], []


def the_same_values(folder):
    run(folder, [1, 10])
    return [], []


def more_rows(folder):
    append(folder, [100, 101])
    return [], [100, 101]


def one_file(folder):
    erase(str(folder / "a.parquet"), "ssn", ssn(11), KMS, max_share=1)
    return [11], []


def everything_new(folder):
    append(folder, [200, 201], mode="overwrite")
    return OLD, [200, 201]


class Between(Acts):
    """The act may use threads; what they do is not counted."""

    def call(self, operation, *args, **kwargs):
        if self._watcher is not None:
            return operation(*args, **kwargs)
        return super().call(operation, *args, **kwargs)


ACTS = [other_values, the_same_values, more_rows, filters, one_file, everything_new]


@pytest.mark.parametrize("every", [61, pytest.param(3, marks=pytest.mark.sweep)])
@pytest.mark.parametrize("act", ACTS)
def test_another_job_between_two_steps(scene, tmp_path, monkeypatch, act, every):
    """The erasure, the other job, or both succeed; whatever has failed has changed nothing."""
    outcomes = set()
    for at in range(1, 1000, every):
        folder, done = scene(), []

        def between(folder=folder, done=done):
            try:
                done.append(act(folder))
            except (ChangedMeanwhileError, CommitError, FileNotFoundError) as error:
                done.append(error)

        faults = Between(at, between)
        with monkeypatch.context() as patch:
            filesystem = local_store(tmp_path, patch).with_faults(faults, patch)
            try:
                erased = run(folder, [1, 10], filesystem)
            except (ChangedMeanwhileError, CommitError) as error:
                erased = error
        if not faults.done:
            break
        gone, added = ([], []) if isinstance(done[0], Exception) else done[0]
        gone = {*gone, *([] if isinstance(erased, Exception) else [1, 10])}
        if act is the_same_values and not isinstance(done[0], Exception):
            gone |= {1, 10}
        if isinstance(erased, CommitError) and "another job ended this one" in str(erased):
            gone |= {1, 10} - set(rows(folder))  # the error says that this is unknown
        assert rows(folder) == [number for number in OLD if number not in gone] + added, at
        if not isinstance(erased, Exception):
            assert erased.ok
        for path in data_files(LOCAL, str(folder)):
            assert verify_file(path, KMS).ok
        outcomes.add((isinstance(erased, Exception), isinstance(done[0], Exception)))
    assert at > 100 and (False, False) in outcomes


def test_readers_see_the_table_before_or_after_each_erasure(scene):
    folder, seen, is_done, errors = scene(), [], threading.Event(), []

    def read():
        try:
            while not is_done.is_set():
                seen.append(sorted(read_table(folder, KMS, columns=["number"])["number"]
                                   .to_pylist()))
        except BaseException as error:
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    states = [OLD]
    for first in range(1, 5):
        erased = [first, first + 8, first + 16]
        run(folder, erased)
        states.append([number for number in states[-1] if number not in erased])
    is_done.set()
    reader.join()
    assert not errors and seen and all(state in states for state in seen)


def test_a_reader_that_began_before_sees_the_old_files_whole(scene):
    folder = scene()
    paths = data_files(LOCAL, str(folder))
    opened = [ParquetFile(path, KMS) for path in paths]
    batches = [file.iter_batches(["number"]) for file in opened]
    run(folder, [1, 10, 20])
    assert not set(paths) & set(data_files(LOCAL, str(folder)))
    found = [number for one in batches for batch in one for number in batch["number"].to_pylist()]
    assert sorted(found) == OLD


def test_files_that_held_nobody_keep_their_names_and_bytes(scene):
    folder = scene()
    before = contents(folder)
    result = run(folder, [10])
    after = contents(folder)
    [changed] = before.keys() - after.keys()
    assert changed.endswith("/a.parquet") and [one.file for one in result.files] == [changed]
    assert len(after) == 3 and all(after[path] == before[path] for path in before.keys() & after)
    again = run(folder, [10])
    assert again.files == [] and again.ok
    assert contents(folder) == after


def test_rows_with_erased_values_that_were_appended_meanwhile_are_reported(scene, monkeypatch):
    folder = scene()
    original = Job.commit

    def commit(job, *args, **kwargs):
        result = original(job, *args, **kwargs)
        if not job.overwrite and kwargs.get("replaced"):
            append(folder, [10])
        return result

    monkeypatch.setattr(Job, "commit", commit)
    result = run(folder, [10])
    assert not result.ok and result.absence.found_rows == 1
    assert "not complete" in repr(result)
    monkeypatch.undo()
    assert run(folder, [10]).ok
