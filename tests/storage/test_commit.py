"""The commit protocol, without Spark: on a local filesystem, S3, and a store with coarse times."""

import contextlib
import gc
import logging
import os
import pickle
import shutil
import uuid

import pyarrow as pa
import pyarrow.fs as pa_fs
import pytest

from secure_bloom import read_table
from secure_bloom.errors import CommitError, FormatError
from secure_bloom.spark import last_commit
from secure_bloom.storage import files, job_folder, local_files
from secure_bloom.storage.batches import Batch
from secure_bloom.storage.commit import Job
from secure_bloom.storage.commit_record import CommitRecord, signature
from secure_bloom.storage.files import write_file
from secure_bloom.storage.summary import FilterTotals
from secure_bloom.storage.visibility import data_files, files_below
from secure_bloom.writer import ParquetWriter
from tests.storage.fixtures import ON_SERVER
from tests.storage.stores import Died, Faults, coarse_store, everything_is_stale, later_jobs
from tests.tiers import sweep_where


def test_nothing_is_visible_before_the_commit(store):
    job = store.job()
    files = [store.stage(job, 1), store.stage(job, 2, partition=1)]
    assert store.values() == []
    job.commit(files)
    assert store.values() == store.all_values() == [1, 2]
    names = [name for name in store.names() if name[0] != "_"]
    assert [name[:44] for name in names] == [f"part-0000{n}-{job.id}-" for n in (0, 1)]
    assert store.has_success()
    assert store.staged() == []


@ON_SERVER
def test_append_keeps_and_overwrite_replaces(store):
    store.write(1)
    store.write(2, 3)
    assert store.values() == [1, 2, 3]
    store.write(4, overwrite=True)
    assert store.values() == store.all_values() == [4]


def test_files_of_other_programs_are_replaced(store):
    write_file(store.filesystem, f"{store.folder}/people.parquet", b"1")
    store.write(2, overwrite=True)
    assert store.outcome() == [2]


class _Denies(Faults):
    """Says once that a data file to delete does not exist."""

    def call(self, operation, *args, **kwargs):
        if operation.__name__ == "delete_file" and args[-1].endswith(".parquet") \
                and not self.count:
            self.count = 1
            raise FileNotFoundError(args[-1])
        return operation(*args, **kwargs)


def test_a_replaced_file_that_a_store_denies_once_stays_hidden(store):
    """The next job deletes it: until then, the record of the commit hides it."""
    store.write(1)
    healthy, faults = store.filesystem, _Denies()
    store.filesystem = store.with_faults(faults)
    store.write(2, overwrite=True)
    store.filesystem = healthy
    assert faults.count and store.values() == [2]
    store.write(3)
    assert store.values() == store.all_values() == [2, 3]


@ON_SERVER
def test_hive_folders(store):
    store.write(1, directory="day=2024-01-01/city=x")
    store.write(2, directory="_day=2")
    assert store.values() == [1, 2]
    store.write(3, directory="day=3", overwrite=True)
    assert store.values() == store.all_values() == [3]
    assert any(name.startswith("day=3/part-") for name in store.names())


def test_attempts_that_lost_are_not_published(store):
    job = store.job()
    store.stage(job, 1)
    winner = store.stage(job, 1)
    job.commit([winner])
    assert store.outcome() == [1]


def test_a_job_that_has_committed_is_not_rolled_back(store):
    job = store.job()
    job.finish = lambda record: None  # it dies
    job.commit([store.stage(job, 1)])
    job.abort()
    store.write(2)
    assert store.values() == store.all_values() == [1, 2]


@pytest.mark.parametrize("store", ["local", "s3"], indirect=True)
def test_a_job_goes_to_the_tasks_with_its_id(store):
    job = store.job()
    copy = pickle.loads(pickle.dumps(job))
    assert copy.staging == job.staging
    job.commit([store.stage(copy, 1)])
    assert store.values() == [1]


@pytest.mark.parametrize("content", [None, b"12345"])
def test_a_file_that_is_not_as_reported_stops_the_job(store, content):
    store.write(1)
    job = store.job(overwrite=True)
    files = [store.stage(job, 2), store.stage(job, 3)]
    path = f"{store.folder if job.in_place else job.staging}/{files[1].path}"
    store.filesystem.delete_file(path)
    if content:
        write_file(store.filesystem, path, content)
    with pytest.raises(CommitError, match="missing or changed"):
        job.commit(files)
    assert store.values() == store.all_values() == [1]
    assert store.has_success()


@ON_SERVER
def test_jobs_that_run_at_the_same_time(store):
    first, second, third = store.job(), store.job(), store.job()
    files = [store.stage(first, 1), store.stage(second, 2), store.stage(third, 3)]
    second.commit([files[1]])
    assert store.values() == [2]
    third.abort()
    first.commit([files[0]])
    assert store.outcome() == [1, 2]


def test_dead_jobs_are_removed_by_the_next_one_and_running_ones_are_not(store, monkeypatch):
    dead = store.job()
    store.stage(dead, 1)
    running = store.job()
    late = store.stage(running, 2)
    store.write(3)
    assert store.values() == [3]
    with monkeypatch.context() as patch:
        everything_is_stale(patch)
        running.recover()  # gives up the dead job
        running.recover()
    running.commit([late])
    assert store.outcome() == [2, 3]
    with pytest.raises(CommitError, match="another job removed"):
        dead.commit([])


def test_overwrite_deletes_nothing_but_parquet_files(store):
    write_file(store.filesystem, f"{store.folder}/photo.jpg", b"")
    with pytest.raises(CommitError, match=r"photo\.jpg: overwrite would delete this file"):
        store.job(overwrite=True)
    store.job()


def test_nor_a_file_that_comes_while_the_overwrite_runs(store):
    store.write(1)
    job = store.job(overwrite=True)
    staged = store.stage(job, 2)
    write_file(store.filesystem, f"{store.folder}/photo.jpg", b"123")
    with pytest.raises(CommitError, match=r"photo\.jpg: overwrite would delete this file"):
        job.commit([staged])
    assert "photo.jpg" in store.names()
    store.filesystem.delete_file(f"{store.folder}/photo.jpg")
    assert store.values() == store.all_values() == [1]


def test_a_file_is_no_folder(local, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CommitError, match="there is a file where the folder should be"):
        local.below("file").job()


def test_no_folder(store):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        store.below("nothing").values()


def test_a_new_folder(local, tmp_path):
    folder = local.below("a/b")
    Job(folder.filesystem, folder.folder, True).check_folder()
    assert not (tmp_path / "a").exists()
    folder.write(1, overwrite=True)
    assert folder.values() == [1]


def test_every_new_folder_lasts(local, tmp_path, monkeypatch):
    synced = []
    for module in (files, local_files, job_folder):
        # The path may be that of a descriptor.
        monkeypatch.setattr(module, "sync_folder", lambda path: synced.append(
            os.path.realpath(path)))
    table = local.below("a/t")
    job = table.job()
    assert {str(tmp_path), f"{tmp_path}/a", f"{tmp_path}/a/t", f"{tmp_path}/a/t/_staging",
            job.staging} <= set(synced)
    file = table.stage(job, 1, directory="x=1/y=2/z=3")
    synced.clear()
    job.commit([file])
    assert {table.folder, *(f"{table.folder}/{name}" for name in
                            ("x=1", "x=1/y=2", "x=1/y=2/z=3"))} <= set(synced)


def test_a_slash_at_the_end_of_a_path(store):
    job = store.job()
    store.write(1, directory="x=1")
    store.stage(job, 2)
    assert data_files(store.filesystem, f"{store.folder}/") == data_files(
        store.filesystem, store.folder)
    assert store.below("x=1/").values() == store.values() == [1]


# --- the summary ---------------------------------------------------------------------------------

def test_the_summary_is_logged_and_can_be_read(store, caplog):
    caplog.set_level(logging.INFO, "secure_bloom.spark")
    job = store.job()
    path = job.new_file(0)
    write_file(store.filesystem, path, b"12")
    job.commit([job.staged(path, 10, FilterTotals(2, 1, 300)), store.stage(job, 3)])
    summary = last_commit(store.folder, store.filesystem)
    assert (summary.files, summary.rows, summary.bytes) == (2, 11, 3)
    assert (summary.encrypted_filters, summary.plain_filters, summary.filter_bytes) == (2, 1, 300)
    assert summary.job == job.id
    [message] = [record.getMessage() for record in caplog.records]
    assert '"rows": 11' in message


def test_no_summary(local):
    with pytest.raises(FileNotFoundError):
        last_commit(local.folder)
    for content in (b"", b"[]", b"{}", b"[" * 60_000):
        write_file(local.filesystem, f"{local.folder}/_SUCCESS", content)
        with pytest.raises(FormatError, match="not a secure_parquet commit summary"):
            last_commit(local.folder)


# --- commit records ------------------------------------------------------------------------------

def test_a_copy_without_staging_shows_everything(local):
    local.stage(local.job(), 1)
    job = local.job()
    file = local.stage(job, 2)
    os.rename(f"{job.staging}/{file.path}", f"{local.folder}/{file.path}")
    assert local.values() == []
    os.rename(f"{local.folder}/_staging", f"{local.folder}/../moved")
    assert local.values() == [2]


@pytest.mark.parametrize("record", [
    b"", b"{", b"[]", b"[" * 10**5, b'{"version": 2, "files": []}', b'{"version": 1}',
    b'{"version": 1, "files": [], "new": 1}',
    CommitRecord(["../other/a.parquet"]).to_bytes(),
    CommitRecord([], {"/etc/a.parquet": [1, 1]}).to_bytes(),
    CommitRecord([], stream="../x", batch=1).to_bytes(),
    *(CommitRecord([], stream="q", batch=batch).to_bytes() for batch in ("x", [1], -1, 2**64)),
    *(CommitRecord([], folder=folder).to_bytes() for folder in ("day=\0", "day=\ud800")),
    CommitRecord("x").to_bytes(), CommitRecord([], ["x"]).to_bytes(),
    CommitRecord([], {"a.parquet": 0}).to_bytes()])
def test_a_record_that_cannot_be_understood_is_an_error_and_moves_nothing(local, record):
    local.write(1)
    job = local.job()
    write_file(local.filesystem, f"{job.staging}/committed", record)
    before = local.names()
    with pytest.raises(FormatError, match="cannot be parsed"):
        local.values()
    with pytest.raises(FormatError, match="cannot be parsed"):
        Job(local.filesystem, local.folder, False).recover()
    assert local.names() == before


def test_a_record_deletes_replaced_files_without_a_suffix_only_if_they_are_parquet(local):
    def plant(name, content):
        write_file(local.filesystem, f"{local.folder}/{name}", content)
        staging = f"{local.folder}/_staging/{uuid.uuid4().hex}"
        os.makedirs(staging)
        found = signature(files_below(local.filesystem, local.folder)[name])
        write_file(local.filesystem, f"{staging}/committed",
                   CommitRecord([], {name: found}).to_bytes())
        return staging

    plant("encrypted", b"PARE, and so on")  # of another writer; erase replaces such files
    Job(local.filesystem, local.folder, False).recover()
    assert "encrypted" not in os.listdir(local.folder)
    staging = plant("notes.txt", b"precious")
    with pytest.raises(CommitError, match=r"not Parquet, notes\.txt") as caught:
        Job(local.filesystem, local.folder, False).recover()
    assert caught.value.file == f"{staging}/committed"
    assert "notes.txt" in os.listdir(local.folder)


def test_what_all_records_of_a_table_take_is_bounded(local, monkeypatch):
    names = [f"{number}.parquet" for number in range(50)]
    monkeypatch.setattr("secure_bloom.storage.visibility.MAX_VALUES", (10, 100))
    job, other = local.job(), local.job()
    for staging in (job.staging, other.staging):
        assert local.values() == []
        write_file(local.filesystem, f"{staging}/committed", CommitRecord(names).to_bytes())
    with pytest.raises(FormatError, match="too many values"):
        local.values()
    monkeypatch.setattr("secure_bloom.storage.visibility.MAX_RECORD", 1500)  # one has 1.1 KB
    with pytest.raises(FormatError, match="but at most 1,500 are read"):
        local.values()


def test_a_commit_writes_no_record_that_readers_would_refuse(local, monkeypatch):
    monkeypatch.setattr("secure_bloom.storage.commit_record.MAX_VALUES", (10, 20))
    job = local.job()
    files = [local.stage(job, value) for value in range(30)]
    with pytest.raises(CommitError, match="one commit cannot write 30 files and replace 0"):
        job.commit(files)
    assert local.values() == local.all_values() == []


def test_a_new_file_with_the_name_of_a_replaced_one_is_visible_and_stays(local):
    path = f"{local.folder}/people.parquet"
    write_file(local.filesystem, path, b"1")
    job = local.job(overwrite=True)
    faults = Faults(error=Died)
    job.filesystem = local.with_faults(faults)
    files = [local.stage(job, 2)]
    faults.watch = lambda: os.path.exists(f"{job.staging}/committed") and setattr(faults, "at", 0)
    with pytest.raises(Died):
        job.commit(files)
    faults.watch, faults.at = None, None
    assert (local.values(), local.all_values()) == ([2], [1, 2])
    write_file(local.filesystem, path, b"33")
    assert local.values() == [2, 33]
    local.write(4)
    assert local.values() == local.all_values() == [2, 4, 33]


# --- faults at every operation -------------------------------------------------------------------

#: what readers see before and after a job, by what it overwrites
OUTCOMES = {False: ([1, 2], [1, 2, 3, 4]), True: ([1, 2], [3, 4]),
            "partitions": ([1, 2, 9], [3, 4, 9])}


def run_with(store, monkeypatch, overwrite, faults):
    """Commit 3 and 4 to a folder with 1 and 2; whether it returned."""
    store.write(1, 2, directory="d=1")
    if overwrite == "partitions":
        store.write(9, directory="d=9")
    job = store.job(overwrite)
    files = [store.stage(job, 3, directory="d=1" if overwrite == "partitions" else "d=2"),
             store.stage(job, 4, 1)]
    store.stage(job, 5, 1)  # a task attempt that is not committed
    job.filesystem = store.with_faults(faults)
    try:
        job.commit(files)
    except (OSError, Died):
        return False
    finally:
        monkeypatch.undo()
    return True


def number_of_operations(store, monkeypatch, overwrite):
    faults = Faults()
    assert run_with(store.below("count"), monkeypatch, overwrite, faults)
    return faults.count


@pytest.mark.slow
@sweep_where(lambda store, overwrite, after, error:
             (bool(overwrite) + after + (error is Died)) % 2 == 0)  # half; any two still meet
@pytest.mark.parametrize("overwrite", OUTCOMES)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", [OSError, Died])
def test_a_fault_at_every_operation_leaves_all_or_nothing(store, monkeypatch, overwrite, after,
                                                          error):
    old, new = OUTCOMES[overwrite]
    outcomes = set()
    most = number_of_operations(store, monkeypatch, overwrite)
    for at in filter(lambda at: at <= most, store.steps()):
        folder = store.below(f"{at}")
        done = run_with(folder, monkeypatch, overwrite, Faults(at, after, error))
        seen = folder.values()
        outcomes.add((done, tuple(seen)))
        assert seen in (old, new)
        if done:
            assert seen == new
        elif error is OSError:
            assert seen == folder.all_values() == old
            assert folder.staged() == []
        folder.write(7)  # the next job
        later_jobs(folder, monkeypatch)
        assert folder.outcome() == sorted([*seen, 7])
        assert folder.has_success()
    assert {done for done, _ in outcomes} == ({True, False} if error is OSError else {False})
    assert {seen for _, seen in outcomes} == {tuple(old), tuple(new)}


@pytest.mark.parametrize("overwrite", OUTCOMES)
def test_a_reader_at_any_moment_sees_all_or_nothing(store, monkeypatch, overwrite):
    seen = []
    faults = Faults(watch=lambda: seen.append(store.values()))
    assert run_with(store, monkeypatch, overwrite, faults)
    changes = [value for n, value in enumerate(seen) if n == 0 or seen[n - 1] != value]
    assert changes == list(OUTCOMES[overwrite])


# --- batches of a stream -------------------------------------------------------------------------

def commit_batch(store, number, *values, filesystem=None, stream="query"):
    """The job runs on the store's filesystem, the commit on the other one."""
    job = store.job()
    files = [store.stage(job, value) for value in values]
    job.filesystem = filesystem or job.filesystem
    return job.commit(files, Batch(stream, number))


@ON_SERVER
def test_a_batch_is_committed_once(store):
    assert commit_batch(store, 0, 1).rows == 1
    assert commit_batch(store, 1, 2).rows == 1
    assert commit_batch(store, 1, 2) is None
    assert commit_batch(store, 0, 1) is None
    assert commit_batch(store, 0, 3, stream="other").rows == 1
    assert store.outcome() == [1, 2, 3]
    assert [name for name in store.names() if name.startswith("_streams/")] == [
        "_streams/other/0", "_streams/query/1"]


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_a_batch_whose_commit_died_is_committed_once_when_it_comes_again(store, monkeypatch, after):
    for at in store.steps():
        folder = store.below(f"{at}")
        commit_batch(folder, 0, 1)
        filesystem = folder.with_faults(Faults(at, after, Died))
        try:
            done = commit_batch(folder, 1, 2, filesystem=filesystem) is not None
        except Died:
            done = False
        finally:
            monkeypatch.undo()
        commit_batch(folder, 1, 2)
        assert folder.values() == [1, 2]
        assert commit_batch(folder, 1, 2) is None
        later_jobs(folder, monkeypatch)
        assert folder.outcome() == [1, 2]
        if done:
            return
    pytest.fail("the commit never ended")


# --- uploads -------------------------------------------------------------------------------------

def test_a_file_on_s3_appears_whole_or_not_at_all(s3, tmp_path):
    filesystem, path = s3.filesystem_of(), f"bucket/{tmp_path.name}/a.parquet"
    table = pa.table({"a": range(1000)})

    def exists():
        gc.collect()
        return filesystem.get_file_info(path).type != pa_fs.FileType.NotFound

    with contextlib.suppress(KeyboardInterrupt), \
            ParquetWriter(path, table.schema, bloom_filters={"a": True},
                          filesystem=filesystem) as writer:
        writer.write_table(table)
        raise KeyboardInterrupt
    del writer
    assert not exists()
    with ParquetWriter(path, table.schema, bloom_filters={"a": True},
                       filesystem=filesystem) as writer:
        writer.write_table(table)
        assert not exists()
    assert exists()
    assert writer.filter_totals.plain == 1
    folder = path.removesuffix("a.parquet")  # with a trailing slash
    assert read_table(folder, filesystem=filesystem).equals(table)


def test_a_store_that_cannot_move_files_copies_them(tmp_path):
    """As Azure without a hierarchical namespace."""
    store = coarse_store(tmp_path / "t")
    handler = store.filesystem.handler

    def move(source, target):
        raise NotImplementedError("Move() is not implemented")

    handler.move, handler.copy_file = move, pa_fs.LocalFileSystem().copy_file
    store.write(1)
    store.write(2, overwrite=True)
    assert store.values() == store.all_values() == [2]
    assert not [name for name in store.names() if name.endswith(".tmp")] and not store.staged()


def test_a_copy_that_fails_in_the_store_loses_nothing(tmp_path):
    """Azure says that a copy has ended, but pyarrow does not look whether it has failed."""
    store = coarse_store(tmp_path / "t")
    store.write(1)
    handler = store.filesystem.handler

    def move(source, target):
        raise NotImplementedError("Move() is not implemented")

    handler.move, handler.copy_file = move, lambda _, target: open(target, "wb").close()
    with pytest.raises(OSError, match="has not copied"):
        write_file(store.filesystem, f"{store.folder}/a", b"1")
    [kept] = [name for name in store.names() if name.endswith(".tmp")]
    assert (tmp_path / "t" / kept).read_bytes() == b"1"


def test_a_missing_folder_is_no_error_whatever_a_store_calls_it(tmp_path):
    """Google Cloud Storage in pyarrow raises no FileNotFoundError."""
    store = coarse_store(tmp_path / "t")
    handler = store.filesystem.handler

    def delete_dir(path):
        if not os.path.isdir(path):
            raise OSError(f"No such directory: {path}")
        shutil.rmtree(path)

    handler.delete_dir = delete_dir
    store.write()  # there is no folder of files that are pending
    assert store.has_success() and store.staged() == []


@pytest.mark.parametrize(("base", "folder"), [
    ("t", "/"), ("t", ""), ("", "/t"), ("", "t"), ("t", "/day=1"), ("t", "day=1")])
def test_uncommitted_files_are_hidden_in_a_part_of_a_filesystem(tmp_path, base, folder):
    """A SubTreeFileSystem lists files without the first slash."""
    marker = tmp_path / "t" / "_staging" / ("0" * 32) / "started"
    data = tmp_path / "t" / "day=1" / f"part-00000-{'0' * 32}-{'1' * 32}.parquet"
    for path in (marker, data, data.with_name("visible.parquet")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    filesystem = pa_fs.SubTreeFileSystem(str(tmp_path / base), pa_fs.LocalFileSystem())
    [found] = data_files(filesystem, folder)
    assert found.endswith("day=1/visible.parquet")
