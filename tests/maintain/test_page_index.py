"""Offset indexes added to existing files, and page indexes in files that are changed."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given

from secure_bloom import ParquetFile, attach, audit, erase, seal, strip, verify_file, write_table
from secure_bloom.cli import main
from secure_bloom.errors import AuthenticationError, FormatError
from secure_bloom.keys.operations.rotation import rotate_master_keys
from secure_bloom.maintain import offset_indexes
from secure_bloom.parquet.placing import set_column_index, set_offset_index
from secure_bloom.reading.open_file import OpenFile
from tests.maintain.helpers import KMS, TABLE, WAYS, without
from tests.maintain.test_hostile import as_pyarrow_reads, changed, changes
from tests.modes import MODES
from tests.page_indexes import check_offset_indexes, indexed_pages
from tests.support import examples
from tests.test_page_indexes import COLUMN_KEYS, PAGES
from tests.test_page_indexes import TABLE as EVERYTHING

NESTED = pa.table({"n": range(300), "l": [list(range(i % 5)) for i in range(300)]})


def all_indexed(path, keys=KMS) -> dict:
    with OpenFile(path, keys) as file:
        check_offset_indexes(file)
        return {(chunk.row_group, chunk.column.path): indexed_pages(file, chunk)
                for chunk in file.footer.column_chunks()}


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_the_indexes_are_those_of_the_writer(tmp_path, mode):
    path, other = tmp_path / "a.parquet", tmp_path / "b.parquet"
    table = EVERYTHING.drop_columns(["tags"])
    columns = {key: [name for name in names if name != "tags"]
               for key, names in COLUMN_KEYS.items()}
    mode.write(table, path, columns, **PAGES, write_page_index=False, bloom_filters=["name"])
    mode.write(table, other, columns, **PAGES)
    result = attach(path, keys=mode.keys, page_index=True)
    assert (result.changed[0].indexed, result.changed[0].built) == (12, 0)
    found, expected = all_indexed(path, mode.keys), all_indexed(other, mode.keys)
    # pyarrow leaves statistics out of page headers if it writes page indexes
    assert {place: [page.first_row for page in pages] for place, pages in found.items()} \
        == {place: [page.first_row for page in pages] for place, pages in expected.items()}
    assert ParquetFile(path, mode.keys).read().equals(table)
    assert verify_file(path, mode.keys).ok
    assert attach(path, keys=mode.keys, page_index=True).unchanged == 1
    with OpenFile(path, mode.keys) as file:
        for chunk in file.footer.column_chunks():
            start, _ = chunk.offset_index
            plain = b"\x19" in file.read_at(1, start)  # the list of an OffsetIndex
            assert plain == (chunk.encryption is None)
            assert chunk.column_index is None


def test_filters_and_indexes_together(tmp_path):
    path = tmp_path / "a.parquet"
    write_table(TABLE, path, row_group_size=40, encryption=WAYS["ctr"], keys=KMS,
                write_page_index=False, bloom_filters=["city"])
    result = attach(path, ["ssn", "name"], KMS, page_index=True)
    assert (result.changed[0].built, result.changed[0].indexed) == (6, 12)
    assert attach(path, ["number"], KMS, page_index=True).changed[0].indexed == 0
    strip(path, KMS, columns=["name"])
    assert all(all_indexed(path).values())
    assert verify_file(path, KMS).ok and ParquetFile(path, KMS).read().equals(TABLE)


def test_what_gets_no_index_is_told(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(NESTED, path, max_rows_per_page=50, write_batch_size=10)
    result = attach(path, page_index=True)
    assert result.changed[0].indexed == 1
    assert result.changed[0].notes == ("column l.list.element: no offset index in 1 row group: "
                                       "its pages of version 1 may begin within a row",)
    assert attach(path, page_index=True).unchanged == 1
    pq.write_table(NESTED.select(["l"]), path, max_rows_per_page=50, write_batch_size=10)
    assert "may begin within a row" in attach(path, page_index=True).failed[str(path)]
    pq.write_table(NESTED, path, max_rows_per_page=50, write_batch_size=10,
                   data_page_version="2.0")
    assert attach(path, page_index=True).changed[0].indexed == 2
    assert [page.first_row for page in all_indexed(path)[0, "l.list.element"]] \
        == list(range(0, 300, 50))


def test_pages_that_others_describe_get_no_index(tmp_path):
    path = tmp_path / "a.parquet"
    write_table(TABLE, path)
    file = ParquetFile(path.read_bytes())
    first, second, third, _ = file.footer.row_groups[0]
    set_offset_index(first, 0, 0)  # a column index without an offset index
    for chunk in (second, third):
        set_offset_index(chunk, 0, 0)
        set_column_index(chunk, 0, 0)
    third.to_change().set_binary(1, b"other.parquet")
    path.write_bytes(path.read_bytes()[:file.footer.start] + file.footer.to_bytes())
    [change] = attach(path, page_index=True).changed
    assert change.indexed == 1
    assert ["column index" in change.notes[0], "other file" in change.notes[1]] == [True, True]


def test_files_without_rows_need_no_index(tmp_path):
    write_table(TABLE[:0], tmp_path / "a.parquet")
    assert attach(tmp_path, page_index=True).unchanged == 1


@pytest.mark.parametrize("way", WAYS)
def test_columns_whose_keys_are_missing_get_none(tmp_path, way):
    path = tmp_path / "a.parquet"
    write_table(TABLE, path, encryption=WAYS[way], keys=KMS, write_page_index=False)
    result = attach(path, keys=without("pii"), page_index=True)
    [change] = result.changed
    missing = [] if way == "uniform" else ["ssn"]
    assert change.indexed == 4 - len(missing)
    assert change.notes == tuple(f"column {name}: no offset index in 1 row group: its key is not "
                                 "available" for name in missing)
    assert [place[1] for place, pages in all_indexed(path).items() if not pages] == missing
    assert ParquetFile(path, KMS).read().equals(TABLE)


def test_a_dry_run_says_the_same_and_writes_nothing(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(TABLE, path, row_group_size=50)
    before = path.read_bytes()
    assert attach(path, page_index=True, dry_run=True).changed[0].indexed == 8
    assert path.read_bytes() == before


def test_pages_that_overlap_and_pages_that_are_too_many(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    pq.write_table(TABLE, path, compression="none", use_dictionary=False)
    file = ParquetFile(path.read_bytes())
    chunks = list(file.footer.row_groups[0])
    start, _ = chunks[0].pages
    for chunk in chunks[1:]:
        meta = chunk.metadata_to_change()[0]
        meta.set_int(9, 6, start)
        meta.set_int(7, 6, file.footer.start - start)
    hostile = path.read_bytes()[:file.footer.start] + file.footer.to_bytes()
    path.write_bytes(hostile)
    assert "overlap" in attach(path, page_index=True).failed[str(path)]
    assert path.read_bytes() == hostile
    pq.write_table(TABLE, path)
    monkeypatch.setattr(offset_indexes, "_MAX_BYTES", 30)
    result = attach(path, page_index=True)
    assert 0 < result.changed[0].indexed < 4
    assert "too many pages" in result.changed[0].notes[-1]


def _without_index() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(NESTED, sink, row_group_size=100, max_rows_per_page=10, write_batch_size=1,
                   compression="none", data_page_version="2.0")
    return sink.getvalue().to_pybytes()


WITHOUT_INDEX = _without_index()


@pytest.mark.slow
@given(changes=changes)
@examples(40)
def test_pages_and_footers_that_say_something_else(tmp_path_factory, changes):
    """A file is left alone, or gets an index of the pages that its headers describe."""
    path = tmp_path_factory.mktemp("hostile") / "a.parquet"
    before = changed(WITHOUT_INDEX, changes, only_footer=False)
    path.write_bytes(before)
    result = attach(path, page_index=True)
    assert len(result.changed) + result.unchanged + len(result.failed) == 1
    if not result.changed:
        assert path.read_bytes() == before
        return
    assert as_pyarrow_reads(path.read_bytes()) == as_pyarrow_reads(before)
    with OpenFile(path) as file:
        check_offset_indexes(file)


def test_the_command(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(TABLE, path)
    result = CliRunner().invoke(main, ["attach", str(path), "--page-index"])
    assert result.exit_code == 0 and "indexed" in result.output
    assert all(all_indexed(path, None).values())
    assert CliRunner().invoke(main, ["attach", str(path)]).exit_code == 2


# --- page indexes of files that are changed ------------------------------------------------------

@pytest.mark.parametrize("way", WAYS)
def test_page_indexes_stay_true_whatever_is_done_to_the_file(tmp_path, way):
    path = tmp_path / "a.parquet"
    table = TABLE.append_column("l", pa.array([[i] * (i % 4) for i in range(100)]))
    write_table(table, path, row_group_size=40, encryption=WAYS[way], keys=KMS,
                max_rows_per_page=7, write_batch_size=1, bloom_filters=["city"])
    kms, before = KMS, all_indexed(path)
    assert len(before) == 15 and all(before.values())

    attach(path, ["ssn", "number"], kms, page_index=True)
    seal(path, kms)
    strip(path, kms, columns=["city"])
    rotate_master_keys(path, kms, old="footer", new="pii")
    assert all_indexed(path) == before  # where they were
    erase(path, "ssn", ["000000003", "000000090"], kms, max_share=1)
    after = all_indexed(path)
    assert after.keys() == before.keys() and all(after.values())
    assert not audit(path, keys=kms).findings
    assert ParquetFile(path, kms).read()["number"].to_pylist() \
        == [i for i in range(100) if i not in (3, 90)]


def test_an_index_of_another_place_is_not_taken_over(tmp_path):
    """The index of an encrypted column is bound to it; `erase` does not copy another one twice."""
    path = tmp_path / "a.parquet"
    write_table(TABLE, path, row_group_size=40, encryption=WAYS["encrypted footer"], keys=KMS)
    file = ParquetFile(path.read_bytes(), KMS)
    first, second = (file.footer.row_groups[number][0] for number in (0, 1))
    set_offset_index(first, *second.offset_index)
    path.write_bytes(path.read_bytes()[:file.footer.start] + file.footer.to_bytes())
    with OpenFile(path, KMS) as changed, pytest.raises(AuthenticationError):
        indexed_pages(changed, changed.footer.row_groups[0][0])
    with pytest.raises(FormatError, match="overlap"):
        erase(path, "ssn", ["000000090"], KMS, max_share=1)
