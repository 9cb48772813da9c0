"""Folders as one table."""

import gc
import os

import pyarrow as pa
import pyarrow.fs as pa_fs
import pytest

import secure_bloom
from secure_bloom.datasets import folder as reading
from secure_bloom.datasets import scan
from secure_bloom.datasets.dataset_file import OpenedFile
from secure_bloom.datasets.opening import open_files
from secure_bloom.datasets.sources import find_files
from secure_bloom.errors import (
    AuthenticationError,
    FormatError,
    UnknownColumnError,
    UnsupportedError,
)
from secure_bloom.keys.environment import NO_KEYS
from secure_bloom.reading import row_groups
from secure_bloom.reading.row_groups import prune_row_groups
from secure_bloom.storage.visibility import data_files


def test_partition_values_come_from_the_path_also_when_filtered(tmp_path):
    for number in (1, 3):
        folder = tmp_path / f"x={number}"
        folder.mkdir()
        secure_bloom.write_table(pa.table({"x": [2, 2], "y": [number, 5]}), folder / "a.parquet",
                                 bloom_filters={"x": True, "y": True})
    everything = secure_bloom.read_table(tmp_path)
    assert sorted(everything["x"].to_pylist()) == [1, 1, 3, 3]
    one = secure_bloom.read_table(tmp_path, filters=[("x", "==", 1)])
    assert sorted(one["y"].to_pylist()) == [1, 5]
    assert secure_bloom.read_table(tmp_path, filters=[["y", "==", 3]])["x"].to_pylist() == [3]


def test_a_partition_column_that_is_always_null_is_a_string(tmp_path):
    null = "__HIVE_DEFAULT_PARTITION__"
    for folder, value in ((f"p={null}/k=1/q%20r={null}", 1), (f"p={null}/k=2/q%20r={null}", 2)):
        (tmp_path / folder).mkdir(parents=True)
        secure_bloom.write_table(pa.table({"a": [value]}), tmp_path / folder / "x.parquet")
    table = secure_bloom.read_table(tmp_path)
    assert table.schema.field("p").type == table.schema.field("q r").type == pa.string()
    assert table.select(["a", "p", "k", "q r"]).to_pylist() == [
        {"a": 1, "p": None, "k": 1, "q r": None}, {"a": 2, "p": None, "k": 2, "q r": None}]
    for filters, expected in (([("p", "is null", None), ("k", "==", 2)], [2]),
                              ([("p", "==", "x")], [])):
        assert secure_bloom.read_table(tmp_path, filters=filters)["a"].to_pylist() == expected


def test_what_begins_with_a_dot_is_hidden(tmp_path):
    with secure_bloom.ParquetWriter(tmp_path / "x=1.parquet", pa.schema([("y", pa.int64())]),
                                    bloom_filters={}) as writer:
        writer.write_table(pa.table({"y": [1]}))
        assert os.listdir(tmp_path) != []  # a temporary file, whose name contains the =
        assert data_files(pa_fs.LocalFileSystem(), str(tmp_path)) == []
    for folder in (".x=1", "_x=1", "_x"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.parquet").touch()
    found = data_files(pa_fs.LocalFileSystem(), str(tmp_path))
    assert found == [f"{tmp_path}/_x=1/a.parquet", f"{tmp_path}/x=1.parquet"]


def test_a_slash_at_the_end_of_a_path(tmp_path):
    (tmp_path / "x=2").mkdir()
    secure_bloom.write_table(pa.table({"y": [1]}), tmp_path / "x=2" / "a.parquet",
                             bloom_filters={})
    for filesystem in (None, pa_fs.LocalFileSystem()):
        table = secure_bloom.read_table(f"{tmp_path}/", filesystem=filesystem)
        assert table.to_pydict() == {"y": [1], "x": [2]}


def people(folder, name, **columns):
    rows = pa.table({"id": range(100), **columns})
    secure_bloom.write_table(rows, folder / name, bloom_filters={"id": True})


@pytest.mark.parametrize("files", [1, 3, reading._OPEN_FILES + 1])
def test_rows_come_in_the_order_of_the_files(tmp_path, files):
    for number in range(files):
        people(tmp_path, f"{number:02}.parquet", file=[number] * 100)
    found = secure_bloom.read_table(tmp_path, filters=[("id", "in", [5, 7])])
    assert found.to_pydict() == {"id": [5, 7] * files,
                                 "file": [number for number in range(files) for _ in range(2)]}


def test_nothing_is_kept_of_a_file_without_matching_rows(tmp_path):
    """Of thousands, the garbage collector would look at it again and again."""
    for number in range(3):
        people(tmp_path, f"{number}.parquet")

    def look(opened: OpenedFile) -> bool:
        assert opened.file.might_contain("id", [5]).all()  # which reads the filter
        opened.dataset_file.row_groups = None if opened.file.name.endswith("1.parquet") else []
        return False

    files, view = open_files(find_files(tmp_path, None), NO_KEYS, None, look=look)
    kept = [view.access.footers.get(file.path) is not None for file in files]
    assert kept == [False, True, False]
    assert view.access.filters._size == 0


def test_rows_are_read_with_the_schema_of_all_files(tmp_path):
    people(tmp_path, "0.parquet")
    people(tmp_path, "1.parquet", more=["x"] * 100)
    wanted = {"id": [5, 5], "more": [None, "x"]}
    assert secure_bloom.read_table(tmp_path, filters=[("id", "=", 5)]).to_pydict() == wanted
    assert secure_bloom.read_table(tmp_path, filters=[("id", "=", 5)],
                                   columns=["more"]).to_pydict() == {"more": [None, "x"]}
    found = secure_bloom.read_table(tmp_path, filters=[("more", "=", "x"), ("id", "<", 2)])
    assert found.to_pydict() == {"id": [0, 1], "more": ["x", "x"]}


@pytest.mark.parametrize("filters", [None, [("id", "=", 5)]])
def test_a_file_with_another_type_in_a_column_is_named(tmp_path, filters):
    for number in range(6):
        people(tmp_path, f"{number}.parquet")
    secure_bloom.write_table(pa.table({"id": ["text"]}), tmp_path / "4a.parquet")
    with pytest.raises(UnsupportedError, match=r"Field id .*int64 vs string") as caught:
        secure_bloom.read_table(tmp_path, filters=filters)
    assert caught.value.file == str(tmp_path / "4a.parquet")


def test_patterns_and_lists_are_read_as_data_sets_do(tmp_path):
    for day in (1, 2):
        folder = tmp_path / f"day={day}"
        folder.mkdir()
        for number in range(2):
            people(folder, f"{number}.parquet", file=[number] * 100)
    people(tmp_path, "[0].parquet")  # a name with the characters of a pattern
    for source in (f"{tmp_path}/day=*/0.parquet", [tmp_path / "day=1" / "0.parquet",
                                                    f"{tmp_path}/day=2/0.parquet"],
                   (f"{tmp_path}/day=?/0*",)):
        expected = secure_bloom.dataset(source).to_table(filter=[("id", "=", 5)])
        found = secure_bloom.read_table(source, filters=[("id", "=", 5)])
        assert found.equals(expected) and found["day"].to_pylist() == [1, 2]
        assert secure_bloom.read_table(source, columns=["file"])["file"].to_pylist() == [0] * 200
    assert secure_bloom.read_table(tmp_path / "[0].parquet").num_rows == 100
    for missing in (f"{tmp_path}/day=3/*", [], f"{tmp_path}/no.parquet"):
        with pytest.raises(FileNotFoundError):
            secure_bloom.read_table(missing)
    with pytest.raises(AuthenticationError, match="not encrypted"):
        secure_bloom.read_table(f"{tmp_path}/day=*/0.parquet", require_encryption=["none"])


def test_a_file_whose_rows_cannot_be_read_is_named(tmp_path):
    for number in range(6):
        people(tmp_path, f"{number}.parquet")
    for number in (1, 5):
        path = tmp_path / f"{number}.parquet"
        good = path.read_bytes()
        path.write_bytes(good[:4] + bytes(100) + good[104:])
        with pytest.raises(FormatError, match=f"{number}.parquet"):
            secure_bloom.read_table(tmp_path, filters=[("id", "=", 5)])
        path.write_bytes(good)
    with pytest.raises(UnknownColumnError, match="none"):
        secure_bloom.read_table(tmp_path, filters=[("id", "=", 5)], columns=["none"])


def test_no_file_stays_open_after_an_error(tmp_path):
    """Other threads have opened some ahead, and nobody else knows of them."""
    for number in range(40):
        people(tmp_path, f"{number:02}.parquet")
    (tmp_path / "03.parquet").write_bytes(b"no Parquet file")
    gc.collect()
    gc.disable()  # it would close them some time later
    try:
        with pytest.raises(FormatError, match=r"03\.parquet"):
            secure_bloom.read_table(tmp_path)
        links = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    finally:
        gc.enable()
    assert [link for link in links if link.startswith(str(tmp_path))] == []


def test_the_row_groups_of_each_file_are_chosen_once(tmp_path, monkeypatch):
    chosen = []

    def prune(file, alternatives, groups=None):
        chosen.append(file.name)
        return prune_row_groups(file, alternatives, groups)

    for number in range(3):
        secure_bloom.write_table(pa.table({"y": [number, 9]}), tmp_path / f"{number}.parquet",
                                 row_group_size=1, bloom_filters={"y": True})
    for module in (row_groups, scan):
        monkeypatch.setattr(module, "prune_row_groups", prune)
    found = secure_bloom.read_table(tmp_path, filters=[("y", "in", [1, 9])])
    assert found["y"].to_pylist() == [9, 1, 9, 9]
    assert [name[-9:] for name in chosen] == ["0.parquet", "1.parquet", "2.parquet"]
