"""``secure_bloom.spark.write`` and ``read``: arguments of Python instead of options."""

import importlib
import inspect
import os
import pkgutil
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet.encryption as pe
import pytest
from pyspark.sql import functions as F

import secure_bloom.spark
from secure_bloom import (
    BloomFilterOptions,
    EncryptionConfiguration,
    ParquetFile,
    UniformKey,
    read_table,
)
from secure_bloom.errors import OptionError, RenamedError, UnsupportedError
from secure_bloom.keys import InMemoryKms, Keyring
from secure_bloom.keys.material import KeyMaterial
from secure_bloom.policy import Policy
from secure_bloom.spark import native
from secure_bloom.spark.frames import _encryption, _filters
from secure_bloom.spark.writing import receipts
from secure_bloom.storage.summary import CommitSummary
from tests.spark.helpers import keys_of, people, settings, staged, uses_spark, visible
from tests.tiers import sweep_where

pytestmark = uses_spark

BY_COLUMN = EncryptionConfiguration("footer", {"pii": ["ssn"]})


def test_what_is_written_can_be_read(spark, tmp_path, keyring):
    frame, folder = people(spark), tmp_path / "t"
    secure_bloom.spark.write(frame, folder, keys=keyring, encryption=BY_COLUMN,
                             bloom_filters={"ssn": True, "city": BloomFilterOptions(fpp=0.1)},
                             compression="zstd")
    assert keys_of(folder, keyring) == {"ssn": "pii", "city": None, "id": None}
    with ParquetFile(folder / visible(folder)[0], keyring) as file:
        assert {info.column for info in file.bloom_filters} == {"ssn", "city"}
    back = secure_bloom.spark.read(spark, folder, keys=keyring)
    assert sorted(back.collect()) == sorted(frame.collect())
    for keys in (keyring.path, str(keyring.path), f"keyring:{keyring.path}"):
        assert secure_bloom.spark.read(spark, folder, keys=keys).schema == back.schema
    found = secure_bloom.spark.read(spark, folder, keys=keyring, columns="ssn",
                                    filters=[("ssn", "=", "ssn-7")])
    assert found.collect() == [("ssn-7",)]


def test_modes(spark, tmp_path, keyring):
    frame, folder = people(spark, 4), tmp_path / "t"

    def write(**mode):
        secure_bloom.spark.write(frame, folder, plaintext=True, **mode)

    write()
    with pytest.raises(Exception, match='or pass mode="append" to add'):
        write()
    write(mode="append")
    assert read_table(folder).num_rows == 8
    write(mode="overwrite")
    assert read_table(folder).num_rows == 4
    with pytest.raises(ValueError, match="mode must be one of error, append, overwrite"):
        write(mode="ignore")


@pytest.mark.parametrize("remote", [False, True])
def test_a_write_returns_what_it_has_committed(spark, tmp_path, keyring, monkeypatch, remote):
    """If the driver is elsewhere, Spark passes it on in the metadata of a schema."""
    if remote:
        monkeypatch.setattr(receipts, "take", lambda receipt: None)
    folder = tmp_path / "t"
    policy = Policy(footer_key="footer", columns={"ssn": {"key": "pii", "bloom_filter": True}})
    with ThreadPoolExecutor() as pool:  # several writes, each of which gets its own receipt
        found = list(pool.map(lambda rows: secure_bloom.spark.write(
            people(spark, rows), folder, mode="append", keys=keyring, policy=policy,
            index_columns=["ssn"]), (10, 20)))
    assert [summary.rows for summary in found] == [10, 20]
    for summary in found:
        assert summary.encrypted_columns == {"ssn": "pii"}
        assert summary.open_columns == ["city", "id"] and summary.indexed_columns == ["ssn"]
        assert (summary.files, summary.encrypted_filters, summary.plain_filters) == (2, 2, 0)
        assert summary.bytes == sum((folder / name).stat().st_size for name in visible(folder)
                                    if summary.job in name)
        assert repr(summary).startswith(f"<CommitSummary 2 files, {summary.rows} rows, ")
    last = secure_bloom.spark.last_commit(folder)
    assert last in found and last.open_columns is None  # which everyone could read
    assert found[0].to_dict()["encrypted_columns"] == {"ssn": "pii"}


def test_a_receipt_that_is_lost_is_not_an_error(spark, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(receipts, "RECEIPT", "other")
    monkeypatch.setattr(receipts, "take", lambda receipt: None)
    assert secure_bloom.spark.write(people(spark, 4), tmp_path / "t", plaintext=True) is None
    assert "the rows are committed" in caplog.text
    assert read_table(tmp_path / "t").num_rows == 4


def test_receipts_are_private(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    summary, name = CommitSummary("job", "now", 1, 2, 3, 0, 0, 0, {"ssn": "pii"}, []), "0" * 32
    receipts.leave(name, summary)
    folder = receipts._folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / name).stat().st_mode & 0o777 == 0o600
    os.utime(folder / name, (0, 0))
    receipts.leave("1" * 32, summary)
    assert [path.name for path in folder.iterdir()] == ["1" * 32]  # the caller of 0 has died
    for other in ("../x", "1" * 31):
        with pytest.raises(OptionError, match="it is set by"):
            receipts.take(other)
    assert '"rows": 2' in receipts.take("1" * 32) and receipts.take("1" * 32) is None
    receipts.leave("1" * 32, summary)
    folder.chmod(0o755)
    receipts.leave("2" * 32, summary)
    assert "must be a folder that only this user can read" in caplog.text
    assert receipts.take("1" * 32) is None and len(list(folder.iterdir())) == 1


def test_settings_for_s3_that_are_not_used_are_named_without_their_values(spark, caplog):
    secure_bloom.spark.register(spark)
    assert "fs.s3a" not in caplog.text
    with settings(spark, {"spark.hadoop.fs.s3a.secret.key": "qpzm",
                          "spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:9"}):
        secure_bloom.spark.register(spark)
    assert "fs.s3a.secret.key (set AWS_SECRET_ACCESS_KEY in" in caplog.text
    assert "fs.s3a.endpoint (set s3a://bucket/folder?endpoint_override=" in caplog.text
    assert "qpzm" not in caplog.text and "127.0.0.1:9" not in caplog.text
    assert "fs.s3a.access.key" not in caplog.text


@pytest.mark.sweep
def test_files_that_arrive_while_a_job_of_mode_error_runs(spark, tmp_path):
    """It looks again before it commits, and leaves nothing behind."""
    folder = tmp_path / "t"
    meanwhile = F.udf(lambda id: (folder.mkdir(exist_ok=True),
                                  (folder / "other.parquet").write_bytes(b""))[1])
    frame = people(spark, 4).withColumn("city", meanwhile("id"))
    with pytest.raises(Exception, match="the folder already has files"):
        secure_bloom.spark.write(frame, folder, plaintext=True)
    assert visible(folder) == ["other.parquet"] and staged(folder) == []


def test_partitions(spark, tmp_path, keyring):
    frame = people(spark, 20).selectExpr("*", "id % 2 as k", "id % 3 as l")
    secure_bloom.spark.write(frame, tmp_path / "t", keys=keyring, encryption=BY_COLUMN,
                             partition_by=["k", "l"])
    assert visible(tmp_path / "t") == ["k=0", "k=1"]
    for name, given in (("u", "k"), ("w", "k, l")):
        secure_bloom.spark.write(frame, tmp_path / name, plaintext=True, partition_by=given)
        assert visible(tmp_path / name) == ["k=0", "k=1"]
    assert visible(tmp_path / "w" / "k=0") == ["l=0", "l=1", "l=2"]
    with pytest.raises(Exception, match="column ssn is sensitive"):
        secure_bloom.spark.write(frame, tmp_path / "v", keys=keyring, encryption=BY_COLUMN,
                                 partition_by="ssn")
    assert not (tmp_path / "v").exists()


@pytest.mark.sweep
def test_names_of_keys_and_columns_may_contain_separators(spark, tmp_path):
    keyring, names = Keyring.create(tmp_path / "keys.json"), ("f;o:o,t ", " p;i:i,", "{m}")
    for name in names:
        keyring.add(name)
    frame = people(spark, 4).selectExpr("*", "id % 3 as `a,b`", "1 as `[c]`")
    footer, pii, money = names
    secure_bloom.spark.write(
        frame, tmp_path / "t", keys=keyring, partition_by=["a,b", "[c]"], bloom_filters=["ssn"],
        encryption=EncryptionConfiguration(footer, {pii: ["ssn"], money: ["city"]}))
    back = secure_bloom.spark.read(spark, tmp_path / "t", keys=keyring)
    assert sorted(back.select(frame.columns).collect()) == sorted(frame.collect())
    assert sorted(visible(tmp_path / "t")) == ["a,b=0", "a,b=1", "a,b=2"]
    for file in (tmp_path / "t").glob("a,b=*/*/*.parquet"):
        with ParquetFile(file, keyring) as opened:
            found = [KeyMaterial.parse(chunk.key_metadata).master_key_id
                     for chunk in opened.footer.column_chunks() if chunk.key_metadata]
            assert found == [pii, money]
            assert KeyMaterial.parse(opened.footer.footer_key_metadata).master_key_id == footer


@sweep_where(lambda encryption, **_: encryption is not BY_COLUMN)
@pytest.mark.parametrize(("encryption", "found"), [
    (BY_COLUMN, {"ssn": "pii", "home.city": None, "home.street": None}),
    (pe.EncryptionConfiguration("footer", column_keys={"pii": ["home"]}),
     {"ssn": None, "home.city": "pii", "home.street": "pii"}),
    (EncryptionConfiguration("footer", {"pii": ["home"], "money": ["home.city", "ssn"]},
                             plaintext_footer=True, data_key_length_bits=256,
                             encryption_algorithm="AES_GCM_CTR_V1", double_wrapping=False),
     {"ssn": "money", "home.city": "money", "home.street": "pii"}),
    (EncryptionConfiguration("money", uniform_encryption=True),
     dict.fromkeys(["ssn", "home.city", "home.street"], "money"))], ids=range(4))
def test_each_way_of_encryption(spark, tmp_path, keyring, encryption, found):
    frame = people(spark, 4).select("ssn", F.struct("city", F.lit("Corso").alias("street"))
                                    .alias("home"))
    secure_bloom.spark.write(frame, tmp_path / "t", keys=keyring, encryption=encryption)
    assert keys_of(tmp_path / "t", keyring) == found
    with ParquetFile(tmp_path / "t" / visible(tmp_path / "t")[0], keyring) as file:
        assert file.footer.has_encrypted_footer != encryption.plaintext_footer
        assert file.footer.algorithm.name == encryption.encryption_algorithm
        assert file.footer.crypto.footer_cipher.key_bits == encryption.data_key_length_bits


@pytest.mark.sweep
def test_filters(spark, tmp_path, keyring):
    frame = people(spark, 4).withMetadata("id", {"secure_bloom.bloom_filter": True})
    for number, (given, expected) in enumerate([
            (None, {"id"}), (False, set()), (True, {"ssn", "city", "id"}), (["ssn"], {"id", "ssn"}),
            ({"id": False, "city": {"fpp": 0.1}}, {"city"})]):
        folder = tmp_path / str(number)
        secure_bloom.spark.write(frame, folder, plaintext=True, bloom_filters=given)
        with ParquetFile(folder / visible(folder)[0]) as file:
            assert {info.column for info in file.bloom_filters} == expected, given


@pytest.mark.parametrize(("arguments", "error", "words"), [
    ({"keys": InMemoryKms({"footer": b"f" * 16})}, TypeError, "the path of a keyring, the URI"),
    ({"policy": 5}, TypeError, "policy must be a Policy or the path"),
    ({"encryption": "footer"}, TypeError, "encryption must be an EncryptionConfiguration"),
    ({"encryption": UniformKey(b"k" * 16)}, TypeError, "encryption must be an EncryptionConfig"),
    ({"encryption": EncryptionConfiguration("footer", {"pii": ["ssn"]},
                                            internal_key_material=False)},
     UnsupportedError, "always in the file"),
    ({"keys": "k.json", "Keys": "other.json"}, TypeError, "option Keys is also set"),
    ({"engine": "native"}, OptionError, "secure_bloom.spark.native")])
def test_arguments_that_are_not_valid(spark, tmp_path, arguments, error, words):
    with pytest.raises(error, match=words):
        secure_bloom.spark.write(people(spark, 4), tmp_path / "t", **arguments)
    assert not (tmp_path / "t").exists()


def test_the_key_of_a_column_replaces_that_of_its_group():
    found = _encryption(EncryptionConfiguration("f", {"a": ["g"], "b": ["g.x"]}), ["g.x", "g.y"])
    assert found["parquet.encryption.column.keys"] == '{"a": ["g.y"], "b": ["g.x"]}'
    assert _filters({"a": BloomFilterOptions(0.1, 5)}, []) == {
        "bloom_filters": '{"a": {"fpp": 0.1, "ndv": 5}}'}


def test_old_names_say_the_new_ones(spark):
    for call, words in [
            (lambda: secure_bloom.spark.load(spark, "t", []), r"load was removed: .*filters"),
            (lambda: secure_bloom.spark.attach(spark, "t", True, keyring="k"), "called keys now"),
            (lambda: native.write_options(kms="k"), "write_options: argument kms is called keys"),
            (lambda: native.read_options("t", kms="k"), "read_options: argument kms"),
            (lambda: native.verify("t", kms="k"), "verify: argument kms")]:
        with pytest.raises(RenamedError, match=words):
            call()
    assert not hasattr(secure_bloom.spark, "load")
    assert "keys: " in str(inspect.signature(secure_bloom.spark.attach))


def test_no_module_takes_the_place_of_a_public_function():
    """Importing a module sets it as an attribute of its package."""
    modules = [module.name for module in pkgutil.iter_modules(secure_bloom.spark.__path__)]
    assert not set(modules) & set(secure_bloom.spark.__all__)
    for name in modules:
        importlib.import_module(f"secure_bloom.spark.{name}")
    assert all(callable(getattr(secure_bloom.spark, name)) for name in secure_bloom.spark.__all__)


def test_a_policy_may_be_an_object_or_a_path(spark, tmp_path, keyring):
    policy = Policy(footer_key="footer", columns={"ssn": "pii"})
    (tmp_path / "policy.toml").write_text(policy.to_toml())
    for number, given in enumerate([policy, tmp_path / "policy.toml"]):
        folder = tmp_path / str(number)
        secure_bloom.spark.write(people(spark, 4), folder, keys=keyring, policy=given)
        assert keys_of(folder, keyring) == {"ssn": "pii", "city": None, "id": None}
        assert secure_bloom.spark.read(spark, folder, keys=keyring, policy=given).count() == 4


def test_the_first_example_of_the_docs(spark, tmp_path, keyring):
    text = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    code = code.replace("/data", str(tmp_path)).replace("/etc/keys/keyring.json", str(keyring.path))
    frame = people(spark, 4).selectExpr("'078-05-1120' as ssn", "id")
    names = {"spark": spark, "df": frame}
    exec(code, names)
    assert names["people"].count() == 4
    assert keys_of(tmp_path / "people", keyring) == {"ssn": "pii", "id": None}


def test_the_docs_name_tests_that_exist():
    folder = Path(__file__).parent
    tests = (folder / "test_lost_marks.py").read_text()
    table = (folder.parents[1] / "docs" / "spark.md").read_text().partition(
        "### Marks that are lost")[2].partition("\n## ")[0]
    named = re.findall(r"`(test_\w+?|lost)(?:\.\.\.)?` \|$", table, re.MULTILINE)
    assert len(named) == 7 and all(f"def {name}" in tests for name in named)


@pytest.mark.sweep
def test_mode_error_in_an_object_store(spark, s3):
    """Files of the job itself, which are there before it commits, do not count."""
    folder = s3.uri("frames")
    secure_bloom.spark.write(people(spark, 4), folder, plaintext=True)
    assert secure_bloom.spark.read(spark, folder).count() == 4
    with pytest.raises(Exception, match="the folder already has files"):
        secure_bloom.spark.write(people(spark, 4), folder, plaintext=True)
