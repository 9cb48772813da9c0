"""Rows that match a filter are read by pages: which bytes, and what an index that lies can do."""

import io
import random
import time
import uuid
from collections import Counter
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pytest

import secure_bloom
from benchmarks.slow_store import SlowStore
from secure_bloom.arrow import few_row_groups
from secure_bloom.arrow.page_columns import PageColumn
from secure_bloom.errors import AuthenticationError, FormatError
from secure_bloom.keys import InMemoryKms
from secure_bloom.parquet import thrift
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.page_index import read_data_pages
from secure_bloom.parquet.single_pages import ChunkPages
from secure_bloom.reading import matching_rows, page_rows
from tests.counting import CountingHandler
from tests.modes import MASTER_KEYS
from tests.reading.ways import by_pages, by_row_groups, counted
from tests.support import run_python
from tests.tiers import number_of_examples

KMS = InMemoryKms(MASTER_KEYS)
ENCRYPTION = secure_bloom.EncryptionConfiguration("kf", {"kc1": ["ssn"], "kc2": ["note"]})
PARQUET_TESTING = Path(__file__).parents[3] / "shared" / "parquet-testing"
ROWS = 20_000


def table():
    return pa.table({"ssn": [ssn(row) for row in range(ROWS)],
                     "note": [f"note {row * 7919 % 10**6:>60}" for row in range(ROWS)],
                     "day": np.arange(ROWS) // 100,
                     "amount": np.random.default_rng(1).normal(size=ROWS)})


def ssn(row: int) -> str:
    return f"{row * 618_033_989 % 10**9:09}"


def write(path, data=None, **options):
    options = {"encryption": ENCRYPTION, "keys": KMS, "data_page_size": 4000,
               "write_batch_size": 200, "use_dictionary": False} | options
    secure_bloom.write_table(table() if data is None else data, path, **options)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("pages") / "a.parquet"
    write(path)
    return path


def bytes_of(path, **arguments) -> tuple[pa.Table, int]:
    handler = CountingHandler()
    found = secure_bloom.read_table(str(path), KMS, filesystem=pa_fs.PyFileSystem(handler),
                                    **arguments)
    return found, handler.bytes_read[str(path)]


def test_a_lookup_reads_the_pages_with_its_row(file):
    filters = [("ssn", "=", ssn(12_345))]
    with by_row_groups():
        expected, whole = bytes_of(file, filters=filters)
    with by_pages():
        found, some = bytes_of(file, filters=filters)
        _, of_two = bytes_of(file, columns=["day"], filters=filters)
        nothing, without = bytes_of(file, filters=[("ssn", "=", ssn(12_345) + "x")])
    assert found.equals(expected) and found.num_rows == 1
    stored = file_sizes(file)
    # the filter's column, a page of each other column, and the page indexes
    assert some < whole - 0.9 * (stored["note"] + stored["day"] + stored["amount"])
    assert of_two < some and without < some and nothing.num_rows == 0


def file_sizes(path) -> dict[str, int]:
    with secure_bloom.ParquetFile(path, KMS) as opened:
        return {chunk.column.path: chunk.pages[1] for chunk in opened._file.footer.row_groups[0]}


def test_pages_of_a_sorted_column_are_skipped_by_their_bounds(file):
    with by_pages():
        found, some = bytes_of(file, filters=[("day", ">=", 100), ("day", "<", 102)])
    assert found["day"].to_pylist() == [100] * 100 + [101] * 100
    assert some < 0.15 * file.stat().st_size


@pytest.mark.parametrize("options", [
    {}, {"data_page_version": "2.0", "encryption": None, "keys": None}, {"write_page_index": False},
    {"use_dictionary": True}, {"compression": "zstd"}, {"row_group_size": 7000}], ids=str)
def test_nested_columns_and_types_of_arrow(tmp_path, options):
    rows = range(3000)
    data = pa.table({
        "id": rows, "ssn": map(ssn, rows), "note": pa.array(map(str, rows), pa.string_view()),
        "person": pa.array([None if row % 7 == 0 else {
            "name": None if row % 3 == 0 else f"n{row}", "tags": [str(row)] * (row % 3),
            "place": None if row % 5 == 0 else {"x": row, "y": row / 2}} for row in rows]),
        "list": pa.array([None if row % 4 == 0 else [row, None] * (row % 3) for row in rows]),
        "map": pa.array([[(str(row), row)] for row in rows], pa.map_(pa.string(), pa.int64())),
        "kind": pa.array([str(row % 5) for row in rows]).dictionary_encode(),
        "gap": pa.array([None if 1000 <= row < 2000 else row for row in rows]),  # whole pages
        "uuid": pa.ExtensionArray.from_storage(
            pa.uuid(), pa.array([row.to_bytes(16, "big") for row in rows], pa.binary(16)))})
    pages = {"data_page_size": 1000, "max_rows_per_page": 200}
    write(tmp_path / "a.parquet", data, **pages | options)
    opened = secure_bloom.ParquetFile(tmp_path / "a.parquet", KMS)
    for filters in ([("id", "in", [5, 1234, 2999])], [("person.place.x", "=", 1234)],
                    [("note", "=", "2222")],
                    [("id", "<", 3)], [("kind", "=", "4"), ("id", ">", 2990)],
                    [("uuid", "=", uuid.UUID(int=77))],
                    [("gap", "is null", None), ("id", "<", 1009)],
                    [[("ssn", "=", ssn(2000))], [("person.name", "=", "n1")]]):
        with by_row_groups():
            expected = opened.read(filters=filters)
        with by_pages(), counted() as row_groups:
            found = opened.read(filters=filters)
            parts = pa.concat_tables(opened.iter_tables(filters=filters))
        assert row_groups, filters
        assert found.num_rows and found.schema.equals(expected.schema, check_metadata=True)
        assert found.to_pylist() == expected.to_pylist() == parts.to_pylist()


@pytest.mark.parametrize("has_index", [True, False])
def test_rows_of_several_batches(tmp_path, has_index):
    """Each column has its own way to the rows; they must meet in every batch."""
    write(tmp_path / "a.parquet", table().slice(0, 6000), write_page_index=has_index)
    opened = secure_bloom.ParquetFile(tmp_path / "a.parquet", KMS)
    wanted = [ssn(row) for row in range(5, 6000, 233)]
    with by_row_groups():
        expected = opened.read(filters=[("ssn", "in", wanted)])
    with by_pages(), counted() as row_groups, \
            mock.patch.multiple(matching_rows, _LEAST_ROWS=1, _BATCH_ROWS=4 if has_index else 900):
        found = opened.read(filters=[("ssn", "in", wanted)])
    assert row_groups and len(found["day"].chunks) > 3
    assert found.equals(expected) and found.num_rows == len(wanted)


def test_folders_find_and_engines(tmp_path):
    for part in range(3):
        folder = tmp_path / f"part={part}"
        folder.mkdir()
        write(folder / "a.parquet", table().slice(part * 5000, 5000))
    wanted = [ssn(5100), ssn(12_000)]
    with by_pages(), counted() as row_groups:
        found = secure_bloom.read_table(tmp_path, KMS, filters=[("ssn", "in", wanted)])
        assert found["part"].to_pylist() == [1, 2] and len(row_groups) == 3
        where = [("part", "=", 2), ("ssn", "in", wanted)]
        assert secure_bloom.read_table(tmp_path, KMS, filters=where)["ssn"].to_pylist() \
            == wanted[1:]
        rows = secure_bloom.find(tmp_path, "ssn", wanted, KMS)
        assert rows["day"].to_pylist() == [51, 120] and set(rows["row_group"].to_pylist()) == {0}
        data = secure_bloom.dataset(tmp_path, KMS)
        assert data.count_rows(filter=pc.field("ssn").isin(wanted)) == 2
        lazy = secure_bloom.scan(tmp_path, KMS).filter(pl.col("ssn").is_in(wanted))
        assert lazy.select("day").collect()["day"].to_list() == [51, 120]
        assert data.to_table(filter=pc.utf8_length(pc.field("note")) > 65).num_rows == 0
    assert len(row_groups) >= 10


def test_a_filter_that_many_rows_match_leaves_the_rest_to_pyarrow(tmp_path):
    write(tmp_path / "a.parquet", row_group_size=2000)
    opened = secure_bloom.ParquetFile(tmp_path / "a.parquet", KMS)
    with by_pages(), counted() as row_groups:
        assert opened.read(filters=[("amount", "=", 0.5)]).num_rows == 0
    assert len(row_groups) == 10  # no row matches, as the filter's column says alone
    with by_row_groups():
        expected = opened.read(filters=[("amount", ">", 0)])
    for limits, number in (({}, 0), ({"_MANY_ROWS": 2}, 1)):
        with mock.patch.multiple(matching_rows, _SMALL=0, _SMALL_COLUMN=0, _MOST_INDEX=1,
                                 **limits), counted() as row_groups:
            assert opened.read(filters=[("amount", ">", 0)]).equals(expected)
        assert len(row_groups) == number  # of ten


@pytest.mark.slow
def test_pages_are_not_read_where_whole_columns_are_faster(tmp_path):
    rows = range(60_000)
    data = pa.table({"k": rows} | {f"c{number}": map(str, rows) for number in range(4)}
                    | {f"small{number}": [True] * len(rows) for number in range(20)})
    write(tmp_path / "a.parquet", data, encryption=None, keys=None, compression="none")
    write(tmp_path / "tiny.parquet", data, encryption=None, keys=None, data_page_size=100,
          write_batch_size=10)
    one = [("k", "=", 12_345)]
    with mock.patch.object(matching_rows, "_SMALL", 0), counted() as row_groups, \
            mock.patch.object(PageColumn, "decode", autospec=True,
                              side_effect=PageColumn.decode) as decode, \
            mock.patch.object(page_rows, "read_bounds",
                              side_effect=page_rows.read_bounds) as bounds:
        assert secure_bloom.read_table(tmp_path / "a.parquet", filters=one).num_rows == 1
        assert decode.call_count == 5  # not the columns that have a few bytes
        found = secure_bloom.read_table(tmp_path / "tiny.parquet", filters=one)
        assert found.num_rows == 1 and len(row_groups) == 1  # nor tiny pages with as large an index
        bounds.reset_mock()
        found = secure_bloom.read_table(tmp_path / "a.parquet", filters=[
            [(f"c{number % 4}", "=", str(number))] for number in range(40)])
        assert found.num_rows == 40 and not bounds.called  # nor for many alternatives


def test_of_many_small_columns_pages_are_only_searched(tmp_path):
    data = pa.table({"k": map(ssn, range(ROWS))} | {f"c{number}": np.arange(ROWS) * 7919
                                                    for number in range(50)})
    write(tmp_path / "a.parquet", data, encryption=None, keys=None)
    opened = secure_bloom.ParquetFile(tmp_path / "a.parquet")
    with mock.patch.object(PageColumn, "of", side_effect=PageColumn.of) as of, \
            counted() as row_groups:
        assert opened.read(filters=[("k", "=", ssn(77) + "x")]).num_rows == 0
        assert len(row_groups) == of.call_count == 1  # the others are not needed
        assert opened.read(filters=[("k", "=", ssn(77))]).equals(data.slice(77, 1))
        assert len(row_groups) == of.call_count == 1  # pyarrow has read them


@pytest.mark.parametrize("pages", [1, 2])
def test_pages_with_very_many_rows_are_not_decoded_again_and_again(tmp_path, pages):
    """A page of some bytes may have 2^31 rows, and would be decoded whole for each batch."""
    rows = (1 << 20) + 1
    pq.write_table(pa.table({"n": np.zeros(rows, np.int8)}), tmp_path / "a.parquet",
                   write_page_index=True, write_batch_size=rows // pages + 1,
                   max_rows_per_page=rows // pages + 1, row_group_size=rows)
    with secure_bloom.ParquetFile(tmp_path / "a.parquet") as opened:
        columns = page_rows.RowGroupColumns(opened._file, 0, ["n"], 0, ["n"])
        assert columns.has_pages("n") == (pages == 2)


@pytest.mark.parametrize("second", [["S", "M", "L"], ["XL", "L"]])
def test_dictionaries_are_read_by_pages_if_one_dictionary_page_has_all_values(tmp_path, second):
    is_one = second == ["S", "M", "L"]
    data = pa.Table.from_batches([sized(["S", "M", "L"]), sized(second, 2000)])
    pq.write_table(data, tmp_path / "a.parquet", write_page_index=True, max_rows_per_page=500)
    with secure_bloom.ParquetFile(tmp_path / "a.parquet") as opened:
        columns = page_rows.RowGroupColumns(opened._file, 0, ["size"], 0, ())
        assert columns.has_pages("size") == is_one
        for filters in ([("id", "in", [70, 1500, 2101])], [("size", "=", "L"), ("id", ">", 1900)],
                        [("size", "is null", None), ("id", "<", 2500)]):
            with by_row_groups():
                expected = opened.read(filters=filters)
            with by_pages(), counted() as row_groups:
                found = opened.read(filters=filters)
            assert bool(row_groups) >= is_one and found.schema.equals(expected.schema)
            assert found.num_rows and found.to_pylist() == expected.to_pylist()
            if is_one:  # the scale is whole, although rows have parts of it
                assert {tuple(chunk.dictionary.to_pylist()) for chunk in found["size"].chunks} \
                    == {("S", "M", "L")}


def sized(sizes: list[str], start: int = 0) -> pa.RecordBatch:
    numbers = pa.array([None if row % 9 == 0 else row % len(sizes) for row in range(2000)],
                       pa.int8())
    return pa.record_batch({"id": range(start, start + 2000), "size": pa.DictionaryArray
                            .from_arrays(numbers, sizes, ordered=True)})


def test_a_dictionary_is_searched_once_and_pages_only_for_few_values(tmp_path):
    data = pa.table({"k": range(ROWS), "kind": [f"{row % 9}" for row in range(ROWS)]})
    write(tmp_path / "a.parquet", data, encryption=None, keys=None, use_dictionary=["kind"])
    calls = []
    for filters in ([("kind", "=", "55")], [("k", "in", [5, -7, 700])],
                    [("k", "in", list(range(0, ROWS, 3000)))]):
        with by_pages(), mock.patch.object(ChunkPages, "values", autospec=True,
                                           side_effect=ChunkPages.values) as values:
            secure_bloom.read_table(tmp_path / "a.parquet", filters=filters)
        calls.append(values.call_count)
    assert calls[0] <= 1 < calls[1] and calls[2] == 0, calls


def test_row_groups_of_an_object_store_take_turns_at_one_reader(tmp_path):
    """Arrow crashes if two threads read ahead with the same reader."""
    write(tmp_path / "a.parquet", row_group_size=1000, write_page_index=False)
    running, most = set(), []

    class Reader(pq.ParquetFile):
        def iter_batches(self, *arguments):
            running.add(arguments[1][0])
            most.append(len(running))
            time.sleep(0.01)
            yield from super().iter_batches(*arguments)
            running.discard(arguments[1][0])

    data = secure_bloom.dataset(tmp_path / "a.parquet", KMS,
                                filesystem=pa_fs.PyFileSystem(SlowStore(0)))
    with by_pages(), counted() as row_groups, mock.patch.object(
            few_row_groups.pq, "ParquetFile", Reader):
        assert data.to_table(filter=pc.field("ssn") == ssn(12_345)).num_rows == 1
    assert len(row_groups) == 20 and set(most) == {1}


# --- indexes that lie ----------------------------------------------------------------------------

def test_an_index_that_lies_in_a_plaintext_file_returns_no_other_rows(tmp_path):
    """The index of every column in turn; what the pages contradict is not used."""
    rows = range(5000)
    data = pa.table({"k": map(ssn, rows), "v": rows, "w": [[row] * (row % 3) for row in rows]})
    sink = io.BytesIO()
    pq.write_table(data, sink, write_page_index=True, data_page_size=1000, write_batch_size=100,
                   use_dictionary=False)
    good = sink.getvalue()
    chunks = secure_bloom.ParquetFile(good)._file.footer.row_groups[0]
    places = [place for chunk in chunks for place in (chunk.offset_index,)]
    draw, outcomes = random.Random(3), Counter()
    tries = number_of_examples(300)
    for _ in range(tries):
        bad = bytearray(good)
        for _ in range(draw.randint(1, 3)):
            start, length = draw.choice(places)
            bad[start + draw.randrange(length)] = draw.randrange(256)
        row = draw.choice(rows)
        with by_pages(), counted() as row_groups:
            found = secure_bloom.ParquetFile(bytes(bad)).read(filters=[("k", "=", ssn(row))])
        assert found.equals(data.slice(row, 1))
        outcomes[len(row_groups)] += 1
    assert min(outcomes[0], outcomes[1]) > tries / 6, outcomes  # not used, and used where it fits


def test_indexes_at_impossible_places_are_not_used(tmp_path):
    """Nothing is allocated for lengths that only the footer claims, nor read before the file."""
    data = pa.table({"k": map(ssn, range(5000)), "v": range(5000)})
    path = tmp_path / "a.parquet"
    pq.write_table(data, path, write_page_index=True, data_page_size=1000, write_batch_size=100)
    good = path.read_bytes()
    for field, value in ((4, -7), (5, 2**62), (5, 2**63 - 1), (6, -7), (7, 2**62)):
        opened = secure_bloom.ParquetFile(good)._file
        footer = Footer(opened.stored_footer, opened.magic)
        changed = footer.row_groups[0][0].to_change()
        changed.set_int(field, thrift.I64, value)
        footer.row_groups[0].replace(0, thrift.encode(changed))
        path.write_bytes(good[:opened.footer.start] + footer.to_bytes())
        with by_pages():
            found = secure_bloom.ParquetFile(path).read(filters=[("k", "=", ssn(77))])
        assert found.equals(data.slice(77, 1)), (field, value)


def test_damaged_values_that_are_read_without_index_are_a_typed_error():
    data = pa.table({"k": map(ssn, range(5000)), "v": range(5000)})
    for name in data.column_names:  # the one that is compared, and another
        sink = io.BytesIO()
        pq.write_table(data, sink, use_dictionary=False, compression="none")
        bad = bytearray(sink.getvalue())
        start, length = secure_bloom.ParquetFile(bytes(bad))._file.footer.row_groups[0][0].pages
        bad[start + length // 2:start + length] = b"\xff" * (length - length // 2)
        with by_pages(), pytest.raises(FormatError, match="cannot read the pages"):
            secure_bloom.ParquetFile(bytes(bad)).read(filters=[
                (name, "=", ssn(7) if name == "k" else 7)])


@pytest.mark.parametrize("ordered", [False, True])
def test_codes_that_are_not_in_the_dictionary_are_a_typed_error(ordered):
    """Arrow hands out such arrays; whoever uses one reads memory of others, or crashes."""
    codes = pa.array(np.arange(5000) % 60, pa.int32())
    data = pa.table({"k": map(ssn, range(5000)), "d": pa.DictionaryArray.from_arrays(
        codes, [f"v{code:02d}" for code in range(60)], ordered=ordered)})
    sink = io.BytesIO()
    pq.write_table(data, sink, use_dictionary=["d"], compression="none", write_page_index=True)
    bad = bytearray(sink.getvalue())
    place = secure_bloom.ParquetFile(bytes(bad))._file.footer.row_groups[0][1].pages[0]
    count = bad.index(b"\x4c\x15\x78", place) + 2  # 60 in the header of the dictionary page
    bad[count] = 2  # which is 1
    opened = secure_bloom.ParquetFile(bytes(bad))
    for ways in (by_pages, by_row_groups):
        for filters in ([("k", "=", ssn(77))], [("d", "=", "v00")], None):
            with ways(), pytest.raises(FormatError) as caught:
                opened.read(filters=filters)
            assert caught.value.column == "d"
    for read in (opened.iter_batches, opened.iter_tables):
        with pytest.raises(FormatError, match="not in the dictionary"):
            list(read())


def test_exchanged_indexes_of_an_encrypted_file_do_not_authenticate(file):
    """Of another column, another row group, another file, and of the other kind."""
    good = file.read_bytes()
    group = secure_bloom.ParquetFile(file, KMS)._file.footer.row_groups[0]
    sink = io.BytesIO()
    write(sink)
    other = sink.getvalue()
    theirs = secure_bloom.ParquetFile(other, KMS)._file.footer.row_groups[0]
    for column, module in (("ssn", "offset_index"), ("ssn", "column_index"),
                           ("note", "offset_index")):
        ordinal = ["ssn", "note"].index(column)
        start, length = getattr(group[ordinal], module)
        their_start, _ = getattr(theirs[ordinal], module)
        wrong = {"another file": other[their_start:their_start + length],
                 "another place": good[group[1 - ordinal].offset_index[0]:][:length],
                 "changed": good[start:start + length - 1] + bytes([good[start + length - 1] ^ 1])}
        for name, content in wrong.items():
            bad = good[:start] + content.ljust(length, b"\0") + good[start + length:]
            with by_pages(), pytest.raises(AuthenticationError) as caught:
                secure_bloom.ParquetFile(bad, KMS).read(filters=[("ssn", "=", ssn(7))])
            assert (caught.value.row_group, caught.value.column) == (0, column), name


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_changed_pages_of_an_encrypted_file(file, place):
    good = file.read_bytes()
    start, length = secure_bloom.ParquetFile(file, KMS)._file.footer.row_groups[0][0].pages
    bad = bytearray(good)
    bad[start + int(place * length)] ^= 1
    with by_pages(), pytest.raises(AuthenticationError, match="ssn"):
        secure_bloom.ParquetFile(bytes(bad), KMS).read(filters=[("ssn", "in", [ssn(7), ssn(8)])])


@pytest.mark.slow
def test_a_cold_lookup_by_pages_imports_no_pandas(file):
    code = f"""
import sys
from unittest import mock
from secure_bloom.keys import InMemoryKms
from secure_bloom.reading import matching_rows
import secure_bloom
matching_rows._SMALL = 0
found = secure_bloom.read_table({str(file)!r}, InMemoryKms({MASTER_KEYS!r}),
                                filters=[("ssn", "=", {ssn(7)!r})])
assert found.num_rows == 1
print([name for name in ("pandas", "pyarrow.dataset", "pyarrow.compute") if name in sys.modules])
"""
    assert run_python(code).strip() == "[]"


@pytest.mark.skipif(not PARQUET_TESTING.is_dir(),
                    reason="put the files of apache/parquet-testing into ../shared/parquet-testing")
def test_files_of_other_implementations():
    for path in sorted(PARQUET_TESTING.glob("*.parquet")):
        opened = secure_bloom.ParquetFile(path)
        values = opened.read()
        for name in values.column_names:
            value = values[name][len(values) // 2].as_py()
            for filters in ([(name, "=", value)], [(name, "in", [value, None])]):
                with by_row_groups():
                    expected = opened.read(filters=filters)
                with by_pages():
                    assert opened.read(filters=filters).equals(expected), (path.name, name)


def test_a_report_says_how_much_was_read_by_pages(file):
    data = secure_bloom.dataset(file, KMS)
    with by_pages():
        data.to_table(filter=pc.field("ssn") == ssn(5))
    reads, searched = data.report.by_pages, num_pages(file, "ssn")
    assert reads.row_groups == 1 and reads.stored_bytes == data.report.bytes.total
    assert 0 < reads.read_bytes < reads.stored_bytes
    assert (reads.pages, reads.read_pages) \
        == (sum(map(partial(num_pages, file), data.schema.names)), searched + 3)
    assert (f"{searched + 3} of {reads.pages} pages read, {reads.read_bytes:,} of "
            f"{reads.stored_bytes:,} bytes") in str(data.report)


def test_explaining_tells_the_pages_that_must_be_searched(file, tmp_path):
    data, days = secure_bloom.dataset(file, KMS), num_pages(file, "day")
    with by_pages():
        in_order = data.explain([("day", "=", 77)])
        at_random = data.explain([("ssn", "=", ssn(5))]).by_pages
        data.to_table(filter=pc.field("ssn") == ssn(5))
        assert at_random.read_bytes < data.report.by_pages.read_bytes  # which also has the row
        write(tmp_path / "whole.parquet", write_page_index=False)
        whole = secure_bloom.dataset(tmp_path / "whole.parquet", KMS).explain(
            [("day", "=", 77)]).by_pages
    pages = in_order.by_pages
    assert (pages.row_groups, pages.pages, pages.is_expected) == (1, days, True)
    assert 0 < pages.read_pages < 3 < days and pages.read_bytes < pages.stored_bytes / 50
    assert (f"by pages    1 row group: {pages.read_pages} of {days} pages to search, at least "
            f"{pages.read_bytes:,} of {in_order.bytes.total:,} bytes") in str(in_order)
    assert at_random.read_pages == at_random.pages == num_pages(file, "ssn")
    assert whole.pages == 0 and whole.read_bytes == file_sizes(tmp_path / "whole.parquet")["day"]
    assert not data.explain([("day", "=", 77)]).by_pages.row_groups  # it is too small
    only_footer = secure_bloom.dataset(file, InMemoryKms({"kf": MASTER_KEYS["kf"]}))
    with by_pages():
        assert only_footer.explain([("ssn", ">", ssn(5))]).row_groups.read == 1


def num_pages(file, column: str) -> int:
    opened = secure_bloom.ParquetFile(file, KMS)._file
    group = opened.footer.row_groups[0]
    pages = read_data_pages(opened.source, group[opened.column(column).ordinal], group.num_rows)
    return len(pages)
