"""What the tests of the Lance index share: data sets, and indexes by pylance."""

from pathlib import Path

import pyarrow as pa
import pytest

lance = pytest.importorskip("lance", reason="needs pylance, the extra 'lance'")
from lance.file import LanceFileReader, LanceFileWriter  # noqa: E402
from lance.indices import IndexConfig  # noqa: E402


def write_dataset(path, columns, *, rows_per_fragment=1_000_000, **options):
    """A data set of some columns; gives it opened."""
    return lance.write_dataset(pa.table(columns), str(path), max_rows_per_file=rows_per_fragment,
                               **options)


def index_by_pylance(dataset, column, **parameters) -> Path:
    """Let pylance index a column; gives the path of the index file."""
    folder = Path(dataset.uri) / "_indices"
    before = set(folder.glob("*")) if folder.exists() else set()
    dataset.create_scalar_index(column, IndexConfig("bloomfilter", parameters))
    [new] = set(folder.glob("*")) - before
    return new / "bloomfilter.lance"


def content(path) -> tuple[pa.Table, dict, list[bytes]]:
    """Rows, metadata, and global buffers behind the schema's of a Lance file, read by pylance."""
    reader = LanceFileReader(str(path))
    metadata = reader.metadata()
    buffers = [reader.read_global_buffer(i) for i in range(1, len(metadata.global_buffers))]
    rows = reader.read_all(batch_size=64).to_table().replace_schema_metadata(None)
    return rows, metadata.schema.metadata, buffers


def write_lance_file(path, rows: pa.Table, metadata: dict, buffers=()) -> str:
    """Any Lance file."""
    writer = LanceFileWriter(str(path), rows.schema.remove_metadata())
    for batch in rows.to_batches():
        writer.write_batch(batch)
    for buffer in buffers:
        writer.add_global_buffer(buffer)
    for key, value in metadata.items():
        writer.add_schema_metadata(key, value)
    writer.close()
    return str(path)


def assert_same_index(ours, theirs) -> None:
    """Zones, filters, metadata and null rows are the same, byte for byte."""
    rows, metadata, buffers = content(ours)
    expected_rows, expected_metadata, expected_buffers = content(theirs)
    assert rows.schema == expected_rows.schema
    assert rows.equals(expected_rows)
    if b"null_bitmap" not in expected_metadata:  # an older pylance
        expected_metadata = {**expected_metadata, b"null_bitmap": b"1"}
        expected_buffers = buffers
    assert metadata == expected_metadata
    assert buffers == expected_buffers
