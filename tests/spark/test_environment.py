"""Keys that no option names: they come from the driver's environment, never from a worker's."""

import os

import pytest

import secure_bloom.spark
from secure_bloom import ParquetFile, verify_file
from secure_bloom.spark.options.kms import environment_uri, kms_client, kms_uri
from secure_bloom.spark.options.options import Options
from tests.spark.helpers import PLAINTEXT, own_spark, people, read, uses_spark, visible, write
from tests.tiers import sweep_where

pytestmark = uses_spark

ENCRYPTION = {"parquet.encryption.footer.key": "footer",
              "parquet.encryption.column.keys": "pii: ssn",
              "parquet.bloom.filter.enabled#ssn": "true"}


@pytest.fixture
def registered(spark, monkeypatch):
    """Register with other variables; the workers of this Spark have none of them."""
    def register(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        secure_bloom.spark.register(spark)

    yield register
    monkeypatch.undo()
    secure_bloom.spark.register(spark)


def test_the_policy_of_the_environment_reaches_workers_as_text(spark, tmp_path, registered):
    path = tmp_path / "policy.toml"
    path.write_text('sensitive = ["ssn"]')
    registered(SECURE_BLOOM_POLICY=str(path))
    path.unlink()
    with pytest.raises(Exception, match="'ssn' in sensitive"):
        write(people(spark, 4), tmp_path / "t", **PLAINTEXT)
    assert visible(tmp_path / "t") == []
    write(people(spark, 4), tmp_path / "t", **PLAINTEXT,
          policy='[columns]\n"*" = {plaintext = true}\n')
    with pytest.raises(Exception, match="not encrypted"):
        read(spark, tmp_path / "t").collect()


@pytest.fixture(params=["keyring", "kms"])
def named(request, keyring, registered):
    if request.param == "keyring":
        registered(SECURE_BLOOM_KEYRING=str(keyring.path))
    else:
        registered(SECURE_BLOOM_KMS=f"keyring:{keyring.path}")
    return keyring


def test_the_driver_hands_its_keys_to_the_workers(spark, tmp_path, named):
    folder = tmp_path / "data"
    write(people(spark), folder, **ENCRYPTION)
    write(people(spark, start=100), folder, **ENCRYPTION,
          **{"parquet.encryption.double.wrapping": "false"})
    assert read(spark, folder).count() == 200
    found = secure_bloom.spark.read(spark, str(folder), filters=[("ssn", "=", "ssn-7")])
    assert [row.city for row in found.collect()] == ["city-7"]
    result = secure_bloom.spark.attach(spark, folder, {"city": True})
    assert len(result.changed) == 4 and not result.failed
    for name in visible(folder):
        assert verify_file(folder / name, named).ok
        assert [info.encrypted for info in ParquetFile(folder / name, named).bloom_filters] \
            == [True, False]


def test_an_option_wins_over_the_environment(spark, tmp_path, keyring, registered):
    registered(SECURE_BLOOM_KEYRING="/nowhere/keys.json", SECURE_BLOOM_KMS="nokms:x")
    folder = tmp_path / "data"
    write(people(spark), folder, **ENCRYPTION, keys=str(keyring.path))
    for option in ({"keys": str(keyring.path)}, {"keys": f"keyring:{keyring.path}"}):
        assert read(spark, folder, **option).count() == 100


@sweep_where(lambda variables, **_: len(variables) == 1)
@pytest.mark.parametrize("variables", [
    {"SECURE_BLOOM_KEYRING": "/nowhere/keys.json"}, {"SECURE_BLOOM_KMS": "nokms:x"},
    {"SECURE_BLOOM_KEYRING": "a", "SECURE_BLOOM_KMS": "keyring:a"}], ids=lambda v: "+".join(v))
def test_a_broken_environment_breaks_only_what_needs_keys(spark, tmp_path, keyring, registered,
                                                          variables):
    encrypted, plain = tmp_path / "encrypted", tmp_path / "plain"
    write(people(spark), encrypted, **ENCRYPTION, keys=str(keyring.path))
    registered(**variables)
    write(people(spark), plain, **PLAINTEXT)
    assert read(spark, plain).count() == 100
    with pytest.raises(Exception, match="SECURE_BLOOM_K"):
        read(spark, encrypted).count()
    with pytest.raises(Exception, match="SECURE_BLOOM_K"):
        write(people(spark), tmp_path / "none", **ENCRYPTION)
    assert not visible(tmp_path / "none")


def test_what_is_sent_to_workers_holds_settings_and_no_key(keyring, registered, monkeypatch):
    without = Options({"path": "x"})
    assert environment_uri() is None and without.with_default_kms(None) == {"path": "x"}
    registered(SECURE_BLOOM_KEYRING=os.path.relpath(keyring.path))
    uri = environment_uri()
    assert str(keyring.path) in uri
    options = without.with_default_kms(uri)
    assert options == {"path": "x", "keys": uri} and kms_uri(options) == uri
    assert Options({"keys": "y"}).with_default_kms(uri) == {"keys": "y"}
    monkeypatch.setenv("SECURE_BLOOM_KEYRING", "/nowhere")
    client = kms_client(uri)
    assert client.unwrap_key(keyring.wrap_key(b"k" * 16, "pii"), "pii") == b"k" * 16
    assert kms_client(uri)._unwrapped is client._unwrapped


JOB = '''
import secure_bloom.spark

secure_bloom.spark.register(spark)
try:
    print("rows", spark.read.format("secure_parquet").load(sys.argv[1]).count())
except Exception as error:
    print("failed", error)
'''


@pytest.mark.sweep
@pytest.mark.parametrize(("driver", "worker", "shown"), [
    (None, "good", "specify the KMS in option keys"), ("good", "bad", "rows 100"),
    ("good", None, "rows 100")])
def test_the_environment_of_the_workers_does_not_matter(spark, tmp_path, keyring, driver, worker,
                                                        shown):
    folder, paths = tmp_path / "data", {"good": str(keyring.path), "bad": "/nowhere/keys.json"}
    write(people(spark), folder, **ENCRYPTION, keys=paths["good"])
    settings = {"spark.executorEnv.SECURE_BLOOM_KEYRING": paths[worker]} if worker else {}
    variables = {"SECURE_BLOOM_KEYRING": paths[driver]} if driver else {}
    done = own_spark(JOB, folder, settings=settings, **variables)
    assert shown in done.stdout, done.stdout + done.stderr

