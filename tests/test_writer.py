"""Writing: row groups, options, encryption, and what is left behind when something fails."""

import decimal
import gc
import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

import secure_bloom
from secure_bloom import (
    BloomFilterOptions,
    EncryptionConfiguration,
    ParquetFile,
    ParquetWriter,
    UniformKey,
    write_dataset,
    write_table,
)
from secure_bloom.arrow.schema import parquet_leaves
from secure_bloom.crypto import modules
from secure_bloom.errors import (
    ArgumentError,
    ColumnError,
    KeyExhaustedError,
    KeyNotFoundError,
    RenamedError,
    UnsupportedError,
)
from secure_bloom.keys import InMemoryKms
from secure_bloom.keys.material import KeyMaterial
from secure_bloom.parquet.created_by import CREATED_BY
from secure_bloom.sbbf.sizing import MAX_BYTES
from secure_bloom.storage.summary import read_summary
from secure_bloom.writer import _FEW_VALUES
from tests.support import (
    FOOTER_KEY,
    MASTER_KEYS,
    MODES,
    WatchedKms,
    encryptions,
    footer_parts,
    kms,
    open_footer,
    run_python,
)

TABLE = pa.table({"a": range(100), "b": [f"{i % 3}" for i in range(100)], "flag": [True] * 100,
                  "s": [{"x": -i} for i in range(100)], "l": [[i + 0.5, None] for i in range(100)]})
ALL = {"a": True, "b": True, "s.x": True, "l.list.element": True}
ENCRYPTED = pe.EncryptionConfiguration("mf", column_keys={"mc": ["a"]})


def written(table=TABLE, bloom_filters=ALL, **options) -> bytes:
    sink = io.BytesIO()
    write_table(table, sink, bloom_filters=bloom_filters, **options)
    return sink.getvalue()


def arrow_written(table=TABLE, **options) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **{"write_page_index": True} | options)
    return sink.getvalue()


def row_groups(file: bytes) -> list[int]:
    footer = open_footer(file)
    return [footer.row_group_num_rows(i) for i in range(len(footer.row_groups))]


# --- the file ------------------------------------------------------------------------------------

@pytest.mark.parametrize("options", [
    {}, {"row_group_size": 7}, {"row_group_size": 100}, {"row_group_size": 101},
    {"row_group_size": 1}, {"version": "1.0"}, {"write_page_index": False}, {"compression": "zstd"},
    {"use_dictionary": False}, {"data_page_version": "2.0"}, {"store_schema": False}], ids=str)
def test_the_file_is_pyarrows_but_for_the_filters(options):
    ours, theirs = written(**options), arrow_written(**options)
    assert row_groups(ours) == row_groups(theirs)
    assert pq.read_table(io.BytesIO(ours)).equals(pq.read_table(io.BytesIO(theirs)))
    data = len(theirs) - 8 - len(footer_parts(theirs)[0])
    assert ours[:data] == theirs[:data]
    file = ParquetFile(ours)
    assert file.schema.equals(ParquetFile(theirs).schema)
    assert [info.column for info in file.bloom_filters] == list(ALL) * file.num_row_groups


@pytest.mark.parametrize("mode", MODES)
def test_filters_stand_back_to_back_before_the_footer(mode):
    encryption, kms, keys = encryptions("a")[mode]
    data = written(row_group_size=30, encryption=encryption, keys=kms)
    file = ParquetFile(data, keys)
    position = file.bloom_filters[0].offset
    for info in file.bloom_filters:
        assert info.offset == position
        assert info.encrypted == (file.footer.row_groups[0][
            [c.path for c in file.columns].index(info.column)].encryption is not None)
        header = 15 if info.num_bytes < 64 else 16
        assert info.length == info.num_bytes + header + (64 if info.encrypted else 0)
        position += info.length
    assert position == file.footer.start
    assert len(file.bloom_filters) == 16


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_is_read_by_pyarrow_and_by_us(mode):
    encryption, kms, keys = encryptions("a")[mode]
    data = written(row_group_size=30, encryption=encryption, keys=kms)
    assert ParquetFile(data, keys).read().equals(TABLE)
    if mode == "plain":
        assert pq.read_table(io.BytesIO(data)).equals(TABLE)
    elif isinstance(encryption, UniformKey):
        properties = pe.create_decryption_properties(FOOTER_KEY, aad_prefix=keys.aad_prefix)
        assert pq.read_table(io.BytesIO(data), decryption_properties=properties).equals(TABLE)


@pytest.mark.parametrize("asked", [
    list(ALL), tuple(ALL), set(ALL), iter(ALL), pa.array(list(ALL)).to_pylist(), True,
    {"a": {}, "b": True, "s.x": {"fpp": 0.01}, "l.list.element": BloomFilterOptions()},
    {**ALL, "flag": False, "no such column": None}], ids=lambda asked: type(asked).__name__)
def test_ways_to_ask_for_filters(asked):
    assert written(bloom_filters=asked) == written(bloom_filters=ALL)


def test_a_dict_has_the_fields_of_the_options():
    options = {"fpp": 0.001, "ndv": 1000, "max_bytes": 65536}
    assert written(bloom_filters={"a": options}) \
        == written(bloom_filters={"a": BloomFilterOptions(**options)}) \
        != written(bloom_filters={"a": True})


def test_without_bloom_filters_there_are_none(tmp_path):
    write_table(TABLE, tmp_path / "x")
    with ParquetWriter(tmp_path / "y", TABLE.schema) as writer:
        writer.write_table(TABLE)
    for off in (None, False, [], {}, {"a": False, "b": None}):
        assert written(bloom_filters=off) == (tmp_path / "x").read_bytes() \
            == (tmp_path / "y").read_bytes() == _signed_by_us(arrow_written())


def _signed_by_us(data: bytes) -> bytes:
    """Return a file of pyarrow with the other name of its writer that ours has."""
    footer = open_footer(data)
    footer.created_by = CREATED_BY
    return data[:footer.start] + footer.to_bytes()


def test_true_leaves_out_what_cannot_have_a_filter_or_has_no_path_of_its_own():
    table = pa.table([[True], [1], [2], [3], pa.array([{"b": {"x": 1}, "c": False}]), ["z"]],
                     ["flag", "twice", "twice", "st.b", "st", "u.v"])
    assert [info.column for info in ParquetFile(written(table, True)).bloom_filters] \
        == ["st.b.x", "u.v"]


def test_a_table_without_rows():
    empty = TABLE.slice(0, 0)
    assert row_groups(written(empty)) == row_groups(arrow_written(empty))
    file = ParquetFile(written(empty))
    assert file.prune([("a", "==", 1)]) == []
    sink = io.BytesIO()
    ParquetWriter(sink, TABLE.schema, bloom_filters=ALL).close()
    assert ParquetFile(sink.getvalue()).num_row_groups == 0


def test_chunks_and_batches_and_tables():
    sink = io.BytesIO()
    chunked = pa.concat_tables([TABLE.slice(0, 10), TABLE.slice(10, 1), TABLE.slice(11)])
    with ParquetWriter(sink, TABLE.schema, bloom_filters=ALL) as writer:
        writer.write_table(chunked)
        writer.write_batch(TABLE.slice(5, 20).to_batches()[0])
        writer.write_batch(TABLE.slice(5, 20).to_batches()[0], 15)
        writer.write(TABLE.slice(0, 3))
        writer.write(TABLE.slice(3, 3).to_batches()[0], row_group_size=2)
        writer.add_key_value_metadata({"who": "test"})
    file = ParquetFile(sink.getvalue())
    assert row_groups(sink.getvalue()) == [100, 20, 15, 5, 3, 2, 1]
    assert file.might_contain("a", [99, 24, 3]).T.tolist() == [
        [True] + [False] * 6, [True, True, False, True, False, False, False],
        [True, False, False, False, False, True, False]]
    assert pq.read_metadata(io.BytesIO(sink.getvalue())).metadata[b"who"] == b"test"
    assert file.read().num_rows == 146


def test_row_groups_beyond_pyarrows_default_size():
    table = pa.table({"x": np.zeros(1024 * 1024 + 1, np.int8)})
    assert row_groups(written(table, {"x": True})) == row_groups(arrow_written(table)) \
        == [1024 * 1024, 1]


# --- options that change names or types ----------------------------------------------------------

def test_flavor_spark_changes_names_and_timestamps():
    table = pa.table({"a b;c": [1, 2], "t": pa.array([1, 2]).cast(pa.timestamp("us"))})
    with pytest.raises(ColumnError, match="a_b_c, t"):
        written(table, {"a b;c": True}, flavor="spark")
    file = ParquetFile(written(table, {"a_b_c": True, "t": True}, flavor="spark"))
    assert [str(column.type) for column in file.columns] == ["INT64 int64", "INT96 timestamp[ns]"]
    assert file.might_contain("a_b_c", [1, 2, 3]).tolist() == [[True, True, False]]
    assert file.might_contain("t", table["t"].chunk(0)).all()


MILLIONS = pa.array([1_000_000, 5_000_000, None])


@pytest.mark.parametrize(("column", "options", "stored"), [
    (MILLIONS.cast(pa.uint32()), {"version": "1.0"}, "INT64 int64"),
    (MILLIONS.cast(pa.timestamp("ns")), {"version": "2.4"}, "INT64 timestamp[us]"),
    (MILLIONS.cast(pa.timestamp("us")), {"coerce_timestamps": "ms"}, "INT64 timestamp[ms]"),
    (MILLIONS.cast(pa.timestamp("s")), {"use_deprecated_int96_timestamps": True},
     "INT96 timestamp[ns]"),
    (pa.array([decimal.Decimal("1.25"), decimal.Decimal(-3), None]),
     {"store_decimal_as_integer": True}, "INT32 decimal128(3, 2)"),
], ids=lambda value: str(value) if isinstance(value, dict) else "")
def test_options_change_types(column, options, stored):
    file = ParquetFile(written(pa.table({"x": column}), {"x": True}, **options))
    assert str(file.columns[0].type) == stored
    assert file.might_contain("x", column).all()
    assert file.might_contain("x", column.to_pylist()).all()
    one, other = column.to_pylist()[:2]
    assert not file.might_contain("x", one + 2 * (one - other)).any()


def test_lists_by_pyarrows_older_names():
    file = ParquetFile(written(bloom_filters={"l.list.item": True},
                               use_compliant_nested_type=False))
    assert file.might_contain("l.list.item", [5.5, 5.0]).tolist() == [[True, False]]


# --- sizes ---------------------------------------------------------------------------------------

def sizes(values, options, **write_options) -> list[int]:
    data = written(pa.table({"x": values}), {"x": options}, **write_options)
    return [info.num_bytes for info in ParquetFile(data).bloom_filters]


@pytest.mark.parametrize("options", [{"use_compliant_nested_type": False}, {}])
def test_columns_are_not_those_of_an_earlier_schema_that_equals_this_one(options):
    schemas = [pa.schema([("l", pa.list_(pa.field(name, pa.int64())))]) for name in "xy"]
    assert schemas[0] == schemas[1]
    paths = [leaf.path for schema in schemas for leaf in parquet_leaves(schema, **options)]
    assert paths == (["l.list.x", "l.list.y"] if options else ["l.list.element"] * 2)


def test_few_distinct_values_give_small_filters():
    assert sizes([f"{i % 10}" for i in range(10_000)], True) == [32]
    [many] = sizes(range(10_000), True)
    assert many == 16_384


@pytest.mark.parametrize(("options", "expected"), [
    (BloomFilterOptions(fpp=0.1), 8192), (BloomFilterOptions(fpp=0.0001), 65_536),
    (BloomFilterOptions(ndv=100), 256), (BloomFilterOptions(ndv=10**6), 2**21),
    (BloomFilterOptions(ndv=0), 32), (BloomFilterOptions(max_bytes=1000), 512),
    (BloomFilterOptions(max_bytes=32), 32), (BloomFilterOptions(ndv=10**6, max_bytes=64), 64),
    (BloomFilterOptions(max_bytes=MAX_BYTES), 16_384),
])
def test_options_decide_the_size(options, expected):
    assert sizes(range(10_000), options) == [expected]


def test_a_filter_fits_its_row_group():
    assert sizes(range(10_000), True, row_group_size=9_990) == [16_384, 32]


@pytest.mark.parametrize("options", [
    {"fpp": 0}, {"fpp": 1}, {"fpp": -0.5}, {"ndv": -1}, {"max_bytes": 31},
    {"max_bytes": MAX_BYTES + 1}], ids=str)
def test_impossible_options_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        BloomFilterOptions(**options)


# --- encryption ----------------------------------------------------------------------------------

def test_every_file_has_its_own_keys_and_file_id():
    files = [ParquetFile(written(encryption=ENCRYPTED, keys=kms()), kms()) for _ in range(2)]
    assert len({file.footer.algorithm.aad_file_unique for file in files}) == 2
    assert len({file.footer.footer_key_metadata for file in files}) == 2
    key = UniformKey(FOOTER_KEY)
    unique = {ParquetFile(written(encryption=key), secure_bloom.ExplicitKeys(FOOTER_KEY)
                          ).footer.algorithm.aad_file_unique for _ in range(2)}
    assert len(unique) == 2


@pytest.mark.parametrize("double", [True, False])
def test_the_kms_is_called_once_for_each_key(double):
    configuration = pe.EncryptionConfiguration(
        "mf", column_keys={"mc": ["a", "b"], "md": ["l.list.element"]}, double_wrapping=double)
    writing, reading = WatchedKms(MASTER_KEYS), WatchedKms(MASTER_KEYS)
    data = written(row_group_size=10, encryption=configuration, keys=writing)
    keys = ["mf", "mc", "md"] if double else ["mf", "mc", "mc", "md"]
    assert sorted(writing.calls) == sorted(("wrap", key) for key in keys)
    file = ParquetFile(data, reading)
    assert file.prune([("a", "==", 5), ("b", "==", "2")]) == [0]
    assert file.read(filters=[("a", "==", 5)]).num_rows == 1
    assert file.read().num_rows == 100
    assert sorted(reading.calls) == sorted(("unwrap", key) for key in keys)


def test_a_pyarrow_kms_client_serves_as_it_is():
    class ArrowKms(pe.KmsClient):
        def __init__(self):
            super().__init__()
            self.inner = kms()

        def wrap_key(self, key_bytes, master_key_identifier):
            return self.inner.wrap_key(key_bytes, master_key_identifier).encode()

        def unwrap_key(self, wrapped_key, master_key_identifier):
            return self.inner.unwrap_key(wrapped_key, master_key_identifier)

    data = written(encryption=ENCRYPTED, keys=ArrowKms())
    assert ParquetFile(data, ArrowKms()).read(filters=[("a", "==", 5)]).num_rows == 1


@pytest.mark.parametrize("encryption", [UniformKey(FOOTER_KEY), ENCRYPTED])
@pytest.mark.parametrize(("page_size", "fits"), [(2**20, True), (1, False)])
def test_a_key_that_has_encrypted_too_much_publishes_nothing(tmp_path, monkeypatch, encryption,
                                                            page_size, fits):
    """pyarrow's pages count too: two modules for each."""
    monkeypatch.setattr(modules, "MAX_INVOCATIONS", 200)
    table = pa.table({"a": range(20_000), "b": range(20_000)})
    options = {"data_page_size": page_size, "write_batch_size": 100, "use_dictionary": False,
               "keys": None if isinstance(encryption, UniformKey) else kms()}
    if fits:
        write_table(table, tmp_path / "x", bloom_filters={"a": True}, encryption=encryption,
                    **options)
        return
    with pytest.raises(KeyExhaustedError, match="more than 200 modules"):
        write_table(table, tmp_path / "x", bloom_filters={"a": True}, encryption=encryption,
                    **options)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("names", "asked"), [([" a", "a"], " a"), (["a,z", "a", "z"], "a,z"),
                                               (["x", "x "], "x "), (["k:a", "a"], "a")])
def test_pyarrows_configuration_takes_no_column_for_another(tmp_path, names, asked):
    table = pa.table({name: [1] for name in names})
    with pytest.raises(UnsupportedError, match="another column"):
        write_table(table, tmp_path / "x", bloom_filters={}, keys=kms(),
                    encryption=pe.EncryptionConfiguration("mf", column_keys={"mc": [asked]}))
    assert os.listdir(tmp_path) == []


def test_names_of_master_keys_and_columns(tmp_path):
    table = pa.table({"my col": [1], "mycol": [2], "s": [{"q r": 1, "t": 2}]})
    names = {"f: 1": b"f" * 16, "a; b, c": b"k" * 16}
    for asked, encrypted in (["my col"], {"my col"}), (["s"], {"s.q r", "s.t"}), \
            (["s.q r"], {"s.q r"}):
        write_table(table, tmp_path / "x", bloom_filters={}, keys=InMemoryKms(names),
                    encryption=EncryptionConfiguration("f: 1", {"a; b, c": asked}))
        chunks = ParquetFile(tmp_path / "x", InMemoryKms(names)).footer.row_groups[0]
        assert {chunk.column.path for chunk in chunks if chunk.encryption} == encrypted
    for columns, advice in (["none"], ";"), (["s.q"], r" \(did you mean 's.q r'"), (["my"], ";"):
        with pytest.raises(ColumnError, match=f"has a key, but does not exist{advice}"):
            write_table(table, tmp_path / "y", bloom_filters={}, keys=InMemoryKms(names),
                        encryption=EncryptionConfiguration("f: 1", {"a; b, c": columns}))
    for wrong in (lambda: EncryptionConfiguration("", uniform_encryption=True),
                  lambda: EncryptionConfiguration("f", {"": ["a"]}),
                  lambda: EncryptionConfiguration("f", {"k": "a"}),
                  lambda: EncryptionConfiguration("f", {"k": ["a"], "l": ["a"]}),
                  lambda: EncryptionConfiguration("f"),
                  lambda: EncryptionConfiguration("f", {"k": ["a"]}, data_key_length_bits=100)):
        with pytest.raises(ValueError):
            wrong()


# --- what is refused before anything is written --------------------------------------------------

UNIFORM = {"uniform_encryption": True}
REFUSED = [
    ({"encryption": ENCRYPTED}, TypeError, "pass keys="),
    ({"encryption": ENCRYPTED, "keys": {"mf": b"x" * 16}}, TypeError, "a KmsClient.* not dict"),
    ({"encryption": "mf", "keys": kms()}, TypeError, "an EncryptionConfiguration"),
    ({"keys": kms()}, TypeError, "would not be encrypted"),
    ({"encryption": pe.EncryptionConfiguration("mf", **UNIFORM, internal_key_material=False),
      "keys": kms()}, UnsupportedError, "internal_key_material"),
    ({"encryption": pe.EncryptionConfiguration("mf", **UNIFORM, plaintext_footer=True),
      "keys": kms()}, UnsupportedError, "plaintext footer"),
    ({"encryption": pe.EncryptionConfiguration("other", **UNIFORM), "keys": kms()},
     KeyNotFoundError, "'other'"),
    ({"encryption": EncryptionConfiguration("mf", {"mc": ["x"]}), "keys": kms()}, ColumnError,
     "column x: it has a key, but does not exist"),
    *(({"bloom_filters": asked}, error, message) for asked, error, message in [
        ({"flag": True}, ColumnError, "BOOLEAN"), ({"z": True}, ColumnError, "no such column"),
        ({"s": True}, ColumnError, "s.x"), ({"l": True}, ColumnError, "l.list.element"),
        ({"a": 0.01}, TypeError, r"\['a'\]: 0.01 is not allowed; .*BloomFilterOptions"),
        ({"a": {"fp": 0.1}}, TypeError,
         r"\['a'\]: 'fp' is not allowed; allowed options: fpp, ndv, max_by"),
        ({"a": {"fpp": 2}}, ValueError, r"\['a'\]: fpp must be between 0 and 1"),
        ({"a": {"ndv": "9"}}, TypeError, r"\['a'\]: ndv must be a number, not '9'"),
        ({"a": {"fpp": None}}, TypeError, r"\['a'\]: fpp must be a number"),
        ({"a": {"fpp": True}}, TypeError, r"\['a'\]: fpp must be a number"),
        ("a", TypeError, r"a list of column paths.*not str: write \['a'\]"),
        (5, TypeError, "a list of column paths, .*not int"), (b"a", TypeError, "not bytes"),
        ([5], TypeError, "5 where a column path"), ({5: True}, TypeError, "5 where a column path"),
        (["flag"], ColumnError, "BOOLEAN"), (["z"], ColumnError, "no such column")]),
    ({"bloom_filter_options": {"a": True}}, TypeError, "bloom_filter_options"),
    ({"encryption_properties": object()}, TypeError, "use encryption and keys"),
    ({"metadata_collector": []}, TypeError, "metadata_collector"),
    ({"no_such_option": 1}, TypeError, "no_such_option"),
    ({"version": "3.0"}, ValueError, "version"),
    ({"row_group_size": 0}, ValueError, "row_group_size must be at least 1"),
    ({"row_group_size": -1}, ValueError, "row_group_size"),
    ({"bloom_filterz": ["a"]}, ArgumentError,
     r"no argument 'bloom_filterz' \(did you mean 'bloom_filters'\?\)"),
    ({"row_group_sizes": 5}, ArgumentError, r"\(did you mean 'row_group_size'\?\)"),
    ({"compresion": "zstd"}, ArgumentError, r"\(did you mean 'compression'\?\)"),
    ({"compression": "zst"}, ArgumentError,
     r"no codec 'zst' \(did you mean 'zstd'\?\); codecs: none, snappy"),
    ({"compression": {"a": "snapy"}}, ArgumentError,
     r"no codec 'snapy' \(did you mean 'snappy'\?\)")]


@pytest.mark.parametrize(("arguments", "error", "message"), REFUSED)
def test_wrong_arguments_are_refused_before_anything_is_written(tmp_path, arguments, error,
                                                               message):
    for write in (write_table, write_dataset):
        with pytest.raises(error, match=message):
            write(TABLE, tmp_path / "x", **arguments)
        assert os.listdir(tmp_path) == []
    if arguments.keys() & {"bloom_filterz", "compresion", "compression", "encryption_properties"}:
        with pytest.raises(error, match=r"codec|argument|cannot be used"):
            ParquetWriter(tmp_path / "x", TABLE.schema, **arguments)


def test_what_only_one_of_them_takes(tmp_path):
    with pytest.raises(TypeError, match="would not be encrypted"):
        write_table(TABLE, tmp_path / "x", encryption=UniformKey(FOOTER_KEY), keys=kms())
    with pytest.raises(TypeError, match="must be an EncryptionConfiguration"):
        write_dataset(TABLE, tmp_path / "x", encryption=UniformKey(FOOTER_KEY))
    with pytest.raises(RenamedError, match="argument index is called index_columns now"):
        write_dataset(TABLE, tmp_path / "x", index="a")
    assert os.listdir(tmp_path) == []
    write_table(TABLE, tmp_path / "x", compression={"a": "ZSTD"})


@pytest.mark.parametrize("where", [5, None, b"x"])
def test_where_must_be_a_path_or_a_file(where):
    with pytest.raises(TypeError, match="where must be"):
        write_table(TABLE, where, bloom_filters=ALL)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*none; create"):
        write_table(TABLE, tmp_path / "none" / "x", bloom_filters=ALL)


# --- failures ------------------------------------------------------------------------------------

class Trouble(Exception):
    pass


@pytest.mark.parametrize("old", [None, b"the old file"])
def test_an_exception_leaves_nothing_behind(tmp_path, old):
    path = tmp_path / "x.parquet"
    if old:
        path.write_bytes(old)
    with pytest.raises(Trouble), ParquetWriter(path, TABLE.schema, bloom_filters=ALL) as writer:
        writer.write_table(TABLE)
        assert len(os.listdir(tmp_path)) == 1 + bool(old)  # a hidden temporary file
        assert (path.read_bytes() if old else None) == old
        raise Trouble
    assert os.listdir(tmp_path) == ([path.name] if old else [])
    assert not old or path.read_bytes() == old
    with pytest.raises(ValueError, match="closed"):
        writer.write_table(TABLE)
    writer.close()
    assert os.listdir(tmp_path) == ([path.name] if old else [])


def test_a_table_of_another_schema_ends_the_file(tmp_path):
    writer = ParquetWriter(tmp_path / "x", TABLE.schema, bloom_filters=ALL)
    writer.write_table(TABLE)
    with pytest.raises(ValueError, match="schema"):
        writer.write_table(TABLE.select(["a"]))
    assert os.listdir(tmp_path) == []
    for use in (lambda: writer.write_table(TABLE), lambda: writer.add_key_value_metadata({})):
        with pytest.raises(ValueError, match="closed"):
            use()


@pytest.mark.slow
def test_a_forgotten_writer_leaves_nothing_behind(tmp_path):
    writer = ParquetWriter(tmp_path / "x", TABLE.schema, bloom_filters=ALL)
    writer.write_table(TABLE)
    del writer
    gc.collect()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_failure_at_the_very_end_leaves_the_old_file(tmp_path, monkeypatch, broken):
    path = tmp_path / "x.parquet"
    path.write_bytes(b"the old file")

    def fail(*_):
        raise OSError(28, "no space left")

    monkeypatch.setattr(os, broken, fail)
    with pytest.raises(OSError, match="no space left"):
        write_table(TABLE, path, bloom_filters=ALL)
    assert os.listdir(tmp_path) == [path.name]
    assert path.read_bytes() == b"the old file"


@pytest.mark.parametrize(("durable", "synced"), [(True, ["file", "folder"]), (False, [])])
def test_a_file_is_synced_unless_it_need_not_be_durable(tmp_path, monkeypatch, durable, synced):
    path, found, fsync = tmp_path / "x.parquet", [], os.fsync

    def watched(descriptor):
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        found.append("folder" if os.path.isdir(name) else "file")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    write_table(TABLE, path, bloom_filters=ALL, durable=durable)
    with ParquetWriter(path, TABLE.schema, durable=durable) as writer:
        writer.write_table(TABLE)
    assert found == synced * 2
    assert ParquetFile(path).read().num_rows == len(TABLE)


class Counted(io.BytesIO):
    """Counts the calls that write."""

    calls = 0

    def write(self, data):
        self.calls += 1
        return super().write(data)


def test_a_small_file_is_written_in_few_calls():
    sink = Counted()
    write_table(TABLE, sink, bloom_filters=ALL, encryption=ENCRYPTED, keys=kms())
    assert sink.calls <= 3  # pages, an empty rest, and what follows the last page


def test_the_bytes_written_so_far_are_those_of_whole_row_groups():
    sink = io.BytesIO()
    with ParquetWriter(sink, TABLE.schema, bloom_filters=ALL) as writer:
        for _ in range(3):
            writer.write_table(TABLE)
            assert writer.num_bytes == len(sink.getvalue()) > 0


def test_filters_of_few_values_need_no_thread(monkeypatch):
    def fail(*_):
        raise AssertionError("a thread")

    monkeypatch.setattr("secure_bloom.writer.ThreadPoolExecutor", fail)
    data = written()
    assert len(ParquetFile(data).bloom_filters) == len(ALL)
    with pytest.raises(AssertionError, match="a thread"):
        written(pa.table({"a": range(_FEW_VALUES + 1)}), {"a": True})


def test_each_placeholder_of_pyarrow_is_parsed_once(monkeypatch):
    parsed, parse = [], KeyMaterial.parse
    monkeypatch.setattr(KeyMaterial, "parse", lambda text: parsed.append(text) or parse(text))
    configuration = EncryptionConfiguration("mf", {"mc": ["a", "b"]})
    sink = io.BytesIO()
    with ParquetWriter(sink, TABLE.schema, bloom_filters=ALL, encryption=configuration,
                       keys=kms()) as writer:
        for _ in range(3):
            writer.write_table(TABLE)
    assert len(parsed) == len(set(parsed)) == 3  # footer, a, b


class FullDisk(io.BytesIO):
    """Takes a number of bytes."""

    def __init__(self, room):
        super().__init__()
        self.room = room

    def write(self, data):
        self.room -= len(data)
        if self.room < 0:
            raise OSError(28, "no space left")
        return super().write(data)


def test_an_error_of_the_file_object_comes_through_wherever_it_happens():
    size = len(written())
    for room in range(0, size, 97):
        with pytest.raises(OSError, match="no space left") as caught:
            write_table(TABLE, FullDisk(room), bloom_filters=ALL)
        assert caught.value.errno == 28
    write_table(TABLE, FullDisk(size), bloom_filters=ALL)


def test_close_may_be_called_again(tmp_path):
    writer = ParquetWriter(tmp_path / "x", TABLE.schema, bloom_filters=ALL)
    writer.write_table(TABLE)
    writer.close()
    before = (tmp_path / "x").read_bytes()
    writer.close()
    assert (tmp_path / "x").read_bytes() == before
    assert os.listdir(tmp_path) == ["x"]


# --- destinations --------------------------------------------------------------------------------

def test_a_file_object_is_appended_to_and_stays_open(tmp_path):
    sink = io.BytesIO()
    write_table(TABLE, sink, bloom_filters=ALL)
    assert not sink.closed

    class OnlyWrite:
        def __init__(self):
            self.data = bytearray()

        def write(self, data):
            self.data += data

    only = OnlyWrite()
    write_table(TABLE, only, bloom_filters=ALL)
    with open(tmp_path / "x", "wb") as file:
        write_table(TABLE, file, bloom_filters=ALL)
    assert bytes(only.data) == sink.getvalue() == (tmp_path / "x").read_bytes()


def test_pyarrow_filesystems(tmp_path):
    expected = written()
    local = pa_fs.SubTreeFileSystem(str(tmp_path), pa_fs.LocalFileSystem())
    memory = pa_fs._MockFileSystem()
    memory.create_dir("folder")
    for filesystem, folder, name in ((local, "", "x"), (memory, "folder", "folder/x")):
        for _ in range(2):  # the second time over the first
            write_table(TABLE, name, bloom_filters=ALL, filesystem=filesystem)
        with filesystem.open_input_file(name) as file:
            assert file.read() == expected
        with pytest.raises(Trouble), ParquetWriter(name, TABLE.schema, bloom_filters=ALL,
                                                   filesystem=filesystem) as writer:
            writer.write_table(TABLE.slice(0, 5))
            raise Trouble
        found = filesystem.get_file_info(pa_fs.FileSelector(folder))
        assert [info.path for info in found] == [name]
        with filesystem.open_input_file(name) as file:
            assert file.read() == expected


def test_paths_of_every_kind(tmp_path, monkeypatch):
    expected = written()
    monkeypatch.chdir(tmp_path)
    for where in ("x", tmp_path / "y", str(tmp_path / "z"), (tmp_path / "u").as_uri()):
        write_table(TABLE, where, bloom_filters=ALL)
    assert sorted(os.listdir(tmp_path)) == ["u", "x", "y", "z"]
    assert all((tmp_path / name).read_bytes() == expected for name in "uxyz")


@pytest.mark.slow
def test_small_files_load_no_numba():
    loaded = run_python(
        "import io, sys, pyarrow as pa, secure_bloom as sb\n"
        "sink = io.BytesIO()\n"
        "table = pa.table({'a': range(5000)})\n"
        "sb.write_table(table, sink, bloom_filters={'a': True}, row_group_size=100)\n"
        "file = sb.ParquetFile(sink.getvalue())\n"
        "assert file.read(filters=[('a', '==', 7)]).num_rows == 1\n"
        "print(*sys.modules)").split()
    assert "secure_bloom.writer" in loaded
    assert not {"numba", "pyspark", "llvmlite"} & set(loaded)


def test_what_was_written_is_returned(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = pa.table({"ssn": ["1", "2", "3"], "st": [{"a": 1, "b": 2}] * 3, "city": ["x"] * 3})
    path = Path("x")
    found = write_table(table, path, row_group_size=2, bloom_filters=["ssn", "city"], keys=kms(),
                        encryption=EncryptionConfiguration("mf", {"mc": ["ssn", "st.a"]}))
    with ParquetFile(path, kms()) as file:
        assert (found.rows, found.row_groups) == (3, 2) == (file.num_rows, file.num_row_groups)
    assert found.bytes == path.stat().st_size and found.file == "x"
    assert found.encrypted_columns == {"ssn": "mc", "st.a": "mc"}
    assert found.open_columns == ["st.b", "city"]
    assert (found.encrypted_filters, found.plain_filters) == (2, 2)
    assert "encrypted: ssn (mc), st.a (mc); open: st.b, city" in repr(found)
    assert found.to_dict()["encrypted_columns"]["ssn"] == "mc"
    assert "<td>city</td><td>open</td>" in found._repr_html_()
    uniform = EncryptionConfiguration("mf", uniform_encryption=True)
    for data, options, encrypted in (
            (table[:0], {"keys": kms(), "encryption": uniform}, "mf"),
            (table, {"encryption": UniformKey(bytes(16))}, None)):
        found = write_table(data, sink := io.BytesIO(), **options)
        assert set(found.encrypted_columns.values()) == {encrypted} and found.open_columns == []
        assert found.bytes == len(sink.getvalue())
    assert write_table(table, io.BytesIO()).encrypted_columns == {}
    writer = ParquetWriter(tmp_path / "y", table.schema)
    assert writer.summary is None
    writer.close()
    assert writer.summary.rows == 0
    folder = write_dataset(table, tmp_path / "d", keys=kms(),
                           encryption=EncryptionConfiguration("mf", {"mc": ["ssn"]}))
    assert folder.encrypted_columns == {"ssn": "mc"} and folder.open_columns == [
        "st.a", "st.b", "city"]
    assert read_summary(pa_fs.LocalFileSystem(), str(tmp_path / "d")).open_columns is None


@pytest.mark.slow
def test_a_failed_write_is_silent_when_the_program_ends(tmp_path):
    """IPython, for one, keeps the last exception, and so the writer, until then."""
    program = tmp_path / "program.py"
    program.write_text("""
import sys, pyarrow, secure_bloom
table = pyarrow.table({"ssn": ["a"]})
writer = secure_bloom.ParquetWriter("x.parquet", table.schema)
writer.write(table)
try:
    writer.write(iter([table.to_batches()[0], "no batch"]))
except TypeError as error:
    kept = error
sys.writer, sys.kept = writer, kept
""")
    done = subprocess.run([sys.executable, program], check=True, capture_output=True, text=True,
                          cwd=tmp_path)
    assert done.stderr == ""
