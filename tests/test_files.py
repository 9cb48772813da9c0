"""Destinations: short writes, and processes that fork."""

import io
import multiprocessing

import pyarrow as pa
import pyarrow.parquet as pq

from secure_bloom import ParquetWriter, read_table, write_table

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
