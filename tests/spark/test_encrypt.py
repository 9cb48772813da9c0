"""Encrypting a folder of Spark's own files with Spark."""

import os

import pytest

import secure_bloom.spark
from secure_bloom import EncryptionConfiguration, ParquetFile, Policy, read_table
from secure_bloom.errors import ArgumentError, UnsupportedError
from secure_bloom.keys import Keyring

pytestmark = pytest.mark.spark

POLICY = Policy(footer_key="footer", columns={"ssn": {"key": "pii", "bloom_filter": True}})


@pytest.fixture
def folder(spark, tmp_path):
    """Three files of Spark, in partitions, with a summary and an index of their plaintext."""
    folder = tmp_path / "rows"
    rows = spark.range(300).selectExpr("id", "concat('s', id) as ssn", "id % 3 as part")
    rows.coalesce(1).write.partitionBy("part").parquet(str(folder))
    (folder / "_metadata").write_bytes(b"PAR1PAR1")
    secure_bloom.index.build(folder, "ssn", encryption=None)
    return folder


def test_every_file_is_encrypted_in_a_task(spark, folder, keyring, tmp_path):
    kept = Keyring(keyring.path)
    before = read_table(folder).sort_by("id")
    plan = secure_bloom.spark.encrypt(spark, folder, keys=keyring, policy=POLICY, dry_run=True)
    assert len(plan.changed) == 3 and read_table(folder).sort_by("id").equals(before)
    times = [int(os.stat(one.file).st_mtime * 1000) for one in plan.changed]
    done = secure_bloom.spark.encrypt(spark, folder, keys=keyring, policy=POLICY, keep_times=True)
    assert times == [int(os.stat(one.file).st_mtime * 1000) for one in done.changed]
    assert done.ok and [one.file for one in done.changed] == [one.file for one in plan.changed]
    assert done.indexes == ["ssn"] and len(done.summaries) == 1
    assert any("copies" in one for one in done.out_of_reach)
    for one in done.changed:
        with ParquetFile(one.file, kept) as file:
            assert {info.column for info in file.bloom_filters if info.encrypted} == {"ssn"}
    assert not (folder / "_metadata").exists()
    assert secure_bloom.audit(folder, kept, policy=POLICY).ok  # also of the index
    assert read_table(folder, kept).sort_by("id").equals(before)
    found = secure_bloom.spark.read(spark, folder, keys=keyring, policy=POLICY)
    assert found.where("ssn = 's77'").count() == 1
    config = EncryptionConfiguration("footer", {"money": ["ssn"]})
    other = secure_bloom.spark.encrypt(spark, folder, keys=keyring, encryption=config,
                                       output=f"file:{tmp_path}/other")
    assert other.ok and other.unused_master_keys == []  # the old files stay
    assert read_table(tmp_path / "other", kept).sort_by("id").equals(before)


def test_refusals(spark, folder, keyring, tmp_path, monkeypatch):
    with pytest.raises(TypeError, match="encryption= or policy="):
        secure_bloom.spark.encrypt(spark, folder, keys=keyring)
    with pytest.raises(TypeError, match="KmsClient that wraps keys"):
        secure_bloom.spark.encrypt(spark, folder, policy=POLICY)
    with pytest.raises(ArgumentError, match="same filesystem"):
        secure_bloom.spark.encrypt(spark, folder, keys=keyring, policy=POLICY,
                                   output="s3://bucket/new?region=eu-west-1")
    (tmp_path / "victim.parquet").write_bytes((folder / "_metadata").read_bytes())
    (folder / "link.parquet").symlink_to(tmp_path / "victim.parquet")
    done = secure_bloom.spark.encrypt(spark, folder, keys=keyring, policy=POLICY)
    assert "out of the table" in done.failed[str(folder / "link.parquet")]
    assert len(done.changed) == 3
    (folder / "_delta_log").mkdir()
    (folder / "_delta_log" / "00000000000000000000.json").write_text("{}")
    with pytest.raises(UnsupportedError, match="Delta Lake"):
        secure_bloom.spark.encrypt(spark, folder, keys=keyring, policy=POLICY)
