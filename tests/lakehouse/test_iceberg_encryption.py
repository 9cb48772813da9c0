"""Iceberg's own table encryption: how its files look, and reading them with their keys."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.puffin import PuffinFile

import secure_bloom
from secure_bloom import ExplicitKeys, ParquetFile, audit, verify_file
from secure_bloom.errors import (
    AuthenticationError,
    KeyNotFoundError,
    KeyRetrievalError,
    KeyUnwrapError,
    UnsupportedError,
)
from secure_bloom.keys import IcebergKeys, InMemoryKms
from secure_bloom.keys.iceberg import KeyMetadata
from secure_bloom.reading.open_file import OpenFile
from tests.lakehouse.iceberg import (
    ENCRYPTED,
    FILTER,
    KMS,
    PEOPLE,
    data_files,
    folder_of,
    pyiceberg_table,
    ssn,
)

ABSENT = ssn(7) + "x"  # statistics do not exclude it


def create(spark, name: str, *properties: str, rows: str = PEOPLE) -> str:
    spark.sql(f"CREATE TABLE {name} (ssn string, amount long) USING iceberg "
              f"TBLPROPERTIES ({', '.join([ENCRYPTED, FILTER, *properties])})")
    spark.sql(f"INSERT INTO {name} {rows}")
    return name


@pytest.fixture(scope="module")
def people(spark):
    """An encrypted table that is not changed."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS encrypted.db")
    return create(spark, "encrypted.db.people")


# --- how it looks --------------------------------------------------------------------------------

def test_each_file_has_its_own_key_and_an_encrypted_filter(spark, people):
    files = data_files(spark, people)
    assert len({KeyMetadata.parse(metadata).key for metadata in files.values()}) == len(files) == 2
    for path, metadata in files.items():
        key, aad_prefix, length = KeyMetadata.parse(metadata)
        assert len(key) == len(aad_prefix) == 16 and length == Path(path).stat().st_size
        file = OpenFile(path, ExplicitKeys(key, aad_prefix=aad_prefix))
        assert file.magic == b"PARE" and file.footer.footer_key_metadata is None
        filters = file.bloom_filters
        assert [one.column for one in filters] == ["ssn"] and filters[0].encrypted
        assert file.might_contain("ssn", [ABSENT]).tolist() == [[False]]
        assert verify_file(path, IcebergKeys(files)).ok


@pytest.mark.parametrize("change", [
    lambda key, prefix: ExplicitKeys(key), lambda key, prefix: ExplicitKeys(key, aad_prefix=key),
    lambda key, prefix: ExplicitKeys(prefix, aad_prefix=prefix)], ids=["none", "wrong", "key"])
def test_the_aad_prefix_is_needed_and_is_not_in_the_file(spark, people, change):
    path, metadata = data_files(spark, people).popitem()
    key, aad_prefix, _ = KeyMetadata.parse(metadata)
    assert aad_prefix not in Path(path).read_bytes()
    with pytest.raises((AuthenticationError, KeyNotFoundError)):
        ParquetFile(path, change(key, aad_prefix))


def test_manifests_are_encrypted_and_metadata_files_are_not(spark, people):
    files = [path for path in (folder_of(spark, people) / "metadata").iterdir()
             if not path.name.startswith(".")]
    magics = {path.suffix: path.read_bytes()[:4] for path in files}
    assert magics == {".avro": b"AGS1", ".json": b'{"fo'}


# --- reading -------------------------------------------------------------------------------------

def test_a_data_set_with_the_keys_that_spark_shows(spark, people):
    rows = spark.table(f"{people}.data_files").collect()
    keys = IcebergKeys({row.file_path: row.key_metadata for row in rows})
    table = secure_bloom.dataset([row.file_path for row in rows], keys)
    assert table.to_table(filter=[("ssn", "==", ssn(7))])["amount"].to_pylist() == [7]
    assert table.explain([("ssn", "==", ABSENT)]).row_groups.bloom_filters > 0


def test_a_data_set_with_the_kms_and_pyiceberg(spark, people):
    table = pyiceberg_table(spark, people)
    rows = secure_bloom.dataset(table, KMS)
    assert rows.count_rows() == 2000
    assert rows.to_table(filter=[("ssn", "==", ssn(7))])["amount"].to_pylist() == [7]
    absent = rows.explain([("ssn", "==", ABSENT)])
    assert absent.files.read == 0 and absent.row_groups.bloom_filters > 0
    found = secure_bloom.find(table, "ssn", [ssn(7)], keys=KMS)
    assert found["amount"].to_pylist() == [7]


def test_pyiceberg_alone_cannot_read_a_table(spark, people):
    with pytest.raises(ValueError, match="Avro"):
        list(pyiceberg_table(spark, people).scan().plan_files())


def test_an_index_of_a_table_is_refused(spark, people):
    with pytest.raises(KeyRetrievalError, match="has no key metadata"):
        secure_bloom.index.build(folder_of(spark, people) / "data", ["ssn"], KMS)


def test_errors_of_keys_name_the_table(spark, people):
    table = pyiceberg_table(spark, people)
    for keys, error in [(None, KeyNotFoundError), (ExplicitKeys(bytes(16)), KeyNotFoundError),
                        (InMemoryKms({"other": bytes(16)}), KeyNotFoundError),
                        (InMemoryKms({"pii": bytes(16)}), KeyUnwrapError)]:
        with pytest.raises(error, match=r"people/metadata/\S+\.metadata\.json: "):
            secure_bloom.dataset(table, keys)
    with pytest.raises(UnsupportedError, match="pass the table, and filter the data set"):
        secure_bloom.dataset(table.scan(), KMS)


@pytest.mark.parametrize("pattern", ["snap-*.avro", "*-m0.avro"])
@pytest.mark.parametrize("change", [
    lambda data: data[:-1], lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    lambda data: b"Obj\1" + data[4:]], ids=["cut", "changed", "replaced"])
def test_a_changed_manifest_is_an_error(spark, people, pattern, change):
    [path] = (folder_of(spark, people) / "metadata").glob(pattern)
    data = path.read_bytes()
    path.write_bytes(change(data))
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    try:
        with pytest.raises(AuthenticationError, match=path.name):
            secure_bloom.dataset(pyiceberg_table(spark, people), KMS)
    finally:
        path.write_bytes(data)


# --- changes through Spark -----------------------------------------------------------------------

def test_deleted_rows_and_their_deletion_vectors(spark, people):
    name = create(spark, "encrypted.db.shrunk", "'write.delete.mode'='merge-on-read'")
    spark.sql(f"DELETE FROM {name} WHERE ssn IN ('{ssn(7)}')")
    [vector] = spark.table(f"{name}.delete_files").collect()
    assert Path(vector.file_path.removeprefix("file:")).read_bytes()[:4] == b"AGS1"
    with pytest.raises(UnsupportedError, match="this Iceberg table has delete files"):
        secure_bloom.dataset(pyiceberg_table(spark, name), KMS)
    spark.sql(f"CALL encrypted.system.rewrite_data_files(table => '{name}', "
              "options => map('delete-file-threshold', '1'))")
    rows = secure_bloom.dataset(pyiceberg_table(spark, name), KMS)
    assert rows.count_rows() == 1999
    assert rows.to_table(filter=[("ssn", "==", ssn(7))]).num_rows == 0


def test_maintenance_keeps_files_filters_and_manifests_encrypted(spark, people):
    name = create(spark, "encrypted.db.rewritten")
    spark.sql(f"INSERT INTO {name} VALUES ('{ssn(3000)}', 3000)")
    spark.sql(f"CALL encrypted.system.rewrite_data_files(table => '{name}', "
              "options => map('rewrite-all', 'true'))")
    spark.sql(f"CALL encrypted.system.rewrite_manifests('{name}')")
    table = pyiceberg_table(spark, name)
    rows = secure_bloom.dataset(table, KMS, require_encryption=True)
    assert rows.count_rows() == 2001
    assert rows.explain([("ssn", "==", ABSENT)]).row_groups.bloom_filters > 0
    manifests = spark.table(f"{name}.manifests").collect()
    assert {Path(one.path.removeprefix("file:")).read_bytes()[:4] for one in manifests} == {b"AGS1"}


# --- encryption that gets lost -------------------------------------------------------------------

def test_plaintext_files_that_are_added_are_refused_by_a_data_set(spark, people, tmp_path):
    name = create(spark, "encrypted.db.mixed")
    secure_bloom.write_table(pa.table({"ssn": [ssn(3000)], "amount": [1]}), tmp_path / "a.parquet")
    spark.sql(f"CALL encrypted.system.add_files('{name}', '`parquet`.`{tmp_path}`')")
    assert spark.table(name).where(f"ssn = '{ssn(3000)}'").count() == 1
    with pytest.raises(KeyRetrievalError, match=r"a\.parquet: the table has no key metadata"):
        secure_bloom.dataset(pyiceberg_table(spark, name), KMS)


def test_table_statistics_are_written_in_plaintext(spark, people):
    name = create(spark, "encrypted.db.analysed", rows="VALUES ('078-05-1120', 1), ('1', 2)")
    [row] = spark.sql(f"CALL encrypted.system.compute_table_stats('{name}')").collect()
    puffin = PuffinFile(Path(row.statistics_file.removeprefix("file:")).read_bytes())
    blob = next(blob for blob in puffin.footer.blobs if blob.fields == [1])
    sketch = puffin.get_blob_payload(blob).hex()
    # The sketch has hashes, without a key, of up to 4,096 values: anyone can test which exist.
    guesses = ["078-05-1120", "1", "078-05-1121", "2"]
    found = [spark.sql(f"SELECT theta_sketch_estimate(theta_intersection(X'{sketch}', "
                       f"theta_sketch_agg('{guess}')))").first()[0] for guess in guesses]
    assert found == [1, 1, 0, 0]
    findings = audit(folder_of(spark, name)).findings  # without keys, as an attacker sees it
    assert {(one.kind, one.column) for one in findings} == {("log", "ssn"), ("log", "amount")}


def test_an_append_of_pyiceberg_fails_and_leaves_plaintext(spark, people, tmp_path):
    name = create(spark, "encrypted.db.failed_append")
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    table = catalog.register_table("n.t", pyiceberg_table(spark, name).metadata_location)
    with pytest.raises(ValueError, match="Cannot write manifest for table version: 3"):
        table.append(pa.table({"ssn": [ssn(1)], "amount": [1]}))
    live = set(map(Path, data_files(spark, name)))
    [left] = set(folder_of(spark, name).rglob("*.parquet")) - live
    assert secure_bloom.read_table(left)["ssn"].to_pylist() == [ssn(1)]
    findings = audit(folder_of(spark, name)).findings
    assert {(one.kind, one.file) for one in findings} == {("unencrypted", str(left))}


def test_an_audit_of_the_folder_finds_nothing(spark, people):
    result = audit(folder_of(spark, people), IcebergKeys(data_files(spark, people)), scan=True)
    *files, unread = result.files
    assert result.findings == [] and len(files) == 2
    assert "which files of the table are not in this folder" in unread.not_checked[0]
    for file in files:
        assert file.not_checked == []
        assert {column.column: column.state for column in file.columns} == {
            "ssn": "protected", "amount": "protected"}
    without = audit(folder_of(spark, people))
    assert without.findings == [] and [file.encryption for file in without.files[:2]] \
        == ["encrypted footer"] * 2
