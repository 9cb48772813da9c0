"""Encryption beside other jobs: no row is lost or doubled, and nothing stays or comes back open."""

import os
import threading
import uuid
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import secure_bloom
from secure_bloom import audit, encrypt, erase, reencrypt
from secure_bloom.errors import ChangedMeanwhileError, CommitError, KeyNotFoundError
from secure_bloom.index import build
from secure_bloom.keys import rotate_master_keys
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage.commit import Job
from secure_bloom.storage.visibility import data_files
from tests.erasing.helpers import ENCRYPTION, KMS, filters, people, rows, ssn, write_people
from tests.index.helpers import LOCAL, age
from tests.storage.stores import Acts, local_store

OLD = list(range(1, 25))
MEANWHILE = (ChangedMeanwhileError, CommitError, FileNotFoundError, KeyNotFoundError)


def append(folder, numbers, mode="append", encryption=None):
    secure_bloom.write_dataset(people(*numbers), folder, mode=mode, encryption=encryption,
                               keys=KMS if encryption else None)


@pytest.fixture
def scene(tmp_path, settled):
    """Make tables in plaintext: a file of ours, and two foreign ones; with or without an index."""
    def make(*, has_index=True):
        folder = tmp_path / uuid.uuid4().hex
        append(folder, range(1, 9))
        for name, first in (("a", 9), ("b", 17)):
            pq.write_table(people(*range(first, first + 8)), folder / f"{name}.parquet",
                           row_group_size=4)
        age(folder, 100)
        if has_index:
            build(folder, "ssn", encryption=None)
        return folder

    return make


def open_files(folder) -> list[str]:
    """Return the files that are not encrypted."""
    found = []
    for path in data_files(LOCAL, str(folder)):
        with OpenFile(path, KMS) as file:
            if not file.footer.is_encrypted:
                found.append(path)
    return found


def erased(folder):
    if not erase(str(folder), "ssn", list(map(ssn, [1, 10])), KMS, max_share=1).ok:
        raise ChangedMeanwhileError("not all were erased")
    return [1, 10], []


def more_rows(folder):
    append(folder, [100, 101], encryption=ENCRYPTION)
    return [], [100, 101]


def everything_new(folder):
    append(folder, [200, 201], mode="overwrite", encryption=ENCRYPTION)
    return OLD, [200, 201]


def other_keys(folder):
    rotate_master_keys(str(folder), KMS, old="pii", new="other")
    return [], []


def also_encrypted(folder):
    encrypt(str(folder), KMS, encryption=ENCRYPTION, files_at_once=1)
    return [], []


class Between(Acts):
    """The act runs in a thread, and waits where another holds a lock; it is not counted."""

    thread: threading.Thread | None = None

    def call(self, operation, *args, **kwargs):
        if self._watcher is not None or threading.current_thread() is self.thread:
            return operation(*args, **kwargs)
        return super().call(operation, *args, **kwargs)

    def __init__(self, at, act):
        super().__init__(at, lambda: self.start(act))

    def start(self, act):
        """Run an act until it ends or waits."""
        self.thread = threading.Thread(target=act)
        self.thread.start()
        self.thread.join(2)


def _tried(act, folder):
    """Return which rows an act has erased and added; None if it failed, as it may meanwhile."""
    try:
        return act(folder)
    except MEANWHILE:
        return None


ACTS = [erased, more_rows, everything_new, filters, other_keys, also_encrypted]


@pytest.mark.slow
@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.sweep)])
@pytest.mark.parametrize("act", ACTS)
def test_another_job_between_two_steps(scene, tmp_path, monkeypatch, act, every):
    """Both keep what the other has done, also between the last check of a file and its rename."""
    outcomes = set()
    for at in range(1, 1000, every):
        folder, done = scene(has_index=at % 2 == 0), []

        def other(folder=folder, done=done):
            done.append(_tried(act, folder))

        faults = Between(at, other)
        with monkeypatch.context() as patch:
            filesystem = local_store(tmp_path, patch).with_faults(faults, patch)
            result = encrypt(str(folder), KMS, encryption=ENCRYPTION, filesystem=filesystem,
                             files_at_once=1)
            if faults.thread is not None:
                faults.thread.join()
        if not faults.done:
            break
        gone, added = done[0] or ([], [])
        expected = [number for number in OLD if number not in gone] + added
        assert rows(folder) == expected, at
        assert not (result.ok and open_files(folder)), at
        found = secure_bloom.find(folder, "ssn", list(map(ssn, [*OLD, *added])), KMS)
        assert sorted(found["number"].to_pylist()) == expected, at
        outcomes.add((result.ok, done[0] is None))
        result = encrypt(folder, KMS, encryption=ENCRYPTION)
        assert result.ok and rows(folder) == expected and audit(folder, KMS, scan=True).ok, at
    assert at > 50 and (True, False) in outcomes


@pytest.mark.slow
@pytest.mark.parametrize("act", [erased, everything_new])
def test_a_file_does_not_come_back_after_it_was_replaced(scene, monkeypatch, act):
    """A rewrite that has checked the file, but not yet renamed it, is waited for."""
    folder, replace, done, threads = scene(has_index=False), os.replace, [], []

    def slow_replace(source, target, **folders):
        if str(target).endswith("a.parquet") and not threads:
            threads.append(threading.Thread(target=lambda: done.append(_tried(act, folder))))
            threads[0].start()
            threads[0].join(1)
        replace(source, target, **folders)

    monkeypatch.setattr(os, "replace", slow_replace)
    result = encrypt(folder, KMS, encryption=ENCRYPTION, files_at_once=1)
    threads[0].join()
    gone, added = done[0] or ([], [])
    assert rows(folder) == [number for number in OLD if number not in gone] + added
    assert not (result.ok and open_files(folder))


def test_what_is_added_meanwhile_is_encrypted_too(scene, tmp_path):
    """Else it would stay open in a folder of which encrypt said that it was done."""
    folder, outputs, names = scene(), tmp_path / "output", ["d", "c"]

    def advance(fraction):
        if fraction > 0.3 and names:
            pq.write_table(people(100), folder / f"{names.pop()}.parquet")

    result = encrypt(folder, KMS, encryption=ENCRYPTION, output=outputs, advance=advance)
    assert result.ok and len(result.changed) == 5 and rows(outputs) == [*OLD, 100, 100]
    assert open_files(outputs) == []
    names.append("e")
    result = encrypt(folder, KMS, encryption=ENCRYPTION, advance=advance)
    assert result.ok and len(result.changed) == 6 and open_files(folder) == []


def test_keys_of_files_that_nobody_saw_are_not_unused(scene):
    """Whoever destroyed them would lose the rows of a job that is about to end."""
    folder, added = scene(), []
    encrypt(folder, KMS, encryption=ENCRYPTION)

    def advance(fraction):
        if not added:
            added.append(append(folder, [100], encryption=ENCRYPTION))

    result = reencrypt(folder, KMS, master_keys={"pii": "other"}, advance=advance)
    assert result.unused_master_keys == ["pii"] and len(result.changed) == 4
    job = Job(LOCAL, str(folder), overwrite=False)
    job.start()
    write_people(Path(job.new_file(0)), [200])
    result = reencrypt(folder, KMS, master_keys={"other": "pii"})
    assert result.ok and result.unused_master_keys == []
    assert "1 file of jobs that have not ended" in result.out_of_reach[-1]
