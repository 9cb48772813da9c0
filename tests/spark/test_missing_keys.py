"""Spark with a keyring that lacks the key of a column."""

import json
import pickle

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import secure_bloom.spark
from secure_bloom import EncryptionConfiguration
from secure_bloom.errors import KeyAccessError, KmsUnavailableError, OptionError
from secure_bloom.keys import InMemoryKms
from secure_bloom.spark.options.conditions import parse
from secure_bloom.spark.options.options import Options
from secure_bloom.spark.reading.folder import Folder
from secure_bloom.spark.reading.reader import SecureParquetReader
from secure_bloom.spark.source import SecureParquet
from tests.spark.helpers import failure, read, uses_spark, write
from tests.support import WatchedKms

pytestmark = [*uses_spark, pytest.mark.filterwarnings(
    "ignore::secure_bloom.errors.MissingKeyWarning")]

NULL = {"on.missing.key": "null"}


@pytest.fixture
def files(tmp_path, keyring):
    """Two files: ssn has key "pii" in the first and "money" in the second."""
    (tmp_path / "t").mkdir()
    for number, key in enumerate(("pii", "money")):
        rows = range(number * 10, number * 10 + 10)
        table = pa.table({"ssn": [f"ssn-{row}" for row in rows], "id": list(rows),
                          "home": [{"street": f"street {row}"} for row in rows]})
        secure_bloom.write_table(
            table, tmp_path / "t" / f"{number}.parquet", keys=keyring, bloom_filters=["ssn"],
            row_group_size=5, encryption=EncryptionConfiguration("footer", {key: ["ssn"]}))
    return tmp_path / "t"


@pytest.fixture
def few_keys(tmp_path, keyring):
    """The path of a keyring without key "money"."""
    keyring.subset(tmp_path / "few.json", ["footer", "pii"], passphrase=None)
    return str(tmp_path / "few.json")


def test_a_column_is_null_in_the_files_whose_key_is_missing(spark, files, few_keys):
    assert "money" in failure(lambda: read(spark, files, keys=few_keys).collect())
    frame = read(spark, files, keys=few_keys, **NULL)
    rows = frame.orderBy("id").collect()
    assert [row.ssn for row in rows] == [f"ssn-{row}" for row in range(10)] + [None] * 10
    assert [row.home.street for row in rows] == [f"street {row}" for row in range(20)]
    assert frame.select("id").count() == frame.count() == 20
    assert secure_bloom.spark.read(spark, files, keys=few_keys, **NULL).selectExpr(
        "count_if(ssn is null)").collect() == [(10,)]


def test_other_values_of_the_option_are_refused(spark, files, few_keys):
    assert "on.missing.key" in failure(lambda: read(spark, files, keys=few_keys,
                                                    **{"on.missing.key": "nulls"}))
    with pytest.raises(OptionError, match="for reading only"):
        Options(NULL).check_names()


def test_filters_that_are_passed_to_load_are_refused_on_a_masked_column(spark, files, few_keys):
    for predicate in (("ssn", "=", "absent"), ("ssn", "is null", None)):
        frame = secure_bloom.spark.read(spark, files, filters=[predicate], keys=few_keys,
                                        **NULL)
        message = failure(frame.select("id").collect)
        assert "1.parquet" in message and "column ssn" in message and "'money'" in message
    found = secure_bloom.spark.read(spark, files, filters=[("id", "<", 12)], keys=few_keys,
                                    **NULL)
    assert [row.ssn for row in found.orderBy("id").collect()][9:] == ["ssn-9", None, None]


@pytest.mark.sweep
def test_conditions_are_refused_on_a_masked_column(spark, files, few_keys):
    frame = read(spark, files, keys=few_keys, **NULL)
    for condition in ("ssn is null", "not ssn <=> 'a'", "upper(ssn) = 'SSN-15'",
                      "ssn = 'ssn-15' or id = 3", "coalesce(ssn, 'a') = 'a'"):
        message = failure(frame.where(condition).select("id").collect)
        assert "1.parquet" in message and "column ssn" in message
    assert frame.where("id = 15").collect()[0].ssn is None
    assert frame.count() == 20


def test_the_columns_of_conditions(files, few_keys):
    source = SecureParquet({"path": str(files), "keys": few_keys, **NULL})
    ssn, id_, home = ({"column": list(path)} for path in (("ssn",), ("id",), ("home", "x")))
    source.conditions = parse(json.dumps([
        {"name": "=", "operands": [ssn, {"type": "string", "value": "a"}]},
        {"name": "Not", "operands": [{"name": "IsNotNull", "operands": [id_]}]},
        {"name": "Contains", "operands": [home, {}]}, {}]))
    reader = source.reader(source.schema())
    assert pickle.loads(pickle.dumps(reader))._compared == {"ssn", "id", "home"}


@pytest.mark.parametrize("error", [KeyAccessError, KmsUnavailableError])
def test_only_a_denied_key_masks(monkeypatch, tmp_path, error):
    keys = {name: name.encode().ljust(16) for name in ("footer", "money")}
    secure_bloom.write_table(
        pa.table({"ssn": ["a"], "id": [1]}), tmp_path / "1.parquet", keys=InMemoryKms(keys),
        encryption=EncryptionConfiguration("footer", {"money": ["ssn"]}))
    kms = WatchedKms(keys, "money", error=error)
    monkeypatch.setattr(Folder, "keys", lambda self: kms)
    folder = Folder(Options({"path": str(tmp_path), **NULL}))
    reader = SecureParquetReader(folder, folder.schema())

    def rows():
        return [row for task in reader.partitions() for batch in reader.read(task)
                for row in batch.to_pylist()]

    if error is KeyAccessError:
        assert rows() == [{"ssn": None, "id": 1}]
    else:
        assert "the KMS says no" in failure(rows)


@pytest.mark.sweep
def test_what_may_be_masked_is_not_written(spark, files, few_keys, encrypted, tmp_path):
    frame = read(spark, files, keys=few_keys, **NULL)
    assert frame.schema["ssn"].metadata["secure_bloom.masked"] is True
    assert "secure_bloom.masked" not in frame.schema["id"].metadata
    assert "option on.missing.key" in failure(lambda: write(frame, tmp_path / "copy", **encrypted))
    assert not (tmp_path / "copy").exists() or not list((tmp_path / "copy").glob("*.parquet"))
    write(frame.select("id", F.lit("x").alias("ssn")), tmp_path / "copy", **encrypted)
    assert read(spark, tmp_path / "copy", **encrypted).count() == 20
