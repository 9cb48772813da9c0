"""Option ``policy`` of the data source, in writes and reads."""

import os
import pickle
import uuid
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql import types as T

import secure_bloom
from secure_bloom import EncryptionConfiguration, ParquetFile
from secure_bloom.errors import PolicyWarning
from secure_bloom.policy import Policy, TableRules
from secure_bloom.spark.options.options import SESSION_POLICY, Options
from secure_bloom.spark.options.policy import parse_policy
from secure_bloom.spark.reading.folder import Folder
from secure_bloom.spark.reading.reader import SecureParquetReader
from secure_bloom.spark.writing.writer import SecureParquetWriter
from tests.forging import plaintext_file
from tests.spark.helpers import (
    PLAINTEXT,
    keys_of,
    people,
    read,
    refusal,
    rows_here,
    settings,
    staged,
    uses_spark,
    visible,
    write,
)
from tests.storage.s3 import BUCKET
from tests.tiers import sweep_where

pytestmark = uses_spark

RULES = {"ssn": "pii", "home.*": {"key": "money", "bloom_filter": True}, "city": {
    "bloom_filter": {"fpp": 0.1}}}
SCHEMA = T.StructType().add("ssn", "string").add("city", "string").add("id", "long")
BY_OPTIONS = {"parquet.encryption.footer.key": "footer",
              "parquet.encryption.column.keys": "pii: ssn"}


@pytest.fixture
def policy(tmp_path):
    """Makes options with a policy, whose file is written."""
    def make(**given):
        path = tmp_path / "policy.toml"
        path.write_text(Policy(**{"footer_key": "footer", "columns": RULES, **given}).to_toml())
        return {"policy": str(path)}

    return make


@pytest.fixture
def keys(keyring):
    return {"keys": str(keyring.path)}


def refused(action, *words, folder=None) -> None:
    with pytest.raises(Exception) as caught:
        action()
    for word in words:
        assert word in str(caught.value)
    if folder is not None:
        assert visible(folder) == [] and staged(folder) == []


def filters_of(folder, keyring) -> set[str]:
    with ParquetFile(folder / visible(folder)[0], keyring) as file:
        return {info.column for info in file.bloom_filters}


# --- writes --------------------------------------------------------------------------------------

def test_the_policy_makes_the_encryption_and_the_filters(spark, tmp_path, keyring, keys, policy):
    frame = people(spark, 4).selectExpr("*", "struct(id as zip) as home")
    write(frame, tmp_path / "t", **keys, **policy())
    assert keys_of(tmp_path / "t", keyring) == {
        "ssn": "pii", "city": None, "id": None, "home.zip": "money"}
    assert filters_of(tmp_path / "t", keyring) == {"city", "home.zip"}
    write(frame, tmp_path / "u", **keys, **policy(), **{
        "bloom_filters": '{"city": false, "id": true}',
        "parquet.bloom.filter.fpp#home.zip": "0.2"})
    assert filters_of(tmp_path / "u", keyring) == {"id", "home.zip"}


@sweep_where(lambda given, **_: "sensitive" not in given)
@pytest.mark.parametrize(("given", "found"), [
    ({"columns": {}, "sensitive": ["SSN"]}, {"ssn": "footer", "city": None, "id": None}),
    ({"default": "encrypt", "columns": {"ssn": "pii", "id": {"plaintext": True}}},
     {"ssn": "pii", "city": "footer", "id": None}),
    ({"default": "encrypt", "columns": {}}, dict.fromkeys(["ssn", "city", "id"], "footer")),
    ({"encrypted_footer": True, "columns": {}}, dict.fromkeys(["ssn", "city", "id"], "footer"))],
    ids=["sensitive", "default", "all", "footer"])
def test_what_the_policy_names_no_key_for(spark, tmp_path, keyring, keys, policy, given, found):
    write(people(spark, 4), tmp_path / "t", **keys, **policy(**given))
    assert keys_of(tmp_path / "t", keyring) == found


def test_a_plaintext_footer_of_a_file_with_one_key(spark, tmp_path, keyring, keys, policy):
    """All columns are encrypted with the footer key; pyarrow refuses this as uniform encryption."""
    write(people(spark, 4), tmp_path / "t", **keys, **policy(default="encrypt", columns={}),
          **{"parquet.encryption.plaintext.footer": "true"})
    assert set(keys_of(tmp_path / "t", keyring).values()) == {"footer"}


@pytest.mark.sweep
def test_marks_and_a_footer_key_add_to_the_policy(spark, tmp_path, keyring, keys, policy):
    frame = people(spark, 4).withMetadata("city", {"secure_bloom.key": "money"})
    write(frame, tmp_path / "t", **keys, **policy())
    write(frame, tmp_path / "u", **keys, **policy(footer_key=None),
          **{"parquet.encryption.footer.key": "money"})
    write(frame, tmp_path / "v", **keys, **policy(footer_key=None, columns={}, sensitive=["ssn"]),
          **{"parquet.encryption.footer.key": "footer"})
    for folder, key in (("t", "pii"), ("u", "pii"), ("v", "footer")):
        assert keys_of(tmp_path / folder, keyring) == {"ssn": key, "city": "money", "id": None}


def test_options_may_add(spark, tmp_path, keyring, keys, policy):
    write(people(spark, 4), tmp_path / "t", **keys, **policy(), **{
        "parquet.encryption.column.keys": "pii: ssn; money: id"})
    assert keys_of(tmp_path / "t", keyring) == {"ssn": "pii", "city": None, "id": "money"}
    write(people(spark, 4), tmp_path / "u", **keys, **policy(columns={"ssn": "footer"}),
          **{"parquet.encryption.uniform.key": "footer"})
    assert set(keys_of(tmp_path / "u", keyring).values()) == {"footer"}


WEAKER = [
    (PLAINTEXT, "column ssn: it would be written in plaintext; it must be encrypted by the "
                "policy's rule 'ssn' in columns"),
    ({**BY_OPTIONS, "parquet.encryption.column.keys": "pii: city"},
     "column ssn: it would be written in plaintext"),
    ({**BY_OPTIONS, "parquet.encryption.column.keys": "money: ssn"},
     "column ssn: it would be encrypted with master key 'money'; master key 'pii' is required"),
    ({**BY_OPTIONS, "parquet.encryption.footer.key": "money"},
     "the footer would be encrypted with master key 'money'"),
    ({"parquet.encryption.footer.key": "money"}, "the footer would be encrypted with master key"),
    ({"parquet.encryption.uniform.key": "footer"}, "master key 'pii' is required"),
    ({"parquet.encryption.algorithm": "AES_GCM_CTR_V1"}, "use AES_GCM_V1")]


def test_options_and_marks_may_not_weaken(spark, tmp_path, keys, policy):
    for options, words in WEAKER:
        assert words in refusal(SCHEMA, tmp_path / "t", **keys, **policy(), **options)
    frame = people(spark, 4).withMetadata("ssn", {"secure_bloom.key": "money"})
    refused(lambda: write(frame, tmp_path / "t", **keys, **policy()), "'pii' is required",
            folder=tmp_path / "t")


def test_a_policy_that_requires_nothing_does_not_allow_plaintext(spark, tmp_path, keys, policy):
    """A renamed column would be written in plaintext without notice."""
    frame = people(spark, 4).withColumnRenamed("ssn", "number")
    refused(lambda: write(frame, tmp_path / "t", **keys, **policy()),
            "no column would be encrypted", "'ssn' in columns", folder=tmp_path / "t")
    write(frame, tmp_path / "t", **policy(), **PLAINTEXT)
    assert rows_here(tmp_path / "t", **policy()) == 4
    write(frame, tmp_path / "u", **policy(columns={"*": {"plaintext": True}}))
    assert set(keys_of(tmp_path / "u", None).values()) == {None}


def test_a_slip_under_an_encrypted_footer_does_not_write_plaintext(spark, tmp_path, keyring, keys,
                                                                   policy):
    slip = policy(columns={"sssn": "pii"}, encrypted_footer=True)
    write(people(spark, 4), tmp_path / "t", **keys, **slip)
    assert set(keys_of(tmp_path / "t", keyring).values()) == {"footer"}
    with pytest.warns(PolicyWarning, match=r"u: .*'sssn' in columns \(did you mean 'ssn'\?\)"):
        SecureParquetWriter(Options({"path": str(tmp_path / "u"), **keys, **slip}),
                            people(spark, 4).schema, overwrite=False)


def test_policies_that_cannot_be_applied_or_read(tmp_path, keys, policy):
    for given, words in (({"footer_key": None}, "there is no footer key: add footer_key"),
                         ({"columns": {"s*": "pii", "*n": "money"}}, "two rules of equal rank"),
                         ({"columns": {"ssn": "unknown"}}, "unknown")):
        assert words in refusal(SCHEMA, tmp_path / "t", **keys, **policy(**given))
    for value, words in (("/none/policy.toml", "No such file"), ("", "URI of a TOML file"),
                         ("none://b/policy.toml", "none"),
                         ("sensitif = ['ssn']\n", "sensitif")):
        assert words in refusal(SCHEMA, tmp_path / "t", **keys, policy=value)
        refused(lambda value=value: Folder(Options({"path": str(tmp_path), "policy": value})),
                words)


def test_a_policy_is_read_from_its_uri(s3):
    path = f"policies/{uuid.uuid4().hex}.toml"
    with s3.filesystem_of().open_output_stream(f"{BUCKET}/{path}") as file:
        file.write(Policy(sensitive=["ssn"]).to_toml().encode())
    assert parse_policy(Options({"policy": s3.uri(path)})) == Policy(sensitive=["ssn"])


@pytest.mark.sweep
def test_partition_columns(spark, tmp_path, keyring, keys, policy):
    frame = people(spark, 4).selectExpr("*", "id % 2 as k")
    for rule in ({"columns": {"k": "pii"}}, {"columns": {}, "sensitive": ["K*"]}):
        refused(lambda rule=rule: write(frame, tmp_path / "t", **keys, **policy(**rule),
                                        partition_by="k", plaintext="true"),
                "column k: its values would be part of folder names", "policy's rule",
                folder=tmp_path / "t")
    write(frame, tmp_path / "t", **keys, **policy(default="encrypt", columns={}), partition_by="k")
    assert set(keys_of(tmp_path / "t" / "k=0", keyring)) == {"ssn", "city", "id"}


@pytest.mark.sweep
def test_rules_for_some_folders(spark, tmp_path, keyring, keys, policy):
    given = policy(columns={}, tables=[TableRules("*/people", columns={"ssn": "pii"})])
    write(people(spark, 4), tmp_path / "people", **keys, **given)
    assert keys_of(tmp_path / "people", keyring)["ssn"] == "pii"
    write(people(spark, 4), tmp_path / "other", **given, **PLAINTEXT)
    refused(lambda: write(people(spark, 4), tmp_path / "people", "overwrite", **given, **PLAINTEXT),
            "column ssn", "'ssn' in columns of table '*/people'")
    assert read(spark, tmp_path / "people", **keys, **given).count() == 4
    write(people(spark, 4), tmp_path / "people", "overwrite", **PLAINTEXT)
    refused(lambda: read(spark, tmp_path / "people", **keys, **given), "not encrypted")
    assert read(spark, tmp_path / "other", **given).count() == 4


def test_rules_for_some_files_of_the_folder(spark, tmp_path, keyring, keys, policy):
    """Only a task knows the path of its file; then nothing is published."""
    given = policy(columns={}, tables=[TableRules("*/k=1", columns={"ssn": "pii"})])
    frame = people(spark, 4).selectExpr("*", "id % 2 as k")
    refused(lambda: write(frame, tmp_path / "t", **given, **PLAINTEXT, partition_by="k"),
            "k=1/", "column ssn: it would be written in plaintext", folder=tmp_path / "t")
    write(frame.where("k = 0"), tmp_path / "t", **given, **PLAINTEXT, partition_by="k")
    write(frame.where("k = 1"), tmp_path / "t", **keys, **given, **BY_OPTIONS, partition_by="k")
    assert rows_here(tmp_path / "t", **keys, **given, mergeSchema="false") == 4
    write(frame.where("k = 1"), tmp_path / "t", **keys, partition_by="k", **{
        **BY_OPTIONS, "parquet.encryption.column.keys": "pii: city"})
    refused(lambda: rows_here(tmp_path / "t", **keys, **given, mergeSchema="false"),
            "k=1/", "column ssn")


@pytest.mark.sweep
def test_values_in_paths_by_a_rule_for_some_files_of_the_folder(spark, tmp_path, keys, policy):
    given = policy(columns={}, tables=[TableRules("*/t/*", ["k"])])
    frame = people(spark, 4).selectExpr("*", "id % 2 as k")
    for options in (PLAINTEXT, {**keys, **BY_OPTIONS}):
        refused(lambda options=options: write(frame, tmp_path / "t", **given, **options,
                                              partition_by="k"),
                "column k: its values would be part of folder names", folder=tmp_path / "t")


# --- settings of the session ---------------------------------------------------------------------

def test_the_setting_of_the_session(spark, tmp_path, keyring, keys, policy):
    frame = people(spark, 4)
    with settings(spark, {SESSION_POLICY: policy()["policy"]}):
        write(frame, tmp_path / "t", **keys)
        refused(lambda: write(frame, tmp_path / "u", **PLAINTEXT), "'ssn' in columns",
                folder=tmp_path / "u")
        own = Policy(columns={"city": "pii"}, footer_key="footer")
        write(frame, tmp_path / "v", **keys, policy=own.to_toml())
        refused(lambda: read(spark, tmp_path / "v", **keys), "column ssn")
        assert secure_bloom.spark.read(spark, tmp_path / "v", keys=keyring, policy=own).count() == 4
    assert keys_of(tmp_path / "t", keyring)["ssn"] == "pii"
    write(frame, tmp_path / "u", **PLAINTEXT)


@pytest.mark.sweep
def test_the_setting_of_the_session_and_streams(spark, tmp_path, keyring, keys, policy):
    people(spark, 4).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema("ssn string, city string, id long").parquet(
        str(tmp_path / "in"))

    def run(name, **options):
        (stream.writeStream.format("secure_parquet").options(**options)
         .option("checkpointLocation", str(tmp_path / "checkpoints" / name))
         .trigger(availableNow=True).start(str(tmp_path / name)).awaitTermination())

    with settings(spark, {SESSION_POLICY: policy()["policy"]}):
        for number, options in enumerate((PLAINTEXT, {**PLAINTEXT, "partition_by": "city"}, {
                **keys, **BY_OPTIONS, "parquet.encryption.column.keys": "money: city"})):
            refused(lambda number=number, options=options: run(f"u{number}", **options),
                    "column ssn", "'ssn' in columns", folder=tmp_path / f"u{number}")
        run("t", **keys)
    assert keys_of(tmp_path / "t", keyring)["ssn"] == "pii"


@pytest.mark.sweep
def test_the_setting_of_the_session_and_tables_of_a_catalog(spark, tmp_path, keys, policy):
    options = f"options (keys '{keys['keys']}') location '{tmp_path}/t'"
    spark.sql(f"create table of_policy (ssn string, id bigint) using secure_parquet {options}")
    try:
        with settings(spark, {SESSION_POLICY: policy()["policy"]}):
            refused(lambda: spark.sql(
                "insert into of_policy with (plaintext = 'true') values ('1', 2)"),
                "'ssn' in columns", folder=tmp_path / "t")
            spark.sql("insert into of_policy values ('1', 2)")
            assert spark.table("of_policy").count() == 1
        write(spark.sql("select '1' as ssn, 2L as id"), tmp_path / "t", "overwrite", **PLAINTEXT)
        assert spark.table("of_policy").count() == 1
        with settings(spark, {SESSION_POLICY: policy()["policy"]}):
            refused(spark.table("of_policy").collect, "not encrypted")
    finally:
        spark.sql("drop table of_policy")


def test_the_setting_at_the_time_of_register(spark, tmp_path, policy):
    """As with Spark Connect, where nothing else reaches the data source."""
    session = spark.newSession()
    with settings(session, {SESSION_POLICY: policy()["policy"]}):
        secure_bloom.spark.register(session)
    frame = session.createDataFrame(people(spark, 4).toPandas())
    refused(lambda: write(frame, tmp_path / "t", **PLAINTEXT), "'ssn' in columns",
            folder=tmp_path / "t")


# --- reads ---------------------------------------------------------------------------------------

TABLE = pa.table({"ssn": ["ssn-0", "ssn-1"], "city": ["city-0", "city-1"], "id": [0, 1]})


def put(path, keyring, columns, footer="footer", **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    secure_bloom.write_table(TABLE, path, bloom_filters={}, keys=keyring,
                             encryption=EncryptionConfiguration(footer, columns, **options))


def test_what_the_policy_requires_is_required_in_each_file(tmp_path, keyring, keys, policy):
    folder = tmp_path / "t"
    put(folder / "a.parquet", keyring, {"pii": ["ssn"]})
    assert rows_here(folder, **keys, **policy()) == 2
    for _name, columns, words in [
            ("other", {"money": ["ssn"]}, "'money'"), ("open", {"money": ["city"]}, "column ssn")]:
        put(folder / "b.parquet", keyring, columns)
        refused(lambda: rows_here(folder, **keys, **policy(), columns="id"), "b.parquet", words)
        refused(lambda: rows_here(folder, **keys, **policy(), mergeSchema="true"), "b.parquet")
    (folder / "a.parquet").unlink()
    refused(lambda: rows_here(folder, **keys, **policy(), **{"require.encryption": "false"}),
            "column ssn", "(policy: 'ssn' in columns)")


def test_plaintext_files_are_accepted_for_a_time(tmp_path, keyring, keys, policy):
    folder, now = tmp_path / "t", datetime.now(UTC).date()
    put(folder / "a.parquet", keyring, {"pii": ["ssn"]})
    (folder / "b.parquet").write_bytes(plaintext_file(TABLE, []))
    given = policy(accept_plaintext_until=now + timedelta(1))
    assert rows_here(folder, **keys, **given) == 4
    assert rows_here(folder, **keys, **given, mergeSchema="true") == 4
    given = policy(accept_plaintext_until=now - timedelta(2))
    refused(lambda: rows_here(folder, **keys, **given), "b.parquet", "not encrypted")


@pytest.mark.parametrize("schema", [None, T.StructType().add("ssn", "string").add("id", "long")])
def test_a_plaintext_file_without_the_column(spark, tmp_path, keyring, keys, policy, schema):
    """By somebody without any key, who says that no value of the column is in it."""
    folder = tmp_path / "t"
    put(folder / "a.parquet", keyring, {"pii": ["ssn"]})
    (folder / "b.parquet").write_bytes(plaintext_file(TABLE.select(["city", "id"]), []))
    assert rows_here(folder, schema, **keys) == 4
    for more in ({},) if schema else ({}, {"columns": "id"}, {"mergeSchema": "true"}):
        refused(lambda more=more: rows_here(folder, schema, **keys, **policy(), **more),
                "b.parquet", "not encrypted")
    if schema is None:
        refused(read(spark, folder, **keys, **policy()).collect, "b.parquet", "not encrypted")


@pytest.mark.sweep
def test_options_and_marks_are_required_as_well(spark, tmp_path, keyring, keys, policy):
    put(tmp_path / "t" / "a.parquet", keyring, {"pii": ["ssn"]})
    refused(lambda: read(spark, tmp_path / "t", **keys, **policy(),
                         **{"require.encryption": "city"}), "column city")
    marked = T.StructType([T.StructField("city", T.StringType(), True, {"secure_bloom.key": "p"})])
    given = spark.read.format("secure_parquet").schema(marked).options(**keys, **policy())
    refused(given.load(str(tmp_path / "t")).collect, "column city")


@pytest.mark.sweep
def test_values_in_paths(spark, tmp_path, keyring, keys, policy):
    put(tmp_path / "t" / "ssn=x" / "a.parquet", keyring, {"pii": ["ssn"]})
    refused(lambda: read(spark, tmp_path / "t", **keys, **policy()).collect(),
            "column ssn", "from the path")
    given = spark.read.format("secure_parquet").schema("ssn string").options(**keys, **policy())
    refused(given.load(str(tmp_path / "t")).collect, "from the path")


def test_tasks_do_not_read_the_file_of_the_policy(tmp_path, keyring, keys, policy):
    put(tmp_path / "t" / "a.parquet", keyring, {"money": ["ssn"]})
    options = Options({"path": str(tmp_path / "t"), **keys, **policy()})
    reader = SecureParquetReader(Folder(options), T.StructType().add("ssn", "string"))
    os.remove(options["policy"])
    reader = pickle.loads(pickle.dumps(reader))
    [task] = reader.partitions()
    with pytest.raises(Exception, match="'pii' is required"):
        list(reader.read(task))
