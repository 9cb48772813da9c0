"""Delta Lake on Spark and delta-rs with encrypted files: what works, what is refused, what leaks.

The tables in docs/lakehouse.md name these tests.
"""

import os
import re
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import secure_bloom
from secure_bloom import EncryptionConfiguration, ParquetFile, Policy, audit
from secure_bloom.errors import UnsupportedError
from secure_bloom.keys import Keyring
from secure_bloom.spark import native
from tests.doc_examples import run_examples
from tests.docs.pages import ROOT, section
from tests.spark.helpers import people, settings

deltalake = pytest.importorskip("deltalake")
DELTA = section("lakehouse.md", "Delta Lake")
ENCRYPTION = EncryptionConfiguration("footer", {"pii": ["ssn"]})
NO_STATISTICS = {"delta.dataSkippingStatsColumns": "id"}
COLUMNS = "ssn string, city string, id bigint"


def new_session(spark):
    """Return a session without the engine, in which Delta starts few tasks for its log."""
    session = spark.newSession()
    for name, value in {"spark.sql.shuffle.partitions": "2",
                        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
                        "spark.databricks.delta.snapshotPartitions": "1"}.items():
        session.conf.set(name, value)
    return session


@pytest.fixture(scope="module")
def session(spark):
    """A session in which ``native.enable`` was called."""
    session = new_session(spark)
    session.conf.set("spark.databricks.delta.checkpoint.exceptionThrowing.enabled", "true")
    native.enable(session)
    yield session
    spark.sparkContext._jsc.hadoopConfiguration().unset("parquet.crypto.factory.class")


@pytest.fixture
def keyring(tmp_path):
    keyring = Keyring.create(tmp_path / "keyring.json")
    for name in ("footer", "pii"):
        keyring.add(name)
    return keyring


@pytest.fixture
def policy(keyring):
    return {"encryption": ENCRYPTION, "bloom_filters": {"ssn": True}, "keys": keyring}


@pytest.fixture
def make(session, tmp_path):
    """Makes an empty table with some properties, and returns its name and folder."""
    def make(name="people", clause="", **properties):
        folder = tmp_path / name
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        session.sql(f"create table delta.`{folder}` ({COLUMNS}) using delta {clause} "
                    + (f"tblproperties ({listed})" if listed else ""))
        return f"delta.`{folder}`", folder
    return make


@contextmanager
def keys_of(session, folder, keyring):
    """Set keys to read a table for the session; Delta drops the options of a read."""
    with settings(session, native.read_options(str(folder), keyring)):
        yield


def append(frame, folder, **options):
    frame.coalesce(1).write.format("delta").options(**options).mode("append").save(str(folder))


def parquet_files(folder, below=""):
    return sorted((folder / below).rglob("*.parquet"))


def encryption_of(path, keyring):
    """Return how each column of a file is encrypted; nothing of a plaintext file."""
    with open(path, "rb") as file:
        if file.read(4) == b"PAR1":
            return {}
    with ParquetFile(path, keyring) as file:
        return {chunk.column.path: chunk.encryption for chunk in file.footer.column_chunks()}


def is_encrypted(path, keyring):
    return encryption_of(path, keyring).get("ssn") == "column key"


# --- writing -------------------------------------------------------------------------------------

def test_options_of_a_write_do_not_reach_deltas_writer(session, policy, make):
    _, folder = make(**NO_STATISTICS)
    for options in (native.write_options(**policy), {"plaintext": "true"}):
        with pytest.raises(Exception, match="no encryption options reached Spark's writer"):
            append(people(session), folder, **options)
    assert not parquet_files(folder)


@pytest.mark.parametrize("way", ["session", "properties"])
def test_delta_encrypts_with_settings_of_the_session_or_the_table(session, policy, make, way):
    options = native.write_options(**policy)
    table, folder = make(way, **NO_STATISTICS, **(options if way == "properties" else {}))
    other = {"secure_bloom.native.write": "of another application"}
    with settings(session, options if way == "session" else other):  # properties win
        append(people(session), folder)
    seen = native.verify(folder, **policy)
    assert (seen.files, seen.encrypted_filters) == (1, 1)
    assert audit(folder, policy["keys"]).ok
    with keys_of(session, folder, policy["keys"]):
        found = session.read.format("delta").load(str(folder)).where("ssn = 'ssn-77'")
        assert [row.id for row in found.collect()] == [77]
    if way == "properties":
        [name] = other
        session.sql(f"alter table {table} set tblproperties ('{name}' = '{other[name]}')")
        with settings(session, native.write_options(**policy)), \
                pytest.raises(Exception, match="created for another Spark"):
            append(people(session), folder)


def test_filters_skip_row_groups(session, policy, make):
    _, folder = make(**NO_STATISTICS, **{"parquet.block.row.count.limit": "50"})
    with settings(session, native.write_options(**policy)):
        append(people(session, 200).orderBy("city"), folder)
    read = {}
    for filters in ("true", "false"):
        with keys_of(session, folder, policy["keys"]), settings(session, {
                "parquet.filter.bloom.enabled": filters,
                "parquet.filter.dictionary.enabled": "false"}):
            found = session.read.format("delta").load(str(folder)).where("ssn = 'ssn-77'")
            assert len(found.collect()) == 1
            [scan] = [leaf for leaf in _leaves(found) if leaf.metrics().contains("numOutputRows")]
            read[filters] = scan.metrics().apply("numOutputRows").value()
    assert read["true"] < read["false"] == 200


def _leaves(frame):
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    return [leaves.apply(index) for index in range(leaves.size())]


@pytest.mark.parametrize("properties", [
    {}, {"delta.dataSkippingNumIndexedCols": "1"}, {"delta.dataSkippingNumIndexedCols": "-1"},
    {"delta.dataSkippingStatsColumns": "id, `SSN`", "delta.dataSkippingNumIndexedCols": "0"}],
    ids=str)
def test_statistics_in_the_log_are_refused_at_the_write(session, policy, make, properties):
    _, folder = make(**properties)
    with settings(session, native.write_options(**policy)), \
            pytest.raises(Exception, match="column ssn is encrypted, but the log of its Delta "):
        append(people(session), folder)


@pytest.mark.parametrize(("columns", "properties"), [
    (", ".join(f"m{n} map<string, int>" for n in range(20)) + ", ssn string", {}),  # 41 leaves
    ("`g``h` string, ssn string", {"delta.dataSkippingStatsColumns": "`g``h`"})],
    ids=["maps", "backtick"])
def test_statistics_are_refused_as_delta_counts_and_names_columns(session, keyring, tmp_path,
                                                                  columns, properties):
    said = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    table = f"delta.`{tmp_path}/t`"
    session.sql(f"create table {table} ({columns}) using delta"
                + (f" tblproperties ({said})" if said else ""))
    encryption = EncryptionConfiguration("footer", {"pii": ["g`h" if "`" in columns else "ssn"]})
    with settings(session, native.write_options(encryption=encryption, keys=keyring)), \
            pytest.raises(Exception, match="would repeat its minimum"):
        session.sql(f"insert into {table} by name select 'a' as "
                    + ("`g``h`" if "`" in columns else "ssn"))


@pytest.mark.parametrize("properties", [
    {"delta.dataSkippingNumIndexedCols": "0"}, {"delta.dataSkippingStatsColumns": "id"}], ids=str)
def test_without_statistics_of_the_column_the_log_tells_nothing(session, policy, make, properties):
    _, folder = make("partitioned", "partitioned by (city)", **properties)
    with settings(session, native.write_options(**policy)):
        append(people(session), folder)
    result = audit(folder, policy["keys"])
    assert result.ok and result.complete
    assert not any(b"ssn-" in path.read_bytes()
                   for path in (folder / "_delta_log").rglob("*") if path.is_file())


def test_column_mapping_is_refused_with_a_policy(session, policy, make):
    _, folder = make(**NO_STATISTICS, **{"delta.columnMapping.mode": "name"})
    rules = Policy(["ssn"], footer_key="footer", columns={"ssn": "pii"})
    for options, message in (
            (native.write_options(policy=rules, keys=policy["keys"]), "columnMapping"),
            (native.write_options(policy=rules, **policy), "not in the file")):
        with settings(session, options), pytest.raises(Exception, match=message):
            append(people(session), folder)


def test_marked_columns_are_encrypted_with_their_key_or_not_written(spark, session, policy, make,
                                                                    tmp_path):
    """``spark`` is the session in which ``register`` was called."""
    for other, message in ((spark, "column ssn is sensitive"), (session, "master key 'other'")):
        marked = people(other).withMetadata("ssn", {"secure_bloom.key": "other"})
        with settings(other, native.write_options(**policy)), \
                settings(other, {f"spark.databricks.delta.properties.defaults.{name[6:]}": value
                                 for name, value in NO_STATISTICS.items()}), \
                pytest.raises(Exception, match=message):
            append(marked, tmp_path / "new")
    assert not parquet_files(tmp_path / "new")
    _, folder = make(**NO_STATISTICS)
    with settings(session, native.write_options(**policy)):
        append(people(session).withMetadata("ssn", {"secure_bloom.key": "pii"}), folder)
    assert all(is_encrypted(path, policy["keys"]) for path in parquet_files(folder))


def test_a_session_without_native_appends_plaintext_which_audit_finds(spark, session, policy, make):
    _, folder = make(**NO_STATISTICS)
    with settings(session, native.write_options(**policy)):
        append(people(session), folder)
    append(people(new_session(spark)), folder)
    [finding] = audit(folder, policy["keys"]).findings
    assert (finding.kind, finding.column) == ("unencrypted", "ssn")
    assert finding.message.endswith("a live file")


# --- the life of a table -------------------------------------------------------------------------

def test_every_command_keeps_the_encryption(session, policy, make):
    keyring = policy["keys"]
    table, folder = make(**NO_STATISTICS, **{
        "delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true",
        "delta.checkpointInterval": "100"})
    with settings(session, native.write_options(**policy)):
        append(people(session, 100), folder)                                            # 1
        with keys_of(session, folder, keyring):
            session.sql(f"delete from {table} where id = 7")                            # 2
            assert list(folder.rglob("deletion_vector_*.bin"))
            with pytest.raises(UnsupportedError, match="deletionVectors"):
                secure_bloom.dataset(deltalake.DeltaTable(folder), keyring)
            session.sql(f"update {table} set city = 'Oslo' where id = 8")               # 3
            people(session, 3, 98).createOrReplaceTempView("arrivals")
            session.sql(f"merge into {table} t using arrivals a on t.ssn = a.ssn "
                        "when matched then update set city = 'Rome' "
                        "when not matched then insert *")                               # 4
            session.sql(f"optimize {table} zorder by (id)")                             # 5
            rows = session.table(table)
            assert rows.count() == 100 and rows.where("ssn = 'ssn-7'").count() == 0
            assert rows.where("ssn in ('ssn-8', 'ssn-98', 'ssn-100')").select("city").collect()
            old = session.read.format("delta").option("versionAsOf", 1).load(str(folder))
            assert old.count() == 100 and old.where("ssn = 'ssn-7'").count() == 1
        changes = parquet_files(folder, "_change_data")
        assert changes
        files = [path for path in parquet_files(folder) if "_delta_log" not in path.parts]
        assert len(files) > 4 and all(is_encrypted(path, keyring) for path in files)
        with settings(session, native.read_options(
                [str(path) for path in files], keyring)):
            feed = session.read.format("delta").option("readChangeFeed", "true") \
                .option("startingVersion", 2).load(str(folder))
            assert {row[0] for row in feed.select("_change_type").distinct().collect()} == {
                "delete", "update_preimage", "update_postimage", "insert"}
    result = audit(folder, keyring)
    assert result.ok and result.complete and len(result.files) == len(files)
    with settings(session, {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}):
        session.sql(f"vacuum {table} retain 0 hours")
    assert len([path for path in parquet_files(folder) if is_encrypted(path, keyring)]) == 1


@pytest.mark.parametrize("version", ["classic", "v2"])
def test_checkpoints_are_plaintext_and_hold_no_statistics_of_the_column(session, policy, make,
                                                                        version):
    _, folder = make(**NO_STATISTICS, **{
        "delta.checkpointInterval": "2", "delta.checkpoint.writeStatsAsStruct": "true",
        "delta.checkpointPolicy": version})
    with settings(session, native.write_options(**policy)):
        for start in (0, 100):
            append(people(session, 100, start), folder)
    checkpoint = parquet_files(folder, "_delta_log")[-1]  # or what v2 has beside it
    add = pq.read_table(checkpoint)["add"].combine_chunks()
    assert "ssn" not in str(add.type) and b"ssn-" not in checkpoint.read_bytes()
    assert audit(folder, policy["keys"]).ok
    assert len(deltalake.DeltaTable(folder).file_uris()) == 2


def test_statistics_from_before_are_found_in_the_whole_log(session, policy, make):
    """A table that was written in plaintext, and is rewritten with encryption."""
    table, folder = make()
    with settings(session, {"plaintext": "true"}):
        append(people(session), folder)
    with settings(session, native.write_options(**policy)):
        session.sql(f"alter table {table} set tblproperties ("
                    "'delta.dataSkippingStatsColumns' = 'id', 'delta.checkpointInterval' = '1')")
        session.sql(f"insert overwrite {table} select * from {table}")
    [finding, plain] = audit(folder, policy["keys"]).findings
    assert plain.kind == "unencrypted" and "an older version" in plain.message
    [evidence] = finding.evidence
    assert finding.column == "ssn" and all(name in evidence for name in (
        f"{1:020}.json", f"{1:020}.crc", f"{2:020}.checkpoint.parquet"))


def test_conditions_of_commands_put_values_into_the_log_and_merge_does_not(session, policy, make):
    table, folder = make(**NO_STATISTICS, **{"delta.enableDeletionVectors": "true"})
    with settings(session, native.write_options(**policy)):
        append(people(session), folder)
        with keys_of(session, folder, policy["keys"]):
            people(session, 2, 5).select("ssn").createOrReplaceTempView("erased")
            session.sql(f"merge into {table} t using erased e on t.ssn = e.ssn "
                        "when matched then delete")
            session.sql(f"reorg table {table} apply (purge)")
            assert session.table(table).count() == 98
            assert audit(folder, policy["keys"]).ok
            session.sql(f"delete from {table} where ssn = 'ssn-8'")
    [finding] = audit(folder, policy["keys"]).findings
    assert finding.column == "ssn" and "compared the column" in finding.message
    assert "ssn-8" not in finding.message + str(finding.evidence)


def test_convert_to_delta_puts_statistics_into_the_log(session, policy, tmp_path):
    folder = tmp_path / "converted"
    options = native.write_options(**policy)
    people(session).coalesce(1).write.options(**options).parquet(str(folder))
    with settings(session, options), keys_of(session, folder, policy["keys"]):
        session.sql(f"convert to delta parquet.`{folder}`")
    [finding] = audit(folder, policy["keys"]).findings
    assert (finding.kind, finding.column) == ("log", "ssn")
    assert "minimum and maximum" in finding.message
    folder = tmp_path / "without"
    people(session).coalesce(1).write.options(**options).parquet(str(folder))
    with settings(session, options), keys_of(session, folder, policy["keys"]):
        session.sql(f"convert to delta parquet.`{folder}` no statistics")
    assert audit(folder, policy["keys"]).ok


# --- without keys --------------------------------------------------------------------------------

def test_without_keys_nothing_is_read_or_rewritten(spark, session, policy, make):
    table, folder = make(**NO_STATISTICS)
    with settings(session, native.write_options(**policy)):
        for start in (0, 100):
            append(people(session, 100, start), folder)
    before = sorted(folder.rglob("*.json"))
    commands = ["select count(ssn) from {0}", "optimize {0}", "delete from {0} where id = 7",
                "update {0} set city = 'x' where id = 7"]
    for other in (session, new_session(spark)):
        for command in commands:
            with pytest.raises(Exception, match=r"FAILED_READ_FILE|no encryption options"):
                other.sql(command.format(table)).collect()
    assert sorted(folder.rglob("*.json")) == before


def test_keys_to_read_in_a_session_without_enable_let_commands_write_plaintext(
        spark, session, policy, make):
    table, folder = make(**NO_STATISTICS)
    with settings(session, native.write_options(**policy)):
        for start in (0, 100):
            append(people(session, 100, start), folder)
    options = native.read_options(str(folder), policy["keys"])
    with settings(session, options), pytest.raises(Exception, match="no encryption options"):
        session.sql(f"optimize {table}")
    other = new_session(spark)
    with settings(other, options):
        other.sql(f"optimize {table}")
    [finding] = audit(folder, policy["keys"]).findings
    assert finding.kind == "unencrypted" and finding.message.endswith("a live file")


# --- delta-rs ------------------------------------------------------------------------------------

def test_files_of_secure_bloom_as_a_delta_table(session, tmp_path):
    run_examples(DELTA.partition("### Find what leaks")[0], tmp_path)  # delta-rs lists the files
    folder, keyring = tmp_path / "people", Keyring(tmp_path / "keyring.json")
    table = deltalake.DeltaTable(folder)
    assert len(table.file_uris()) == len(parquet_files(folder)) > 0
    secure_bloom.index.build(folder, "ssn", keys=keyring)
    session.sql(f"vacuum delta.`{folder}`")  # spares the index
    indexed = secure_bloom.dataset(table, keyring, index="require")
    assert indexed.explain([("ssn", "==", "ssn-0077")]).row_groups.read == 1
    assert audit(folder, keyring).ok
    with settings(session, native.read_options(str(folder), keyring)):
        found = session.read.format("delta").load(str(folder)).where("ssn = 'ssn-0077'")
        assert [row.city for row in found.collect()] == ["city 0"]


def test_the_program_for_spark_runs_as_documented(session, tmp_path, capsys, keyring, monkeypatch):
    monkeypatch.chdir(tmp_path)
    [program] = re.findall(r"```py\n(.*?)```", DELTA, re.DOTALL)
    before = dict(session.conf.getAll)
    try:
        exec(program, {"spark": session})
        files = session.table("people").inputFiles()
        assert is_encrypted(files[0].removeprefix("file:"), keyring)
        assert audit(os.path.dirname(files[0]).removeprefix("file:"), keyring).ok
    finally:
        session.sql("drop table if exists people")
        for name in session.conf.getAll.keys() - before.keys():
            session.conf.unset(name)
    assert capsys.readouterr().out == "1\n"


def test_the_report_on_the_log_can_be_reproduced(spark, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report = (ROOT / "docs" / "peers" / "delta-log.md").read_text()
    [program] = re.findall(r"```python\n(.*?)```", report, re.DOTALL)
    exec(program, {"spark": new_session(spark)})
    assert f"```text\n{capsys.readouterr().out}```" in report


def test_delta_rs_appends_plaintext_and_reads_nothing_encrypted(session, policy, make):
    _, folder = make(**NO_STATISTICS)
    with settings(session, native.write_options(**policy)):
        append(people(session), folder)
    table = deltalake.DeltaTable(folder)
    for command in (lambda: table.to_pyarrow_table(), lambda: table.delete("id = 7"),
                    lambda: table.update(updates={"city": "'x'"}, predicate="id = 7"),
                    lambda: table.optimize.z_order(["id"])):
        with pytest.raises(Exception, match=r"(?i)encrypted"):
            command()
    arrivals = pa.table({"ssn": ["ssn-9"], "city": ["Oslo"], "id": [9]})
    deltalake.write_deltalake(folder, arrivals, mode="append")
    found = audit(folder, policy["keys"]).findings
    assert {(one.kind, one.column) for one in found} == {("unencrypted", "ssn")}  # not in the log
    deltalake.write_deltalake(folder.parent / "other", arrivals)
    assert {one.kind for one in audit(folder.parent / "other", policy=Policy(["ssn"])).findings} \
        == {"unencrypted", "log"}


# --- operations on files -------------------------------------------------------------------------

def test_operations_on_files_are_refused_for_the_table_its_partitions_and_files(
        session, policy, make):
    _, folder = make("partitioned", "partitioned by (city)", **NO_STATISTICS)
    with settings(session, native.write_options(**policy)):
        append(people(session, 20), folder)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    file = parquet_files(folder)[0]
    keyring = policy["keys"]
    for place in (folder, file.parent, file):
        for operation in (
                lambda place: secure_bloom.attach(place, {"id": True}, keyring),
                lambda place: secure_bloom.seal(place, keyring),
                lambda place: secure_bloom.strip(place, keys=keyring),
                lambda place: secure_bloom.erase(place, "ssn", ["ssn-1"], keyring,
                                                 max_share=1)):
            with pytest.raises(UnsupportedError, match="Delta Lake table"):
                operation(place)
    for place in (folder, file.parent):
        for operation in (
                lambda place: secure_bloom.write_dataset(pa.table({"ssn": ["a"]}), place,
                                                         mode="append"),
                lambda place: secure_bloom.dataset(place, keyring),
                lambda place: secure_bloom.read_table(place, keyring),
                lambda place: secure_bloom.find(place, "ssn", ["ssn-1"], keyring)):
            with pytest.raises(UnsupportedError, match="Delta Lake table"):
                operation(place)
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*")
                      if path.is_file()}
