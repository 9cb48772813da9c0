"""Lookups in a new process: what they import, and that rows are read alike in both ways."""

import io
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secure_bloom import EncryptionConfiguration, ParquetFile, find, index, read_table, write_table
from secure_bloom.arrow import few_row_groups
from secure_bloom.errors import FormatError
from secure_bloom.keys import Keyring
from tests.support import arrow_file, run_python

SLOW_IMPORTS = {"pandas", "numba", "pyspark", "pyarrow.dataset", "pyarrow.compute"}
TEXTS = [f"x{number}" for number in range(10)]
TABLE = pa.table({"ssn": TEXTS, "id": range(10), "raw": [text.encode() for text in TEXTS],
                  "amt": [number / 2 for number in range(10)]})


@pytest.fixture
def keyring(tmp_path) -> str:
    ring = Keyring.create(tmp_path / "keyring.json")
    ring.add("k")
    return str(tmp_path / "keyring.json")


def write_encrypted(table: pa.Table, path: Path, keyring: str) -> None:
    write_table(table, path, bloom_filters=True, keys=keyring, row_group_size=5,
                encryption=EncryptionConfiguration("k", {"k": table.column_names}))
    os.utime(path, (10**9, 10**9))  # an index does not cover recent files


def imported_by(code: str) -> set[str]:
    """Return the modules of a new process after it has run some code."""
    return set(run_python(f"import sys, secure_bloom\n{code}\nprint(*sys.modules)").split())


@pytest.mark.slow
@pytest.mark.parametrize(("column", "value", "is_there"), [
    ("ssn", "x7", True), ("ssn", "none", False), ("id", 7, True), ("amt", 3.5, True),
    ("raw", b"x7", True)])
def test_a_lookup_in_a_file_imports_only_what_it_needs(tmp_path, keyring, column, value, is_there):
    """pandas is installed here; pyarrow imports it for many uses."""
    write_encrypted(TABLE, tmp_path / "a.parquet", keyring)
    loaded = imported_by(
        f"rows = secure_bloom.read_table({str(tmp_path / 'a.parquet')!r}, {keyring!r},\n"
        f"                               filters=[({column!r}, '=', {value!r})])\n"
        f"assert rows.num_rows == {int(is_there)} and rows.schema.names[0] == 'ssn'")
    assert not {*SLOW_IMPORTS, "importlib.metadata", "secure_bloom.datasets.scan"} & loaded


@pytest.mark.slow
@pytest.mark.parametrize("lookup", ["read_table({0!r}, {1!r}, filters=[('ssn', '=', 'x7')])",
                                    "find({0!r}, 'ssn', ['x7'], {1!r})"])
@pytest.mark.parametrize("is_indexed", [False, True])
def test_a_lookup_in_a_folder_imports_only_what_it_needs(tmp_path, keyring, lookup, is_indexed):
    folder = tmp_path / "people"
    folder.mkdir()
    for number in range(3):
        write_encrypted(pa.table({"ssn": [f"x{number}", f"x{number + 7}"]}),
                        folder / f"{number}.parquet", keyring)
    if is_indexed:
        assert index.build(str(folder), ["ssn"], keyring).indexed == 3
    loaded = imported_by(
        f"assert secure_bloom.{lookup.format(str(folder), keyring)}.num_rows == 1")
    assert not SLOW_IMPORTS & loaded
    assert "secure_bloom.index.segment" in loaded or not is_indexed


@pytest.mark.slow
def test_few_row_groups_are_read_as_many_are(tmp_path, monkeypatch):
    """Few are read with pyarrow.parquet, many with pyarrow.dataset."""
    path = tmp_path / "a.parquet"
    words = pa.array([None if number % 7 == 0 else f"w{number % 5}" for number in range(60)])
    write_table(pa.table({
        "id": range(60), "word": words, "kind": words.dictionary_encode(),
        "place": [{"x": number % 3, "tags": ["a"] * (number % 4)} for number in range(60)],
        "amt": [number / 4 for number in range(60)]}), path, row_group_size=20)
    conditions = ([("word", "=", "w2")], [("kind", "!=", "w2")], [("place.x", "in", [1, 2])],
                  [("amt", ">=", 3.25)], [("word", "is null", None)], [("id", ">", 1000)],
                  [[("id", "<", 3)], [("word", "<", "w1")]])
    for columns in (None, ["kind", "place"], ["id", "id"], ["place.x"], []):
        for condition in conditions:
            few = read_table(path, columns=columns, filters=condition)
            with monkeypatch.context() as patch:
                patch.setattr(few_row_groups, "_FEW", -1)
                many = read_table(path, columns=columns, filters=condition)
            assert few.schema.equals(many.schema, check_metadata=True)
            assert few.num_rows == many.num_rows and few.to_pylist() == many.to_pylist()


def test_names_with_dots_are_not_mistaken_for_fields_of_structs(tmp_path):
    table = pa.table({"a.b": range(3), "a": [{"b": 10}, {"b": 11}, {"b": 12}], "n": range(3)})
    write_table(table, tmp_path / "a.parquet")
    for columns in (["a"], ["a.b"], ["n"]):
        with ParquetFile(tmp_path / "a.parquet") as file:
            assert file.read(columns, [("n", ">", 0)]).equals(table.select(columns).slice(1))


def with_fewer_values(file: bytes, column: int, count: int) -> bytes:
    """Return a file in which the only page of a column claims to have so many values."""
    start = pq.read_metadata(io.BytesIO(file)).row_group(0).column(column).data_page_offset
    header = file.index(b"\x2c\x15\x0a", start)  # DataPageHeader, its number of values: 5
    return file[:header + 2] + bytes([2 * count]) + file[header + 3:]


@pytest.mark.parametrize("count", [0, 4])
@pytest.mark.parametrize("column", [0, 1])
@pytest.mark.parametrize("few", [0, 4], ids=["pyarrow.dataset", "pyarrow.parquet"])
def test_a_column_with_fewer_rows_than_the_others_is_an_error(tmp_path, monkeypatch, few, column,
                                                                 count):
    monkeypatch.setattr(few_row_groups, "_FEW", few)
    schema = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in "ab"])
    table = pa.table({"a": range(5), "b": range(5)}, schema)
    path = tmp_path / "x.parquet"
    path.write_bytes(with_fewer_values(arrow_file(table), column, count))
    for read in (lambda: read_table(path, filters=[("a", ">=", 0)]),
                 lambda: read_table(tmp_path, filters=[("a", ">=", 0)]),
                 lambda: find(path, "a", [0, 1]), lambda: list(ParquetFile(path).iter_batches())):
        with pytest.raises(FormatError, match=r"x\.parquet"):
            read()
