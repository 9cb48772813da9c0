"""The contract of object stores: the one in memory keeps it as pyarrow with an S3 server does."""

import gc
import time

import pyarrow as pa
import pyarrow.fs as pa_fs
import pytest

from secure_bloom.storage.versions import current_version
from tests.storage.objects import Objects, new_objects
from tests.storage.s3 import BUCKET


@pytest.fixture(params=["memory", pytest.param("server", marks=pytest.mark.slow)])
def filesystem(request):
    if request.param == "memory":
        return Objects(new_objects())
    return request.getfixturevalue("s3").filesystem_of()


@pytest.fixture
def folder(tmp_path):
    return f"{BUCKET}/{tmp_path.name}"


def put(filesystem, path, data):
    with filesystem.open_output_stream(path) as stream:
        stream.write(data)


def listed(filesystem, folder, recursive=True):
    found = filesystem.get_file_info(pa_fs.FileSelector(folder, recursive=recursive))
    return {info.path.removeprefix(f"{folder}/"): info.type == pa_fs.FileType.File
            for info in found}


def test_what_was_written_is_found_at_once(filesystem, folder):
    assert filesystem.type_name == "s3"
    before = int(time.time())
    put(filesystem, f"{folder}/a/b", b"hello")
    info, missing = filesystem.get_file_info([f"{folder}/a/b", f"{folder}/b"])
    assert (info.type, info.size) == (pa_fs.FileType.File, 5)
    assert info.mtime_ns % 10**9 == 0 and before <= info.mtime_ns // 10**9 <= time.time() + 1
    assert missing.type == pa_fs.FileType.NotFound
    [found] = filesystem.get_file_info(pa_fs.FileSelector(f"{folder}/a"))
    # A listing of MinIO has milliseconds.
    assert (found.path, found.mtime_ns // 10**9) == (info.path, info.mtime_ns // 10**9)
    with filesystem.open_input_stream(info.path, compression=None) as stream:
        assert stream.read() == b"hello"


def test_folders_are_what_is_above_an_object(filesystem, folder):
    put(filesystem, f"{folder}/a/b/c", b"1")
    put(filesystem, f"{folder}/a/d", b"")
    assert listed(filesystem, folder) == {"a": False, "a/b": False, "a/b/c": True, "a/d": True}
    assert listed(filesystem, folder, False) == {"a": False}
    for path in (f"{folder}/a", f"{folder}/a/"):
        assert filesystem.get_file_info(path).type == pa_fs.FileType.Directory
    for above in (f"{folder}/none", f"{folder}/a/d"):  # not even below an object
        with pytest.raises(FileNotFoundError):
            listed(filesystem, above)
        assert filesystem.get_file_info(pa_fs.FileSelector(above, allow_not_found=True)) == []
    filesystem.create_dir(f"{folder}/x/y")
    assert listed(filesystem, f"{folder}/x") == {"y": False}


def test_a_folder_holds_nothing_of_those_beside_it(filesystem, folder):
    for name in ("a/b", "a-", "a.b/c", "a0/c", "aa/b"):  # "." and "0" are beside "/"
        put(filesystem, f"{folder}/{name}", b"1")
    assert listed(filesystem, f"{folder}/a") == {"b": True}
    filesystem.delete_dir(f"{folder}/a")
    assert listed(filesystem, folder, False) == {
        "a-": True, "a.b": False, "a0": False, "aa": False}


def test_deleting_leaves_a_folder_without_objects(filesystem, folder):
    put(filesystem, f"{folder}/a/b", b"1")
    filesystem.delete_file(f"{folder}/a/b")
    assert listed(filesystem, folder) == {"a": False}
    for path in ("a/b", "a", "none/x"):
        with pytest.raises(FileNotFoundError):
            filesystem.delete_file(f"{folder}/{path}")
    put(filesystem, f"{folder}/a/b/c/d", b"1")
    filesystem.delete_dir(f"{folder}/a/b")
    assert listed(filesystem, folder) == {"a": False}
    with pytest.raises(FileNotFoundError):
        filesystem.delete_dir(f"{folder}/none")


@pytest.mark.slow
def test_an_object_appears_when_its_upload_is_closed_or_dropped(filesystem, folder):
    for close in (lambda stream: stream.close(), lambda stream: None):
        path = f"{folder}/{close.__code__.co_firstlineno}"
        stream = filesystem.open_output_stream(path)
        stream.write(b"one")
        stream.write(b"two")
        assert filesystem.get_file_info(path).type == pa_fs.FileType.NotFound
        close(stream)
        del stream
        gc.collect()
        assert filesystem.get_file_info(path).size == 6
        filesystem.delete_file(path)


def test_versions_differ_by_the_etag_within_a_second(filesystem, folder):
    path = f"{folder}/a"
    put(filesystem, path, b"old")
    with filesystem.open_input_file(path) as file:
        assert file.metadata().keys() >= {"Content-Length", "ETag", "Last-Modified"}
        assert file.size() == 3
    old = current_version(filesystem, path)
    assert old.mtime_ns == filesystem.get_file_info(path).mtime_ns
    assert old == current_version(filesystem, path)
    put(filesystem, path, b"new")
    new = current_version(filesystem, path)
    assert new.size == old.size and new.tag != old.tag


@pytest.mark.parametrize("opened", ["open_input_file", "open_input_stream"])
def test_a_reader_gets_bytes_of_what_is_there_now(filesystem, folder, opened):
    path = f"{folder}/a"
    put(filesystem, path, b"hello")
    with getattr(filesystem, opened)(path) as file:
        put(filesystem, path, b"other and longer")
        assert file.read(2) == b"ot" and file.read() == b"her"
    with getattr(filesystem, opened)(path) as file:
        put(filesystem, path, b"x")
        data = file.read()  # pyarrow does not notice that fewer bytes came
        assert len(data) == 16 and data[:1] == b"x"
    with getattr(filesystem, opened)(path) as file:
        filesystem.delete_file(path)
        with pytest.raises(OSError) as caught:
            file.read()
        assert not isinstance(caught.value, FileNotFoundError)
    for missing in (path, folder):
        with pytest.raises(FileNotFoundError):
            getattr(filesystem, opened)(missing)


def test_a_move_is_a_copy_and_no_rename(filesystem, folder):
    put(filesystem, f"{folder}/a", b"1")
    put(filesystem, f"{folder}/b", b"22")
    filesystem.move(f"{folder}/a", f"{folder}/b")
    assert listed(filesystem, folder) == {"b": True}
    assert filesystem.get_file_info(f"{folder}/b").size == 1
    with pytest.raises(OSError):
        filesystem.move(f"{folder}/a", f"{folder}/c")


def test_what_is_no_path_is_refused(filesystem, folder):
    for path in (f"/{folder}", f"{folder}//a"):
        with pytest.raises(pa.ArrowInvalid):
            filesystem.get_file_info(path)
        with pytest.raises(pa.ArrowInvalid):
            filesystem.open_output_stream(path)
    for path in (f"{folder}/a/", "no-bucket/a"):
        with pytest.raises(OSError):
            filesystem.open_output_stream(path)
