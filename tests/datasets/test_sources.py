"""Which files a data set consists of, and their common schema."""

import os

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pytest

import secure_bloom
from secure_bloom.datasets import sources
from secure_bloom.errors import FormatError, UnsupportedError
from secure_bloom.storage.commit import Job
from secure_bloom.storage.visibility import data_files
from tests.counting import CountingHandler
from tests.datasets.people import KMS, rows_of, write_file, write_people


def numbers(dataset) -> list[int]:
    """The numbers of the files in a data set of :func:`.people.write_people`."""
    return sorted({n // 200 for n in dataset.to_table(["n"])["n"].to_pylist()})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("people")
    write_people(folder, 4)
    return folder


SOURCES = {
    "a file": ("day=0/2.parquet", [2], False),
    "a folder": ("", [0, 1, 2, 3], True),
    "a folder of a partition": ("day=1", [1, 3], False),
    "a pattern of files": ("day=0/*.parquet", [0, 2], True),
    "a pattern of folders": ("day=*", [0, 1, 2, 3], True),
    "a pattern across folders": ("**/[12].parquet", [1, 2], True),
    "a pattern of one character": ("day=?/3.parquet", [3], True),
}


@pytest.mark.parametrize("name", SOURCES)
def test_paths_and_patterns(folder, name):
    path, expected, has_partition = SOURCES[name]
    dataset = secure_bloom.dataset(folder / path, KMS)
    assert numbers(dataset) == expected
    assert ("day" in dataset.schema.names) == has_partition
    if has_partition:
        days = {number % 2 for number in expected}
        assert set(dataset.to_table(["day"])["day"].to_pylist()) == days


def test_a_pattern_lists_only_the_partition_that_it_names(folder, monkeypatch):
    listed = []
    monkeypatch.setattr(sources, "data_files", lambda filesystem, path: listed.append(path) or
                        data_files(filesystem, path))
    assert numbers(secure_bloom.dataset(folder / "day=1/*.parquet", KMS)) == [1, 3]
    assert listed == [str(folder / "day=1")]


def test_lists_of_files_folders_and_patterns(folder):
    dataset = secure_bloom.dataset([folder / "day=0", f"{folder}/day=1/3*"], KMS)
    assert numbers(dataset) == [0, 2, 3]
    assert dataset.count_rows(pc.field("day") == 1) == 200
    twice = secure_bloom.dataset([folder / "day=0", folder / "day=0/0.parquet"], KMS)
    assert twice.count_rows() == 400


def test_uris_and_filesystems(folder):
    assert numbers(secure_bloom.dataset(f"file://{folder}/day=0/*", KMS)) == [0, 2]
    filesystem = pa_fs.SubTreeFileSystem(str(folder), pa_fs.LocalFileSystem())
    assert numbers(secure_bloom.dataset("day=0", KMS, filesystem=filesystem)) == [0, 2]
    counting = pa_fs.PyFileSystem(CountingHandler())
    assert numbers(secure_bloom.dataset(str(folder), KMS, filesystem=counting)) == [0, 1, 2, 3]


def test_a_name_with_wildcards_that_exists_is_that_file(tmp_path):
    write_file(tmp_path / "a[1].parquet", rows_of(0))
    write_file(tmp_path / "a1.parquet", rows_of(1))
    assert numbers(secure_bloom.dataset(tmp_path / "a[1].parquet", KMS)) == [0]
    assert numbers(secure_bloom.dataset(tmp_path / "a[!2].parquet", KMS)) == [1]


@pytest.mark.parametrize(("source", "error", "message"), [
    ("none", FileNotFoundError, "none"), ("none/*.parquet", FileNotFoundError, "matches"),
    ([], FileNotFoundError, "empty"), ([1], TypeError, "int"), (1, TypeError, "DeltaTable"),
    ("empty", FileNotFoundError, "no Parquet files")])
def test_sources_without_files(tmp_path, source, error, message):
    (tmp_path / "empty").mkdir()
    if isinstance(source, str):
        source = tmp_path / source
    with pytest.raises(error, match=message):
        secure_bloom.dataset(source)


def test_files_that_are_not_committed_are_not_matched(tmp_path):
    write_file(tmp_path / "t" / "a.parquet", rows_of(0))
    job = Job(pa_fs.LocalFileSystem(), str(tmp_path / "t"), overwrite=True)
    job.start()
    path = job.new_file(0)
    secure_bloom.write_table(rows_of(1), path)
    for source in (tmp_path / "t", tmp_path / "t" / "*.parquet", tmp_path / "*"):
        assert numbers(secure_bloom.dataset(source, KMS)) == [0]
    job.commit([job.staged(path, 200)])
    for source in (tmp_path / "t", tmp_path / "t" / "*.parquet", tmp_path / "*"):
        assert numbers(secure_bloom.dataset(source, KMS)) == [1]


# --- tables --------------------------------------------------------------------------------------

def test_the_live_files_of_a_delta_table(tmp_path):
    deltalake = pytest.importorskip("deltalake")
    path = str(tmp_path / "t")
    deltalake.write_deltalake(path, pa.table({"p": ["a", "b"], "n": [1, 2]}), partition_by=["p"])
    deltalake.write_deltalake(path, pa.table({"p": ["a"], "n": [3]}), mode="overwrite",
                              partition_by=["p"])
    table = deltalake.DeltaTable(path)
    with pytest.raises(UnsupportedError, match="Delta Lake"):
        secure_bloom.dataset(path)
    dataset = secure_bloom.dataset(table)
    assert dataset.to_table().to_pydict() == {"n": [3], "p": ["a"]}
    assert secure_bloom.dataset(path, all_files=True).count_rows() == 3
    assert secure_bloom.dataset(deltalake.DeltaTable(path, version=0)).count_rows() == 2


def test_a_delta_table_that_files_alone_do_not_describe_is_refused(tmp_path):
    class Table:
        """What a DeltaTable with deletion vectors says; delta-rs cannot write one."""

        def protocol(self):
            deltalake = pytest.importorskip("deltalake")
            path = str(tmp_path / "t")
            deltalake.write_deltalake(path, pa.table({"n": [1]}), mode="overwrite")
            protocol = deltalake.DeltaTable(path).protocol()
            return type(protocol)(3, 7, ["deletionVectors"], ["deletionVectors"])

        def file_uris(self):
            raise AssertionError

    with pytest.raises(UnsupportedError, match="deletionVectors"):
        secure_bloom.dataset(Table())


@pytest.mark.slow
def test_the_live_files_of_an_iceberg_table(tmp_path):
    catalogs = pytest.importorskip("pyiceberg.catalog.sql")
    catalog = catalogs.SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db",
                                  warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("n")
    rows = pa.table({"n": [1, 2, 3], "s": ["a", "b", "c"]})
    table = catalog.create_table("n.t", rows.schema)
    table.append(rows)
    table.overwrite(rows.slice(1))
    assert secure_bloom.dataset(table).to_table().sort_by("n").equals(rows.slice(1))
    assert secure_bloom.dataset(table.scan(row_filter="n = 3")).count_rows() <= 2


@pytest.mark.slow
def test_iceberg_records_paths_that_are_not_percent_encoded(tmp_path):
    catalogs = pytest.importorskip("pyiceberg.catalog.sql")
    from pyiceberg.transforms import IdentityTransform
    catalog = catalogs.SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db",
                                  warehouse=f"file://{tmp_path}/a b%41")
    catalog.create_namespace("a")
    rows = pa.table({"p": ["a b", "c%20d", "e+f", "g/h?#", "é"], "n": [1, 2, 3, 4, 5]})
    table = catalog.create_table("a.b", rows.schema)
    with table.update_spec() as update:
        update.add_field("p", IdentityTransform())
    table.append(rows)
    assert secure_bloom.dataset(table).to_table()["n"].to_pylist() == [1, 2, 3, 4, 5]


# --- schemas -------------------------------------------------------------------------------------

def test_columns_that_a_file_lacks_are_null(tmp_path):
    write_file(tmp_path / "a.parquet", pa.table({"a": [1]}), encryption=None, keys=None)
    write_file(tmp_path / "b.parquet", pa.table({"b": ["x"]}), encryption=None, keys=None)
    dataset = secure_bloom.dataset(tmp_path)
    assert dataset.to_table().to_pydict() == {"a": [1, None], "b": [None, "x"]}
    assert dataset.to_table(filter=pc.field("b").is_null()).to_pydict() == {"a": [1], "b": [None]}
    assert dataset.explain([("b", "==", "x")]).files.read == 1


PAIRS = {
    "int32 and int64": (pa.int32(), pa.int64(), 5, 2**40),
    "uint8 and int64": (pa.uint8(), pa.int64(), 200, -1),
    "float and double": (pa.float32(), pa.float64(), 0.1, 0.1),
    "string and large_string": (pa.string(), pa.large_string(), "a", "b"),
    "binary and large_binary": (pa.binary(), pa.large_binary(), b"a", b"b"),
    "timestamps": (pa.timestamp("ms"), pa.timestamp("us"), 1000, 1),
    "decimals": (pa.decimal128(5, 2), pa.decimal128(12, 4), "1.25", "1.2345"),
    "lists": (pa.list_(pa.int32()), pa.list_(pa.int64()), [1, 2], [2**40]),
    "structs": (pa.struct([("x", pa.int32())]), pa.struct([("x", pa.int64()), ("y", pa.int8())]),
                {"x": 1}, {"x": 2**40, "y": 3}),
}


@pytest.mark.parametrize("name", PAIRS)
def test_types_of_which_one_holds_the_values_of_the_other(tmp_path, name):
    narrow, wide, small, large = PAIRS[name]
    if pa.types.is_decimal(narrow):
        from decimal import Decimal
        small, large = Decimal(small), Decimal(large)
    values = [pa.array([small], narrow), pa.array([large], wide)]
    for number, array in enumerate(values):
        write_file(tmp_path / f"{number}.parquet", pa.table({"c": array}), encryption=None,
                   keys=None)
    expected = [{"x": None, "y": None} | array[0].as_py() if pa.types.is_struct(wide)
                else array.cast(wide)[0].as_py() for array in values]
    for table in (secure_bloom.dataset(tmp_path).to_table(), secure_bloom.read_table(tmp_path)):
        assert table.schema.field("c").type == wide
        assert table["c"].to_pylist() == expected
    if not pa.types.is_nested(wide):
        for array in values:
            value = array.cast(wide)[0]
            for filter_ in (pc.field("c") == value, [("c", "==", value)]):
                found = secure_bloom.dataset(tmp_path).to_table(filter=filter_)
                assert value in found["c"].to_pylist() or value.as_py() in found["c"].to_pylist()


@pytest.mark.parametrize(("one", "other"), [
    (pa.int64(), pa.float64()), (pa.string(), pa.int32()), (pa.int64(), pa.decimal128(10, 2)),
    (pa.timestamp("us"), pa.timestamp("us", "UTC")), (pa.date32(), pa.timestamp("us"))])
def test_types_whose_values_would_change_are_refused_and_the_file_is_named(tmp_path, one, other):
    for number, t in enumerate((one, one, other)):
        pq.write_table(pa.table({"c": pa.nulls(1, t)}), tmp_path / f"{number}.parquet")
    for read in (secure_bloom.dataset, secure_bloom.read_table):
        with pytest.raises(UnsupportedError) as error:
            read(tmp_path)
        assert error.value.file == f"{tmp_path}/2.parquet"


def test_a_schema_of_ones_own(tmp_path):
    write_file(tmp_path / "a.parquet", pa.table({"c": [7, 3], "d": ["x", "y"]}),
               encryption=None, keys=None)
    schema = pa.schema([("c", pa.float64()), ("e", pa.int8())])
    dataset = secure_bloom.dataset(tmp_path, schema=schema)
    assert dataset.schema.equals(schema)
    assert dataset.to_table().to_pydict() == {"c": [7.0, 3.0], "e": [None, None]}
    assert dataset.to_table(["c"], [("c", "==", 3)])["c"].to_pylist() == [3.0]
    assert dataset.to_table(["c"], pc.field("c") == 3.0)["c"].to_pylist() == [3.0]


@pytest.mark.parametrize("t", [pa.float64(), pa.int32()])
def test_values_that_do_not_fit_the_schema_are_not_a_damaged_file(tmp_path, t):
    path = tmp_path / "a.parquet"
    write_file(path, pa.table({"c": [2**53 + 1, 3]}), encryption=None, keys=None)
    dataset = secure_bloom.dataset(tmp_path, schema=pa.schema([("c", t)]))
    for filter_ in (None, [("c", ">", 1)], pc.field("c") > 1):
        with pytest.raises(UnsupportedError, match="do not fit") as error:
            dataset.to_table(filter=filter_)
        assert error.value.file == str(path)


# --- folders of a hostile author -----------------------------------------------------------------

@pytest.mark.parametrize("links", [{"loop": "."}, {"one": ".", "other": "."},
                                   {"a/to_b": "b", "b/to_a": "a"}, {"a/up": ".."}])
@pytest.mark.parametrize("source", ["", "**/*.parquet"])
def test_links_in_a_circle_are_refused_instead_of_read_many_times(tmp_path, links, source):
    folder = tmp_path / "folder"
    for name in ("a", "b"):
        write_file(folder / name / "0.parquet", rows_of(0))
    for link, target in links.items():
        (folder / link).symlink_to(folder / target, target_is_directory=True)
    with pytest.raises(UnsupportedError, match="circle"):
        secure_bloom.dataset(f"{folder}/{source}", KMS)


def test_links_to_other_folders_are_followed(tmp_path):
    write_file(tmp_path / "elsewhere/0.parquet", rows_of(0))
    for name in ("x", "y"):
        (tmp_path / "folder" / name).mkdir(parents=True)
        (tmp_path / "folder" / name / "link").symlink_to(tmp_path / "elsewhere")
    assert secure_bloom.dataset(tmp_path / "folder", KMS).count_rows() == 400
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert secure_bloom.dataset(tmp_path / "link", KMS).count_rows() == 200


def test_a_pipe_is_skipped_in_a_folder_and_refused_by_its_name(tmp_path):
    write_file(tmp_path / "0.parquet", rows_of(0))
    os.mkfifo(tmp_path / "pipe.parquet")
    assert secure_bloom.dataset(tmp_path, KMS).count_rows() == 200
    holder = os.open(tmp_path / "pipe.parquet", os.O_RDWR)  # so that nothing can wait for a writer
    try:
        for read in (secure_bloom.dataset, secure_bloom.ParquetFile):
            with pytest.raises(UnsupportedError, match="pipe"):
                read(tmp_path / "pipe.parquet")
    finally:
        os.close(holder)


def test_names_that_are_not_valid_utf_8_are_named(tmp_path):
    write_file(tmp_path / "0.parquet", rows_of(0))
    with open(os.fsencode(tmp_path) + b"/\xff.txt", "wb"):
        pass
    with pytest.raises(UnsupportedError, match=r"\\xff.txt"):
        secure_bloom.dataset(tmp_path, KMS)
    (tmp_path / "partition").mkdir()
    write_file(tmp_path / "partition/a=%FF/0.parquet", rows_of(0))
    with pytest.raises(UnsupportedError, match="%FF"):
        secure_bloom.dataset(tmp_path / "partition", KMS)


def test_names_with_control_characters_are_read_and_escaped_in_errors(tmp_path):
    write_file(tmp_path / "a\n\x1b[31m*.parquet", rows_of(0))
    assert secure_bloom.dataset(tmp_path, KMS).count_rows() == 200
    (tmp_path / "b\n\x1b[31m.parquet").write_bytes(b"PAR1 but not quite PAR1")
    with pytest.raises(FormatError) as caught:
        secure_bloom.dataset(tmp_path, KMS)
    assert "b\\n\\x1b[31m.parquet" in str(caught.value)


def test_patterns_with_many_wildcards_are_matched_in_few_steps(monkeypatch):
    calls = []
    monkeypatch.setattr(sources, "fnmatchcase",
                        lambda name, part: calls.append(name) or name == part)
    pattern = ["**", "a"] * 8 + ["**", "b", "c"]
    names = ["a"] * 20
    assert not sources._is_matched("/".join(names), [*pattern, *["d"] * 10])
    assert len(calls) <= len(names) * (len(pattern) + 10)


@pytest.mark.parametrize("pattern, matching, others", [
    ("**/a", ["a", "x/a", "x/y/a", "x/a/y"], ["b", "x/ab"]),
    ("a/**", ["a", "a/b", "a/b/c"], ["b/a"]),
    ("a/**/b", ["a/b", "a/x/b", "a/x/y/b/z"], ["a", "x/a/b", "ab"]),
    ("*/b", ["a/b", "a/b/c"], ["b", "a/c/b"]),
    ("**/**", ["a", "a/b"], [])])
def test_what_a_pattern_matches(pattern, matching, others):
    parts = pattern.split("/")
    assert [name for name in [*matching, *others] if sources._is_matched(name, parts)] == matching
