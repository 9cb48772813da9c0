"""Small files of protocols: what else may be in their place is a typed error, and never hangs."""

import os
import time

import pyarrow.fs as pa_fs
import pytest

from secure_bloom import read_table, write_table
from secure_bloom.errors import FormatError
from secure_bloom.storage import small_files
from secure_bloom.storage.job_folder import JobFolder
from secure_bloom.storage.small_files import (
    MAX_MARKER,
    parse_json,
    read_cached,
    read_constant,
    read_small,
)
from secure_bloom.storage.source import Source
from secure_bloom.storage.table_names import GENERATION, STAGING, SUCCESS
from secure_bloom.storage.versions import open_stream, wait_for_the_clock
from secure_bloom.storage.visibility import visible_files

LOCAL = pa_fs.LocalFileSystem()


def _plant(path, kind):
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "link to itself":
        path.symlink_to(path)
    else:
        path.touch()
        os.truncate(path, 7 << 30)


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "link to itself", "sparse"])
def test_only_regular_files_of_bounded_size_are_read(tmp_path, kind):
    _plant(tmp_path / "marker", kind)
    for filesystem, path in ((LOCAL, str(tmp_path / "marker")),
                             (pa_fs.SubTreeFileSystem(str(tmp_path), LOCAL), "marker")):
        with pytest.raises(FormatError, match=r"not a regular file|at most 65,536") as error:
            read_small(filesystem, path, MAX_MARKER)
        assert error.value.file == path


@pytest.mark.parametrize("kind", ["pipe", "device", "sparse"])
def test_a_listing_reads_no_generation_that_is_something_else(tmp_path, kind):
    (tmp_path / STAGING).mkdir()
    _plant(tmp_path / STAGING / GENERATION, kind)
    with pytest.raises(FormatError):
        visible_files(LOCAL, str(tmp_path))


def _read_source(filesystem, path, limit):
    source = Source(path, filesystem)
    with source.file:
        return bytes(source.read_at(limit, 0))


def _read_stream(filesystem, path, limit):
    with open_stream(filesystem, path) as stream:
        return stream.read(limit)


@pytest.mark.parametrize("read", [read_small, read_constant, _read_source, _read_stream])
def test_a_pipe_that_is_put_there_after_the_check_is_not_opened(tmp_path, monkeypatch, read):
    path, away = tmp_path / "marker", tmp_path / "away"
    path.write_bytes(b"content")

    def exchanging(function):
        def call(*args, **kwargs):
            result = function(*args, **kwargs)
            if str(args[0]) == str(path) and not away.exists():
                os.rename(path, away)
                os.mkfifo(path)
                opened.append(original(path, os.O_RDWR))  # else opening it might wait for ever
            return result
        return call

    opened, original = [], os.open
    for name in ("stat", "open"):
        monkeypatch.setattr(os, name, exchanging(getattr(os, name)))
    assert read(LOCAL, str(path), MAX_MARKER) == b"content"
    assert away.exists()
    os.close(*opened)


def test_a_file_is_read_again_unless_it_is_certain_to_be_the_same(tmp_path, monkeypatch):
    path, read = tmp_path / "marker", []
    monkeypatch.setattr(small_files, "read_constant", lambda *arguments: read.append(1) or
                        read_constant(*arguments))

    def again() -> tuple[bytes, int]:
        read.clear()
        return read_cached(LOCAL, str(path), MAX_MARKER), len(read)

    def later() -> None:
        now = time.monotonic() + 60
        monkeypatch.setattr(small_files.time, "monotonic", lambda: now)

    path.write_bytes(b"1")
    assert [again(), again()] == [(b"1", 1), (b"1", 1)]  # it may change within the same tick
    later()
    assert [again(), again()] == [(b"1", 1), (b"1", 0)]
    wait_for_the_clock(path.stat().st_ctime_ns)
    os.utime(path, ns=(5, 5))
    assert [again(), again()] == [(b"1", 1), (b"1", 1)]
    later()
    assert [again(), again()] == [(b"1", 1), (b"1", 0)]
    wait_for_the_clock(path.stat().st_ctime_ns)
    path.write_bytes(b"2")
    os.utime(path, ns=(5, 5))  # a program can set this time
    assert again() == (b"2", 1)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        again()


def test_a_job_replaces_a_pipe_instead_of_writing_to_it(tmp_path):
    (tmp_path / STAGING).mkdir()
    os.mkfifo(path := tmp_path / STAGING / GENERATION)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # else a job might wait for ever
    JobFolder(LOCAL, str(tmp_path)).note_change()
    assert path.is_file() and path.stat().st_size == 32
    os.close(reader)


@pytest.mark.parametrize("name", [f"{STAGING}/{GENERATION}", SUCCESS, f"{STAGING}/{'ab' * 16}"])
def test_a_job_names_what_is_in_the_way_of_its_own_files(tmp_path, name):
    """Where a file belongs, there is a folder, and the other way round."""
    job = JobFolder(LOCAL, str(tmp_path), "ab" * 16)
    if name.endswith(job.id):
        (tmp_path / STAGING).mkdir()
        (tmp_path / name).touch()
    else:
        (tmp_path / name).mkdir(parents=True)
    for change in ((job.write_file, job.delete_file) if (tmp_path / name).is_dir()
                   else (job.make_folder,)):
        with pytest.raises(FormatError, match="remove it") as error:
            change(str(tmp_path / name))
        assert error.value.file == str(tmp_path / name)


def test_json_of_too_many_values_is_not_parsed(monkeypatch):
    monkeypatch.setattr(small_files.json, "loads", lambda data: pytest.fail("parsed"))
    for data in (b"[" + b"[]," * 2_000_000 + b"[]]", b"[" + b"1," * 8_000_001 + b"1]"):
        with pytest.raises(FormatError, match="too many values"):
            parse_json(data)


@pytest.mark.parametrize("place", ["_index", "_index/x", ".hidden"])
def test_links_in_hidden_folders_disturb_no_reader(tmp_path, place):
    import pyarrow as pa
    write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    link = tmp_path / place
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path)
    assert read_table(tmp_path, index="off").num_rows == 1
