"""Columns CHAR(n), whose values Spark pads with spaces that its comparisons ignore."""

import json
import shutil

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import secure_bloom
import secure_bloom.spark
from secure_bloom import EncryptionConfiguration
from secure_bloom.arrow.char_columns import ROW_METADATA
from secure_bloom.spark import erasing
from secure_bloom.spark.options.row_filters import checked, condition, to_json
from secure_bloom.spark.source import SecureParquet
from tests.spark.helpers import uses_spark

pytestmark = uses_spark

FILTERED = {"ssn": True}
ROWS = [(0, "078-05"), (1, "123-45-6789"), (2, None), (3, "078-05\t"), (4, ""), (5, "zz")]
LITERALS = ["078-05", "078-05   ", "078-05".ljust(11), "078-05".ljust(14), "078-05\t", "",
            "123-45-6789", "123-45-6789 ", " 078-05", "079"]


@pytest.fixture(scope="module")
def table(spark):
    """A table CHAR(11) whose rows an INSERT wrote, one row group each."""
    spark.sql("create table people_char (id int, ssn char(11)) using parquet")
    values = ", ".join(f"({id_}, {'null' if ssn is None else repr(ssn)})" for id_, ssn in ROWS)
    spark.sql(f"insert into people_char values {values}")
    yield spark.table("people_char")
    spark.sql("drop table people_char")


@pytest.fixture(scope="module")
def folder(table, tmp_path_factory):
    """The rows of the table, from a writer that records CHAR, and unpadded from another one."""
    folder = tmp_path_factory.mktemp("char")
    secure_bloom.spark.write(table.coalesce(1), folder, bloom_filters=FILTERED, plaintext=True,
                             max_rows_per_file=1)
    schema = pa.schema([("id", pa.int32()), ("ssn", pa.string())])
    for id_, ssn in ROWS:
        secure_bloom.write_table(pa.table([[id_ + 10], [ssn]], schema=schema),
                                 folder / f"x{id_}.parquet", bloom_filters=FILTERED)
    return folder


def predicates():
    for literal in LITERALS:
        yield from ([("ssn", op, literal)] for op in ("=", "<=>", "<", "<=", ">", ">="))
        yield [("ssn", "in", [literal, "zz", None])]
    yield [("ssn", "<=>", None)]
    yield [("ssn", "in", [f"{number:06}" for number in range(3000)])]  # padded: too many


@pytest.mark.sweep
def test_tasks_read_the_rows_that_sql_finds(table, folder):
    """The reader alone, without Spark, which would drop the other rows."""
    filters = list(predicates())
    right = table.agg(*[F.sort_array(F.collect_list(F.when(condition(checked(one)), F.col("id"))))
                        for one in filters]).first()
    schema = SecureParquet({"path": str(folder)}).schema()
    read = 0
    for one, ids in zip(filters, right, strict=True):
        reader = SecureParquet({"path": str(folder), "filters": to_json(checked(one))}) \
            .reader(schema)
        found = {id_ for task in reader.partitions() for batch in reader.read(task)
                 for id_ in batch["id"].to_pylist()}
        assert {start + id_ for start in (0, 10) for id_ in ids} <= found, one
        read += len(found)
    assert right[0] == [0] and read < len(filters) * 2 * len(ROWS) * 2 / 3


def test_spark_finds_the_rows_that_sql_finds(spark, table, folder):
    for one in ([("ssn", "=", "078-05")], [("ssn", "<=>", "078-05".ljust(14))]):
        right = table.where(condition(checked(one))).select("id").collect()
        found = secure_bloom.spark.read(spark, folder, filters=one).select("id").collect()
        assert sorted(found) == [(start + id_,) for start in (0, 10) for (id_,) in right]


@pytest.fixture(params=["declared", "undeclared, encrypted", "INSERT", "VARCHAR"])
def files(request, table, tmp_path, keyring):
    """Files of the rows, of which some say that they are CHAR(11)."""
    if request.param == "INSERT":
        folder = tmp_path / "inserted"
        folder.mkdir()
        for number, path in enumerate(table.inputFiles()):
            shutil.copy(path.removeprefix("file:"), folder / f"{number}.parquet")
        return request.param, folder
    path = tmp_path / "x.parquet"
    declared = {"declared": {"__CHAR_VARCHAR_TYPE_STRING": "char(11)"},
                "VARCHAR": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(11)"}}
    fields = [{"name": name, "type": type_, "nullable": True, "metadata": metadata}
              for name, type_, metadata in (("id", "integer", {}),
                                            ("ssn", "string", declared.get(request.param, {})))]
    schema = pa.schema([("id", pa.int32()), ("ssn", pa.string())], {
        ROW_METADATA: json.dumps({"type": "struct", "fields": fields}).encode()})
    ids = [id_ for id_, _ in ROWS]
    padded = [None if ssn is None else ssn.ljust(11) for _, ssn in ROWS]
    encryption = EncryptionConfiguration("footer", column_keys={"pii": ["ssn"]})
    secure_bloom.write_table(
        pa.table([ids, padded], schema=schema), path, bloom_filters=FILTERED, row_group_size=1,
        **({"encryption": encryption, "keys": keyring} if "encrypted" in request.param else {}))
    return request.param, path


def test_find_and_erase_compare_as_sql_does(files, keyring):
    kind, path = files
    known = kind != "VARCHAR"
    for value, expected in (("078-05", [0]), ("078-05  ", [0]), (" 078-05", [])):
        found = secure_bloom.find(str(path), "ssn", value, keyring)
        assert found["id"].to_pylist() == (expected if known else []), value
    exact = secure_bloom.find(str(path), "ssn", "078-05".ljust(11), keyring)
    assert exact["id"].to_pylist() == [0]
    result = secure_bloom.erase(str(path), "ssn", ["078-05", "zz ", "q"], keyring, max_share=1)
    assert result.ok and result.rows_removed == 2 * known
    assert [one.found for one in result.values] == [1 * known, 1 * known, 0]
    left = secure_bloom.read_table(path, keyring)["id"].to_pylist()
    assert sorted(left) == ([1, 2, 3, 4] if known else [0, 1, 2, 3, 4, 5])


@pytest.mark.sweep
def test_tasks_erase_as_the_files_of_other_tasks_say(spark, table, tmp_path, monkeypatch):
    """Only the first file says that the column is CHAR(11)."""
    secure_bloom.spark.write(table.where("id = 5").coalesce(1), tmp_path, plaintext=True)
    secure_bloom.write_table(pa.table({"id": [0], "ssn": ["078-05".ljust(11)]}),
                             tmp_path / "x.parquet")
    monkeypatch.setattr(erasing, "_FILES_PER_TASK", 1)
    result = secure_bloom.spark.erase(spark, tmp_path, "ssn", ["078-05"], max_share=1)
    assert (result.rows_removed, result.ok) == (1, True)
