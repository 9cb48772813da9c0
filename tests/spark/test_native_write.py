"""Spark's own writer with our keys: what it writes, in each of Spark's ways to write."""

import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pyspark
import pytest

from secure_bloom import (
    BloomFilterOptions,
    EncryptionConfiguration,
    ParquetFile,
    UniformKey,
    read_table,
    verify_file,
)
from secure_bloom.errors import (
    EncryptionMismatchError,
    KeyNotFoundError,
    SecureBloomError,
    UnsupportedError,
)
from secure_bloom.keys import KeyEncryptionKeys
from secure_bloom.spark import native
from secure_bloom.spark.native import application
from secure_bloom.storage.visibility import data_files
from tests.spark import ways
from tests.spark.helpers import people, settings, uses_spark, visible
from tests.support import ArrowKms, WatchedKms
from tests.tiers import sweep_where

pytestmark = uses_spark

ARN = "arn:aws:kms:eu-west-1:111122223333:key/1234abcd"
MASTER_KEYS = {"footer": b"f" * 16, "pii": b"p" * 32, ARN: b"a" * 24}
BY_COLUMN = EncryptionConfiguration("footer", {"pii": ["ssn"]})
FILTERS = {"ssn": True, "id": True}
WAYS = {
    "column keys": BY_COLUMN,
    "uniform": EncryptionConfiguration("footer", uniform_encryption=True),
    "plaintext footer": EncryptionConfiguration("footer", {"pii": ["ssn"]}, plaintext_footer=True),
    "ctr, 256 bits": EncryptionConfiguration("footer", {ARN: ["ssn"], "pii": ["city"]},
                                             encryption_algorithm="AES_GCM_CTR_V1",
                                             data_key_length_bits=256),
    "one key": EncryptionConfiguration("pii", {"pii": ["ssn"]}),
    "pyarrow's": pe.EncryptionConfiguration("footer", column_keys={"pii": ["ssn"]}),
    "pyarrow's uniform": pe.EncryptionConfiguration("footer", uniform_encryption=True),
}


@pytest.fixture
def kms():
    return WatchedKms(MASTER_KEYS)


@pytest.fixture
def frame(native_spark):
    return people(native_spark, 2000).selectExpr("*", "id % 3 as day")


@pytest.fixture
def options(native_spark, kms):
    return native.write_options(encryption=BY_COLUMN, bloom_filters=FILTERS, keys=kms)


@pytest.fixture
def table(native_spark, tmp_path):
    """Makes the name of a new table and the path where it is."""
    names = []

    def make(*clauses: str) -> tuple[str, str]:
        names.append(f"native_{len(names)}")
        path = tmp_path / names[-1]
        if clauses:
            native_spark.sql(f"create table {names[-1]} (ssn string, city string, id bigint, "
                             f"day bigint) using parquet {' '.join(clauses)} location '{path}'")
        return names[-1], str(path)

    yield make
    for name in names:
        native_spark.sql(f"drop table if exists {name}")


def verify(path, kms, encryption=BY_COLUMN, filters=FILTERS):
    return native.verify(path, encryption=encryption, bloom_filters=filters, keys=kms)


def ids(table) -> list[int]:
    return sorted(table["id"].to_pylist())


def sql_options(options) -> str:
    return ", ".join(f"'{name}' '{value}'" for name, value in options.items())


@sweep_where(lambda way: way in ("one key", "pyarrow's", "pyarrow's uniform"))
@pytest.mark.parametrize("way", WAYS)
def test_others_read_what_spark_writes(native_spark, frame, tmp_path, kms, way):
    encryption, folder = WAYS[way], str(tmp_path / "people")
    options = native.write_options(encryption=encryption, bloom_filters=FILTERS, keys=kms)
    frame.write.options(**options).parquet(folder)
    assert sorted(kms.wrapped) == sorted({encryption.footer_key, *(
        () if encryption.uniform_encryption else encryption.column_keys)})
    seen = verify(folder, kms, encryption)
    assert (seen.files, seen.encrypted_filters + seen.plain_filters, seen.without_filter) \
        == (2, 4, 0)
    assert ids(read_table(folder, keys=kms, filters=[("ssn", "==", "ssn-77")])) == [77]
    for name in visible(folder):
        path = f"{folder}/{name}"
        result = verify_file(path, kms)  # checks every value against its filter
        assert result.ok and not result.findings and len(result.filters) == 2
        assert [check.encrypted for check in result.filters if check.column == "ssn"] == [True]
        factory = pe.CryptoFactory(lambda _: ArrowKms(kms))
        rows = pq.read_table(path, decryption_properties=factory.file_decryption_properties(
            pe.KmsConnectionConfig(), pe.DecryptionConfiguration()), partitioning=None)
        assert rows.num_rows == 1000
    assert ids(read_table(folder, keys=kms)) == list(range(2000))


def test_java_key_tools_read_it(frame, options, tmp_path, parquet_java):
    from tests.peers.keys import KeyTools
    frame.coalesce(1).write.options(**options).parquet(str(tmp_path / "people"))
    path = tmp_path / "people" / visible(tmp_path / "people")[0]
    rows, _ = parquet_java.read(path, KeyTools(MASTER_KEYS))
    assert sorted(row["id"] for row in rows) == list(range(2000))
    assert parquet_java.probe(path, KeyTools(MASTER_KEYS), "ssn", ["ssn-5", "no"]) \
        == [[True, False]]


def test_every_file_has_keys_of_its_own(frame, options, kms, tmp_path):
    frame.write.options(**options).partitionBy("day").parquet(str(tmp_path / "people"))
    keys = []
    for path in data_files(pa_fs.LocalFileSystem(), str(tmp_path / "people")):
        with ParquetFile(path, kms) as file:
            chunk = file.footer.row_groups[0][0]
            keys.append(file.footer.footer_key_metadata)
            keys.append(chunk.key_metadata)
    assert len(set(keys)) == len(keys) == 12


def test_a_small_filter_where_there_are_few_values(frame, tmp_path, kms):
    filters = {"ssn": True, "id": BloomFilterOptions(ndv=5000, fpp=0.001)}
    options = native.write_options(encryption=BY_COLUMN, bloom_filters=filters, keys=kms)
    frame.coalesce(1).write.options(**options).parquet(str(tmp_path / "people"))
    path = tmp_path / "people" / visible(tmp_path / "people")[0]
    sizes = {info.column: info.num_bytes for info in ParquetFile(path, kms).bloom_filters}
    assert sizes["ssn"] <= 8192 and sizes["id"] == 16384  # 2,000 and 5,000 values
    measured = {check.column: check.measured_fpp for check in verify_file(path, kms).filters}
    assert measured["ssn"] < 0.02 and measured["id"] < 0.002


def test_nested_columns(native_spark, tmp_path, kms):
    encryption = EncryptionConfiguration("footer", {"pii": ["person", "tags.list.element"]})
    filters = {"person.name": True, "tags.list.element": True}
    frame = native_spark.range(100).selectExpr(
        "id", "named_struct('name', concat('n', id), 'ids', array(id)) as person",
        "array(concat('t', id), concat('u', id)) as tags", "map('k', id) as map")
    options = native.write_options(encryption=encryption, bloom_filters=filters, keys=kms)
    frame.coalesce(1).write.options(**options).parquet(str(tmp_path / "nested"))
    assert verify(tmp_path / "nested", kms, encryption, filters).encrypted_filters == 2
    path = tmp_path / "nested" / visible(tmp_path / "nested")[0]
    encrypted = {chunk.column.path: chunk.encryption
                 for chunk in ParquetFile(path, kms).footer.row_groups[0]}
    assert [path for path, kind in encrypted.items() if kind] \
        == ["person.name", "person.ids.list.element", "tags.list.element"]


def test_no_filter_where_a_dictionary_has_all_values(frame, tmp_path, kms):
    filters = {"ssn": True, "city": True}  # there are ten cities
    options = native.write_options(encryption=BY_COLUMN, bloom_filters=filters, keys=kms)
    frame.write.options(**options).parquet(str(tmp_path / "a"))
    seen = verify(tmp_path / "a", kms, filters=filters)
    assert (seen.encrypted_filters, seen.plain_filters, seen.without_filter) == (2, 0, 2)
    frame.write.options(**options).option("parquet.enable.dictionary", "false").parquet(
        str(tmp_path / "b"))
    assert verify(tmp_path / "b", kms, filters=filters).plain_filters == 2


in_streams = pytest.mark.skipif(pyspark.__version__ < "4.2",
                                reason="Spark before 4.2 drops the options of streams")


# --- ways to write -------------------------------------------------------------------------------

def insert_with_session(session, options, path):
    session.sql("create table made (ssn string, id bigint, city string) using parquet "
                f"partitioned by (city) location '{path}'")
    with settings(session, options):
        session.table("people").select("ssn", "id", "city").write.insertInto("made")


def buckets(session, options, path):
    session.table("people").write.format("parquet").bucketBy(2, "id").sortBy("id").options(
        **options, path=path).saveAsTable("made")


def dynamic_overwrite(session, options, path):
    writer = session.table("people").write.options(**options, partitionOverwriteMode="dynamic")
    for _ in range(2):
        writer.mode("overwrite").partitionBy("city").parquet(path)


def stream_with_session(session, options, path):
    def start(writer, path):
        with settings(session, options):
            return writer.start(path)

    ways.stream(session, {}, path, start)


@sweep_where(lambda write: write not in (ways.insert, ways.write_to, stream_with_session))
@pytest.mark.parametrize("write", [
    ways.insert, insert_with_session, ways.insert_with, ways.as_select, ways.directory, buckets,
    ways.write_to, dynamic_overwrite, ways.version_2, stream_with_session,
    pytest.param(ways.stream, marks=in_streams)], ids=lambda write: write.__name__)
def test_all_ways_to_write(native_spark, frame, options, tmp_path, kms, write):
    frame.drop("day").createOrReplaceTempView("people")
    path = str(tmp_path / "t")
    try:
        write(native_spark, options, path)
    finally:
        ways.drop_tables(native_spark)
    seen = verify(path, kms)
    assert seen.encrypted_filters == seen.plain_filters == seen.row_groups > 0
    assert sorted(kms.wrapped) == ["footer", "pii"]
    read = native_spark.read.options(**native.read_options(path, keys=kms)).parquet(path)
    assert sorted(row.id for row in read.select("id").collect()) == list(range(2000))


# --- what is not supported ------------------------------------------------------------------------

@pytest.mark.parametrize(("encryption", "error", "words"), [
    (UniformKey(bytes(16)), UnsupportedError, "uniform_encryption=True"),
    (EncryptionConfiguration("footer", {"pii": ["ssn"]}, double_wrapping=False),
     UnsupportedError, "double_wrapping"),
    (EncryptionConfiguration("footer", {"pii": ["ssn"]}, internal_key_material=False),
     UnsupportedError, "internal_key_material"),
    (pe.EncryptionConfiguration("footer"), ValueError, "column_keys"),
    (None, TypeError, "EncryptionConfiguration"),
    (EncryptionConfiguration("nowhere", {"pii": ["ssn"]}), KeyNotFoundError, "nowhere"),
])
def test_encryption_that_is_refused(native_spark, kms, encryption, error, words):
    with pytest.raises(error, match=words):
        native.write_options(encryption=encryption, bloom_filters={}, keys=kms)


@pytest.mark.parametrize(("filters", "bytes_"), [
    ({"a": True}, 1 << 20), (["a"], 1 << 20), ({"a": BloomFilterOptions(max_bytes=5000)}, 4096),
    ({"a": {"max_bytes": 5000}}, 4096),
    ({"a": BloomFilterOptions(ndv=1000)}, 2048),
    ({"a": True, "b": BloomFilterOptions(ndv=1000)}, 1 << 20),
    ({"a": BloomFilterOptions(max_bytes=1 << 24), "b": BloomFilterOptions(ndv=10**7)}, 1 << 24),
    ({"a": BloomFilterOptions(ndv=10**6, max_bytes=4096),
      "b": BloomFilterOptions(max_bytes=4096)}, 4096)])
def test_one_bound_for_all_filters(native_spark, kms, filters, bytes_):
    options = native.write_options(encryption=BY_COLUMN, bloom_filters=filters, keys=kms)
    assert options["parquet.bloom.filter.max.bytes"] == str(bytes_)


def test_filters_of_all_columns_cannot_be_asked_for(native_spark, kms):
    with pytest.raises(UnsupportedError, match="the columns are not known: name them"):
        native.write_options(encryption=BY_COLUMN, bloom_filters=True, keys=kms)


@pytest.mark.parametrize("filters", [
    {"a": True, "b": BloomFilterOptions(ndv=10**7)},
    {"a": BloomFilterOptions(max_bytes=4096), "b": True}])
def test_bounds_that_contradict_each_other(native_spark, kms, filters):
    with pytest.raises(UnsupportedError, match="one size limit"):
        native.write_options(encryption=BY_COLUMN, bloom_filters=filters, keys=kms)


def fails(words: str, write) -> None:
    with pytest.raises(Exception, match=words) as caught:
        write()
    assert "Traceback" not in str(caught.value)


@sweep_where(lambda words, **_: "none" not in words)
@pytest.mark.parametrize(("encryption", "filters", "words"), [
    (EncryptionConfiguration("footer", {"pii": ["ssn", "none"]}), {}, "column none should be enc"),
    (EncryptionConfiguration("footer", {"pii": ["SSN"]}), {}, "column SSN should be encrypted"),
    (EncryptionConfiguration("footer", {"pii": ["day"]}), {}, "partitionBy"),
    (EncryptionConfiguration("footer", {"pii": ["who"], "footer": ["who.name"]}), {},
     "column who.name has two keys"),
    (BY_COLUMN, {"none": True}, "column none should have a Bloom filter"),
])
def test_columns_that_are_not_in_the_file(frame, kms, tmp_path, encryption, filters, words):
    options = native.write_options(encryption=encryption, bloom_filters=filters, keys=kms)
    frame, folder = frame.selectExpr("*", "named_struct('name', ssn) as who"), tmp_path / "people"
    fails(words, lambda: frame.write.options(**options).partitionBy("day").parquet(str(folder)))
    assert not visible(folder)


def test_filters_of_tables_whose_options_lost_their_case(native_spark, frame, table, kms):
    options = native.write_options(encryption=EncryptionConfiguration("footer", {"pii": ["SSN"]}),
                                   bloom_filters={"SSN": True}, keys=kms)
    name, path = table(f"options ({sql_options(options)})")
    native_spark.sql(f"drop table {name}")
    native_spark.sql(f"create table {name} (SSN string) using parquet "
                     f"options ({sql_options(options)}) location '{path}'")
    fails("lower case", lambda: native_spark.sql(f"insert into {name} values ('1')"))
    assert not visible(path)


def test_key_encryption_keys_made_elsewhere(frame, kms, tmp_path):
    keks = KeyEncryptionKeys.for_encryption(BY_COLUMN, kms)
    options = native.write_options(encryption=BY_COLUMN, bloom_filters=FILTERS, keys=keks)
    frame.write.options(**options).parquet(str(tmp_path / "people"))
    assert verify(tmp_path / "people", keks).files == 2  # without calling unwrap_key
    assert kms.wrapped == ["footer", "pii"] and not kms.unwrapped
    with pytest.raises(KeyNotFoundError, match="read with the KMS"):
        verify(tmp_path / "people", KeyEncryptionKeys.for_encryption(
            BY_COLUMN, WatchedKms(MASTER_KEYS)))


# --- writes that have lost their encryption -------------------------------------------------------

@pytest.mark.sweep
def test_options_that_spark_drops(native_spark, frame, options, table):
    """Spark ignores the options of these writes, and would write plaintext."""
    name, path = table("")
    frame.createOrReplaceTempView("people")
    with_properties, other_path = table(f"tblproperties ({sql_options(options)})")
    for write in (lambda: frame.write.options(**options).insertInto(name),
                  lambda: frame.write.options(**options).mode("append").saveAsTable(name),
                  lambda: native_spark.sql(f"insert into {name} select * from people"),
                  lambda: native_spark.sql(f"insert into {with_properties} "
                                           "select * from people")):
        fails("no encryption options reached Spark", write)
    assert not visible(path) and not visible(other_path)


@pytest.mark.skipif(pyspark.__version__ >= "4.2", reason="they arrive there from Spark 4.2 on")
def test_options_of_streams_that_spark_drops(native_spark, frame, options, tmp_path):
    frame.drop("day").createOrReplaceTempView("people")
    fails("TASK_WRITE_FAILED",
          lambda: ways.stream(native_spark, options, str(tmp_path / "t")))
    assert not visible(tmp_path / "t")


def test_a_class_that_is_not_found(frame, options, tmp_path, kms):
    options["parquet.crypto.factory.class"] = "no.such.Factory"
    folder = tmp_path / "people"
    fails("could not instantiate class no.such.Factory",
          lambda: frame.write.options(**options).parquet(str(folder)))
    assert not visible(folder)


def test_verify_finds_what_was_written_without_the_class(native_spark, frame, options, tmp_path,
                                                         kms):
    """The other options have arrived, and plaintext was allowed: only the files tell."""
    del options["parquet.crypto.factory.class"], options["secure_bloom.native.write"]
    folder = tmp_path / "people"
    frame.write.options(**options, plaintext="true").parquet(str(folder))
    with pytest.raises(EncryptionMismatchError, match="nothing in this file is encrypted") as error:
        verify(folder, kms)
    assert len(error.value.findings) == 2 and str(folder) in error.value.file


def test_plaintext_passes_where_it_is_asked_for(native_spark, frame, tmp_path):
    fails("no encryption", lambda: frame.write.parquet(str(tmp_path / "a")))
    frame.write.option("plaintext", "true").parquet(str(tmp_path / "b"))
    with settings(native_spark, {"plaintext": "true"}):
        frame.write.parquet(str(tmp_path / "b2"))
    native.enable(native_spark, plaintext=True)
    try:
        frame.write.parquet(str(tmp_path / "c"))
    finally:
        native.enable(native_spark)
    fails("no encryption", lambda: frame.write.parquet(str(tmp_path / "d")))


@pytest.mark.sweep
def test_a_table_keeps_the_option_that_allows_plaintext(native_spark, frame, options, table, kms):
    """Then only verify tells that other options are lost, until the table forgets it."""
    name, path = table()
    frame.limit(1).write.options(plaintext="true", path=path).saveAsTable(name)
    frame.write.options(**options).insertInto(name)
    with pytest.raises(EncryptionMismatchError, match=r"nothing in this file is .* in 3 files"):
        verify(path, kms)
    native_spark.sql(f"alter table {name} set serdeproperties ('plaintext' = 'false')")
    fails("no encryption", lambda: frame.write.options(**options).insertInto(name))


def test_marked_columns_in_names_of_folders_and_in_structs(native_spark, frame, tmp_path):
    """Spark does not tell its writer of these marks; docs/native.md says so."""
    marked = frame.limit(1).withMetadata("ssn", {"secure_bloom.key": "pii"})
    marked.write.option("plaintext", "true").partitionBy("ssn").parquet(str(tmp_path / "a"))
    assert visible(tmp_path / "a") == ["ssn=ssn-0"]
    struct = marked.selectExpr("named_struct('ssn', ssn) as person")
    assert struct.schema["person"].dataType["ssn"].metadata == {"secure_bloom.key": "pii"}
    struct.write.option("plaintext", "true").parquet(str(tmp_path / "b"))


def test_other_sessions_may_write_plaintext(spark, native_spark, tmp_path):
    people(spark).write.parquet(str(tmp_path / "a"))
    assert len(visible(tmp_path / "a")) == 2


@sweep_where(lambda column: column != "ssn")
@pytest.mark.parametrize("column", ["ssn", "who.name", "list"])
def test_sensitive_columns_of_the_schema(spark, native_spark, frame, kms, tmp_path, column):
    """Also in other sessions, and where plaintext was asked for."""
    from pyspark.sql.types import ArrayType, StringType, StructField, StructType
    mark = {"secure_bloom.key": "pii"}
    fields = {"ssn": StructField("ssn", StringType(), metadata=mark),
              "who.name": StructField("who", StructType([
                  StructField("age", StringType()),
                  StructField("name", StringType(), metadata=mark)])),
              "list": StructField("list", ArrayType(StructType([
                  StructField("x", StringType(), metadata=mark)])))}
    values = {"ssn": "1", "who.name": ("7", "x"), "list": [("y",)]}
    frame = spark.createDataFrame([(values[column], "open")], StructType(
        [fields[column], StructField("open", StringType())]))
    path = "list.list.element.x" if column == "list" else column
    for number, (columns, master) in enumerate([([path], "footer"), (["open"], "pii")]):
        options = native.write_options(
            encryption=EncryptionConfiguration("footer", {master: columns}), bloom_filters={},
            keys=kms)
        fails(f"of column {path} says",
              lambda options=options, number=number:
                  frame.write.options(**options).parquet(str(tmp_path / f"a{number}")))
    fails("says that it is encrypted with master key 'pii'",
          lambda: frame.write.option("plaintext", "true").parquet(str(tmp_path / "b")))
    encryption = EncryptionConfiguration("footer", {"pii": [path]})
    frame.write.options(**native.write_options(
        encryption=encryption, bloom_filters={}, keys=kms)).parquet(str(tmp_path / "c"))
    verify(tmp_path / "c", kms, encryption, {})


@pytest.mark.sweep
def test_options_of_another_application(frame, options, tmp_path):
    sealed = options["secure_bloom.native.write"]
    middle = len(sealed) // 2
    changed = sealed[:middle] + ("A" if sealed[middle] != "A" else "B") + sealed[middle + 1:]
    for number, value in enumerate((changed, "", "x.y", sealed.partition(".")[2])):
        folder = tmp_path / str(number)
        fails("was created for another Spark application", lambda value=value, folder=folder:
              frame.write.options(**options | {"secure_bloom.native.write": value}).parquet(
                  str(folder)))
        assert not visible(folder)


@pytest.mark.sweep
def test_summary_files_repeat_no_statistics(native_spark, frame, options, tmp_path, kms):
    """Where a committer that writes them has the keys to read, too."""
    frame.write.options(**options).parquet(str(tmp_path / "a"))
    read = native.read_options(str(tmp_path / "a"), keys=kms)
    with settings(native_spark, {
            "parquet.summary.metadata.level": "ALL", "spark.sql.parquet.output.committer.class":
            "org.apache.parquet.hadoop.ParquetOutputCommitter"}):
        frame.write.options(**read).options(**options).parquet(str(tmp_path / "b"))
        unsafe = options | {"parquet.summary.metadata.level": "ALL"}
        frame.write.options(**read).options(**unsafe).parquet(str(tmp_path / "c"))
    verify(tmp_path / "b", kms)
    assert b"ssn-" in (tmp_path / "c" / "_metadata").read_bytes()  # the danger is real
    with pytest.raises(EncryptionMismatchError, match="summary file"):
        verify(tmp_path / "c", kms)


@pytest.mark.sweep
def test_options_of_another_version(frame, kms, tmp_path, monkeypatch):
    monkeypatch.setattr(application, "FORMAT_VERSION", 2)
    options = native.write_options(encryption=BY_COLUMN, bloom_filters={}, keys=kms)
    fails("another version", lambda: frame.write.options(**options).parquet(str(tmp_path / "a")))


def test_enable_is_needed(monkeypatch, native_spark, kms):
    conf = native_spark.sparkContext._jsc.hadoopConfiguration()
    public = conf.get("secure_bloom.native.public.key")
    conf.unset("secure_bloom.native.public.key")
    try:
        with pytest.raises(SecureBloomError, match=r"native\.enable"):
            native.write_options(encryption=BY_COLUMN, bloom_filters={}, keys=kms)
    finally:
        conf.set("secure_bloom.native.public.key", public)


def test_another_factory_is_not_replaced(spark, native_spark):
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    conf.set("parquet.crypto.factory.class", "com.example.Factory")
    try:
        with pytest.raises(UnsupportedError, match=r"com\.example\.Factory"):
            native.enable(native_spark)
    finally:
        conf.set("parquet.crypto.factory.class", "secure_bloom.spark.NativeCrypto")
    session = native_spark.newSession()
    session.conf.set("parquet.crypto.factory.class", "com.example.OfTheSession")
    with pytest.raises(UnsupportedError, match=r"com\.example\.OfTheSession"):
        native.enable(session)
