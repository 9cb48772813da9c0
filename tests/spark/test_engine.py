"""``engine`` of ``secure_bloom.spark.write`` and ``read``: what writes and reads the files."""

import logging
import os
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyarrow.fs import LocalFileSystem
from pyspark.sql import functions as F

import secure_bloom.spark
from secure_bloom import EncryptionConfiguration, ParquetFile, read_table, write_table
from secure_bloom.errors import EncryptionMismatchError, SecureBloomError, UnsupportedError
from secure_bloom.policy import Policy
from secure_bloom.spark import engine as engines
from secure_bloom.spark import native_job
from secure_bloom.storage.commit import Job
from secure_bloom.storage.job_folder import JobFolder
from tests.spark.helpers import keys_of, people, settings, staged, uses_spark, visible

pytestmark = uses_spark

BY_COLUMN = EncryptionConfiguration("footer", {"pii": ["ssn"]})
FILTERS = ["id", "ssn"]


@pytest.fixture(scope="module")
def session(native_spark):
    secure_bloom.spark.register(native_spark)
    return native_spark


def write(frame, folder, keyring, **arguments):
    return secure_bloom.spark.write(frame, folder, keys=keyring,
                                    **{"encryption": BY_COLUMN, **arguments})


def all_files(folder):
    return sorted(os.path.relpath(os.path.join(path, name), folder)
                  for path, _, names in os.walk(folder) for name in names)


def test_sparks_writer_makes_files_of_an_ordinary_commit(session, tmp_path, keyring, caplog):
    frame, folder = people(session), tmp_path / "t"
    caplog.set_level(logging.INFO, logger="secure_bloom.spark")
    chosen = write(frame, folder, keyring, engine="native", bloom_filters=FILTERS)
    assert (chosen.name, chosen.reason) == ("native", "as requested")
    assert "written by engine native: as requested" in caplog.text
    assert keys_of(folder, keyring) == {"ssn": "pii", "city": None, "id": None}
    assert staged(folder) == [] or staged(folder) == ["generation"]
    assert {name for name in all_files(folder) if name.endswith((".crc", "_SUCCESS"))} \
        == {"_SUCCESS"}
    summary = secure_bloom.spark.last_commit(folder)
    assert (summary.files, summary.rows) == (2, 100)
    files = [ParquetFile(folder / name, keyring) for name in visible(folder)]
    assert {str(file.footer.created_by)[:10] for file in files} == {"parquet-mr"}
    filters = [one for file in files for one in file.bloom_filters]
    assert summary.encrypted_filters == sum(one.column == "ssn" for one in filters) > 0
    assert summary.plain_filters == sum(one.column == "id" for one in filters) > 0
    assert summary.bytes == sum((folder / name).stat().st_size for name in visible(folder))
    assert sorted(secure_bloom.spark.read(session, folder, keys=keyring).collect()) \
        == sorted(frame.collect())
    assert read_table(folder, keyring, filters=[("ssn", "=", "ssn-7")]).num_rows == 1


def test_files_of_sparks_writer_are_made_durable_together(session, tmp_path, keyring, monkeypatch):
    calls = []
    together = JobFolder.sync_written

    def noted(self, names):
        names = list(names)
        calls.append((names, visible(tmp_path / "t")))
        together(self, names)

    monkeypatch.setattr(JobFolder, "sync_written", noted)
    write(people(session), tmp_path / "t", keyring, engine="native")
    assert calls == [(visible(tmp_path / "t"), [])] and len(calls[0][0]) == 2


def test_both_engines_write_into_one_folder(session, tmp_path, keyring):
    frame, folder = people(session, 20).selectExpr("*", "id % 2 as k"), tmp_path / "t"
    for name in ("native", "python"):
        write(frame, folder, keyring, engine=name, partition_by="k", mode="append")
    assert visible(folder) == ["k=0", "k=1"]
    back = secure_bloom.spark.read(session, folder, keys=keyring)
    assert back.count() == 40 and back.schema["ssn"].metadata == {"secure_bloom.key": "pii"}
    assert read_table(folder, keyring).num_rows == 40
    write(frame.where("k = 0"), folder, keyring, engine="native", partition_by="k",
          mode="overwrite")
    assert secure_bloom.spark.read(session, folder, keys=keyring).count() == 10


def test_a_job_of_sparks_writer_that_fails_changes_nothing(session, tmp_path, keyring):
    frame, folder = people(session, 10), tmp_path / "t"
    write(frame, folder, keyring, engine="native")
    before = all_files(folder)
    failing = frame.withColumn("city", F.expr("if(id = 9, raise_error('stop'), city)"))
    with pytest.raises(Exception, match="stop"):
        write(failing, folder, keyring, engine="native", mode="overwrite")
    assert [name for name in all_files(folder) if "generation" not in name] \
        == [name for name in before if "generation" not in name]
    with pytest.raises(SecureBloomError, match="the folder already has files"):
        write(frame, folder, keyring, engine="native")


@pytest.mark.parametrize("engine", ["native", "python"])
def test_a_value_that_would_be_read_as_null_fails_the_job(session, tmp_path, keyring, engine):
    frame, folder = people(session, 10).withColumnRenamed("city", "a`b"), tmp_path / "t"
    write(frame, folder, keyring, engine=engine, partition_by="a`b")
    back = secure_bloom.spark.read(session, folder, keys=keyring)
    assert {row["id"]: row.asDict() for row in back.collect()} \
        == {row["id"]: row.asDict() for row in frame.collect()}
    failing = frame.withColumn("a`b", F.when(F.col("id") == 9, "__HIVE_DEFAULT_PARTITION__"))
    with pytest.raises(Exception, match="__HIVE_DEFAULT_PARTITION__ means null in a folder name"):
        write(failing, folder, keyring, engine=engine, partition_by="a`b", mode="overwrite")
    assert secure_bloom.spark.read(session, folder, keys=keyring).count() == 10


def test_files_that_spark_did_not_encrypt_are_never_published(session, tmp_path, keyring,
                                                              monkeypatch):
    monkeypatch.setattr(native_job.native, "write_options",
                        lambda **_: {"plaintext": "true"})
    with pytest.raises(EncryptionMismatchError, match="nothing in this file is encrypted"):
        write(people(session, 10), tmp_path / "t", keyring, engine="native")
    assert visible(tmp_path / "t") == [] and staged(tmp_path / "t") in ([], ["generation"])


def test_rows_of_no_partition_leave_one_file_with_the_schema(session, tmp_path, keyring):
    write(people(session, 0), tmp_path / "t", keyring, engine="native")
    assert secure_bloom.spark.read(session, tmp_path / "t", keys=keyring).count() == 0
    assert len(visible(tmp_path / "t")) == 1


def test_marks_and_a_policy_are_kept(session, tmp_path, keyring):
    policy = Policy(footer_key="footer", columns={"ssn": {"key": "pii", "bloom_filter": True}})
    frame = people(session, 10).withMetadata("city", {"secure_bloom.key": "money"})
    secure_bloom.spark.write(frame, tmp_path / "t", keys=keyring, policy=policy, engine="native",
                             compression="zstd")
    assert keys_of(tmp_path / "t", keyring) == {"ssn": "pii", "city": "money", "id": None}
    with ParquetFile(tmp_path / "t" / visible(tmp_path / "t")[0], keyring) as file:
        assert {one.column for one in file.bloom_filters} == {"ssn"}


def test_auto_takes_sparks_writer_if_that_keeps_everything(session, tmp_path, keyring):
    chosen = write(people(session, 10), tmp_path / "t", keyring)
    assert chosen.name == "native" and "native.enable was called" in chosen.reason
    assert "native: native.enable was called" in repr(chosen)


@pytest.mark.parametrize(("arguments", "reason"), [
    ({"bloom_filters": ["ssn"]}, "column ssn is to have a Bloom filter"),
    ({"index_columns": "ssn"}, "option index_columns"),
    ({"row_group_size": 5}, "option row_group_size"),
    ({"encryption": None, "plaintext": True}, "option plaintext"),
    ({"encryption": EncryptionConfiguration("footer", {"pii": ["ssn"]}, double_wrapping=False)},
     "single wrapping"),
    ({"engine": "python"}, "as requested")])
def test_auto_takes_python_tasks_for_what_only_they_can_do(session, tmp_path, keyring, arguments,
                                                           reason):
    chosen = write(people(session, 10), tmp_path / "t", keyring, **arguments)
    assert chosen.name == "python" and reason in chosen.reason
    assert secure_bloom.spark.read(session, tmp_path / "t", keys=keyring).count() == 10
    if "engine" in arguments or "bloom_filters" in arguments:
        return
    with pytest.raises(UnsupportedError, match=f'engine="native" is not possible: .*{reason}'):
        write(people(session, 10), tmp_path / "u", keyring, engine="native", **arguments)
    assert not (tmp_path / "u").exists()


def test_auto_keeps_types_and_values(session, tmp_path, keyring):
    frame = people(session, 4).withColumn("at", F.expr("timestamp '2024-01-01 00:00:00'"))
    chosen = write(frame, tmp_path / "t", keyring)
    assert chosen.name == "python" and "INT96" in chosen.reason
    with settings(session, {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}):
        assert write(frame, tmp_path / "u", keyring).name == "native"
    with settings(session, {"spark.sql.parquet.writeLegacyFormat": "true"}):
        chosen = write(people(session, 4), tmp_path / "v", keyring)
    assert chosen.name == "python" and "writeLegacyFormat" in chosen.reason
    for folder in ("t", "u"):
        assert str(read_table(tmp_path / folder, keyring).schema.field("at").type) \
            == "timestamp[us, tz=UTC]"


def test_options_of_the_session_count(session, tmp_path, keyring):
    with settings(session, {"spark.datasource.secure_parquet.index_columns": "ssn"}):
        chosen = write(people(session, 4), tmp_path / "t", keyring)
    assert "option index_columns" in chosen.reason
    policy = Policy(footer_key="footer", columns={"city": "money"})
    with settings(session, {"spark.datasource.secure_parquet.policy": policy.to_toml()}):
        chosen = write(people(session, 4), tmp_path / "u", keyring, encryption=None)
    assert chosen.name == "native"
    assert keys_of(tmp_path / "u", keyring)["city"] == "money"


def test_without_native_enable_or_register_python_tasks_write(session, tmp_path, keyring,
                                                              monkeypatch):
    def missing(spark):
        raise SecureBloomError("call native.enable(spark) first")

    other = session.newSession()
    secure_bloom.spark.register(other)
    del engines.registered[other]
    chosen = write(people(other, 4), tmp_path / "t", keyring)
    assert "register was not called" in chosen.reason
    monkeypatch.setattr(engines, "Application", missing)
    assert "native.enable was not called" in write(people(session, 4), tmp_path / "u",
                                                   keyring).reason


def test_a_mistake_is_reported_as_always(session, tmp_path, keyring):
    with pytest.raises(Exception, match="there is no column 'nosuch'") as error:
        write(people(session, 4), tmp_path / "t", keyring,
              encryption=EncryptionConfiguration("footer", {"pii": ["nosuch"]}))
    assert not isinstance(error.value, SecureBloomError)
    with pytest.raises(ValueError, match="engine must be auto, native or python, not 'java'"):
        write(people(session, 4), tmp_path / "t", keyring, engine="java")


def test_sparks_reader_returns_the_same_rows_and_marks(session, tmp_path, keyring):
    frame, folder = people(session, 20).selectExpr("*", "id % 2 as k"), tmp_path / "t"
    write(frame, folder, keyring, engine="python", partition_by="k", bloom_filters=FILTERS)
    ours = secure_bloom.spark.read(session, folder, keys=keyring)
    sparks = secure_bloom.spark.read(session, folder, keys=keyring, engine="native")
    assert sparks.schema["ssn"].metadata == ours.schema["ssn"].metadata
    assert "FileScan parquet" in sparks._jdf.queryExecution().toString()
    assert sorted(sparks.collect()) == sorted(ours.collect())
    found = secure_bloom.spark.read(session, folder, keys=keyring, engine="native",
                                    filters=[("ssn", "=", "ssn-7")])
    assert found.select("id").collect() == [(7,)]
    file = folder / "k=0" / visible(folder / "k=0")[0]
    assert secure_bloom.spark.read(session, file, keys=keyring, engine="native").count() > 0


def test_the_log_of_a_read_says_the_engine(session, tmp_path, keyring, caplog):
    write(people(session, 4), tmp_path / "t", keyring)
    caplog.set_level(logging.INFO, logger="secure_bloom.spark")
    for engine, expected in (("auto", "read by engine python: Spark's reader does not check"),
                             ("python", "read by engine python: as requested"),
                             ("native", "read by engine native: as requested")):
        caplog.clear()
        secure_bloom.spark.read(session, tmp_path / "t", keys=keyring, engine=engine)
        assert expected in caplog.text
    secure_bloom.spark.write(people(session, 4), tmp_path / "u", plaintext=True)
    with pytest.raises(UnsupportedError, match="needs keys"):
        secure_bloom.spark.read(session, tmp_path / "u", engine="native")


@pytest.mark.parametrize("arguments", [
    {"policy": Policy(footer_key="footer", columns={"ssn": "pii"})}, {"index": "require"},
    {"on.missing.key": "null"}, {"require.encryption": "true"}], ids=str)
def test_sparks_reader_is_refused_where_it_would_not_check(session, tmp_path, keyring, arguments):
    write(people(session, 4), tmp_path / "t", keyring)
    with pytest.raises(UnsupportedError, match='engine="native" is not possible'):
        secure_bloom.spark.read(session, tmp_path / "t", keys=keyring, engine="native",
                                **arguments)


def test_no_files_are_published_that_a_link_in_the_staging_folder_leads_to(tmp_path):
    """They would be moved out of the folder of somebody else."""
    job = Job(LocalFileSystem(), str(tmp_path / "t"), False)
    job.start()
    (tmp_path / "victim").mkdir()
    write_table(pa.table({"a": [1]}), tmp_path / "victim" / "x.parquet")
    staged = tmp_path / "t" / "_staging" / job.id / native_job._FILES
    staged.mkdir()
    (staged / "day=1").symlink_to(tmp_path / "victim")
    writer = SimpleNamespace(job=job, reading_keys=lambda: None, check_path=lambda path: None,
                             options=SimpleNamespace(encryption=None, bloom_filters={}))
    with pytest.raises(UnsupportedError, match="out of the table"):
        list(native_job._staged(writer))
    assert (tmp_path / "victim" / "x.parquet").exists()
