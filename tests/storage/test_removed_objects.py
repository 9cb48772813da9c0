"""Small objects that are removed or replaced between the two requests of a read."""

import json

import pytest

from secure_bloom.errors import KeyNotFoundError
from secure_bloom.keys.external import read_material
from secure_bloom.spark import last_commit
from secure_bloom.storage.batches import Batch, is_committed
from secure_bloom.storage.files import write_file
from secure_bloom.storage.table_names import material_path
from secure_bloom.storage.visibility import data_files
from tests.storage.objects import Objects
from tests.storage.stores import objects_store


class ActsAfterOpening(Objects):
    """Calls ``act`` once: after an object was opened, which asks for its size, before it is read.
    """

    suffix, act = "", None

    def open_input_file(self, path):  # open_input_stream does the same
        file = super().open_input_file(path)
        if self.act is not None and path.endswith(self.suffix):
            act, self.act = self.act, None
            act()
        return file


@pytest.fixture
def store():
    return objects_store()


@pytest.fixture
def acting(store):
    """A function that returns such a filesystem."""
    def filesystem(suffix, act):
        filesystem = ActsAfterOpening(store.filesystem.handler.objects)
        filesystem.suffix, filesystem.act = suffix, act
        return filesystem
    return filesystem


def committed(store, *values, batch=None):
    """A job that has committed, but has not finished: its record is there."""
    job = store.job()
    finish, job.finish = job.finish, lambda record: None
    files = [store.stage(job, value, number) for number, value in enumerate(values)]
    summary = job.commit(files, batch)
    assert summary.files == len(values) and job.has("committed")
    job.finish = finish
    return job


def finish(store):
    """Another job starts, which finishes the ones before it, and ends."""
    store.job().abort()


@pytest.mark.parametrize("suffix", ["/committed", "/generation"])
def test_a_marker_goes_while_a_reader_lists_the_folder(store, acting, suffix):
    store.write(1)
    committed(store, 2)

    def act():
        finish(store)
        if suffix == "/generation":
            store.filesystem.delete_file(f"{store.folder}/_staging/generation")

    filesystem = acting(suffix, act)
    found = data_files(filesystem, store.folder)
    assert filesystem.act is None and len(found) == 2
    assert store.values() == [1, 2]


def test_a_commit_record_goes_while_another_job_looks_for_batches(store, acting):
    batch = Batch("query", 7)
    committed(store, 1, batch=batch)
    job = store.job()
    committed(store, 2)
    filesystem = acting("/committed", lambda: finish(store))
    job.filesystem = filesystem
    assert is_committed(job, batch)
    assert filesystem.act is None


@pytest.mark.parametrize("act", ["remove", "replace"])
def test_another_job_takes_the_success_file_that_a_commit_reads(store, acting, act):
    store.write(1)
    job, path = store.job(), f"{store.folder}/_SUCCESS"
    files = [store.stage(job, 2)]
    filesystem = acting("/_SUCCESS", lambda: store.filesystem.delete_file(path)
                        if act == "remove" else write_file(store.filesystem, path, b"{}" * 999))
    job.filesystem = filesystem
    job.commit(files)
    assert filesystem.act is None
    assert store.values() == [1, 2] and last_commit(store.folder, store.filesystem).job == job.id


def test_a_failed_commit_restores_the_success_file_that_was_there_last(store, acting):
    store.write(1)
    job, path = store.job(), f"{store.folder}/_SUCCESS"
    files = [store.stage(job, 2)]
    job.filesystem = acting("/_SUCCESS", lambda: write_file(store.filesystem, path, b"longer" * 99))
    job._publish = lambda names: 1 / 0
    with pytest.raises(ZeroDivisionError):
        job.commit(files)
    with store.filesystem.open_input_stream(path) as stream:
        assert stream.read() == b"longer" * 99


@pytest.mark.parametrize("size", ["shorter", "longer"])
def test_the_last_commit_is_of_one_version_of_the_success_file(store, acting, size):
    store.write(1)
    summary = last_commit(store.folder, store.filesystem)
    path = f"{store.folder}/_SUCCESS"
    with store.filesystem.open_input_stream(path) as stream:
        values = json.loads(stream.read())
    values["job"] = "j" if size == "shorter" else "j" * 99
    other = json.dumps(values).encode()
    found = last_commit(store.folder, acting("/_SUCCESS", lambda: write_file(
        store.filesystem, path, other)))
    assert found.job == values["job"] != summary.job


def test_a_success_file_that_goes_while_it_is_read_is_missing(store, acting):
    store.write(1)
    path = f"{store.folder}/_SUCCESS"
    with pytest.raises(FileNotFoundError):
        last_commit(store.folder, acting("/_SUCCESS", lambda: store.filesystem.delete_file(path)))


def test_an_empty_success_file_of_another_program_is_replaced(store):
    path = f"{store.folder}/_SUCCESS"
    write_file(store.filesystem, path, b"")
    job = store.write(1)
    assert last_commit(store.folder, store.filesystem).job == job.id


def test_key_material_that_goes_while_it_is_read_is_missing(store, acting):
    path = f"{store.folder}/a.parquet"
    write_file(store.filesystem, material_path(path), b'{"footerKey": "x"}')
    filesystem = acting(".json", lambda: store.filesystem.delete_file(material_path(path)))
    with pytest.raises(KeyNotFoundError, match="its key material is missing"):
        read_material(filesystem, path)


def test_key_material_that_is_replaced_while_it_is_read_is_of_one_version(store, acting):
    path = f"{store.folder}/a.parquet"
    write_file(store.filesystem, material_path(path), b'{"footerKey": "x"}')
    filesystem = acting(".json", lambda: write_file(
        store.filesystem, material_path(path), b'{"footerKey": "a longer key"}'))
    assert read_material(filesystem, path) == {"footerKey": "a longer key"}
