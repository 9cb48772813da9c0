"""Page indexes: written by default, true, and encrypted where their column is.

A column index contains the minimum and maximum of each page, so a plaintext one would show values.
"""

import datetime
import io
from pathlib import Path

import datafusion
import pyarrow as pa
import pytest
from click.testing import CliRunner

import secure_bloom
from secure_bloom import write_table
from secure_bloom.cli import main
from secure_bloom.crypto.aad import ModuleType
from secure_bloom.errors import AuthenticationError
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.reading.rows import read_rows
from tests.modes import MODES, Mode
from tests.page_indexes import (
    check_offset_indexes,
    index_bytes,
    indexed_pages,
    page_bounds,
)

ROWS, GROUP_ROWS, PAGE_ROWS = 240, 120, 40
START = 0x5EC7E7_0000000001  # no other 8 bytes of a file are such a number
TABLE = pa.table({
    "name": [f"näme of person {i:04}" for i in range(ROWS)],
    "number": pa.array([START + i for i in range(ROWS)]),
    "born": pa.array([datetime.datetime(1901, 2, 3, 4, 5, 6, 7) + datetime.timedelta(i)
                      for i in range(ROWS)]),
    "code": pa.array([b"code" + i.to_bytes(4) for i in range(ROWS)], pa.binary(8)),
    "home": [{"city": f"city no. {i:04}"} for i in range(ROWS)],
    "tags": [[f"tag no. {i:04}", None][:i % 3] for i in range(ROWS)],
    "open": [f"anyone reads {i:04}" for i in range(ROWS)],
})
COLUMN_KEYS = {"kc1": ["name", "code", "home"], "kc2": ["number", "born", "tags"]}
PAGES = {"row_group_size": GROUP_ROWS, "max_rows_per_page": PAGE_ROWS, "write_batch_size": 1,
         "compression": "none"}


class _External(Mode):
    """Key material in a file beside the Parquet file."""

    def write(self, table, where, column_keys, **options) -> None:
        encryption = secure_bloom.EncryptionConfiguration("kf", column_keys, **self.options)
        write_table(table, where, encryption=encryption, keys=self.keys, **options)


EXTERNAL = _External("external signed columns",
                     {"internal_key_material": False, "plaintext_footer": True})


def write(mode: Mode, path: Path, **options) -> bytes:
    mode.write(TABLE, path, COLUMN_KEYS, **PAGES, **options)
    return path.read_bytes()


def encoded_values() -> dict[str, list[bytes]]:
    """The values of each leaf column as the bytes that pages and indexes have of them."""
    def texts(values):
        return [value.encode() for value in values if value is not None]

    return {"name": texts(TABLE["name"].to_pylist()),
            "number": [value.to_bytes(8, "little") for value in TABLE["number"].to_pylist()],
            "born": [value.to_bytes(8, "little", signed=True)
                     for value in TABLE["born"].cast(pa.int64()).to_pylist()],
            "code": TABLE["code"].to_pylist(),
            "home.city": texts(row["city"] for row in TABLE["home"].to_pylist()),
            "tags.list.element": texts(tag for row in TABLE["tags"].to_pylist() for tag in row),
            "open": texts(TABLE["open"].to_pylist())}


VALUES = encoded_values()


@pytest.mark.parametrize("mode", [*MODES, EXTERNAL], ids=str)
def test_no_value_of_an_encrypted_column_is_in_the_bytes_of_the_file(tmp_path, mode):
    raw = write(mode, tmp_path / "a.parquet")
    with OpenFile(tmp_path / "a.parquet", mode.keys) as file:
        assert read_rows(file).equals(TABLE)
        for chunk in file.footer.column_chunks():
            values = VALUES[chunk.column.path]
            expected = 0 if chunk.encryption else len(values)
            assert sum(value in raw for value in values) == expected, chunk.place
        encrypted = {chunk.column.path for chunk in file.footer.row_groups[0] if chunk.encryption}
    if not mode.is_encrypted:
        assert not encrypted
    else:
        assert encrypted == VALUES.keys() - ({"open"} if not mode.is_uniform else set())


@pytest.mark.parametrize("mode", [*MODES, EXTERNAL], ids=str)
def test_both_indexes_are_modules_of_their_column_and_true(tmp_path, mode):
    write(mode, tmp_path / "a.parquet")
    with OpenFile(tmp_path / "a.parquet", mode.keys) as file:
        assert check_offset_indexes(file) == 2 * len(VALUES)
        for chunk in file.footer.column_chunks():
            rows = range(chunk.row_group * GROUP_ROWS, (chunk.row_group + 1) * GROUP_ROWS)
            assert [page.first_row for page in indexed_pages(file, chunk)] == [0, 40, 80]
            if chunk.column.path != "tags.list.element":
                values = VALUES[chunk.column.path][rows.start:rows.stop]
                assert page_bounds(file, chunk) == [
                    (values[first], values[first + PAGE_ROWS - 1]) for first in (0, 40, 80)]
            if chunk.encryption:
                check_is_bound(file, chunk)


def check_is_bound(file: OpenFile, chunk) -> None:
    """Neither index is accepted as the other, nor in another column."""
    modules = chunk.modules
    other = modules._replace(column=(chunk.column.ordinal + 1) % len(VALUES))
    for where, own, wrong in (
            (chunk.column_index, ModuleType.COLUMN_INDEX, ModuleType.OFFSET_INDEX),
            (chunk.offset_index, ModuleType.OFFSET_INDEX, ModuleType.COLUMN_INDEX)):
        module = file.read_at(where[1], where[0])
        assert modules.decrypt(module, own) == index_bytes(file, chunk, own)
        for aad in (modules.aad(wrong), other.aad(own)):
            with pytest.raises(AuthenticationError):
                chunk.cipher.decrypt(module, aad)


# --- what is not written -------------------------------------------------------------------------

def written(table: pa.Table, **options) -> tuple[OpenFile, bytes]:
    sink = io.BytesIO()
    write_table(table, sink, compression="none", use_dictionary=False, **options)
    return OpenFile(sink.getvalue()), sink.getvalue()


def test_they_can_be_switched_off(tmp_path):
    file, _ = written(TABLE, write_page_index=False)
    secure_bloom.write_dataset(TABLE, tmp_path / "off", plaintext=True, write_page_index=False)
    secure_bloom.write_dataset(TABLE, tmp_path / "on", plaintext=True)
    [off] = (tmp_path / "off").glob("*.parquet")
    [on] = (tmp_path / "on").glob("*.parquet")
    for one in (file, OpenFile(off)):
        assert all(chunk.offset_index is chunk.column_index is None
                   for chunk in one.footer.column_chunks())
    assert check_offset_indexes(OpenFile(on)) == len(VALUES)


def test_the_command_writes_them_unless_it_is_told_not_to(tmp_path):
    (tmp_path / "a.csv").write_text("n,city\n1,Rome\n2,Oslo\n")
    for name, options, expected in (("on", [], 2), ("off", ["--no-page-index"], 0)):
        path = tmp_path / name
        done = CliRunner().invoke(main, ["write", str(tmp_path / "a.csv"), str(path),
                                         "--plaintext", *options])
        assert done.exit_code == 0
        assert check_offset_indexes(OpenFile(path)) == expected


def test_a_column_without_statistics_has_no_column_index():
    everywhere, raw = written(TABLE, write_statistics=False)
    some, _ = written(TABLE, write_statistics=["number"])
    assert raw.count(b"anyone reads 0000") == 1  # in the page
    assert [chunk.column_index for chunk in everywhere.footer.column_chunks()] == [None] * 7
    assert [chunk.column.path for chunk in some.footer.column_chunks() if chunk.column_index] \
        == ["number"]
    assert check_offset_indexes(everywhere) == check_offset_indexes(some) == len(VALUES)


def test_columns_whose_bounds_mean_nothing_have_no_column_index():
    long = "x" * 5000
    file, raw = written(pa.table({
        "old time": pa.array([datetime.datetime(2020, 1, 1)] * 40),
        "nan": pa.array([float("nan")] * 20 + [1.0] * 20),  # a page without bounds
        "long": [f"{i:02}{long}" for i in range(40)], "fine": range(40),
    }), use_deprecated_int96_timestamps=True, max_rows_per_page=20, write_batch_size=20)
    indexes = {chunk.column.path: page_bounds(file, chunk) for chunk in file.footer.row_groups[0]}
    assert {path for path, bounds in indexes.items() if bounds} == {"fine"}
    assert raw.count(f"00{long}".encode()) == 1
    assert check_offset_indexes(file) == 4


@pytest.mark.parametrize("encryption", [None, secure_bloom.UniformKey(b"k" * 16)], ids=str)
def test_a_column_chunk_with_nan_has_no_column_index(encryption):
    """Otherwise other readers skip pages with NaN, which they take for the greatest number."""
    nan, rows = float("nan"), 80
    some = [nan if i == 45 else i / 2 for i in range(rows)]
    table = pa.table({
        "number": range(rows), "real": some, "single": pa.array(some, pa.float32()),
        "half": pa.array(some, pa.float16()), "fine": [i / 2 or None for i in range(rows)],
        "coded": pa.array(some).dictionary_encode(), "list": [[1.5, one] for one in some],
        "inner": [{"text": str(i), "real": one} for i, one in enumerate(some)]})
    sink = io.BytesIO()
    write_table(table, sink, row_group_size=40, max_rows_per_page=10, write_batch_size=1,
                encryption=encryption, bloom_filters=["number"])
    file = OpenFile(sink.getvalue(), encryption and secure_bloom.ExplicitKeys(b"k" * 16))
    missing = [chunk.column.path for chunk in file.footer.column_chunks()
               if page_bounds(file, chunk) is None]
    assert missing == ["real", "single", "half", "coded", "list.list.element", "inner.real"]
    assert check_offset_indexes(file) == 18
    assert str(read_rows(file).to_pydict()) == str(table.to_pydict())  # NaN is not NaN
    assert file.might_contain("number", [45]).tolist() == [[False], [True]]


def test_datafusion_finds_nan(tmp_path):
    write_table(pa.table({"x": [float("nan"), 1.0, 100.0]}), tmp_path / "a.parquet",
                max_rows_per_page=2, write_batch_size=1)
    context = datafusion.SessionContext()
    context.register_parquet("t", str(tmp_path / "a.parquet"))
    assert context.sql("SELECT * FROM t WHERE x > 50").to_arrow_table().num_rows == 2


def test_a_file_without_rows_has_no_page_index():
    file, _ = written(TABLE[:0])
    assert check_offset_indexes(file) == 0
    assert read_rows(file).num_rows == 0


def test_a_row_of_a_list_is_in_one_page():
    file, _ = written(pa.table({"a": [list(range(i)) for i in range(200)]}),
                      max_rows_per_page=7, write_batch_size=5)
    [chunk] = file.footer.column_chunks()
    pages = indexed_pages(file, chunk)
    assert len(pages) > 10
    assert [page.first_row for page in pages] == list(range(0, 200, 7))
