"""Which rows have a value to erase, whatever types the value and the column have."""

import datetime
import io
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secure_bloom import ExplicitKeys, ParquetFile, UniformKey, erase, verify_file, write_table
from secure_bloom.erasing.matching import ErasedValues
from secure_bloom.erasing.rows import RowReader
from secure_bloom.errors import AuthenticationError, UnsupportedError
from secure_bloom.parquet.footer import Footer
from secure_bloom.reading.open_file import OpenFile
from tests.cases import for_each
from tests.pruning.row_domains import domains
from tests.reference import holds

NOON, LATER = datetime.datetime(2020, 1, 1, 12), datetime.datetime(2021, 1, 1)
BAD = pa.Array.from_buffers(pa.string(), 3, pa.array([b"\xff\xfe", b"a", b"\xc3"]).buffers())
DOMAINS = domains()


@for_each("name", DOMAINS)
def test_the_rows_of_each_value_of_each_type_are_those_of_the_reference(name):
    stored, values, asked = DOMAINS[name]
    sink = io.BytesIO()
    write_table(pa.table({"c": stored}), sink)
    with OpenFile(sink.getvalue()) as file:
        for value, same in asked:
            if same is None or same != same or isinstance(value, bytearray):  # cannot be erased
                continue
            found = ErasedValues("c", [value]).in_row_group(RowReader(file), 0, file.columns[0])
            assert found.rows.to_pylist() == [holds(one, "==", same) for one in values], value
            assert found.found.total() == found.rows.true_count, value


@pytest.mark.parametrize(("column", "value", "gone"), [
    (pa.array([NOON, LATER, None], pa.timestamp("us")), NOON, [0]),
    (pa.array(["a", "b", "a"]).dictionary_encode(), "a", [0, 2]), (pa.array([1, 2, 3]), 2.5, []),
    (pa.array([np.float16(1.5), np.float16(2)]), 1.5, [0]),
    (BAD, bytearray(b"\xff\xfe"), [0]), (BAD, "a", [1]),
    (pa.array([["a", "b"], None, [], ["a", None]]), "a", [0, 3]),
    (pa.array([["a", "b"], ["c", "c"]], pa.list_(pa.string(), 2)), "c", [1]),
    (pa.array([[["a"], []], [["b"], ["c", "a"]]]), "c", [1]),
    (pa.array([{"x": 1}, None, {"x": None}]), 1, [0]),
], ids=str)
def test_rows_that_go(tmp_path, column, value, gone):
    path = tmp_path / "a.parquet"
    write_table(pa.table({"c": column, "n": range(len(column))}), path, row_group_size=2,
                bloom_filters=["n"])
    result = erase(path, "c", [value], max_share=1)
    assert result.ok and result.rows_removed == len(gone)
    assert result.values[0].found >= len(gone) and bool(result.values[0].found) == bool(gone)
    assert pq.read_table(path, columns=["n"])["n"].to_pylist() \
        == [n for n in range(len(column)) if n not in gone]


def test_each_value_is_counted(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"c": [["a", "b"], ["a", "a"], ["x"], None]}), path)
    result = erase(path, "c", ["a", "b", "none", "a"], max_share=1)
    assert [value.found for value in result.values] == [3, 1, 0] and result.rows_removed == 2
    pq.write_table(pa.table({"c": [1, 2, 3]}), path)
    result = erase(path, "c", [2.5, 2], max_share=1)
    assert [value.found for value in result.values] == [0, 1]


def test_the_bits_of_floats_stay(tmp_path):
    bits = np.array([0x7ff8000000000001, 0x7ff8000000000002, 0xfff8000000000003, 0,
                     0x8000000000000000, 1], np.uint64)
    path = tmp_path / "a.parquet"
    for use_dictionary in (True, False):
        pq.write_table(pa.table({"f": bits.view(np.float64), "n": range(6)}), path,
                       use_dictionary=use_dictionary)
        erase(path, "n", 5, max_share=1)
        assert pq.read_table(path)["f"].to_numpy().view(np.uint64).tolist() == bits[:5].tolist()


def test_text_that_is_not_utf8_stays(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"s": BAD, "n": range(3)}), path)
    erase(path, "n", 1, max_share=1)
    assert pq.read_table(path)["s"].cast(pa.binary()).to_pylist() == [b"\xff\xfe", b"\xc3"]


@pytest.mark.parametrize("index", [None, pd.Index([10, 20, 30], name="key")])
def test_an_index_of_pandas(tmp_path, index):
    frame = pd.DataFrame({"a": [1, 2, 3], "s": ["x", "y", "z"]}, index=index)
    path = tmp_path / "a.parquet"
    frame.to_parquet(path)
    erase(path, "a", 2, max_share=1)
    expected = frame[frame["a"] != 2]
    found = pd.read_parquet(path)
    assert found.equals(expected if index is not None else expected.reset_index(drop=True))


@pytest.mark.sweep
def test_more_row_groups_than_an_ordinal_can_number(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": np.arange(33_000)}), path, row_group_size=1,
                   write_statistics=False, use_dictionary=False)
    erase(path, "n", [5, 32_999])
    assert pq.read_table(path)["n"].to_pylist() == [n for n in range(32_999) if n != 5]


def changed(path, change, keys=None) -> bytes:
    """Return a file with a changed footer."""
    data = path.read_bytes()
    with OpenFile(path, keys) as file:
        footer = Footer(file.stored_footer, file.magic, file.keys, start=file.footer.start)
    for chunk in footer.column_chunks():
        change(chunk)
    return data[:footer.start] + footer.to_bytes()


def test_pages_in_another_file_are_refused(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": range(9)}), path, row_group_size=3)
    content = changed(path, lambda chunk: chunk.row_group == 1 and chunk.to_change().set_binary(
        1, b"other.parquet"))
    path.write_bytes(content)
    with pytest.raises(UnsupportedError, match=r"another file, other\.parquet") as raised:
        erase(path, "n", 1, max_share=1)
    assert (raised.value.row_group, raised.value.column) == (1, "n")
    assert path.read_bytes() == content


@pytest.mark.parametrize("lost", [[0, 1], [2], [0, 1, 2, 3], [5]])
def test_lists_of_an_encrypted_file_whose_row_groups_move(tmp_path, lost):
    path, key = tmp_path / "a.parquet", UniformKey(b"0123456789abcdef")
    lists = [None if n % 5 == 4 else [n, None, n][:n % 4] for n in range(12)]
    table = pa.table({"l": lists, "n": range(12)})
    write_table(table, path, encryption=key, row_group_size=2, write_page_index=True,
                data_page_size=1, write_batch_size=1, use_dictionary=False,
                bloom_filters=True)
    keys = ExplicitKeys(b"0123456789abcdef")
    erase(path, "n", lost, keys, max_share=1)
    assert ParquetFile(path, keys).read().equals(
        table.filter(pa.array([n not in lost for n in range(12)])))
    assert verify_file(path, keys).ok


def test_ordinals_that_are_not_positions(tmp_path):
    """pyarrow cannot read such a row group. It is encrypted again for its position."""
    path, keys = tmp_path / "a.parquet", ExplicitKeys(b"0123456789abcdef")
    write_table(pa.table({"n": range(9)}), path, encryption=UniformKey(b"0123456789abcdef"),
                row_group_size=3, bloom_filters=True)
    data = path.read_bytes()
    with OpenFile(path, keys) as file:
        footer = Footer(file.stored_footer, file.magic, file.keys, start=file.footer.start)
    footer.keep_row_groups([footer.row_groups[0], footer.row_groups[2]])
    content = data[:footer.start] + footer.to_bytes()
    path.write_bytes(content)
    with pytest.raises(AuthenticationError):
        ParquetFile(path, keys).read()
    assert erase(path, "n", 1, keys, max_share=1).ok
    assert ParquetFile(path, keys).read()["n"].to_pylist() == [0, 2, 6, 7, 8]
    assert verify_file(path, keys).ok


def test_temporary_files_of_killed_processes_are_removed(tmp_path):
    """One of attach, for example, has all rows."""
    for path in (tmp_path / "a.parquet", tmp_path / "d=1" / "b.parquet"):
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"n": range(9)}), path)
        code = ("import sys, os\nfrom secure_bloom.storage.local_files import _open_temporary\n"
                "_open_temporary(sys.argv[1], 0o600)\nos._exit(9)")
        subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert len(list(tmp_path.rglob(".*.tmp"))) == 2
    erase(tmp_path / "a.parquet", "n", 100, max_share=1)
    assert len(list(tmp_path.rglob(".*.tmp"))) == 1
    erase(tmp_path, "n", 1, max_share=1)
    assert list(tmp_path.rglob(".*.tmp")) == []


@pytest.mark.parametrize("algorithm", ["AES_GCM_V1", "AES_GCM_CTR_V1"])
def test_each_page_is_encrypted_for_its_own_place(tmp_path, algorithm):
    path, keys = tmp_path / "a.parquet", ExplicitKeys(b"0123456789012345")
    texts = [f"{number:01000}" for number in range(5000)]  # more than a page holds
    write_table(pa.table({"text": texts}), path, row_group_size=2500, use_dictionary=False,
                write_page_index=True, bloom_filters=["text"],
                encryption=UniformKey(b"0123456789012345", algorithm=algorithm))
    assert erase(path, "text", [texts[5], texts[2501]], keys).ok
    with ParquetFile(path, keys) as file:
        assert all(chunk.num_pages > 1 for chunk in file.footer.column_chunks())
        assert file.read()["text"].to_pylist() \
            == [text for number, text in enumerate(texts) if number not in (5, 2501)]
