"""One writer that several threads use, or that a process and its forks have."""

import gc
import multiprocessing
import os
import pathlib
import signal
import threading

import pyarrow as pa
import pyarrow.fs as pa_fs
import pytest

from secure_bloom import EncryptionConfiguration, ParquetFile, ParquetWriter, read_table
from secure_bloom.errors import UnsupportedError
from secure_bloom.storage.files import open_output
from tests.support import kms, run_python
from tests.tiers import sweep_where

TABLE = pa.table({"a": range(1000)})
WAIT = 30  # seconds until a thread is given up, where nothing is wrong it is never waited for


def tables(count: int) -> list[pa.Table]:
    return [pa.table({"a": range(1000 * i, 1000 * i + 1000)}) for i in range(count)]


def together(*functions) -> list:
    """Run functions in threads of their own; what they return, or the exceptions they raise."""
    results = [None] * len(functions)

    def run(number, function):
        try:
            results[number] = function()
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=one, daemon=True) for one in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive()
    return results


# --- threads -------------------------------------------------------------------------------------

@pytest.mark.slow
def test_row_groups_of_several_threads_come_one_after_the_other(tmp_path, monkeypatch):
    both, meetings = threading.Barrier(2), []
    write_row_group = ParquetWriter._write_row_group

    def meet(self, writer, table):
        try:
            both.wait(0.5)  # until another thread is here too, which must not be
            meetings.append(table)
        except threading.BrokenBarrierError:
            pass
        write_row_group(self, writer, table)

    monkeypatch.setattr(ParquetWriter, "_write_row_group", meet)
    one, other = tables(2)
    with ParquetWriter(tmp_path / "x", TABLE.schema, bloom_filters=True) as writer:
        assert together(lambda: writer.write_table(one), lambda: writer.write_table(other)) \
            == [None, None]
    assert not meetings
    check(tmp_path / "x", [one, other])


@pytest.mark.slow
@pytest.mark.parametrize("encrypted", [False, True])
def test_a_writer_shared_by_many_threads(tmp_path, encrypted):
    parts = tables(24)
    encryption = EncryptionConfiguration("mf", {"mc": ["a"]}) if encrypted else None
    keys = kms() if encrypted else None
    with ParquetWriter(tmp_path / "x", TABLE.schema, bloom_filters=True, encryption=encryption,
                       keys=keys) as writer:
        assert together(*(lambda part=part: writer.write_table(part, 250) for part in parts)) \
            == [None] * 24
    check(tmp_path / "x", parts, keys, 250)


def check(path, parts, keys=None, row_group_size=1000) -> None:
    """Every part is there in one piece, and known to the filters of its row groups."""
    with ParquetFile(path, keys) as file:
        found = file.read()["a"].to_pylist()
        assert sorted(found[::1000]) == [part["a"][0].as_py() for part in parts]
        assert all(found[i:i + 1000] == list(range(found[i], found[i] + 1000))
                   for i in range(0, len(found), 1000))
        assert file.num_row_groups == len(found) // row_group_size
        for group in range(file.num_row_groups):
            values = found[group * row_group_size:(group + 1) * row_group_size]
            assert file.might_contain("a", values)[group].all()


@pytest.mark.slow
def test_close_waits_for_the_thread_that_writes(tmp_path, monkeypatch):
    events, writes, finishes = [], threading.Event(), threading.Event()
    write_row_group, finish = ParquetWriter._write_row_group, ParquetWriter._finish

    def slow(self, writer, table):
        writes.set()
        finishes.wait(0.5)  # until the file is finished, which must not be
        write_row_group(self, writer, table)
        events.append("written")

    def watched(self, *held):
        events.append("finished")
        finishes.set()
        finish(self, *held)

    monkeypatch.setattr(ParquetWriter, "_write_row_group", slow)
    monkeypatch.setattr(ParquetWriter, "_finish", watched)
    writer = ParquetWriter(tmp_path / "x", TABLE.schema, bloom_filters=True)
    assert together(lambda: writer.write_table(TABLE),
                    lambda: writes.wait(WAIT) and writer.close(),
                    lambda: writes.wait(WAIT) and writer.close()) == [None] * 3
    assert events == ["written", "finished"]
    check(tmp_path / "x", [TABLE])


def test_a_thread_that_comes_too_late_is_told(tmp_path):
    closed = threading.Event()
    with ParquetWriter(tmp_path / "x", TABLE.schema) as writer:
        writer.write_table(TABLE)

    def late():
        closed.wait(WAIT)
        writer.write_table(TABLE)

    [error, _] = together(late, closed.set)
    assert isinstance(error, ValueError) and "closed" in str(error)
    check_rows(tmp_path / "x", TABLE)


def test_an_exception_in_one_thread_ends_the_file_for_all(tmp_path):
    with pytest.raises(ValueError, match="closed"), \
            ParquetWriter(tmp_path / "x", TABLE.schema) as writer:
        [error] = together(lambda: writer.write_table(pa.table({"b": [1]})))
        assert isinstance(error, ValueError) and "schema" in str(error)
        writer.write_table(TABLE)
    assert os.listdir(tmp_path) == []


def check_rows(path, *parts) -> None:
    assert read_table(path).equals(pa.concat_tables(parts))


# --- forks ---------------------------------------------------------------------------------------

def in_fork(function) -> None:
    """Run a function in a forked process, where it must raise nothing."""
    child = multiprocessing.get_context("fork").Process(target=function)
    child.start()
    child.join(WAIT)
    if child.exitcode is None:
        child.kill()
    assert child.exitcode == 0


def refused(use) -> None:
    with pytest.raises(UnsupportedError, match=r"process \d+ opened this file"):
        use()


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_fork_cannot_write_or_publish_the_file_of_its_parent(tmp_path, encrypted):
    path = tmp_path / "x"
    encryption = EncryptionConfiguration("mf", {"mc": ["a"]}, internal_key_material=False) \
        if encrypted else None
    keys = kms() if encrypted else None
    with ParquetWriter(path, TABLE.schema, bloom_filters=True, encryption=encryption,
                       keys=keys) as writer:
        writer.write_table(TABLE)
        before = os.listdir(tmp_path)

        def use():
            for way in (writer.close, lambda: writer.write_table(TABLE), writer.close,
                        lambda: writer.add_key_value_metadata({"a": "b"}),
                        lambda: writer.__exit__(None, None, None)):
                refused(way)

        in_fork(use)
        assert os.listdir(tmp_path) == before
        writer.write_table(TABLE)
    with ParquetFile(path, keys) as file:
        assert file.read().equals(pa.concat_tables([TABLE, TABLE]))
        assert file.might_contain("a", TABLE["a"]).all()


@pytest.mark.slow
def test_a_fork_that_forgets_a_writer_leaves_the_file_alone(tmp_path):
    writers = [ParquetWriter(tmp_path / "x", TABLE.schema, bloom_filters=True)]
    writers[0].write_table(TABLE)

    def forget():
        writers.clear()
        gc.collect()

    in_fork(forget)
    writers[0].write_table(TABLE)
    writers[0].close()
    check_rows(tmp_path / "x", TABLE, TABLE)
    assert os.listdir(tmp_path) == ["x"]


FORK_AND_EXIT = """
import os, sys, pyarrow as pa, secure_bloom
table = pa.table({{"a": range(1000)}})
writer = secure_bloom.ParquetWriter({path!r}, table.schema, bloom_filters=True)
writer.write_table(table)
if os.fork() == 0:
    {end}
    sys.exit()
assert os.wait()[1] == 0
writer.write_table(table)
writer.close()
"""


@sweep_where(lambda end: end != "pass")
@pytest.mark.slow
@pytest.mark.parametrize("end", ["pass", "writer.cycle = writer", "del writer",
                                 "inner = writer._writer; del writer; inner.close()"])
def test_a_fork_that_exits_leaves_the_file_alone(tmp_path, end):
    run_python(FORK_AND_EXIT.format(path=str(tmp_path / "x"), end=end))
    check_rows(tmp_path / "x", TABLE, TABLE)
    assert os.listdir(tmp_path) == ["x"]


def test_a_fork_does_not_wait_for_a_thread_that_it_does_not_have(tmp_path, monkeypatch):
    writes, goes_on = threading.Event(), threading.Event()
    write_row_group = ParquetWriter._write_row_group

    def slow(self, writer, table):
        writes.set()
        goes_on.wait(WAIT)
        write_row_group(self, writer, table)

    monkeypatch.setattr(ParquetWriter, "_write_row_group", slow)
    writer = ParquetWriter(tmp_path / "x", TABLE.schema, bloom_filters=True)
    thread = threading.Thread(target=writer.write_table, args=[TABLE])
    thread.start()
    writes.wait(WAIT)

    def use():
        signal.alarm(WAIT)
        refused(writer.close)
        writer.__exit__(ValueError, ValueError(), None)

    in_fork(use)
    goes_on.set()
    thread.join(WAIT)
    writer.close()
    check_rows(tmp_path / "x", TABLE)


def test_a_fork_cannot_publish_any_output(tmp_path):
    memory = pa_fs.LocalFileSystem()
    for where in (tmp_path / "x", str(tmp_path / "y")):
        output = open_output(where, memory)
        output.write(b"one")

        def use(output=output):
            refused(lambda: output.write(b"two"))
            refused(output.commit)
            output.abort()

        in_fork(use)
        output.commit()
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes() == b"one"


class Upload:
    """A stream to an object store: the object is there when the stream is closed, or forgotten."""

    def __init__(self, path):
        self.path, self.data, self.closed = path, bytearray(), False

    def write(self, data):
        self.data += data

    def close(self):
        self.closed = True
        self.path.write_bytes(self.data)

    __del__ = close


class Store(pa_fs.LocalFileSystem):
    type_name = "s3"

    def open_output_stream(self, path):
        return Upload(pathlib.Path(path))


@pytest.mark.slow
def test_a_fork_completes_no_upload(tmp_path):
    outputs = [open_output(str(tmp_path / "x"), Store())]
    outputs[0].write(b"one")

    def forget():
        outputs[0].abort()
        outputs.clear()
        gc.collect()
        assert os.listdir(tmp_path) == []

    in_fork(forget)
    outputs[0].write(b"two")
    outputs[0].commit()
    assert (tmp_path / "x").read_bytes() == b"onetwo"
