"""Abandoned jobs, when the clocks of processes and of the store differ, or are set back."""

import os
from datetime import datetime, timedelta

import pyarrow.fs as pa_fs
import pytest

from secure_bloom.errors import CommitError
from secure_bloom.storage import ending
from secure_bloom.storage.files import make_folder, write_file
from tests.storage import stores


def set_clock(monkeypatch, hours):
    """Let the clock of this process differ from that of the store."""
    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(hours=hours)

    monkeypatch.setattr(ending, "datetime", Clock)


def age(folder, hours):
    """Let everything below a local folder have been written some hours ago."""
    for above, _, names in os.walk(folder):
        for path in (above, *(os.path.join(above, name) for name in names)):
            then = os.stat(path).st_mtime - 3600 * hours
            os.utime(path, (then, then))


@pytest.mark.parametrize("hours", [2, 26, 24 * 365])
def test_a_process_whose_clock_is_ahead_does_not_abandon_a_running_job(store, monkeypatch, hours):
    job = store.job(overwrite=True)
    files = [store.stage(job, 1), store.stage(job, 2)]
    set_clock(monkeypatch, hours)
    for value in (3, 4, 5):
        store.write(value)
    job.commit(files)
    assert store.outcome() == [1, 2]


def test_a_process_whose_clock_is_ahead_does_not_show_the_file_of_a_late_attempt(
        store, monkeypatch):
    job = store.job()
    late = job.new_file(1)  # hidden by its marker until it is complete and removed
    job.commit([store.stage(job, 1)])
    set_clock(monkeypatch, 26)
    store.write(2)
    make_folder(store.filesystem, os.path.dirname(late))
    write_file(store.filesystem, late, b"9")
    assert store.values() == [1, 2]
    with pytest.raises(CommitError, match="the job ended before this task"):
        job.staged(late, 1)
    assert store.all_values() == [1, 2]


@pytest.mark.parametrize("hours", [-48, -2, 0, 48])
def test_a_dead_job_is_removed_whatever_the_clock_of_the_process(local, monkeypatch, hours):
    dead = local.job()
    local.stage(dead, 1)
    age(dead.staging, 25)
    set_clock(monkeypatch, hours)
    local.write(2)
    assert dead.has("given_up")
    local.write(3)
    assert dead.has("started")  # less than an hour later
    age(dead.staging, 2)
    local.write(4)
    assert local.outcome() == [2, 3, 4]


def test_the_files_of_a_dead_job_from_the_future_stay_hidden_until_its_time_has_passed(local):
    dead = local.job()
    local.stage(dead, 1)
    age(dead.staging, -72)
    local.write(2)
    assert local.values() == [2]
    assert local.staged() != []
    for hours in (72 + 25, 2):
        age(dead.staging, hours)
        local.write(3)
    assert local.staged() == []
    assert local.values() == [2, 3, 3]


def test_temporary_files_of_other_jobs_stay_if_the_store_does_not_date_files(
        tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "_with_time", lambda info, _: pa_fs.FileInfo(
        info.path, info.type, size=info.size))
    store = stores.coarse_store(tmp_path)
    temporary = f"{store.folder}/_staging/.generation.tmp"
    store.job()
    (tmp_path / "_staging" / ".generation.tmp").write_bytes(b"")
    store.job()
    assert os.path.exists(temporary)
