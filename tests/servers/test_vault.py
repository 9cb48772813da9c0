"""What the stand-in for Vault does not have: its own tokens, seal, limits and restarts."""

import time

import pyarrow as pa
import pytest

import secure_bloom
from secure_bloom import EncryptionConfiguration
from secure_bloom.errors import KeyAccessError, KmsUnavailableError
from secure_bloom.keys import VaultKms, rotate_master_keys
from tests.keys.checks import KEY
from tests.peers.certificates import self_signed
from tests.servers.vault import Vault
from tests.spark.helpers import start_spark

ENCRYPTION = EncryptionConfiguration("footer", {"pii": ["ssn"]})
TABLE = pa.table({"ssn": [f"{number:09}" for number in range(50)], "n": range(50)})


@pytest.fixture(autouse=True)
def keys(vault, monkeypatch):
    """New keys, and no setting of the environment."""
    for name in ("VAULT_ADDR", "VAULT_NAMESPACE", "VAULT_CACERT", "VAULT_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    vault.call("DELETE", "sys/mounts/transit")
    vault.call("POST", "sys/mounts/transit", type="transit")
    for name in ("footer", "pii", "new"):
        vault.call("POST", f"transit/keys/{name}")


def client(vault, token=None, **options) -> VaultKms:
    return VaultKms(vault.url, token=token or vault.new_token(), **options)


def test_approle(vault):
    """The token comes from a function, which logs in again when the token has expired."""
    if "approle/" not in vault.call("GET", "sys/auth")["data"]:
        vault.call("POST", "sys/auth/approle", type="approle")
    role = "auth/approle/role/job"
    vault.call("POST", role, token_policies=["keys"], token_ttl="1s", token_max_ttl="1s")
    ids = {"role_id": vault.call("GET", f"{role}/role-id")["data"]["role_id"],
           "secret_id": vault.call("POST", f"{role}/secret-id")["data"]["secret_id"]}
    tokens = []

    def log_in():
        tokens.append(vault.call("POST", "auth/approle/login", **ids)["auth"]["client_token"])
        return tokens[-1]

    kms = client(vault, log_in)
    wrapped = kms.wrap_key(KEY, "footer")
    expired = client(vault, tokens[0])
    with pytest.raises(KeyAccessError):
        while True:
            expired.unwrap_key(wrapped, "footer")
            time.sleep(0.2)
    assert kms.unwrap_key(wrapped, "footer") == KEY and len(tokens) > 1


def test_a_token_that_expires_and_is_replaced_in_the_middle_of_a_job(vault, tmp_path):
    token = [vault.new_token()]
    kms = client(vault, lambda: token[0])
    single = EncryptionConfiguration("footer", {"pii": ["ssn"]}, double_wrapping=False)

    def write():
        secure_bloom.write_dataset(TABLE, tmp_path / "t", encryption=single, keys=kms,
                                   mode="append")

    write()
    vault.call("POST", "auth/token/revoke", token=token[0])
    with pytest.raises(KeyAccessError, match="must be valid"):
        write()
    token[0] = vault.new_token()
    write()
    assert secure_bloom.read_table(tmp_path / "t", kms).num_rows == 100


def test_permissions(vault):
    """A reader cannot wrap, no one makes a key by misspelling it, and no key is deleted."""
    vault.call("PUT", "sys/policies/acl/reader",
               policy='path "transit/decrypt/footer" { capabilities = ["update"] }')
    writer, reader = client(vault), client(vault, vault.new_token(policies=["reader"]))
    wrapped = writer.wrap_key(KEY, "footer")
    assert reader.unwrap_key(wrapped, "footer") == KEY
    for call in (lambda: reader.wrap_key(KEY, "footer"),
                 lambda: reader.unwrap_key(writer.wrap_key(KEY, "pii"), "pii"),
                 lambda: writer.wrap_key(KEY, "misspelt"), lambda: client(vault, "hvs.none")
                 .unwrap_key(wrapped, "footer")):
        with pytest.raises(KeyAccessError, match="HTTP 403"):
            call()
    assert "misspelt" not in vault.call("GET", "transit/keys?list=true")["data"]["keys"]


def test_a_vault_that_is_sealed_or_killed_works_again_afterwards(vault):
    kms = client(vault, attempts=1)
    wrapped = kms.wrap_key(KEY, "footer")
    vault.call("PUT", "sys/seal")
    with pytest.raises(KmsUnavailableError, match="sealed"):
        kms.unwrap_key(wrapped, "footer")
    vault.unseal()
    assert kms.unwrap_key(wrapped, "footer") == KEY
    vault.kill()
    with pytest.raises(KmsUnavailableError, match="no response"):
        kms.unwrap_key(wrapped, "footer")
    vault.start()
    vault.unseal()
    assert kms.unwrap_key(wrapped, "footer") == KEY


def test_a_rate_limit(vault):
    kms = client(vault, attempts=1)
    wrapped = kms.wrap_key(KEY, "footer")
    vault.call("POST", "sys/quotas/rate-limit/keys", path="transit", rate=1, interval="1s")
    try:
        with pytest.raises(KmsUnavailableError, match="429"):
            for _ in range(1000):
                kms.unwrap_key(wrapped, "footer")
        assert client(vault, attempts=20).unwrap_key(wrapped, "footer") == KEY
    finally:
        vault.call("DELETE", "sys/quotas/rate-limit/keys")


def test_rotation(vault, tmp_path):
    """Files open after their key was rotated, and after their master key was replaced."""
    kms, path = client(vault), tmp_path / "a.parquet"
    secure_bloom.write_table(TABLE, path, encryption=ENCRYPTION, keys=kms, bloom_filters=["ssn"])
    for name in ("footer", "pii"):
        vault.call("POST", f"transit/keys/{name}/rotate")
    assert secure_bloom.read_table(path, kms).equals(TABLE)
    rotate_master_keys(path, kms, old="pii", new="new")
    rotate_master_keys(path, kms, old="footer", new="footer")
    vault.call("POST", "transit/keys/footer/config", min_decryption_version=2)
    vault.call("POST", "transit/keys/pii/config", deletion_allowed=True)
    vault.call("DELETE", "transit/keys/pii")
    found = secure_bloom.read_table(path, client(vault), filters=[("ssn", "==", "000000007")])
    assert found["n"].to_pylist() == [7]


def test_tls_with_an_authority_of_ones_own(tmp_path):
    tls = self_signed(tmp_path)
    vault = Vault(tls)
    try:
        vault.call("POST", "transit/keys/footer")
        with pytest.raises(KmsUnavailableError, match="certificates"):
            client(vault, attempts=1).wrap_key(KEY, "footer")
        kms = client(vault, ca_file=tls[0])
        assert kms.unwrap_key(kms.wrap_key(KEY, "footer"), "footer") == KEY
    finally:
        vault.stop()


SPARK = """
import secure_bloom.spark
secure_bloom.spark.register(spark)
folder, keys = sys.argv[1:]
options = {"keys": keys, "parquet.encryption.footer.key": "footer",
           "parquet.encryption.column.keys": "pii: ssn", "parquet.bloom.filter.enabled#ssn": "true"}
frame = spark.range(100).selectExpr("id", "cast(id as string) as ssn")
frame.write.format("secure_parquet").options(**options).mode("append").save(folder)
found = spark.read.format("secure_parquet").option("keys", keys).load(folder).where("ssn = '42'")
print("found", [row.id for row in found.collect()])
"""


def test_a_spark_job(vault, tmp_path):
    keys, log = f"vault:{vault.url}/transit", tmp_path / "log"
    job = start_spark(SPARK, tmp_path / "t", keys, log=log, VAULT_TOKEN=vault.new_token())
    assert job.wait() == 0 and "found [42]" in log.read_text(), log.read_text()
