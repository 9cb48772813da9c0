"""The commit protocol under concurrency: a second job, late attempts, readers."""

import contextlib
from datetime import timedelta

import pyarrow.fs as pa_fs
import pytest

from secure_bloom.errors import CommitError, SecureBloomError
from secure_bloom.spark import last_commit
from secure_bloom.storage import ending
from secure_bloom.storage.batches import Batch
from secure_bloom.storage.commit import Job
from secure_bloom.storage.files import write_file
from secure_bloom.storage.visibility import data_files
from tests.storage.stores import Acts, Faults, later_jobs
from tests.storage.test_commit import OUTCOMES
from tests.tiers import sweep_where

#: for a merge, clocks that count seconds are tried by the tests of test_commit.py
pytestmark = [pytest.mark.slow, sweep_where(lambda store, **_: store == "coarse")]


class Scene:
    """A folder with 1 and 2, and a job that is to append 3 and 4, or to replace by them."""

    def __init__(self, store, overwrite=True):
        self.store = store
        store.write(1, 2, directory="d=1")
        if overwrite == "partitions":
            store.write(9, directory="d=9")
        self.old, self.new = OUTCOMES[overwrite]
        self.job = store.job(overwrite)
        replaced = "d=1" if overwrite == "partitions" else "d=2"
        self.files = [store.stage(self.job, 3, directory=replaced),
                      store.stage(self.job, 4, 1, directory="d=3")]
        store.stage(self.job, 5, 1)  # a task attempt that is not committed

    def commit(self, monkeypatch, faults, batch=None):
        """The error, or None."""
        with monkeypatch.context() as patch:
            filesystem = self.store.with_faults(faults, patch)
            self.job.filesystem = filesystem
            try:
                self.job.commit(self.files, batch)
            except (OSError, CommitError, KeyboardInterrupt) as error:
                return error
            finally:
                self.job.filesystem = self.store.filesystem
        return None


def sweep(store, monkeypatch, act, *, after=False, fails=False, overwrite=True, prepare=None):
    """For steps of a commit: the scene, in which ``act`` was called before the step, or after it
    and before its answer was lost; and the error.
    """
    for at in store.steps():
        scene = Scene(store.below(f"{at}"), overwrite)
        if prepare is not None:
            prepare(scene)
        faults = Acts(at - (not after), lambda scene=scene: act(scene),
                      at=at if fails else None, after=after)
        error = scene.commit(monkeypatch, faults)
        if not faults.done:
            assert at > 10
            return
        yield scene, error
    pytest.fail("the commit never ended")


# --- a second job --------------------------------------------------------------------------------

# Half with each kind of store; together all.
@sweep_where(lambda store, overwrite, fails, after:
             ((bool(overwrite) + fails + after) % 2 == 0) == (store != "objects"))
@pytest.mark.parametrize("overwrite", OUTCOMES)
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_another_job_between_two_steps(store, monkeypatch, overwrite, fails, after):
    outcomes = set()

    def another(scene):
        before = scene.store.values()
        scene.store.write(7)
        seen = scene.store.values()
        assert before in (scene.old, scene.new)
        assert seen in (sorted([*scene.old, 7]), sorted([*scene.new, 7]))

    for scene, error in sweep(store, monkeypatch, another, after=after, fails=fails,
                              overwrite=overwrite):
        seen = scene.store.values()
        outcomes.add((error is None, tuple(seen)))
        if error is not None:
            assert seen == sorted([*scene.old, 7])
        else:  # the other job may have committed before the replaced files were listed
            assert seen == sorted([*scene.new, 7]) or (overwrite is True and seen == [3, 4])
        later_jobs(scene.store, monkeypatch)
        assert scene.store.outcome() == seen
    assert {done for done, _ in outcomes} == ({True, False} if fails else {True})


def test_another_job_between_two_steps_of_a_roll_back(store, monkeypatch):
    def the_record_cannot_be_written(scene):
        scene.job._write_record = the_disk_is_full

    def the_disk_is_full(record):
        raise OSError("no space left on device")

    for scene, error in sweep(store, monkeypatch, lambda scene: scene.store.write(7),
                              prepare=the_record_cannot_be_written):
        assert isinstance(error, OSError)
        assert scene.store.values() == scene.store.all_values() == [1, 2, 7]
        later_jobs(scene.store, monkeypatch)
        assert scene.store.staged() == []


@pytest.mark.parametrize("fails", [False, True])
def test_a_batch_of_which_another_job_finishes_the_commit(store, monkeypatch, fails):
    for at in store.steps():
        scene = Scene(store.below(f"{at}"), overwrite=False)
        faults = Acts(at, lambda store=scene.store: store.write(7),
                      at=at if fails else None, after=True)
        scene.commit(monkeypatch, faults, Batch("query", 5))
        if not faults.done:
            return
        again = scene.store.job()
        again.commit([scene.store.stage(again, 3), scene.store.stage(again, 4)],
                     Batch("query", 5))
        assert scene.store.values() == [1, 2, 3, 4, 7]
    pytest.fail("the commit never ended")


@pytest.mark.parametrize("act", ["finish", "overwrite"])
def test_a_job_is_finished_between_two_steps_of_another_that_finishes_it(store, monkeypatch, act):
    for at in store.steps(0):
        scene = Scene(store.below(f"{at}"))
        records = []
        scene.job.finish = records.append
        scene.commit(monkeypatch, Faults())
        faults = Acts(at, lambda scene=scene, records=records: (
            Job.finish(scene.job, *records) if act == "finish"
            else scene.store.write(8, overwrite=True)))
        seen = start_with(scene.store, monkeypatch, faults)
        assert not [values for values in seen if values not in (scene.new, [8])]
        if not faults.done:
            return
        expected = scene.new if act == "finish" else [8]
        later_jobs(scene.store, monkeypatch)
        assert scene.store.outcome() == expected
        assert scene.store.has_success()
    pytest.fail("the other job never started")


def start_with(store, monkeypatch, faults):
    """A job starts on this filesystem; what readers see before each of its steps."""
    seen, act = [], faults.watch
    faults.watch = lambda: (act(), seen.append(store.values()))
    job = Job(store.filesystem, store.folder, False)
    with monkeypatch.context() as patch:
        job.filesystem = store.with_faults(faults, patch)
        job.start()
    job.filesystem = store.filesystem
    job.abort()
    return seen


def test_what_another_job_has_finished_is_left_alone(store):
    scene = Scene(store)
    records = []
    scene.job.finish = records.append
    scene.job.commit(scene.files)
    last = store.write(7)
    Job.finish(scene.job, *records)
    assert last_commit(store.folder, store.filesystem).job == last.id
    assert store.outcome() == [3, 4, 7]


def test_a_commit_that_was_finished_and_replaced_before_it_was_known(store):
    scene = Scene(store)
    write_record = scene.job._write_record

    def lose_the_answer(record):
        write_record(record)
        store.write(8, overwrite=True)
        raise OSError("connection reset")

    scene.job._write_record = lose_the_answer
    with pytest.raises(CommitError, match="either they were committed and then replaced"):
        scene.job.commit(scene.files)
    assert store.outcome() == [8]


# --- silent jobs ---------------------------------------------------------------------------------

def give_up(scene, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(ending, "STALE_AFTER", timedelta(days=-1))
        scene.store.job().abort()
        scene.store.job().abort()


@pytest.mark.parametrize("act", [
    give_up, lambda scene, monkeypatch: later_jobs(scene.store, monkeypatch)],
    ids=["given up", "taken back"])
def test_a_silent_job_is_ended_between_two_steps(store, monkeypatch, act):
    """It was paused for hours. What it committed earlier stays; afterwards it cannot commit."""
    outcomes = set()
    for scene, error in sweep(store, monkeypatch, lambda scene: act(scene, monkeypatch)):
        seen = scene.store.values()
        outcomes.add((error is None, tuple(seen)))
        assert seen == (scene.old if error else scene.new)
        later_jobs(scene.store, monkeypatch)
        assert scene.store.outcome() == seen
    assert outcomes == {(False, (1, 2)), (True, (3, 4))}


def test_a_silent_job_commits_between_two_steps_of_another_that_gives_it_up(store, monkeypatch):
    monkeypatch.setattr(ending, "STALE_AFTER", timedelta(days=-1))
    outcomes = set()
    for at in store.steps(0):
        scene = Scene(store.below(f"{at}"))
        errors = []
        faults = Acts(at, lambda scene=scene, errors=errors: errors.append(
            scene.commit(monkeypatch, Faults())))
        seen = start_with(scene.store, monkeypatch, faults)
        if not faults.done:
            assert True in outcomes
            return
        expected = scene.old if errors[0] else scene.new
        outcomes.add(errors[0] is None)
        assert seen[-1] == expected
        later_jobs(scene.store, monkeypatch)
        assert scene.store.outcome() == expected
    pytest.fail("the other job never started")


def test_a_job_that_was_given_up_cannot_commit_and_leaves_nothing(store, monkeypatch):
    """Not even while it publishes its files."""
    scene = Scene(store)
    publish = scene.job._publish

    def give_up(names):
        publish(names)
        with monkeypatch.context() as patch:
            patch.setattr(ending, "STALE_AFTER", timedelta(days=-1))
            store.job().abort()

    scene.job._publish = give_up
    with pytest.raises(CommitError, match="another job removed the files"):
        scene.job.commit(scene.files)
    assert store.outcome() == [1, 2]


def test_a_commit_is_a_sign_of_life(store, monkeypatch):
    """A job that was silent for long begins to commit, then another one looks what is dead."""
    scene = Scene(store)
    take_back, publish = Job.take_back, scene.job._publish

    def a_day_later(job, state, now):
        if not job.has("committing"):
            state.newest -= timedelta(hours=25)
        take_back(job, state, now)

    def publish_slowly(names):
        store.job().abort()
        publish(names)

    monkeypatch.setattr(Job, "take_back", a_day_later)
    scene.job._publish = publish_slowly
    scene.job.commit(scene.files)
    assert store.values() == [3, 4]


# --- late attempts -------------------------------------------------------------------------------

@pytest.mark.parametrize("end", ["commit", "roll back"])
@pytest.mark.parametrize("slow", [False, True])
def test_a_late_attempt_between_two_steps(store, monkeypatch, end, slow):
    late, began = {}, []

    def prepare(scene):
        late.clear()
        if end == "roll back":
            scene.job._write_record = the_disk_is_full

    def the_disk_is_full(record):
        raise OSError("no space left on device")

    def attempt(scene):
        """Its process is killed when the file is complete, so it never looks at the job again."""
        store = scene.store
        with contextlib.suppress(CommitError):
            late["path"] = Job(store.filesystem, store.folder, False, scene.job.id).new_file(7)
            began.append(late["path"])
            if not slow:
                upload(store)

    def upload(store):
        with contextlib.suppress(KeyError, FileNotFoundError):  # its folder has been removed
            write_file(store.filesystem, late.pop("path"), b"9")

    for scene, error in sweep(store, monkeypatch, attempt, prepare=prepare):
        expected = scene.new if error is None else scene.old
        assert scene.store.values() == expected
        upload(scene.store)
        assert scene.store.values() == expected
        later_jobs(scene.store, monkeypatch)
        assert scene.store.outcome() == expected
    assert len(began) > 2


def test_late_attempts_leave_no_folders(store, monkeypatch):
    job, other = store.job(), store.job()
    path = job.new_file(0, "d=1")
    job.commit([])
    with pytest.raises(CommitError):
        job.new_file(0, "d=1")
    assert job.in_place or not job.exists(job.staging)
    with contextlib.suppress(FileNotFoundError):
        write_file(store.filesystem, path, b"9")
    with pytest.raises(CommitError):
        job.staged(path, 1)
    store.filesystem.create_dir(f"{store.folder}/_staging/{job.id}/d=1", recursive=True)
    other.abort()
    store.write(1)
    with monkeypatch.context() as patch:
        patch.setattr(ending, "STALE_AFTER", timedelta(days=-1))
        store.job().abort()
    left = store.filesystem.get_file_info(pa_fs.FileSelector(f"{store.folder}/_staging"))
    assert [info.base_name for info in left] == ["generation"]


# --- readers -------------------------------------------------------------------------------------

@pytest.mark.parametrize("overwrite", [False, True])
def test_a_whole_job_while_a_reader_lists_the_folder(store, overwrite, monkeypatch):
    outcomes = set()
    for at in range(30):
        folder = store.below(f"{at}")
        folder.write(1, 2)
        old = data_files(folder.filesystem, folder.folder)
        faults = Acts(at, lambda folder=folder: folder.write(3, 4, 5, overwrite=overwrite))
        with monkeypatch.context() as patch:
            seen = data_files(folder.with_faults(faults, patch), folder.folder)
        if not faults.done:
            break
        new = data_files(folder.filesystem, folder.folder)
        assert seen in (old, new)
        outcomes.add(seen == new)
    assert True in outcomes


def check_listings(store, monkeypatch, acts) -> None:
    """A listing shows the old files, before whichever of its steps the acts happen."""
    for at in range(30):
        folder = store.below(f"{at}")
        folder.write(1, 2)
        old = data_files(folder.filesystem, folder.folder)
        faults = Acts(at, *acts(folder))
        with monkeypatch.context() as patch:
            seen = data_files(folder.with_faults(faults, patch), folder.folder)
        if not faults.done:
            return
        assert seen == old
    pytest.fail("the listing never ended")


def test_a_failing_job_while_a_reader_lists_the_folder(store, monkeypatch):
    def acts(folder):
        job = Job(folder.filesystem, folder.folder, False)

        def begin():
            job.start()
            folder.stage(job, 3)

        return begin, job.abort

    check_listings(store, monkeypatch, acts)


def test_a_late_attempt_removes_its_file_while_a_reader_lists_the_folder(store, monkeypatch):
    def acts(folder):
        job = folder.job()
        path = job.new_file(0)
        job.abort()
        with contextlib.suppress(FileNotFoundError):
            write_file(folder.filesystem, path, b"9")

        def end():
            with pytest.raises(CommitError):
                job.staged(path, 1)

        return [end]

    check_listings(store, monkeypatch, acts)


# --- Hive partitions -----------------------------------------------------------------------------

def day(store, number):
    return store.below(f"day={number}")


def test_a_hive_folder_is_part_of_the_table_above(store):
    store.write(1, directory="day=1")
    job = store.job(overwrite=True)
    files = [store.stage(job, 2, directory="day=1"), store.stage(job, 3, directory="day=2")]
    assert day(store, 1).values() == [1]
    job.commit(files)
    assert (day(store, 1).values(), day(store, 2).values()) == ([2], [3])
    part = day(store, 1).job(overwrite=True)
    files = [day(store, 1).stage(part, 4), day(store, 1).stage(part, 5, directory="hour=1")]
    assert part.staging == f"{store.folder}/_staging/{part.id}"
    assert (store.values(), day(store, 1).values()) == ([2, 3], [2])
    part.commit(files)
    assert store.values() == store.all_values() == [3, 4, 5]
    assert store.below("day=1/hour=1").values() == [5]
    assert "day=1/_SUCCESS" in store.names()
    assert store.staged() == []


@pytest.mark.parametrize("folder", ["", "day=1"])
def test_a_reader_of_another_level_sees_all_or_nothing(store, monkeypatch, folder):
    store.write(1, 2, directory="day=1")
    target = store.below(folder) if folder else store
    job = target.job(overwrite=True)
    files = [target.stage(job, n, directory="" if folder else "day=1") for n in (3, 4)]
    seen = []
    faults = Faults(watch=lambda: seen.append((store.values(), day(store, 1).values())))
    with monkeypatch.context() as patch:
        job.filesystem = store.with_faults(faults, patch)
        job.commit(files)
    changes = [value for n, value in enumerate(seen) if n == 0 or seen[n - 1] != value]
    assert changes in ([([1, 2], [1, 2]), ([3, 4], [3, 4])],
                       [([1, 2], [1, 2]), ([1, 2], [3, 4]), ([3, 4], [3, 4])])


def test_dead_jobs_of_a_hive_folder_are_finished_by_the_next_job_on_the_table(store, monkeypatch):
    store.write(1, directory="day=1")
    part = day(store, 1).job(overwrite=True)
    files = [day(store, 1).stage(part, 2)]
    part.finish = lambda record: None
    part.commit(files, Batch("query", 3))
    assert store.values() == [2]
    store.write(3)
    assert store.values() == store.all_values() == [2, 3]
    assert {"day=1/_SUCCESS", "day=1/_streams/query/3"} <= set(store.names())
    assert store.staged() == []
    again = day(store, 1).job()
    assert again.commit([day(store, 1).stage(again, 2)], Batch("query", 3)) is None


def test_a_folder_above_a_table_is_refused_while_a_job_runs_there(store):
    part = store.below("other")
    part.write(1)
    assert store.values() == [1]
    job = part.job()
    with pytest.raises(SecureBloomError, match="other: this is a separate table"):
        store.values()
    job.abort()
    assert store.values() == [1]


# --- interruptions -------------------------------------------------------------------------------

@pytest.mark.parametrize("after", [False, True])
def test_an_interruption_says_whether_the_job_has_committed(store, monkeypatch, after, caplog):
    outcomes = set()
    for at in store.steps():
        scene = Scene(store.below(f"{at}"))
        caplog.clear()
        error = scene.commit(monkeypatch, Faults(at, after, KeyboardInterrupt))
        if error is None:
            break
        seen = scene.store.values()
        told = "the job committed nevertheless" in " ".join(getattr(error, "__notes__", ()))
        assert told == (seen == scene.new) == ("committed nevertheless" in caplog.text)
        assert seen in (scene.old, scene.new)
        outcomes.add(told)
        later_jobs(scene.store, monkeypatch)
        assert scene.store.values() == scene.store.all_values() == seen
    assert outcomes == {True, False}


@pytest.mark.parametrize("after", [False, True])
def test_a_filesystem_that_never_answers_again(store, monkeypatch, after):
    outcomes = set()
    for at in store.steps():
        scene = Scene(store.below(f"{at}"))
        faults = Faults(at, after, lasting=True)
        error = scene.commit(monkeypatch, faults)
        if faults.count < at:
            break
        seen = scene.store.values()
        unknown = "it is unknown" in " ".join(getattr(error, "__notes__", ()))
        outcomes.add((error is None, unknown, tuple(seen)))
        assert error is None or unknown or seen == scene.old
        later_jobs(scene.store, monkeypatch)
        assert scene.store.outcome() == seen
    assert (True, False, (3, 4)) in outcomes and (False, False, (1, 2)) in outcomes
