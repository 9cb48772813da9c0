"""The commit protocol, without Spark."""

import os
import pickle
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pytest

from secure_bloom.spark.commit import CommitError, Job
from tests.spark.helpers import staged, visible


def new_job(folder, overwrite=False, filesystem=None):
    return Job(filesystem or pa_fs.LocalFileSystem(), str(folder), overwrite)


def stage(job, value, partition=0):
    path = job.new_file(partition)
    pq.write_table(pa.table({"a": [value]}), path)
    return job.staged(path, 1)


def values(folder):
    return sorted(pq.read_table(Path(folder) / name)["a"][0].as_py() for name in visible(folder))


def has_marker(folder):
    return (Path(folder) / "_SUCCESS").exists()


def write(folder, *numbers, overwrite=False):
    job = new_job(folder, overwrite)
    job.commit([stage(job, number, partition) for partition, number in enumerate(numbers)])


class FailingFileSystem(pa_fs.LocalFileSystem):
    """Fails at one call of one method."""

    def fail_at(self, method, call):
        self.method, self.left = method, call
        return self

    def _count(self, method):
        if method == self.method:
            self.left -= 1
            if self.left == 0:
                raise OSError("the disk is gone")

    def move(self, src, dest):
        self._count("move")
        super().move(src, dest)

    def delete_file(self, path):
        self._count("delete_file")
        super().delete_file(path)


def test_nothing_is_visible_before_the_commit(tmp_path):
    job = new_job(tmp_path)
    files = [stage(job, 1), stage(job, 2, partition=1)]
    assert visible(tmp_path) == []
    job.commit(files)
    assert values(tmp_path) == [1, 2]
    assert [name[:10] for name in visible(tmp_path)] == ["part-00000", "part-00001"]
    assert has_marker(tmp_path)
    assert staged(tmp_path) == []


def test_append_keeps_and_overwrite_replaces(tmp_path):
    write(tmp_path, 1)
    write(tmp_path, 2, 3)
    assert values(tmp_path) == [1, 2, 3]
    write(tmp_path, 4, overwrite=True)
    assert values(tmp_path) == [4]


def test_attempts_that_lost_are_not_published(tmp_path):
    job = new_job(tmp_path)
    stage(job, 1)
    winner = stage(job, 1)
    job.commit([winner])
    assert values(tmp_path) == [1]
    assert staged(tmp_path) == []


def test_late_attempts_stay_hidden(tmp_path):
    job = new_job(tmp_path)
    job.commit([stage(job, 1)])
    stage(job, 1)
    assert values(tmp_path) == [1]
    assert len(staged(tmp_path)) == 1


def test_a_job_goes_to_the_tasks_with_its_id(tmp_path):
    job = new_job(tmp_path)
    copy = pickle.loads(pickle.dumps(job))
    assert copy.staging == job.staging
    job.commit([stage(copy, 1)])
    assert values(tmp_path) == [1]


@pytest.mark.parametrize("change", [os.unlink, lambda path: os.truncate(path, 5)])
def test_a_file_that_is_not_as_reported_stops_the_job(tmp_path, change):
    write(tmp_path, 1)
    job = new_job(tmp_path, overwrite=True)
    files = [stage(job, 2), stage(job, 3)]
    change(Path(job.staging) / files[1].name)
    with pytest.raises(CommitError, match="missing or changed"):
        job.commit(files)
    assert values(tmp_path) == [1]
    assert has_marker(tmp_path)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_failure_while_publishing_takes_new_files_back(tmp_path, overwrite):
    write(tmp_path, 1)
    job = new_job(tmp_path, overwrite, FailingFileSystem().fail_at("move", 2))
    with pytest.raises(OSError, match="the disk is gone"):
        job.commit([stage(job, 2), stage(job, 3)])
    job.remove_staging()
    assert values(tmp_path) == [1]
    assert staged(tmp_path) == []


def test_a_failure_while_deleting_old_files_says_which_are_left(tmp_path):
    write(tmp_path, 1, 2)
    names = visible(tmp_path)
    # the first deletion is that of _SUCCESS
    job = new_job(tmp_path, True, FailingFileSystem().fail_at("delete_file", 2))
    with pytest.raises(CommitError, match="rows may appear twice") as caught:
        job.commit([stage(job, 3)])
    assert names[0] in str(caught.value)
    assert values(tmp_path) == [1, 3]
    assert not has_marker(tmp_path)


def test_staging_of_dead_jobs_is_removed_by_the_next_job_and_of_running_ones_is_not(tmp_path):
    dead, running = new_job(tmp_path), new_job(tmp_path)
    stage(dead, 1)
    late = stage(running, 2)
    two_days_ago = time.time() - 2 * 86400
    for folder, _, names in os.walk(dead.staging):
        for path in [folder, *(os.path.join(folder, name) for name in names)]:
            os.utime(path, (two_days_ago, two_days_ago))
    os.utime(running.staging, (two_days_ago, two_days_ago))  # its file is new
    write(tmp_path, 3)
    assert not os.path.exists(dead.staging)
    running.commit([late])
    assert values(tmp_path) == [2, 3]


def test_overwrite_deletes_nothing_but_parquet_files(tmp_path):
    (tmp_path / "photo.jpg").write_bytes(b"")
    with pytest.raises(CommitError, match=r"photo\.jpg: overwrite would delete this file"):
        new_job(tmp_path, overwrite=True).check_folder()
    new_job(tmp_path).check_folder()


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CommitError, match="there is a file where the folder should be"):
        new_job(tmp_path / "file").check_folder()


def test_a_new_folder(tmp_path):
    job = new_job(tmp_path / "a" / "b", overwrite=True)
    job.check_folder()
    assert not (tmp_path / "a").exists()
    job.commit([stage(job, 1)])
    assert values(tmp_path / "a" / "b") == [1]
