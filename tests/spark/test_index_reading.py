"""The data-set index in reads: rows are those without it, and fewer files are opened."""

import json
import os
import shutil
import warnings
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

import secure_bloom.index
from secure_bloom import EncryptionConfiguration, write_table
from secure_bloom.errors import (
    AuthenticationError,
    ChangedMeanwhileError,
    IndexWarning,
    OptionError,
    SecureBloomError,
    UnsupportedError,
)
from secure_bloom.keys import Keyring
from secure_bloom.spark.options.conditions import parse
from secure_bloom.spark.options.options import Options
from secure_bloom.spark.options.row_filters import checked, to_json
from secure_bloom.spark.reading import reader
from secure_bloom.spark.reading.folder import Folder
from secure_bloom.spark.reading.reader import SecureParquetReader
from tests.index.planting import plant
from tests.spark.helpers import read, uses_spark

pytestmark = uses_spark

ENCRYPTED = EncryptionConfiguration("footer", {"pii": ["ssn"]})


def names(start: int) -> pa.Table:
    ids = list(range(start, start + 40))
    return pa.table({"ssn": [f"ssn-{one}" for one in ids], "id": ids})


def put(path, table: pa.Table, keyring: Keyring, encryption=ENCRYPTED) -> None:
    """Write a file that is old enough for the index."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_table(table, path, encryption=encryption, keys=encryption and keyring, row_group_size=10)
    age(path)


def age(path, seconds: int = 10) -> None:
    now = os.stat(path).st_mtime_ns - seconds * 10**9
    os.utime(path, ns=(now, now))


@pytest.fixture
def folder(tmp_path, keyring):
    """Five files of 40 rows, with an index of ssn."""
    folder = tmp_path / "people"
    for number in range(5):
        put(folder / f"{number}.parquet", names(100 * number), keyring)
    secure_bloom.index.build(folder, "ssn", keyring)
    return folder


@pytest.fixture(autouse=True)
def only_the_index(monkeypatch):
    """Let the driver of this process look into no file, so that the index alone selects."""
    monkeypatch.setattr(reader, "names_values", lambda alternatives, in_paths: False)


class Query:
    """A read as Spark runs it: planned, then its tasks. Counts the files that tasks open."""

    def __init__(self, path, keyring, filters, schema=None, **options):
        given = {"path": str(path), "keys": str(keyring.path),
                 "filters": to_json(checked(filters)), **options}
        folder = Folder(Options(given))
        self.reader = SecureParquetReader(folder, schema or folder.schema(), schema is None)
        self.tasks = self.reader.partitions()
        self.opened: list[str] = []

    @property
    def planned(self) -> dict[str, tuple[int, ...] | None]:
        """The row groups of each planned file."""
        return {os.path.basename(part.file.path): part.file.row_groups
                for task in self.tasks for part in task.ranges}

    def rows(self) -> list[dict]:
        return [row for task in self.tasks for batch in self.reader.read(task)
                for row in batch.to_pylist()]


def planned(*args, **options):
    return Query(*args, **options).planned


def matching(path, keyring, filters, **options) -> list[dict]:
    """Return the rows for which the filters hold, as Spark compares them, sorted by id."""
    test = {"=": lambda one, value: one == value, "<=>": lambda one, value: one == value,
            "in": lambda one, value: one in value}
    return sorted((row for row in Query(path, keyring, filters, **options).rows()
                   if all(test[op](row[column], value) for column, op, value in filters)),
                  key=lambda row: row["id"])


def check_same(path, keyring, *values: str, **options) -> None:
    """Require the rows of a query to be those without the index."""
    for value in values:
        filters = [("ssn", "=", value)]
        assert matching(path, keyring, filters, **options) == matching(
            path, keyring, filters, index="off", **options)


@pytest.mark.parametrize(("filters", "expected"), [
    ([("ssn", "=", "ssn-215")], {"2.parquet": (1,)}),
    ([("ssn", "<=>", "ssn-215")], {"2.parquet": (1,)}),
    ([("ssn", "in", ["ssn-215", "ssn-30", "ssn-31"])], {"2.parquet": (1,), "0.parquet": (3,)}),
    ([("SSN", "=", "ssn-215")], {"2.parquet": (1,)}),
    ([("ssn", "=", "ssn-215"), ("id", "<", 0)], {"2.parquet": (1,)}),
    ([("ssn", "=", "ssn-215"), ("ssn", "=", "ssn-216")], {"2.parquet": (1,)}),
    ([("ssn", "=", "ssn-215"), ("ssn", "=", "ssn-225")], {}),
    ([("ssn", "=", "absent")], {}),
])
def test_files_without_the_value_are_not_planned(folder, keyring, filters, expected):
    assert planned(folder, keyring, filters) == expected


@pytest.mark.parametrize("filters", [
    [("id", "=", 215)], [("ssn", ">", "ssn-9")], [("ssn", "<=>", None)], [("ssn", "is null", None)],
    [("ssn", "is not null", None)],
])
def test_other_filters_read_all_files(folder, keyring, filters):
    assert planned(folder, keyring, filters) == {
        f"{number}.parquet": None for number in range(5)}


def test_rows_are_those_of_all_files(spark, folder, keyring):
    found = secure_bloom.spark.read(spark, folder, 
                                    filters=[("ssn", "in", ["ssn-215", "ssn-4", "x"])],
                                    keys=str(keyring.path), index="require")
    assert sorted(found.collect()) == [("ssn-215", 215), ("ssn-4", 4)]
    assert found.rdd.getNumPartitions() == 2 and found.count() == 2
    assert secure_bloom.spark.read(spark, folder, filters=[("ssn", "=", "x")],
                                   keys=str(keyring.path)).count() == 0
    assert read(spark, folder, keys=keyring.path).count() == 200


def test_the_listing_is_made_once(folder, keyring, monkeypatch):
    listings = []
    found = Folder.list
    monkeypatch.setattr(Folder, "list", lambda self: listings.append(1) or found(self))
    monkeypatch.setattr("secure_bloom.index.table.visible_files", None)
    assert len(planned(folder, keyring, [("ssn", "=", "ssn-215")])) == 1
    assert len(listings) == 2  # one for the schema


def test_skipped_files_are_not_opened(folder, keyring, monkeypatch):
    opened = []
    found = Folder.open
    query = Query(folder, keyring, [("ssn", "=", "ssn-215")])
    monkeypatch.setattr(Folder, "open", lambda self, file, *args: opened.append(file.path)
                        or found(self, file, *args))
    assert len(query.rows()) == 10
    assert opened == [str(folder / "2.parquet")]


def test_conditions_of_queries(folder, keyring):
    def is_ssn(value):
        return {"name": "=", "operands": [{"column": ["ssn"]}, {"type": "string", "value": value}]}

    for conditions, expected in (
            ([is_ssn("ssn-215")], [("2.parquet", (1,))]),
            ([{"name": "Or", "operands": [is_ssn("ssn-215"), {"name": "And", "operands": [
                is_ssn("ssn-5"), {"name": "IsNotNull", "operands": [{"column": ["id"]}]}]}]}],
             [("0.parquet", (0,)), ("2.parquet", (1,))])):
        source = Folder(Options({"path": str(folder), "keys": str(keyring.path)}))
        reader = SecureParquetReader(source, source.schema(), True,
                                     conditions=parse(json.dumps(conditions)))
        files = {part.file for task in reader.partitions() for part in task.ranges}
        assert sorted((os.path.basename(file.path), file.row_groups)
                      for file in files) == expected


# --- files that change ---------------------------------------------------------------------------

def add(folder, keyring):
    put(folder / "new.parquet", names(900), keyring)


def overwrite(folder, keyring):
    put(folder / "2.parquet", names(900), keyring)


def delete(folder, keyring):
    os.unlink(folder / "2.parquet")


def swap(folder, keyring):
    os.rename(folder / "2.parquet", folder / "x")
    os.rename(folder / "3.parquet", folder / "2.parquet")
    os.rename(folder / "x", folder / "3.parquet")


def test_after_a_change_the_rows_are_those_without_the_index(folder, keyring):
    """Each change, and the updates between them, are in tests/index and tests/datasets."""
    values = "ssn-215", "ssn-315", "ssn-915", "ssn-4", "absent"
    for change in (add, overwrite, swap, delete):
        change(folder, keyring)
        check_same(folder, keyring, *values)
    secure_bloom.index.build(folder, "ssn", keyring)
    check_same(folder, keyring, *values)


def test_a_file_that_is_replaced_after_planning_is_refused(folder, keyring):
    query = Query(folder, keyring, [("ssn", "=", "ssn-215")])
    overwrite(folder, keyring)
    with pytest.raises(ChangedMeanwhileError):
        query.rows()


def test_only_changed_files_are_read_besides_those_with_the_value(folder, keyring):
    add(folder, keyring)
    os.utime(folder / "4.parquet")
    assert planned(folder, keyring, [("ssn", "=", "ssn-215")]) == {
        "2.parquet": (1,), "4.parquet": None, "new.parquet": None}


# --- folders and columns -------------------------------------------------------------------------

def test_partitions(tmp_path, keyring):
    table = tmp_path / "t"
    for day in range(3):
        put(table / f"day={day}" / "a.parquet", names(100 * day), keyring)
    secure_bloom.index.build(table, "ssn", keyring)
    for path, values in ((table, ["ssn-115", "x"]), (table / "day=1", ["ssn-115", "ssn-15"])):
        for value in values:
            filters = [("ssn", "=", value)]
            expected = [(1,)] if value == "ssn-115" else []
            assert list(planned(path, keyring, filters).values()) == expected
            assert matching(path, keyring, filters) == matching(path, keyring, filters, index="off")
    assert planned(table, keyring, [("ssn", "=", "ssn-115"), ("day", "=", 2)]) == {}
    assert matching(table, keyring, [("ssn", "=", "ssn-115"), ("day", "=", 1)]) == [
        {"ssn": "ssn-115", "id": 115, "day": 1}]


def test_a_file_that_lacks_the_column(folder, keyring):
    put(folder / "without.parquet", names(900).drop_columns("ssn"), keyring, None)
    secure_bloom.index.build(folder, "ssn", keyring)
    filters = [("ssn", "=", "ssn-215")]
    assert planned(folder, keyring, filters) == {"2.parquet": (1,)}
    assert "without.parquet" in planned(folder, keyring, [("ssn", "<=>", None)])
    check_same(folder, keyring, "ssn-215", "ssn-4")


def test_a_file_in_which_the_column_differs_in_case(folder, keyring):
    put(folder / "other.parquet", names(900).rename_columns(["SSN", "id"]), keyring,
        EncryptionConfiguration("footer", {"pii": ["SSN"]}))
    secure_bloom.index.build(folder, "ssn", keyring)
    assert planned(folder, keyring, [("ssn", "=", "ssn-915")]) == {"other.parquet": None}
    check_same(folder, keyring, "ssn-915", "ssn-4")


def test_fields_of_structs(tmp_path, keyring):
    people = names(0)
    table = pa.table({"a": pa.StructArray.from_arrays(
        [people["ssn"].combine_chunks()], ["ssn"]), "id": people["id"]})
    put(tmp_path / "t" / "a.parquet", table, keyring,
        EncryptionConfiguration("footer", {"pii": ["a.ssn"]}))
    secure_bloom.index.build(tmp_path / "t", "a.ssn", keyring)
    assert planned(tmp_path / "t", keyring, [("a.ssn", "=", "ssn-15")]) == {"a.parquet": (1,)}
    assert planned(tmp_path / "t", keyring, [("a.ssn", "=", "x")]) == {}


@pytest.mark.sweep
def test_values_are_found_as_spark_compares_them(spark, tmp_path):
    for number, (stored, value) in enumerate([
            (pa.array([7, 8], pa.int32()), 7), (pa.array([7, 2**53 + 1], pa.int64()), 2.0**53),
            (pa.array([7.5, 0.0]), -0.0), (pa.array([1.5, float("nan")]), float("nan")),
            (pa.array([Decimal("1.50"), Decimal("2.00")]), Decimal("1.5")),
            (pa.array(["05", "6"]), 5), (pa.array(["a ", "b"]), "a ")]):
        folder = tmp_path / str(number)
        put(folder / "a.parquet", pa.table({"v": stored}), None, None)
        secure_bloom.index.build(folder, "v", encryption=None)
        frames = [secure_bloom.spark.read(spark, folder, filters=[("v", "=", value)], index=index)
                  for index in ("require", "off")]
        assert frames[0].union(frames[1]).count() == 2, value


def test_strings_that_are_equal_only_by_a_collation(folder, keyring):
    schema = StructType([StructField("ssn", StringType("UTF8_LCASE"))])
    query = Query(folder, keyring, [("ssn", "=", "SSN-215")], schema=schema)
    assert len(query.planned) == 5
    assert {"ssn": "ssn-215"} in query.rows()


# --- keys, damage, checks ------------------------------------------------------------------------

def test_without_the_key_of_the_index_files_are_read_as_without_it(folder, tmp_path):
    plain = tmp_path / "plain"
    put(plain / "a.parquet", names(0), None, None)
    shutil.copytree(folder / "_index", plain / "_index")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert planned(plain, Keyring.create(tmp_path / "empty.json"),
                       [("ssn", "=", "ssn-4")]) == {"a.parquet": None}


def test_a_damaged_index_is_a_warning(folder, keyring):
    for name in os.listdir(folder / "_index" / "ssn"):
        if name.endswith(".seg"):
            (folder / "_index" / "ssn" / name).write_bytes(b"SBX2")
    filters = [("ssn", "=", "ssn-215")]
    with pytest.warns(IndexWarning, match="is not used"):
        assert len(planned(folder, keyring, filters)) == 5
    with pytest.raises(SecureBloomError):
        planned(folder, keyring, filters, index="require")


@pytest.mark.parametrize("options", [{"require.encryption": "pii: ssn"}, {
    "policy": 'footer_key = "footer"\n[columns.ssn]\nkey = "pii"\n'}])
def test_files_that_must_be_checked_are_all_opened(folder, keyring, options):
    filters = [("ssn", "=", "ssn-215")]
    assert planned(folder, keyring, filters, **options) == {
        "0.parquet": (), "1.parquet": (), "2.parquet": (1,), "3.parquet": (), "4.parquet": ()}
    assert len(Query(folder, keyring, filters, **options).rows()) == 10
    put(folder / "4.parquet", names(400), keyring, None)
    secure_bloom.index.build(folder, "ssn", keyring)
    with pytest.raises(AuthenticationError, match="encrypt"):
        Query(folder, keyring, filters, **options).rows()


def test_a_table_without_an_index(tmp_path, keyring):
    put(tmp_path / "t" / "a.parquet", names(0), keyring)
    filters = [("ssn", "=", "ssn-4")]
    assert planned(tmp_path / "t", keyring, filters) == {"a.parquet": None}
    with pytest.raises(FileNotFoundError, match="has no index"):
        planned(tmp_path / "t", keyring, filters, index="require")
    with pytest.raises(UnsupportedError, match="only the folder of a table"):
        planned(tmp_path / "t" / "a.parquet", keyring, filters, index="require")
    assert planned(tmp_path / "t" / "a.parquet", keyring, filters) == {"a.parquet": None}


def test_the_option(folder, keyring):
    filters = [("ssn", "=", "ssn-215")]
    assert len(planned(folder, keyring, filters, index="off")) == 5
    assert len(planned(folder, keyring, filters, **{"on.missing.key": "null"})) == 5
    with pytest.raises(OptionError, match="every file is opened"):
        planned(folder, keyring, filters, index="require", **{"on.missing.key": "null"})
    with pytest.raises(OptionError, match="one of auto, off, require"):
        planned(folder, keyring, filters, index="on")


def test_what_the_index_skips_is_logged(folder, keyring, caplog):
    caplog.set_level("INFO", "secure_bloom.spark")
    Query(folder, keyring, [("ssn", "=", "ssn-215")]).rows()
    planning, task = (record.context for record in caplog.records)
    assert (planning["total_files"], planning["skipped_by_index_files"]) == ("5", "4")
    assert (task["total_row_groups"], task["skipped_by_index_row_groups"]) == ("4", "3")
    assert "ssn-215" not in caplog.text


@pytest.mark.parametrize("column", ["ssn", "id"])
@pytest.mark.parametrize("requirement", ["ssn", "pii: ssn"])
def test_an_index_that_somebody_put_there_hides_no_rows(folder, keyring, column, requirement):
    """Without encryption, with the real files, but none of their values and columns."""
    lies = pa.schema([("id", pa.int64())]).serialize().to_pybytes()
    plant(folder, column, keyring,
          change=lambda entries: [one._replace(schema=lies) for one in entries])
    for options in ({}, {"index": "require"}):
        found = matching(folder, keyring, [("ssn", "=", "ssn-105")],
                         **{"require.encryption": requirement}, **options)
        assert [row["id"] for row in found] == [105]
