"""No file and no result holds values of rows that it does not have."""

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

import secure_bloom
from secure_bloom.cli import main

PEOPLE = [f"person-{number:04}" for number in range(300)]


def _table(first: int = 0) -> pa.Table:
    """Return 100 people, whose columns have dictionaries of all people."""
    numbers = pa.array(range(first, first + 100), pa.int32())
    name = pa.DictionaryArray.from_arrays(numbers, pa.array(PEOPLE))
    return pa.table({
        "ssn": PEOPLE[first:first + 100], "name": name,
        "struct": pa.StructArray.from_arrays([name], ["name"]),
        "list": pa.ListArray.from_arrays(pa.array(range(101), pa.int32()), name)})


def _people_in(data: bytes) -> set[str]:
    return {person for person in PEOPLE if person.encode() in data}


def _in_memory(rows: pa.Table) -> bytes:
    """Return all that the rows hold, unused dictionary entries, too."""
    parts = []
    for batch in rows.to_batches():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(batch)
        parts.append(sink.getvalue().to_pybytes())
    return b"".join(parts)


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """A folder whose files have been written by pyarrow, with all people in all dictionaries."""
    folder = tmp_path_factory.mktemp("lake")
    for first in (0, 100):
        pq.write_table(_table(first), folder / f"{first}.parquet", compression="none",
                       row_group_size=40)
    assert _people_in((folder / "0.parquet").read_bytes()) == set(PEOPLE)
    return folder


@pytest.mark.parametrize("as_stream", [False, True])
def test_a_row_group_has_no_values_but_those_of_its_rows(as_stream, tmp_path):
    table = _table()
    data = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(7)) \
        if as_stream else table
    secure_bloom.write_table(data, tmp_path / "a", row_group_size=40, compression="none")
    found = pq.ParquetFile(tmp_path / "a")
    content = (tmp_path / "a").read_bytes()
    for number, people in enumerate((PEOPLE[:40], PEOPLE[40:80], PEOPLE[80:100])):
        chunks = [found.metadata.row_group(number).column(ordinal) for ordinal in range(4)]
        for chunk in chunks:
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            assert _people_in(content[start:start + chunk.total_compressed_size]) == set(people)
            assert set(chunk.encodings) == set(chunks[0].encodings)  # no fallback to PLAIN
    assert found.schema_arrow.equals(table.schema)
    assert [row for number in range(3) for row in found.read_row_group(number).to_pylist()] \
        == table.to_pylist()


@pytest.mark.parametrize("read", [
    lambda lake, filters: secure_bloom.read_table(lake, filters=filters),
    lambda lake, filters: secure_bloom.read_table(lake / "0.parquet", filters=filters),
    lambda lake, filters: secure_bloom.ParquetFile(lake / "0.parquet").read(filters=filters),
    lambda lake, filters: secure_bloom.dataset(lake).to_table(filter=filters),
    lambda lake, filters: pa.Table.from_batches(
        secure_bloom.dataset(lake).to_batches(filter=filters)),
    lambda lake, filters: secure_bloom.dataset(lake).head(1, columns=["name", "struct", "list"]),
    lambda lake, filters: secure_bloom.find(lake, "ssn", PEOPLE[0])],
    ids=["folder", "file", "ParquetFile", "dataset", "batches", "head", "find"])
def test_a_filtered_result_has_no_values_but_those_of_its_rows(read, lake):
    rows = read(lake, ds.field("ssn") == PEOPLE[0])
    assert rows.num_rows == 1 and _people_in(_in_memory(rows)) == {PEOPLE[0]}
    assert rows.schema.field("name").type == pa.dictionary(pa.int32(), pa.string())


@pytest.mark.parametrize("suffix", ["parquet", "csv", "json", "txt"])
def test_find_hands_over_the_values_of_its_rows_only(suffix, lake, tmp_path):
    from click.testing import CliRunner
    where = tmp_path / f"person.{suffix}"
    done = CliRunner().invoke(main, ["find", str(lake), "--column", "ssn", "--value", PEOPLE[41],
                                     "--output", str(where)])
    assert done.exit_code == 0, done.output
    if suffix == "parquet":
        assert _people_in(_in_memory(pq.read_table(where))) == {PEOPLE[41]}
    else:
        assert _people_in(where.read_bytes()) == {PEOPLE[41]}


def test_an_ordered_dictionary_is_handed_over_by_find_without_others(tmp_path):
    table = _table()
    ordered = pa.DictionaryArray.from_arrays(table["name"].chunk(0).indices, pa.array(PEOPLE),
                                             ordered=True)
    pq.write_table(pa.table({"ssn": table["ssn"], "name": ordered}), tmp_path / "a.parquet")
    found = secure_bloom.find(tmp_path / "a.parquet", "ssn", PEOPLE[3])
    assert _people_in(_in_memory(found)) == {PEOPLE[3]} and found["name"].type.ordered
