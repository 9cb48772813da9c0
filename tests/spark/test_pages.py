"""Rows that match are read by pages in tasks, too."""

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

import secure_bloom
from secure_bloom.keys import Keyring
from secure_bloom.spark.options.row_filters import checked, to_json
from secure_bloom.spark.source import SecureParquet
from tests.reading.ways import by_pages, counted
from tests.spark.helpers import uses_spark

pytestmark = uses_spark

SCHEMA = StructType([StructField("SSN", StringType()), StructField("id", LongType()),
                     StructField("note", StringType())])


def test_tasks_read_the_pages_with_the_rows(tmp_path):
    keyring = Keyring.create(tmp_path / "keyring.json", keys=["footer", "pii"])
    rows = range(10_000)
    table = pa.table({"ssn": [f"{row:09}" for row in rows], "id": rows,
                      "note": [f"note {row}" for row in rows]})
    (tmp_path / "lake").mkdir()
    secure_bloom.write_table(table, tmp_path / "lake" / "a.parquet", sensitive=["ssn"],
                             keys=keyring, data_page_size=2000, write_batch_size=100)
    reader = SecureParquet({
        "path": str(tmp_path / "lake"), "keys": str(tmp_path / "keyring.json"),
        "filters": to_json(checked([("ssn", "=", "000004711"), ("id", ">", 100)]))}).reader(SCHEMA)
    with by_pages(), counted() as row_groups:
        found = pa.Table.from_batches(batch for one in reader.partitions()
                                      for batch in reader.read(one))
    assert found.to_pylist() == [{"SSN": "000004711", "id": 4711, "note": "note 4711"}]
    assert row_groups
