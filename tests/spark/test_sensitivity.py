"""Columns that are sensitive in a file are sensitive in the DataFrame that is read from it."""

import os

import pyarrow as pa
import pytest
from pyarrow.parquet.encryption import EncryptionConfiguration
from pyspark.sql import functions as F
from pyspark.sql import types as T

import secure_bloom
from secure_bloom import ParquetFile
from secure_bloom.spark.schema.merging import merge, with_partitions
from secure_bloom.spark.schema.sensitivity import mark, unite
from tests.spark.helpers import PLAINTEXT, failure, people, read, uses_spark, visible, write

pytestmark = uses_spark

KEY = "secure_bloom.key"
PII = {KEY: "pii"}


def keys(schema: T.StructType) -> dict:
    return {field.name: field.metadata.get(KEY) for field in schema if KEY in field.metadata}


@pytest.fixture
def folder(tmp_path):
    """Without the keyring file."""
    return tmp_path / "folder"


def put(folder, name, keyring=None, columns=None, **values):
    """A file of another writer, with keys for some columns."""
    folder.mkdir(exist_ok=True)
    encryption = EncryptionConfiguration("footer", column_keys=columns) if columns else None
    secure_bloom.write_table(pa.table(values), folder / name, bloom_filters={},
                             encryption=encryption, keys=keyring if columns else None)


# --- the metadata of a schema --------------------------------------------------------------------

def test_keys_stand_in_the_nearest_field(spark):
    schema = T.StructType.fromDDL(
        "a string, b struct<c:string, d:array<string>>, e array<struct<f:string, g:string>>, "
        "h map<string,struct<i:int>>, j map<string,int>, k array<struct<l:string>>, m string")
    found = mark(schema, {
        ("a",): {"1"}, ("b", "d", "list", "element"): {"2"}, ("e", "list", "element", "g"): {"3"},
        ("h", "key_value", "value", "i"): {"4"}, ("j", "key_value", "key"): {"5"},
        ("j", "key_value", "value"): {"6"}, ("k", "bag", "array_element", "l"): {"7"},
        ("nowhere",): {"8"}})
    assert keys(found) == {"a": "1", "j": ["5", "6"], "k": "7"}
    assert keys(found["b"].dataType) == {"d": "2"}
    assert keys(found["e"].dataType.elementType) == {"g": "3"}
    assert keys(found["h"].dataType.valueType) == {"i": "4"}
    assert found.simpleString() == schema.simpleString()
    assert mark(schema, {}) == schema


def test_what_a_field_says_itself_stays(spark):
    group = T.StructField("g", T.StructType.fromDDL("x int"), True, {KEY: "own", "comment": "c"})
    assert mark(T.StructType([group]), {("g", "x"): {"other"}}) == T.StructType([group])
    commented = T.StructType([T.StructField("a", T.StringType(), False, {"comment": "c"})])
    assert mark(commented, {("a",): {"k"}}) == T.StructType(
        [T.StructField("a", T.StringType(), False, {"comment": "c", KEY: "k"})])


def test_metadata_of_several_files_is_united():
    assert unite({}, PII) == unite(PII, {}) == unite(PII, PII) == PII
    assert unite({"comment": "a"}, {"comment": "b", **PII}) == {"comment": "a", **PII}
    assert unite(PII, {KEY: "new"}) == {KEY: ["pii", "new"]}
    assert unite({KEY: ["pii", "new"]}, {KEY: "new"}) == {KEY: ["pii", "new"]}
    assert unite({"secure_bloom.bloom_filter": False}, {"secure_bloom.bloom_filter": True}) == {
        "secure_bloom.bloom_filter": False}

    def schema(metadata):
        inner = T.StructType([T.StructField("x", T.StringType(), True, metadata)])
        return T.StructType([T.StructField("A", T.ArrayType(inner)),
                             T.StructField("p", T.StringType(), True, metadata)])

    for one, other in [({}, PII), (PII, {})]:
        merged = merge(schema(one), schema(other))
        assert keys(merged) == {"p": "pii"}
        assert keys(merged["A"].dataType.elementType) == {"x": "pii"}
    assert keys(with_partitions(schema(PII), [T.StructField("P", T.LongType())])) == {"p": "pii"}


# --- copies --------------------------------------------------------------------------------------

def test_a_column_encrypted_by_options_stays_sensitive(spark, tmp_path, keyring, encrypted):
    write(people(spark, 3), tmp_path / "one", **encrypted)
    back = read(spark, tmp_path / "one", keys=encrypted["keys"])
    assert keys(back.schema) == {"ssn": "pii"}
    message = failure(lambda: write(back, tmp_path / "two", **PLAINTEXT))
    assert "option plaintext: it contradicts metadata secure_bloom.key of column ssn" in message
    assert "two keys, money (option parquet.encryption.column.keys) and pii (metadata" in failure(
        lambda: write(back, tmp_path / "two", **encrypted | {
            "parquet.encryption.column.keys": "money: ssn"}))
    assert "partition_by: column ssn is sensitive" in failure(
        lambda: write(back, tmp_path / "two", **encrypted, partition_by="ssn"))
    assert visible(tmp_path / "two") == []
    footer = {"keys": str(keyring.path), "parquet.encryption.footer.key": "footer"}
    write(back, tmp_path / "two", **footer)
    assert keys(read(spark, tmp_path / "two", keys=str(keyring.path)).schema) == {"ssn": "pii"}


@pytest.mark.sweep
def test_a_copy_that_is_public_on_purpose(spark, tmp_path, keyring):
    options = {"keys": str(keyring.path), "parquet.encryption.footer.key": "footer",
               "parquet.encryption.column.keys": "pii: ssn, home"}
    frame = people(spark, 3).selectExpr("ssn", "named_struct('city', city) as home")
    write(frame, tmp_path / "one", **options)
    back = read(spark, tmp_path / "one", keys=str(keyring.path))
    assert keys(back.schema["home"].dataType) == {"city": "pii"}
    public = back.withMetadata("ssn", {})
    assert "of column home.city" in failure(lambda: write(public, tmp_path / "two", **PLAINTEXT))
    home = back.schema["home"].dataType.simpleString()
    public = public.withColumn("home", F.col("home").cast(home))
    write(public, tmp_path / "two", **PLAINTEXT)
    assert sorted(spark.read.parquet(str(tmp_path / "two")).collect()) == sorted(frame.collect())
    own = spark.read.format("secure_parquet").schema("ssn string").options(**options)
    assert keys(own.load(str(tmp_path / "one")).schema) == {}


def test_a_key_for_the_whole_file_marks_nothing(spark, folder, keyring):
    write(people(spark, 3), folder, keys=str(keyring.path),
          **{"parquet.encryption.uniform.key": "money"})
    assert keys(read(spark, folder, keys=str(keyring.path)).schema) == {}


@pytest.mark.sweep
def test_a_file_without_rows_tells_as_well(spark, folder, encrypted):
    write(people(spark).where("id < 0"), folder, **encrypted)
    [name] = visible(folder)
    os.rename(folder / name, folder / "a.parquet")
    write(people(spark, 3), folder, **encrypted)
    back = read(spark, folder, keys=encrypted["keys"])
    assert keys(back.schema) == {"ssn": "pii"}
    assert back.count() == 3


# --- files that differ ---------------------------------------------------------------------------

@pytest.mark.sweep
def test_a_column_that_is_sensitive_in_the_second_file_only(spark, folder, keyring):
    put(folder, "a.parquet", ssn=["x"], id=[1])
    put(folder, "b.parquet", keyring, {"pii": ["SSN"]}, SSN=["secret"], id=[2])
    options = {"keys": str(keyring.path)}
    merged = read(spark, folder, **options, mergeSchema="true")
    assert keys(merged.schema) == {"ssn": "pii"}
    assert merged.count() == 2
    assert "contradicts metadata" in failure(lambda: write(merged, folder / "c", **PLAINTEXT))
    first = read(spark, folder, **options)
    assert keys(first.schema) == {}
    message = failure(lambda: write(first, folder / "_copy", **PLAINTEXT))
    assert "b.parquet, column SSN: it is encrypted with its own key here" in message
    assert visible(folder / "_copy") == []
    assert read(spark, folder, **options, columns="id").count() == 2
    assert "set option mergeSchema" in failure(
        read(spark, folder, **options, columns="ssn").collect)
    assert read(spark, folder, **options, mergeSchema="false").count() == 2
    own = spark.read.format("secure_parquet").schema("ssn string").options(**options)
    assert own.load(str(folder)).count() == 2


def test_a_field_of_a_struct_is_marked_for_all_files(spark, folder, keyring):
    for name in ("a.parquet", "b.parquet"):
        put(folder, name, keyring, {"pii": ["s.x", "l.list.element.y"]},
            s=[{"x": "1", "z": 1}], l=[[{"y": "2"}]])
    back = read(spark, folder, keys=str(keyring.path))
    assert keys(back.schema["s"].dataType) == {"x": "pii"}
    assert keys(back.schema["l"].dataType.elementType) == {"y": "pii"}
    assert back.count() == 2
    put(folder, "c.parquet", keyring, {"pii": ["s.z"]}, s=[{"x": "1", "z": 1}], l=[[]])
    assert "c.parquet, column s.z: it is encrypted" in failure(
        read(spark, folder, keys=str(keyring.path)).collect)


@pytest.mark.sweep
def test_after_a_change_of_keys_a_folder_can_be_read_but_not_copied_blindly(spark, folder,
                                                                            keyring):
    put(folder, "a.parquet", keyring, {"pii": ["ssn"]}, ssn=["x"])
    put(folder, "b.parquet", keyring, {"money": ["ssn"]}, ssn=["y"])
    merged = read(spark, folder, keys=str(keyring.path), mergeSchema="true")
    assert sorted(row.ssn for row in merged.collect()) == ["x", "y"]
    options = {"keys": str(keyring.path), "parquet.encryption.footer.key": "footer"}
    assert "column ssn: the files that it was read from have different master keys: pii, money" in \
        failure(lambda: write(merged, folder / "_copy", **options))
    write(merged.withMetadata("ssn", PII), folder / "_copy", **options)
    [file, *_] = (ParquetFile(folder / "_copy" / name, keyring)
                  for name in visible(folder / "_copy"))
    assert file.footer.row_groups[0][0].encryption == "column key"


def test_plaintext_files_are_not_marked(spark, folder):
    put(folder, "a.parquet", ssn=["x"])
    assert keys(read(spark, folder).schema) == {}
