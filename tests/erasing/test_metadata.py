"""Metadata may have erased values, too: of files, of their structures, and of whole folders."""

import hmac
import json
import os

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secure_bloom import EncryptionConfiguration, ParquetFile, audit, erase, find, read_table
from secure_bloom.cli.report import render_erasure
from secure_bloom.erasing.page import render_page
from secure_bloom.errors import UnsupportedError
from secure_bloom.parquet import thrift
from secure_bloom.parquet.tail import MAGIC
from secure_bloom.parquet.thrift import Struct
from secure_bloom.reading.open_file import OpenFile
from tests.erasing.helpers import ENCRYPTION, KMS, numbers_in, people, ssn, write_people


def _with_summaries(folder, *parts: str):
    """Write files of ten people into a folder, and summaries of them with pyarrow."""
    collected, schema = [], people(0).schema
    for start, part in zip(range(0, 100, 10), parts, strict=False):
        path = folder / part
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(people(*range(start, start + 10)), path, metadata_collector=collected)
        collected[-1].set_file_path(part)
    pq.write_metadata(schema, folder / "_common_metadata")
    pq.write_metadata(schema, folder / "_metadata", metadata_collector=collected)
    return folder


@pytest.mark.parametrize("erased", ["", "day=2", "day=2/b.parquet"])
def test_summaries_of_a_table_are_removed(tmp_path, erased):
    table = _with_summaries(tmp_path / "table", "day=1/a.parquet", "day=2/b.parquet")
    assert ssn(19).encode() in (table / "_metadata").read_bytes()  # a maximum
    (table / "._metadata.crc").write_bytes(b"of Hadoop")
    dry = erase(table / erased, "ssn", ssn(19), max_share=1, dry_run=True)
    assert dry.summaries == [str(table / "_metadata")] and (table / "_metadata").exists()
    assert "summary files to remove" in render_erasure(dry)
    result = erase(table / erased, "ssn", ssn(19), max_share=1)
    assert result.summaries == dry.summaries and result.ok
    assert not any(ssn(19).encode() in path.read_bytes() for path in table.rglob("*")
                   if path.is_file())
    assert {path.name for path in table.iterdir() if path.is_file()} - {"_SUCCESS"} \
        == {"_common_metadata"}
    assert "summary files removed" in render_erasure(result)
    assert "_metadata" in render_page(result) and "_metadata" in json.dumps(result.to_dict())
    assert erase(table / erased, "ssn", ssn(18), max_share=1).summaries == []


def test_what_is_left_of_summaries_is_reported(tmp_path):
    """A file that only has the name of one stays, and other names of one keep its values."""
    table = _with_summaries(tmp_path / "table", "a.parquet")
    (tmp_path / "table" / "_common_metadata").write_text("notes of somebody")
    os.link(table / "_metadata", tmp_path / "copy")
    result = erase(table, "ssn", ssn(9), max_share=1)
    assert result.summaries == [str(table / "_metadata")]
    assert (table / "_common_metadata").read_text() == "notes of somebody"
    assert any("_common_metadata is named like" in one for one in result.out_of_reach)
    assert any("_metadata has other names" in one for one in result.out_of_reach)


def test_summaries_beside_the_file_that_a_link_leads_to(tmp_path):
    table = _with_summaries(tmp_path / "table", "a.parquet")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.parquet").symlink_to(table / "a.parquet")
    erase(tmp_path / "other" / "a.parquet", "ssn", ssn(9), max_share=1)
    assert not (table / "_metadata").exists()


def test_a_summary_is_removed_even_if_its_files_have_lost_the_rows_before(tmp_path):
    table = _with_summaries(tmp_path / "table", "a.parquet")
    pq.write_table(people(*range(9)), table / "a.parquet")
    assert erase(table, "ssn", ssn(9)).summaries == [str(table / "_metadata")]
    assert not (table / "_metadata").exists()


def test_a_summary_says_what_it_is(tmp_path):
    table = _with_summaries(tmp_path / "table", "a.parquet")
    for read in (ParquetFile, read_table, lambda path: erase(path, "ssn", ssn(1), max_share=1)):
        with pytest.raises(UnsupportedError, match="a summary of the footers of other files"):
            read(table / "_metadata")
    assert read_table(table / "_common_metadata").num_rows == 0


@pytest.mark.parametrize(("encryption", "kind"), [(ENCRYPTION, "unencrypted"),
                                                  ("uniform", "statistics")])
def test_an_audit_finds_what_summaries_reveal(tmp_path, encryption, kind):
    if encryption == "uniform":
        encryption = EncryptionConfiguration("footer", uniform_encryption=True)
    path = write_people(tmp_path / "a.parquet", range(4), encryption=encryption)
    pq.write_table(people(*range(4)), tmp_path / "plain")
    metadata = pq.read_metadata(tmp_path / "plain") if kind == "unencrypted" else \
        OpenFile(path, KMS).open_in_pyarrow().reader.metadata
    (tmp_path / "plain").unlink()
    metadata.set_file_path(path.name)
    assert audit(tmp_path, KMS).ok
    pq.write_metadata(people(0).schema, tmp_path / "_metadata", metadata_collector=[metadata])
    findings = audit(tmp_path, KMS).findings
    assert {one.kind for one in findings} == {kind}
    assert {one.file for one in findings} == {str(tmp_path / "_metadata")}
    assert "ssn" in {one.column for one in findings}


# --- key-value metadata --------------------------------------------------------------------------

def test_metadata_that_may_have_values_is_out_of_reach(tmp_path):
    table = people(*range(10))
    frame = table.to_pandas()
    frame.attrs["first"] = ssn(3)
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "attrs.parquet")
    pq.write_table(table.replace_schema_metadata({ssn(3): "x", "note": ssn(3)}),
                   tmp_path / "note.parquet")
    ours = table.schema.field("name").with_metadata({"label": ssn(3), "PARQUET:field_id": "7"})
    pq.write_table(table.cast(table.schema.set(1, ours)), tmp_path / "field.parquet")
    result = erase(tmp_path, "ssn", ssn(3), max_share=1)
    [said] = [one for one in result.out_of_reach if "metadata" in one]
    assert said.endswith("in up to 1 file: label of column name, note, pandas")
    assert ssn(3) not in render_erasure(result) + json.dumps(result.to_dict())


def test_metadata_of_schemas_is_not_reported(tmp_path):
    table = people(*range(10))
    pq.write_table(pa.Table.from_pandas(table.to_pandas()), tmp_path / "pandas.parquet")
    spark = {"type": "struct", "fields": [
        {"name": "ssn", "type": "string", "nullable": True,
         "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "char(9)"}}]}
    key = "org.apache.spark.sql.parquet.row.metadata"
    pq.write_table(table.replace_schema_metadata({key: json.dumps(spark)}),
                   tmp_path / "spark.parquet")
    write_people(tmp_path / "ours.parquet", range(10), encryption=None)
    assert len(erase(tmp_path, "ssn", ssn(3), max_share=1).out_of_reach) == 1
    spark["fields"][0]["metadata"]["ml_attr"] = {"vals": [ssn(3)]}
    pq.write_table(table.replace_schema_metadata({key: json.dumps(spark)}),
                   tmp_path / "spark.parquet")
    assert len(erase(tmp_path, "ssn", ssn(3), max_share=1).out_of_reach) == 2


def test_categories_of_polars_are_out_of_reach(tmp_path):
    texts = [ssn(number) for number in range(20)]
    frame = pl.DataFrame({"id": range(20), "ssn": pl.Series(texts, dtype=pl.Enum(texts))})
    frame.write_parquet(tmp_path / "a.parquet")
    result = erase(tmp_path, "ssn", ssn(3), max_share=1)
    assert any("of column ssn" in one for one in result.out_of_reach)


def test_rows_that_are_handed_over_have_no_metadata_with_values(tmp_path):
    texts = [ssn(number) for number in range(20)]
    frame = pl.DataFrame({"id": range(20), "ssn": pl.Series(texts, dtype=pl.Enum(texts))})
    frame.with_columns(pl.struct("ssn").alias("nested")).write_parquet(tmp_path / "a.parquet")
    read = ParquetFile(tmp_path / "a.parquet").schema
    assert ssn(7).encode() in read.serialize().to_pybytes()
    found = find(tmp_path, "ssn", ssn(3))
    assert found["id"].to_pylist() == [3] and found["nested"].to_pylist() == [{"ssn": ssn(3)}]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, found.schema) as writer:
        writer.write_table(found)
    assert ssn(3).encode() in sink.getvalue().to_pybytes()
    assert not any(ssn(number).encode() in sink.getvalue().to_pybytes()
                   for number in range(20) if number != 3)


# --- extensions ----------------------------------------------------------------------------------

def _extended(path) -> None:
    """Add an extension with a value to every structure of a plaintext file's footer.

    Also add key-value metadata to the column chunks of the first row group.
    """
    def extend(struct: Struct) -> Struct:
        struct.set_binary(32767, ssn(3).encode() * 3)
        return struct

    content = OpenFile(path).stored_footer
    meta, _ = thrift.decode(content, {2: [{}], 4: [{1: [{3: {12: {}}}]}]})
    for group in meta.get(4):
        for chunk in group.get(1):
            extend(extend(chunk).get(3))
            extend(chunk.get(3).get(12))
        extend(group)
    for chunk in meta.get(4)[0].get(1):
        entry = Struct()
        entry.set_binary(1, b"note")
        entry.set_binary(2, ssn(3).encode() * 3)
        chunk.get(3).set(8, thrift.LIST, [entry])
    for element in meta.get(2):
        extend(element)
    footer = thrift.encode(extend(meta))
    data = path.read_bytes()[:-8 - len(content)]
    path.write_bytes(data + footer + len(footer).to_bytes(4, "little") + MAGIC)


def test_extensions_of_structures_are_removed(tmp_path):
    path = write_people(tmp_path / "a.parquet", range(12), encryption=None, write_page_index=True)
    expected = tmp_path / "b.parquet"
    expected.write_bytes(path.read_bytes())
    _extended(path)
    assert path.read_bytes().count(ssn(3).encode() * 3) == 1 + 4 + 3 + 3 * 9 + 3
    for one in (path, expected):
        erase(one, "ssn", ssn(3), max_share=1)
    assert ssn(3).encode() not in path.read_bytes()
    assert path.read_bytes() == expected.read_bytes()
    assert numbers_in(path, None) == [0, 1, 2, *range(4, 12)]


# --- statistics ----------------------------------------------------------------------------------

_ABSENT, _IEEE_754, _NO_BOUNDS = "no column orders", "IEEE 754", "null counts only"


def _statistics(path) -> dict[str, list]:
    """Return the fields of each column's statistics."""
    return {chunk.column.path: [field[0] for field in thrift.decode(raw, {})[0].fields]
            if (raw := chunk.metadata().get(12)) is not None else []
            for chunk in ParquetFile(path).footer.row_groups[0]}


@pytest.mark.parametrize("said", [_ABSENT, _IEEE_754, _NO_BOUNDS])
def test_no_statistics_are_added(tmp_path, said):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"number": [1, 2, 3], "float": [0.5, float("nan"), 1.5],
                             "text": ["the lowest", "erased", "very high"]}), path,
                   use_dictionary=False, compression="none", write_page_index=True)
    content = OpenFile(path).stored_footer
    meta, _ = thrift.decode(content, {7: [{}], 4: [{1: [{3: {12: {}}}]}]})
    ieee = Struct()
    ieee.set(2, thrift.STRUCT, Struct())
    if said == _ABSENT:
        meta.remove(7)
    elif said == _IEEE_754:
        meta.get(7)[1] = ieee
    else:
        for chunk in meta.get(4)[0].get(1):
            chunk.get(3).get(12).fields = [field for field in chunk.get(3).get(12).fields
                                           if field[0] == 3]
    footer = thrift.encode(meta)
    path.write_bytes(path.read_bytes()[:-8 - len(content)] + footer
                     + len(footer).to_bytes(4, "little") + MAGIC)
    before = _statistics(path)
    assert erase(path, "text", "erased", max_share=1).ok
    after = _statistics(path)
    has_index = [chunk.column_index is not None for chunk in ParquetFile(path).footer.row_groups[0]]
    if said == _ABSENT:
        assert after == {"number": [], "float": [], "text": []} and not any(has_index)
        assert path.read_bytes().count(b"the lowest") == 1  # neither in headers of pages
    elif said == _IEEE_754:
        assert after == before | {"float": []} and has_index == [True, False, True]
    else:
        assert after == before == {column: [3] for column in before} and all(has_index)
    assert all(chunk.offset_index for chunk in ParquetFile(path).footer.row_groups[0])
    assert read_table(path)["number"].to_pylist() == [1, 3]


# --- the report ----------------------------------------------------------------------------------

@pytest.mark.slow
def test_nothing_in_a_report_can_be_compared_with_guesses(tmp_path):
    path = write_people(tmp_path / "a.parquet", range(40), encryption=None)
    before, key = path.read_bytes(), b"k" * 16
    assert erase(path, "ssn", ssn(3), max_share=1).files[0].hmac_before is None
    path.write_bytes(before)
    found = erase(path, "ssn", ssn(3), max_share=1, hash_key=key).files[0].hmac_before
    assert found == hmac.digest(key, before, "sha256").hex()
    with pytest.raises(ValueError, match="15 bytes, but needs at least 16"):
        erase(path, "ssn", ssn(4), max_share=1, hash_key=key[1:])
    assert ssn(4).encode() in path.read_bytes()
