"""Several programs use one index at once: nothing is missed, and no change is lost."""

import itertools
import multiprocessing
import shutil
import threading
import uuid
from dataclasses import replace

import fsspec
import pyarrow.fs as pa_fs
import pytest

from secure_bloom.errors import ChangedMeanwhileError, SecureBloomError
from secure_bloom.index import Index, build, column_segments, folder
from secure_bloom.index.compaction import compact, merge_here, merge_some
from secure_bloom.index.exclusive_files import create_exclusively
from secure_bloom.index.publishing import publish
from secure_bloom.index.table import Table
from secure_bloom.keys.cache import CachedKms
from tests.index.helpers import KMS, LOCAL, folder_of, manifests_of, segments_of, write
from tests.storage.objects import Objects, new_objects
from tests.storage.s3 import BUCKET
from tests.storage.stores import coarse_store


@pytest.fixture
def table(tmp_path):
    for number in range(6):
        write(tmp_path / f"{number}.parquet", [f"v{number}"])
    build(tmp_path, "ssn", KMS)
    return tmp_path


def check(table, files):
    found = Index.open(table, KMS).lookup("ssn", [f"v{number}" for number in range(files)])
    for number, one in enumerate(found.row_groups):
        path = f"{number}.parquet"
        assert one == ({} if path in found.uncovered else {path: [0]})
    return found.uncovered


def run_together(works):
    errors = []

    def run(work):
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


@pytest.mark.slow
def test_updates_merges_and_lookups_at_once(table):
    def update():
        for _ in range(3):
            Index.open(table, KMS).update()

    def compact():
        for _ in range(4):
            Index.open(table, KMS).compact()

    def look_up():
        for _ in range(30):
            check(table, 12)

    for number in range(6, 12):
        write(table / f"{number}.parquet", [f"v{number}"])
    run_together([update, update, compact, look_up])
    assert check(table, 12) == []
    index = Index.open(table, KMS)
    index.compact()
    index.vacuum(0)
    assert check(table, 12) == [] and len(segments_of(table)) == len(manifests_of(table)) == 1


def _update_in_process(table):
    from secure_bloom.index import update
    update._SETTLED_NS = 0
    Index.open(table, KMS).update()


@pytest.mark.slow
def test_updates_in_several_processes(table):
    for number in range(6, 10):
        write(table / f"{number}.parquet", [f"v{number}"])
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_update_in_process, args=(str(table),)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert check(table, 10) == []
    versions = folder_of(table).versions()
    assert versions == list(range(1, len(versions) + 1))


def with_removed(name):
    return lambda body: replace(body, removed=tuple(sorted({*body.removed, name})))


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_version_that_is_published_after_the_newest_was_read_is_not_lost(table, monkeypatch,
                                                                           is_deleted):
    """A second writer publishes first, and may then delete that; the first one tries again."""
    stored, kms = folder_of(table), CachedKms(KMS)
    original, others = folder.IndexFolder._newest_of, ["a", "b"]

    def newest_of(self, *arguments):
        found = original(self, *arguments)
        while others:
            publish(stored, kms, with_removed(others.pop()))
            if is_deleted and not others:
                Index.open(table, KMS).vacuum(0)
        return found

    monkeypatch.setattr(folder.IndexFolder, "_newest_of", newest_of)
    publish(stored, kms, with_removed("c"))
    assert stored.open_newest(kms).body.removed == ("a", "b", "c")


def test_eight_publishers_lose_nothing(table):
    stored, kms = folder_of(table), CachedKms(KMS)
    run_together([lambda name=name: publish(stored, kms, with_removed(str(name)))
                  for name in range(8)])
    assert stored.open_newest(kms).body.removed == tuple(map(str, range(8)))


def test_a_publisher_that_never_wins_gives_up(table, monkeypatch):
    def create(filesystem, path, data):
        raise FileExistsError
    monkeypatch.setattr(folder, "create_exclusively", create)
    with pytest.raises(SecureBloomError, match="faster") as raised:
        publish(folder_of(table), CachedKms(KMS), with_removed("x"))
    assert raised.value.column == "ssn"


def test_a_change_that_seemed_to_fail_is_not_applied_twice(table, monkeypatch):
    original = folder.create_exclusively
    tries = []

    def create(filesystem, path, data):
        original(filesystem, path, data)
        tries.append(path)
        if len(tries) == 1:
            raise FileExistsError

    monkeypatch.setattr(folder, "create_exclusively", create)
    write(table / "6.parquet", ["v6"])
    assert Index.open(table, KMS).update().indexed == 1
    assert check(table, 7) == []
    assert len(Index.open(table, KMS).column("ssn").segments) == 2


def test_an_update_does_not_disturb_the_clock_of_another_one(table, monkeypatch):
    stored = folder_of(table)
    original = folder.write_file
    inner = []

    def write_file(filesystem, path, data):
        original(filesystem, path, data)
        if not inner:
            inner.append(1)
            assert stored.now_ns() is not None  # it writes and deletes a clock meanwhile

    monkeypatch.setattr(folder, "write_file", write_file)
    assert stored.now_ns() is not None
    assert not [info for info in stored.infos() if "clock" in info.base_name]


def test_a_merge_that_another_one_overtakes_is_not_published(table):
    """One of its two segments is gone: without the other one, files would not be covered."""
    write(table / "6.parquet", ["v6"])
    Index.open(table, KMS).update()
    where, stored, kms = Table(LOCAL, str(table)), folder_of(table), CachedKms(KMS)
    overtaken = []

    def merge(index, segments, keep, budget):
        overtaken.append(merge_some(where, stored, kms, lambda other: [other.segments[:1]]))
        return merge_here(index, segments, keep, budget)

    compact(where, stored, kms, merge=merge)
    assert overtaken == [1] and len(segments_of(table)) == 4
    assert check(table, 7) == []
    index = Index.open(table, KMS)
    assert len(index.column("ssn").segments) == 2 and index.verify().ok
    index.vacuum(0)
    assert len(segments_of(table)) == 2


def test_an_index_that_is_built_again_meanwhile_has_another_key(table, monkeypatch):
    """Fingerprints under the old key would find nothing in the new index."""
    write(table / "6.parquet", ["v6"])
    original, calls = column_segments.column_hashes, []

    def hashes(file, column):
        calls.append(file.name)
        if len(calls) == 1:
            shutil.rmtree(table / "_index")
            build(table, "ssn", KMS)
        return original(file, column)

    index = Index.open(table, KMS)
    monkeypatch.setattr(column_segments, "column_hashes", hashes)
    with pytest.raises(ChangedMeanwhileError, match="deleted and built again"):
        index.update()
    assert len(calls) > 1 and check(table, 7) == []


@pytest.mark.parametrize("operation", ["update", "compact", "vacuum", "lookup"])
def test_an_index_that_is_deleted_meanwhile(table, operation):
    index = Index.open(table, KMS)
    shutil.rmtree(table / "_index")
    if operation in ("update", "lookup"):
        with pytest.raises(FileNotFoundError, match="no index of column 'ssn'"):
            index.update() if operation == "update" else index.lookup("ssn", "v1")
    else:
        assert not getattr(index, operation)()
    assert not [path for path in (table / "_index").rglob("*") if path.is_file()]


def test_manifests_that_are_replaced_faster_than_they_can_be_read(table, monkeypatch):
    """Each listing names a version that is gone when it is read: at last, there is no index."""
    versions = itertools.count(1000)
    monkeypatch.setattr(folder.IndexFolder, "versions", lambda self: [next(versions)])
    assert folder_of(table).newest() is None
    assert next(versions) < 1100


# --- files that one of several writers may create ------------------------------------------------

class Overwriting(pa_fs.LocalFileSystem):
    """A store without conditional writes, on which another writer is a moment later."""

    type_name = "store"

    def move(self, source, target):
        super().move(source, target)
        with self.open_output_stream(target) as stream:
            stream.write(b"theirs")


def test_a_file_that_another_writer_overwrites_counts_as_theirs(tmp_path):
    with pytest.raises(FileExistsError, match="another writer"):
        create_exclusively(Overwriting(), str(tmp_path / "x"), b"ours")
    assert (tmp_path / "x").read_bytes() == b"theirs"


@pytest.mark.parametrize("store", ["local", "coarse", "memory", "objects"])
def test_a_file_is_created_once(tmp_path, store):
    path = str(tmp_path / "new" / "x")
    if store == "objects":
        filesystem, path = Objects(new_objects()), f"{BUCKET}/x"
    elif store == "memory":
        filesystem = pa_fs.PyFileSystem(pa_fs.FSSpecHandler(fsspec.filesystem("memory")))
    else:
        filesystem = pa_fs.LocalFileSystem() if store == "local" \
            else coarse_store(tmp_path).filesystem
        (tmp_path / "new").mkdir()
    create_exclusively(filesystem, path, b"first")
    with pytest.raises(FileExistsError):
        create_exclusively(filesystem, path, b"second")
    with filesystem.open_input_stream(path) as stream:
        assert stream.read() == b"first"


@pytest.mark.parametrize("option", [{"mode": "create"}, {"overwrite": False}])
def test_fsspec_filesystems_decide_who_creates_a_file(option):
    """Those of S3 and Google Cloud take one of these options, that of Azure the other."""
    created, memory = [], fsspec.filesystem("memory")

    class Filesystem(fsspec.get_filesystem_class("memory")):
        protocol = "exclusive-memory"
        cachable = False

    def with_mode(self, path, value, mode="overwrite"):
        created.append({"mode": mode})
        memory.pipe_file(path, value)

    def with_overwrite(self, path, value, overwrite=True):
        created.append({"overwrite": overwrite})
        memory.pipe_file(path, value)

    Filesystem._pipe_file = with_mode if "mode" in option else with_overwrite
    Filesystem.pipe_file = Filesystem._pipe_file
    filesystem = pa_fs.PyFileSystem(pa_fs.FSSpecHandler(Filesystem()))
    create_exclusively(filesystem, f"/{uuid.uuid4().hex}/x", b"first")
    assert created == [option]


def test_filesystems_without_modification_times_have_no_covered_files():
    memory = pa_fs.PyFileSystem(pa_fs.FSSpecHandler(fsspec.filesystem("memory")))
    where = f"/{uuid.uuid4().hex}"
    memory.create_dir(where)
    write(f"{where}/0.parquet", ["v0"], filesystem=memory)
    result = build(where, "ssn", KMS, filesystem=memory)
    assert result.uncovered == {"0.parquet": "its filesystem records no modification times"}
    found = Index.open(where, KMS, filesystem=memory).lookup("ssn", "v0")
    assert (found.row_groups, found.uncovered) == ([{}], ["0.parquet"])


@pytest.mark.parametrize("store", ["coarse", "fsspec"])
def test_an_index_on_other_filesystems(tmp_path, store):
    filesystem = coarse_store(tmp_path).filesystem if store == "coarse" \
        else pa_fs.PyFileSystem(pa_fs.FSSpecHandler(fsspec.filesystem("file")))
    where = str(tmp_path)
    for number in range(3):
        write(f"{where}/{number}.parquet", [f"v{number}"], filesystem=filesystem)
    assert build(where, "ssn", KMS, filesystem=filesystem).indexed == 3
    index = Index.open(where, KMS, filesystem=filesystem)
    assert index.lookup("ssn", ["v1", "x"]).row_groups == [{"1.parquet": [0]}, {}]
    write(f"{where}/3.parquet", ["v3"], filesystem=filesystem)
    assert index.update().indexed == 1 and index.compact() == 2
    index.vacuum(0)
    found = index.lookup("ssn", ["v1", "v3"])
    assert (found.row_groups, found.uncovered) == ([{"1.parquet": [0]}, {"3.parquet": [0]}], [])


def test_a_listing_that_misses_all_manifests_is_repeated(table, monkeypatch):
    """A folder that is listed while a manifest is replaced may show neither the old nor the new."""
    original = folder.IndexFolder.versions
    listed = []

    def versions(self):
        listed.append(original(self))
        return [] if len(listed) == 1 else listed[-1]

    monkeypatch.setattr(folder.IndexFolder, "versions", versions)
    assert folder_of(table).newest() is not None
    assert len(listed) == 3
