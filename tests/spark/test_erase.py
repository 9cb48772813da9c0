"""Erasing with Spark: tasks search and write files, the driver commits them together."""

import os

import pyarrow as pa
import pytest

import secure_bloom
import secure_bloom.spark
from secure_bloom import EncryptionConfiguration
from secure_bloom.erasing.matching import ErasedValues
from secure_bloom.errors import ColumnError
from secure_bloom.spark import erasing
from tests.index.helpers import age
from tests.spark.helpers import uses_spark

pytestmark = uses_spark


@pytest.fixture
def folder(tmp_path, keyring):
    """Four files of ssn-0 to ssn-199, encrypted."""
    folder = tmp_path / "people"
    folder.mkdir()
    for start in range(0, 200, 50):
        ids = list(range(start, start + 50))
        secure_bloom.write_table(
            pa.table({"ssn": [f"ssn-{one}" for one in ids], "id": ids}),
            folder / f"{start}.parquet", bloom_filters=["ssn"], keys=keyring,
            encryption=EncryptionConfiguration("footer", {"pii": ["ssn"]}))
    return folder


def erase(spark, folder, values, keyring, column="ssn", **options):
    return secure_bloom.spark.erase(spark, folder, column, values, keys=keyring, **options)


def ssns(folder, keyring):
    return set(secure_bloom.read_table(str(folder), keyring)["ssn"].to_pylist())


def segment_ids(folder, keyring):
    index = secure_bloom.index.Index.open(folder, keyring).column("ssn")
    return [info.id for info in index.manifest.body.segments]


def files(folder):
    return {name for name in os.listdir(folder) if name.endswith(".parquet")}


@pytest.mark.parametrize("indexed", [False, True])
def test_rows_are_erased_and_verified_absent(spark, folder, keyring, indexed):
    if indexed:
        age(folder)
        secure_bloom.index.build(folder, ["ssn"], keyring)
        ids = segment_ids(folder, keyring)
    before, old = ssns(folder, keyring), files(folder)
    result = erase(spark, folder, ["ssn-3", "ssn-150", "none"], keyring)
    assert (result.num_files, result.num_rows, result.rows_removed) == (4, 200, 2)
    assert [one.found for one in result.values] == [1, 1, 0]
    assert result.ok and result.indexes == (["ssn"] if indexed else [])
    assert not indexed or segment_ids(folder, keyring) == ids  # only pages were written again
    assert ssns(folder, keyring) == before - {"ssn-3", "ssn-150"}
    assert len(files(folder) - old) == len(old - files(folder)) == 2
    read = spark.read.format("secure_parquet").option("keys", str(keyring.path))
    read = read.load(str(folder))
    assert {row.ssn for row in read.select("ssn").collect()} == ssns(folder, keyring)


def test_a_dry_run_changes_nothing(spark, folder, keyring):
    before = files(folder)
    result = erase(spark, folder, "ssn-3", keyring, dry_run=True)
    assert (result.rows_removed, len(result.files), result.absence) == (1, 1, None)
    assert files(folder) == before


def test_a_failed_task_leaves_everything_as_it_was(spark, folder, keyring):
    before = {name: (folder / name).read_bytes() for name in files(folder)}
    damaged = folder / sorted(before)[0]
    data = bytearray(before[damaged.name])
    data[100:200] = bytes(100)  # pages of the first row group
    damaged.write_bytes(data)
    before[damaged.name] = bytes(data)
    value = next(ssn for ssn in (f"ssn-{number}" for number in range(200))
                 if secure_bloom.ParquetFile(damaged, keyring).prune([("ssn", "==", ssn)]))
    with pytest.raises(Exception, match=r"AuthenticationError|cannot be decrypted"):
        erase(spark, folder, [value], keyring, max_share=1)
    assert {name: (folder / name).read_bytes() for name in files(folder)} == before


def test_mistakes_are_named(spark, folder, keyring):
    with pytest.raises(ColumnError, match="no file has such a column"):
        erase(spark, folder, "x", keyring, column="nope")
    with pytest.raises(ValueError, match="200 rows of 200 would be erased"):
        erase(spark, folder, [f"ssn-{number}" for number in range(200)], keyring)


def test_values_do_not_appear_in_the_result(spark, folder, keyring):
    result = erase(spark, folder, ["ssn-3"], keyring)
    assert "ssn-3" not in repr(result) + str(result.to_dict())
    assert "ssn-3" not in repr(erasing._Tasks("", None, ErasedValues("ssn", "ssn-3")))
