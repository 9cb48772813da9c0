"""File tables: what is stored is read, and hostile ones are refused."""

import random
import struct

import numpy as np
import pyarrow as pa
import pytest

from secure_bloom.errors import FormatError
from secure_bloom.index import file_table
from secure_bloom.index.file_table import FileTable
from tests.index.helpers import entry
from tests.memory import Peak


def test_entries_are_stored_with_each_schema_once():
    entries = [entry(number, number % 3)._replace(schema=b"s" * 1000 + bytes([number % 2]))
               for number in range(200)]
    data = FileTable.of(entries).to_bytes()
    table = FileTable.from_buffer(data)
    assert [table.entry(number) for number in range(200)] == entries
    assert len(table.schemas) == 2 and table.schema_ids == [number % 2 for number in range(200)]
    assert len(data) < 20_000


def test_row_groups_are_numbered_through_the_files():
    table = FileTable.of([entry(0, 2), entry(1, 0), entry(2, 3)])
    files, groups = table.locate(np.arange(5, dtype=np.uint64))
    assert (files.tolist(), groups.tolist()) == ([0, 0, 2, 2, 2], [0, 1, 0, 1, 2])
    with pytest.raises(FormatError, match="row group"):
        table.locate(np.array([5], np.uint64))


@pytest.mark.parametrize("changed", [
    {"row_groups": -1}, {"row_groups": 2**31 - 1}, {"rows": -1},
    *({"path": path} for path in ("", "/a", "a/", "a//b", "./a", "a/./b", "..", "a/../b", "a\0b",
                                  entry(1, 1).path))])
def test_invalid_entries_are_refused(changed):
    """Among them paths that no listing shows, and one that another file has, too."""
    data = FileTable.of([entry(0, 1)._replace(**changed), entry(1, 1)]).to_bytes()
    with pytest.raises(FormatError, match="file table"):
        FileTable.from_buffer(data)


def test_a_void_entry_may_have_the_path_of_another_one():
    FileTable.from_buffer(FileTable.of([entry(0, 1).void(), entry(0, 1)]).to_bytes())


def packed(data: bytes, size: int | None = None) -> bytes:
    """Return a file table with this content, which claims a size."""
    return struct.pack("<q", len(data) if size is None else size) \
        + pa.Codec("zstd").compress(data, asbytes=True)


@pytest.mark.parametrize("data", [
    b"", packed(b""), packed(struct.pack("<ii", 0, 0)), packed(struct.pack("<ii", -1, 0)),
    packed(struct.pack("<ii", 2**31 - 1, 1)),
    packed(struct.pack("<ii", 1, 2**31 - 1) + bytes(100)),
    packed(bytes(100), 99), packed(bytes(100), 101), packed(bytes(100), -1),
    packed(bytes(9), 2**62)])
def test_other_content_is_refused(data):
    with pytest.raises(FormatError):
        FileTable.from_buffer(data)


def test_what_a_compressed_table_claims_is_not_allocated():
    """A file table of a few KB may be many GB when it is decompressed."""
    bomb = packed(bytes(file_table.MAX_BYTES + 1))
    peak = Peak()
    for data in (bomb, bomb[8:], struct.pack("<q", 1000) + bomb[8:]):
        with pytest.raises(FormatError):
            FileTable.from_buffer(data)
    assert len(bomb) < 20_000 and peak.bytes() < file_table.MAX_BYTES // 4


@pytest.mark.slow
def test_changed_bytes_are_refused_or_read():
    """The file table of an index without encryption may come from anyone."""
    data = FileTable.of([entry(number, 3) for number in range(5)]).to_bytes()
    rng = random.Random(3)
    outcomes = set()
    for _ in range(500):
        changed = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            changed[rng.randrange(len(data))] = rng.choice([0, 1, 0x7f, 0x80, 0xff])
        try:
            table = FileTable.from_buffer(bytes(changed))
            outcomes.add((len(table.paths), len(table.stamps), len(table.schema_ids)))
        except FormatError:
            outcomes.add(None)
    assert None in outcomes
