"""Data sets that plain Python writes, in Spark."""

import datetime
import decimal
import os

import pyarrow as pa

import secure_bloom
import secure_bloom.spark
from secure_bloom import EncryptionConfiguration, Keyring, write_dataset
from tests.spark.helpers import read, uses_spark, write

pytestmark = uses_spark

ROWS = [(1, "a/b=c%", datetime.date(2024, 1, 31), True, 7, decimal.Decimal("1.50")),
        (2, "ü {}", datetime.date(1, 1, 1), False, -1, decimal.Decimal("-0.25")),
        (3, None, None, None, None, None)]
NAMES = ["text", "day", "flag", "number", "price"]
TYPES = pa.schema([("n", pa.int64()), ("text", pa.string()), ("day", pa.date32()),
                   ("flag", pa.bool_()), ("number", pa.int32()), ("price", pa.decimal128(10, 2))])
TABLE = pa.Table.from_pylist([dict(zip(TYPES.names, row, strict=True)) for row in ROWS], TYPES)
SPARK_TYPES = "n long, text string, day date, flag boolean, number int, price decimal(10, 2)"


def folders(root):
    return sorted(os.path.relpath(path, root) for path, _, names in os.walk(root)
                  if any(name.endswith(".parquet") for name in names))


def test_folders_are_named_as_by_spark_and_read_by_its_own_reader(spark, tmp_path):
    write_dataset(TABLE, tmp_path / "ours", partition_by=NAMES)
    spark.createDataFrame(ROWS, SPARK_TYPES).write.partitionBy(*NAMES).parquet(
        str(tmp_path / "spark"))
    assert folders(tmp_path / "ours") == folders(tmp_path / "spark")
    found = spark.read.schema(SPARK_TYPES).parquet(str(tmp_path / "ours"))
    assert sorted(map(tuple, found.select(TYPES.names).collect())) == ROWS


def test_spark_and_python_write_and_read_the_same_encrypted_folder(spark, tmp_path):
    keyring = Keyring.create(tmp_path / "keys.json")
    keyring.add("footer"), keyring.add("pii")
    folder = tmp_path / "t"
    encryption = EncryptionConfiguration("footer", {"pii": ["n"]})
    write_dataset(TABLE, folder, partition_by=NAMES, encryption=encryption, keys=keyring,
                  bloom_filters=["n"])
    options = {"keys": str(tmp_path / "keys.json")}
    schema = SPARK_TYPES
    found = spark.read.format("secure_parquet").options(**options).schema(schema).load(str(folder))
    assert sorted(map(tuple, found.select(TYPES.names).collect())) == ROWS
    frame = spark.createDataFrame([(4, *ROWS[0][1:])], schema)
    write(frame, folder, partition_by=",".join(NAMES), **options,
          **{"parquet.encryption.footer.key": "footer", "parquet.encryption.column.keys": "pii: n"})
    assert secure_bloom.spark.last_commit(folder).rows == 1
    write_dataset(TABLE[:1], folder, partition_by=NAMES, encryption=encryption, keys=keyring,
                  mode="append")
    assert read(spark, folder, **options).count() == 5
    numbers = secure_bloom.read_table(folder, keyring)["n"].to_pylist()
    assert sorted(numbers) == [1, 1, 2, 3, 4]


def test_spark_sees_the_files_only_after_the_commit(spark, tmp_path):
    write_dataset(TABLE, tmp_path)

    def batches():
        yield from TABLE.to_batches()
        yield from TABLE.to_batches()  # the first file is complete by now
        assert read(spark, tmp_path).count() == 3

    write_dataset(batches(), tmp_path, mode="append", max_rows_per_file=3)
    assert read(spark, tmp_path).count() == 9
