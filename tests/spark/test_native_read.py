"""Spark's own reader with our keys: files of all writers, few KMS calls, skipped row groups."""

import os
import shutil

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from secure_bloom import EncryptionConfiguration, ParquetFile, UniformKey, write_table
from secure_bloom.errors import (
    AuthenticationError,
    FormatError,
    KeyAccessError,
    KeyNotFoundError,
    KeyRetrievalError,
    KeyUnwrapError,
    KmsUnavailableError,
)
from secure_bloom.keys import InMemoryKms
from secure_bloom.spark import native
from tests.peers.keys import KeyTools
from tests.spark.helpers import people, settings, uses_spark, visible
from tests.spark.test_native_write import BY_COLUMN, FILTERS, MASTER_KEYS, fails
from tests.support import ArrowKms, WatchedKms
from tests.tiers import sweep_where

pytestmark = uses_spark

TABLE = pa.table({"id": range(100), "ssn": [f"ssn-{i * 7919 % 1000}" for i in range(100)]})


@pytest.fixture
def kms():
    return WatchedKms(MASTER_KEYS)


def read(native_spark, folder, kms, **more):
    options = native.read_options(str(folder), keys=kms)
    return native_spark.read.options(**options, **more).parquet(str(folder))


def rows_scanned(frame) -> int:
    """Rows that the scan of a query has given: those of the row groups that were not skipped."""
    frame.collect()
    scan = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
    return scan.metrics().apply("numOutputRows").value()


# --- files of all writers ------------------------------------------------------------------------

def _ours(path, request, **how):
    write_table(TABLE, path, bloom_filters=FILTERS, row_group_size=25, use_dictionary=False,
                encryption=EncryptionConfiguration("footer", {"pii": ["ssn"]}, **how),
                keys=InMemoryKms(MASTER_KEYS))


def _ours_external(path, request):
    _ours(path, request, internal_key_material=False)


def _ours_single(path, request):
    _ours(path, request, double_wrapping=False, plaintext_footer=True)


def _ours_uniform(path, request):
    write_table(TABLE, path, bloom_filters=FILTERS, row_group_size=25, use_dictionary=False,
                encryption=EncryptionConfiguration("footer", uniform_encryption=True),
                keys=InMemoryKms(MASTER_KEYS))


def _pyarrow(path, request, internal=True):
    factory = pe.CryptoFactory(lambda _: ArrowKms(InMemoryKms(MASTER_KEYS)))
    configuration = pe.EncryptionConfiguration("footer", column_keys={"pii": ["ssn"]},
                                               internal_key_material=internal)
    pq.write_table(TABLE, path, row_group_size=25,
                   encryption_properties=factory.file_encryption_properties(
                       pe.KmsConnectionConfig(), configuration, path, pa_fs.LocalFileSystem()))


def _pyarrow_external(path, request):
    _pyarrow(path, request, internal=False)


def _java(path, request, **properties):
    parquet_java = request.getfixturevalue("parquet_java")
    parquet_java.write(path, "message m { required int64 id; required binary ssn (STRING); }",
                       TABLE.to_pylist(), bloom=["ssn", "id"], row_group_rows=25,
                       keys=KeyTools(MASTER_KEYS, {"footer.key": "footer",
                                                   "column.keys": "pii:ssn", **properties}))


def _java_external(path, request):
    _java(path, request, **{"key.material.store.internally": "false"})


def _java_single(path, request):
    _java(path, request, **{"double.wrapping": "false"})


def _plaintext(path, request):
    write_table(TABLE, path, bloom_filters=FILTERS, row_group_size=25, use_dictionary=False)


WRITERS = [_ours, _ours_external, _ours_single, _ours_uniform, _pyarrow, _pyarrow_external, _java,
           _java_external, _java_single, _plaintext]


@sweep_where(lambda write: write not in (_ours, _java))
@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_files_of_all_writers(native_spark, tmp_path, request, kms, write):
    folder = tmp_path / "a folder, 100 %"
    folder.mkdir()
    write(folder / "one file.parquet", request)
    frame = read(native_spark, folder, kms)
    found = frame.where("ssn = 'ssn-757'")
    assert [row.id for row in found.collect()] == [3]
    assert sorted(row.id for row in frame.collect()) == list(range(100))
    if "pyarrow" not in write.__name__:  # pyarrow does not write filters
        assert rows_scanned(found) == 25 and rows_scanned(frame) == 100
    assert sorted(kms.unwrapped) == [[], ["footer"], ["footer", "pii"]][
        (write is not _plaintext) + (write not in (_plaintext, _ours_uniform))]


def test_a_folder_of_several_writers(native_spark, tmp_path, request, kms):
    for number, write in enumerate(WRITERS):
        folder = tmp_path / "people" / f"writer={number}"
        folder.mkdir(parents=True)
        write(folder / "a.parquet", request)
    frame = read(native_spark, tmp_path / "people", kms)
    assert frame.count() == 100 * len(WRITERS)
    assert frame.where("ssn = 'ssn-757'").count() == len(WRITERS)
    assert len(kms.unwrapped) == 2 * (len(WRITERS) - 2) + 1  # different keys each


# --- calls to the KMS ----------------------------------------------------------------------------

def test_each_key_is_unwrapped_once(native_spark, tmp_path, kms):
    folder = str(tmp_path / "people")
    frame = people(native_spark, 1000).repartition(8)
    for _ in range(3):
        writer = InMemoryKms(MASTER_KEYS)  # another client uses other key-encryption keys
        options = native.write_options(encryption=BY_COLUMN, bloom_filters=FILTERS, keys=writer)
        frame.write.options(**options).mode("append").parquet(folder)
    assert len(visible(folder)) == 24
    back = read(native_spark, folder, kms)
    assert back.count() == 3000 and back.where("ssn = 'ssn-5'").count() == 3
    assert sorted(kms.unwrapped) == ["footer"] * 3 + ["pii"] * 3
    read(native_spark, folder, kms)
    assert len(kms.unwrapped) == 6  # they are cached


# --- row groups ----------------------------------------------------------------------------------

def test_encrypted_filters_skip_row_groups(native_spark, tmp_path, kms):
    """Values are in no order, so that minimum and maximum rule nothing out."""
    folder = str(tmp_path / "people")
    frame = native_spark.range(0, 20000, 1, 4).selectExpr(
        "id", "cast(xxhash64(id) as string) as ssn")
    options = native.write_options(encryption=BY_COLUMN, bloom_filters=FILTERS, keys=kms)
    frame.write.options(**options).option("parquet.block.size", "30000").parquet(folder)
    seen = native.verify(folder, encryption=BY_COLUMN, bloom_filters=FILTERS, keys=kms)
    assert seen.files == 4 and seen.row_groups >= 12
    wanted = frame.where("id = 12345").collect()[0]
    for column, value in (("ssn", f"'{wanted.ssn}'"), ("id", "12345")):
        found = read(native_spark, folder, kms).where(f"{column} = {value}")
        assert found.collect() == [wanted]
        assert rows_scanned(found) < 20000 * 3 / seen.row_groups
    without = read(native_spark, folder, kms, **{"parquet.filter.bloom.enabled": "false"})
    assert rows_scanned(without.where(f"ssn = '{wanted.ssn}'")) == 20000
    assert rows_scanned(read(native_spark, folder, kms).where("ssn = '12'")) == 0


def test_tables_and_sql(native_spark, tmp_path, kms):
    options = native.write_options(encryption=BY_COLUMN, bloom_filters=FILTERS, keys=kms)
    folder = str(tmp_path / "people")
    people(native_spark).write.options(**options).option("path", folder).format(
        "parquet").saveAsTable("people_native")
    keys = native.read_options(folder, keys=kms)
    try:
        assert native_spark.read.options(**keys).table("people_native").count() == 100
        pairs = ", ".join(f"`{name}` = '{value}'" for name, value in keys.items())
        assert native_spark.sql(f"select * from people_native with ({pairs})").count() == 100
        fails("footer", lambda: native_spark.sql("select ssn from people_native").collect())
        with settings(native_spark, keys):
            assert native_spark.sql("select ssn from people_native").count() == 100
    finally:
        native_spark.sql("drop table people_native")


# --- errors --------------------------------------------------------------------------------------

@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "people"
    folder.mkdir()
    _ours(folder / "a.parquet", None)
    return folder


@pytest.mark.parametrize(("name", "error"), [
    ("footer", KeyNotFoundError), ("footer", KeyAccessError), ("footer", KmsUnavailableError),
    ("pii", KmsUnavailableError), ("pii", KeyUnwrapError)])
def test_no_key_for_a_footer_or_no_kms(native_spark, folder, name, error):
    with pytest.raises(error, match="the KMS says no") as caught:
        native.read_options(str(folder), keys=WatchedKms(MASTER_KEYS, name, error=error))
    assert caught.value.file.endswith("a.parquet")


@sweep_where(lambda error: error is KeyAccessError)
@pytest.mark.parametrize("error", [KeyNotFoundError, KeyAccessError])
def test_no_key_for_a_column(native_spark, folder, caplog, error):
    frame = read(native_spark, folder, WatchedKms(MASTER_KEYS, "pii", error=error))
    assert sorted(row.id for row in frame.select("id").collect()) == list(range(100))
    assert "'pii'" in caplog.text
    fails("ssn", lambda: frame.select("ssn").collect())
    fails("ssn", lambda: frame.where("ssn = 'ssn-757'").collect())


def test_wrong_master_key(native_spark, folder):
    with pytest.raises(KeyUnwrapError, match="'footer'"):
        native.read_options(str(folder), keys=InMemoryKms(dict.fromkeys(MASTER_KEYS, bytes(16))))


def test_files_with_explicit_keys(native_spark, tmp_path, kms):
    write_table(TABLE, tmp_path / "a.parquet", bloom_filters={}, encryption=UniformKey(bytes(16)))
    with pytest.raises(KeyRetrievalError, match="written with explicit keys") as error:
        native.read_options(str(tmp_path), keys=kms)
    assert error.value.file.endswith("a.parquet")


def test_a_changed_footer(native_spark, folder, kms):
    data = bytearray((folder / "a.parquet").read_bytes())
    data[-60] ^= 1
    (folder / "a.parquet").write_bytes(data)
    with pytest.raises(AuthenticationError) as error:
        native.read_options(str(folder), keys=kms)
    assert error.value.file.endswith("a.parquet")


def test_a_changed_filter_skips_nothing(native_spark, folder, kms):
    """parquet-java does without a filter that does not authenticate; no row is lost."""
    path = folder / "a.parquet"
    frame = read(native_spark, folder, kms)
    assert rows_scanned(frame.where("ssn = 'ssn-500'")) == 0
    data = bytearray(path.read_bytes())
    with ParquetFile(path, kms) as file:
        for place in file.bloom_filters:
            data[place.offset + place.length - 20] ^= 1
    path.write_bytes(data)
    frame = read(native_spark, folder, kms)
    assert rows_scanned(frame.where("ssn = 'ssn-500'")) == 100
    assert [row.id for row in frame.where("ssn = 'ssn-757'").collect()] == [3]


@pytest.mark.parametrize("content", [b"no Parquet file", b"", b"PAR1" + bytes(100) + b"PAR1"])
def test_what_is_no_parquet_file(native_spark, folder, kms, content):
    (folder / "b.parquet").write_bytes(content)
    with pytest.raises(FormatError) as error:
        native.read_options(str(folder), keys=kms)
    assert error.value.file.endswith("b.parquet")


def test_missing_key_material(native_spark, tmp_path, kms):
    _ours_external(tmp_path / "a.parquet", None)
    os.remove(tmp_path / "_KEY_MATERIAL_FOR_a.parquet.json")
    with pytest.raises(KeyRetrievalError, match="key material") as error:
        native.read_options(str(tmp_path), keys=kms)
    assert error.value.file.endswith("a.parquet")


def test_no_files(native_spark, tmp_path, kms):
    with pytest.raises(FileNotFoundError):
        native.read_options(str(tmp_path), keys=kms)


@pytest.mark.sweep
def test_files_that_came_later(native_spark, folder, kms):
    options = native.read_options(str(folder), keys=kms)
    _ours(folder / "b.parquet", None)
    frame = native_spark.read.options(**options).parquet(str(folder))
    fails("call native.read_options again", frame.collect)
    assert read(native_spark, folder, kms).count() == 200


@pytest.mark.sweep
def test_files_without_a_key_are_no_corrupt_files(native_spark, folder, kms):
    """Spark would pass over them, and rows would be missing."""
    options = native.read_options(str(folder), keys=kms)
    _ours(folder / "b.parquet", None)
    with settings(native_spark, {"spark.sql.files.ignoreCorruptFiles": "true"}):
        fails("read_options again",
              lambda: native_spark.read.options(**options).parquet(str(folder)).collect())
    schema = read(native_spark, folder, kms).schema  # of a file whose key is available
    with settings(native_spark, {"spark.sql.files.ignoreCorruptFiles": "true"}), \
            settings(native_spark, options):
        fails("read_options again",
              lambda: native_spark.read.schema(schema).parquet(str(folder)).collect())


@pytest.mark.sweep
def test_a_copy_is_not_written_in_plaintext(native_spark, folder, kms, tmp_path):
    frame = read(native_spark, folder, kms)
    fails("no encryption options reached", lambda: frame.write.parquet(str(tmp_path / "copy")))
    options = native.write_options(encryption=BY_COLUMN, bloom_filters=FILTERS, keys=kms)
    frame.write.options(**options).parquet(str(tmp_path / "again"))
    native.verify(tmp_path / "again", encryption=BY_COLUMN, bloom_filters=FILTERS, keys=kms)
    shutil.rmtree(folder)
