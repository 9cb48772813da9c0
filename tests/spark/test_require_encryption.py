"""Spark readers that require encryption, by option or by their schema."""

import pickle

import pyarrow as pa
import pytest
from pyspark.sql import types as T

import secure_bloom
from secure_bloom import EncryptionConfiguration
from secure_bloom.errors import KeyAccessError, OptionError
from secure_bloom.spark.options.options import Options
from secure_bloom.spark.reading.folder import Folder
from secure_bloom.spark.reading.reader import SecureParquetReader
from tests.forging import plaintext_file, stripped
from tests.spark.helpers import failure, read, rows_here, uses_spark, visible
from tests.support import WatchedKms

pytestmark = uses_spark

REQUIRE = "require.encryption"
TABLE = pa.table({"ssn": ["ssn-0", "ssn-1"], "city": ["city-0", "city-1"], "id": [0, 1]})
MARKED = T.StructType([T.StructField("ssn", T.StringType(), True, {"secure_bloom.key": "pii"}),
                       T.StructField("city", T.StringType())])


def put(folder, name, keyring, columns, table=TABLE, footer="footer", key="pii", **options):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    secure_bloom.write_table(table, folder / name, bloom_filters={"ssn": True}, keys=keyring,
                             encryption=EncryptionConfiguration(footer, {key: columns}),
                             row_group_size=1, **options)


@pytest.fixture
def folder(tmp_path, keyring):
    """With two files, in which ssn is encrypted."""
    for name, start in (("a", 0), ("b", 2)):
        put(tmp_path / "t", f"{name}.parquet", keyring, ["ssn"],
            TABLE.set_column(0, "ssn", pa.array([f"ssn-{start}", f"ssn-{start + 1}"])))
    return tmp_path / "t"


def test_what_is_encrypted_is_read(spark, folder, keyring):
    options = {"keys": str(keyring.path)}
    frame = read(spark, folder, **options, **{REQUIRE: "pii: ssn"})
    assert frame.count() == 4 and frame.where("ssn = 'ssn-3'").count() == 1
    for required in ("ssn", " SSN ", "pii: ssn", "false"):
        for more in ({}, {"columns": "id"}):
            assert rows_here(folder, **options, **more, **{REQUIRE: required}) == 4
    found = secure_bloom.spark.read(spark, str(folder), filters=[("ssn", "=", "ssn-3")], **options,
                                    **{REQUIRE: "pii: ssn"})
    assert found.count() == 1
    secure_bloom.write_dataset(TABLE, folder, mode="overwrite", keys=keyring,
                               encryption=EncryptionConfiguration("money",
                                                                  uniform_encryption=True))
    for required in ("true", "ssn, id", "money: ssn"):
        assert rows_here(folder, **options, **{REQUIRE: required}) == 2


def test_what_is_not_as_demanded_is_refused_on_the_driver(folder, keyring):
    for required, words in (
            ("true", "row group 0, column city: the column is not encrypted"),
            ("city, ssn", "row group 0, column city: the column is not encrypted"),
            ("money: ssn", "column ssn: the column is encrypted under master key 'pii'"),
            ("snn", "option require.encryption: there is no column 'snn'"),
            ("pii: ssn; money: SSN", "option require.encryption: require_encryption names two"),
            ("ssn;", "option require.encryption: it must have the form"),
            ("pii: ssn; money: ssn", "option require.encryption: it must have the form")):
        assert words in failure(lambda required=required: Folder(Options(
            {"path": str(folder), "keys": str(keyring.path), REQUIRE: required})).schema())


@pytest.mark.parametrize("required", ["true", "ssn", "pii: ssn"])
@pytest.mark.parametrize("columns", [["ssn", "city", "id"], ["city", "id"]], ids=str)
def test_a_plaintext_file_in_the_place_of_another(spark, folder, keyring, required, columns):
    """By somebody without any key, who says that no value is in it."""
    if required == "true":
        (folder / visible(folder)[0]).unlink()
        put(folder, "0.parquet", keyring, ["ssn", "city", "id"])
    last = folder / visible(folder)[-1]
    last.write_bytes(plaintext_file(TABLE.select(columns), []))
    options = {"keys": str(keyring.path)}
    assert rows_here(folder, **options, mergeSchema="true") > 0
    for more in ({}, {"columns": "id"}):
        message = failure(lambda more=more: rows_here(folder, **options, **more,
                                                      **{REQUIRE: required}))
        assert last.name in message and "the file is not encrypted" in message


def test_one_row_group_that_is_stripped(tmp_path, keyring):
    put(tmp_path / "t", "a.parquet", keyring, ["ssn"])
    put(tmp_path / "t", "b.parquet", keyring, ["ssn"])
    path = tmp_path / "t" / "b.parquet"
    path.write_bytes(stripped(path.read_bytes(), keyring, "ssn", [1]))
    message = failure(lambda: rows_here(tmp_path / "t", keys=str(keyring.path), columns="id",
                                        **{REQUIRE: "ssn"}))
    assert "b.parquet, row group 1, column ssn: the column is not encrypted" in message


def test_a_column_under_a_name_in_other_case(tmp_path, keyring):
    """Spark would take it for the same column."""
    put(tmp_path / "t", "a.parquet", keyring, ["ssn"])
    table = TABLE.rename_columns(["SSN", "city", "id"])
    secure_bloom.write_table(table, tmp_path / "t" / "b.parquet", bloom_filters={}, keys=keyring,
                             encryption=EncryptionConfiguration("footer", {"pii": ["city"]}))
    assert "b.parquet, row group 0, column SSN: the column is not encrypted" in failure(
        lambda: rows_here(tmp_path / "t", keys=str(keyring.path), mergeSchema="false",
                          **{REQUIRE: "ssn"}))


def test_a_column_whose_values_are_in_the_paths(spark, tmp_path, keyring):
    put(tmp_path / "t", "ssn=x/a.parquet", keyring, ["ssn"])
    options = {"keys": str(keyring.path)}
    assert read(spark, tmp_path / "t", **options).first().ssn == "x"  # the attack
    for schema, required in ((None, {REQUIRE: "ssn"}), (MARKED, {})):
        assert "from the path" in failure(lambda schema=schema, required=required: rows_here(
            tmp_path / "t", schema, **options, **required))


def test_a_column_that_only_names_of_folders_have(tmp_path, keyring):
    put(tmp_path / "t", "COUNTRY=Evil/a.parquet", keyring, ["ssn"])
    options = {"keys": str(keyring.path)}
    assert rows_here(tmp_path / "t", **options, **{REQUIRE: "ssn"}) == 2
    for required in ({REQUIRE: "country"}, {REQUIRE: "pii: country"},
                     {"policy": "sensitive = ['country']\n"}):
        assert "from the path" in failure(
            lambda required=required: rows_here(tmp_path / "t", **options, **required))


@pytest.mark.sweep
def test_columns_that_the_schema_marks_are_demanded(spark, folder, keyring):
    def given(schema, **options):
        return spark.read.format("secure_parquet").schema(schema).options(
            keys=str(keyring.path), **options).load(str(folder))

    assert given(MARKED).count() == 4
    assert given(read(spark, folder, keys=str(keyring.path)).schema).count() == 4
    put(folder, "other-key.parquet", keyring, ["ssn"], key="money")
    assert given(MARKED).count() == 6
    demanding = given(MARKED, **{REQUIRE: "pii:ssn"})
    assert "'money', but 'pii' is required" in failure(demanding.collect)
    (folder / "plain.parquet").write_bytes(plaintext_file(TABLE, []))
    assert "plain.parquet: the file is not encrypted" in failure(given(MARKED).collect)
    assert "the file is not encrypted" in failure(given(MARKED).select("city").collect)
    assert given("ssn string, city string").count() == 8
    assert given(MARKED, **{REQUIRE: "false"}).count() == 8  # if explicitly allowed
    assert "there is no column 'id'" in failure(given(MARKED, **{REQUIRE: "id"}).collect)


@pytest.mark.sweep
def test_fields_that_the_schema_marks_are_demanded(spark, tmp_path, keyring):
    table = pa.table({"home": [{"street": "s", "zip": 1}], "tags": [["t"]]})
    home = T.StructType([
        T.StructField("street", T.StringType(), True, {"secure_bloom.key": "pii"}),
        T.StructField("zip", T.LongType())])
    tags = T.StructField("tags", T.ArrayType(T.StringType()), True, {"secure_bloom.key": "pii"})
    schema = T.StructType([T.StructField("home", home), tags])
    given = spark.read.format("secure_parquet").schema(schema).option("keys", str(keyring.path))
    for name, columns, missing in [
            ("a", ["home.street", "tags.list.element"], None), ("b", ["home"], "tags.list.element"),
            ("c", ["home.zip", "tags"], "home.street")]:
        secure_bloom.write_table(table, tmp_path / f"{name}.parquet", bloom_filters={},
                                 keys=keyring, encryption=EncryptionConfiguration(
                                     "footer", {"pii": columns}))
        frame = given.load(str(tmp_path / f"{name}.parquet"))
        if missing is None:
            assert frame.count() == 1
        else:
            assert f"row group 0, column {missing}: the column is not" in failure(frame.collect)


def test_a_demand_goes_to_the_tasks(tmp_path, keyring):
    put(tmp_path / "t", "a.parquet", keyring, ["ssn"])
    options = {"path": str(tmp_path / "t"), "keys": str(keyring.path), REQUIRE: "money: ssn"}
    reader = SecureParquetReader(Folder(Options(options)), MARKED)
    reader = pickle.loads(pickle.dumps(reader))
    [task] = reader.partitions()
    with pytest.raises(Exception, match="'money' is required"):
        list(reader.read(task))
    with pytest.raises(OptionError, match="reading only"):
        Options({REQUIRE: "ssn"}).check_names()


def test_other_columns_are_read_where_the_key_of_one_is_denied(tmp_path, monkeypatch):
    kms = WatchedKms({"footer": b"f" * 16, "pii": b"p" * 16}, "pii")
    put(tmp_path / "t", "a.parquet", kms, ["ssn"])
    monkeypatch.setattr(Folder, "keys", lambda self: kms)
    for name, schema in (("city", "city string, id long"), ("ssn", "ssn string")):
        folder = Folder(Options({"path": str(tmp_path / "t"),
                                 REQUIRE: name if name == "ssn" else "false"}))
        reader = SecureParquetReader(folder, T.StructType.fromDDL(schema))
        [task] = reader.partitions()
        if name == "city":
            assert sum(batch.num_rows for batch in reader.read(task)) == 2
            continue
        with pytest.raises(KeyAccessError, match="column ssn: master key pii: the KMS says no"):
            list(reader.read(task))
