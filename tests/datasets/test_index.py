"""Readers use the index of a folder by themselves, and find what they find without it."""

import os
import pickle
import random
import shutil
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pa_fs
import pytest

import secure_bloom
from secure_bloom import EncryptionConfiguration, ExplicitKeys
from secure_bloom.datasets import scan as scanning
from secure_bloom.datasets import selection as selecting
from secure_bloom.datasets.dataset_file import DatasetFile
from secure_bloom.errors import IndexWarning, KeyNotFoundError, SecureBloomError, UnsupportedError
from secure_bloom.index import Index, column_index, column_update, planning, update
from secure_bloom.keys import InMemoryKms
from secure_bloom.keys.operations.rotation import rotate_master_keys
from tests.counting import CountingHandler
from tests.datasets.people import ENCRYPTION, KMS, rows_of, write_file, write_people

FILES = 8


pytestmark = pytest.mark.usefixtures("settled")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original") / "people"
    write_people(folder, FILES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(update, "_SETTLED_NS", 0)
        secure_bloom.index.build(folder, "ssn", KMS)
    return folder


@pytest.fixture
def people(tmp_path, original):
    """A partitioned table with an index of an encrypted column."""
    people = shutil.copytree(original, tmp_path / "people")  # with the times of the files
    assert Index.open(people, KMS).update().restamped == FILES  # copies are other files
    return people


def ssn(file: int, row: int = 77) -> str:
    return rows_of(file)["ssn"][row].as_py()


def with_read_table(folder, filters, index):
    return secure_bloom.read_table(folder, KMS, filters=filters, index=index)


def with_dataset(folder, filters, index):
    return secure_bloom.dataset(folder, KMS, index=index).to_table(filter=filters)


def with_polars(folder, filters, index):
    pl = pytest.importorskip("polars")
    [(_, _, value)] = filters
    frame = secure_bloom.scan(folder, KMS, index=index)
    return frame.filter(pl.col("ssn") == value).collect().to_arrow()


def with_find(folder, filters, index):
    [(_, _, value)] = filters
    return secure_bloom.find(folder, "ssn", value, KMS, index=index)


READERS = [with_read_table, with_dataset, with_find, with_polars]


def assert_same(folder, values, readers=READERS):
    for reader in readers:
        for value in values:
            filters = [("ssn", "=", value)]
            found, expected = (reader(folder, filters, index) for index in ("require", "off"))
            assert found.equals(expected), (reader, value)
            assert found.schema.equals(expected.schema, check_metadata=True)


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_readers_find_the_same_rows_with_and_without_the_index(people, reader):
    for file in range(FILES):
        found = reader(people, [("ssn", "=", ssn(file))], "auto")
        assert found.num_rows == 1 and found["ssn"][0].as_py() == ssn(file)
    assert_same(people, [ssn(0), ssn(5, 199), "absent"], [reader])


def test_only_files_with_the_value_are_opened(people, monkeypatch):
    opened = []
    own = scanning.DatasetFile._open
    monkeypatch.setattr(scanning.DatasetFile, "_open",
                        lambda self: opened.append(self.path) or own(self))
    data = secure_bloom.dataset(people, KMS)
    assert opened == []
    assert data.to_table(filter=pc.field("ssn") == ssn(3)).num_rows == 1
    assert opened == [f"{people}/day=1/3.parquet"]
    report = data.report
    assert (report.files.read, report.files.index) == (1, FILES - 1)
    assert (report.row_groups.read, report.row_groups.index) == (1, 4 * FILES - 1)
    assert report.files.total == FILES and "skipped by the index" in str(report)


@pytest.mark.slow
def test_files_that_the_index_does_not_cover_are_opened_once(people):
    filesystem = CountingHandler()  # its listings have no tags, as those of the index have
    found = secure_bloom.read_table(str(people), KMS, filters=[("ssn", "=", ssn(3))],
                                    filesystem=pa_fs.PyFileSystem(filesystem))
    opened = [number for path, number in filesystem.opened.items() if path.endswith(".parquet")]
    assert found.num_rows == 1 and opened == [1] * FILES


def test_conditions_with_the_indexed_column_and_others(people):
    data = secure_bloom.dataset(people, KMS, index="require")
    plain = secure_bloom.dataset(people, KMS, index="off")
    ssn_, n = pc.field("ssn"), pc.field("n")
    a, b = ssn(1), ssn(6)
    conditions = [
        ssn_.isin([a, b]), (ssn_ == a) | (ssn_ == b), (ssn_ == a) & (ssn_ == b),
        (ssn_ == a) | (n == 1), (ssn_ == a) & (n > 0), (ssn_ == a) & (pc.field("day") == 0),
        ~(ssn_ != a), ssn_.isin(pa.array([], pa.string())), ssn_.is_null(),
        (ssn_ == a) | ssn_.is_null(), ssn_ != a,
        (ssn_.isin([a, b])) & ((n == 277) | (n < 0)), [("ssn", "in", [a, None, b])],
        [[("ssn", "=", a)], [("ssn", "=", b), ("n", ">", 0)]], [("ssn", "<=>", a)],
        [("ssn", "not in", [a])], [("ssn", "=", None)], [("ssn", "in", [])]]
    for condition in conditions:
        assert data.to_table(filter=condition).equals(plain.to_table(filter=condition)), condition
    assert data.filter(ssn_ == a).filter(n < 0).count_rows() == 0
    assert data.filter(ssn_ == a).count_rows() == 1
    assert [f.path for f in data.get_fragments(filter=ssn_ == a)] == [f"{people}/day=1/1.parquet"]


def test_a_filter_of_many_values(people):
    values = [ssn(file, row) for file in (2, 3) for row in range(0, 200, 7)] + ["x"] * 100
    found = secure_bloom.find(people, "ssn", values, KMS, index="require")
    assert found.num_rows == 58
    assert found.equals(secure_bloom.find(people, "ssn", values, KMS, index="off"))


# --- changes of files ----------------------------------------------------------------------------

def change(folder, what: str) -> None:
    one = folder / "day=0" / "2.parquet"
    if what == "added":
        write_file(folder / "day=1" / "new.parquet", rows_of(50))
    elif what == "overwritten":
        write_file(one, rows_of(50))
    elif what == "deleted":
        one.unlink()
    elif what == "renamed":
        one.rename(folder / "day=1" / "renamed.parquet")
    elif what == "copied with its time":
        shutil.copy2(one, folder / "day=1" / "copy.parquet")
    elif what == "replaced by another file of the table":
        shutil.copy2(folder / "day=1" / "3.parquet", one)
    elif what == "rotated":
        rotate_master_keys(one, KMS, old="pii", new="footer")
    elif what == "stripped":
        secure_bloom.strip(one, KMS)
    elif what == "attached":
        secure_bloom.attach(one, ["ssn"], KMS, replace=True)


CHANGES = ["added", "overwritten", "deleted", "renamed", "copied with its time",
           "replaced by another file of the table", "rotated", "stripped", "attached"]


@pytest.mark.slow
@pytest.mark.parametrize("what", CHANGES)
def test_after_a_change_rows_are_found_before_and_after_an_update(people, what):
    change(people, what)
    values = [ssn(2), ssn(3), ssn(4), ssn(50)]
    assert_same(people, values, [with_read_table])
    index = secure_bloom.index.Index.open(people, KMS)
    index.update()
    assert_same(people, values, [with_find])
    index.compact()
    assert_same(people, values, [with_dataset])


@pytest.mark.slow
@pytest.mark.parametrize("what", ["added", "overwritten", "deleted", "attached"])
def test_a_data_set_that_is_open_while_files_change(people, what):
    data = secure_bloom.dataset(people, KMS, index="require")
    plain = secure_bloom.dataset(people, KMS, index="off")
    change(people, what)

    def rows(source, value):
        try:
            return source.to_table(filter=pc.field("ssn") == value)
        except SecureBloomError as error:
            return type(error), error.file

    for value in (ssn(50), ssn(2), ssn(3)):
        assert rows(data, value) == rows(plain, value)


def test_a_file_that_is_overwritten_after_the_listing_is_searched_whole(people, monkeypatch):
    path = people / "day=0" / "2.parquet"
    own = scanning.Scan.candidates

    def overwritten_then(self):
        found = own(self)
        write_file(path, pa.concat_tables([rows_of(50), rows_of(2)]))
        return found

    data = secure_bloom.dataset(people, KMS, index="require")
    monkeypatch.setattr(scanning.Scan, "candidates", overwritten_then)
    assert data.to_table(filter=pc.field("ssn") == ssn(2)).num_rows == 1  # in another row group


def test_files_with_other_columns_and_types(tmp_path):
    first = pa.table({"id": pa.array([1, 2, 3], pa.int32()), "x": [1.0, 2.0, 3.0]})
    second = pa.table({"id": pa.array([3, 4, 5_000_000_000], pa.int64())})
    third = pa.table({"y": ["without id"]})
    for number, table in enumerate((first, second, third)):
        secure_bloom.write_table(table, tmp_path / f"{number}.parquet")
    result = secure_bloom.index.build(tmp_path, "id", encryption=None)
    assert result.indexed == 3 and not result.uncovered
    for value, rows in ((3, 2), (1, 1), (5_000_000_000, 1), (9, 0), (3.0, 2), (3.5, 0)):
        for index in ("require", "off"):
            found = secure_bloom.read_table(tmp_path, filters=[("id", "=", value)], index=index)
            assert found.num_rows == rows, (value, index)
            assert found.schema.names == ["id", "x", "y"]
    assert secure_bloom.read_table(tmp_path, filters=[("id", "is null", None)]).num_rows == 1


def test_a_partition_column_hides_a_column_of_the_files(tmp_path):
    table = pa.table({"day": [7, 8], "n": [1, 2]})
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        secure_bloom.write_table(table, tmp_path / f"day={day}" / "f.parquet")
    secure_bloom.index.build(tmp_path, ["day", "n"], encryption=None)
    for day, rows in ((1, 2), (7, 0)):
        assert secure_bloom.read_table(tmp_path, filters=[("day", "=", day)]).num_rows == rows
    found = secure_bloom.read_table(tmp_path, filters=[("day", "=", 1), ("n", "=", 2)])
    assert found.num_rows == 1
    # The partition folder on its own has the column of the file.
    assert secure_bloom.read_table(tmp_path / "day=1", filters=[("day", "=", 7)],
                                   index="require").num_rows == 1


def test_files_beside_partition_folders(tmp_path):
    """Only one of the files has its ``day`` from its path."""
    table = pa.table({"day": [7, 8], "n": [1, 2]})
    (tmp_path / "day=777").mkdir()
    for path in ("day=777/f.parquet", "a.parquet"):
        secure_bloom.write_table(table, tmp_path / path)
    secure_bloom.index.build(tmp_path, ["day", "n"], encryption=None)
    for day, rows in ((777, 2), (7, 1), (9, 0)):
        for reader in (with_read_table, with_dataset):
            found = reader(tmp_path, [("day", "=", day)], "require")
            assert found.num_rows == rows and found.equals(
                reader(tmp_path, [("day", "=", day)], "off"))
        assert secure_bloom.find(tmp_path, "day", day, index="require").num_rows == rows


def test_the_source_of_a_row_hides_columns_of_the_files(tmp_path):
    table = pa.table({"row_group": pa.array([7, 8], pa.int32()), "file": ["x", "y"], "n": [1, 2]})
    secure_bloom.write_table(table, tmp_path / "f.parquet", row_group_size=1)
    secure_bloom.index.build(tmp_path, ["row_group", "file", "n"], encryption=None)
    data = secure_bloom.dataset(tmp_path, schema=pa.schema([("n", pa.int64())]), with_source=True,
                                index="require")
    file, group, n = map(pc.field, ("file", "row_group", "n"))
    for condition, rows in ((group == 1, [2]), (group == 8, []), ((group == 0) & (n == 1), [1]),
                            (file == data.files[0], [1, 2]), (file == "x", [])):
        assert data.to_table(filter=condition)["n"].to_pylist() == rows, condition


def test_files_whose_metadata_differ_are_looked_up_together(tmp_path, monkeypatch):
    """As pandas writes them, with the range of their rows."""
    for number in range(5):
        table = pa.table({"id": [number]}).replace_schema_metadata({"first": str(number)})
        secure_bloom.write_table(table, tmp_path / f"{number}.parquet")
    secure_bloom.index.build(tmp_path, "id", encryption=None)
    lookups = []
    own = planning.ListedIndexes.select
    monkeypatch.setattr(planning.ListedIndexes, "select",
                        lambda *arguments: lookups.append(arguments) or own(*arguments))
    assert with_dataset(tmp_path, [("id", "=", 3)], "require").num_rows == 1
    assert len(lookups) == 1


@pytest.mark.parametrize("store_schema", [True, False])
def test_tables_with_maps(tmp_path, store_schema):
    """Of a map's type, pyarrow reads another form from Parquet than from its IPC format."""
    maps = pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32()))
    table = pa.table({"id": [1, 2], "m": maps,
                      "s": pa.StructArray.from_arrays([maps], ["inner"])})
    for number in range(2):
        secure_bloom.write_table(table, tmp_path / f"{number}.parquet", store_schema=store_schema)
    secure_bloom.index.build(tmp_path, "id", encryption=None)
    for value, rows in ((1, 2), (9, 0)):
        for reader in (with_read_table, with_dataset):
            found, expected = (reader(tmp_path, [("id", "=", value)], index)
                               for index in ("require", "off"))
            assert found.num_rows == rows and found.equals(expected)
            assert found.schema.equals(expected.schema, check_metadata=True)
    for index in ("require", "off"):
        data = secure_bloom.dataset(tmp_path, index=index)
        again = pickle.loads(pickle.dumps(data))
        assert again.to_table().equals(pa.concat_tables([table, table]))
        assert again.schema.equals(data.schema, check_metadata=True)


@pytest.mark.parametrize(("base", "folder", "skipped"), [
    (".", "/", FILES - 1), (".", "", FILES - 1), ("..", "/people", FILES - 1),
    ("..", "people", FILES - 1), (".", "/day=1", FILES // 2 - 1), (".", "day=1", FILES // 2 - 1),
    ("..", "/people/day=1/", FILES // 2 - 1)])
def test_tables_in_a_part_of_a_filesystem(people, base, folder, skipped):
    """A SubTreeFileSystem lists files without the first slash."""
    filesystem = pa_fs.SubTreeFileSystem(str((people / base).resolve()), pa_fs.LocalFileSystem())
    on, off = (secure_bloom.dataset(folder, KMS, filesystem=filesystem, index=index)
               for index in ("require", "off"))
    assert on.files == off.files
    assert on.schema.equals(off.schema, check_metadata=True)
    condition = pc.field("ssn") == ssn(3)
    found = on.to_table(filter=condition)
    assert found.num_rows == 1 and found.equals(off.to_table(filter=condition))
    assert on.report.files.index == skipped
    on, off = (secure_bloom.find(folder, "ssn", [ssn(3)], KMS, filesystem=filesystem, index=index)
               for index in ("require", "off"))
    assert on.equals(off) and on.num_rows == 1


def test_nested_and_partitioned_fields(people):
    folder = people.parent / "nested"
    folder.mkdir()
    for number in range(3):
        secure_bloom.write_table(
            pa.table({"st": [{"a": number * 10 + row} for row in range(5)]}),
            folder / f"{number}.parquet")
    secure_bloom.index.build(folder, "st.a", encryption=None)
    found = secure_bloom.dataset(folder, index="require")
    assert found.to_table(filter=pc.field("st", "a") == 12).num_rows == 1
    assert found.report.files.index == 2


# --- keys and damage -----------------------------------------------------------------------------

def test_filters_are_read_of_columns_whose_index_does_not_cover_the_file(people, monkeypatch):
    """The index of ``n`` covers one file only, that of ``ssn`` all."""
    hidden = {path: path.read_bytes() for path in people.glob("day=*/[1-9].parquet")}
    times = {path: path.stat() for path in hidden}
    for path in hidden:
        path.unlink()
    secure_bloom.index.build(people, "n", KMS, encryption=None)
    for path, content in hidden.items():
        path.write_bytes(content)
        os.utime(path, ns=(times[path].st_atime_ns, times[path].st_mtime_ns))
    Index.open(people, KMS).update("ssn")
    probed, original = [], selecting.Selection.of

    def of(self, file):
        found = original(self, file)
        probed.append((Path(file.path).name, sorted(found.columns) if found else None))
        return found

    monkeypatch.setattr(selecting.Selection, "of", of)
    for file, columns in ((0, ["n", "ssn"]), (3, ["ssn"])):
        probed.clear()
        condition = (pc.field("ssn") == ssn(file)) & (pc.field("n") == file * 200 + 77)
        data = secure_bloom.dataset(people, KMS, index="require")
        assert data.to_table(filter=condition).num_rows == 1
        assert (f"{file}.parquet", columns) in probed


def test_in_a_store_files_are_listed_while_the_index_is_opened(people, monkeypatch):
    """At the first time, it is opened before: no listing might be needed."""
    store = pa_fs.PyFileSystem(CountingHandler("store"))

    def look_up():
        rows = secure_bloom.read_table(str(people), KMS, filters=[("ssn", "=", ssn(2))],
                                       filesystem=store, index="require")
        assert rows.num_rows == 1

    look_up()
    both = threading.Barrier(2, timeout=60)
    listing, opened = planning.FolderIndexes._listing, planning.open_column

    def lists(*arguments):
        both.wait()
        return listing(*arguments)

    def opens(*arguments):
        both.wait()
        return opened(*arguments)

    monkeypatch.setattr(planning.FolderIndexes, "_listing", lists)
    monkeypatch.setattr(planning, "open_column", opens)
    look_up()


def test_a_page_of_the_index_is_read_once_for_a_lookup(people, monkeypatch):
    reads, original = [], column_index.ColumnIndex._read
    monkeypatch.setattr(column_index.ColumnIndex, "_read",
                        lambda *arguments: reads.append(1) or original(*arguments))
    assert with_read_table(people, [("ssn", "=", ssn(2))], "require").num_rows == 1
    assert len(reads) == 1


def test_files_that_the_index_skips_are_not_prepared(people, monkeypatch):
    made, original = [], DatasetFile.__init__
    monkeypatch.setattr(DatasetFile, "__init__", lambda self, *arguments: made.append(
        Path(arguments[1]).name) or original(self, *arguments))
    assert with_read_table(people, [("ssn", "=", ssn(2))], "require").num_rows == 1
    assert made == ["2.parquet"]


def test_without_the_key_of_the_column_the_index_is_not_used(people):
    some = InMemoryKms({"footer": b"f" * 16})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = secure_bloom.dataset(people, some)
        assert data.to_table(["n"], filter=pc.field("n") == 277).num_rows == 1
    with pytest.raises(KeyNotFoundError, match="pii"):
        data.to_table(filter=pc.field("ssn") == ssn(1))
    with pytest.raises(KeyNotFoundError, match="pii"):
        secure_bloom.dataset(people, some, index="require")


def damage(folder, suffix: str) -> None:
    for path in (folder / "_index" / "ssn").iterdir():
        if path.suffix == suffix:
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)


@pytest.mark.parametrize("suffix", [".seg", ".manifest"])
def test_a_damaged_index_is_not_used(people, suffix, monkeypatch):
    damage(people, suffix)
    for reader in READERS:
        with pytest.warns(IndexWarning, match="the index of column 'ssn'.*is not used"):
            assert reader(people, [("ssn", "=", ssn(3))], "auto").num_rows == 1
        with pytest.raises(SecureBloomError) as raised:
            reader(people, [("ssn", "=", ssn(3))], "require")
        assert "_index/ssn" in str(raised.value)


def test_segments_that_are_missing(people):
    for path in (people / "_index" / "ssn").glob("*.seg"):
        path.unlink()
    assert with_read_table(people, [("ssn", "=", ssn(3))], "auto").num_rows == 1


@pytest.mark.slow
def test_the_index_of_another_table_covers_nothing(people, tmp_path):
    other = tmp_path / "other"
    write_people(other, 2)
    shutil.copytree(people / "_index", other / "_index")
    assert_same(other, [ssn(0), ssn(1), ssn(3)])


# --- what readers were asked for -----------------------------------------------------------------

def test_a_folder_without_an_index(tmp_path):
    write_people(tmp_path / "p", 1)
    for source, error in ((tmp_path / "p", FileNotFoundError),
                          (f"{tmp_path}/p/*/*.parquet", FileNotFoundError),
                          (tmp_path / "p" / "day=0" / "0.parquet", UnsupportedError)):
        assert secure_bloom.dataset(source, KMS).count_rows() == 200
        with pytest.raises(error, match="index"):
            secure_bloom.dataset(source, KMS, index="require")
    with pytest.raises(ValueError, match='must be "auto", "off" or "require"'):
        secure_bloom.read_table(tmp_path, KMS, filters=[("ssn", "=", "x")], index="always")


def test_requirements_are_checked_in_every_file(people):
    secure_bloom.write_table(rows_of(60), people / "day=0" / "plain.parquet")
    for read in (secure_bloom.read_table, secure_bloom.dataset):
        with pytest.raises(SecureBloomError, match=r"plain\.parquet"):
            read(people, KMS, require_encryption=["ssn"],
                 **({"filters": [("ssn", "=", ssn(1))]} if read is secure_bloom.read_table else {}))
    (people / "day=0" / "plain.parquet").unlink()
    data = secure_bloom.dataset(people, KMS, require_encryption=["ssn"], index="require")
    assert data.to_table(filter=pc.field("ssn") == ssn(1)).num_rows == 1
    assert data.report.files.index == FILES - 1


def test_masked_columns_need_every_file(people):
    found = secure_bloom.read_table(people, InMemoryKms({"footer": b"f" * 16}),
                                    filters=[("n", "=", 277)], on_missing_key="null")
    assert found["ssn"].to_pylist() == [None]
    with pytest.raises(ValueError, match="on_missing_key"):
        secure_bloom.dataset(people, KMS, on_missing_key="null", index="require")


def test_explicit_keys_read_without_an_index(tmp_path):
    key = b"k" * 16
    table = pa.table({"a": [1, 2]})
    secure_bloom.write_table(table, tmp_path / "f.parquet", encryption=EncryptionConfiguration(
        "footer", {"pii": ["a"]}), keys=KMS)
    secure_bloom.index.build(tmp_path, "a", KMS)
    with pytest.raises(TypeError, match="KMS"):
        secure_bloom.dataset(tmp_path, ExplicitKeys(key), index="require")


def test_a_data_set_with_an_index_can_be_pickled(people):
    data = secure_bloom.dataset(people, KMS, index="require")
    again = pickle.loads(pickle.dumps(data))
    assert again.to_table(filter=pc.field("ssn") == ssn(1)).num_rows == 1
    assert again.report.files.index == FILES - 1


def test_duckdb_uses_the_index(people):
    duckdb = pytest.importorskip("duckdb")
    data = secure_bloom.dataset(people, KMS, index="require")
    found = duckdb.execute("SELECT n FROM data WHERE ssn = ?", [ssn(3)]).fetchall()
    assert found == [(rows_of(3)["n"][77].as_py(),)]
    assert data.report.files.index == FILES - 1


def test_tables_that_only_our_jobs_write_are_not_listed(tmp_path, monkeypatch):
    folder = tmp_path / "t"
    secure_bloom.write_dataset(rows_of(0), folder)
    secure_bloom.write_dataset(rows_of(1), folder, mode="append")
    secure_bloom.index.build(folder, "ssn", encryption=None, exclusive=True)
    listings = []
    own = planning.Table.listing
    monkeypatch.setattr(planning.Table, "listing",
                        lambda *arguments: listings.append(1) or own(*arguments))
    assert secure_bloom.read_table(folder, filters=[("ssn", "=", ssn(1))]).num_rows == 1
    assert listings == []
    secure_bloom.write_dataset(rows_of(2), folder, mode="append")
    assert secure_bloom.read_table(folder, filters=[("ssn", "=", ssn(2))]).num_rows == 1
    assert listings


@pytest.mark.slow
@pytest.mark.parametrize("is_merged_meanwhile", [False, True])
def test_merges_after_files_of_such_a_table_have_changed(tmp_path, monkeypatch,
                                                         is_merged_meanwhile):
    """A merge drops files with other stamps, which lookups without a listing would then miss."""
    for file in range(2):
        secure_bloom.write_dataset(rows_of(file), tmp_path, mode="append", row_group_size=50,
                                   encryption=ENCRYPTION, keys=KMS)
    secure_bloom.index.build(tmp_path, "ssn", KMS, exclusive=True)
    for path in tmp_path.glob("*.parquet"):
        secure_bloom.attach(path, ["ssn"], keys=KMS)
    index = Index.open(tmp_path, KMS)
    if is_merged_meanwhile:
        own = column_update.ColumnUpdate.finish

        def finish(self, *arguments):
            index.compact()
            own(self, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(column_update.ColumnUpdate, "finish", finish)
            index.update()
    else:
        index.compact()
    for _ in range(2):
        assert_same(tmp_path, [ssn(0), ssn(1), "absent"], [with_dataset])
        index.update()
    assert index.column("ssn").manifest.body.generation is not None


@pytest.mark.slow
def test_random_changes_between_lookups(tmp_path):
    seed = random.randrange(2**32)
    print("seed", seed)
    rnd = random.Random(seed)
    folder = tmp_path / "t"
    write_people(folder, 2)
    secure_bloom.index.build(folder, "ssn", KMS)
    index = secure_bloom.index.Index.open(folder, KMS)
    for step in range(15):
        paths = sorted(folder.glob("day=*/*.parquet"))
        path, file = rnd.choice(paths), rnd.randrange(20)
        match rnd.choice(["write", "write", "delete", "copy", "touch", "update", "compact"]):
            case "write":
                write_file(folder / f"day={rnd.randrange(2)}" / f"{rnd.randrange(9)}.parquet",
                           rows_of(file, rnd.choice([60, 200])))
            case "delete" if len(paths) > 1:
                path.unlink()
            case "copy":
                shutil.copy2(path, folder / "day=1" / f"copy{step}.parquet")
            case "touch":
                os.utime(path, ns=(time.time_ns(), time.time_ns()))
            case "update":
                index.update()
            case "compact":
                index.compact()
        for value in [ssn(rnd.randrange(20), rnd.randrange(200)) for _ in range(3)]:
            assert_same(folder, [value], [rnd.choice(READERS[:3])])


@pytest.mark.slow
def test_readers_import_the_index_only_for_filters_on_folders(people):
    path, folder = people / "day=0" / "2.parquet", people
    code = f"""
import sys, secure_bloom
from tests.counting import CountingHandler
from tests.datasets.people import KMS
def imported():
    return any(name.startswith("secure_bloom.index") for name in sys.modules)
secure_bloom.read_table({str(path)!r}, KMS, filters=[("n", "=", 1)])
secure_bloom.read_table({str(folder)!r}, KMS)
assert not imported()
secure_bloom.read_table({str(folder)!r}, KMS, filters=[("n", "=", 1)])
assert imported()
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
