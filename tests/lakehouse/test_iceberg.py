"""Iceberg tables that Spark writes: what this library reads, refuses and finds in them."""

from pathlib import Path

import pyarrow as pa
import pytest

import secure_bloom
from secure_bloom import EncryptionConfiguration, audit
from secure_bloom.errors import (
    AuthenticationError,
    EncryptionMismatchError,
    KeyRetrievalError,
    UnsupportedError,
)
from secure_bloom.keys import InMemoryKms
from secure_bloom.spark import native
from tests.lakehouse.iceberg import (
    ENCRYPTED,
    FILTER,
    PEOPLE,
    data_files,
    folder_of,
    pyiceberg_table,
    ssn,
)

KMS = InMemoryKms({"footer": bytes(range(16)), "pii": bytes(range(16, 32))})
ENCRYPTION = EncryptionConfiguration("footer", {"pii": ["ssn"]})
PLAINTEXT = b"PAR1"


def magics(files) -> set[bytes]:
    """Return the first bytes of files, which say whether their footers are encrypted."""
    return {Path(file).read_bytes()[:4] for file in files}


@pytest.fixture(scope="module")
def people(spark):
    """A table without encryption, with filters."""
    name = "iceberg.db.people"
    spark.sql(f"CREATE TABLE {name} (ssn string, amount long) USING iceberg "
              f"TBLPROPERTIES ({FILTER})")
    spark.sql(f"INSERT INTO {name} {PEOPLE}")
    return name


# --- writing with our keys -----------------------------------------------------------------------

@pytest.mark.parametrize("way", ["write options", "configuration", "table properties"])
def test_spark_ignores_our_keys_and_writes_plaintext(spark, way):
    session, name = spark.newSession(), "iceberg.db.ignored"
    native.enable(session)  # so that Spark's own writer would refuse plaintext
    options = native.write_options(encryption=ENCRYPTION, bloom_filters=["ssn"], keys=KMS)
    writer = session.sql(PEOPLE).writeTo(name).using("iceberg")
    if way == "write options":
        writer = writer.options(**options)
    for option, value in options.items():
        if way == "configuration":
            session.conf.set(option, value)
        elif way == "table properties":
            writer = writer.tableProperty(option, value)
    writer.create()
    try:
        files = data_files(spark, name)
        assert magics(files) == {PLAINTEXT}
        policy = secure_bloom.Policy(footer_key="footer", columns={"ssn": "pii"})
        for file in files:
            found = audit(file, KMS, policy=policy).findings
            assert {finding.kind for finding in found} == {"unencrypted"}
        with pytest.raises(EncryptionMismatchError):
            native.verify(str(folder_of(spark, name) / "data"), encryption=ENCRYPTION, keys=KMS)
    finally:
        spark.sql(f"DROP TABLE {name}")


def test_marked_columns_are_not_written(spark, people):
    marked = spark.sql(PEOPLE).withMetadata("ssn", {"secure_bloom.key": "pii"})
    for write in (marked.writeTo("iceberg.db.marked").using("iceberg").create,
                  marked.writeTo(people).append):
        with pytest.raises(Exception, match="nothing was written: column ssn is sensitive"):
            write()
    assert not spark.catalog.tableExists("iceberg.db.marked")


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_our_files_cannot_be_added_to_a_table(spark, tmp_path, plaintext_footer):
    encryption = EncryptionConfiguration("footer", {"pii": ["ssn"]},
                                         plaintext_footer=plaintext_footer)
    secure_bloom.write_table(pa.table({"ssn": [ssn(1)], "amount": [1]}), tmp_path / "a.parquet",
                             encryption=encryption, keys=KMS)
    name = f"iceberg.db.added_{plaintext_footer}"
    spark.sql(f"CREATE TABLE {name} (ssn string, amount long) USING iceberg")
    with pytest.raises(Exception, match=r"No keys available|Null File Decryptor"):
        spark.sql(f"CALL iceberg.system.add_files('{name}', '`parquet`.`{tmp_path}`')").collect()
    assert spark.table(name).count() == 0


# --- tables without encryption -------------------------------------------------------------------

def test_filters_of_spark_prune_a_data_set_of_live_files(spark, people):
    rows = secure_bloom.dataset(pyiceberg_table(spark, people))
    assert rows.to_table(filter=[("ssn", "==", ssn(7))]).to_pydict() == {
        "ssn": [ssn(7)], "amount": [7]}
    absent = rows.explain([("ssn", "==", ssn(7) + "x")])
    assert absent.files.read == 0 and absent.row_groups.bloom_filters > 0


def test_manifests_of_a_plaintext_table_have_values(spark, people):
    table = pyiceberg_table(spark, people)
    [manifest] = table.current_snapshot().manifests(table.io)
    entries = manifest.fetch_manifest_entry(table.io)
    assert ssn(0).encode() in {entry.data_file.lower_bounds[1] for entry in entries}
    policy = secure_bloom.Policy(footer_key="footer", columns={"ssn": "pii"})
    found = audit(folder_of(spark, people), policy=policy).findings
    assert {(one.kind, one.column) for one in found} == {("log", "ssn"), ("unencrypted", "ssn")}


def test_deleted_rows_stay_in_the_folder_until_snapshots_expire(spark):
    name = "iceberg.db.shrunk"
    spark.sql(f"CREATE TABLE {name} (ssn string, amount long) USING iceberg")
    spark.sql(f"INSERT INTO {name} {PEOPLE}")
    spark.sql(f"DELETE FROM {name} WHERE ssn IN ('{ssn(7)}')")
    data = folder_of(spark, name) / "data"

    def stored() -> int:
        return secure_bloom.find(data, "ssn", ssn(7), all_files=True).num_rows

    assert secure_bloom.dataset(pyiceberg_table(spark, name)).count_rows() == 1999
    assert stored() == 1
    spark.sql(f"CALL iceberg.system.expire_snapshots(table => '{name}', retain_last => 1, "
              "older_than => TIMESTAMP '2100-01-01 00:00:00')")
    assert stored() == 0


# --- what is refused -----------------------------------------------------------------------------

@pytest.mark.parametrize(("change", "statement"), [
    (lambda path: secure_bloom.attach(path, ["amount"]), "CALL system.rewrite_data_files"),
    (lambda path: secure_bloom.seal(path, KMS), "CALL system.rewrite_data_files"),
    (secure_bloom.strip, "CALL system.rewrite_data_files"),
    (lambda path: secure_bloom.erase(path, "ssn", [ssn(7)]), "DELETE FROM its table WHERE ssn IN")],
    ids=["attach", "seal", "strip", "erase"])
def test_files_of_a_table_are_not_changed(spark, people, change, statement):
    folder = folder_of(spark, people)
    file, *_ = data_files(spark, people)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for place in (folder, folder / "data", file):
        with pytest.raises(UnsupportedError, match="belongs to an Iceberg table") as refused:
            change(place)
        assert statement in str(refused.value) and "system.expire_snapshots" in str(refused.value)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_the_folder_of_a_table_is_not_read_or_written(spark, people):
    folder = folder_of(spark, people)
    for place in (folder, folder / "data"):
        with pytest.raises(UnsupportedError, match="this is an Iceberg table"):
            secure_bloom.read_table(place)
        with pytest.raises(UnsupportedError, match="this is an Iceberg table"):
            secure_bloom.write_dataset(pa.table({"ssn": ["1"]}), place, mode="append")


# --- the index -----------------------------------------------------------------------------------

def test_an_index_belongs_to_the_folder_with_data_files(spark, people):
    folder = folder_of(spark, people)
    with pytest.raises(UnsupportedError, match=r"build the index of its folder .*people/data"):
        secure_bloom.index.build(folder, ["ssn"], KMS, encryption=None)
    secure_bloom.index.build(folder / "data", ["ssn"], KMS, encryption=None)
    table = pyiceberg_table(spark, people)
    found = secure_bloom.find(table, "ssn", [ssn(7)], index="require")
    assert found["amount"].to_pylist() == [7]


# --- encryption that is not there ----------------------------------------------------------------

def test_a_catalog_of_another_kind_accepts_a_master_key_and_writes_plaintext(spark):
    name = "iceberg.db.not_encrypted"
    spark.sql(f"CREATE TABLE {name} (ssn string, amount long) USING iceberg "
              f"TBLPROPERTIES ({ENCRYPTED})")
    spark.sql(f"INSERT INTO {name} {PEOPLE}")
    files = data_files(spark, name)
    assert magics(files) == {PLAINTEXT} and set(files.values()) == {None}
    found = [one for one in audit(folder_of(spark, name)).findings if one.kind == "unencrypted"]
    assert {one.file for one in found} == set(files)
    table = pyiceberg_table(spark, name)
    for keys in (None, KMS):
        assert secure_bloom.dataset(table, keys).count_rows() == 2000
    with pytest.raises((AuthenticationError, KeyRetrievalError), match="not encrypted"):
        secure_bloom.dataset(table, KMS, require_encryption=True)


def test_a_catalog_of_hive_without_a_kms_refuses_a_master_key(spark, tmp_path):
    catalog = "spark.sql.catalog.no_kms"
    for option, value in {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hive",
                          ".warehouse": str(tmp_path)}.items():
        spark.conf.set(f"{catalog}{option}", value)
    spark.sql("CREATE NAMESPACE no_kms.without")
    with pytest.raises(Exception, match="without a key management client"):
        spark.sql(f"CREATE TABLE no_kms.without.people (ssn string) USING iceberg "
                  f"TBLPROPERTIES ({ENCRYPTED})")


def test_only_the_catalog_of_hive_encrypts(spark):
    loader = spark._jvm.Thread.currentThread().getContextClassLoader()

    def encrypts(kind: str) -> bool:
        methods = loader.loadClass(f"org.apache.iceberg.{kind}").getDeclaredMethods()
        return any(method.getName() == "encryption" for method in methods)

    kinds = ["hive.HiveTableOperations", "hadoop.HadoopTableOperations", "jdbc.JdbcTableOperations",
             "rest.RESTTableOperations", "nessie.NessieTableOperations",
             "inmemory.InMemoryCatalog$InMemoryTableOperations"]
    assert [kind for kind in kinds if encrypts(kind)] == ["hive.HiveTableOperations"]
