"""Reading: filters, answers, row groups that are skipped, folders, and what is wrong."""

import datetime
import io
import uuid
from functools import partial
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

import secure_bloom
from secure_bloom import (
    ExplicitKeys,
    ParquetFile,
    UniformKey,
    read_table,
    write_table,
)
from secure_bloom.errors import (
    AuthenticationError,
    ColumnError,
    FormatError,
    KeyNotFoundError,
    UnknownColumnError,
    UnsupportedError,
)
from secure_bloom.keys import InMemoryKms
from secure_bloom.parquet import thrift
from secure_bloom.parquet.footer import Footer
from secure_bloom.reading.open_file import OpenFile
from tests.cases import for_each
from tests.support import FOOTER_KEY, MASTER_KEYS, MODES, encryptions, footer_parts, kms

COUNT = 120
TABLE = pa.table({
    "a": pa.array([None if i % 10 == 9 else i for i in range(COUNT)]),
    "city": [f"city {i // 10}" for i in range(COUNT)],
    "day": [datetime.date(2020, 1, 1) + datetime.timedelta(i) for i in range(COUNT)],
    "real": np.arange(COUNT) / 2,
    "flag": [i % 2 == 0 for i in range(COUNT)],
    "s": [{"x": i} if i % 7 else None for i in range(COUNT)],
    "l": [[i, -i] for i in range(COUNT)]})
FILTERED = ["a", "city", "day", "real", "s.x", "l.list.element"]
ENCRYPTED = pe.EncryptionConfiguration("mf", column_keys={"mc": ["a"]})
READABLE = pe.EncryptionConfiguration("mf", column_keys={"mc": ["a"]}, plaintext_footer=True)


def written(encryption=None, keys=None, table=TABLE, columns=FILTERED, **options) -> bytes:
    sink = io.BytesIO()
    write_table(table, sink, bloom_filters=dict.fromkeys(columns, True), encryption=encryption,
                keys=keys, row_group_size=30, **options)
    return sink.getvalue()


@pytest.fixture(scope="module", params=MODES)
def opened(request) -> ParquetFile:
    """The same table, plain and encrypted in every way."""
    encryption, kms, keys = encryptions("a")[request.param]
    return ParquetFile(written(encryption, kms), keys)


PLAIN = written()

# --- what a file says ----------------------------------------------------------------------------


def test_a_file_describes_itself(opened):
    assert (opened.num_rows, opened.num_row_groups) == (COUNT, 4)
    assert [column.path for column in opened.columns] == [
        "a", "city", "day", "real", "flag", "s.x", "l.list.element"]
    assert opened.schema.equals(TABLE.schema)
    assert [(info.row_group, info.column) for info in opened.bloom_filters] \
        == [(group, column) for group in range(4) for column in FILTERED]
    assert opened.columns_without_key == []
    assert repr(opened) == "<ParquetFile <buffer>: 4 row groups, 120 rows>"


def test_a_filter_knows_its_type(opened):
    filter_ = opened.read_bloom_filter(1, "day")
    assert str(filter_.column_type) == "INT32 date32[day]"
    assert filter_.check(datetime.date(2020, 2, 1)) is True
    assert filter_.check(datetime.date(2021, 1, 1)) is False
    assert opened.read_bloom_filter(1, "flag") is None


@pytest.mark.parametrize("column", ["z", "s", "l", "A", ""])
def test_unknown_columns_name_column_and_file(column):
    file = ParquetFile(PLAIN)
    for use in (lambda: file.read_bloom_filter(0, column), lambda: file.might_contain(column, 1),
                lambda: file.read(filters=[(column, "==", 1)])):
        with pytest.raises(ColumnError) as caught:
            use()
        assert (caught.value.file, caught.value.column) == ("<buffer>", column)


# --- might_contain -------------------------------------------------------------------------------

@for_each(("values", "expected"), [
    (5, [[True], [False], [False], [False]]),
    ([5, 45, 500, None], [[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1]]),
    (pa.array([65], pa.int8()), [[0], [0], [1], [0]]),
    (pa.chunked_array([[5], [], [118]]), [[1, 0], [0, 0], [0, 0], [0, 1]]),
    (np.array([5, 118]), [[1, 0], [0, 0], [0, 0], [0, 1]]),
    (pa.scalar(5), [[1], [0], [0], [0]]),
    ([5, "text", 2.5], [[1, 1, 1], [0, 1, 1], [0, 1, 1], [0, 1, 1]]),
    ([], [[], [], [], []]), (pa.chunked_array([], pa.int64()), [[], [], [], []]),
    (None, [[1]] * 4), ("text", [[1]] * 4), (2**64, [[1]] * 4), (object(), [[1]] * 4),
    (uuid.UUID(int=1), [[1]] * 4),
])
def test_answers_have_a_row_for_each_row_group(opened, values, expected):
    answers = opened.might_contain("a", values)
    assert answers.dtype == bool
    assert answers.shape == (4, len(expected[0]))
    assert answers.tolist() == expected


def test_a_column_without_filters_rules_nothing_out(opened):
    assert opened.might_contain("flag", [True, 5]).tolist() == [[True, True]] * 4


# --- prune and read ------------------------------------------------------------------------------

PRUNED = [
    ([("a", "==", 5)], [0]),
    ([("a", "=", 500)], []),
    ([("a", "in", [5, 118, 700])], [0, 3]),
    ([("a", "in", [])], []),
    ([("a", "==", None)], []),
    ([("a", ">", 100)], [3]),
    ([("a", "<", 30)], [0]),
    ([("city", "==", "city 4"), ("real", "==", 22.0)], [1]),
    ([("city", "==", "city 4"), ("a", ">=", 47)], [1]),
    ([("city", "==", "city 4"), ("a", "==", 5)], []),
    ([[("a", "==", 5)], [("day", "==", datetime.date(2020, 4, 20))]], [0, 3]),
    ([[("a", "==", 500)], [("flag", "==", True)]], [0, 1, 2, 3]),
    ([("s.x", "==", 41)], [1]),
    ([("a", "==", 5.0)], [0, 1, 2, 3]),
    ([("real", "==", 30)], [2]),
    ([("real", "==", -0.0)], [0]),
    ([("a", "!=", 5)], [0, 1, 2, 3]),
    ([("a", "not in", [5])], [0, 1, 2, 3]),
]


@pytest.mark.slow
@for_each(("filters", "row_groups"), PRUNED)
def test_pruning_and_reading(opened, filters, row_groups):
    assert opened.prune(filters) == row_groups
    own = {"[('s.x', '==', 41)]": pc.field("s", "x") == 41,
           "[('a', 'not in', [5])]": pc.field("a") != 5}  # pyarrow lets null match
    expected = TABLE.filter(own[str(filters)]) if str(filters) in own \
        else pq.read_table(io.BytesIO(PLAIN), filters=filters)
    assert opened.read(filters=filters).equals(expected)
    assert opened.read(["city"], filters=filters).equals(expected.select(["city"]))
    parts = list(opened.iter_tables(filters=filters))
    assert len(parts) == len(row_groups)
    assert pa.concat_tables([expected.slice(0, 0), *parts]).equals(expected)


def test_batches(opened):
    batches = list(opened.iter_batches(batch_rows=7))
    assert max(batch.num_rows for batch in batches) <= 7
    assert pa.Table.from_batches(batches).equals(TABLE)
    some = pa.Table.from_batches(opened.iter_batches(["city"], [1, 3]))
    assert some.equals(pa.concat_tables([TABLE.slice(30, 30), TABLE.slice(90, 30)])
                       .select(["city"]).combine_chunks())
    assert sum(batch.num_rows for batch in opened.iter_batches([])) == 120
    assert list(opened.iter_batches(row_groups=[])) == []


def test_reading_everything(opened):
    assert opened.read().equals(TABLE)
    assert opened.read(["a", "flag"]).equals(TABLE.select(["a", "flag"]))
    assert [part.num_rows for part in opened.iter_tables()] == [30] * 4


def test_row_groups_that_are_ruled_out_are_not_touched():
    data = bytearray(PLAIN)
    metadata = pq.read_metadata(io.BytesIO(PLAIN))
    for group in (0, 2, 3):
        for number in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(number)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            data[start:start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    file = ParquetFile(bytes(data))
    assert file.read(filters=[("a", "==", 45)]).equals(TABLE.slice(45, 1))
    with pytest.raises(FormatError, match="pyarrow cannot read"):
        file.read()


@pytest.mark.parametrize("filters", [[], "a == 5", [("a", "~", 5)], [[]]], ids=str)
def test_what_is_no_filter_is_refused(filters):
    for use in (ParquetFile(PLAIN).prune, lambda f: ParquetFile(PLAIN).read(filters=f)):
        with pytest.raises((TypeError, ValueError)):
            use(filters)


def test_filters_by_arrow_cpp():
    sink = io.BytesIO()
    pq.write_table(TABLE, sink, row_group_size=30, write_page_index=True, bloom_filter_options={
        "a": {"ndv": 30, "fpp": 0.001}, "city": {"ndv": 1000}})
    file = ParquetFile(sink.getvalue())
    assert [info.column for info in file.bloom_filters] == ["a", "city"] * 4
    assert file.prune([("a", "==", 45)]) == [1]
    assert file.read(filters=[("city", "==", "city 11")]).num_rows == 10


# --- sources -------------------------------------------------------------------------------------

def test_sources_of_every_kind(tmp_path):
    path = tmp_path / "x.parquet"
    path.write_bytes(PLAIN)
    with open(path, "rb") as file, pa.memory_map(str(path)) as mapped:
        for source in (path, str(path), path.as_uri(), PLAIN, bytearray(PLAIN), memoryview(PLAIN),
                       pa.py_buffer(PLAIN), pa.BufferReader(PLAIN), io.BytesIO(PLAIN), file,
                       mapped):
            assert ParquetFile(source).read(filters=[("a", "==", 45)]).num_rows == 1
            assert read_table(source, filters=[("a", "==", 45)], columns=["a"]).num_rows == 1
        assert not file.closed
    folder = pa_fs.SubTreeFileSystem(str(tmp_path), pa_fs.LocalFileSystem())
    assert ParquetFile("x.parquet", filesystem=folder).read().equals(TABLE)


def test_a_missing_file_and_a_folder_are_reported_in_plain_words(tmp_path):
    with pytest.raises(FileNotFoundError) as missing:
        ParquetFile(tmp_path / "x.parquet")
    assert str(missing.value) == f"there is no file {tmp_path}/x.parquet"
    with pytest.raises(IsADirectoryError) as folder:
        ParquetFile(tmp_path)
    assert str(folder.value) == f"{tmp_path} is a folder; specify one of its files"


def test_a_slash_at_the_start_of_a_path_means_the_root_of_a_subtree(tmp_path):
    (tmp_path / "inner").mkdir()
    outer = pa_fs.SubTreeFileSystem(str(tmp_path), pa_fs.LocalFileSystem())
    root = pa_fs.SubTreeFileSystem("/inner", outer)
    write_table(TABLE, "/x.parquet", filesystem=root)
    assert (tmp_path / "inner/x.parquet").exists()
    assert read_table("/x.parquet", filesystem=root).equals(TABLE)
    assert read_table("/", filesystem=root).equals(TABLE)


def test_relative_paths(tmp_path, monkeypatch):
    (tmp_path / "x").write_bytes(PLAIN)
    monkeypatch.chdir(tmp_path)
    assert ParquetFile("x").name == str(tmp_path / "x")
    assert read_table("x").equals(TABLE)


@pytest.mark.parametrize("source", [5, None, ["x"], object(), SimpleNamespace(seek=None),
                                    SimpleNamespace(read=None)])
def test_other_sources_are_refused(source):
    with pytest.raises(TypeError, match="source must be"):
        ParquetFile(source)


def test_closing(tmp_path):
    (tmp_path / "x").write_bytes(PLAIN)
    with ParquetFile(tmp_path / "x") as file:
        pass
    with pytest.raises(ValueError, match="closed"):
        file.read_bloom_filter(0, "a")
    source = io.BytesIO(PLAIN)
    with ParquetFile(source):
        pass
    assert not source.closed


# --- missing and wrong keys ----------------------------------------------------------------------

def test_a_plaintext_footer_leaves_plain_columns_to_everyone():
    data = written(READABLE, kms())
    for keys in (None, InMemoryKms({"mf": MASTER_KEYS["mf"]})):
        file = ParquetFile(data, keys)
        assert file.read(["city", "real"], filters=[("city", "==", "city 4")]).num_rows == 10
        assert file.prune([("city", "==", "city 4")]) == [1]
        assert [info.num_bytes for info in file.bloom_filters if info.column == "a"] == [None] * 4
        assert file.columns_without_key == []
        with pytest.raises(KeyNotFoundError) as caught:
            file.might_contain("a", 5)
        assert (caught.value.file, caught.value.row_group, caught.value.column) \
            == ("<buffer>", 0, "a")
        with pytest.raises((KeyNotFoundError, AuthenticationError)):
            file.read(["a"])


def test_an_encrypted_footer_hides_columns_without_their_keys():
    whole = ParquetFile(written(ENCRYPTED, kms()), kms())
    file = ParquetFile(written(ENCRYPTED, kms()), InMemoryKms({"mf": MASTER_KEYS["mf"]}))
    assert file.columns_without_key == ["a"]
    assert len(file.bloom_filters) == len(whole.bloom_filters) - 4
    assert file.read(["city"], filters=[("city", "==", "city 4")]).num_rows == 10
    with pytest.raises(KeyNotFoundError, match="'mc'"):
        file.might_contain("a", 5)


def explicit(data: bytes, *columns: str) -> ExplicitKeys:
    """The data keys of a file, as someone may be given them."""
    file = OpenFile(data, kms())
    retriever, footer = file.keys, file.footer
    column_keys = {chunk.column.path: retriever.column_key(chunk.column.path, chunk.key_metadata)
                   for chunk in footer.row_groups[0] if chunk.column.path in columns}
    return ExplicitKeys(retriever.footer_key(footer.footer_key_metadata), column_keys)


@pytest.mark.parametrize("encryption", [ENCRYPTED, READABLE])
def test_explicit_keys_of_columns(tmp_path, encryption):
    """pyarrow has no interface for them."""
    data = written(encryption, kms())
    (tmp_path / "x").write_bytes(data)
    for source in (data, tmp_path / "x"):
        file = ParquetFile(source, explicit(data, "a"))
        assert file.read().equals(TABLE)
        assert file.read(filters=[("a", "==", 45)]).equals(TABLE.slice(45, 1))
        less = ParquetFile(source, explicit(data))
        assert less.read(["city"]).equals(TABLE.select(["city"]))
        for use in (lambda file=less: file.read(["a"]),
                    lambda file=less: file.might_contain("a", 5)):
            with pytest.raises(KeyNotFoundError) as caught:
                use()
            assert caught.value.column == "a"


def test_wrong_explicit_keys():
    data = written(ENCRYPTED, kms())
    keys = ExplicitKeys(explicit(data).footer_key(None), {"a": b"?" * 16})
    for use in (lambda: ParquetFile(data, keys).read(["a"]),
                lambda: ParquetFile(data, keys).might_contain("a", 5)):
        with pytest.raises(AuthenticationError):
            use()


def test_keys_must_be_keys():
    with pytest.raises(TypeError, match="KmsClient or ExplicitKeys"):
        ParquetFile(PLAIN, b"x" * 16)


def test_keys_for_a_file_that_needs_none():
    """With a KMS it is read, as Spark does; explicit keys refuse it, as those of Arrow do."""
    for keys in (kms(), ExplicitKeys(FOOTER_KEY, plaintext_files_allowed=True)):
        assert ParquetFile(PLAIN, keys).read(filters=[("a", "==", 45)]).num_rows == 1
    for keys in (ExplicitKeys(FOOTER_KEY), ExplicitKeys(column_keys={"a": FOOTER_KEY})):
        with pytest.raises(AuthenticationError, match="plaintext_files_allowed"):
            ParquetFile(PLAIN, keys)


# --- what is wrong with a file -------------------------------------------------------------------

@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1PAR1", bytes(100), PLAIN[:-1], PLAIN[4:-1],
                                  b"PAR1" + b"\xff\xff\xff\x7f" + b"PAR1",
                                  b"PAR1" + b"\0\0\0\0" + b"PAR1"], ids=range(8))
def test_what_is_no_parquet_file(tmp_path, data):
    (tmp_path / "x").write_bytes(data)
    for source in (data, tmp_path / "x"):
        with pytest.raises(FormatError) as caught:
            ParquetFile(source)
        assert caught.value.file in ("<buffer>", str(tmp_path / "x"))


def test_large_footers_are_read_whole():
    table = pa.table({f"column {i}": [i] for i in range(800)})
    data = written(table=table, columns=["column 700"])
    assert len(footer_parts(data)[0]) > 65536
    assert ParquetFile(data).prune([("column 700", "==", 5)]) == []


def changed(change) -> ParquetFile:
    """The plain file with its footer changed."""
    content, magic = footer_parts(PLAIN)
    footer = Footer(content, magic)
    change(footer)
    return ParquetFile(PLAIN[:-8 - len(content)] + footer.to_bytes())


def test_filters_elsewhere_and_without_length():
    def drop_lengths(footer):
        for chunk in footer.column_chunks():
            chunk.metadata_to_change()[0].remove(15)

    file = changed(drop_lengths)
    assert {info.length for info in file.bloom_filters} == {None}
    assert file.might_contain("a", [5, 45]).tolist() == [[1, 0], [0, 1], [0, 0], [0, 0]]


def test_pages_that_do_not_decrypt():
    data = bytearray(written(UniformKey(FOOTER_KEY)))
    data[20] ^= 1
    with pytest.raises(AuthenticationError, match="pages"):
        ParquetFile(bytes(data), ExplicitKeys(FOOTER_KEY)).read()


# --- folders -------------------------------------------------------------------------------------

@pytest.fixture(params=["plain", "column keys", "key"])
def folder(request, tmp_path):
    """A folder of Hive partitions, one encrypted in every mode, and hidden files."""
    encryption, client, keys = encryptions("a")[request.param]
    for year in (2020, 2021):
        for part in range(2):
            path = tmp_path / f"year={year}" / "zone=north & south" / f"{part}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(written(encryption, client, TABLE.slice(60 * part, 60)))
    for hidden in ("_SUCCESS", ".x.tmp", "year=2020/_temporary/x", "year=2020/.hidden/y"):
        path = tmp_path / hidden
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"no Parquet")
    return tmp_path, keys


def test_a_folder_is_read_with_its_partitions(folder):
    path, keys = folder
    table = read_table(path, keys=keys)
    assert table.num_rows == 4 * 60
    assert table.schema.names == [*TABLE.schema.names, "year", "zone"]
    assert set(table["year"].to_pylist()) == {2020, 2021}
    assert set(table["zone"].to_pylist()) == {"north & south"}
    assert table.filter(pc.field("year") == 2021).select(TABLE.schema.names).equals(TABLE)
    assert read_table(f"{path}/", keys=keys, columns=["year", "a"]).num_rows == 240


@pytest.mark.parametrize(("filters", "rows"), [
    ([("a", "==", 45)], 2), ([("a", "==", 45), ("year", "==", 2020)], 1),
    ([("year", "==", 2020)], 120), ([("year", "==", 1999)], 0), ([("a", "==", 500)], 0),
    ([[("a", "==", 45)], [("year", "==", 2021), ("city", "==", "city 11")]], 12),
    ([("zone", "in", ["north & south"]), ("a", "in", [1, 118])], 4)], ids=str)
def test_a_folder_is_filtered(folder, filters, rows):
    path, keys = folder
    assert read_table(path, keys=keys, filters=filters).num_rows == rows


@pytest.mark.parametrize("name", ["z", "a.b", "zone.x"])
def test_a_column_that_does_not_exist_cannot_be_selected(folder, name):
    path, keys = folder
    file = next(path.rglob("*.parquet"))
    with pytest.raises(UnknownColumnError, match="there is no such column"):
        read_table(path, keys=keys, columns=["a", name])
    with ParquetFile(file, keys) as opened:
        for ask in (opened.read, lambda columns: list(opened.iter_tables(columns)),
                    lambda columns: list(opened.iter_batches(columns))):
            with pytest.raises(UnknownColumnError, match="there is no such column") as raised:
                ask(["a", name])
            assert raised.value.column == name and raised.value.file == str(file)


def test_a_misspelt_column_is_the_same_error_everywhere(folder):
    path, keys = folder
    file = next(path.rglob("*.parquet"))
    data = secure_bloom.dataset(path, keys)
    wrong = pc.field("aa") == 1
    for ask in (lambda: read_table(path, keys=keys, filters=[("aa", "==", 1)]),
                lambda: ParquetFile(file, keys).prune(wrong), lambda: data.to_table(filter=wrong),
                lambda: data.to_table(columns=["aa"]),
                lambda: secure_bloom.find(path, "aa", 1, keys)):
        with pytest.raises(UnknownColumnError, match=r"no such column \(did you mean 'a'\?\)"):
            ask()


def test_one_name_in_place_of_a_list_is_not_a_list_of_letters(folder):
    path, keys = folder
    file, data = next(path.rglob("*.parquet")), secure_bloom.dataset(path, keys)
    for ask in (lambda: read_table(path, keys=keys, columns="a"),
                lambda: ParquetFile(file, keys).read("a"),
                lambda: list(ParquetFile(file, keys).iter_batches("a")),
                lambda: data.to_table(columns="a"),
                lambda: secure_bloom.find(path, "a", 1, keys, columns="a")):
        with pytest.raises(TypeError, match=r"write \['a'\]"):
            ask()
    for ask in (lambda: read_table(path, keys=keys, columns=[b"a"]),
                lambda: ParquetFile(file, keys).read([b"a"]),
                lambda: data.to_table(columns=[b"a"])):
        with pytest.raises(TypeError, match="columns must be a list of names, but it has a bytes"):
            ask()


def test_a_row_group_that_does_not_exist():
    with pytest.raises(IndexError, match="there is no row group 77 in <buffer>; it has 4"):
        ParquetFile(PLAIN).read_bloom_filter(77, "a")


def test_a_folder_on_another_filesystem():
    memory = pa_fs._MockFileSystem()
    memory.create_dir("data/k=1")
    for name in ("data/k=1/x", "data/k=1/y"):
        write_table(TABLE, name, bloom_filters={"a": True}, filesystem=memory)
    table = read_table("data", filesystem=memory, filters=[("a", "==", 45), ("k", "==", 1)])
    assert table.num_rows == 2


def test_nothing_of_pyarrows_footer_is_lost():
    """Each field of pyarrow's own is in ours, but for who wrote it, and where filters are."""
    sink = io.BytesIO()
    pq.write_table(TABLE, sink, row_group_size=30, write_page_index=True)
    layout = {4: [{1: [{3: {}}]}]}
    theirs, _ = thrift.decode(footer_parts(sink.getvalue())[0], layout)
    ours, _ = thrift.decode(footer_parts(PLAIN)[0], layout)
    for group in ours.get(4):
        for chunk in group.get(1):
            assert (chunk.get(3).get(14) is None) == (chunk.get(3).get(15) is None)
            chunk.get(3).remove(14)
            chunk.get(3).remove(15)
    ours.set_binary(6, theirs.get_binary(6))
    assert thrift.encode(ours) == thrift.encode(theirs)


def test_names_that_are_not_utf8_are_an_error_of_the_file_in_every_way_to_read():
    sink = io.BytesIO()
    pq.write_table(pa.table({"qqqq": [1]}), sink, store_schema=False)
    file = ParquetFile(sink.getvalue().replace(b"qqqq", b"\xff" * 4))
    for read in (file.read, lambda: list(file.iter_batches()), lambda: list(file.iter_tables())):
        with pytest.raises(FormatError) as caught:
            read()
        assert caught.value.file == "<buffer>"


def test_columns_of_the_same_name_are_told_and_do_not_hinder_others(tmp_path):
    table = pa.table([[1, 2], [3, 4], [5, 6]], names=["same", "same", "other"])
    path = tmp_path / "a.parquet"
    pq.write_table(table, path)
    for filters in (None, [("other", "==", 5)], [("other", "==", 0)]):
        for read in (ParquetFile(path).read, partial(read_table, path),
                     partial(read_table, tmp_path)):
            with pytest.raises(UnsupportedError, match=r"same name|duplicate field") as caught:
                read(filters=filters)
            assert caught.value.file == str(path)
    assert read_table(path, columns=["other"], filters=[("other", "==", 5)]).num_rows == 1


def test_each_alternative_is_ruled_out_by_statistics_or_by_filters():
    """One of the two is enough for an alternative, and both may differ between alternatives."""
    sink = pa.BufferOutputStream()
    numbers = [f"{n * 37 % 100:02}x" for n in range(100)]
    write_table(pa.table({"id": range(100), "ssn": numbers}), sink, row_group_size=10,
                bloom_filters={"ssn": True})
    file = ParquetFile(sink.getvalue())
    filters = [[("ssn", "==", "37x")], [("id", "==", 55)]]
    assert file.prune(filters) == [0, 5]
    assert file.prune([[("ssn", "==", "nox"), ("id", "==", 3)], [("id", "==", 55)]]) == [5]


@pytest.mark.parametrize("columns", [None, ["b"], ["c", "a"], ["a", "a"], []])
def test_a_table_without_rows_has_the_schema_of_one_with_rows(tmp_path, columns):
    schema = pa.schema([pa.field("a", pa.int64(), metadata={"of": "a"}),
                        pa.field("b", pa.dictionary(pa.int32(), pa.string()), nullable=False),
                        ("c", pa.struct([("x", pa.int8())]))], {"of": "all"})
    rows = pa.table([[1, 2], pa.array(["x", "y"]).dictionary_encode(), [{"x": 1}, None]], schema)
    write_table(rows, tmp_path / "a.parquet", bloom_filters={"a": True})
    with ParquetFile(tmp_path / "a.parquet") as file:
        found, missed = (file.read(columns, [("a", "=", value)]) for value in (2, -2))
    assert missed.num_rows == 0 and found.num_rows == 1
    assert missed.schema.equals(found.schema, check_metadata=True)
