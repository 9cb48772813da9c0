"""Files of a data set whose keys a reader has only in part."""

import pickle
import subprocess
import sys
import warnings
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import secure_bloom
from secure_bloom import EncryptionConfiguration, Keyring
from secure_bloom.arrow.masking import masked_names
from secure_bloom.errors import (
    NO_KEY,
    AuthenticationError,
    ColumnError,
    KeyAccessError,
    KeyUnwrapError,
    KmsUnavailableError,
    MissingKeyWarning,
)
from secure_bloom.keys import InMemoryKms, KeyEncryptionKeys
from secure_bloom.keys.environment import NO_KEYS
from tests.missing_keys import ALL, KEYS, MARK, TABLE, Kms, forget_warnings, nulls, put

pytestmark = pytest.mark.filterwarnings("ignore::secure_bloom.errors.MissingKeyWarning")

FILES = {"a": {"pii": ["ssn"]}, "b": {"money": ["ssn"]}, "c": {"money": ["ssn"]},
         "d": {"money": ["city"]}, "e": {"pii": ["ssn"]}, "f": {"money": ["home.zip", "ssn"]}}
EXPECTED = [*nulls(TABLE), *nulls(TABLE, "ssn") * 2, *nulls(TABLE, "city"), *nulls(TABLE),
            *nulls(TABLE, "home", "ssn")]


@pytest.fixture
def folder(tmp_path):
    """Six files; a reader without key "money" lacks ssn, city or home in some of them."""
    for name, columns in FILES.items():
        put(tmp_path / f"{name}.parquet", columns)
    return tmp_path


def masking(source, keys=None, **options):
    return secure_bloom.dataset(source, keys or Kms("money"), on_missing_key="null", **options)


def read_folder(source, keys=None, columns=None, filters=None):
    return secure_bloom.read_table(source, keys or Kms("money"), columns=columns, filters=filters,
                                   on_missing_key="null")


READS = {
    "read_table": read_folder,
    "to_table": lambda source, keys=None, columns=None, filters=None:
        masking(source, keys).to_table(columns, filters),
    "to_reader": lambda source, keys=None, columns=None, filters=None:
        masking(source, keys).scanner(columns, filters).to_reader().read_all(),
    "stream": lambda source, keys=None, columns=None, filters=None:
        pa.table(masking(source, keys).scanner(columns, filters)),
    "fragments": lambda source, keys=None, columns=None, filters=None: pa.concat_tables(
        [one.to_table(columns=columns, filter=filters)
         for one in masking(source, keys).get_fragments(filters)], promote_options="default"),
}
every_read = pytest.mark.parametrize("read", READS.values(), ids=READS)
reads_in_python = pytest.mark.parametrize(  # whose errors are ours
    "read", [read for name, read in READS.items() if name != "stream"],
    ids=[name for name in READS if name != "stream"])


@every_read
def test_columns_are_masked_in_the_files_whose_key_is_missing(read, folder):
    table = read(folder)
    table.validate(full=True)
    assert table.to_pylist() == EXPECTED
    assert table.schema.equals(TABLE.schema)


@every_read
@pytest.mark.parametrize("columns", [["ssn"], ["home", "city"], ["pay", "ssn"]], ids=str)
def test_a_projection_keeps_order_and_mark(read, folder, columns):
    table = read(folder, columns=columns)
    assert table.to_pylist() == [{name: row[name] for name in columns} for row in EXPECTED]
    if read is not READS["fragments"]:  # of which each has its own schema
        assert masked_names(table.schema) == [name for name in columns if name != "pay"]
        assert all(table.schema.field(name).metadata == MARK
                   for name in masked_names(table.schema))


@every_read
@pytest.mark.parametrize("filters", [[("pay", ">", 10)], pc.field("pay") > 10], ids=str)
def test_a_filter_on_open_columns_selects_rows(read, folder, filters):
    expected = [{"ssn": row["ssn"], "city": row["city"]} for row in EXPECTED if row["pay"] > 10]
    assert read(folder, columns=["ssn", "city"], filters=filters).to_pylist() == expected


@every_read
def test_only_the_keys_of_the_columns_that_are_read_are_requested(read, folder):
    for columns, filters in ((["pay"], None), (["pay"], [("pay", ">", 10)])):
        kms = Kms("money")
        assert read(folder, kms, columns, filters).num_rows == (12 if filters else 18)
        assert set(kms.unwrapped) == {"footer"}
    kms = Kms("money")
    assert read(folder, kms, ["city"]).schema.field("city").metadata == MARK or read \
        is READS["fragments"]
    assert "pii" not in kms.unwrapped


def test_rows_are_counted_without_column_keys(folder):
    kms = Kms("money")
    assert masking(folder, kms).count_rows() == 18
    assert masking(folder, kms).count_rows(pc.field("pay") == 10) == 6
    assert set(kms.unwrapped) == {"footer"}


def test_a_denied_key_is_requested_once_for_all_files_of_a_job(tmp_path):
    keks = KeyEncryptionKeys(ALL, ["footer", "money"])
    for number in range(20):
        secure_bloom.write_table(TABLE, tmp_path / f"{number}.parquet", keys=keks,
                                 encryption=EncryptionConfiguration(
                                     "footer", {"money": ["ssn", "city"]}))
    for action in (read_folder, lambda folder, kms: [masking(folder, kms).to_table()] * 3):
        kms = Kms("money")
        action(tmp_path, kms)
        assert Counter(kms.unwrapped) == {"footer": 1, "money": 1}


def test_a_kms_may_deny_one_wrapped_key_of_a_master_key(tmp_path):
    class DenyingOne(InMemoryKms):
        first = None

        def unwrap_key(self, wrapped_key, master_key_identifier):
            if master_key_identifier == "money":
                self.first = self.first or wrapped_key
                if wrapped_key == self.first:
                    raise KeyAccessError("the KMS says no")
            return super().unwrap_key(wrapped_key, master_key_identifier)

    for name in "ab":
        secure_bloom.write_table(TABLE, tmp_path / f"{name}.parquet", keys=ALL,
                                 encryption=EncryptionConfiguration(
                                     "footer", {"money": ["ssn"]}, double_wrapping=False))
    kms = DenyingOne(KEYS)
    assert read_folder(tmp_path / "b.parquet", kms).to_pylist() == nulls(TABLE, "ssn")
    expected = [*nulls(TABLE), *nulls(TABLE, "ssn")]
    assert masking(tmp_path, kms).to_table().to_pylist() == expected
    assert read_folder(tmp_path, kms).to_pylist() == expected


def test_a_denied_key_is_requested_again_by_a_new_data_set(folder):
    kms = Kms("money")
    assert masking(folder, kms).to_table().to_pylist() == EXPECTED
    kms.denied = ()
    assert masking(folder, kms).to_table().to_pylist() == nulls(TABLE) * 6
    assert read_folder(folder, kms).to_pylist() == nulls(TABLE) * 6


def test_a_key_that_is_added_to_a_keyring_is_used_by_a_new_data_set(folder, tmp_path):
    Keyring.create(tmp_path / "_keys.json")
    keyring = Keyring(tmp_path / "_keys.json", check_interval=0)
    for name in ("footer", "pii"):
        keyring.add(name, KEYS[name])
    dataset = masking(folder, keyring)
    assert dataset.to_table().to_pylist() == EXPECTED
    keyring.add("money", KEYS["money"])
    assert masking(folder, keyring).to_table().to_pylist() == nulls(TABLE) * 6


# --- filters -------------------------------------------------------------------------------------

@reads_in_python
@pytest.mark.parametrize("filters", [
    [("ssn", "==", "ssn-1")], [("ssn", "==", "certainly absent")],
    [("pay", "==", 77), ("ssn", "==", "ssn-1")], pc.field("ssn") == "ssn-1",
    pc.field("ssn").is_null(), [("home.street", "==", "A")],
    pc.field("home", "street") == "A"], ids=str)
def test_a_filter_on_a_column_that_is_masked_anywhere_is_an_error(read, folder, filters):
    with pytest.raises(KeyAccessError, match=r"file .*[bf]\.parquet, row group 0, column (ssn|ho)"):
        read(folder, columns=["pay"], filters=filters)


def test_every_method_with_a_filter_refuses_masked_columns(folder):
    dataset, where = masking(folder), pc.field("ssn") == "certainly absent"
    for action in (lambda: dataset.explain(where), lambda: dataset.count_rows(where),
                   lambda: list(dataset.get_fragments(where)),
                   lambda: dataset.head(1, filter=where),
                   lambda: dataset.filter(where).to_table(columns=["pay"]),
                   lambda: dataset.filter(where).count_rows(pc.field("pay") > 1)):
        with pytest.raises(KeyAccessError, match=r"b\.parquet, row group 0, column ssn"):
            action()


def test_masked_columns_are_not_joined_by(folder):
    dataset = masking(folder, schema=TABLE.schema.remove(3))  # Arrow cannot join structs
    other = ds.dataset(pa.table({"ssn": ["ssn-0"], "pay": [10], "city": ["Rome"]}))
    for action in (lambda: dataset.join(other, "ssn"), lambda: dataset.join(other, ["pay", "ssn"]),
                   lambda: dataset.join(dataset, keys="pay", right_keys=["city"]),
                   lambda: dataset.join_asof(other, on="pay", by="ssn", tolerance=1),
                   lambda: dataset.filter(pc.field("pay") > 0).join(other, "ssn")):
        with pytest.raises(KeyAccessError, match=r"[bd]\.parquet, row group 0, column (ssn|city)"):
            action()
    plain = ds.dataset(pa.table({"pay": [10], "extra": ["x"]}))
    assert dataset.join(plain, "pay", join_type="inner").count_rows() == 6
    assert dataset.join(plain, "pay", None, "inner").count_rows() == 6


@reads_in_python
def test_files_that_are_ruled_out_by_their_path_need_no_key(read, tmp_path):
    for region, columns in (("eu", {"money": ["ssn"]}), ("us", {"pii": ["ssn"]})):
        (tmp_path / f"region={region}").mkdir()
        put(tmp_path / f"region={region}" / "1.parquet", columns)
    kms = Kms("money")
    for filters in ([("region", "==", "us"), ("ssn", "==", "ssn-1")],
                    (pc.field("region") == "us") & (pc.field("ssn") == "ssn-1")):
        found = read(tmp_path, kms, filters=filters)
        assert found.to_pylist() == [TABLE.to_pylist()[1] | {"region": "us"}]
        assert masked_names(found.schema) == []
    found = read(tmp_path, kms, ["ssn"], [("region", "==", "us")])
    assert found["ssn"].to_pylist() == TABLE["ssn"].to_pylist() and not masked_names(found.schema)
    assert "money" not in kms.unwrapped
    with pytest.raises(KeyAccessError, match=r"region=eu/1\.parquet"):
        read(tmp_path, kms, filters=[("ssn", "==", "ssn-1")])
    found = read(tmp_path, kms, ["region", "ssn"])
    assert found["ssn"].to_pylist() == [None] * 3 + TABLE["ssn"].to_pylist()


def test_expressions_may_rename_a_masked_column_but_not_compute_with_it(folder):
    dataset = masking(folder)
    columns = {"number": pc.field("ssn"), "double": pc.multiply(pc.field("pay"), 2)}
    scanner = dataset.scanner(columns)
    assert masked_names(scanner.projected_schema) == ["number"]
    table = scanner.to_table()
    assert table.schema.equals(scanner.projected_schema, check_metadata=True)
    assert table.to_pylist() == [{"number": row["ssn"], "double": row["pay"] * 2}
                                 for row in EXPECTED]
    for expression in (pc.is_null(pc.field("ssn")), pc.field("home", "street"),
                       pc.coalesce(pc.field("city"), pc.scalar("unknown"))):
        with pytest.raises(KeyAccessError, match=r"column (ssn|home|city)"):
            dataset.to_table(columns={"x": expression})


# --- schemas -------------------------------------------------------------------------------------

def test_all_results_of_a_scan_have_one_schema(folder):
    dataset = masking(folder, with_source=True)
    assert dataset.schema.names == ["file", "row_group", *TABLE.column_names]
    assert masked_names(dataset.schema) == []  # no key was requested for it
    scanner = dataset.scanner()
    assert masked_names(scanner.projected_schema) == ["ssn", "city", "home"]
    for schema in (scanner.to_reader().schema, scanner.to_table().schema, scanner.head(1).schema,
                   *(batch.schema for batch in scanner.to_batches())):
        assert schema.equals(scanner.projected_schema, check_metadata=True)
    rows = scanner.to_table()
    assert [row["ssn"] for row in rows.to_pylist()] == [row["ssn"] for row in EXPECTED]
    assert rows["row_group"].to_pylist() == [0, 0, 1] * 6


@every_read
def test_types_that_differ_between_files(read, tmp_path):
    for name, type_, key in (("a", pa.int32(), "pii"), ("b", pa.int64(), "money")):
        table = pa.table({"n": pa.array([1, 2], type_)})
        put(tmp_path / f"{name}.parquet", {key: ["n"]}, table, bloom_filters=None)
    table = read(tmp_path)
    assert table["n"].to_pylist() == [1, 2, None, None] and table["n"].type == pa.int64()


@every_read
def test_a_column_that_may_not_be_null_becomes_nullable(read, tmp_path):
    schema = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("n", "m")])
    table = pa.table([[1, 2], [3, 4]], schema=schema)
    for name, key in (("a", "pii"), ("b", "money")):
        put(tmp_path / f"{name}.parquet", {key: ["n"]}, table, bloom_filters=None)
    found = read(tmp_path)
    assert found["n"].to_pylist() == [1, 2, None, None]
    assert found.schema.field("n").nullable and not found.schema.field("m").nullable
    assert masking(tmp_path).schema.field("n").nullable


@every_read
def test_open_columns_are_read_without_any_key(read, tmp_path):
    for name, columns in FILES.items():
        put(tmp_path / f"{name}.parquet", columns, plaintext_footer=True)
    expected = [*nulls(TABLE, "ssn") * 3, *nulls(TABLE, "city"), *nulls(TABLE, "ssn"),
                *nulls(TABLE, "home", "ssn")]
    assert read(tmp_path, NO_KEYS).to_pylist() == expected


def test_plaintext_files_beside_encrypted_ones(folder):
    secure_bloom.write_table(TABLE, folder / "plain.parquet")
    assert masking(folder).to_table().to_pylist() == EXPECTED + nulls(TABLE)
    assert read_folder(folder).to_pylist() == EXPECTED + nulls(TABLE)


# --- errors --------------------------------------------------------------------------------------

@every_read
def test_a_kms_that_fails_is_an_error(read, folder):
    for error in (KmsUnavailableError, KeyUnwrapError, RuntimeError):
        with pytest.raises(error):
            read(folder, Kms("money", error=error))
    with pytest.raises(KeyUnwrapError, match=r"[bdf]\.parquet"):
        read(folder, InMemoryKms(KEYS | {"money": b"x" * 16}))


@every_read
def test_an_encrypted_footer_needs_its_key(read, folder):
    with pytest.raises(NO_KEY):
        read(folder, Kms("footer"))


@reads_in_python
def test_an_error_names_the_file_that_is_damaged_among_masked_ones(read, folder):
    secure_bloom.write_table(TABLE, folder / "e.parquet", keys=ALL,
                             encryption=secure_bloom.EncryptionConfiguration(
                                 "footer", uniform_encryption=True))
    data = bytearray((folder / "e.parquet").read_bytes())
    data[60] ^= 1
    (folder / "e.parquet").write_bytes(data)
    with pytest.raises(AuthenticationError, match=r"e\.parquet"):
        read(folder)


@every_read
def test_required_encryption_is_still_required(read, folder):
    secure_bloom.write_table(TABLE, folder / "c.parquet")
    for action in (lambda: secure_bloom.read_table(folder, Kms("money"), on_missing_key="null",
                                                   require_encryption=["ssn"]),
                   lambda: masking(folder, require_encryption=["ssn"])):
        with pytest.raises(AuthenticationError, match=r"c\.parquet: the file is not enc"):
            action()


def test_a_file_whose_key_is_replaced_by_a_missing_one(folder):
    dataset = masking(folder)
    scanner = dataset.scanner(["pay", "city"])
    assert masked_names(scanner.projected_schema) == ["city"]
    scanner = dataset.scanner(["pay"])
    assert masked_names(scanner.projected_schema) == []
    put(folder / "a.parquet", {"money": ["pay"]})
    with pytest.raises(secure_bloom.errors.ChangedMeanwhileError, match=r"a\.parquet"):
        list(scanner.to_batches())
    with pytest.raises(secure_bloom.errors.ChangedMeanwhileError, match=r"a\.parquet"):
        scanner.to_table()


def test_the_option_is_checked(folder):
    for call in (secure_bloom.dataset, secure_bloom.read_table):
        with pytest.raises(ValueError, match="on_missing_key"):
            call(folder, ALL, on_missing_key="nulls")


# --- around --------------------------------------------------------------------------------------

@every_read
def test_a_warning_says_how_many_files(read, folder):
    forget_warnings()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(2):
            read(folder, columns=["city", "ssn", "pay"])
    seen = [str(one.message) for one in seen if one.category is MissingKeyWarning]
    if read is READS["fragments"]:
        assert len(seen) == 2  # ssn, then city
        return
    assert len(seen) == 1 and seen[0].endswith(
        ": the keys of 2 columns are missing, so the values are null: city (in 1 file), "
        "ssn (in 3 files)")


def test_masked_rows_are_not_written(folder, tmp_path):
    for rows in (masking(folder).to_table(), read_folder(folder)):
        with pytest.raises(ColumnError, match="ssn"):
            secure_bloom.write_table(rows, tmp_path / "new" / "x.parquet")
    for batch in masking(folder).to_batches():  # also those of files with all keys
        with pytest.raises(ColumnError, match="ssn"):
            secure_bloom.ParquetWriter(tmp_path / "x.parquet", batch.schema)


def test_masked_streams_are_not_written(folder, tmp_path):
    dataset, target = masking(folder), tmp_path / "_new"
    batches = [*secure_bloom.ParquetFile(folder / "a.parquet", ALL).iter_batches(),
               *secure_bloom.ParquetFile(folder / "b.parquet", Kms("money"),
                                         on_missing_key="null").iter_batches()]
    for rows in (dataset, dataset.scanner(), dataset.scanner().to_reader(), batches,
                 dataset.scanner(["ssn", "pay"]).to_table()):
        for action in (lambda: secure_bloom.write_dataset(rows, target),  # noqa: B023
                       lambda: secure_bloom.write_dataset(rows, target,  # noqa: B023
                                                          partition_by="ssn"),
                       lambda: secure_bloom.write_table(rows, tmp_path / "_new.parquet")):  # noqa: B023
            with pytest.raises(ColumnError, match=r"ssn.*the key of this column was missing"):
                action()
    assert not list(target.rglob("*.parquet")) and not (tmp_path / "_new.parquet").exists()
    open_ = dataset.scanner(["pay"])
    secure_bloom.write_dataset(open_, target)
    assert secure_bloom.dataset(target).count_rows() == 18


def test_values_that_do_not_fit_beside_a_masked_column(folder):
    schema = TABLE.schema.set(2, pa.field("pay", pa.int8()))
    put(folder / "g.parquet", {"money": ["ssn"]}, TABLE.set_column(2, "pay", [[1, 2, 1000]]))
    with pytest.raises(secure_bloom.errors.UnsupportedError, match=r"g\.parquet.*do not fit"):
        masking(folder, schema=schema).to_table()


@pytest.mark.slow
def test_a_data_set_masks_in_another_process(folder, tmp_path):
    keyring = Keyring.create(tmp_path / "_keys.json")
    for name, key in KEYS.items():
        if name != "money":
            keyring.add(name, key)
    dataset = masking(folder, str(tmp_path / "_keys.json"))
    assert dataset.to_table().to_pylist() == EXPECTED
    (tmp_path / "_pickled").write_bytes(pickle.dumps(dataset))
    code = ("import pickle, sys; d = pickle.load(open(sys.argv[1], 'rb'))\n"
            "print(d.to_table().to_pylist())")
    out = subprocess.run([sys.executable, "-W", "ignore", "-c", code, tmp_path / "_pickled"],
                         capture_output=True, text=True, check=True).stdout
    assert out.strip() == str(EXPECTED)
    fragments = pickle.loads(pickle.dumps(list(dataset.get_fragments())))
    assert [row for one in fragments for row in one.to_table().to_pylist()] == EXPECTED


def test_duckdb_over_masked_columns(folder):
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.register("people", masking(folder))

    def rows(query):
        return connection.sql(query).fetchall()

    assert rows("select ssn, city from people") == [
        (row["ssn"], row["city"]) for row in EXPECTED]
    assert rows("select count(*), count(ssn), count(city) from people") == [(18, 9, 15)]
    assert len(rows("select ssn from people where pay = 10")) == 6
    with pytest.raises(duckdb.Error, match=r"b\.parquet, row group 0, column ssn"):
        rows("select pay from people where ssn = 'ssn-1'")
