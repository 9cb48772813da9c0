"""Filesystems of fsspec that keep listings, such as those of S3, Azure and Google Cloud."""

import io
import os
import posixpath
import uuid
from datetime import UTC, datetime

import fsspec
import pyarrow as pa
import pyarrow.fs as pa_fs
import pytest
from fsspec.implementations.dirfs import DirFileSystem

import secure_bloom
from secure_bloom.index import Index, build
from secure_bloom.storage.files import open_output
from secure_bloom.storage.fsspec_files import modified_ns
from secure_bloom.storage.versions import as_local
from tests.index.helpers import ENCRYPTION, KMS


class Keeping(fsspec.get_filesystem_class("memory")):
    """Keeps what it has listed, and lists a folder with what is in folders below."""

    protocol = "keeping"
    cachable = False

    def __init__(self):
        super().__init__()
        self._kept = {}

    def invalidate_cache(self, path=None):
        self._kept.clear()

    def ls(self, path, detail=True, **options):
        if path not in self._kept:
            self._kept[path] = [self._dated(one) for one in super().ls(path, detail=True)]
        return self._kept[path] if detail else [one["name"] for one in self._kept[path]]

    def info(self, path, **options):
        known = self._kept.get(self._parent(path))
        if known is None:
            return self._dated(super().info(path))
        for one in known:
            if one["name"] == path:
                return one
        raise FileNotFoundError(path)

    def rmdir(self, path):
        self.invalidate_cache()
        super().rmdir(path)

    def isfile(self, path):
        return fsspec.AbstractFileSystem.isfile(self, path)  # by info

    def find(self, path, maxdepth=None, **options):
        return fsspec.AbstractFileSystem.find(self, path, **options)  # by ls

    @staticmethod
    def _dated(info):
        return {**info, "LastModified": datetime(2026, 1, 2, tzinfo=UTC)} \
            if info["type"] == "file" else info


def of_another_process():
    return pa_fs.PyFileSystem(pa_fs.FSSpecHandler(Keeping()))


@pytest.mark.parametrize("is_below", [False, True])
def test_what_other_processes_write_is_seen(is_below):
    """A listing that was kept would lack files, or the marker that hides half of a commit."""
    where = f"/{uuid.uuid4().hex}"
    reader, folder = of_another_process(), where
    if is_below:
        reader, folder = pa_fs.SubTreeFileSystem(where, reader), "t"
    def write(value, mode):
        secure_bloom.write_dataset(
            pa.table({"ssn": [value]}), f"{where}/t" if is_below else where, mode=mode,
            encryption=ENCRYPTION, keys=KMS, filesystem=of_another_process())
    def read():
        return secure_bloom.read_table(folder, KMS, filesystem=reader)["ssn"].to_pylist()
    write("v0", "append")
    assert read() == ["v0"]
    write("v1", "append")
    assert sorted(read()) == ["v0", "v1"]
    built = build(folder, "ssn", KMS, filesystem=reader)
    assert built.indexed == 2, built.uncovered
    write("v2", "overwrite")
    assert read() == ["v2"]
    found = Index.open(folder, KMS, filesystem=reader).lookup("ssn", ["v0", "v2"])
    assert found.row_groups == [{}, {}] and len(found.uncovered) == 1


@pytest.mark.parametrize("operation", [
    lambda fs, path: fs.get_file_info(path).is_file or pytest.fail("not seen"),
    lambda fs, path: fs.get_file_info(pa_fs.FileSelector(path[:-2]))[0],
    lambda fs, path: fs.open_input_stream(path), lambda fs, path: fs.open_input_file(path),
    lambda fs, path: fs.delete_file(path), lambda fs, path: fs.delete_dir(path[:-2]),
    lambda fs, path: fs.move(path, path + "b")])
def test_each_operation_asks_anew(operation):
    where = f"/{uuid.uuid4().hex}"
    filesystem = as_local(of_another_process(), where)[0]
    filesystem.create_dir(where)
    assert filesystem.handler.fs.ls(where) == []
    of_another_process().handler.fs.pipe_file(f"{where}/a", b"1")
    operation(filesystem, f"{where}/a")


def test_a_folder_is_listed_without_those_below():
    where = f"/{uuid.uuid4().hex}"
    filesystem = as_local(of_another_process(), where)[0]
    filesystem.handler.fs.pipe({f"{where}/a": b"1", f"{where}/b/c": b"2"})
    names = [info.base_name for info in filesystem.get_file_info(pa_fs.FileSelector(where))]
    assert sorted(names) == ["a", "b"]


class Uploading(Keeping):
    """Completes copies later, as adlfs does: a file that is renamed would be lost."""

    protocol = "abfs"

    def cp_file(self, path1, path2, **options):
        self.pipe_file(path2, b"")

    def _open(self, path, mode="rb", data=None, **options):
        return _Blocks(self, path) if mode == "wb" and data is None \
            else super()._open(path, mode, data=data, **options)


class _Blocks(io.BytesIO):
    """An upload in several requests."""

    def __init__(self, store, path):
        super().__init__()
        self._store, self._path = store, path

    def close(self):
        if not self.closed:
            self._store.pipe_file(self._path, self.getvalue())
        super().close()


@pytest.mark.parametrize("size", [0, 10, 5 << 20], ids=["empty", "small", "large"])
@pytest.mark.parametrize("wrap", [
    lambda fs, where: (fs, where), lambda fs, where: (as_local(fs, "")[0], where),
    lambda fs, where: (pa_fs.SubTreeFileSystem(where, fs), ""),
    lambda fs, where: (DirFileSystem(where, fs.handler.fs), "")],
    ids=["handler", "uncached", "subtree", "dir"])
def test_a_file_of_a_store_gets_its_name_without_a_copy(size, wrap):
    where, store = f"/{uuid.uuid4().hex}", Uploading()
    filesystem, folder = wrap(pa_fs.PyFileSystem(pa_fs.FSSpecHandler(store)), where)
    for content in (os.urandom(size), os.urandom(size)):
        before = store.find(where)
        output = open_output(posixpath.join(folder, "a"), filesystem)
        output.write(content[:5])
        output.write(content[5:])
        assert store.find(where) == before
        output.commit()
        assert store.find(where) == [f"{where}/a"] and store.cat_file(f"{where}/a") == content
    with pytest.raises(ZeroDivisionError), \
            open_output(posixpath.join(folder, "a"), filesystem) as output:
        output.write(bytes(size))
        raise ZeroDivisionError
    assert store.find(where) == [f"{where}/a"] and store.cat_file(f"{where}/a") == content


@pytest.mark.parametrize(("info", "time"), [
    ({}, None), ({"mtime": 1.5}, 1_500_000_000), ({"LastModified": ""}, None),
    ({"last_modified": datetime(1970, 1, 1, 0, 0, 1)}, 10**9),
    ({"LastModified": datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC)}, 1_000_005_000)])
def test_times(info, time):
    assert modified_ns(info) == time
