"""Destinations: short writes, and forked processes."""

import errno
import fcntl
import io
import multiprocessing
import os
from contextlib import ExitStack

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pytest

from secure_bloom import ParquetWriter, attach, read_table, write_dataset, write_table
from secure_bloom.errors import FormatError, KeyringError, SecureBloomError
from secure_bloom.keys import Keyring
from secure_bloom.storage import local_files
from secure_bloom.storage.files import _open_on
from secure_bloom.storage.leftovers import remove_leftovers
from secure_bloom.storage.source import Source
from secure_bloom.storage.table_formats import folders_above

TABLE = pa.table({"a": range(1000)})


class ShortWrites(io.RawIOBase):
    """Takes 100 bytes at a time."""

    def __init__(self):
        self.data = bytearray()

    def writable(self):
        return True

    def write(self, data):
        self.data += data[:100]
        return min(len(data), 100)


def test_a_file_that_takes_less_at_a_time_gets_everything():
    sink = ShortWrites()
    write_table(TABLE, sink, bloom_filters={"a": True})
    assert pq.read_table(pa.BufferReader(bytes(sink.data))).equals(TABLE)


def test_a_forked_process_leaves_the_file_alone(tmp_path):
    path = tmp_path / "a.parquet"
    with ParquetWriter(path, TABLE.schema, bloom_filters={"a": True}) as writer:
        writer.write_table(TABLE)

        def leave():
            writer.__exit__(SystemExit, SystemExit(), None)

        child = multiprocessing.get_context("fork").Process(target=leave)
        child.start()
        child.join()
        assert child.exitcode == 0
        writer.write_table(TABLE)
    assert read_table(path).equals(pa.concat_tables([TABLE, TABLE]))


def test_a_lock_of_somebody_else_ends_operations(tmp_path, monkeypatch):
    """Whoever can read a folder can lock it."""
    monkeypatch.setattr(local_files, "LONGEST_WAIT", 0)
    keyring = Keyring.create(tmp_path / "keyring.json")
    write_dataset(TABLE, tmp_path / "t")
    [path] = (tmp_path / "t").glob("*.parquet")
    with ExitStack() as stack:
        for folder in (tmp_path, tmp_path / "t"):
            stack.callback(os.close, descriptor := os.open(folder, os.O_RDONLY))
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        assert "locked this folder" in attach(tmp_path / "t", ["a"]).failed[str(path)]
        with pytest.raises(SecureBloomError, match="locked this folder"):
            write_dataset(TABLE, tmp_path / "t", mode="overwrite")
        with pytest.raises(KeyringError, match="locked this folder"):
            keyring.add("a")
    assert os.listdir(tmp_path / "t" / "_staging") == ["generation"] and keyring.names() == []
    assert read_table(tmp_path / "t").equals(TABLE)


def test_a_temporary_file_that_somebody_else_has_locked_is_not_used(tmp_path, monkeypatch):
    taken = []

    def faster(file, operation):
        monkeypatch.setattr(fcntl, "flock", flock)
        taken.append(os.open(tmp_path / os.path.basename(file.name), os.O_RDONLY))
        flock(taken[0], fcntl.LOCK_EX)
        return flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", faster)
    write_table(TABLE, tmp_path / "a.parquet", bloom_filters={})
    os.close(taken[0])
    assert read_table(tmp_path / "a.parquet").equals(TABLE)
    assert os.listdir(tmp_path) == ["a.parquet"]


# --- temporary files -----------------------------------------------------------------------------

flock = fcntl.flock


def flock_of_nfs(file, operation):
    """As over NFS, where the descriptor must be open for what the lock is for."""
    access = fcntl.fcntl(file.fileno(), fcntl.F_GETFL) & os.O_ACCMODE
    if access == (os.O_WRONLY if operation & fcntl.LOCK_SH else os.O_RDONLY):
        raise OSError(errno.EBADF, "Bad file descriptor")
    return flock(file, operation)


def no_flock(*_):
    raise OSError(errno.ENOSYS, "Function not implemented")


def test_a_new_file_has_the_mode_of_the_umask(tmp_path):
    umask = os.umask(0o027)
    try:
        write_table(TABLE, tmp_path / "a.parquet", bloom_filters={})
    finally:
        os.umask(umask)
    assert (tmp_path / "a.parquet").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("locking", [flock, flock_of_nfs, no_flock])
def test_a_living_writers_file_is_no_leftover(tmp_path, monkeypatch, locking):
    monkeypatch.setattr(fcntl, "flock", locking)
    path = tmp_path / "a.parquet"
    with ParquetWriter(path, TABLE.schema, bloom_filters={}) as writer:
        writer.write_table(TABLE)
        ending = "unlocked" if locking is no_flock else "tmp"
        assert [p.name.split(".")[-1] for p in tmp_path.iterdir()] == [ending]
        for other in (locking, flock):  # of another machine
            monkeypatch.setattr(fcntl, "flock", other)
            remove_leftovers(tmp_path, {"a.parquet"})
    assert read_table(path).equals(TABLE)
    assert os.listdir(tmp_path) == ["a.parquet"]


def test_a_file_removed_before_it_was_locked_is_made_again(tmp_path, monkeypatch):
    def late(file, operation):
        monkeypatch.setattr(fcntl, "flock", flock)
        remove_leftovers(tmp_path, {"a.parquet"})
        return flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    write_table(TABLE, tmp_path / "a.parquet", bloom_filters={})
    assert read_table(tmp_path / "a.parquet").equals(TABLE)


def test_a_file_that_is_being_renamed_is_no_leftover(tmp_path, monkeypatch):
    replace = os.replace

    def after_tidying(*names):
        remove_leftovers(tmp_path, {"a.parquet"})
        replace(*names)

    monkeypatch.setattr(os, "replace", after_tidying)
    write_table(TABLE, tmp_path / "a.parquet", bloom_filters={})
    assert read_table(tmp_path / "a.parquet").equals(TABLE)


def test_only_what_is_ours_is_a_leftover(tmp_path):
    number = "0123456789abcdef"
    foreign = [".a.parquet.backup.tmp", f".a.parquet.{number}0.tmp", f".b.parquet.{number}.tmp",
               f".a.parquet.{number}.unlocked", f"a.parquet.{number}.tmp"]
    for name in [*foreign, f".a.parquet.{number}.tmp"]:
        (tmp_path / name).write_bytes(b"")
    (tmp_path / f".a.parquet.{number[::-1]}.tmp").mkdir()
    (tmp_path / f".a.parquet.{number[:15]}0.tmp").symlink_to("a")
    remove_leftovers(tmp_path, {"a.parquet"})
    assert set(os.listdir(tmp_path)) == {*foreign, f".a.parquet.{number[::-1]}.tmp",
                                         f".a.parquet.{number[:15]}0.tmp"}


def test_a_move_that_stops_half_way_loses_nothing(tmp_path):
    class Copying(pa_fs.LocalFileSystem):  # as fsspec does if a store has no rename
        def move(self, source, target):
            with open(source, "rb") as old, open(target, "wb") as new:
                new.write(old.read(3))
            raise OSError("connection lost")

    path = tmp_path / "a"
    path.write_bytes(b"old bytes")
    output = _open_on(Copying(), str(path))
    output.write(b"new bytes")
    with pytest.raises(OSError, match="lost"):
        output.commit()
    output.abort()
    assert b"new bytes" in [file.read_bytes() for file in tmp_path.iterdir()]


def test_a_file_that_gets_shorter_while_it_is_read_is_truncated(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1000)
    source = Source(str(path))
    os.truncate(path, 10)
    with pytest.raises(FormatError, match="truncated while"):
        source.read_tail(100)


def test_the_folders_above_a_path_end_at_the_root():
    assert list(folders_above("/a/b")) == ["/a/b", "/a", "/"]
    assert list(folders_above("a/b")) == ["a/b", "a"]
