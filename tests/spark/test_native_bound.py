"""The policy of a session cannot be replaced by options of one write, in any way to name them."""

import re

import pytest

from secure_bloom import EncryptionConfiguration
from secure_bloom.policy import Policy, TableRules
from secure_bloom.spark import native
from secure_bloom.spark.native.policies import policy_option
from tests.spark.helpers import PLAINTEXT, people, settings, uses_spark, visible, warnings_in_log

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
    for name in ("bound", "made"):
        native_spark.sql(f"drop table if exists {name}")


def _save(session, options, path):
    session.table("people").write.options(**options).mode("append").parquet(path)


def _partitions(session, options, path):
    session.table("people").write.options(**options).partitionBy("city").parquet(path)


def _version_2(session, options, path):
    with settings(session, {"spark.sql.sources.useV1SourceList": ""}):
        _save(session, options, path)


def _save_as_table(session, options, path):
    session.table("people").write.options(**options, path=path).saveAsTable("made")


def _write_to(session, options, path):
    session.table("people").writeTo("made").using("parquet").options(
        **options, path=path).create()


def _as_select(session, options, path):
    session.sql(f"create table made using parquet options ({_sql(options)}) location '{path}' "
                "as select * from people")


def _directory(session, options, path):
    session.sql(f"insert overwrite directory '{path}' using parquet options ({_sql(options)}) "
                "select * from people")


def _table(session, path, clauses):
    session.sql("create table bound (ssn string, city string, id bigint) using parquet "
                f"{clauses} location '{path}'")


def _insert(session, options, path):
    _table(session, path, f"options ({_sql(options)})")
    session.sql("insert into bound select * from people")


def _insert_into(session, options, path):
    _table(session, path, f"options ({_sql(options)})")
    session.table("people").write.insertInto("bound")


def _properties(session, options, path):
    _table(session, path, f"options ('plaintext' 'true') tblproperties ({_sql(options)})")
    session.sql("insert overwrite bound select * from people")


def _insert_with(session, options, path):
    _table(session, path, "")
    pairs = ", ".join(f"`{name}` = '{value}'" for name, value in options.items())
    session.sql(f"insert into bound with ({pairs}) select * from people")


def _altered(session, options, path):
    _table(session, path, "")
    pairs = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    session.sql(f"alter table bound set serdeproperties ({pairs})")
    session.sql("insert into bound select * from people")


def _stream(session, options, path, start=lambda writer, path: writer.start(path)):
    with settings(session, PLAINTEXT):
        session.table("people").drop("ssn").write.parquet(f"{path}-in", mode="overwrite")
    stream = session.readStream.schema("city string, id bigint").parquet(f"{path}-in").selectExpr(
        "concat('ssn-', id) as ssn", "city", "id")
    start(stream.writeStream.options(**options, checkpointLocation=f"{path}-checkpoint").trigger(
        availableNow=True), path).awaitTermination()


def _stream_to_table(session, options, path):
    _stream(session, options, path, lambda writer, path: writer.toTable(
        "made", format="parquet", path=path))


def _each_batch(session, options, path):
    _stream(session, {}, path, lambda writer, path: writer.foreachBatch(
        lambda batch, number: batch.write.options(**options).parquet(path)).start())


def _sql(options):
    return ", ".join(f"'{name}' '{value}'" for name, value in options.items())


WAYS = (_save, _partitions, _version_2, _save_as_table, _write_to, _as_select, _directory, _insert,
        _insert_into, _properties, _insert_with, _altered, _stream, _stream_to_table,
        _each_batch)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_no_option_replaces_the_policy_or_its_class(session, tmp_path, way):
    folder = tmp_path / "t"
    for name, value in OPTIONS.items():
        with pytest.raises(Exception, match=REFUSED):
            way(session, PLAINTEXT | {name: value}, str(folder))
        assert not [one for one in visible(folder) if one.endswith("parquet") or "=" in one]
        for table in ("bound", "made"):
            session.sql(f"drop table if exists {table}")
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
        for table in ("bound", "made"):
            session.sql(f"drop table if exists {table}")


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


def test_options_of_a_table_that_streams_ignore(session, tmp_path):
    """Spark passes none of them to the stream, so the policy applies."""
    folder = tmp_path / "t"
    for name, value in OPTIONS.items():
        _table(session, str(folder), f"options ({_sql(PLAINTEXT | {name: value})})")
        with pytest.raises(Exception, match=f"{REFUSED}|must be encrypted by the policy's rule"):
            _stream(session, {}, str(folder), lambda writer, _: writer.toTable("bound"))
        session.sql("drop table bound")
    assert visible(folder) == []


def test_settings_that_replace_the_class(session, tmp_path):
    with settings(session, {FACTORY: OTHER}):
        for way in (_save, _version_2, _stream):
            with pytest.raises(Exception, match=REFUSED):
                way(session, PLAINTEXT, str(tmp_path / "t"))
    conf = session.sparkContext._jsc.hadoopConfiguration()
    ours = conf.get(FACTORY)
    conf.unset(FACTORY)
    try:
        with pytest.raises(Exception, match=REFUSED):
            _save(session, PLAINTEXT, str(tmp_path / "t"))
    finally:
        conf.set(FACTORY, ours)
    assert visible(tmp_path / "t") == []


def test_tasks_know_the_policy_without_the_options(session, tmp_path):
    """Should Spark have a way to write that the optimizer does not see."""
    unseen = {"spark.sql.optimizer.excludedRules": "secure_bloom.spark.BoundOptions"}
    with settings(session, unseen):
        for value in (PUBLIC, ""):
            with pytest.raises(Exception, match="is not the policy of its session"):
                _save(session, PLAINTEXT | {SETTING: value}, str(tmp_path / "t"))
    assert visible(tmp_path / "t") == []


def test_other_classes_are_allowed_for_reads_and_without_a_policy(session, tmp_path, keyring):
    encryption = EncryptionConfiguration("footer", {"pii": ["ssn"]})
    _save(session, native.write_options(encryption=encryption, keys=keyring), str(tmp_path / "t"))
    native.verify(tmp_path / "t", encryption=encryption, keys=keyring, policy=SSN)
    with settings(session, PLAINTEXT):
        session.table("people").drop("ssn").write.parquet(f"{tmp_path}/public")
        read = session.read.options(**{FACTORY: OTHER}).parquet(f"{tmp_path}/public")
        read.write.parquet(f"{tmp_path}/copy")
    assert visible(tmp_path / "copy")
    session.conf.unset(SETTING)
    _save(session, {FACTORY: OTHER}, str(tmp_path / "plain"))
    assert visible(tmp_path / "plain")
