"""What fails while folders are listed and files are read: the answer is right, or an error."""

import os
import re
from types import SimpleNamespace

import pyarrow.fs as pa_fs
import pytest

from secure_bloom.errors import ChangedMeanwhileError, SecureBloomError
from secure_bloom.storage import copying, processes, rewrite, visibility
from secure_bloom.storage.files import write_file
from secure_bloom.storage.leftovers import remove_leftovers_of
from secure_bloom.storage.local_files import temporary_name
from secure_bloom.storage.many_files import each_file
from secure_bloom.storage.rewrite import Kept, Rewrite, Zeros
from secure_bloom.storage.small_files import read_small
from secure_bloom.storage.source import Source
from secure_bloom.storage.table_formats import Table, first_table, folders_above
from secure_bloom.storage.versions import _nanoseconds, open_file
from secure_bloom.storage.visibility import read_jobs, visible_files
from tests.counting import CountingHandler

LOCAL = pa_fs.LocalFileSystem()


class Inaccessible(CountingHandler):
    """Refuses one folder; others are those of the local filesystem."""

    def __init__(self, refused):
        super().__init__()
        self._refused = str(refused)

    def get_file_info(self, paths):
        if any(path.startswith(self._refused) for path in paths):
            raise PermissionError("not yours")
        return super().get_file_info(paths)

    def get_file_info_selector(self, selector):
        if selector.base_dir.startswith(self._refused):
            raise PermissionError("not yours")
        return super().get_file_info_selector(selector)


def test_folders_that_may_not_be_listed_are_passed_over_in_the_search_for_a_table(tmp_path):
    for name in ("refused", "delta"):
        (tmp_path / name / "_delta_log").mkdir(parents=True)
        write_file(LOCAL, str(tmp_path / name / "_delta_log" / f"{0:020}.json"), b"{}")
    folders = [str(tmp_path / name) for name in ("refused", "delta")]
    assert first_table(LOCAL, folders).folder == folders[0]
    filesystem = pa_fs.PyFileSystem(Inaccessible(tmp_path / "refused"))
    assert first_table(filesystem, folders) == Table("Delta Lake", folders[1])
    assert first_table(filesystem, folders[:1]) is None


@pytest.mark.parametrize(("path", "folders"), [
    ("/a/b", ["/a/b", "/a", "/"]), ("a/b/", ["a/b/", "a"]), ("/", ["/"]), ("", [])])
def test_the_folders_above_a_path_end_at_the_root(path, folders):
    assert list(folders_above(path)) == folders


def test_a_folder_to_which_jobs_commit_all_the_time_is_an_error(tmp_path, monkeypatch):
    """A listing might mix files of several jobs."""
    generations = iter(range(10**6))
    monkeypatch.setattr(visibility, "_generation", lambda *_: next(generations))
    monkeypatch.setattr(visibility.time, "sleep", lambda seconds: None)
    with pytest.raises(SecureBloomError, match="try again") as caught:
        visible_files(LOCAL, str(tmp_path))
    assert caught.value.file == str(tmp_path)
    assert next(generations) == 2 * visibility._TRIES


def test_records_that_disappear_all_the_time_are_an_error(tmp_path, monkeypatch):
    attempts = []

    def gone(*_):
        attempts.append(1)
        raise FileNotFoundError

    monkeypatch.setattr(visibility, "_jobs", gone)
    with pytest.raises(SecureBloomError, match="try again"):
        read_jobs(LOCAL, str(tmp_path))
    assert len(attempts) == visibility._TRIES


@pytest.mark.parametrize(("text", "nanoseconds"), [
    ("1970-01-01T00:00:01+00:00", 10**9), ("1970-01-01T00:00:00.000002+00:00", 2000),
    ("yesterday", None), ("", None), (None, None)])
def test_times_of_stores_are_read_or_unknown(text, nanoseconds):
    assert _nanoseconds(text) == nanoseconds


def test_a_file_that_cannot_be_opened_is_neither_missing_nor_a_folder(tmp_path):
    with pytest.raises(OSError) as caught:
        open_file(LOCAL, str(tmp_path / ("n" * 300)))
    assert type(caught.value) is OSError
    with pytest.raises(IsADirectoryError, match="specify one of its files"):
        open_file(LOCAL, str(tmp_path))
    with pytest.raises(FileNotFoundError, match="there is no file"):
        open_file(LOCAL, str(tmp_path / "absent"))


# --- files that are replaced ---------------------------------------------------------------------

@pytest.fixture(params=["kernel", "reads"])
def how(request, monkeypatch):
    """Bytes are copied by the kernel, or read and written."""
    if request.param == "reads":
        def refuse(*_):
            raise OSError("not on this filesystem")
        monkeypatch.setattr(os, "copy_file_range", refuse)


def test_a_file_is_put_together_from_kept_bytes_zeros_and_new_ones(tmp_path, how, monkeypatch):
    monkeypatch.setattr(copying, "_AT_ONCE", 3)
    monkeypatch.setattr(rewrite, "_ZEROS", 3)
    path = tmp_path / "f"
    path.write_bytes(b"0123456789")
    with Rewrite(LOCAL, str(path)) as file:
        file.replace_by([Kept(2, 9), Zeros(7), b"new", memoryview(b"er"), Kept(0, 1), Zeros(0)])
    assert path.read_bytes() == b"2345678" + bytes(7) + b"newer" + b"0"


def test_a_file_that_is_truncated_while_it_is_copied_is_left_as_it_is(tmp_path, how):
    path = tmp_path / "f"
    path.write_bytes(b"0123456789")
    with Rewrite(LOCAL, str(path)) as file:
        os.truncate(path, 4)
        with pytest.raises(ChangedMeanwhileError):
            file.replace_by([Kept(0, 10)])
    assert path.read_bytes() == b"0123" and os.listdir(tmp_path) == ["f"]


def test_leftovers_are_removed_on_the_local_filesystem_only(tmp_path):
    path, leftover = tmp_path / "a", tmp_path / temporary_name("a")
    leftover.touch()
    remove_leftovers_of(pa_fs.PyFileSystem(CountingHandler()), str(path), [str(path)])
    assert leftover.exists()
    remove_leftovers_of(LOCAL, str(path), [str(path)])
    assert not leftover.exists()


def test_a_source_of_an_unknown_kind_is_refused():
    with pytest.raises(TypeError, match="not int"):
        Source(7)


# --- progress, and processes ---------------------------------------------------------------------

def test_progress_is_the_part_of_the_files_that_is_done():
    done = []
    outcomes = dict(each_file(str.upper, ["a", "b", "c", "d"], 1, done.append))
    assert outcomes == {"a": "A", "b": "B", "c": "C", "d": "D"}
    assert done == [0.25, 0.5, 0.75, 1.0]
    assert dict(each_file(str.upper, ["a"], None, None)) == {"a": "A"}


def test_a_process_of_which_nothing_can_be_known_may_be_alive(monkeypatch):
    this = processes.this_process()

    def refused(pid):
        raise PermissionError("/proc is hidden")

    monkeypatch.setattr(processes, "_began", refused)
    assert not processes.is_dead(this)
    assert processes.this_process() == b""


@pytest.mark.parametrize("text", [b"", b"[]", b"[" * 10**5, b'{"pid": 1}', b"pid of infinity"])
def test_a_process_that_is_not_described_may_be_alive(text):
    if text == b"pid of infinity":
        text = re.sub(rb'"pid": \d+', b'"pid": 1e999', processes.this_process())
    assert not processes.is_dead(text)


# --- markers -------------------------------------------------------------------------------------

class BrokenStream:
    """A stream of an object that was removed after it was opened."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def read(self, size):
        raise OSError("the object is gone")


@pytest.mark.parametrize("exists", [True, False])
def test_a_marker_that_cannot_be_read_to_its_end_is_read_again(tmp_path, monkeypatch, exists):
    monkeypatch.setattr(visibility, "read_small",
                        lambda filesystem, path, limit: read_small(LOCAL, path, limit))
    path = tmp_path / "marker"
    if exists:
        path.write_bytes(b"content")
    broken = SimpleNamespace(type_name="s3", open_input_stream=lambda path: BrokenStream())
    if exists:
        assert visibility._read_marker(broken, str(path), 100) == b"content"
    else:
        with pytest.raises(FileNotFoundError):
            visibility._read_marker(broken, str(path), 100)
