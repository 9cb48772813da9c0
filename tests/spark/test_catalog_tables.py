"""Tables of the format in Spark's catalog: CREATE TABLE, queries, INSERT."""

import uuid

import pyarrow.parquet as pq
import pytest

import secure_bloom
from secure_bloom import ParquetFile, read_table
from secure_bloom.errors import OptionError
from secure_bloom.keys import Keyring
from secure_bloom.spark.options.options import Options
from secure_bloom.spark.reading.folder import Folder
from secure_bloom.spark.writing.writer import SecureParquetWriter
from tests.spark.helpers import PLAINTEXT, failure, own_spark, people, uses_spark, visible, write

pytestmark = uses_spark


@pytest.fixture
def sql(spark, tmp_path):
    """Runs statements in a database of its own."""
    database = f"db_{uuid.uuid4().hex}"
    spark.sql(f"create database {database} location '{tmp_path}/database'")
    spark.catalog.setCurrentDatabase(database)
    yield spark.sql
    spark.catalog.setCurrentDatabase("default")
    spark.sql(f"drop database {database} cascade")


@pytest.fixture
def options(encrypted):
    """The same as in SQL."""
    return ", ".join(f"`{name}` '{value}'" for name, value in encrypted.items())


def rows(frame):
    return sorted(map(tuple, frame.collect()))


def assert_encrypted(folder, keyring, value):
    """A row with this ssn is there, and in no file in plaintext."""
    assert read_table(folder, keys=Keyring(keyring), filters=[("ssn", "==", value)]).num_rows
    for path in visible(folder):
        assert value.encode() not in (folder / path).read_bytes()
        with ParquetFile(folder / path, Keyring(keyring)) as file:
            assert file.footer.row_groups[0][0].encryption == "column key"


def test_a_table_without_columns_takes_those_of_the_files(spark, sql, tmp_path, encrypted, options):
    write(people(spark, 3), tmp_path / "t", **encrypted)
    sql(f"create table people using secure_parquet options (path '{tmp_path}/t', {options}) "
        "tblproperties ('purpose' = 'tests')")
    assert rows(sql("select id from people where ssn = 'ssn-1'")) == [(1,)]
    table = spark.table("people")
    assert table.schema["ssn"].metadata == {"secure_bloom.key": "pii"}  # as in the files
    sql("insert into people values ('ssn-inserted', 'Rome', 7)")
    assert_encrypted(tmp_path / "t", encrypted["keys"], "ssn-inserted")
    table.where("id = 7").write.insertInto("people")
    assert rows(sql("select count(*) from people where id = 7")) == [(2,)]
    sql("insert overwrite people values ('ssn-only', 'Oslo', 8)")
    assert rows(table) == [("ssn-only", "Oslo", 8)]
    sql("drop table people")
    assert visible(tmp_path / "t")  # the files are not managed by the catalog


@pytest.mark.sweep
def test_a_table_has_the_columns_and_marks_of_all_files(spark, sql, tmp_path, encrypted):
    frame = people(spark, 3).coalesce(1)
    write(frame.select("ssn"), tmp_path / "1", **PLAINTEXT)
    write(frame, tmp_path / "2", **encrypted)
    (tmp_path / "t").mkdir()
    for name in ("1", "2"):
        [file] = visible(tmp_path / name)
        (tmp_path / name / file).rename(tmp_path / "t" / f"{name}.parquet")
    sql("create table people using secure_parquet options "
        f"(path '{tmp_path}/t', keys '{encrypted['keys']}')")
    schema = spark.table("people").schema
    assert schema.names == ["ssn", "city", "id"]
    assert schema["ssn"].metadata == {"secure_bloom.key": "pii"}
    sql("create table first using secure_parquet options "
        f"(path '{tmp_path}/t', keys '{encrypted['keys']}', mergeSchema 'false')")
    assert spark.table("first").schema.names == ["ssn"]


@pytest.mark.sweep
def test_a_stream_into_a_table(spark, sql, tmp_path, encrypted, options):
    pytest.importorskip("pyspark", "4.1")
    people(spark, 3).write.parquet(f"{tmp_path}/in")
    sql("create table people (ssn string, city string, id bigint) using secure_parquet "
        f"options (path '{tmp_path}/t', {options})")
    spark.readStream.schema(people(spark).schema).parquet(f"{tmp_path}/in").writeStream \
        .option("checkpointLocation", f"{tmp_path}/checkpoint").trigger(availableNow=True) \
        .toTable("people").awaitTermination()
    assert_encrypted(tmp_path / "t", encrypted["keys"], "ssn-2")
    assert rows(sql("select count(*) from people")) == [(3,)]


@pytest.mark.sweep
def test_a_table_with_columns_and_a_location(spark, sql, tmp_path, encrypted, options):
    sql(f"create table people (ssn string, id bigint) using secure_parquet options ({options}) "
        f"location '{tmp_path}/a folder'")
    assert "there is no folder" in failure(sql("select * from people").collect)
    spark.range(3).selectExpr("concat('ssn-', id) as ssn", "id").writeTo("people").append()
    assert_encrypted(tmp_path / "a folder", encrypted["keys"], "ssn-2")
    assert rows(sql("select p.id from people p join people q on p.id = q.id + 1")) == [(1,), (2,)]


@pytest.mark.sweep
def test_a_table_in_the_warehouse_and_one_of_a_query(spark, sql, tmp_path, encrypted, options):
    sql(f"create table people (ssn string) using secure_parquet options ({options})")
    sql("insert into people select 'ssn-5'")
    assert_encrypted(tmp_path / "database" / "people", encrypted["keys"], "ssn-5")
    sql(f"create table copy using secure_parquet options ({options}) as select * from people")
    assert rows(spark.table("copy")) == [("ssn-5",)]
    assert_encrypted(tmp_path / "database" / "copy", encrypted["keys"], "ssn-5")
    sql("drop table copy")
    assert not (tmp_path / "database" / "copy").exists()


@pytest.mark.sweep
def test_create_table_of_the_catalog_functions(spark, sql, tmp_path, encrypted):
    write(people(spark, 3), tmp_path / "t", **encrypted)
    spark.catalog.createTable("people", path=f"{tmp_path}/t", source="secure_parquet", **encrypted)
    assert spark.table("people").count() == 3
    schema = spark.table("people").select("id").schema
    spark.catalog.createTable("ids", path=f"{tmp_path}/t", source="secure_parquet", schema=schema,
                              keys=encrypted["keys"])
    assert rows(spark.table("ids")) == [(0,), (1,), (2,)]


@pytest.mark.sweep
def test_options_of_a_query_win_over_those_of_the_table(spark, sql, tmp_path):
    sql("create table people (id bigint) using secure_parquet "
        f"options (plaintext 'true', compression 'gzip') location '{tmp_path}/t'")
    sql("insert into people values (1)")
    sql("insert into people with (compression = 'zstd') values (2)")
    assert sorted(pq.read_metadata(tmp_path / "t" / name).row_group(0).column(0).compression
                  for name in visible(tmp_path / "t")) == ["GZIP", "ZSTD"]
    assert "option nonsense: unknown" in failure(
        lambda: sql("select * from people with (nonsense = '1')").collect())


@pytest.mark.sweep
def test_options_for_reading_do_not_hinder_an_insert(spark, sql, tmp_path):
    write(people(spark, 3), tmp_path / "t", **PLAINTEXT)
    sql("create table people using secure_parquet "
        f"options (path '{tmp_path}/t', plaintext 'true', mergeSchema 'true', split_bytes '1m')")
    sql("insert into people values ('ssn-9', 'Rome', 9)")
    assert rows(sql("select count(*) from people")) == [(4,)]
    assert "for reading only" in failure(
        lambda: write(people(spark, 3), tmp_path / "t", **PLAINTEXT, mergeSchema="true"))


def test_without_encryption_options_an_insert_is_refused(sql, tmp_path):
    sql("create table people (id bigint) using secure_parquet")
    assert "no encryption was requested" in failure(lambda: sql("insert into people values (1)"))
    assert rows(sql("select * from people")) == []


def test_a_catalog_gets_no_keys(sql):
    for columns in ("(id bigint)", ""):
        message = failure(lambda columns=columns: sql(
            f"create table people {columns} using secure_parquet "
            "options (path '/none', `parquet.encryption.key.list` 'k: AAECAwQFBgcICQoLDA0ODw==')"))
        assert "keyring" in message and "AAEC" not in message
    assert [row for row in sql("show tables").collect() if not row.isTemporary] == []


def test_tables_are_partitioned_by_every_statement_that_makes_them(spark, sql, tmp_path):
    options = "using secure_parquet options (plaintext 'true') partitioned by (day)"
    frame = spark.range(4).selectExpr("id % 2 as day", "id")
    frame.createOrReplaceTempView("numbers")
    writer = frame.write.format("secure_parquet").options(**PLAINTEXT).partitionBy("day")
    ways = {"made": lambda: sql(f"create table made (day bigint, id bigint) {options}"),
            "ctas": lambda: sql(f"create table ctas {options} as select * from numbers"),
            "saved": lambda: writer.saveAsTable("saved"),
            "put": lambda: frame.writeTo("put").using("secure_parquet").options(
                **PLAINTEXT).partitionedBy("day").create()}
    for name, way in ways.items():
        way()
        if name == "made":
            sql("insert into made select * from numbers")
        assert visible(tmp_path / "database" / name) == ["day=0", "day=1"]
        assert rows(sql(f"select day, id from {name}")) == [(0, 0), (0, 2), (1, 1), (1, 3)]
    sql("insert into made partition (day = 7) select 8")
    assert rows(sql("select id from made where day = 7")) == [(8,)]
    writer.mode("append").saveAsTable("saved")
    assert sql("select * from saved").count() == 8
    writer.mode("overwrite").saveAsTable("saved")
    assert sql("select * from saved").count() == 4
    odd = '`d"a,y`'
    sql(f"create table odd (id bigint, {odd} string) {options.replace('day', odd)}")
    sql("insert into odd values (1, 'x')")
    assert rows(sql(f"select id from odd where {odd} = 'x'")) == [(1,)]
    spark.catalog.dropTempView("numbers")


def test_a_relative_location_means_the_same_to_schema_and_rows(spark, sql, tmp_path):
    """Spark resolves it against the database, but does not say so when it asks for a schema."""
    create = "using secure_parquet options (plaintext 'true') location 'below/t'"
    sql(f"create table t (id bigint, day bigint) {create}")
    sql("insert into t values (1, 2)")
    assert visible(tmp_path / "database" / "below" / "t") and rows(sql("table t")) == [(1, 2)]
    assert "LOCATION is relative" in failure(lambda: sql(f"create table without_columns {create}"))
    assert "LOCATION is relative" in failure(lambda: sql(
        "create table without_columns using secure_parquet options (path 'below/t')"))
    sql("create table absolute using secure_parquet "
        f"location '{tmp_path}/database/below/t'")
    assert rows(sql("table absolute")) == [(1, 2)]


@pytest.mark.sweep
def test_partition_columns_are_an_option(sql, tmp_path):
    create = ("create table people (id bigint, day int) using secure_parquet "
              f"options (path '{tmp_path}/t', ")
    assert "remove the option" in failure(lambda: sql(
        f"{create}plaintext 'true', partition_by 'id') partitioned by (day)"))
    assert "use PARTITIONED BY (column, column)" in failure(lambda: sql(
        f"{create}plaintext 'true') clustered by (id) into 2 buckets"))
    sql(f"{create}plaintext 'true', partition_by 'day')")
    sql("insert into people values (7, 1), (8, 2)")
    assert visible(tmp_path / "t") == ["day=1", "day=2"]
    assert rows(sql("select * from people where day = 2")) == [(8, 2)]


@pytest.mark.sweep
def test_conditions_on_a_table_are_not_mixed_up(spark, sql, tmp_path):
    write(people(spark, 10), tmp_path / "t", **PLAINTEXT)
    sql(f"create table people using secure_parquet options (path '{tmp_path}/t')")
    table = spark.table("people")
    both = table.where("id = 3").union(table.where("id = 5"))
    assert sorted(row.id for row in both.collect()) == [3, 5]
    assert table.count() == 10


@pytest.mark.sweep
def test_temporary_views(spark, sql, tmp_path, encrypted, options):
    write(people(spark, 3), tmp_path / "t", **encrypted)
    sql(f"create temporary view v using secure_parquet options (path '{tmp_path}/t', {options})")
    try:
        sql("insert into v values ('ssn-9', 'Rome', 9)")
        assert rows(sql("select max(id) from v")) == [(9,)]
    finally:
        sql("drop view v")


def test_a_second_session_and_a_second_call(spark, sql, tmp_path):
    sql("create table people (id bigint) using secure_parquet options (plaintext 'true')")
    sql("insert into people values (1)")
    other = spark.newSession()
    for _ in range(2):
        secure_bloom.spark.register(other)
    assert rows(other.table(f"{spark.catalog.currentDatabase()}.people")) == [(1,)]


# --- where Spark does not pass the table ---------------------------------------------------------

def test_the_properties_of_a_table_are_not_options():
    properties = {"provider": "secure_parquet", "owner": "me", "keys": "k",
                  "option.keys": "k", "location": "file:/t", "path": "file:/t",
                  "option.path": "/t", "purpose": "tests"}
    assert Options(properties).without_properties() == {
        "keys": "k", "path": "file:/t", "mergeschema": "true"}
    others = {"keys": "k", "option.x": "1"}
    assert Options(others).without_properties() == others


def test_a_missing_path_is_named_first(spark):
    schema = spark.range(1).schema
    for action in (lambda: Folder(Options({})),
                   lambda: SecureParquetWriter(Options({}), schema, False)):
        with pytest.raises(OptionError, match=r"option path: .*SELECT \* FROM t WITH \(path"):
            action()


CONNECT = """
import secure_bloom.spark

folder = sys.argv[1]
secure_bloom.spark.register(spark)
frame = spark.range(3).withMetadata("id", {"secure_bloom.key": "pii"})
writer = spark.range(3).write.format("secure_parquet").option("plaintext", "true")
writer.mode("append").save(folder)
spark.sql(f"create table ids using secure_parquet options (path '{folder}', plaintext 'true')")
try:
    spark.sql("select * from ids").collect()
except Exception as error:
    assert "passes neither path nor options" in str(error), error
else:
    raise AssertionError("where did it get the path from?")
assert spark.sql(f"select * from ids with (path = '{folder}')").count() == 3
spark.sql(f"insert into ids with (path = '{folder}', plaintext = 'true') values (9)")
spark.sql(f"create temporary view v using secure_parquet options (path '{folder}')")
assert spark.table("v").count() == 4
frame.write.parquet(folder + "-plain")  # nothing here can refuse that
spark.stop()
"""


@pytest.mark.usefixtures("connect_port")
@pytest.mark.sweep
def test_spark_connect_needs_the_options_in_each_query(tmp_path):
    pytest.importorskip("grpc")
    result = own_spark(CONNECT, tmp_path / "t", remote=True,
                       settings={"spark.sql.warehouse.dir": str(tmp_path / "w")})
    assert result.returncode == 0, result.stderr
