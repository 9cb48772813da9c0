"""File tables: what is stored is read, and hostile ones are refused."""

import random

import numpy as np
import pyarrow as pa
import pytest

from secure_bloom.errors import FormatError
from secure_bloom.index import file_table
from secure_bloom.index.file_table import FileTable
from tests.index.helpers import entry


def test_entries_are_stored_with_each_schema_once():
    entries = [entry(number, number % 3)._replace(schema=b"s" * 1000 + bytes([number % 2]))
               for number in range(200)]
    data = FileTable.of(entries).to_buffer()
    table = FileTable.from_buffer(data)
    assert [table.entry(number) for number in range(200)] == entries
    assert len(table.schemas) == 2 and table.schema_ids == [number % 2 for number in range(200)]
    assert data.size < 20_000


def test_row_groups_are_numbered_through_the_files():
    table = FileTable.of([entry(0, 2), entry(1, 0), entry(2, 3)])
    files, groups = table.locate(np.arange(5, dtype=np.uint64))
    assert (files.tolist(), groups.tolist()) == ([0, 0, 2, 2, 2], [0, 1, 0, 1, 2])
    with pytest.raises(FormatError, match="row group"):
        table.locate(np.array([5], np.uint64))


@pytest.mark.parametrize("name, value", [("path", None), ("row_groups", -1), ("schema", None),
                                         ("row_groups", 2**31 - 1)])
def test_invalid_values_are_refused(name, value):
    fields = [entry(0, 1)._asdict() | {name: value}]
    columns = {one.name: [row[one.name] for row in fields] for one in file_table.SCHEMA}
    table = pa.table(columns, file_table.SCHEMA)
    with pytest.raises(FormatError):
        FileTable.from_buffer(stored(table))


def test_other_columns_and_no_rows_are_refused():
    good = pa.table({name: [value] for name, value in entry(0, 1)._asdict().items()})
    for table in (good, good.select(["path"]), file_table.SCHEMA.empty_table()):
        with pytest.raises(FormatError):
            FileTable.from_buffer(stored(table))


def stored(table):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


@pytest.mark.slow
def test_changed_bytes_are_refused_or_read():
    """The file table of an index without encryption may come from anyone."""
    data = FileTable.of([entry(number, 3) for number in range(5)]).to_buffer().to_pybytes()
    rng = random.Random(3)
    outcomes = set()
    for _ in range(500):
        changed = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            changed[rng.randrange(len(data))] = rng.choice([0, 1, 0x7f, 0x80, 0xff])
        try:
            table = FileTable.from_buffer(pa.py_buffer(bytes(changed)))
            outcomes.add((len(table.paths), len(table.stamps), len(table.schema_ids)))
        except FormatError:
            outcomes.add(None)
    assert None in outcomes
