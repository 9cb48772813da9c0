"""Jobs that replace single files: claims, key material, and processes that die."""

import contextlib
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from secure_bloom.errors import ChangedMeanwhileError, CommitError, FormatError
from secure_bloom.storage import processes
from secure_bloom.storage.claims import is_being_replaced
from secure_bloom.storage.commit import Job
from secure_bloom.storage.ending import EndingJob
from secure_bloom.storage.files import write_file
from secure_bloom.storage.job_folder import COMMITTING, PROCESS, REPLACING, JobFolder
from secure_bloom.storage.processes import is_dead, this_process
from secure_bloom.storage.replacing import Partition
from secure_bloom.storage.rewrite import Rewrite
from secure_bloom.storage.table_names import material_path
from secure_bloom.storage.versions import FileVersion
from secure_bloom.storage.visibility import COMMITTED, STARTED, data_files, read_jobs
from tests.storage.fixtures import ON_SERVER


def replacing(store, *paths):
    """Return a job, and what its commit replaces."""
    job = store.job()
    return job, {path: job.replaced_version(path) for path in paths}


def files_of(store):
    return data_files(store.filesystem, store.folder)


@ON_SERVER
def test_files_are_replaced(store):
    store.write(1, 2)
    first = files_of(store)[0]
    job, replaced = replacing(store, first)
    job.commit([store.stage(job, 7)], replaced=replaced)
    assert len(store.values()) == 2 and 7 in store.values() and first not in files_of(store)
    assert store.staged() == []


def test_a_file_that_was_replaced_meanwhile_is_not_replaced_again(store):
    store.write(1)
    one, replaced = replacing(store, *files_of(store))
    other, _ = replacing(store)
    files = [store.stage(other, 3)]
    one.commit([store.stage(one, 2)], replaced=replaced)
    with pytest.raises(ChangedMeanwhileError):
        other.commit(files, replaced=replaced)
    assert store.values() == [2] and store.staged() == []


def acting_before(job, marker, act):
    """Call ``act`` before a job checks whether it is alive for the last time."""
    checks = []
    original = job._check_alive

    def check():
        checks.append(1)
        if len(checks) == 2:
            act()
        original()

    job._check_alive = check


@ON_SERVER
def test_of_two_jobs_that_replace_a_file_at_the_same_time_one_gives_up(store):
    store.write(1)
    one, replaced = replacing(store, *files_of(store))
    other, _ = replacing(store)
    one_files, other_files = [store.stage(one, 2)], [store.stage(other, 3)]
    failed = []

    def commit_other():
        with pytest.raises(ChangedMeanwhileError) as raised:
            other.commit(other_files, replaced=replaced)
        failed.append(raised.value.file)

    acting_before(one, COMMITTED, commit_other)
    one.commit(one_files, replaced=replaced)
    assert failed == [store.folder]
    assert store.values() == [2] and store.staged() == []


@pytest.mark.parametrize("first", ["overwrite", "replace"])
def test_an_overwrite_and_a_replacement_exclude_each_other(store, first):
    store.write(1, 5)
    job, replaced = replacing(store, files_of(store)[0])
    overwriting = store.job(overwrite=True)
    one, other = (overwriting, job) if first == "overwrite" else (job, overwriting)
    files = {id(job): [store.stage(job, 2)], id(overwriting): [store.stage(overwriting, 9)]}
    options = {id(job): {"replaced": replaced}, id(overwriting): {}}

    def commit_other():
        with pytest.raises(ChangedMeanwhileError):
            other.commit(files[id(other)], **options[id(other)])

    acting_before(one, COMMITTED, commit_other)
    left = set(store.values()) - {store._value(next(iter(replaced)))}
    one.commit(files[id(one)], **options[id(one)])
    assert store.values() == ([9] if first == "overwrite" else sorted({2, *left}))
    assert store.staged() == []


@pytest.mark.parametrize(("others", "wins"), [
    ("d=1", False), ("d=2", True), ("d=%31", False), ("file of d=1", False),
    ("file of d=9", True), ("folder", False), ("folder d=1", False), ("folder d=9", True)])
@pytest.mark.parametrize("first", [False, True])
def test_jobs_that_replace_parts_of_the_same_partition_exclude_each_other(store, others, wins,
                                                                          first):
    """Also if the partition has no files yet, so that neither job replaces any."""
    store.write(9, directory="d=9")
    store.write(8, directory="d=1")
    job = store.job(overwrite="partitions")
    files = [store.stage(job, 2, directory="d=1")]
    kind, _, part = others.rpartition(" ")
    target = store.below(part) if kind == "folder" else store
    replaced = {}
    if kind == "file of":
        path = next(path for path in files_of(store) if f"/{part}/" in path)
        other, replaced = replacing(store, path)
    else:
        other = target.job(overwrite=True if "folder" in others else "partitions")
    other_files = [target.stage(other, 3, directory="" if "folder" in others else part)]

    jobs = [(job, files, {}), (other, other_files, replaced)]
    (leads, *led), (follows, *late) = jobs if first else jobs[::-1]

    def commit_other():
        expected = contextlib.nullcontext() if wins else pytest.raises(
            ChangedMeanwhileError, match="same files or partitions")
        with expected:
            follows.commit(late[0], replaced=late[1])

    acting_before(leads, COMMITTED, commit_other)
    leads.commit(led[0], replaced=led[1])
    seen = {value for value in store.values() if value in (2, 3)}
    assert seen == ({2, 3} if wins else {2} if first else {3})
    assert store.staged() == []


def test_a_partition_that_is_named_is_replaced_by_few_rows_or_none(store):
    """Another job that replaces it gives up, although this one has no files to claim it with."""
    for day in (1, 2):
        store.write(day, directory=f"d={day}")
    job, other = store.job(Partition("d=%31")), store.job("partitions")
    others = [store.stage(other, 3, directory="d=1")]

    def commit_other():
        with pytest.raises(ChangedMeanwhileError, match="same files or partitions"):
            other.commit(others)

    acting_before(job, COMMITTED, commit_other)
    job.commit([])
    assert store.values() == [2]
    job = store.job(Partition("d=1"))
    with pytest.raises(CommitError, match="d=1 was to be replaced, but there are rows for d=2"):
        job.commit([store.stage(job, 4, directory="d=1"), store.stage(job, 5, 1, "d=2")])
    assert store.values() == [2] and store.staged() == []
    job = store.below("d=1").job(Partition("e=1"))  # the table is above its folder
    job.commit([store.stage(job, 6, directory="e=1")])
    assert store.values() == [2, 6]


def test_overwrites_do_not_exclude_each_other(store):
    store.write(1)
    one, other = store.job(overwrite=True), store.job(overwrite=True)
    files, others = [store.stage(one, 2)], [store.stage(other, 3)]
    acting_before(one, COMMITTED, lambda: other.commit(others))
    one.commit(files)
    assert store.values() == [2, 3] and store.staged() == []


def test_a_claim_of_another_part_of_the_table_is_not_in_the_way(store):
    store.write(1, directory="d=1")
    store.write(2, directory="d=2")
    [path] = [path for path in files_of(store) if "/d=1/" in path]
    job, replaced = replacing(store, path)
    part = store.below("d=2").job(overwrite=True)
    part_files = [part.new_file(0)]
    write_file(store.filesystem, part_files[0], b"8")
    acting_before(job, COMMITTED, lambda: part.commit([part.staged(part_files[0], 1)]))
    job.commit([store.stage(job, 7)], replaced=replaced)
    assert store.values() == [7, 8]


def test_a_file_that_a_job_replaces_is_not_rewritten_in_place(store):
    """Its new version would have another time, and be visible beside the file that replaces it."""
    rewrite_meanwhile(store, "")


@pytest.mark.parametrize("below", ["/old", "/old/day=1"])
def test_nor_is_one_that_is_named_by_its_path_below_the_table(local, below):
    """Its folder is not a partition, so it looks like another table."""
    rewrite_meanwhile(local, below)


def rewrite_meanwhile(store, below):
    path = f"{store.folder}{below}/foreign.parquet"
    store.write(1)
    store.filesystem.create_dir(f"{store.folder}{below}")
    write_file(store.filesystem, path, b"2")
    job, replaced = replacing(store, path)
    refused = []

    def rewrite():
        with Rewrite(store.filesystem, path) as rewriting, \
                pytest.raises(ChangedMeanwhileError) as raised:
            rewriting.replace_by([b"22"])
        refused.append(raised.value.file)

    acting_before(job, COMMITTED, rewrite)
    job.commit([store.stage(job, 3)], replaced=replaced)
    assert len(refused) == 1 and store.values() == [1, 3]


def test_a_claim_of_a_job_that_has_ended_is_not_in_the_way(store):
    store.write(1)
    [path] = files_of(store)
    write_file(store.filesystem, f"{store.folder}/x", b"")
    job = store.job()
    job.write_marker(REPLACING, b'{"files": [], "folder": "", "partitions": []}')
    assert is_being_replaced(store.filesystem, path)
    job.remove_marker(STARTED)
    assert not is_being_replaced(store.filesystem, path)


def test_a_claim_in_a_folder_that_is_not_of_a_job_is_not_in_the_way(store):
    """No job would remove it."""
    planted = JobFolder(store.filesystem, store.folder, "planted")
    planted.write_marker(STARTED)
    planted.write_marker(REPLACING, b'{"files": [], "folder": "", "partitions": []}')
    assert not is_being_replaced(store.filesystem, f"{store.folder}/x")


@pytest.mark.parametrize("content", [b"", b"[]", b"[" * 10**5, b"{}",
                                     b'{"files": [], "folder": ""}',
                                     b'{"files": 1, "folder": "", "partitions": []}',
                                     b'{"files": [1], "folder": null, "partitions": []}',
                                     b'{"files": "x", "folder": null, "partitions": []}',
                                     b'{"files": [], "folder": 1, "partitions": []}',
                                     b'{"files": [], "folder": null, "partitions": "x"}',
                                     b'{"files": [], "folder": null, "partitions": [1]}'])
def test_a_claim_that_cannot_be_understood(store, content):
    job = store.job()
    job.write_marker(REPLACING, content)
    with pytest.raises(FormatError, match="not a valid claim") as raised:
        is_being_replaced(store.filesystem, f"{store.folder}/x")
    assert raised.value.file == f"{job.staging}/{REPLACING}"


# --- key material --------------------------------------------------------------------------------

def stage_with_material(store, job, value):
    path = job.new_file(0)
    write_file(store.filesystem, path, b"%d" % value)
    write_file(store.filesystem, material_path(path), b"material")
    return job.staged(path, 1)


def materials(store):
    return {name for name in store.names() if "KEY_MATERIAL" in name}


@ON_SERVER
def test_key_material_is_published_and_deleted_with_its_file(store):
    job = store.job()
    job.commit([stage_with_material(store, job, 1)])
    [old] = files_of(store)
    assert materials(store) == {material_path(old.removeprefix(f"{store.folder}/"))}
    job, replaced = replacing(store, old)
    job.commit([stage_with_material(store, job, 2)], replaced=replaced)
    [new] = files_of(store)
    assert materials(store) == {material_path(new.removeprefix(f"{store.folder}/"))}
    assert store.values() == [2] and store.staged() == []


def test_key_material_of_a_job_that_is_rolled_back_is_deleted(store):
    store.write(1)
    job = store.job()
    stage_with_material(store, job, 2)
    job.abort()
    assert materials(store) == set() and store.values() == [1] and store.staged() == []
    job, _ = replacing(store)
    files = [stage_with_material(store, job, 2)]
    with pytest.raises(ChangedMeanwhileError):
        job.commit(files, replaced={f"{store.folder}/gone": FileVersion(1, 2)})
    assert materials(store) == set() and store.values() == [1] and store.staged() == []


def test_key_material_of_files_that_are_half_published_is_deleted(local):
    for at in range(1, 4):
        job = local.job()
        files = [stage_with_material(local, job, 1), stage_with_material(local, job, 2)]
        moves = []

        class Failing(type(local.filesystem)):
            def move(self, source, target, moves=moves, at=at):
                moves.append(source)
                if len(moves) > at:
                    raise OSError("the disk is full")
                super().move(source, target)

        job.filesystem = Failing()
        with pytest.raises(OSError, match="full"):
            job.commit(files)
        assert local.names() == ["_staging/generation"]


# --- processes that die --------------------------------------------------------------------------

@pytest.fixture
def dead():
    """What identifies a process that has ended."""
    code = ("from secure_bloom.storage.processes import this_process\n"
            "print(this_process().decode())")
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout


def test_processes_are_known(dead, monkeypatch):
    assert is_dead(dead) and not is_dead(this_process())
    assert is_dead(this_process().replace(b'"began": "', b'"began": "9'))  # a later one of its id
    for strange in (b"", b"{}", b"[]", b"null", dead.replace(b'"boot": "', b'"boot": "x')):
        assert is_dead(strange) is False
    monkeypatch.setattr(processes, "_BOOT", "/does/not/exist")
    assert this_process() == b"" and not is_dead(dead)


def test_only_a_job_that_says_so_is_of_a_process(local):
    """Others can commit the job of a Spark driver, so a dead process says nothing."""
    job = Job(local.filesystem, local.folder, False)
    job.start()
    assert job.has(STARTED) and not job.has(PROCESS)


def dead_job(local, dead):
    job = Job(local.filesystem, local.folder, False)
    job.write_marker(PROCESS, dead)
    job.write_marker(STARTED)
    return job


def test_a_job_of_a_dead_process_is_taken_back_at_once(local, dead):
    local.write(1)
    job = dead_job(local, dead)
    local.stage(job, 2)
    local.job().abort()
    assert local.staged() == [] and local.values() == [1]


def test_a_job_of_a_live_process_is_left_alone(local):
    local.write(1)
    job = Job(local.filesystem, local.folder, False)
    job.start(is_of_process=True)
    files = [local.stage(job, 2)]
    local.job().abort()
    job.commit(files)
    assert local.staged() == [] and local.values() == [1, 2]


def test_a_committed_job_of_a_dead_process_is_finished(local, dead, monkeypatch):
    local.write(1)
    job = dead_job(local, dead)
    monkeypatch.setattr(job, "_complete", lambda record: None)
    replaced = {path: job.replaced_version(path) for path in files_of(local)}
    job.commit([local.stage(job, 2)], replaced=replaced)
    local.job().abort()
    assert local.staged() == [] and local.values() == local.all_values() == [2]


def test_a_job_of_a_dead_process_that_had_ended_keeps_its_files(local, dead, monkeypatch):
    """It died when it removed its markers: the commit record is gone already."""
    job = dead_job(local, dead)
    monkeypatch.setattr(job, "delete_staging", lambda: None)
    job.commit([local.stage(job, 2)])
    assert job.has(COMMITTING) and job.has(PROCESS)
    assert not job.has(STARTED) and not job.has(COMMITTED)
    local.job().abort()
    assert local.staged() == [] and local.values() == [2]


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_job_that_commits_and_dies_after_it_was_listed_is_not_rolled_back(
        local, dead, monkeypatch, is_silent):
    local.write(1)
    job = local.job() if is_silent else dead_job(local, dead)
    monkeypatch.setattr(job, "_complete", lambda record: None)
    listed = read_jobs(local.filesystem, local.folder)[job.id]
    job.commit([local.stage(job, 2)])
    listed.given_up = is_silent
    EndingJob(local.filesystem, local.folder, job.id).take_back(
        listed, datetime.now(UTC) + timedelta(days=9))
    local.job().abort()
    assert local.outcome() == [1, 2]


def test_what_dead_processes_left_of_markers_is_removed(local, dead):
    local.write(1)
    job = dead_job(local, dead)
    for path in (f"{local.folder}/_SUCCESS", f"{local.folder}/_staging/generation",
                 f"{job.staging}/{PROCESS}"):
        code = ("import sys, os\nfrom secure_bloom.storage.local_files import _open_temporary\n"
                "_open_temporary(sys.argv[1], 0o600)\nos._exit(9)")
        subprocess.run([sys.executable, "-c", code, path], check=False)
    temporary = [name for name in local.names() if name.endswith(".tmp")]
    assert len(temporary) == 3
    local.job().abort()
    assert [name for name in local.names() if name.endswith(".tmp")] == []
    assert os.listdir(f"{local.folder}/_staging") == ["generation"]
