"""The policy of a session cannot be replaced by options of one write, in any way to name them."""

import re

import pytest

from secure_bloom import EncryptionConfiguration
from secure_bloom.policy import Policy, TableRules
from secure_bloom.spark import native
from secure_bloom.spark.native.policies import policy_option
from tests.spark import ways
from tests.spark.helpers import PLAINTEXT, people, settings, uses_spark, visible, warnings_in_log
from tests.tiers import sweep_where

pytestmark = uses_spark

SETTING = "spark.secure_bloom.native.policy"
FACTORY = "parquet.crypto.factory.class"
OTHER = "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory"
LOGGER = "secure_bloom.spark.native"
SSN = Policy(footer_key="footer", columns={"ssn": "pii"})
PUBLIC = policy_option(Policy())
REFUSED = "policy of native.enable, which a write cannot replace"
OPTIONS = {FACTORY: OTHER, "Parquet.Crypto.FACTORY.Class": OTHER, SETTING: PUBLIC,
           "Secure_Bloom.native.Policy": PUBLIC}


@pytest.fixture
def session(native_spark):
    native.enable(native_spark, policy=SSN)
    people(native_spark, 4).createOrReplaceTempView("people")
    yield native_spark
    native_spark.conf.unset(SETTING)
    ways.drop_tables(native_spark)


@sweep_where(lambda way: way not in (ways.insert, ways.stream))
@pytest.mark.parametrize("way", ways.WAYS, ids=lambda way: way.__name__)
def test_no_option_replaces_the_policy_or_its_class(session, tmp_path, way):
    folder = tmp_path / "t"
    for name, value in OPTIONS.items():
        with pytest.raises(Exception, match=REFUSED):
            way(session, PLAINTEXT | {name: value}, str(folder))
        assert not [one for one in visible(folder) if one.endswith("parquet") or "=" in one]
        ways.drop_tables(session)
    # The same writes are allowed where they meet the policy, with a warning if it is misspelt.
    slip = Policy(columns={"sssn": "pii", "c?ty": {"plaintext": True}, "zzz*": "pii"},
                  tables=[TableRules("*/public", ["ID"]), TableRules("*/elsewhere", ["name"])])
    for policy, expected in (
            (slip, ["no column matches rule 'sssn' in columns (did you mean 'ssn'?), "
                    "rule 'zzz*' in columns of the policy; correct the policy"]),
            (Policy(columns={"*": {"plaintext": True}}), [])):
        native.enable(session, policy=policy)
        with warnings_in_log(session, LOGGER) as log:
            way(session, PLAINTEXT, str(tmp_path / f"open{len(expected)}"))
        assert re.findall(r"/open\d: (no .* correct the policy)", log()) == expected
        assert visible(tmp_path / f"open{len(expected)}")
        ways.drop_tables(session)


def test_a_misspelt_rule_of_the_options_of_a_write(session, tmp_path, keyring):
    """A part of a list has another name in other files, so its rule is not misspelt."""
    session.conf.unset(SETTING)
    policy = Policy(footer_key="footer", columns={
        "ssn": "pii", "Citty": "pii", "tags.bag.array_element.x": "pii",
        "tags.list.element.z": "pii", "home": {"plaintext": True},
        "home.streets": "pii"})
    frame = session.table("people").selectExpr(
        "*", "array(named_struct('x', ssn, 'y', 1)) as tags", "named_struct('street', city) home")
    options = native.write_options(policy=policy, keys=keyring)
    with warnings_in_log(session, LOGGER) as log:
        for _ in range(2):  # warns once
            frame.write.options(**options).mode("append").parquet(f"{tmp_path}/t")
        frame.write.options(**PLAINTEXT).orc(f"{tmp_path}/orc")
    assert re.findall(r"\S+: no column .*", log()) == [
        f"file:{tmp_path}/t: no column matches rule 'home.streets' in columns (did you mean "
        "'home.street'?), rule 'Citty' in columns (did you mean 'city'?) of the policy; correct "
        "the policy if a name is misspelt"]


@pytest.mark.sweep
def test_options_of_a_table_that_streams_ignore(session, tmp_path):
    """Spark passes none of them to the stream, so the policy applies."""
    folder = tmp_path / "t"
    for name, value in OPTIONS.items():
        ways._table(session, str(folder), f"options ({ways._sql(PLAINTEXT | {name: value})})")
        with pytest.raises(Exception, match=f"{REFUSED}|must be encrypted by the policy's rule"):
            ways.stream(session, {}, str(folder), lambda writer, _: writer.toTable("bound"))
        session.sql("drop table bound")
    assert visible(folder) == []


def test_settings_that_replace_the_class(session, tmp_path):
    with settings(session, {FACTORY: OTHER}):
        for way in (ways.save, ways.version_2, ways.stream):
            with pytest.raises(Exception, match=REFUSED):
                way(session, PLAINTEXT, str(tmp_path / "t"))
    conf = session.sparkContext._jsc.hadoopConfiguration()
    ours = conf.get(FACTORY)
    conf.unset(FACTORY)
    try:
        with pytest.raises(Exception, match=REFUSED):
            ways.save(session, PLAINTEXT, str(tmp_path / "t"))
    finally:
        conf.set(FACTORY, ours)
    assert visible(tmp_path / "t") == []


def test_tasks_know_the_policy_without_the_options(session, tmp_path):
    """Should Spark have a way to write that the optimizer does not see."""
    unseen = {"spark.sql.optimizer.excludedRules": "secure_bloom.spark.BoundOptions"}
    with settings(session, unseen):
        for value in (PUBLIC, ""):
            with pytest.raises(Exception, match="is not the policy of its session"):
                ways.save(session, PLAINTEXT | {SETTING: value}, str(tmp_path / "t"))
    assert visible(tmp_path / "t") == []


@pytest.mark.sweep
def test_other_classes_are_allowed_for_reads_and_without_a_policy(session, tmp_path, keyring):
    encryption = EncryptionConfiguration("footer", {"pii": ["ssn"]})
    options = native.write_options(encryption=encryption, keys=keyring)
    ways.save(session, options, str(tmp_path / "t"))
    native.verify(tmp_path / "t", encryption=encryption, keys=keyring, policy=SSN)
    with settings(session, PLAINTEXT):
        session.table("people").drop("ssn").write.parquet(f"{tmp_path}/public")
        read = session.read.options(**{FACTORY: OTHER}).parquet(f"{tmp_path}/public")
        read.write.parquet(f"{tmp_path}/copy")
    assert visible(tmp_path / "copy")
    session.conf.unset(SETTING)
    ways.save(session, {FACTORY: OTHER}, str(tmp_path / "plain"))
    assert visible(tmp_path / "plain")
