"""A policy in Spark's own Parquet writer: what it encrypts, and what it refuses by name."""

import re
from fnmatch import fnmatchcase

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from secure_bloom import EncryptionConfiguration, ParquetFile
from secure_bloom.errors import EncryptionMismatchError, PolicyError, PolicyWarning
from secure_bloom.policy import Policy, TableRules
from secure_bloom.spark import native
from secure_bloom.spark.native.policies import java_pattern
from tests.spark.helpers import PLAINTEXT, keys_of, people, settings, uses_spark, visible
from tests.tiers import sweep_where

pytestmark = uses_spark

SETTING = "spark.secure_bloom.native.policy"
SSN = Policy(footer_key="footer", columns={"SSN": "pii"})
REFUSED = "column ssn would be written in plaintext; it must be encrypted by the policy's rule " \
          "'SSN' in columns"


@pytest.fixture
def session(native_spark):
    """A session whose policy says that ssn is sensitive."""
    native.enable(native_spark, policy=SSN)
    yield native_spark
    native_spark.conf.unset(SETTING)


@pytest.fixture
def frame(session):
    return people(session, 4).coalesce(1)


@pytest.fixture
def table(session, tmp_path):
    """An empty table of public rows, which keeps the option that allows plaintext."""
    session.sql("create table named (ssn string, city string, id bigint) using parquet "
                f"options (plaintext 'true') location '{tmp_path}/named'")
    yield "named"
    session.sql("drop table named")


def fails(message, action):
    with pytest.raises(Exception) as caught:
        action()
    assert message in str(caught.value), str(caught.value)[:2000]


def test_other_ways_to_write_plaintext(session, frame, table, tmp_path):
    """Inserts into tables without marks are in test_lost_marks.py."""
    for write in (lambda: session.sql(f"insert into {table} values ('1', 'Rome', 2)"),
                  lambda: frame.write.options(**PLAINTEXT).parquet(
                      f"{tmp_path}/named", mode="append"),
                  lambda: frame.write.options(**PLAINTEXT).partitionBy("id").parquet(
                      f"{tmp_path}/named", mode="append")):
        fails(REFUSED, write)
    with settings(session, PLAINTEXT):
        fails(REFUSED, lambda: frame.write.parquet(f"{tmp_path}/named", mode="append"))
    assert visible(tmp_path / "named") == []
    frame.drop("ssn").write.options(**PLAINTEXT).parquet(f"{tmp_path}/public")
    native.enable(session, plaintext=True)  # which does not withdraw the policy
    fails(REFUSED, lambda: frame.write.parquet(f"{tmp_path}/named", mode="append"))


@sweep_where(lambda words, **_: words is not REFUSED)
@pytest.mark.parametrize(("encryption", "words"), [
    (EncryptionConfiguration("footer", {"pii": ["city"]}), REFUSED),
    (EncryptionConfiguration("footer", {"money": ["ssn"]}),
     "column ssn would be encrypted with master key 'money'; master key 'pii' is required"),
    (EncryptionConfiguration("pii", uniform_encryption=True),
     "the footer would be encrypted with master key 'pii'"),
    (EncryptionConfiguration("footer", {"pii": ["ssn"]}, encryption_algorithm="AES_GCM_CTR_V1"),
     "use AES_GCM_V1")], ids=["column", "key", "footer", "algorithm"])
def test_options_may_not_weaken(session, frame, tmp_path, keyring, encryption, words):
    """Neither the policy of the session, nor their own."""
    options = native.write_options(encryption=encryption, keys=keyring)
    fails(words, lambda: frame.write.options(**options).parquet(f"{tmp_path}/t", mode="append"))
    session.conf.unset(SETTING)
    options = native.write_options(encryption=encryption, keys=keyring, policy=SSN)
    fails(words, lambda: frame.write.options(**options).parquet(f"{tmp_path}/t", mode="append"))
    assert visible(tmp_path / "t") == []


def test_options_may_add(frame, tmp_path, keyring):
    encryption = EncryptionConfiguration("footer", {"pii": ["ssn"], "money": ["id"]})
    options = native.write_options(encryption=encryption, keys=keyring, policy=SSN)
    frame.write.options(**options).parquet(f"{tmp_path}/t", mode="append")
    native.verify(tmp_path / "t", encryption=encryption, keys=keyring, policy=SSN)


@pytest.mark.sweep
def test_the_log_of_a_delta_table_is_not_a_way_out(session, frame, tmp_path):
    """Files of streams have their final names at once. Only checkpoints are let through."""
    with settings(session, PLAINTEXT):
        frame.drop("ssn").write.parquet(f"{tmp_path}/in")
    stream = session.readStream.schema("city string, id bigint").parquet(f"{tmp_path}/in")
    for folder in ("_delta_log", "_delta_log/_sidecars", "_spark_metadata/t"):
        writer = stream.selectExpr("city as ssn").writeStream.options(
            **PLAINTEXT, checkpointLocation=f"{tmp_path}/checkpoint").trigger(availableNow=True)
        fails(REFUSED, lambda writer=writer, folder=folder: writer.start(
            f"{tmp_path}/t/{folder}").awaitTermination())
        assert not list((tmp_path / "t").rglob("*.parquet"))
    native.enable(session, policy=Policy(default="encrypt"))
    for name, fields, is_allowed in (
            ("00000000000000000010.checkpoint.parquet", "group add { required binary ssn; }", True),
            ("00000000000000000010.checkpoint.parquet", "binary ssn;", False),
            ("00000000000000000010.checkpoint.parquet", "group person { required binary ssn; }",
             False),
            ("part-00000.parquet", "group add { required binary ssn; }", False)):
        assert _is_open(session, f"/t/_delta_log/{name}", fields) is is_allowed, (name, fields)
    assert not _is_open(session, "/t/00000000000000000010.checkpoint.parquet",
                        "group add { required binary ssn; }")


def _is_open(session, path, fields):
    """Whether a file may be written in plaintext, whose path and fields these are."""
    jvm, conf = session.sparkContext._jvm, session._jsparkSession.sessionState().newHadoopConf()
    conf.set("plaintext", "true")
    schema = jvm.org.apache.parquet.schema.MessageTypeParser.parseMessageType(
        f"message m {{ optional {fields} }}")
    context = jvm.org.apache.parquet.hadoop.api.WriteSupport.WriteContext(schema, {})
    factory = native.application._factory(session)
    try:
        assert factory.getFileEncryptionProperties(
            conf, jvm.org.apache.hadoop.fs.Path(path), context) is None
    except Exception as error:
        assert "would be written in plaintext" in str(error), error
        return False
    return True


def test_values_in_the_names_of_folders(session, frame, tmp_path, keyring):
    frame = frame.withColumnRenamed("ssn", "SSN")
    for options in (PLAINTEXT, native.write_options(
            encryption=EncryptionConfiguration("footer", {"money": ["id"]}), keys=keyring)):
        fails("values of column SSN would be part of folder names; it must be encrypted by the "
              "policy's rule 'SSN' in columns", lambda options=options: frame.write.options(
                  **options).partitionBy("SSN").parquet(f"{tmp_path}/t", mode="append"))
    assert visible(tmp_path / "t") == []


@pytest.mark.sweep
def test_rules_for_some_partitions(native_spark, tmp_path):
    """The temporary folders of a committer are not part of the path."""
    frame = people(native_spark, 4).selectExpr("*", "id % 2 as k").coalesce(1)
    native.enable(native_spark, policy=Policy(tables=[TableRules("*/t/k=1", ["ssn"])]))
    try:
        with settings(native_spark, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}):
            for mode in ("append", "overwrite"):
                writer = frame.write.options(**PLAINTEXT).partitionBy("k").mode(mode)
                fails("column ssn would be written in plaintext",
                      lambda writer=writer: writer.parquet(f"{tmp_path}/t"))
                assert visible(tmp_path / "t") == []
        frame.where("k = 0").write.options(**PLAINTEXT).partitionBy("k").parquet(
            f"{tmp_path}/t", mode="append")
    finally:
        native_spark.conf.unset(SETTING)


def test_footers(session, frame, tmp_path, keyring):
    native.enable(session, policy=Policy(encrypted_footer=True))
    words = "the footer would be written in plaintext; the policy requires an encrypted one"
    fails(words, lambda: frame.write.options(**PLAINTEXT).parquet(f"{tmp_path}/t", mode="append"))
    options = native.write_options(keys=keyring, encryption=EncryptionConfiguration(
        "footer", {"pii": ["ssn"]}, plaintext_footer=True))
    fails(words, lambda: frame.write.options(**options).parquet(f"{tmp_path}/t", mode="append"))
    options = native.write_options(keys=keyring, policy=Policy(encrypted_footer=True,
                                                               footer_key="footer"))
    frame.write.options(**options).parquet(f"{tmp_path}/t", mode="append")
    assert set(keys_of(tmp_path / "t", keyring).values()) == {"footer"}


NESTED = ("ssn", "'1' as id", "named_struct('street', ssn, 'City', city) as home",
          "array(named_struct('x', ssn, 'y', city)) as list", "map(ssn, id) as pairs",
          "named_struct('b', city) as `ΟΔΟΣ`", "city as `a[b]`", "city as `ab`")
TABLE = TableRules("*/people", sensitive=["id"], columns={"home": {"plaintext": True}})


@sweep_where(lambda legacy, **_: legacy == "true")
@pytest.mark.parametrize("policy", [
    Policy(columns={"ssn": "pii", "home": "money", "home.street": "pii", "*": "footer"}),
    Policy(columns={"*s*": "pii", "s?n": "pii", "list": {"plaintext": True}}, default="encrypt"),
    Policy(["home.*", "[!h]*"], columns={"pairs": {"plaintext": True}, "s[a-t]n": "money"}),
    Policy(columns={"list.bag.array_element.x": "pii", "list.list.element.y": "money"}),
    Policy(["pairs.map.key"], columns={"pairs": {"bloom_filter": True}, "home.city": "pii"}),
    Policy(tables=[TABLE], columns={"home": "pii", "id": "money"}),
    Policy(tables=[TABLE, TableRules("people*/x*", ["ssn"])], columns={"HOME.*": "pii"}),
    Policy(columns={"ΟΔΟΣ": "pii"}),
    Policy(columns={"a[b]": "pii", "*": "footer", "home.*": {"plaintext": True}})],
    ids=range(9))
@pytest.mark.parametrize("legacy", ["false", "true"])
def test_the_same_columns_as_in_python(native_spark, tmp_path, keyring, policy, legacy):
    """Whatever the rules are, also where older writers name the groups in lists differently."""
    policy = Policy.from_toml("footer_key = 'footer'\n" + policy.to_toml())
    folder = tmp_path / "people"
    with settings(native_spark, {"spark.sql.parquet.writeLegacyFormat": legacy}):
        frame = people(native_spark, 4).coalesce(1).selectExpr(*NESTED)
        frame.write.options(**native.write_options(policy=policy, keys=keyring)).parquet(
            f"file:{folder}")
    [name] = visible(folder)
    here = policy.for_path(str(folder / name))
    with ParquetFile(folder / name, keyring) as file:
        expected = {one.path: (one.key or "footer") if one.encrypted else None
                    for one in here.of_leaves(file.columns)}
    assert keys_of(folder, keyring) == expected
    assert None in expected.values() or len(set(expected.values())) > 1
    native.verify(folder, policy=policy, keys=keyring)


def test_a_policy_that_requires_nothing_does_not_write_plaintext(session, frame, tmp_path, keyring):
    options = native.write_options(policy=SSN, keys=keyring)
    fails("the policy requires no encryption of this file", lambda: frame.drop("ssn").write.options(
        **options).parquet(f"{tmp_path}/t", mode="append"))
    with pytest.raises(PolicyError, match="there is no footer key"):
        native.write_options(policy=Policy(["ssn"]), keys=keyring)
    with pytest.raises(TypeError, match="encryption must be an EncryptionConfiguration"):
        native.write_options(keys=keyring)


def test_verify_finds_what_does_not_meet_the_policy(session, frame, tmp_path, keyring):
    (tmp_path / "policy.toml").write_text(SSN.to_toml())
    options = native.write_options(policy=tmp_path / "policy.toml", bloom_filters=["ssn", "city"],
                                   keys=keyring)
    options |= {"parquet.enable.dictionary": "false"}
    frame.write.options(**options).parquet(f"{tmp_path}/t", mode="append")
    found = native.verify(tmp_path / "t", policy=tmp_path / "policy.toml", keys=keyring,
                          bloom_filters=["ssn", "city"])
    assert (found.files, found.encrypted_filters, found.plain_filters) == (1, 1, 1)
    with pytest.raises(EncryptionMismatchError, match="2 findings") as caught:
        native.verify(tmp_path / "t", policy=Policy(columns={"city": "pii", "ssn": "money"}),
                      keys=keyring)
    assert {one.column for one in caught.value.findings} == {"city", "ssn"}
    session.conf.unset(SETTING)
    frame.write.options(**PLAINTEXT).parquet(f"{tmp_path}/open")
    with pytest.raises(EncryptionMismatchError, match=r"column ssn.*'SSN' in columns"):
        native.verify(tmp_path / "open", policy=SSN, keys=keyring)
    with pytest.warns(PolicyWarning, match=r"open: no column matches rule 'SSSN' in sensitive "
                                           r"\(did you mean 'ssn'\?\) of the policy; correct"):
        native.verify(tmp_path / "open", keys=keyring, policy=Policy(
            ["SSSN"], columns={"city": {"plaintext": True}}, tables=[TableRules("/other", ["a"])]))


TEXT = st.text("ab-.*?[]!^&~|\\$\n ü", max_size=8)


@given(TEXT, TEXT)
@example("[]a]", "]")
@example("[!]a]", "b")
@example("a[b", "a[b")
@example("[a-]", "-")
@example("[b-a]", "a")
def test_patterns_mean_the_same_in_java(pattern, text):
    assert bool(re.fullmatch(java_pattern(pattern), text, re.DOTALL)) == fnmatchcase(text, pattern)
