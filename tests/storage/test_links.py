"""Links that lead out of a table, and markers that name what is behind them."""

import contextlib
import os

import pyarrow as pa
import pyarrow.fs as pa_fs
import pytest
from fsspec.implementations.local import LocalFileSystem

from secure_bloom import EncryptionConfiguration, read_table, write_dataset, write_table
from secure_bloom.errors import (
    CommitError,
    KeyRetrievalError,
    SecureBloomError,
    UnsupportedError,
)
from secure_bloom.keys import InMemoryKms
from secure_bloom.storage import inside, versions
from secure_bloom.storage.commit import Job
from secure_bloom.storage.commit_record import CommitRecord, signature
from secure_bloom.storage.files import write_file
from secure_bloom.storage.rewrite import Kept, Rewrite
from secure_bloom.storage.table_names import new_name
from secure_bloom.storage.versions import wait_for_the_clock
from secure_bloom.storage.visibility import data_files
from tests.storage.stores import everything_is_stale

ID = "ab" * 16
LOCAL = pa_fs.LocalFileSystem()


@pytest.fixture
def folders(tmp_path):
    """A table with a link to the folder of a victim, whose file has the name of a forged job's."""
    lake, victim = tmp_path / "lake", tmp_path / "victim"
    for folder in (lake / "_staging" / ID / "pending" / "sub", victim / ID, victim / "query"):
        folder.mkdir(parents=True)
    for name in ("people.parquet", new_name(0, ID), f"{ID}/started", "query/0", "part.log",
                 ".hidden"):
        (victim / name).write_bytes(b"12")
    return lake, victim


def forge(lake, victim, attack):
    own = lake / "_staging" / ID
    names = sorted(path.name for path in victim.glob("*.parquet"))
    if attack == "staging":
        os.rename(lake / "_staging", lake / "away")
        (lake / "_staging").symlink_to(victim)
        return
    (lake / "sub").symlink_to(victim)
    if attack == "committed":
        infos = {name: pa_fs.LocalFileSystem().get_file_info(str(victim / name)) for name in names}
        record = CommitRecord([], {f"sub/{name}": signature(infos[name]) for name in names})
        (own / "committed").write_bytes(record.to_bytes())
    elif attack == "batch":
        (lake / "_streams").symlink_to(victim)
        (own / "committed").write_bytes(CommitRecord([], {}, {}, "query", 7).to_bytes())
    elif attack == "_SUCCESS":
        (lake / "_SUCCESS").symlink_to(victim / "part.log")
        (own / "committed").write_bytes(CommitRecord([]).to_bytes())
    else:
        (own / "started").touch()
        (own / "given_up").touch()
        if attack == "committing":
            (own / "committing").touch()
        else:
            for name in names:
                (own / "pending" / "sub" / name).touch()


@pytest.mark.parametrize("attack", ["committed", "pending", "committing", "batch", "staging",
                                    "_SUCCESS"])
def test_no_marker_makes_a_job_change_files_outside_of_the_table(folders, monkeypatch, attack):
    lake, victim = folders
    forge(lake, victim, attack)
    before = {path: path.read_bytes() for path in victim.rglob("*") if path.is_file()}
    everything_is_stale(monkeypatch)
    for _ in range(2):  # a whole write, then its recovery alone: whatever they raise
        with contextlib.suppress(SecureBloomError):
            write_dataset(pa.table({"a": [1]}), str(lake))
        with contextlib.suppress(SecureBloomError):
            Job(pa_fs.LocalFileSystem(), str(lake), False).recover()
    assert {path: path.read_bytes() for path in victim.rglob("*") if path.is_file()} == before


def test_only_folders_and_markers_that_jobs_make_are_removed_from_staging(local, monkeypatch):
    everything_is_stale(monkeypatch)
    for name in ("notes/started", "notes/a.txt", ".bashrc", f"{ID}/pending/people.parquet",
                 f"{ID}/started", f"{ID}/given_up"):
        path = f"{local.folder}/_staging/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_file(local.filesystem, path, b"")
    write_file(local.filesystem, f"{local.folder}/people.parquet", b"1")
    os.makedirs(f"{local.folder}/_staging/empty")
    job = local.job()
    job.recover()
    job.abort()
    assert local.values() == [1]
    assert set(os.listdir(f"{local.folder}/_staging")) >= {"notes", ".bashrc", "empty"}
    assert ID not in os.listdir(f"{local.folder}/_staging")


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_job_that_would_change_files_behind_a_link_changes_nothing(local, tmp_path_factory,
                                                                     overwrite):
    other = tmp_path_factory.mktemp("other")
    (other / "people.parquet").write_bytes(b"1")
    local.write(2)
    os.symlink(other, f"{local.folder}/day=1")
    with pytest.raises(UnsupportedError, match="a link leads from here out of the table") as info:
        local.write(3, overwrite=overwrite, directory="" if overwrite else "day=1")
    assert "day=1" in info.value.file
    assert local.values() == [1, 2]
    local.write(4)  # what does not concern the link works
    assert local.values() == [1, 2, 4]
    assert os.listdir(other) == ["people.parquet"]


def test_links_inside_of_a_table_and_to_it_are_followed(local, tmp_path_factory):
    local.write(1, directory="day=1")
    os.symlink("day=1", f"{local.folder}/day=2")
    os.symlink(local.folder, link := tmp_path_factory.mktemp("links") / "table")
    job = Job(local.filesystem, str(link), True)
    job.check_folder()
    job.start()
    job.commit([local.stage(job, 3, directory="day=1")])
    assert local.all_values() == [3, 3]


def test_a_marker_is_not_written_to_the_data_file_that_a_link_leads_to(local):
    local.write(1)
    [data] = [one for one in os.listdir(local.folder) if one.endswith(".parquet")]
    job = Job(local.filesystem, local.folder, False)
    job.start()
    os.remove(path := f"{local.folder}/_staging/generation")
    os.symlink(f"{local.folder}/{data}", path)
    job.commit([local.stage(job, 2)])
    assert local.values() == [1, 2]
    assert os.path.isfile(path) and not os.path.islink(path)


def test_a_link_to_a_partition_is_not_a_table_of_its_own(local, tmp_path):
    """Readers of the table would see the files of its jobs before they commit."""
    local.write(1, directory="day=1")
    (link := tmp_path / "latest").symlink_to(f"{local.folder}/day=1")
    before = sorted(os.walk(local.folder))
    with pytest.raises(UnsupportedError, match=f"use the path {local.folder}/day=1"):
        write_dataset(pa.table({"n": [2]}), link, mode="append")
    assert sorted(os.walk(local.folder)) == before


@pytest.mark.parametrize("name", ["latest", "year/day=1"])
def test_readers_of_a_link_to_a_partition_see_no_file_before_its_job_commits(local, tmp_path, name):
    local.write(1, directory="year=1/day=1")
    folder = f"{local.folder}/year=1/day=1"
    link = tmp_path / name.partition("/")[0]
    link.symlink_to(folder if name == "latest" else f"{local.folder}/year=1")
    write_table(pa.table({"n": [2]}), f"{folder}/{new_name(0, ID)}")
    assert len(data_files(local.filesystem, str(tmp_path / name))) == 2
    job = Job(local.filesystem, local.folder, False, id=ID)
    job.start()
    [visible] = data_files(local.filesystem, str(tmp_path / name))
    assert ID not in visible and visible.startswith(str(tmp_path / name))


def test_a_link_to_another_partition_is_not_followed_when_partitions_are_overwritten(tmp_path):
    def write(day, mode):
        write_dataset(pa.table({"n": [len(day)], "day": [day]}), tmp_path, partition_by="day",
                      mode=mode)

    write("1", "append")
    for number, target in enumerate(["day=1", "_hidden"]):
        (tmp_path / "_hidden").mkdir(exist_ok=True)
        os.symlink(target, tmp_path / f"day=2{number}")
        with pytest.raises(UnsupportedError, match="a link leads from here to another partition"):
            write(f"2{number}", "overwrite_partitions")
        os.remove(tmp_path / f"day=2{number}")
    assert os.listdir(tmp_path / "_hidden") == []
    write("333", "overwrite_partitions")
    assert read_table(tmp_path).to_pydict() == {"n": [1, 3], "day": [1, 333]}


@pytest.mark.parametrize("exchanged", ["day=1", "day=1/hour=2"])
def test_a_folder_that_is_exchanged_for_a_link_after_the_check_is_not_followed(
        tmp_path, monkeypatch, exchanged):
    lake, victim = tmp_path / "lake", tmp_path / "victim"
    for folder in (lake / "day=1" / "hour=2", victim / "hour=2"):
        (folder / "sub").mkdir(parents=True)
        (folder / "x.parquet").touch()
    (victim / "sub").mkdir()
    (victim / "x.parquet").touch()
    before = sorted(victim.rglob("*"))
    checked = inside._real_paths

    def then_exchanged(*arguments):
        found = checked(*arguments)
        if not (lake / exchanged).is_symlink():
            os.rename(lake / exchanged, tmp_path / "away")
            (lake / exchanged).symlink_to(victim)
        return found

    for delete, name in ((inside.delete_file, "x.parquet"), (inside.delete_folder, "sub")):
        with monkeypatch.context() as patch, pytest.raises((OSError, UnsupportedError)):
            patch.setattr(inside, "_real_paths", then_exchanged)
            delete(pa_fs.LocalFileSystem(), str(lake), str(lake / "day=1" / "hour=2" / name))
        assert sorted(victim.rglob("*")) == before
        (lake / exchanged).unlink()
        os.rename(tmp_path / "away", lake / exchanged)


@pytest.mark.skipif(not versions.DESCRIPTORS, reason="paths are opened again on this system")
@pytest.mark.parametrize("exchanged", ["_staging", "day=1"])
def test_nothing_is_written_or_moved_behind_a_link_that_comes_after_the_check(
        tmp_path, monkeypatch, exchanged):
    lake, victim = tmp_path / "lake", tmp_path / "victim"
    write_dataset(pa.table({"n": [1], "day": [1]}), lake, partition_by="day")
    job = Job(LOCAL, str(lake), False)
    job.start()
    write_file(LOCAL, path := job.new_file(0, "day=1"), b"12")
    files = [job.staged(path, 1)]
    victim.mkdir()
    if exchanged == "_staging":
        (victim / job.id).mkdir()
    checked = inside._real_paths

    def then_exchanged(filesystem, table, path):
        found = checked(filesystem, table, path)
        last = (job.staging if exchanged == "_staging" else str(lake / "day=1")).rstrip("/")
        if path.rstrip("/") == last and moving and not (lake / exchanged).is_symlink():
            os.rename(lake / exchanged, tmp_path / "away")
            (lake / exchanged).symlink_to(victim)
        return found

    moving = []
    write_record = job._write_record if exchanged == "_staging" else job._move

    def exchanging(*arguments):
        moving.append(1)
        write_record(*arguments)

    monkeypatch.setattr(inside, "_real_paths", then_exchanged)
    setattr(job, write_record.__name__, exchanging)
    with contextlib.suppress(OSError, UnsupportedError, CommitError):
        job.commit(files)
    assert (lake / exchanged).is_symlink()
    assert [path for path in victim.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_rollback_does_not_restore_the_content_that_a_link_leads_to(local, tmp_path_factory,
                                                                      link):
    private = tmp_path_factory.mktemp("home") / "id"
    private.write_bytes(b"private")
    private.chmod(0o600)
    local.write(1)
    os.unlink(f"{local.folder}/_SUCCESS")
    link(private, f"{local.folder}/_SUCCESS")
    job = local.job()
    staged = local.stage(job, 2)
    with pytest.raises(CommitError):
        job._publish = lambda names: job.remove_marker("started")
        job.commit([staged])
    assert local.values() == [1] and not local.has_success()
    assert private.read_bytes() == b"private"


class OtherLocal(LocalFileSystem):
    """A local filesystem of fsspec with operations of its own."""

    protocol = "file"


@pytest.mark.parametrize("make", [
    lambda root: (pa_fs.SubTreeFileSystem(root, pa_fs.LocalFileSystem()), "lake"),
    lambda root: (of_fsspec(LocalFileSystem()), f"{root}/lake"),
    lambda root: (pa_fs.SubTreeFileSystem(root, of_fsspec(LocalFileSystem())), "lake"),
    lambda root: (of_fsspec(OtherLocal()), f"{root}/lake")],
    ids=["subtree", "fsspec", "subtree of fsspec", "subclass"])
def test_links_are_refused_on_every_filesystem_of_the_disk(folders, make):
    lake, victim = folders
    (lake / "day=1").symlink_to(victim)
    before = sorted(victim.rglob("*"))
    filesystem, folder = make(str(lake.parent))
    with pytest.raises(UnsupportedError, match="a link leads from here out of the table"):
        write_dataset(pa.table({"a": [1], "day": [1]}), folder, filesystem=filesystem,
                      mode="append", partition_by=["day"])
    with pytest.raises(UnsupportedError, match="a link leads from here out of the table"):
        Job(filesystem, folder, False).delete_file(f"{folder}/day=1/people.parquet")
    assert sorted(victim.rglob("*")) == before
    job = Job(filesystem, folder, False)
    assert not job.in_place  # a rename is cheap


def of_fsspec(filesystem):
    return pa_fs.PyFileSystem(pa_fs.FSSpecHandler(filesystem))


def test_a_link_that_leads_back_to_itself_is_refused_by_name(tmp_path):
    """Where a file is expected, and where its key material is."""
    path = tmp_path / "a.parquet"
    write_table(pa.table({"id": [1]}), path, keys=InMemoryKms({"k": bytes(16)}),
                encryption=EncryptionConfiguration("k", uniform_encryption=True,
                                                   internal_key_material=False))
    [material] = tmp_path.glob("_KEY_MATERIAL*")
    for victim, error, reason in ((material, KeyRetrievalError, "not a regular file"),
                                  (path, UnsupportedError, "leads back to itself")):
        victim.unlink()
        victim.symlink_to(victim)
        with pytest.raises(error, match=reason):
            read_table(path, InMemoryKms({"k": bytes(16)}))


@pytest.mark.parametrize("way", ["link", "link to a link", "link above", "subtree", "partition"])
def test_what_a_link_in_a_table_leads_to_is_as_its_own_jobs_say(local, tmp_path_factory, way):
    """Of a partition of another table: what is not committed, or was replaced, is hidden."""
    local.write(1, directory="year=1/day=1")
    above = tmp_path_factory.mktemp("above")
    ours, link = above / "ours", above / "ours" / "day=7"
    ours.mkdir()
    target = f"{local.folder}/year=1" if way == "link above" else f"{local.folder}/year=1/day=1"
    if way == "link to a link":
        (above / "latest").symlink_to(target)
    link.symlink_to(above / "latest" if way == "link to a link" else target)
    filesystem, folder = local.filesystem, str(link if way == "partition" else ours)
    if way == "subtree":
        filesystem, folder = pa_fs.SubTreeFileSystem(str(above), filesystem), "ours"

    def values():
        found = data_files(filesystem, folder)
        assert all(path.startswith(folder) for path in found)
        return [local._value(str(above / path)) for path in found]

    job = local.job(overwrite=True)
    job._publish([local.stage(job, 2, directory="year=1/day=1").path])
    assert values() == [1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "finish", lambda record: 1 / 0)
        job.commit([local.stage(job, 3, directory="year=1/day=1")])
    assert local.all_values() == [1, 2, 3] and values() == [3]


def test_a_job_of_the_table_also_hides_what_a_link_leads_to(local, tmp_path_factory):
    """A folder is moved to another disk before the job has ended."""
    job = local.job()
    job._publish([local.stage(job, 1, directory="day=1").path])
    elsewhere = tmp_path_factory.mktemp("disk") / "day=1"
    os.rename(f"{local.folder}/day=1", elsewhere)
    os.symlink(elsewhere, f"{local.folder}/day=1")
    assert local.all_values() == [1] and local.values() == []


def test_a_table_that_is_moved_into_a_partition_is_not_its_own_any_more(tmp_path):
    """What was found before is not believed of a link in its place to the same folder."""
    table = tmp_path / "table"
    table.mkdir()
    assert inside.is_own_table(LOCAL, str(table))
    (tmp_path / "other").mkdir()
    wait_for_the_clock(table.stat().st_ctime_ns)
    table.rename(moved := tmp_path / "other" / "day=1")
    table.symlink_to(moved)
    assert not inside.is_own_table(LOCAL, str(table))


def test_a_new_version_takes_the_place_of_a_link_and_changes_nothing_behind_it(tmp_path):
    """Whoever can write to the folder may have put it there."""
    for name in ("old", "secret"):
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "new").symlink_to("secret")
    with Rewrite(LOCAL, str(tmp_path / "old")) as rewrite:
        rewrite.write_to(str(tmp_path / "new"), [Kept(0, 3), b"er"])
    assert not (tmp_path / "new").is_symlink() and (tmp_path / "new").read_bytes() == b"older"
    assert (tmp_path / "secret").read_bytes() == b"secret"
