"""Writing data sets: folders, options, encryption, and what is visible when something fails."""

import datetime
import decimal
import os
import pydoc
import shutil

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

import secure_bloom
from secure_bloom import EncryptionConfiguration, ParquetFile, Policy, write_dataset
from secure_bloom.arrow import row_groups
from secure_bloom.datasets import task_files
from secure_bloom.errors import (
    ColumnError,
    CommitError,
    KeyNotFoundError,
    MasterKeyChangedError,
    PolicyError,
    UnsupportedError,
)
from secure_bloom.keys import InMemoryKms, KeyEncryptionKeys, Keyring
from secure_bloom.policy import TableRules
from secure_bloom.storage.commit import Job
from secure_bloom.storage.summary import read_summary
from secure_bloom.storage.visibility import data_files
from tests.index.test_crashes import dies
from tests.storage.stores import Faults, Store, later_jobs, local_store
from tests.support import MASTER_KEYS, kms

ENCRYPTED = EncryptionConfiguration("mf", {"mc": ["ssn"]})
PEOPLE = pa.table({"ssn": [f"{i:09}" for i in range(100)], "city": ["Rome", "Oslo", None, ""] * 25,
                   "n": range(100)})


def read(folder, keys=None, **options) -> pa.Table:
    return secure_bloom.read_table(folder, keys, **options)


def numbers(folder, keys=None, **options) -> list[int]:
    return sorted(read(folder, keys, **options)["n"].to_pylist())


def files(folder) -> list[str]:
    """Return the visible files, relative to the folder."""
    found = data_files(pa.fs.LocalFileSystem(), str(folder))
    return [os.path.relpath(path, folder) for path in found]


def left_behind(folder) -> list[str]:
    """Return everything in a folder that is neither a visible file nor permanent."""
    known = {*files(folder), "_SUCCESS", "_staging/generation"} if os.path.isdir(folder) else set()
    return sorted({os.path.relpath(os.path.join(path, name), folder)
                   for path, _, names in os.walk(folder) for name in names} - known)


# --- files and folders ---------------------------------------------------------------------------

def test_a_data_set_is_written_and_read_back(tmp_path):
    result = write_dataset(PEOPLE, tmp_path / "t", bloom_filters=["ssn", "city"],
                           encryption=ENCRYPTED, keys=kms(), max_rows_per_file=30)
    assert (result.files, result.rows) == (4, 100)
    assert (result.encrypted_filters, result.plain_filters) == (4, 4)
    assert result.bytes == sum(os.path.getsize(tmp_path / "t" / name)
                               for name in files(tmp_path / "t"))
    assert repr(result).startswith("<CommitSummary 4 files, 100 rows, ")
    assert "8 filters (4 encrypted)" in repr(result)
    assert read_summary(pa.fs.LocalFileSystem(), str(tmp_path / "t")) == result
    assert sorted(read(tmp_path / "t", kms()).to_pylist(), key=lambda row: row["n"]) \
        == PEOPLE.to_pylist()
    assert read(tmp_path / "t", kms(), filters=[("ssn", "==", f"{7:09}")])["n"].to_pylist() == [7]
    assert left_behind(tmp_path / "t") == []


VALUES = {"text": ["a/b=c%", "ü {}", None, "7 up"], "day": [
    datetime.date(2024, 1, 31), datetime.date(1, 1, 1), None, datetime.date(9999, 12, 31)],
    "small": [-128, 127, None, 0], "big": [2**63 - 1, -2**63, None, 1],
    "flag": [True, False, None, True],
    "price": [decimal.Decimal("1.50"), decimal.Decimal("-0.25"), None, decimal.Decimal("0.00")]}
TYPES = {"text": pa.string(), "day": pa.date32(), "small": pa.int8(), "big": pa.int64(),
         "flag": pa.bool_(), "price": pa.decimal128(10, 2)}


@pytest.mark.parametrize("column", VALUES)
def test_partition_values_mean_the_same_to_every_reader(tmp_path, column):
    values, type_ = VALUES[column], TYPES[column]
    table = pa.table({"p": pa.array(values, type_), "n": [0, 1, 2, 3]})
    write_dataset(table, tmp_path, partition_by="p")

    def check(found: pa.Table):
        rows = dict(zip(found["n"].to_pylist(), found["p"].cast(type_).to_pylist(), strict=True))
        assert rows == dict(enumerate(values))

    pattern = f"{tmp_path}/*/*.parquet"
    stored = pa.string() if column == "price" else type_  # pyarrow has no decimals in paths
    hive = ds.partitioning(pa.schema([("p", stored)]), flavor="hive")
    check(ds.dataset(tmp_path, format="parquet", partitioning=hive).to_table())
    check(read(tmp_path))
    check(duckdb.sql(f"SELECT p, n FROM read_parquet('{pattern}', hive_partitioning=true, "
                     "hive_types_autocast=false)").to_arrow_table())
    schema = {"p": pl.from_arrow(pa.table({"p": pa.array(values, type_)})).schema["p"]}
    if column not in ("flag", "price", "day"):  # from these, Polars makes other types by itself
        check(pl.scan_parquet(pattern, hive_partitioning=True, hive_schema=schema)
              .collect().to_arrow())


def test_folders_are_nested_in_the_order_of_the_columns_and_keep_the_order_of_rows(tmp_path):
    table = pa.table({"a": [1, 2, 1, None], "n": [0, 1, 2, 3], "b": ["x", "x", "x", None]})
    write_dataset(table, tmp_path, partition_by=["b", "a"])
    assert [name.rpartition("/")[0] for name in files(tmp_path)] == [
        "b=__HIVE_DEFAULT_PARTITION__/a=__HIVE_DEFAULT_PARTITION__", "b=x/a=1", "b=x/a=2"]
    assert read(tmp_path, filters=[("a", "==", 1)])["n"].to_pylist() == [0, 2]
    with ParquetFile(tmp_path / files(tmp_path)[0]) as file:
        assert file.schema.names == ["n"]


def test_categories_can_be_partition_columns(tmp_path):
    column = pa.DictionaryArray.from_arrays([0, None, 2], [
        "x", "__HIVE_DEFAULT_PARTITION__", "z"])  # the second is not the value of any row
    write_dataset(pa.table({"p": column, "n": [1, 2, 3]}), tmp_path / "a", partition_by="p")
    frame = pl.DataFrame({"p": pl.Series(["x", None, "z"], dtype=pl.Categorical), "n": [1, 2, 3]})
    write_dataset(frame, tmp_path / "b", partition_by="p")
    for name in "ab":
        assert sorted(read(tmp_path / name).to_pylist(), key=lambda row: row["n"]) == [
            {"n": 1, "p": "x"}, {"n": 2, "p": None}, {"n": 3, "p": "z"}]


@pytest.mark.parametrize("partition_by, error, message", [
    ("x", ColumnError, "column x: it is in partition_by, but does not exist"),
    (["n", "n"], ColumnError, "column n: it is listed twice"),
    ([".h"], ColumnError, "column .h: readers treat folders"),
    ("f", UnsupportedError, "column f: partition_by cannot use the type double"),
    ("t", UnsupportedError, "column t: partition_by cannot use the type timestamp"),
    (["n", "s", "bad"], UnsupportedError, "column bad: a string with a NUL"),
])
def test_columns_that_cannot_be_partition_columns(tmp_path, partition_by, error, message):
    table = pa.table({"n": [1], "f": [1.5], "s": ["x"], ".h": ["x"], "bad": ["a\0b"],
                      "t": [datetime.datetime(2024, 1, 31)]})
    with pytest.raises(error, match=message):
        write_dataset(table, tmp_path / "t", partition_by=partition_by)
    assert files(tmp_path) == [] and left_behind(tmp_path) in ([], ["t/_staging/generation"])


def test_a_column_must_be_left_and_names_must_be_unique(tmp_path):
    with pytest.raises(ColumnError, match="names every column"):
        write_dataset(pa.table({"a": [1], "b": [2]}), tmp_path / "t", partition_by=["b", "a"])
    with pytest.raises(ColumnError, match="two columns have this name"):
        write_dataset(pa.table([[1], [2], [3]], names=["a", "a", "b"]), tmp_path / "t",
                      partition_by="a")
    assert os.listdir(tmp_path) == []


def test_where_row_groups_and_files_end(tmp_path):
    write_dataset(iter(PEOPLE.to_batches(max_chunksize=7)), tmp_path, row_group_size=20,
                  max_rows_per_file=50, compression="zstd")
    for name in files(tmp_path):
        with ParquetFile(tmp_path / name) as file:
            assert [file.footer.row_group_num_rows(i) for i in range(3)] == [20, 20, 10]
    assert len(files(tmp_path)) == 2 and numbers(tmp_path) == list(range(100))


def test_no_rows_leave_one_file_with_the_schema(tmp_path):
    for mode in ("error", "overwrite"):
        assert write_dataset(PEOPLE[:0], tmp_path, mode=mode, partition_by="city").files == 1
        assert read(tmp_path).num_rows == 0 and read(tmp_path).schema.names == ["ssn", "n", "city"]
    assert write_dataset(PEOPLE[:0], tmp_path, mode="append", partition_by="city").files == 0


def test_an_index_of_pandas_comes_back_but_a_range_of_numbers_is_not_stored(tmp_path):
    frame = pd.DataFrame({"p": ["b", "a", "b"], "v": [1, 2, 3]},
                         index=pd.Index([7, 5, 6], name="key"))
    write_dataset(frame, tmp_path / "a", partition_by="p")
    found = read(tmp_path / "a").to_pandas()
    pd.testing.assert_frame_equal(found.sort_index(), frame[["v", "p"]].sort_index())
    ranged = frame.set_index(pd.RangeIndex(10, 13))
    write_dataset(ranged, tmp_path / "b", partition_by="p")
    found = read(tmp_path / "b").to_pandas()
    assert found["v"].to_dict() == {0: 2, 1: 1, 2: 3}  # not 10: 2, which labels another row


def test_an_iterator_of_filters_is_for_every_file(tmp_path):
    assert write_dataset(PEOPLE, tmp_path, bloom_filters=iter(["ssn"]),
                         max_rows_per_file=30).plain_filters == 4


def test_a_relative_path_and_a_part_of_a_filesystem(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    policy = Policy(footer_key="mf", tables=[TableRules(f"{tmp_path}/t", columns={"ssn": "mc"})])
    write_dataset(PEOPLE[:1], "t", policy=policy, keys=kms())
    part = pa.fs.SubTreeFileSystem(str(tmp_path), pa.fs.LocalFileSystem())
    write_dataset(PEOPLE[1:2], "t", filesystem=part, mode="append", policy=policy, keys=kms())
    assert numbers("t", kms()) == numbers("t", kms(), filesystem=part) == [0, 1]
    for name in files(tmp_path / "t"):
        with ParquetFile(tmp_path / "t" / name, kms()) as file:
            assert next(file.footer.column_chunks()).encryption == "column key"
    write_dataset(PEOPLE[2:3], "u", filesystem=pa.fs.LocalFileSystem())
    assert numbers("u") == [2]


# --- modes ---------------------------------------------------------------------------------------

def test_a_folder_with_files_is_refused_before_anything_is_read(tmp_path):
    write_dataset(PEOPLE, tmp_path)
    before = left_behind(tmp_path), files(tmp_path)
    taken = []
    with pytest.raises(CommitError, match='pass mode="append" to add to them'):
        write_dataset((taken.append(1) or batch for batch in PEOPLE.to_batches()), tmp_path)
    assert taken == [] and (left_behind(tmp_path), files(tmp_path)) == before


def test_append_and_overwrite(tmp_path):
    write_dataset(PEOPLE[:10], tmp_path)
    write_dataset(PEOPLE[10:20], tmp_path, mode="append")
    assert numbers(tmp_path) == list(range(20))
    write_dataset(PEOPLE[50:60], tmp_path, mode="overwrite")
    assert numbers(tmp_path) == list(range(50, 60)) and len(files(tmp_path)) == 1
    assert left_behind(tmp_path) == []


def test_a_folder_can_be_overwritten_with_its_own_rows(tmp_path):
    write_dataset(PEOPLE, tmp_path, max_rows_per_file=10)
    rows = ds.dataset([str(tmp_path / name) for name in files(tmp_path)])
    write_dataset(rows, tmp_path, mode="overwrite", partition_by="city")
    assert numbers(tmp_path) == list(range(100)) and len(files(tmp_path)) == 3


def test_only_the_partitions_of_the_new_rows_are_overwritten(tmp_path):
    (tmp_path / "day=2024-01-01" / "part").mkdir(parents=True)
    pq.write_table(pa.table({"n": [1]}), tmp_path / "day=2024-01-01" / "part" / "a.parquet")
    (tmp_path / "day=%61").mkdir()  # "a", as another writer escapes it
    pq.write_table(pa.table({"n": [2]}), tmp_path / "day=%61" / "b.parquet")
    (tmp_path / "day=a b").mkdir()
    pq.write_table(pa.table({"n": [3]}), tmp_path / "day=a b" / "c.parquet")
    (tmp_path / "day=a b" / "notes.txt").write_text("kept")

    def write(rows):
        table = pa.table({"n": pa.array(rows.values(), pa.int64()),
                          "day": pa.array(rows, pa.string())})
        return write_dataset(table, tmp_path, partition_by="day", mode="overwrite_partitions")

    assert write({"a": 10, "2024-01-01": 11}).rows == 2
    found = {path for path, _, names in os.walk(tmp_path) if {*names} - {"_SUCCESS", "generation"}}
    assert {os.path.relpath(path, tmp_path) for path in found} \
        == {"day=a", "day=2024-01-01", "day=a b"}
    with pytest.raises(CommitError, match=r"notes\.txt: overwrite would delete this file"):
        write({"a b": 12})
    os.remove(tmp_path / "day=a b" / "notes.txt")
    write({})
    assert numbers(tmp_path) == [3, 10, 11]
    write({None: 13})
    write({"": 14})  # the same folder
    assert numbers(tmp_path) == [3, 10, 11, 14]
    with pytest.raises(ColumnError, match=r"partition columns \(day\)"):
        write_dataset(pa.table({"n": [1], "hour": [1]}), tmp_path, partition_by="hour",
                      mode="overwrite_partitions")
    with pytest.raises(ValueError, match="needs partition_by"):
        write_dataset(PEOPLE, tmp_path, mode="overwrite_partitions")


def test_folders_that_readers_take_for_another_partition_are_not_overwritten(tmp_path):
    def plant(folder):
        (tmp_path / folder).mkdir(parents=True)
        pq.write_table(pa.table({"n": [1]}), tmp_path / folder / "a.parquet")
        return tmp_path / folder / "a.parquet"

    def write(day):
        write_dataset(pa.table({"n": [2], "day": [day]}), tmp_path, partition_by="day",
                      mode="overwrite_partitions")

    invalid = [plant("day=%FF"), plant("day=%FE")]  # no UTF-8
    write("\ufffd")
    assert all(file.exists() for file in invalid)
    nested = plant("day=1/day=2")  # pyarrow takes the first value
    with pytest.raises(ColumnError, match=r"partition columns \(day, day\)"):
        write("2")
    assert nested.exists()


def test_null_is_overwritten_however_its_folder_is_spelled(tmp_path):
    """pyarrow reads it as null, Spark's own source as a string."""
    folder = tmp_path / "day=%5F_HIVE_DEFAULT_PARTITION__"
    folder.mkdir()
    pq.write_table(pa.table({"n": [1]}), folder / "a.parquet")
    assert read(tmp_path).to_pylist() == [{"n": 1, "day": None}]
    write_dataset(pa.table({"n": [2], "day": pa.array([None], pa.string())}), tmp_path,
                  partition_by="day", mode="overwrite_partitions")
    assert read(tmp_path).to_pylist() == [{"n": 2, "day": None}]


def test_a_partition_is_not_overwritten_in_plaintext_beside_encrypted_ones(tmp_path):
    write_dataset(PEOPLE, tmp_path, partition_by="city", encryption=ENCRYPTED, keys=kms())
    with pytest.raises(CommitError, match="is encrypted, and what is added would not be"):
        write_dataset(PEOPLE, tmp_path, partition_by="city", mode="overwrite_partitions")


@pytest.mark.slow
def test_an_append_with_other_partition_columns_is_refused(tmp_path):
    write_dataset(PEOPLE, tmp_path, partition_by="city")
    with pytest.raises(ColumnError, match=r"partition columns \(city\), .* with \(n\) as well"):
        write_dataset(PEOPLE, tmp_path, partition_by="n", mode="append")
    write_dataset(PEOPLE, tmp_path, partition_by="n", mode="overwrite")
    assert len(files(tmp_path)) == 100


@pytest.mark.parametrize("options, error, message", [
    ({"mode": "ignore"}, ValueError, "mode must be one of error, append, overwrite"),
    ({"max_rows_per_file": 0}, ValueError, "max_rows_per_file must be at least 1"),
    ({"encryption": EncryptionConfiguration("mf", {"mx": ["ssn"]}), "keys": kms()},
     KeyNotFoundError, "mx"),
    ({"encryption": EncryptionConfiguration("mf", {"mc": ["ssn"]}, internal_key_material=False),
      "keys": kms()}, UnsupportedError, "internal_key_material"),
], ids=str)
def test_wrong_arguments_write_nothing(tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        write_dataset(PEOPLE, tmp_path / "t", **options)
    assert os.listdir(tmp_path) == []


def test_a_folder_must_be_a_path(tmp_path):
    with pytest.raises(TypeError, match="path must be that of a folder, not int"):
        write_dataset(PEOPLE, 3)
    (tmp_path / "x").write_text("")
    with pytest.raises(CommitError, match="there is a file"):
        write_dataset(PEOPLE, tmp_path / "x")


def test_the_help_is_that_of_the_function():
    text = pydoc.render_doc(secure_bloom.write_dataset, renderer=pydoc.plaintext)
    assert "partition_by : str or iterable of str" in text and "Raises" in text


# --- encryption ----------------------------------------------------------------------------------

class CountingKms(InMemoryKms):
    """Notes the master keys with which it wraps."""

    def __init__(self):
        super().__init__(MASTER_KEYS)
        self.wrapped = []

    def wrap_key(self, key_bytes, master_key_identifier):
        self.wrapped.append(master_key_identifier)
        return super().wrap_key(key_bytes, master_key_identifier)


@pytest.mark.slow
@pytest.mark.parametrize("encryption", [
    EncryptionConfiguration("mf", {"mc": ["ssn"]}, cache_lifetime=0),
    pe.EncryptionConfiguration("mf", column_keys={"mc": ["ssn"]})])
def test_the_kms_is_called_once_for_each_master_key(tmp_path, encryption):
    client = CountingKms()
    assert write_dataset(PEOPLE, tmp_path, partition_by="n", bloom_filters=["ssn"],
                         encryption=encryption, keys=client).encrypted_filters == 100
    assert sorted(client.wrapped) == ["mc", "mf"]
    assert read(tmp_path, kms()).num_rows == 100


def test_key_encryption_keys_and_a_keyring_are_accepted(tmp_path):
    keks = KeyEncryptionKeys(kms(), ["mf", "mc"])
    write_dataset(PEOPLE, tmp_path / "a", encryption=ENCRYPTED, keys=keks)
    assert numbers(tmp_path / "a", kms()) == list(range(100))
    keyring = Keyring.create(tmp_path / "keys.json")
    keyring.add("mf"), keyring.add("mc")
    write_dataset(PEOPLE, tmp_path / "b", encryption=ENCRYPTED, keys=tmp_path / "keys.json")
    assert numbers(tmp_path / "b", keyring) == list(range(100))


def test_with_single_wrapping_a_changed_master_key_stops_the_write(tmp_path):
    changing = {"mf": b"F" * 16, "mc": b"C" * 16}

    class Changing(InMemoryKms):
        def _key(self, name):
            return changing[name]

    def batches():
        yield PEOPLE.to_batches()[0]
        changing["mc"] = b"X" * 16
        yield PEOPLE.to_batches()[0]

    single = EncryptionConfiguration("mf", {"mc": ["ssn"]}, double_wrapping=False)
    arguments = {"encryption": single, "keys": Changing(changing), "max_rows_per_file": 100}
    with pytest.raises(MasterKeyChangedError):
        write_dataset(batches(), tmp_path, **arguments)
    assert files(tmp_path) == [] and left_behind(tmp_path) == []
    write_dataset(PEOPLE, tmp_path, **arguments)
    assert numbers(tmp_path, Changing(changing)) == list(range(100))


@pytest.mark.parametrize("encryption, partition_by", [
    (ENCRYPTED, "ssn"), (EncryptionConfiguration("mf", uniform_encryption=True), "city"),
    (EncryptionConfiguration("mf", {"mc": ["n", "city"]}), ["n", "ssn"]),
    (pe.EncryptionConfiguration("mf", column_keys={"mc": ["ssn"]}), "ssn")],
    ids=["a column key", "uniform", "two columns", "of pyarrow"])
def test_an_encrypted_column_is_not_written_into_paths(tmp_path, encryption, partition_by):
    with pytest.raises(ColumnError, match="its values would be part of folder names"):
        write_dataset(PEOPLE, tmp_path / "t", partition_by=partition_by, encryption=encryption,
                      keys=kms())
    assert os.listdir(tmp_path) == []


def test_names_that_confuse_pyarrow_are_refused_with_its_own_configuration(tmp_path):
    table = PEOPLE.rename_columns(["ssn", "a:b", "n"])
    asked = pe.EncryptionConfiguration("mf", column_keys={"mc": ["ssn"]})
    with pytest.raises(UnsupportedError, match="may encrypt another column instead"):
        write_dataset(table, tmp_path / "t", encryption=asked, keys=kms())
    write_dataset(table, tmp_path / "t", encryption=ENCRYPTED, keys=kms())
    assert numbers(tmp_path / "t", kms()) == list(range(100))


def test_plaintext_is_not_appended_to_encrypted_files(tmp_path):
    for name, encryption in (("a", ENCRYPTED), ("b", EncryptionConfiguration(
            "mf", {"mc": ["ssn"]}, plaintext_footer=True))):
        write_dataset(PEOPLE, tmp_path / name, encryption=encryption, keys=kms())
        with pytest.raises(CommitError, match="is encrypted, and what is added would not be"):
            write_dataset(PEOPLE, tmp_path / name, mode="append")
        assert len(files(tmp_path / name)) == 1 and left_behind(tmp_path / name) == []
        write_dataset(PEOPLE, tmp_path / name, mode="append", encryption=encryption, keys=kms())
        assert read(tmp_path / name, kms()).num_rows == 200


# --- policies ------------------------------------------------------------------------------------

POLICY = Policy(footer_key="mf", columns={"ssn": {"key": "mc", "bloom_filter": True}})


def test_a_policy_makes_encryption_and_filters(tmp_path):
    (tmp_path / "policy.toml").write_text(POLICY.to_toml())
    for policy in (POLICY, tmp_path / "policy.toml"):
        client = CountingKms()
        result = write_dataset(PEOPLE, tmp_path / "t", policy=policy, keys=client,
                               partition_by="city", mode="overwrite")
        assert (result.encrypted_filters, result.plain_filters) == (3, 0)
        assert sorted(client.wrapped) == ["mc", "mf"]
        assert read(tmp_path / "t", kms(), require_encryption=POLICY).num_rows == 100


@pytest.mark.filterwarnings("ignore::secure_bloom.errors.PolicyWarning")
def test_a_policy_is_met_or_nothing_is_written(tmp_path):
    wrong = EncryptionConfiguration("mf", {"mc": ["city"]})
    with pytest.raises(PolicyError, match="column ssn: it would be written in plaintext"):
        write_dataset(PEOPLE, tmp_path / "t", policy=POLICY, encryption=wrong, keys=kms())
    with pytest.raises(PolicyError, match="column ssn: its values would be part of folder names"):
        write_dataset(PEOPLE, tmp_path / "t", policy=POLICY, partition_by="ssn", keys=kms())
    assert os.listdir(tmp_path) == []
    assert write_dataset(PEOPLE.drop_columns("ssn"), tmp_path / "t", policy=POLICY,
                         plaintext=True).files == 1


def test_rules_of_a_policy_for_some_paths_are_for_the_paths_that_readers_see(tmp_path):
    policy = Policy(footer_key="mf", tables=[TableRules("*/people", columns={"ssn": "mc"})])
    write_dataset(PEOPLE, tmp_path / "people", policy=policy, keys=kms(), bloom_filters=["ssn"])
    with ParquetFile(tmp_path / "people" / files(tmp_path / "people")[0], kms()) as file:
        assert [info.encrypted for info in file.bloom_filters] == [True]
    write_dataset(PEOPLE, tmp_path / "others", policy=policy, plaintext=True)
    assert numbers(tmp_path / "others") == list(range(100))
    stricter = Policy(tables=[TableRules("*/others/city=Rome", sensitive=["n"])])
    before = files(tmp_path / "others")
    with pytest.raises(PolicyError, match=r"city=Rome.* column n: it would be written"):
        write_dataset(PEOPLE, tmp_path / "others", policy=stricter, partition_by="city",
                      mode="overwrite", plaintext=True)
    assert files(tmp_path / "others") == before and left_behind(tmp_path / "others") == []


# --- memory --------------------------------------------------------------------------------------

def batches(number: int, seen: list[int]):
    """Yield batches of 1,000 rows and about 1 MB, and note the memory that Arrow has in use."""
    before = pa.total_allocated_bytes()
    for i in range(number):
        rows = range(1000 * i, 1000 * i + 1000)
        yield pa.record_batch({"n": pa.array(rows), "k": pa.array([row % 5 for row in rows]),
                               "text": pa.array([f"{i:1000}"] * 1000)})
        seen.append(pa.total_allocated_bytes() - before)


@pytest.mark.slow
@pytest.mark.parametrize("partition_by", ["", "k"])
def test_a_stream_is_not_collected(tmp_path, monkeypatch, partition_by):
    for module in (row_groups, task_files):
        monkeypatch.setattr(module, "MAX_WAITING_BYTES", 5_000_000)
    seen = []
    result = write_dataset(batches(60, seen), tmp_path, partition_by=partition_by or [])
    assert result.rows == len(seen) * 1000 == 60_000 and numbers(tmp_path) == list(range(60_000))
    assert max(seen) < 10e6


@pytest.mark.slow
def test_a_large_batch_is_split_by_folder_part_by_part(tmp_path):
    table = pa.table({"n": range(1_000_000), "k": [0, 1] * 500_000,
                      "text": ["x" * 100] * 1_000_000})
    before, most = pa.total_allocated_bytes(), [0]

    class Watched(task_files.TaskFiles):
        def add(self, folder_name, batch):
            super().add(folder_name, batch)
            most[0] = max(most[0], pa.total_allocated_bytes() - before)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("secure_bloom.datasets.writing.TaskFiles", Watched)
        write_dataset(table, tmp_path, partition_by="k", row_group_size=50_000)
    assert read(tmp_path, columns=["n"]).num_rows == 1_000_000
    assert most[0] < 40e6 < table.nbytes


# --- faults --------------------------------------------------------------------------------------

@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
def test_a_stream_that_fails_changes_nothing(tmp_path, mode, error):
    def failing():
        yield from PEOPLE.to_batches(max_chunksize=10)
        raise error("the source is gone")

    folder = tmp_path / "t"
    if mode != "error":
        write_dataset(PEOPLE[:10], folder)
    before = files(folder) if mode != "error" else []
    with pytest.raises(error, match="the source is gone"):
        write_dataset(failing(), folder, mode=mode, row_group_size=5, max_rows_per_file=10)
    assert files(folder) == before and left_behind(folder) == []
    write_dataset(PEOPLE[10:20], folder, mode="append")
    assert numbers(folder) == list(range(0 if before else 10, 20))


@pytest.mark.slow
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_fault_at_every_operation_leaves_all_or_nothing(tmp_path, monkeypatch, overwrite):
    store = local_store(tmp_path, monkeypatch)

    def write(folder, faults):
        with monkeypatch.context() as patch:
            write_dataset(PEOPLE[10:20], folder.folder, mode="overwrite" if overwrite else "append",
                          max_rows_per_file=5, filesystem=folder.with_faults(faults, patch))

    def prepared(name):
        write_dataset(PEOPLE[:10], tmp_path / name)
        return store.below(name)

    counted = Faults()
    write(prepared("count"), counted)
    new = list(range(10, 20) if overwrite else range(20))
    outcomes = set()
    for at in filter(lambda at: at <= counted.count, store.steps()):
        folder = prepared(str(at))
        try:
            write(folder, Faults(at))
            done = True
        except OSError:
            done = False
        assert numbers(folder.folder) == (new if done else list(range(10)))
        outcomes.add(done)
        write_dataset(PEOPLE[50:51], folder.folder, mode="append")
        later_jobs(folder, monkeypatch)
        assert numbers(folder.folder) == [*(new if done else range(10)), 50]
        assert left_behind(folder.folder) == []
    assert outcomes == {True, False}


@pytest.mark.slow
def test_partitions_can_be_overwritten_again_wherever_one_was_killed(tmp_path,
                                                                        monkeypatch):
    """Also by a process that was killed while it claimed the partitions."""
    def write(rows, folder, filesystem=None, day=1):
        write_dataset(pa.table({"n": rows, "day": [day] * len(rows)}), str(folder),
                      partition_by="day", mode="overwrite_partitions", filesystem=filesystem)

    outcomes = set()
    write([1, 2], tmp_path / "base")
    write([9], tmp_path / "base", day=9)
    for at in Store(pa.fs.LocalFileSystem, str(tmp_path), every=14).steps(0):
        folder = tmp_path / str(at)
        shutil.copytree(tmp_path / "base", folder)
        died = dies(lambda filesystem, folder=folder: write([3], folder, filesystem), at)
        seen = numbers(folder)
        assert seen in ([1, 2, 9], [3, 9])
        outcomes.add(tuple(seen))
        write([4], folder)
        assert numbers(folder) == [4, 9]
        later_jobs(local_store(folder, monkeypatch), monkeypatch)
        assert numbers(folder) == [4, 9] and left_behind(folder) == []
        if not died:
            break
    assert len(outcomes) == 2 and at > 20


# --- several writers -----------------------------------------------------------------------------

def test_every_kind_of_store(store):
    for mode, start in (("error", 0), ("append", 10), ("overwrite", 30)):
        write_dataset(PEOPLE[start:start + 10], store.folder, filesystem=store.filesystem,
                      mode=mode, partition_by="city", encryption=ENCRYPTED, keys=kms())
        expected = range(20) if mode == "append" else range(start, start + 10)
        assert numbers(store.folder, kms(), filesystem=store.filesystem) == list(expected)
    assert store.staged() == []
    job = Job(store.filesystem, store.folder, False)
    assert len(job.visible_files()) == 3


def test_each_file_of_a_job_is_synced_once_before_it_is_published(tmp_path, monkeypatch):
    synced, fsync, publish = [], os.fsync, Job._publish

    def watched(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    def check(job, names):
        assert len(names) == 5
        assert {f"{job.staging}/{name}" for name in names} <= set(synced)
        publish(job, names)

    monkeypatch.setattr(os, "fsync", watched)
    monkeypatch.setattr(Job, "_publish", check)
    write_dataset(PEOPLE, tmp_path / "a", max_rows_per_file=20)
    assert read(tmp_path / "a").num_rows == len(PEOPLE)
    files = [name for name in synced if ".parquet" in name]  # under its name or a temporary one
    assert len(files) == len(set(files)) == 5


def test_each_folder_of_a_job_is_synced_once_before_the_commit_record(tmp_path, monkeypatch):
    synced, publish = [], Job._publish

    def watched(job, names):
        before = len(synced)
        publish(job, names)
        days = [f"{job.table}/day={number}" for number in range(len(names))]
        nested = [f"{day}/n=1" for day in days]
        assert sorted(synced[before:]) == sorted([job.table, *days, *nested])

    def syncs(days):
        synced.clear()
        write_dataset(pa.table({"day": range(days), "n": [1] * days, "v": [2] * days}),
                      tmp_path / str(days), partition_by=["day", "n"])
        return len(synced)

    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(
        os.readlink(f"/proc/self/fd/{descriptor}")))
    monkeypatch.setattr(Job, "_publish", watched)
    assert syncs(12) - syncs(2) == 10 * 3  # of the file and of two folders


def test_a_file_that_cannot_be_made_durable_is_not_published(tmp_path, monkeypatch):
    fsync = os.fsync

    def full(descriptor):
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(".parquet"):
            raise OSError(28, "no space left")
        fsync(descriptor)

    write_dataset(PEOPLE, tmp_path / "a")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space left"):
            write_dataset(PEOPLE, tmp_path / "a", mode="overwrite", max_rows_per_file=20)
        with pytest.raises(OSError, match="no space left"):  # a file without rows
            write_dataset(PEOPLE.slice(0, 0), tmp_path / "a", mode="overwrite")
    assert read(tmp_path / "a").equals(PEOPLE)
    assert os.listdir(tmp_path / "a/_staging") == ["generation"]
