"""Folders as in practice: partitions, files with different schemas, files of other writers."""

import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T

import secure_bloom
from secure_bloom.arrow.char_columns import ROW_METADATA
from secure_bloom.errors import OptionError, UnsupportedError
from secure_bloom.keys import InMemoryKms, Keyring
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.spark.options.options import Options
from secure_bloom.spark.options.row_filters import checked, to_json
from secure_bloom.spark.reading.folder import Folder
from secure_bloom.spark.reading.reader import SecureParquetReader, find_leaf
from secure_bloom.spark.schema.types import spark_schema
from tests.peers import examples as java_examples
from tests.spark.helpers import PLAINTEXT, failure, people, read, settings, uses_spark, write
from tests.tiers import sweep_where

pytestmark = uses_spark


def rows(frame):
    return sorted(map(str, frame.collect()))


def put(folder, name, **columns):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / name)


# --- schemas that differ -------------------------------------------------------------------------

@pytest.fixture
def grown(tmp_path):
    """The second file has a column more, and wider numbers."""
    put(tmp_path, "a.parquet", id=pa.array([1], pa.int32()), x=pa.array([0.5], pa.float32()))
    put(tmp_path, "b.parquet", x=[1.5], ID=[2], extra=["e"])
    return tmp_path


def test_a_column_that_the_first_file_lacks_is_not_left_out_silently(spark, grown):
    assert read(spark, grown).schema.names == ["id", "x"]
    message = failure(read(spark, grown).where("id = 1").collect)
    assert "b.parquet, column extra" in message and "set option mergeSchema to true" in message


S, SMALL = {"a": 1, "b": "x"}, {"a": 1}
WIDER = {  # a value in the first file, the same with one field more, the field's path
    "in a struct": (SMALL, S, "c.b"), "in another case": (SMALL, {"A": 1, "B": "x"}, "c.B"),
    "twice in another case": (SMALL, {"a": 1, "A": 2}, "c.A"),
    "in a struct of a struct": ({"s": SMALL}, {"s": S}, "c.s.b"),
    "in a list": ([SMALL], [S], "c.list.element.b"),
    "in a list of lists": ([[SMALL]], [[S]], "c.list.element.list.element.b"),
    "in a struct of a list": ([{"s": SMALL}], [{"s": S}], "c.list.element.s.b"),
    "in the values of a map": ([("k", SMALL)], [("k", S)], "c.key_value.value.b"),
    "in the keys of a map": ([(SMALL, 1)], [(S, 1)], "c.key_value.key.b"),
}


def two_files(folder, first, second):
    for name, value in (("a", first), ("b", second)):
        type_ = None
        if isinstance(value, list) and isinstance(value[0], tuple):
            type_ = pa.map_(*(pa.array([part]).type for part in value[0]))
        column = pa.array([value, None], type_)
        put(folder, f"{name}.parquet", c=column, id=[1, 2])


def found_rows(folder, **options):
    """The rows of a folder, read without Spark by the tasks' code with an inferred schema."""
    where = Folder(Options({"path": str(folder), **options}))
    reader = SecureParquetReader(where, where.schema(), True)
    return [row for task in reader.partitions() for batch in reader.read(task)
            for row in batch.to_pylist()]


@pytest.mark.parametrize("where", WIDER)
@pytest.mark.parametrize("columns", [{}, {"columns": "c"}])
def test_a_field_that_the_first_file_lacks_is_not_left_out_silently(tmp_path, where, columns):
    first, second, path = WIDER[where]
    two_files(tmp_path, first, second)
    with pytest.raises(UnsupportedError, match="set option mergeSchema to true") as refused:
        found_rows(tmp_path, **columns)
    assert (refused.value.file, refused.value.column) == (str(tmp_path / "b.parquet"), path)
    assert [row["c"] for row in found_rows(tmp_path, mergeschema="false")] \
        == [first, None, first, None]
    two_files(tmp_path, second, second)  # nothing is left out
    assert [row["c"] for row in found_rows(tmp_path)] == [second, None, second, None]
    if not where.startswith("twice"):
        two_files(tmp_path, second, first)  # only what a file lacks is null
        assert len(found_rows(tmp_path)) == 4


def test_a_field_is_missed_although_no_row_of_its_file_is_read(tmp_path):
    two_files(tmp_path, SMALL, S)
    with pytest.raises(UnsupportedError, match=r"column c\.b"):
        found_rows(tmp_path, filters=to_json(checked([("id", "=", 99)])))
    assert found_rows(tmp_path, columns="id") == 2 * [{"id": 1}, {"id": 2}]  # it is not read


def without_nulls(value):
    """The value without fields that are null."""
    if isinstance(value, dict):
        return {name: without_nulls(one) for name, one in value.items() if one is not None}
    return type(value)(map(without_nulls, value)) if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("where", WIDER)
def test_read_table_has_all_fields_of_all_files(tmp_path, where):
    first, second, _ = WIDER[where]
    for values in ((first, second), (second, first)):
        two_files(tmp_path, *values)
        for filters in (None, [("id", "=", 1)]):
            found = secure_bloom.read_table(tmp_path, filters=filters).filter(pc.field("id") == 1)
            assert [without_nulls(value) for value in found["c"].to_pylist()] == list(values)


@pytest.mark.sweep
def test_spark_names_the_field_and_the_option(spark, tmp_path):
    two_files(tmp_path, [SMALL], [S])
    frame = read(spark, tmp_path)
    message = failure(frame.collect)
    assert "b.parquet, column c.list.element.b" in message
    assert "set option mergeSchema to true (all fields of all files)" in message
    merged = read(spark, tmp_path, mergeSchema="true").select("c").collect()
    assert [row.c[0].b for row in merged if row.c and row.c[0].b] == ["x"]
    named = spark.read.format("secure_parquet").schema("c array<struct<a:int>>, id int")
    assert rows(named.load(str(tmp_path)).where("id = 1")) == 2 * ["Row(c=[Row(a=1)], id=1)"]


def test_merge_schema(spark, grown):
    merged = read(spark, grown, mergeSchema="true")
    assert merged.schema.simpleString() == "struct<id:bigint,x:double,extra:string>"
    assert rows(merged) == ["Row(id=1, x=0.5, extra=None)", "Row(id=2, x=1.5, extra='e')"]
    # the first file's columns, as in Spark; a double is not a float, so it is not silently rounded
    assert "b.parquet, column x" in failure(read(spark, grown, mergeSchema="false").collect)
    assert rows(read(spark, grown, columns="id, id")) == ["Row(id=1)", "Row(id=2)"]


@pytest.mark.sweep
def test_types_that_contradict(spark, tmp_path):
    write(people(spark, 1), tmp_path / "t", **PLAINTEXT)
    write(people(spark, 1).selectExpr("cast(id as string) id"), tmp_path / "t", **PLAINTEXT)
    message = failure(lambda: read(spark, tmp_path / "t", mergeSchema="true"))
    assert "specify which to use: .schema(...)" in message and "column id" in message
    for type_, sources in (("string", ["int64"]), ("bigint", ["string"]),
                           ("date", ["int64", "string"])):  # of the file that fails first
        frame = spark.read.format("secure_parquet").schema(f"id {type_}").load(str(tmp_path / "t"))
        message = failure(frame.collect)
        assert any(f"column id: the type {source} cannot be read as" in message
                   for source in sources)


@pytest.mark.sweep
def test_a_type_for_types_that_contradict(spark, tmp_path):
    put(tmp_path, "a.parquet", t=pa.array([0], pa.date32()))
    put(tmp_path, "b.parquet", t=pa.array([0], pa.timestamp("us")))
    assert "specify which to use" in failure(lambda: read(spark, tmp_path, mergeSchema="true"))
    frame = spark.read.format("secure_parquet").schema("t timestamp_ntz").load(str(tmp_path))
    assert frame.collect() == 2 * [(datetime.datetime(1970, 1, 1),)]
    put(tmp_path, "c.parquet", t=pa.array([1], pa.timestamp("ns")))
    frame = spark.read.format("secure_parquet").schema("t timestamp_ntz").load(str(tmp_path))
    assert "c.parquet, column t: a value of type timestamp[ns] cannot" in failure(frame.collect)


def test_nested_fields_by_name(spark, tmp_path):
    put(tmp_path, "a.parquet", s=[{"A": 1, "b": "x"}, None], l=[[{"Q": 1}], []],
        m=pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())))
    frame = spark.read.format("secure_parquet").schema(
        "s struct<b:string,a:bigint,c:int>, l array<struct<q:bigint,r:int>>, "
        "m map<string,bigint>").load(str(tmp_path))
    assert rows(frame) == ["Row(s=None, l=[], m=None)",
                           "Row(s=Row(b='x', a=1, c=None), l=[Row(q=1, r=None)], m={'k': 1})"]


@pytest.mark.sweep
def test_names_that_differ_in_case_only(spark, tmp_path):
    put(tmp_path, "a.parquet", id=[1], ID=[2])
    source = spark.read.format("secure_parquet")
    assert "may mean id or ID" in failure(source.schema("Id int").load(str(tmp_path)).collect)
    assert rows(source.schema("ID int").load(str(tmp_path))) == ["Row(ID=2)"]


def test_fields_are_found_for_pruning_as_for_reading():
    def leaf(*parts):
        return LeafColumn(0, ".".join(parts), parts, ColumnType("INT64", 0, pa.int64()))

    columns = [leaf("s", "x", "a"), leaf("s", "X", "B"), leaf("t"), leaf("u.v"), leaf("u", "v")]
    assert find_leaf(columns, ("s", "x", "A")) is columns[0]
    assert find_leaf(columns, ("s", "X", "b")) is columns[1]
    assert find_leaf(columns, ("T",)) is columns[2]
    for path in [("s", "X", "a"), ("s", "X"), ("t", "t"), ("u", "v"), ("u.v",), ("w",)]:
        assert find_leaf(columns, path) is None


@pytest.mark.sweep
def test_columns_are_all_that_is_decrypted(spark, tmp_path, keyring, encrypted):
    write(people(spark, 2), tmp_path / "t", **encrypted,
          **{"parquet.encryption.plaintext.footer": "true"})
    assert rows(read(spark, tmp_path / "t", columns='["city"]')) == ["Row(city='city-0')",
                                                                    "Row(city='city-1')"]
    misspelt = failure(lambda: read(spark, tmp_path / "t", columns="citty"))
    assert "there is no such column in the first file (did you mean 'city'?); existing" in misspelt
    with_schema = spark.read.format("secure_parquet").schema("id long").option("columns", "city")
    assert "not in option columns" in failure(with_schema.load(str(tmp_path / "t")).collect)


def test_bad_options(tmp_path):
    for name, value in {"columns": "", "COLUMNS": "[1]", "split_bytes": "many",
                        "min_partitions": "0", "mergeSchema": "1", "single_use": "true",
                        "filters": "id = 5", "allFiles": "yes", "nonsense": "1"}.items():
        with pytest.raises(OptionError, match=f"option {name.lower()}: "):
            Folder(Options({"path": str(tmp_path), name: value}))
    with pytest.raises(OptionError, match="reading only"):
        Options({"columns": "id"}).for_writing()


# --- partitions ----------------------------------------------------------------------------------

def test_partitions_as_spark_writes_them(spark, tmp_path):
    data = spark.range(6).selectExpr(
        "id", "id % 2 as odd", "if(id = 5, null, concat('a/b=', id % 3)) as text",
        "date_add(date'2024-01-31', cast(id as int)) as day")
    data.write.partitionBy("odd", "text", "day").parquet(str(tmp_path / "t"))
    own = spark.read.parquet(str(tmp_path / "t"))
    ours = read(spark, tmp_path / "t")
    assert ours.schema == own.schema
    assert ours.schema.simpleString() == "struct<id:bigint,odd:int,text:string,day:date>"
    assert rows(ours) == rows(own)
    chosen = read(spark, tmp_path / "t", columns="day,id")
    assert rows(chosen) == rows(own.select("day", "id"))
    typed = spark.read.format("secure_parquet").schema("ODD string, id long")
    assert rows(typed.load(str(tmp_path / "t")).where("ODD = '1'")) == [
        f"Row(ODD='1', id={number})" for number in (1, 3, 5)]


def test_values_in_paths_win_and_must_fit(spark, tmp_path):
    put(tmp_path, "P=1/a.parquet", p=["file"], q=[1])
    put(tmp_path, "P=x/a.parquet", p=["file"], q=[2])
    assert rows(read(spark, tmp_path)) == ["Row(p='1', q=1)", "Row(p='x', q=2)"]
    typed = spark.read.format("secure_parquet").schema("p int").load(str(tmp_path))
    assert "P=x/a.parquet, column p" in failure(typed.collect)
    put(tmp_path, "b.parquet", q=[3])
    assert "partition columns" in failure(lambda: read(spark, tmp_path))


# --- tables with a log ---------------------------------------------------------------------------

@pytest.mark.sweep
def test_a_table_with_a_log_is_refused_unless_all_files_are_asked_for(spark, tmp_path):
    put(tmp_path, "day=1/a.parquet", id=[1])
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / "00000000000000000000.json").write_text("{}")
    with_schema = spark.read.format("secure_parquet").schema("id int")
    for action in (lambda: read(spark, tmp_path), lambda: read(spark, tmp_path / "day=1"),
                   with_schema.load(str(tmp_path)).collect,
                   lambda: read(spark, tmp_path, allFiles="false"),
                   lambda: secure_bloom.spark.read(spark, str(tmp_path), filters=[("id", "=", 1)])):
        message = failure(action)
        assert "this is a Delta Lake table" in message and 'format("delta")' in message
        assert "set option allFiles to true" in message
    assert rows(read(spark, tmp_path, allFiles="true")) == ["Row(id=1, day=1)"]
    assert rows(read(spark, tmp_path / "day=1" / "a.parquet")) == ["Row(id=1)"]
    for mode in ("append", "overwrite"):
        message = failure(lambda mode=mode: write(people(spark), tmp_path, mode, **PLAINTEXT))
        assert "write through the table" in message
    assert (tmp_path / "day=1" / "a.parquet").exists()


# --- other writers -------------------------------------------------------------------------------

@sweep_where(lambda timestamps: timestamps != "INT96")
@pytest.mark.parametrize("timestamps", ["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
def test_files_of_sparks_own_writer(spark, tmp_path, timestamps):
    spark.conf.set("spark.sql.parquet.outputTimestampType", timestamps)
    try:
        data = spark.sql("select timestamp'1500-01-01 00:00:00' as a, array(timestamp"
                         "'9999-01-01 00:00:00.001') as b, cast(1.5 as decimal(20,3)) as c")
        data.write.parquet(str(tmp_path / "t"))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    assert read(spark, tmp_path / "t").schema == data.schema.toNullable()
    assert rows(read(spark, tmp_path / "t")) == rows(data)


@sweep_where(lambda type_: type_ != "DATE")
@pytest.mark.parametrize("type_", ["INT96", "TIMESTAMP_MICROS", "DATE"])
def test_old_values_of_sparks_legacy_calendar_are_refused(spark, tmp_path, type_):
    """Our reader would return other days, or find none of them."""
    modes = {f"spark.sql.parquet.{name}RebaseModeInWrite": "LEGACY"
             for name in ("datetime", "int96")}
    kind = "date" if type_ == "DATE" else "timestamp"
    with settings(spark, {**modes, "spark.sql.parquet.outputTimestampType":
                          "INT96" if type_ == "INT96" else "TIMESTAMP_MICROS"}):
        for year in ("2024", "1500"):
            frame = spark.sql(f"select {kind}'{year}-01-01' as d, array({kind}'{year}-01-01') l, "
                              "1 as id")
            frame.coalesce(1).write.parquet(str(tmp_path / year))
    assert rows(read(spark, tmp_path / "2024")) == rows(
        spark.read.parquet(str(tmp_path / "2024")))
    for columns in ("d", "l"):
        message = failure(read(spark, tmp_path / "1500", columns=columns).collect)
        assert "native.read_options" in message and f"column {columns}" in message
    day = datetime.date(1500, 1, 1)
    old = day if kind == "date" else datetime.datetime(1500, 1, 1, tzinfo=datetime.UTC)
    found = secure_bloom.spark.read(spark, tmp_path / "1500", filters=[("d", "=", old)])
    assert "native.read_options" in failure(found.collect)
    assert rows(read(spark, tmp_path / "1500", columns="id")) == ["Row(id=1)"]


@sweep_where(lambda mode: mode not in ("plain", "tools"))
@pytest.mark.parametrize("mode", ["plain", "tools", "tools uniform", "tools plaintext footer"])
def test_files_of_parquet_java(spark, tmp_path, parquet_java, mode):
    keys = java_examples.MODES[mode]
    (tmp_path / "t").mkdir()
    java_examples.write(parquet_java, tmp_path / "t" / "a.parquet", keys)
    keyring = Keyring.create(tmp_path / "keyring.json")
    for name, key in java_examples.MASTER_KEYS.items():
        keyring.add(name, key)
    frame = read(spark, tmp_path / "t", keys=str(keyring.path))
    assert dict(frame.dtypes)["moment"] == "timestamp"
    found = frame.orderBy("id").collect()
    assert [row.id for row in found] == [row["id"] for row in java_examples.ROWS]
    assert [row.name and row.name.encode() for row in found] == [
        row["name"] for row in java_examples.ROWS]
    one = secure_bloom.spark.read(spark, str(tmp_path / "t"), filters=[("name", "=", "näme 5")],
                                  keys=str(keyring.path))
    assert [row.id for row in one.collect()] == [2**62 + 5]


def test_types_of_other_writers(spark, tmp_path):
    put(tmp_path, "a.parquet", d=pa.array(["x", None]).dictionary_encode(),
        large=pa.array(["x", "y"], pa.large_string()),
        ns=pa.array([1000, None], pa.timestamp("ns")))
    frame = read(spark, tmp_path)
    assert frame.schema.simpleString() == "struct<d:string,large:string,ns:timestamp_ntz>"
    assert frame.collect()[0] == ("x", "x", datetime.datetime(1970, 1, 1, 0, 0, 0, 1))


# --- tasks ---------------------------------------------------------------------------------------

def reader(folder, **options) -> SecureParquetReader:
    folder = Folder(Options({"path": str(folder), **options}))
    return SecureParquetReader(folder, folder.schema(), True)


def test_what_is_not_a_schema_of_spark_is_ignored():
    field = '{"name": "id", "type": "%s", "nullable": true, "metadata": %s}'
    for text in ("{", "[]", "\udcff", "[" * 100_000, "{}", '{"name": "id"}', field % ("x", "{}"),
                 field % ("string", '["x"]')):
        for content in (text, '{"type": "struct", "fields": [' + text + "]}"):
            schema = pa.schema([("id", pa.int32())], {
                ROW_METADATA: content.encode("utf-8", "surrogateescape")})
            assert spark_schema(schema).simpleString() == "struct<id:int>"


def test_row_groups_of_one_file_go_to_several_tasks(tmp_path):
    pq.write_table(pa.table({"id": range(50_000)}), tmp_path / "a.parquet", row_group_size=5_000)
    parts = reader(tmp_path, split_bytes="60k")
    tasks = parts.partitions()
    assert len(tasks) > 3
    batches = [[batch for batch in parts.read(task)] for task in tasks]
    assert max(batch.num_rows for found in batches for batch in found) <= 10_000
    assert sorted(value for found in batches for batch in found
                  for value in batch["id"].to_pylist()) == list(range(50_000))
    assert sum(map(bool, batches)) > 3


def test_small_files_share_tasks(tmp_path):
    for number in range(200):
        put(tmp_path, f"{number}.parquet", id=[number])
    parts = reader(tmp_path, min_partitions="2")
    assert len(parts.partitions()) < 10
    assert sum(batch.num_rows for task in parts.partitions() for batch in parts.read(task)) == 200


def test_keys_are_unwrapped_once_in_a_process(keyring, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(Keyring, "unwrap_key", lambda self, wrapped, name: calls.append(name)
                        or InMemoryKms.unwrap_key(self, wrapped, name))
    wrapped = keyring.wrap_key(b"k" * 16, "pii")
    by_path = {"path": str(tmp_path), "keys": str(keyring.path)}
    by_uri = {"path": str(tmp_path), "keys": f"keyring:{keyring.path}"}
    for options in (by_path, by_uri, by_path):
        assert Folder(Options(options)).keys().unwrap_key(wrapped, "pii") == b"k" * 16
    assert calls == ["pii"]
    keyring.add("another")  # which takes effect at once
    keys = Folder(Options(by_path)).keys()
    assert keys.unwrap_key(keyring.wrap_key(b"k" * 16, "another"), "another")
    assert calls == ["pii", "another"]


def test_merging_needs_no_order():
    from secure_bloom.spark.schema.merging import wider
    assert wider(T.DecimalType(5, 2), T.LongType()) == T.DecimalType(21, 2)
    assert wider(T.DecimalType(38, 30), T.LongType()) is None
    assert wider(T.ByteType(), T.ShortType()) == wider(T.ShortType(), T.ByteType()) == T.ShortType()
    assert wider(T.NullType(), T.DateType()) == T.DateType()
    assert wider(T.LongType(), T.DoubleType()) is wider(T.DateType(), T.TimestampType()) is None
